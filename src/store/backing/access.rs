//! Directories of this user's own whose permission bits keep himself out: opened for the time of
//! one operation. A program may close a directory when it has made its files, and the files come
//! here after that.
//!
//! Not here: directories of others, which stay closed. A server that is killed in between leaves
//! the owner's bits set.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::OFlags;
use rustix::io::Errno;
use terral_format::Result;

use super::attributes::by_name;
use super::beneath::Root;

/// What an owner needs to do everything in a directory.
const ALL: u32 = 0o700;

/// Does something with these paths; once more, if that was refused and can be had by opening
/// directories on the way.
pub(super) fn with_access<T>(
    root: &Root,
    paths: &[&[u8]],
    mut act: impl FnMut() -> Result<T>,
) -> Result<T> {
    let refused = match act() {
        Err(error) if error.errno == Errno::ACCESS.raw_os_error() => error,
        done => return done,
    };
    let mut opened = Vec::new();
    paths.iter().for_each(|path| open_up(root, path, &mut opened));
    if opened.is_empty() {
        return Err(refused);
    }
    let done = act();
    for (directory, mode) in opened.iter().rev() {
        // It may be gone by now.
        let _ = set_mode(directory, *mode);
    }
    done
}

/// Opens the directories above `path`, from the top, and notes what they were.
fn open_up(root: &Root, path: &[u8], opened: &mut Vec<(File, u32)>) {
    let own = rustix::process::geteuid().as_raw();
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for end in std::iter::once(0).chain(slashes.map(|(at, _)| at)) {
        let Ok(directory) = root.open_at("open", &path[..end], OFlags::PATH) else { return };
        let Ok(found) = directory.metadata() else { return };
        let mode = found.mode() & 0o7777;
        let closed = found.is_dir() && found.uid() == own && mode & ALL != ALL;
        if closed && set_mode(&directory, mode | ALL).is_ok() {
            opened.push((directory, mode));
        }
    }
}

fn set_mode(directory: &File, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(by_name(directory), Permissions::from_mode(mode))
}
