//! Names of files that were born here, which other members take away, or have another file take:
//! they are not counted, and not known to have gone. A part of the namespace: it runs from records
//! only.
//!
//! Not here: what is done about them (`counting`, `sharing/adrift`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number};

use crate::naming::names::Names;

/// The names of each file, with their directories.
pub(super) type Leaving = BTreeMap<Ino, BTreeSet<(Number, Vec<u8>)>>;

impl Names {
    pub(super) fn leaves(&mut self, record: &Membership) {
        let Membership::Leaves { ino, directory, name, is } = record else { return };
        let (names, name) = (self.leaving.entry(*ino).or_default(), (*directory, name.clone()));
        if *is {
            names.insert(name);
        } else {
            names.remove(&name);
        }
        if names.is_empty() {
            self.leaving.remove(ino);
        }
    }

    /// All of them.
    pub fn leaving(&self) -> impl Iterator<Item = (Ino, Number, &[u8])> {
        let all = self.leaving.iter();
        all.flat_map(|(ino, names)| names.iter().map(|(at, name)| (*ino, *at, &name[..])))
    }

    /// Whether a file has such names.
    pub fn is_leaving(&self, ino: Ino) -> bool {
        self.leaving.contains_key(&ino)
    }

    /// Whether this is one.
    pub fn is_leaving_as(&self, ino: Ino, (directory, name): (Number, &[u8])) -> bool {
        let mut its = self.leaving.get(&ino).into_iter().flatten();
        its.any(|(at, is)| *at == directory && is == name)
    }

    /// How many a file has besides this one.
    pub(super) fn leaving_besides(&self, ino: Ino, name: (Number, &[u8])) -> u32 {
        let all = self.leaving.get(&ino).map_or(0, BTreeSet::len);
        (all - usize::from(self.is_leaving_as(ino, name))) as u32
    }

    /// For a snapshot.
    pub fn leaving_records(&self) -> impl Iterator<Item = Membership> {
        self.leaving().map(|(ino, directory, name)| Membership::Leaves {
            ino,
            directory,
            name: name.into(),
            is: true,
        })
    }
}
