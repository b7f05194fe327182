//! Files that are created in directories of other members, until it is known whether they have
//! their names, and who asked for them has heard of it.
//!
//! Not here: what is done about them (`naming/creating`).

use terral_format::disk::membership::{Creation, Membership};
use terral_format::ids::{Asker, Ino, SessionSlot, Wish};

use super::Members;

impl Members {
    pub(super) fn creates(&mut self, wish: Wish, creation: Option<&Creation>) {
        match creation {
            Some(creation) => drop(self.creations.insert(wish, creation.clone())),
            None => drop(self.creations.remove(&wish)),
        }
    }

    /// For a snapshot.
    pub(super) fn creations(&self) -> impl Iterator<Item = Membership> + '_ {
        let creates = |(wish, creation): (&Wish, &Creation)| Membership::Creates {
            wish: *wish,
            creation: Some(creation.clone()),
        };
        self.creations.iter().map(creates)
    }

    /// The file that is named by this, if any is.
    pub fn creation(&self, wish: Wish) -> Option<&Creation> {
        self.creations.get(&wish)
    }

    /// The one that a request has created.
    pub fn creation_of(&self, asker: Asker) -> Option<(Wish, &Creation)> {
        let its = |creation: &Creation| creation.asker == Some(asker);
        let found = self.creations.iter().find(|(_, creation)| its(creation));
        found.map(|(wish, creation)| (*wish, creation))
    }

    /// Those that requests of a session have created.
    pub fn creations_by(&self, session: SessionSlot) -> Vec<Wish> {
        let by = |creation: &Creation| creation.asker.is_some_and(|asker| asker.session == session);
        self.creations.iter().filter(|(_, creation)| by(creation)).map(|(wish, _)| *wish).collect()
    }

    /// Those of which it is not known whether they have their names.
    pub fn unnamed(&self) -> impl Iterator<Item = (Wish, Ino)> + '_ {
        let unnamed = self.creations.iter().filter(|(_, creation)| creation.named.is_none());
        unnamed.map(|(wish, creation)| (*wish, creation.ino))
    }

    /// Those among them for which nobody waits any more.
    pub fn left_unnamed(&self) -> Vec<Wish> {
        let all = self.creations.iter();
        let left = all.filter(|(_, creation)| (creation.asker, creation.named) == (None, None));
        left.map(|(wish, _)| *wish).collect()
    }

    /// Whether it depends on a wish if a file has its name.
    pub fn is_naming(&self, wish: Wish) -> bool {
        self.creations.get(&wish).is_some_and(|creation| creation.named.is_none())
    }

    /// Whether it is not known if a file has its name.
    pub fn is_created(&self, ino: Ino) -> bool {
        self.unnamed().any(|(_, created)| created == ino)
    }

    /// Whether that is so of any, and somebody may say it.
    pub fn has_created(&self) -> bool {
        self.unnamed().next().is_some() && !self.others().is_empty()
    }

    /// Whether a request is about to open a file that it has created, if it has its name.
    pub fn opens(&self, ino: Ino) -> bool {
        let opens = |creation: &Creation| creation.ino == ino && creation.named != Some(false);
        self.creations.values().any(|creation| creation.asker.is_some() && opens(creation))
    }
}
