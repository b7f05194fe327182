//! Names as a transaction will leave them: what the tables have, and above that what its operations
//! have come to so far. What is to be recorded is collected; nothing is changed, so that a
//! transaction one of whose operations fails has done nothing.
//!
//! Invariants: a number that was given to a directory that is to be made is given back, or
//! recorded. Where there are several machines, names are looked at in directories that are here
//! until all is done: what is on the way to these is seen, each step at its own moment. Not here:
//! what each operation may do (`transactions`), and which directories are here (`gathering`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Ino, Number, ROOT};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::transactions::{Gets, Set, TransactionId};
use terral_format::{ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::authority::quotas::Shift;
use crate::core::paths::{components, refuse};
use crate::core::state::State;
use crate::far::asking;
use crate::members::{moving, requiring};
use crate::naming::changed::{Changed, Moved};
use crate::naming::delegations::{self, Held};
use crate::naming::making::{self, New};
use crate::naming::names::{Name, Place};
use crate::naming::xattrs::Values;
use crate::naming::{counting, elsewhere, homes, letting_go, listing, lookup, permitting};

/// `w` and `x` of permission bits.
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// How the names of something change.
#[derive(Default)]
pub(super) struct Change {
    /// Which it gets.
    pub gets: Vec<Name>,
    /// Which it loses of those that it has now.
    pub loses: Vec<Name>,
}

impl Change {
    /// The first ones, as many as it has less afterwards.
    fn let_go(&self) -> Vec<Name> {
        let less = self.loses.len().saturating_sub(self.gets.len());
        self.loses[..less].to_vec()
    }
}

/// What a transaction comes to.
pub(super) struct Plan<'c> {
    pub caller: &'c Caller,
    /// When it happens, all of it.
    pub time_ns: u64,
    /// Directories that are here until all is done; `None`: all are.
    here: Option<BTreeSet<Ino>>,
    /// What names stand for that it changes.
    names: Changed,
    /// The directory that it moves, if it does, and after how many facts.
    moved: Option<(Moved, usize)>,
    /// Directories that it makes.
    made: BTreeMap<Ino, Attributes>,
    /// Directories that it removes.
    removed: BTreeSet<Ino>,
    /// Names that it takes from what is no directory, as they are now.
    lost: BTreeMap<Ino, Vec<Name>>,
    /// Which operation is the first that takes a name of something, and its path.
    taken: BTreeMap<Ino, (u32, Vec<u8>)>,
    /// Extended attributes of what it sets some of.
    values: BTreeMap<Ino, Values>,
    /// What is to be recorded, in this order.
    facts: Vec<Fact>,
    /// What it takes from containers that have quotas to others.
    pub shift: Shift,
    /// What it sets of what was born elsewhere.
    elsewhere: BTreeMap<Ino, Vec<Set>>,
    /// Files that were born elsewhere and get names: which operation gives the first one, and the
    /// paths of all, one after the other.
    given: BTreeMap<Ino, (u32, Vec<Vec<u8>>)>,
    /// Those whose names are delegated.
    delegated: BTreeMap<Ino, Held>,
    /// As which transaction that is prepared there, and of what.
    prepared: Option<(TransactionId, Vec<Number>)>,
    /// Another member is to know of it, too, if it is prepared anywhere.
    copied: bool,
}

impl<'c> Plan<'c> {
    /// Of nothing, where these directories are here.
    pub fn new(caller: &'c Caller, time_ns: u64, here: Option<BTreeSet<Ino>>) -> Self {
        let (names, moved, made, removed, lost, taken, values, facts) = Default::default();
        let (shift, elsewhere, given, delegated, prepared, copied) = Default::default();
        Plan {
            caller,
            time_ns,
            here,
            names,
            moved,
            made,
            removed,
            lost,
            taken,
            values,
            facts,
            shift,
            elsewhere,
            given,
            delegated,
            prepared,
            copied,
        }
    }

    // Looking.

    /// What a name stands for.
    pub fn child(&self, state: &mut State, (directory, name): Place<'_>) -> Result<Option<Ino>> {
        match self.names.child((directory, name)) {
            Some(there) => Ok(there),
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
            at = match self.step(state, (at, part), path) {
                Err(error) if !state.fetches.is_waiting() => {
                    // It counts if that cannot change meanwhile.
                    self.is_here(state, at)?;
                    return Err(error);
                }
                next => next?,
            };
        }
        self.is_here(state, at)?;
        self.permit(state, at, SEARCH, path)?;
        Ok((at, name))
    }

    /// The directory that a component of a path leads to.
    fn step(&self, state: &mut State, (at, part): Place<'_>, path: &[u8]) -> Result<Ino> {
        let found = if self.makes(at) || self.names.child((at, part)).is_some() {
            self.permit(state, at, SEARCH, path)?;
            self.child(state, (at, part))?
        } else {
            lookup::step(state, self.caller, at, part, path)?
        };
        let at = found.ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
        match self.attributes(state, at, path)?.kind {
            Kind::Directory => Ok(at),
            // The client knows it now, and where it leads.
            Kind::Symlink => Err(refuse(ErrorKind::Link, path)),
            _ => Err(refuse(ErrorKind::NotDirectory, path)),
        }
    }

