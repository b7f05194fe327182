//! Names as a transaction will leave them: what the tables have, and above that what its operations
//! have come to so far. What is to be recorded is collected; nothing is changed, so that a
//! transaction one of whose operations fails has done nothing.
//!
//! Invariant: a number that was given to a directory that is to be made is given back, or recorded.
//! Not here: what each operation may do (`transactions`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, ROOT};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::{ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::{components, refuse};
use crate::core::state::State;
use crate::naming::making::{self, New};
use crate::naming::names::Place;
use crate::naming::xattrs::Values;
use crate::naming::{listing, lookup, permitting};

/// `w` and `x` of permission bits.
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// What a transaction comes to.
pub(super) struct Plan<'c> {
    pub caller: &'c Caller,
    /// When it happens, all of it.
    pub time_ns: u64,
    /// What names stand for that it changes, by directory.
    names: BTreeMap<Ino, BTreeMap<Vec<u8>, Option<Ino>>>,
    /// Directories that it makes.
    made: BTreeMap<Ino, Attributes>,
    /// Directories that it removes.
    removed: BTreeSet<Ino>,
    /// How many names it takes from what is no directory.
    lost: BTreeMap<Ino, u32>,
    /// Extended attributes of what it sets some of.
    values: BTreeMap<Ino, Values>,
    /// What is to be recorded, in this order.
    facts: Vec<Fact>,
}

impl<'c> Plan<'c> {
    /// Of nothing.
    pub fn new(caller: &'c Caller, time_ns: u64) -> Self {
        let (names, made, removed, lost, values, facts) = Default::default();
        Plan { caller, time_ns, names, made, removed, lost, values, facts }
    }

    // Looking.

    /// What a name stands for.
    pub fn child(&self, state: &mut State, (directory, name): Place<'_>) -> Result<Option<Ino>> {
        let changed = self.names.get(&directory).and_then(|names| names.get(name));
        match changed {
            Some(there) => Ok(*there),
            None if self.made.contains_key(&directory) => Ok(None),
            None => lookup::child(state, self.caller, directory, name),
        }
    }

    /// What something looks like; of a file, without what is written to it meanwhile.
    pub fn attributes(&self, state: &State, ino: Ino, path: &[u8]) -> Result<Attributes> {
        let gone = self.removed.contains(&ino);
        let made = self.made.get(&ino).copied();
        let known = made.or_else(|| state.names.inode(ino).map(|inode| inode.attributes()));
        known.filter(|_| !gone).ok_or_else(|| refuse(ErrorKind::NotFound, path))
    }

    fn permit(&self, state: &State, ino: Ino, want: u32, path: &[u8]) -> Result<Attributes> {
        let attributes = self.attributes(state, ino, path)?;
        permitting::permit(self.caller, &attributes, want, path).map(|()| attributes)
    }

