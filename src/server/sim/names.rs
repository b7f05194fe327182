//! What a client reads of names without asking: the changes that were deferred first, and the table
//! then (`terral_format::local::deferred`). Everybody is root here, and no directory is anybody
//! else's.

use std::sync::atomic::{Ordering, fence};

use terral_format::ids::{Ino, Member, ROOT};
use terral_format::local::changes::{self, Deferred, Made};
use terral_format::local::deferred::{CHANGE_BYTES, Claim, Key, Pending};
use terral_format::local::names::{Inode, Lookup, Table, flag, hash, index_of};
use terral_format::local::size::SizeWord;
use terral_format::wire::message::{Attributes, Kind};
use terral_format::{ErrorKind, frame};

use super::Sim;

/// A directory, and a name there.
pub(super) type Place = (Inode, Vec<u8>);

/// What is known of a name.
pub(super) enum Known {
    Here(Inode),
    Not(ErrorKind),
    /// Only the server can tell.
    Unknown,
}

/// What somebody sees of a file.
#[derive(Debug, PartialEq)]
pub struct Glance {
    pub kind: Kind,
    pub size: u64,
    pub mode: u32,
    pub links: u32,
}

pub(super) fn key_of((directory, name): &Place) -> Key {
    Key::name(hash(index_of(directory.ino), name))
}

fn decode(bytes: &[u8]) -> Option<Deferred<'_>> {
    frame::decode(bytes).ok().map(|made: Made<'_>| made.change)
}

/// The directories whose names a change changes, and that to which it gives one.
fn directories(change: &Deferred<'_>) -> (Vec<Ino>, Option<Ino>) {
    match *change {
        Deferred::Create { parent, .. } | Deferred::MakeDirectory { parent, .. } => {
            (vec![parent], Some(parent))
        }
        Deferred::Unlink { parent, .. } | Deferred::RemoveDirectory { parent, .. } => {
            (vec![parent], None)
        }
        Deferred::Rename { parent, to_parent, .. } => (vec![parent, to_parent], Some(to_parent)),
        Deferred::Change { .. } | Deferred::Close { .. } | Deferred::Open { .. } => (vec![], None),
    }
}

/// A directory that the table does not have yet.
fn to_come(above: &Inode, ino: Ino, name: &[u8], (mode, time_ns): (u32, u64)) -> Inode {
    let mut made = Inode::new(&Attributes {
        ino,
        kind: Kind::Directory,
        mode,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        accessed_ns: time_ns,
        modified_ns: time_ns,
        changed_ns: time_ns,
    });
    (made.flags, made.hash) = (flag::PREALLOCATED, hash(index_of(above.ino), name));
    made
}

/// What has a name after this change.
fn name_after(table: Table<'_>, bytes: &[u8], directory: &Inode, looked_for: &[u8]) -> Known {
    let same = |parent: Ino, name: &[u8]| parent == directory.ino && name == looked_for;
    let here = |inode: Option<Inode>| inode.map_or(Known::Unknown, Known::Here);
    match decode(bytes) {
        Some(Deferred::Create { ino, parent, name, mode, .. }) if same(parent, name) => {
            here(table.find(ino).map(|mut inode| {
                inode.flags |= flag::PREALLOCATED;
                (inode.links, inode.mode) = (1, mode as u16);
                inode
            }))
        }
        Some(Deferred::MakeDirectory { ino, parent, name, mode, time_ns, .. })
            if same(parent, name) =>
        {
            Known::Here(to_come(directory, ino, name, (mode, time_ns)))
        }
        Some(
            Deferred::Unlink { parent, name, .. }
            | Deferred::RemoveDirectory { parent, name, .. }
            | Deferred::Rename { parent, name, .. },
        ) if same(parent, name) => Known::Not(ErrorKind::NotFound),
        Some(Deferred::Rename { to_parent, to_name, ino, .. }) if same(to_parent, to_name) => {
            here(table.find(ino).filter(|inode| !inode.is(flag::PREALLOCATED)))
        }
        _ => Known::Unknown,
    }
}

