//! What root gives a user in a permanent directory where each has a server: the staging directory
//! of his, and a directory of his own. For processes of root's only.
//!
//! Invariant: what becomes his was made by that call, in root's own staging directory, where nobody
//! else can put anything in its place, and gets its name only if nothing has that. Not here: what
//! he does there.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};

use super::beneath::{Root, remove_if_there};
use super::calls::lacks_flags;
use super::home::make_staging;
use super::in_place::{self, Owner, PRIVATE, is_given};
use super::sign::name_of;
use super::{STAGING, own_way};

const OTHERS_WRITE: u32 = 0o022;
/// Who stands still for an hour is one in a million; this often in a row nobody does.
const TRIES: u32 = 16;
/// What is made here is called so until it has its name.
pub(super) const MAKING: &[u8] = b"for-";
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The staging directory of a user, with the sign in it by which his server knows the directory;
/// `fresh`: random bits, of each call others.
///
/// # Errors
/// [`ErrorKind::Denied`] if somebody else has put something there.
pub fn stage_for(path: &Path, owner: Owner, sign: u128, fresh: u64) -> Result<()> {
    stage_in(&Root::of_one(path)?, owner, sign, fresh)
}

pub(super) fn stage_in(root: &Root, owner: Owner, sign: u128, fresh: u64) -> Result<()> {
    let (name, sign) = (staging_of(owner.0), name_of(sign));
    let fail = |error: Errno| root.failed("stage in", &name, error);
    let signed = |home: &OwnedFd| -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is there already may be anything that he has put there: it stays as it is.
        let flags = flags.union(OFlags::EXCL);
        match rustix::fs::openat(home, &*sign, flags, Mode::from_raw_mode(0o600)) {
            Ok(made) => is_given(&made, owner),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    };
    let directory = own_way::way(&root.open()?, b"", 0).map_err(fail)?;
    let there = || {
        let finish = || in_place::finish((&directory, &name), owner, true, signed).map_err(fail);
        finish()?;
        // Another process of root's may have begun to make it just then.
        staging_there(root, owner.0)
            .or_else(|_| finish().and_then(|_| staging_there(root, owner.0)))
    };
    if let Some(home) = there()? {
        return signed(&home).map_err(fail);
    }
    match give(root, owner, (&name, fresh), signed)? {
        // Another process of root's has given him one meanwhile.
        Err(Errno::EXIST) => match there()? {
            Some(home) => signed(&home).map_err(fail),
            None => Err(fail(Errno::EXIST)),
        },
        made => made.map_err(fail),
    }
}

/// A directory of a user's own, if nothing has that name; else what has it stays as it is.
/// `fresh`: as with [`stage_for`].
///
/// # Errors
/// Those of mkdir(2).
pub fn home_for(path: &Path, owner: Owner, name: &str, fresh: u64) -> Result<()> {
    home_in(&Root::of_one(path)?, owner, name, fresh)
}

pub(super) fn home_in(root: &Root, owner: Owner, name: &str, fresh: u64) -> Result<()> {
    let name = name.as_bytes();
    let fail = |error: Errno| root.failed("make", name, error);
    let directory = own_way::way(&root.open()?, b"", 0).map_err(fail)?;
    match give(root, owner, (name, fresh), |_| Ok(()))? {
        Err(Errno::EXIST) => {
            in_place::finish((&directory, name), owner, false, |_| Ok(())).map(drop).map_err(fail)
        }
        made => made.map_err(fail),
    }
}

/// A user's staging directory is needed no more: it goes, if nothing else is in it than the sign.
///
/// # Errors
/// If the directory at this path is away.
pub fn unstage_for(path: &Path, user: u32, sign: u128) -> Result<()> {
    let root = Root::of_one(path)?;
    let Some(home) = staging_there(&root, user)? else { return Ok(()) };
    let fail = |error: Errno| root.failed("remove", STAGING, error);
    let removed = remove_if_there(&home, name_of(sign).as_bytes())
        .and_then(|()| own_way::way(&root.open().map_err(|_| Errno::IO)?, b"", 0))
        .and_then(|at| rustix::fs::unlinkat(&at, &*staging_of(user), AtFlags::REMOVEDIR));
    match removed {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => Ok(()),
        Err(error) => Err(fail(error)),
    }
}

fn staging_of(user: u32) -> Vec<u8> {
    [STAGING, format!("-{user}").as_bytes()].concat()
}