    /// The directory that has, or shall have, the last component of a path, and that component.
    pub fn parent<'p>(&self, state: &mut State, path: &'p [u8]) -> Result<Place<'p>> {
        let parts = components(path)?;
        let Some((name, above)) = parts.split_last() else {
            return Err(refuse(ErrorKind::Busy, path));
        };
        let mut at = ROOT;
        for part in above {
            self.permit(state, at, SEARCH, path)?;
            let found = self.child(state, (at, part))?;
            at = found.ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
            match self.attributes(state, at, path)?.kind {
                Kind::Directory => {}
                // The client knows it now, and where it leads.
                Kind::Symlink => return Err(refuse(ErrorKind::Link, path)),
                _ => return Err(refuse(ErrorKind::NotDirectory, path)),
            }
        }
        self.permit(state, at, SEARCH, path)?;
        Ok((at, name))
    }

    /// What is at a path, if anything is.
    pub fn find(&self, state: &mut State, path: &[u8]) -> Result<Option<Ino>> {
        if path.is_empty() {
            return Ok(Some(ROOT));
        }
        let place = self.parent(state, path)?;
        self.child(state, place)
    }

    /// What is at a path.
    pub fn must_find(&self, state: &mut State, path: &[u8]) -> Result<Ino> {
        self.find(state, path)?.ok_or_else(|| refuse(ErrorKind::NotFound, path))
    }

    /// What is at the end of a path, and where that is.
    pub fn named<'p>(&self, state: &mut State, path: &'p [u8]) -> Result<(Place<'p>, Ino)> {
        let place = self.parent(state, path)?;
        let ino = self.child(state, place)?.ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
        Ok((place, ino))
    }

    /// Whether a directory has no names.
    pub fn is_empty(&self, state: &mut State, directory: Ino) -> Result<bool> {
        let changed = self.names.get(&directory);
        if changed.is_some_and(|names| names.values().any(Option::is_some)) {
            return Ok(false);
        }
        if self.made.contains_key(&directory) {
            return Ok(true);
        }
        let names = listing::names_of(state, self.caller, directory)?;
        let is_gone = |name: &[u8]| changed.is_some_and(|changed| changed.contains_key(name));
        Ok(names.iter().all(|name| is_gone(&name.name)))
    }

    /// Refuses who may not change the names of a directory, or one that is removed.
    pub fn permit_change_in(&self, state: &State, directory: Ino, path: &[u8]) -> Result<()> {
        let attributes = self.permit(state, directory, WRITE | SEARCH, path)?;
        match attributes.links {
            0 => Err(refuse(ErrorKind::NotFound, path)),
            _ => Ok(()),
        }
    }

    /// Refuses who may not take something from a directory.
    pub fn permit_removal(
        &self,
        state: &State,
        directory: Ino,
        ino: Ino,
        path: &[u8],
    ) -> Result<()> {
        self.permit_change_in(state, directory, path)?;
        let directory = self.attributes(state, directory, path)?;
        let taken = self.attributes(state, ino, path)?;
        permitting::permit_taking(self.caller, &directory, &taken, path)
    }

    /// Refuses who may not have something change its directory; one that gets another parent is
    /// itself changed.
    pub fn permit_moving(
        &self,
        state: &State,
        ino: Ino,
        (parent, to_parent): (Ino, Ino),
        path: &[u8],
    ) -> Result<()> {
        self.permit_removal(state, parent, ino, path)?;
        let is_directory = self.attributes(state, ino, path)?.kind == Kind::Directory;
        match is_directory && parent != to_parent {
            true => self.permit(state, ino, WRITE, path).map(drop),
            false => Ok(()),
        }
    }

    /// Extended attributes of something, as they will be; `None`: there are none.
    pub fn values<'s>(&'s self, state: &'s State, ino: Ino) -> Option<&'s Values> {
        self.values.get(&ino).or_else(|| state.xattrs.of(ino))
    }

    /// Whether it makes this.
    pub fn makes(&self, ino: Ino) -> bool {
        self.made.contains_key(&ino)
    }

    /// What loses so many names, and is no directory.
    pub fn losses(&self) -> impl Iterator<Item = (Ino, u32)> {
        self.lost.iter().map(|(ino, names)| (*ino, *names))
    }

    /// How many inodes it makes, further names included.
    pub fn news(&self) -> usize {
        let links = self.facts.iter().filter(|fact| matches!(fact, Fact::Linked { .. })).count();
        self.made.len() + links
    }

    // Doing.

    /// A name stands for something else from now on.
    pub fn stands_for(&mut self, (directory, name): Place<'_>, ino: Option<Ino>) {
        self.names.entry(directory).or_default().insert(name.into(), ino);
    }

    /// Something loses a name; a directory is no more.
    pub fn loses(&mut self, state: &State, ino: Ino) {
        let made = self.made.contains_key(&ino);
        if made || state.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
            self.removed.insert(ino);
        } else {
            *self.lost.entry(ino).or_default() += 1;
        }
    }

    /// This is to be recorded.
    pub fn records(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// A directory is made.
    pub fn makes_directory(&mut self, state: &mut State, place: Place<'_>, mode: u32) {
        let ino = state.names.reserve_ino();
        let above = self.attributes(state, place.0, place.1).ok();
        let new = New { place, kind: Kind::Directory, mode, target: b"" };
        let fact = making::fact_of(self.caller, ino, &new, above.as_ref(), self.time_ns);
        if let Fact::Made { kind, mode, uid, gid, time_ns, .. } = fact {
            let (accessed_ns, modified_ns, changed_ns) = (time_ns, time_ns, time_ns);
            let (links, size) = (2, 0);
            let attributes = Attributes {
                ino,
                kind,
                mode,
                links,
                uid,
                gid,
                size,
                accessed_ns,
                modified_ns,
                changed_ns,
            };
            self.made.insert(ino, attributes);
        }
        self.stands_for(place, Some(ino));
        self.records(fact);
    }

    /// An extended attribute is set, or removed.
    pub fn sets(&mut self, state: &State, ino: Ino, name: &[u8], value: Option<&[u8]>) {
        let values = self.values(state, ino).cloned().unwrap_or_default();
        let values = self.values.entry(ino).or_insert(values);
        match value {
            Some(value) => drop(values.insert(name.into(), value.into())),
            None => drop(values.remove(name)),
        }
        let (name, value, time_ns) = (name.into(), value.map(<[u8]>::to_vec), self.time_ns);
        self.records(Fact::Xattr { ino, name, value, time_ns });
    }

    /// It does not come to be.
    pub fn gives_up(self, state: &mut State) {
        self.made.into_keys().for_each(|ino| state.names.give_back(ino));
    }

    /// Records all of it. Readers wait until it is written.
    pub fn carries_out(self, state: &mut State) {
        let names = self
            .names
            .iter()
            .flat_map(|(directory, names)| names.keys().map(|name| (*directory, name.as_slice())));
        let linked = self.facts.iter().filter_map(|fact| match fact {
            Fact::Linked { ino, .. } => Some(*ino),
            _ => None,
        });
        state.names.hold_all(names, self.lost.keys().copied().chain(linked));
        for fact in self.facts {
            let alias = state.names.next_ino();
            state.record(match fact {
                Fact::Linked { ino, parent, name, time_ns, .. } => {
                    Fact::Linked { ino, alias, parent, name, time_ns }
                }
                other => other,
            });
        }
    }
}