    /// A directory is here, and as it is until all is done.
    fn is_here(&self, state: &mut State, directory: Ino) -> Result<()> {
        let Some(here) = &self.here else { return Ok(()) };
        if self.makes(directory) {
            return Ok(());
        }
        let stays = state.names.inode(directory).is_some_and(|inode| inode.links > 0);
        // One that was removed since it was looked up is not what its name stands for.
        match here.contains(&directory) && (stays || self.removed.contains(&directory)) {
            true => Ok(()),
            false => Err(requiring::needs_too(state, directory)),
        }
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
        self.is_here(state, directory)?;
        let changed = self.names.within(directory);
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
            _ if self.made.contains_key(&directory) => Ok(()),
            _ => permitting::permit_names_in(state, directory, path),
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
        if !self.made.contains_key(&ino) {
            permitting::permit_names_of(state, ino, path)?;
        }
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

    /// What loses which names, and is no directory.
    pub fn losses(&self) -> &BTreeMap<Ino, Vec<Name>> {
        &self.lost
    }

    /// How names come and go, of what is there before.
    pub fn changes(&self, state: &State) -> BTreeMap<Ino, Change> {
        let mut all = BTreeMap::<Ino, Change>::new();
        for ((directory, name), is) in self.names.all() {
            let was = state.names.child_here(directory, name);
            if was == is {
                continue;
            }
            let place = || (directory, name.to_vec());
            if let Some(was) = was {
                all.entry(was).or_default().loses.push(place());
            }
            if let Some(is) = is.filter(|is| !self.makes(*is)) {
                all.entry(is).or_default().gets.push(place());
            }
        }
        // First those that an operation takes: these are let go.
        for (ino, lost) in &self.lost {
            if let Some(change) = all.get_mut(ino) {
                change.loses.sort_by_key(|name| !lost.contains(name));
            }
        }
        all
    }

    /// Names that homes are to let go: of others' files as many as they have less afterwards, none
    /// of which they have then.
    pub fn let_go(
        &self,
        state: &State,
        changes: &BTreeMap<Ino, Change>,
    ) -> BTreeMap<Ino, Vec<Name>> {
        let names = |(ino, lost): (&Ino, &Vec<Name>)| {
            let is_others = asking::number_of(state, *ino).is_some();
            let changed = || changes.get(ino).map(Change::let_go).unwrap_or_default();
            let gets = changes.get(ino).is_some_and(|change| !change.gets.is_empty());
            let its = match is_others {
                // Who decides it has them delegated, or asks for the last one as for these.
                true if self.delegates(state) || (gets && homes::decide(state)) => Vec::new(),
                true => changed(),
                false => lost.clone(),
            };
            (*ino, its)
        };
        self.lost.iter().map(names).collect()
    }

    /// Whether homes delegate names of their files that it only takes: not where a directory moves,
    /// nor to a user's server.
    pub fn delegates(&self, state: &State) -> bool {
        homes::decide(state) && self.moved.is_none() && !homes::moves_by_itself(state)
    }

    /// How many names homes are to count, of which the transaction gives more than it takes.
    pub fn counted_elsewhere(&self, state: &State) -> Vec<(Ino, Gets)> {
        // Where there is a permanent store, their names are delegated.
        if self.given.is_empty() || homes::decide(state) {
            return Vec::new();
        }
        let changes = self.changes(state);
        let given = self.given.iter().filter_map(|(ino, (operation, _))| {
            let change = changes.get(ino)?;
            let names = change.gets.len().saturating_sub(change.loses.len()) as u32;
            (names > 0).then_some((*ino, Gets { operation: *operation, names }))
        });
        given.collect()
    }

    /// Whether homes are to do something once this comes to be.
    pub fn is_done_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty() || !self.given.is_empty()
    }

    /// Files that were born elsewhere and get names, and which operation gives the first one.
    pub fn given(&self) -> impl Iterator<Item = (Ino, u32, &[Vec<u8>])> {
        self.given.iter().map(|(ino, (operation, paths))| (*ino, *operation, &paths[..]))
    }

    /// Where a directory is that it makes.
    pub fn name_of(&self, made: Ino) -> Option<Name> {
        let mut all = self.names.all();
        let found = all.find(|(_, is)| *is == Some(made));
        found.map(|((parent, name), _)| (parent, name.to_vec()))
    }

    /// Whether this is given names, and was born elsewhere.
    pub fn gives(&self, ino: Ino) -> bool {
        self.given.contains_key(&ino)
    }

    /// Files that get further names.
    pub fn linked(&self) -> impl Iterator<Item = Ino> {
        self.facts.iter().filter_map(|fact| match fact {
            Fact::Linked { ino, .. } => Some(*ino),
            _ => None,
        })
    }

    /// What it sets extended attributes of.
    pub fn valued(&self) -> impl Iterator<Item = Ino> {
        self.values.keys().copied()
    }

    /// The directory that it moves.
    pub fn moved(&self) -> Option<&Moved> {
        self.moved.as_ref().map(|(moved, _)| moved)
    }