impl Sim {
    /// Looks at the table, unless a server is just writing it anew.
    pub(super) fn look<T>(&self, look: impl FnOnce(Table<'_>) -> Option<T>) -> Option<T> {
        let table = self.memory.names();
        let epoch = table.epoch().load(Ordering::Acquire);
        let found = if epoch == 0 { None } else { look(table) };
        fence(Ordering::Acquire);
        found.filter(|_| table.epoch().load(Ordering::Relaxed) == epoch)
    }

    fn latest(&self, key: Key) -> Result<Option<Vec<u8>>, ()> {
        let (deferred, mut buffer) = (self.memory.deferred(), [0; CHANGE_BYTES]);
        let master = |bytes: &[u8]| changes::name_of(&decode(bytes)?);
        match deferred.latest(key, master, &mut buffer) {
            Pending::Change(bytes) => Ok(Some(bytes.to_vec())),
            Pending::Nothing => Ok(None),
            Pending::Unsure => Err(()),
        }
    }

    fn child(&self, table: Table<'_>, directory: &Inode, name: &[u8]) -> Known {
        let key = Key::name(hash(index_of(directory.ino), name));
        match self.latest(key) {
            Ok(Some(bytes)) => return name_after(table, &bytes, directory, name),
            Err(()) => return Known::Unknown,
            Ok(None) => {}
        }
        if directory.is(flag::PREALLOCATED) && table.find(directory.ino).is_none() {
            let comes = self.is_to_come(directory);
            return if comes { Known::Not(ErrorKind::NotFound) } else { Known::Unknown };
        }
        match table.lookup(directory.ino, name) {
            Lookup::Found(inode) => table.file_of(&inode).map_or(Known::Unknown, Known::Here),
            Lookup::Missing if !directory.is(flag::OVERLAY) => Known::Not(ErrorKind::NotFound),
            Lookup::Missing | Lookup::Unsure => Known::Unknown,
        }
    }

    fn is_to_come(&self, directory: &Inode) -> bool {
        let change = self.latest(Key::name(directory.hash)).ok().flatten();
        let made = |bytes: Vec<u8>| match decode(&bytes) {
            Some(Deferred::MakeDirectory { ino, .. }) => ino == directory.ino,
            _ => false,
        };
        change.is_some_and(made)
    }

    pub(super) fn walk(&self, path: &[u8]) -> Known {
        let known = self.look(|table| {
            let mut at = table.find(ROOT)?;
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                if at.kind != Kind::Directory {
                    return Some(Known::Not(ErrorKind::NotDirectory));
                }
                match self.child(table, &at, name) {
                    Known::Here(inode) => at = inode,
                    other => return Some(other),
                }
            }
            Some(Known::Here(at))
        });
        known.unwrap_or(Known::Unknown)
    }

    /// The directory and name of `path`.
    pub(super) fn parent(&self, path: &[u8]) -> Option<Place> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let Known::Here(directory) = self.walk(above) else { return None };
        (directory.kind == Kind::Directory).then(|| (directory, name.to_vec()))
    }

    /// As [`Sim::parent`], if all its names are known.
    pub(super) fn place(&self, path: &[u8]) -> Option<Place> {
        self.parent(path).filter(|(directory, _)| !directory.is(flag::OVERLAY))
    }

    /// What has this name now, after a claim of it.
    pub(super) fn look_again(&self, (directory, name): &Place) -> Known {
        let found = self.look(|table| {
            let there = table.find(directory.ino).is_some_and(|inode| inode.is_directory());
            let there = there || (directory.is(flag::PREALLOCATED) && self.is_to_come(directory));
            there.then(|| self.child(table, directory, name))
        });
        found.unwrap_or(Known::Unknown)
    }

    /// Whether nothing is in a directory, or comes there, after the claim of its removal.
    pub(super) fn is_empty(&self, directory: &Inode, mine: Claim) -> bool {
        let adds = |bytes: &[u8]| {
            decode(bytes).is_none_or(|change| directories(&change).1 == Some(directory.ino))
        };
        let comes = |bytes: &[u8]| !adds(bytes);
        if !self.memory.deferred().names_are(Some(mine), index_of(directory.ino), comes) {
            return false;
        }
        let gone = self.look(|table| {
            let names = table.children(directory.ino, 256, Member::LEAST)?;
            let gone = |name: &[u8]| matches!(self.child(table, directory, name), Known::Not(_));
            Some(names.iter().all(|child| gone(&child.name)))
        });
        gone == Some(true)
    }

    fn is_touched(&self, directory: Ino) -> bool {
        let touches = |bytes: &[u8]| {
            decode(bytes).is_none_or(|change| directories(&change).0.contains(&directory))
        };
        !self.memory.deferred().names_are(None, index_of(directory), |bytes| !touches(bytes))
    }

    /// What is at a path, as far as that can be read.
    pub fn glance(&self, path: &[u8]) -> Option<Result<Glance, ErrorKind>> {
        let inode = match self.walk(path) {
            Known::Here(inode) => inode,
            Known::Not(kind) => return Some(Err(kind)),
            Known::Unknown => return None,
        };
        let pending = |key| self.memory.deferred().is_pending(key);
        let attributes = Key::attributes(index_of(inode.ino));
        let inode = if inode.is(flag::PREALLOCATED) {
            Some(inode).filter(|_| !pending(attributes))
        } else {
            let unsure = inode.kind != Kind::Directory
                && (pending(attributes) || pending(Key::name(inode.hash)));
            let found = if unsure { None } else { self.look(|table| table.find(inode.ino)) };
            found.filter(|inode| !inode.is(flag::PREALLOCATED))
        }?;
        let size = match inode.slot {
            Some(slot) => {
                let size = SizeWord::load(self.memory.header(slot).size()).size();
                let own = self.memory.record(slot).ino().load(Ordering::SeqCst) == inode.ino.0;
                own.then_some(size)?
            }
            None => inode.size,
        };
        let (mode, links) = (u32::from(inode.mode), inode.links);
        Some(Ok(Glance { kind: inode.kind, size, mode, links }))
    }

    /// The names in a directory, as far as they can be read.
    pub fn names(&self, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        let Known::Here(directory) = self.walk(path) else { return None };
        let whole = directory.kind == Kind::Directory && !directory.is(flag::OVERLAY);
        if !whole || self.is_touched(directory.ino) {
            return None;
        }
        let names = self.look(|table| table.children(directory.ino, usize::MAX, Member::LEAST))?;
        let mut names: Vec<_> = names.into_iter().map(|name| name.name).collect();
        names.sort_unstable();
        Some(names)
    }
}
