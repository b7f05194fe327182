//! What deferred changes say of names that the table does not show yet. Whoever finds one there
//! reads it, and need not ask.

use terral_format::ErrorKind;
use terral_format::frame;
use terral_format::ids::Ino;
use terral_format::local::changes;
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::deferred::Key;
use terral_format::local::names::{Inode, Table, flag, hash, index_of};
use terral_format::wire::message::{Attributes, Kind};

/// What is made in a directory with this bit gets its group, and a directory the bit.
const SET_GROUP: u16 = 0o2000;

/// What is known of a path.
pub(crate) enum Known {
    /// It is this. With [`flag::PREALLOCATED`]: the table may not have it yet.
    Here(Inode),
    /// It is not, for this reason.
    Not(ErrorKind),
    /// Only the server can tell.
    Unknown,
}

fn decode(bytes: &[u8]) -> Option<Deferred<'_>> {
    frame::decode(bytes).ok().map(|made: Made<'_>| made.change)
}

/// What a change whose shadow says this is about itself.
pub(crate) fn master(bytes: &[u8]) -> Option<Key> {
    changes::name_of(&decode(bytes)?)
}

/// Whether this makes the directory with this number.
pub(crate) fn makes(bytes: &[u8], directory: Ino) -> bool {
    matches!(decode(bytes), Some(Deferred::MakeDirectory { ino, .. }) if ino == directory)
}

/// Whether this puts a name into a directory.
pub(crate) fn adds(bytes: &[u8], directory: Ino) -> bool {
    match decode(bytes) {
        Some(Deferred::Create { parent, .. } | Deferred::MakeDirectory { parent, .. }) => {
            parent == directory
        }
        Some(Deferred::Rename { to_parent, .. }) => to_parent == directory,
        Some(_) => false,
        None => true,
    }
}

/// Whether this changes what names a directory has.
pub(crate) fn touches(bytes: &[u8], directory: Ino) -> bool {
    match decode(bytes) {
        Some(Deferred::Unlink { parent, .. } | Deferred::RemoveDirectory { parent, .. }) => {
            parent == directory
        }
        Some(Deferred::Rename { parent, to_parent, .. }) => {
            parent == directory || to_parent == directory
        }
        _ => adds(bytes, directory),
    }
}

/// What has a name after this change of it. A change of another name with the same hash: only the
/// server can tell.
pub(crate) fn name_after(
    table: Table<'_>,
    bytes: &[u8],
    (directory, looked_for): (&Inode, &[u8]),
) -> Known {
    let same = |parent: Ino, name: &[u8]| parent == directory.ino && name == looked_for;
    let here = |inode: Option<Inode>| inode.map_or(Known::Unknown, Known::Here);
    match decode(bytes) {
        Some(Deferred::Create { ino, parent, name, mode, by, time_ns }) if same(parent, name) => {
            here(table.find(ino).map(|inode| created(directory, &inode, mode, by, time_ns)))
        }
        Some(Deferred::MakeDirectory { ino, parent, name, mode, by, time_ns })
            if same(parent, name) =>
        {
            Known::Here(made(directory, (ino, name), mode, by, time_ns))
        }
        Some(Deferred::Unlink { parent, name, .. }) if same(parent, name) => {
            Known::Not(ErrorKind::NotFound)
        }
        Some(Deferred::RemoveDirectory { parent, name, .. }) if same(parent, name) => {
            Known::Not(ErrorKind::NotFound)
        }
        Some(Deferred::Rename { parent, name, .. }) if same(parent, name) => {
            Known::Not(ErrorKind::NotFound)
        }
        Some(Deferred::Rename { to_parent, to_name, ino, .. }) if same(to_parent, to_name) => {
            // One that is to come itself has its mode elsewhere.
            here(table.find(ino).filter(|inode| !inode.is(flag::PREALLOCATED)))
        }
        _ => Known::Unknown,
    }
}

/// A file in hand that got a name, as it will be.
fn created(directory: &Inode, inode: &Inode, mode: u32, by: (u32, u32), time_ns: u64) -> Inode {
    let mut made = *inode;
    made.flags |= flag::PREALLOCATED;
    (made.links, made.mode) = (1, (mode & 0o7777) as u16);
    (made.uid, made.gid) = (by.0, group_in(directory, by.1));
    (made.accessed_ns, made.modified_ns, made.changed_ns) = (time_ns, time_ns, time_ns);
    made
}

/// A directory that was made, as it will be.
fn made(
    directory: &Inode,
    (ino, name): (Ino, &[u8]),
    mode: u32,
    by: (u32, u32),
    time_ns: u64,
) -> Inode {
    let inherits = directory.mode & SET_GROUP != 0;
    let mode = mode & 0o7777 | if inherits { u32::from(SET_GROUP) } else { 0 };
    let mut made = Inode::new(&Attributes {
        ino,
        kind: Kind::Directory,
        mode,
        links: 2,
        uid: by.0,
        gid: group_in(directory, by.1),
        size: 0,
        accessed_ns: time_ns,
        modified_ns: time_ns,
        changed_ns: time_ns,
    });
    made.flags = flag::PREALLOCATED;
    made.hash = hash(index_of(directory.ino), name);
    made
}

/// The group of what is made in a directory.
fn group_in(directory: &Inode, group: u32) -> u32 {
    if directory.mode & SET_GROUP != 0 { directory.gid } else { group }
}
