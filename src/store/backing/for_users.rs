//! Whether each of several users may have a server on a permanent directory, and what was left
//! there of what root was giving when it was killed. For processes of root's only.
//!
//! Invariant: other processes of root's, of this machine and others, may do the same at the same
//! time: what is made here has a name of its own, and what another one has only just made stays.
//! Not here: what is given (`given`).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};

use super::STAGING;
use super::beneath::Root;
use super::given::{MAKING, PRIVATE, remove_all, while_taken_away};
use super::home::make_staging;

/// Who makes something takes less than this by far: what is older was left. By the clock of the
/// file system, so that no two machines differ.
const LEFT: Duration = Duration::from_secs(3600);

/// Whether each of several users may have a server on the permanent directory at this path. What
/// root was killed over as it was making something is removed. `fresh`: random bits, of each call
/// others.
///
/// # Errors
/// [`ErrorKind::Denied`] if it is not root's, or others may make names in it;
/// [`ErrorKind::Unsupported`] if names are not given there only where nothing is, and exchanged.
pub fn check_for_users(path: &Path, fresh: u64) -> Result<()> {
    check(path, fresh, LEFT, |home, from, to, how| {
        rustix::fs::renameat_with(home, from, home, to, how)
    })
}

/// The same with another `rename` of names in the staging directory, and where what is older than
/// `left` is removed.
fn check(
    path: &Path,
    fresh: u64,
    left: Duration,
    rename: impl Fn(&OwnedFd, &[u8], &[u8], RenameFlags) -> rustix::io::Result<()>,
) -> Result<()> {
    let root = Root::of_one(path)?;
    let home = make_staging(&root)?;
    let fail = |error: Errno| root.failed("stage in", STAGING, error);
    let tried = while_taken_away(|turn| {
        let name = |what: &str| {
            let name = format!("{what}.{fresh:016x}.{turn}");
            [MAKING, name.as_bytes()].concat()
        };
        let all = ["one", "other", "none"].map(name);
        let [one, other, none] = &all;
        let tried = (|| {
            for name in [one, other] {
                rustix::fs::mkdirat(&home, &**name, Mode::from_raw_mode(PRIVATE))?;
            }
            remove_left(&home, (one, &name("gone")), left)?;
            // Onto what is not there: else the kernel refuses before it asks the file system.
            for (from, to, how) in
                [(one, none, RenameFlags::NOREPLACE), (none, other, RenameFlags::EXCHANGE)]
            {
                match rename(&home, from, to, how) {
                    Ok(()) => {}
                    Err(Errno::NOENT) => return Err(Errno::NOENT),
                    Err(_) => return Ok(false),
                }
            }
            Ok(true)
        })();
        for name in &all {
            let _ = remove_all(&home, name);
        }
        tried
    });
    if tried.map_err(fail)? {
        return Ok(());
    }
    let what = "its file system gives no name only where nothing is (renameat2)";
    Err(Error::new(ErrorKind::Unsupported, format!("{}: {what}", root.describe())))
}

/// Removes what was being made for users so long before `new` was. Each gets another name first,
/// which nobody gives anything by: so who is slow to give it has given all of it, or finds that it
/// is away.
fn remove_left(
    home: &OwnedFd,
    (new, aside): (&[u8], &[u8]),
    left: Duration,
) -> rustix::io::Result<()> {
    let made = |name: &[u8]| {
        let found = rustix::fs::statat(home, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let nanos = i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec);
        Ok::<_, Errno>(nanos)
    };
    let (now, left) = (made(new)?, i128::try_from(left.as_nanos()).unwrap_or(i128::MAX));
    for entry in rustix::fs::Dir::read_from(home)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // Another one may remove it at the same time.
        if name.starts_with(MAKING)
            && made(name).is_ok_and(|made| now - made > left)
            && rustix::fs::renameat(home, name, home, aside).is_ok()
        {
            let _ = remove_all(home, aside);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
