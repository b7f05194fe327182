//! Which files that were born here are striped, and over which members; of which chunks of them
//! something is under way, as far as this process knows. Not here: what is done then (`stripes`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member};
use terral_format::wire::placement::Stripe;

use crate::core::world::Tick;

/// See the module.
#[derive(Default)]
pub struct Stripes {
    files: BTreeMap<Ino, Stripe>,
    /// Those of which something may not be where it is to be.
    pub(super) unsettled: BTreeSet<Ino>,
    /// Chunks that a member has for itself, and wants to be rid of.
    pub(super) returned: BTreeMap<(Ino, u64), Member>,
    /// Members that are about to leave.
    pub(super) leaving: BTreeSet<Member>,
    /// Members that cannot take anything, until then.
    pub(super) full: BTreeMap<Member, Tick>,
    /// They are to be looked at.
    pub(super) looks: bool,
    /// Somebody waits for memory.
    pub(super) pressed: bool,
}

impl Stripes {
    pub(super) fn apply(&mut self, member: &Membership) {
        match member {
            Membership::Striped { ino, stripe: Some(stripe) } => {
                self.files.insert(*ino, stripe.clone());
                self.is_unsettled(*ino);
            }
            Membership::Striped { ino, stripe: None } => self.forget(*ino),
            _ => {}
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let files = self.files.iter();
        files.map(|(ino, stripe)| Membership::Striped { ino: *ino, stripe: Some(stripe.clone()) })
    }

    fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
        self.unsettled.remove(&ino);
        self.returned.retain(|(of, _), _| *of != ino);
    }

    /// How a file's parts lie, if over several.
    pub fn of(&self, ino: Ino) -> Option<&Stripe> {
        self.files.get(&ino)
    }

    pub(super) fn holder(&self, ino: Ino, index: u64) -> Option<Member> {
        self.files.get(&ino)?.holder(index)
    }

    /// A member has a chunk for itself from now on: it has not spoken of that yet.
    pub(super) fn is_lent(&mut self, ino: Ino, index: u64) {
        self.returned.remove(&(ino, index));
    }

    /// Something of a file may not be where it is to be.
    pub fn is_unsettled(&mut self, ino: Ino) {
        if self.files.contains_key(&ino) {
            self.unsettled.insert(ino);
            self.looks = true;
        }
    }
}
