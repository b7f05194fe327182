//! With whose rights things are done in the store. A process of root's does what a user has wanted
//! there as that user: the file system looks at his rights, at the very moment, whatever has come
//! to be at the path meanwhile.
//!
//! Only the calling thread is somebody else then (credentials(7): to Linux they are each thread's
//! own), and only in what it may do: its real user stays root's, so that he can neither stop nor
//! trace it. Not here: what root wants himself, at paths where others may rename (`certain`).

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use terral_format::wire::person::Person;
use terral_format::{Error, Result};

/// Whether this process is root's, whoever it does something for just now.
pub(super) fn is_roots() -> bool {
    getuid().is_root()
}

/// Whether what is done now is done with root's rights.
pub(super) fn acts_as_root() -> bool {
    geteuid().is_root()
}

/// What the thread was before.
struct Before {
    group: Gid,
    groups: Vec<Gid>,
}

/// Does something as a user, if this process is root's; else as who this is.
///
/// # Errors
/// If the thread cannot become him: nothing was done.
pub(super) fn as_user(user: &Person, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    if !acts_as_root() || user.is_root() {
        return act();
    }
    let fail = |error: Errno| Error::system(&error.into(), format!("act as user {}", user.user));
    let groups = rustix::process::getgroups().map_err(fail)?;
    // From here on it is made what it was in any case.
    let _before = Before { group: getegid(), groups };
    let theirs: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&theirs).map_err(fail)?;
    let (own, his) = (getgid(), Gid::from_raw(user.group));
    set_thread_res_gid(own, his, own).map_err(fail)?;
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(user.user), Uid::ROOT).map_err(fail)?;
    act()
}

impl Drop for Before {
    /// A thread that stays a user's would do root's things as him, or the other way round.
    fn drop(&mut self) {
        let back = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
            .and_then(|()| set_thread_res_gid(getgid(), self.group, getgid()))
            .and_then(|()| set_thread_groups(&self.groups));
        if back.is_err() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests;
