//! Names of files that were born here, which other members take away, or have another file take:
//! they are not counted, and not known to have gone. A part of the namespace: it runs from records
//! only.
//!
//! Where there is a permanent store they are told apart by what they are called; else by the time
//! at which they were let go, as one that has gone may come again before that is heard. Not here:
//! what is done about them (`counting`, `sharing/adrift`, `sharing/letting_go`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number};

use crate::naming::names::Names;

/// For whom a name was let go, and which of the times at which one was.
pub type Time = (Member, u64);

/// A name that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// Of which file.
    pub ino: Ino,
    /// In which directory.
    pub directory: Number,
    /// What it is called there; empty: it went at another time.
    pub name: Vec<u8>,
}

/// A directory, and a name in it.
type At = (Number, Vec<u8>);

/// All of them.
#[derive(Default)]
pub(super) struct Leaving {
    /// The names of each file.
    names: BTreeMap<Ino, BTreeSet<At>>,
    /// By their times.
    let_go: BTreeMap<Time, LetGo>,
    /// Of how many of these each file is.
    of: BTreeMap<Ino, u32>,
}

impl Leaving {
    fn is_named(&mut self, ino: Ino, name: At, is: bool) {
        let names = self.names.entry(ino).or_default();
        if is {
            names.insert(name);
        } else {
            names.remove(&name);
        }
        if names.is_empty() {
            self.names.remove(&ino);
        }
    }

    fn is_let_go(&mut self, time: Time, let_go: LetGo, is: bool) {
        let ino = let_go.ino;
        let is_new = match is {
            true => self.let_go.insert(time, let_go).is_none(),
            false => self.let_go.remove(&time).is_some(),
        };
        let count = self.of.entry(ino).or_default();
        if is_new {
            *count = if is { *count + 1 } else { count.saturating_sub(1) };
        }
        if *count == 0 {
            self.of.remove(&ino);
        }
    }
}

impl Names {
    pub(super) fn leaves(&mut self, record: &Membership) {
        match record.clone() {
            Membership::Leaves { ino, directory, name, is } => {
                self.leaving.is_named(ino, (directory, name), is);
            }
            Membership::LetGo { ino, directory, name, by, which, is } => {
                self.leaving.is_let_go((by, which), LetGo { ino, directory, name }, is);
            }
            _ => {}
        }
    }

    /// All that are told apart by what they are called.
    pub fn leaving(&self) -> impl Iterator<Item = (Ino, Number, &[u8])> {
        let all = self.leaving.names.iter();
        all.flat_map(|(ino, names)| names.iter().map(|(at, name)| (*ino, *at, &name[..])))
    }

    /// All others.
    pub fn let_go(&self) -> impl Iterator<Item = (Time, &LetGo)> {
        self.leaving.let_go.iter().map(|(time, let_go)| (*time, let_go))
    }

    /// Which was at this time, if it is not known what has come of it.
    pub fn let_go_at(&self, time: Time) -> Option<&LetGo> {
        self.leaving.let_go.get(&time)
    }

    /// Of how many of these a file is.
    pub fn in_doubt(&self, ino: Ino) -> u32 {
        self.leaving.of.get(&ino).copied().unwrap_or_default()
    }

    /// Whether there are any.
    pub fn is_any_leaving(&self) -> bool {
        !self.leaving.names.is_empty() || !self.leaving.let_go.is_empty()
    }

    /// Whether a file has such names.
    pub fn is_leaving(&self, ino: Ino) -> bool {
        self.leaving.names.contains_key(&ino) || self.leaving.of.contains_key(&ino)
    }

    /// Whether this is one, by what it is called.
    pub fn is_leaving_as(&self, ino: Ino, (directory, name): (Number, &[u8])) -> bool {
        let mut its = self.leaving.names.get(&ino).into_iter().flatten();
        its.any(|(at, is)| *at == directory && is == name)
    }

    /// How many a file has besides this one.
    pub(super) fn leaving_besides(&self, ino: Ino, name: (Number, &[u8])) -> u32 {
        let all = self.leaving.names.get(&ino).map_or(0, BTreeSet::len);
        (all - usize::from(self.is_leaving_as(ino, name))) as u32
    }

    /// For a snapshot.
    pub fn leaving_records(&self) -> impl Iterator<Item = Membership> {
        let let_go = self.let_go().map(|((by, which), let_go)| {
            let LetGo { ino, directory, name } = let_go.clone();
            Membership::LetGo { ino, directory, name, by, which, is: true }
        });
        let leaving = self.leaving().map(|(ino, directory, name)| Membership::Leaves {
            ino,
            directory,
            name: name.into(),
            is: true,
        });
        leaving.chain(let_go)
    }
}
