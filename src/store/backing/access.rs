//! What is this user's own and has permission bits that keep himself out: opened for the time of
//! one operation. A program may close a directory when it has made its files, and the files come
//! here after that; or a file when it has given it its attributes.
//!
//! Not here: what is of others, which stays closed. A server that is killed in between leaves the
//! owner's bits set.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::OFlags;
use rustix::io::Errno;
use terral_format::Result;

use super::attributes::by_name;
use super::beneath::Root;

/// What an owner needs to do everything in a directory, and with a file.
const ALL: u32 = 0o700;
const BYTES: u32 = 0o600;

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

/// The same for what takes the right to read or write this file or directory itself. Its time of
/// change moves by that.
pub(super) fn with_own_access<T>(
    file: &File,
    mut act: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let refused = match act() {
        Err(Errno::ACCESS) => Errno::ACCESS,
        done => return done,
    };
    let Some(mode) = open_one(file) else { return Err(refused) };
    let done = act();
    let _ = set_mode(file, mode);
    done
}

/// Opens the directories above `path`, from the top, and notes what they were.
fn open_up(root: &Root, path: &[u8], opened: &mut Vec<(File, u32)>) {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for end in std::iter::once(0).chain(slashes.map(|(at, _)| at)) {
        let Ok(directory) = root.open_at("open", &path[..end], OFlags::PATH) else { return };
        if !directory.metadata().is_ok_and(|found| found.is_dir()) {
            return;
        }
        if let Some(mode) = open_one(&directory) {
            opened.push((directory, mode));
        }
    }
}

/// Gives its owner all of his rights, if that is this user. The mode it had; `None` if it stays.
fn open_one(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let (mode, needed) = (found.mode() & 0o7777, if found.is_dir() { ALL } else { BYTES });
    let own = found.uid() == rustix::process::geteuid().as_raw();
    let opened = own && mode & needed != needed && set_mode(file, mode | needed).is_ok();
    opened.then_some(mode)
}

fn set_mode(file: &File, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(by_name(file), Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests;