/// Makes a directory that is his, and of nobody else, and gives it this name in the root. The inner
/// error: it has not got it.
fn give(
    root: &Root,
    owner: Owner,
    (name, fresh): (&[u8], u64),
    prepare: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> Result<rustix::io::Result<()>> {
    let home = make_staging(root)?;
    let fail = |error: Errno| root.failed("make", name, error);
    let directory = own_way::way(&root.open()?, b"", 0).map_err(fail)?;
    let given = while_taken_away(|turn| {
        let made = [MAKING, format!("{}.{fresh:016x}.{turn}", owner.0).as_bytes()].concat();
        let given = (|| {
            rustix::fs::mkdirat(&home, &*made, Mode::from_raw_mode(PRIVATE))?;
            let new = rustix::fs::openat(&home, &*made, DIRECTORY, Mode::empty())?;
            prepare(&new)?;
            rustix::fs::fchmod(&new, Mode::from_raw_mode(PRIVATE))?;
            is_given(&new, owner)?;
            (root.naming().calls.rename)((&home, &made), (&directory, name), RenameFlags::NOREPLACE)
        })();
        if given.is_err() {
            let _ = remove_all(&home, &made);
        }
        given
    });
    Ok(match given {
        Err(error) if lacks_flags(error) => in_place::make((&directory, name), owner, prepare),
        given => given,
    })
}

/// Makes something anew, by another name each time, while another process of root's takes it for
/// what was left there, and away.
pub(super) fn while_taken_away<T>(
    mut make: impl FnMut(u32) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    for turn in 1..TRIES {
        match make(turn) {
            Err(Errno::NOENT) => {}
            made => return made,
        }
    }
    make(TRIES)
}

/// The staging directory of a user, if there is one.
fn staging_there(root: &Root, user: u32) -> Result<Option<OwnedFd>> {
    let name = staging_of(user);
    let theirs = || {
        let what = "is somebody else's; remove it";
        Err(Error::new(ErrorKind::Denied, format!("{} {what}", root.full(&name))))
    };
    let directory = own_way::way(&root.open()?, b"", 0);
    let opened = directory.and_then(|at| own_way::open(&at, &name, DIRECTORY, user));
    match opened {
        Ok(home) => {
            let found = rustix::fs::fstat(&home);
            let shut = found.is_ok_and(|found| found.st_mode & OTHERS_WRITE == 0);
            if shut { Ok(Some(home)) } else { theirs() }
        }
        Err(Errno::NOENT) => Ok(None),
        Err(_) => theirs(),
    }
}

/// Removes something that was made here, which nobody else could reach: a directory with files.
pub(super) fn remove_all(home: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let directory = match rustix::fs::openat(home, name, DIRECTORY, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_if_there(&directory, entry.file_name().to_bytes())?;
        }
    }
    rustix::fs::unlinkat(home, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::for_users::check_for_users;
    use super::{home_for, stage_for, unstage_for};

    const OWNER: super::Owner = (65534, 65534);

    #[test]
    fn what_a_user_is_given_is_his_and_what_has_the_name_stays() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("temporary directory");
        check_for_users(home.path(), 1).expect("a file system of this machine");
        let look = |name: &str| std::fs::symlink_metadata(home.path().join(name)).expect("there");
        home_for(home.path(), OWNER, "someone", 1).expect("root may");
        assert_eq!((look("someone").uid(), look("someone").mode() & 0o7777), (65534, 0o700));
        // A link, a file, a directory of another's: each stays.
        std::os::unix::fs::symlink("/etc", home.path().join("link")).expect("made");
        std::fs::write(home.path().join("file"), "root's").expect("written");
        std::fs::create_dir(home.path().join("directory")).expect("made");
        for name in ["link", "file", "directory", "someone"] {
            let before = look(name).ino();
            home_for(home.path(), OWNER, name, 2).expect("it stays");
            assert_eq!(look(name).ino(), before, "{name}");
            assert_eq!(look(name).uid() == 65534, name == "someone", "{name}");
        }
        for _ in 0..2 {
            stage_for(home.path(), OWNER, 7, 3).expect("root may");
            assert_eq!(look(".terral-65534").uid(), 65534);
        }
        unstage_for(home.path(), 65534, 7).expect("root may");
        assert!(std::fs::symlink_metadata(home.path().join(".terral-65534")).is_err());
        std::fs::create_dir(home.path().join(".terral-65534")).expect("made");
        stage_for(home.path(), OWNER, 7, 4).expect_err("it is root's");
    }

    #[test]
    fn those_who_give_him_a_staging_directory_at_once_give_him_one() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("temporary directory");
        for turn in 0..50u64 {
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for root in 0..4 {
                    let (path, barrier) = (home.path(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        stage_for(path, OWNER, 7, turn << 8 | root).expect("root may");
                    });
                }
            });
            let sign = home.path().join(".terral-65534").join(super::name_of(7));
            assert_eq!(std::fs::symlink_metadata(sign).expect("there").uid(), 65534);
            unstage_for(home.path(), 65534, 7).expect("root may");
        }
        assert_eq!(std::fs::read_dir(home.path().join(".terral")).expect("there").count(), 0);
    }
}
