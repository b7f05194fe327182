//! Names that a transaction changes: what each will stand for, and which name that has now. Nothing
//! here looks at what is there.

use std::collections::BTreeMap;

use terral_format::ids::Ino;

use crate::naming::names::{Name, Place};

/// Names of a directory that are changed, and what they will stand for.
type Changes = BTreeMap<Vec<u8>, Option<Ino>>;

/// Something that gets another name.
#[derive(PartialEq, Eq)]
pub(super) struct Moved {
    /// What.
    pub ino: Ino,
    /// Its name.
    pub from: Name,
    /// The one that it gets.
    pub to: Name,
    /// What changes places with it.
    pub back: Option<Ino>,
}

impl Moved {
    /// What is moved.
    pub fn inos(&self) -> impl Iterator<Item = Ino> + Clone + use<> {
        [Some(self.ino), self.back].into_iter().flatten()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Changed {
    names: BTreeMap<Ino, Changes>,
    /// Where what gets a name has one now.
    origins: BTreeMap<Name, Name>,
}

impl Changed {
    /// What a name will stand for, if it is changed.
    pub fn child(&self, (directory, name): Place<'_>) -> Option<Option<Ino>> {
        self.names.get(&directory)?.get(name).copied()
    }

    /// Names of a directory that are.
    pub fn within(&self, directory: Ino) -> Option<&Changes> {
        self.names.get(&directory)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (Place<'_>, Option<Ino>)> {
        let all = self.names.iter().map(|(at, names)| (*at, names));
        all.flat_map(|(at, names)| names.iter().map(move |(name, ino)| ((at, &name[..]), *ino)))
    }

    /// Which name has now what will have this one; none if it has none yet.
    pub fn origin(&self, name: &Name) -> Option<Name> {
        match self.child((name.0, &name.1)) {
            Some(_) => self.origins.get(name).cloned(),
            None => Some(name.clone()),
        }
    }

    /// A name stands for something else from then on, which has no name now.
    pub fn stands_for(&mut self, (directory, name): Place<'_>, ino: Option<Ino>) {
        self.origins.remove(&(directory, name.to_vec()));
        self.names.entry(directory).or_default().insert(name.into(), ino);
    }

    /// What is moved has its new name from then on.
    pub fn moves(&mut self, moved: &Moved) {
        let Moved { ino, from, to, back } = moved;
        let (origin, came) = (self.origin(from), back.and_then(|_| self.origin(to)));
        self.stands_for((from.0, &from.1), *back);
        self.stands_for((to.0, &to.1), Some(*ino));
        let named = [(to, origin), (from, came)].into_iter();
        self.origins.extend(named.filter_map(|(name, origin)| Some((name.clone(), origin?))));
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::Ino;

    use super::{Changed, Moved};

    #[test]
    fn what_is_moved_twice_has_the_name_now_that_it_had_first() {
        let name = |name: &str| (Ino(1), name.as_bytes().to_vec());
        let moved = |ino, from, to, back| {
            let (from, to) = (name(from), name(to));
            Moved { ino: Ino(ino), from, to, back }
        };
        let mut changed = Changed::default();
        changed.moves(&moved(2, "a", "b", None));
        changed.moves(&moved(2, "b", "c", Some(Ino(3))));
        assert_eq!(changed.origin(&name("c")), Some(name("a")));
        assert_eq!(changed.origin(&name("b")), Some(name("c")));
        assert_eq!(changed.origin(&name("a")), None);
        changed.stands_for((Ino(1), b"c"), Some(Ino(4)));
        assert_eq!(changed.origin(&name("c")), None);
        assert_eq!(changed.origin(&name("d")), Some(name("d")));
    }
}
