//! A sign in the staging directory, by which servers of several machines know that they see the
//! same one.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terral_format::Result;
use terral_format::ids::{Ino, InstanceId};

use super::STAGING;
use super::beneath::Root;
use super::exclusive::look;
use super::home::{find_staging, make_staging};
use super::staged::label;

/// As what it lies there: the first file of an instance is a directory, and is not staged.
pub(super) fn name_of(number: u128) -> String {
    label(Ino(0), InstanceId(number))
}

/// See [`super::Sink::leave_sign`].
pub(super) fn leave_sign(root: &Root, number: u128) -> Result<()> {
    let fail = |error: Errno| root.failed("leave a sign in", STAGING, error);
    let home = make_staging(root)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&home, &*name_of(number), flags, Mode::from_raw_mode(0o600));
    let made = made.map_err(fail)?;
    // Others look for it through a server of files, perhaps.
    rustix::fs::fsync(&made).map_err(fail)
}

/// See [`super::Sink::has_sign`].
pub(super) fn has_sign(root: &Root, number: u128) -> Result<bool> {
    let fail = |error: Errno| root.failed("look for a sign in", STAGING, error);
    let Some(home) = find_staging(root).map_err(fail)? else { return Ok(false) };
    let found = look(&home, name_of(number).as_bytes()).map_err(fail)?;
    Ok(found.is_some())
}