    /// Whether others need know that something is moved: where there are others, and it, or what
    /// comes back, is a directory that is there before.
    pub fn must_be_told(&self, state: &State, moved: &Moved) -> bool {
        self.here.is_some() && moved.inos().any(|ino| is_older_directory(state, ino))
    }

    /// Whether such a move is by names and directories that are there before, and the first one.
    pub fn moves_plainly(&self, moved: &Moved) -> bool {
        let Moved { from, to, back, .. } = moved;
        let older = |name: &Name| self.names.origin(name).as_ref() == Some(name);
        let plain = older(from) && !self.makes(to.0) && back.is_none_or(|_| older(to));
        plain && self.moved.is_none()
    }

    /// How many inodes it makes, further names included.
    pub fn news(&self) -> usize {
        self.made.len() + self.linked().count()
    }

    // Doing.

    /// A name stands for something else from now on.
    pub fn stands_for(&mut self, (directory, name): Place<'_>, ino: Option<Ino>) {
        self.names.stands_for((directory, name), ino);
    }

    /// What is moved has another name, and what comes back, if anything does, its own.
    pub fn moves(&mut self, moved: Moved, must_be_told: bool) {
        self.names.moves(&moved);
        if must_be_told {
            self.moved = Some((moved, self.facts.len()));
        }
    }

    /// Something loses a name; a directory is no more.
    pub fn loses(&mut self, state: &State, ino: Ino, (directory, name): Place<'_>) {
        if self.makes(ino) || is_older_directory(state, ino) {
            self.removed.insert(ino);
        } else {
            let name = (directory, name.to_vec());
            let name = self.names.origin(&name).unwrap_or(name);
            self.lost.entry(ino).or_default().push(name);
        }
    }

    /// This operation takes a name of something.
    pub fn is_taken_by(&mut self, ino: Ino, operation: u32, path: &[u8]) {
        self.taken.entry(ino).or_insert_with(|| (operation, path.into()));
    }

    /// Which one does so first, and the path of that name.
    pub fn taken_by(&self, ino: Ino) -> Option<(u32, &[u8])> {
        self.taken.get(&ino).map(|(operation, path)| (*operation, &path[..]))
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

    /// The home of something is to set, or remove, an extended attribute.
    pub fn sets_elsewhere(&mut self, ino: Ino, set: Set) {
        self.elsewhere.entry(ino).or_default().push(set);
    }

    /// The home of a file is to know of a name that an operation gives it.
    pub fn gives_elsewhere(&mut self, ino: Ino, operation: u32, path: &[u8]) {
        let (_, paths) = self.given.entry(ino).or_insert((operation, Vec::new()));
        paths.push(path.into());
    }

    /// What homes are to set.
    pub fn set_elsewhere(&self) -> &BTreeMap<Ino, Vec<Set>> {
        &self.elsewhere
    }

    /// Whether another member is to know of it, too.
    pub fn copies(&mut self, copied: bool) {
        self.copied = copied;
    }

    /// See [`Plan::copies`].
    pub fn is_copied(&self) -> bool {
        self.copied
    }

    /// A home has delegated the names of this file.
    pub fn has_delegated(&mut self, ino: Ino, held: Held) {
        self.delegated.insert(ino, held);
    }

    /// They can, all of them, and do once this comes to be.
    pub fn is_prepared(&mut self, of: TransactionId, files: Vec<Number>) {
        self.prepared = Some((of, files));
    }

    /// It does not come to be.
    pub fn gives_up(self, state: &mut State) {
        self.made.into_keys().for_each(|ino| state.names.give_back(ino));
    }

    /// Records all of it. Readers wait until it is written.
    pub fn carries_out(self, state: &mut State) {
        let names = self.names.all().map(|(place, _)| place);
        state.names.hold_all(names, self.lost.keys().copied().chain(self.linked()));
        let others = self.lost.keys().chain(self.given.keys());
        others.for_each(|ino| counting::has_all_its_names(state, *ino));
        let named = self.given.keys().filter(|ino| !self.lost.contains_key(ino));
        delegations::are_known(state, &self.delegated, named);
        let moves = self.moved.map(|(_, at)| at);
        for (at, fact) in self.facts.into_iter().enumerate() {
            let alias = state.names.next_ino();
            state.record(match fact {
                Fact::Linked { ino, parent, name, time_ns, .. } => {
                    Fact::Linked { ino, alias, parent, name, time_ns }
                }
                other => other,
            });
            if Some(at) == moves {
                moving::is_sure(state);
            }
        }
        letting_go::are_gone(state);
        if let Some((of, files)) = self.prepared {
            state.record(Membership::Transacts(Transacts::Decided { of, files }));
            let directories = self.names.all().map(|(place, _)| place.0).collect();
            delegations::are_to_be_returned(state, of, self.delegated, &directories);
        }
        for (place, ino) in self.names.all() {
            if let Some(ino) = ino {
                counting::comes(state, ino, place);
                elsewhere::has_come(state, (ino, place.0));
            }
        }
    }
}

/// Whether something is a directory that is there before.
fn is_older_directory(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.is_directory())
}
