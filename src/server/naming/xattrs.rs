//! The extended attributes of files and directories, as the records have them.
//!
//! An inode has an entry once anything is known of its attributes; of one that came from the
//! backing and has none, only the backing can tell. Not here: requests, and what the backing is
//! owed.

use std::collections::{BTreeMap, HashMap};

use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;

/// Name → value.
pub type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// All extended attributes of one server.
#[derive(Default)]
pub struct Xattrs(HashMap<Ino, Values>);

impl Xattrs {
    /// What an inode has; `None` if nothing is known of it.
    pub fn of(&self, ino: Ino) -> Option<&Values> {
        self.0.get(&ino)
    }

    /// Sets or removes one.
    pub fn set(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>) {
        let values = self.0.entry(ino).or_default();
        match value {
            Some(value) => drop(values.insert(name.into(), value.into())),
            None => drop(values.remove(name)),
        }
    }

    /// One that the backing has, or a snapshot; with an empty name, that there is none.
    pub fn found(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        let values = self.0.entry(ino).or_default();
        if !name.is_empty() {
            values.insert(name.into(), value.into());
        }
    }

    /// The inode is no more.
    pub fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }

    /// Records from which they come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Fact> {
        self.0.iter().flat_map(|(ino, values)| {
            let found = |(name, value): (&Vec<u8>, &Vec<u8>)| Fact::XattrFound {
                ino: *ino,
                name: name.clone(),
                value: value.clone(),
            };
            let none = Fact::XattrFound { ino: *ino, name: Vec::new(), value: Vec::new() };
            values.iter().map(found).chain(values.is_empty().then_some(none))
        })
    }
}
