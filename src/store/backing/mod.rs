//! The permanent store behind the memory tier: where files come from and where the drain brings
//! them.
//!
//! Paths are bytes relative to the store's root, `b"a/b"`, without leading slash; `b""` is the
//! root. Symbolic links are things of their own here and are never followed; whoever gives a path
//! has resolved them, so no path leads out of the root. A new version of a file is staged under a
//! temporary name and published by one rename, so a name never shows half of it. A version that
//! somebody else put there meanwhile is never lost: it is kept beside ours.
//!
//! Not here: what is owed, in which order, and how often to try again (the drain); durability of a
//! single call (only [`Sink::sync`] waits for the disk).

use terral_format::{Error, ErrorKind, Result};

mod source;

mod sink;

mod name_sink;

mod attributes;

mod own_way;

mod calls;

mod exclusive;

mod beneath;

mod access;

mod home;

mod links;

mod sign;

mod in_place;

mod given;

mod for_users;

mod staged;

mod update;

mod xattrs;

pub mod dir;

#[cfg(any(test, feature = "conformance"))]
pub mod faulty;

#[cfg(any(test, feature = "conformance"))]
pub mod scripted;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

#[cfg(test)]
mod tests;

pub use for_users::{Lacks, check_for_users};
pub use given::{home_for, stage_for, unstage_for};
pub use in_place::Owner;
pub use name_sink::{NameSink, Touched};
pub use sink::{Announce, Published, RandomAccess, Sink, Staged, Update};
pub use source::{BesideOthers, Found, Listing, Source, Xattrs};

/// Name of the staging directory in the root; `.terral-UID` is another user's. No path may begin
/// with one of them.
pub const STAGING: &[u8] = b".terral";

/// A permanent store: a directory that files come from, and to which their bytes and names are
/// brought. Whoever needs only one of the three takes only that.
///
/// # Errors
/// Of every call: [`ErrorKind::Backing`] if the store itself is away or broken (so that a store
/// that is away is never taken for one without files), [`ErrorKind::NoSpace`] if it or the user's
/// quota is full, [`ErrorKind::Denied`] if it does not let this process do that or the path begins
/// with [`STAGING`], [`ErrorKind::Invalid`] and [`ErrorKind::NameTooLong`] for what cannot be
/// a path, [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`] (also where a symbolic link is on
/// the way), [`ErrorKind::IsDirectory`] as in POSIX, and [`ErrorKind::Unsupported`] for anything
/// but files, directories, symbolic links and FIFOs: devices and sockets.
pub trait Backing: Source + Sink + NameSink {}

impl<B: Source + Sink + NameSink> Backing for B {}

/// Refuses what is not a path within a store.
fn check_path(path: &[u8]) -> Result<()> {
    let refuse = |kind, why: &str| Err(Error::new(kind, format!("{}: {why}", shown(path))));
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > 4095 {
        return refuse(ErrorKind::NameTooLong, "more than 4095 bytes");
    }
    if path.contains(&0) {
        return refuse(ErrorKind::Invalid, "a zero byte in a path");
    }
    for (index, name) in path.split(|byte| *byte == b'/').enumerate() {
        if name.is_empty() || name == b"." || name == b".." {
            return refuse(ErrorKind::Invalid, "not a path below the root");
        }
        if name.len() > 255 {
            return refuse(ErrorKind::NameTooLong, "a name of more than 255 bytes");
        }
        if index == 0 && home::is_staging(name) {
            return refuse(ErrorKind::Denied, "this name is Terral's own; take another one");
        }
    }
    Ok(())
}

/// A path as a person can read it, on one line.
fn shown(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for character in String::from_utf8_lossy(path).chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// The error for an `errno` while doing `what`.
fn failed(error: &std::io::Error, what: &str) -> Error {
    let mut failure = Error::system(error, what);
    // The kinds of the general table, except where an errno of a file system says something else
    // than the same errno of a system call: EPERM, EIO, EDQUOT, ENXIO, ENODEV, ETXTBSY, ENOTCONN,
    // ETIMEDOUT, EHOSTDOWN, ESTALE.
    failure.kind = match failure.errno {
        1 | 30 => ErrorKind::Denied,
        28 | 122 => ErrorKind::NoSpace,
        5 | 6 | 19 | 107 | 110 | 112 | 116 => ErrorKind::Backing,
        26 => ErrorKind::Busy,
        _ => failure.kind,
    };
    if failure.kind == ErrorKind::NoSpace {
        failure.context.push_str("; free some there, then it goes on");
    }
    failure
}
