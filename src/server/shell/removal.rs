//! The removal of instances: what one is known to consist of goes, name by name.
//!
//! Invariants: no link is followed, no other mount is entered, and nothing goes that has not both
//! the name and the kind of a part of an instance; but `shadow` is the programs', whole. What else
//! lies there stays, and with it the directory. What it has on a disk goes first (`spill_file`).
//! Not here: whether anything is owed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::nodes;

use crate::core::world::World;
use crate::shell::host::Clock;
use crate::shell::instance::AMONG_USERS;
use crate::shell::spill_file;

/// What the name of an instance begins with of which nothing is needed any more.
const OVER: &str = ".over-";
/// Digits behind that.
const OVER_DIGITS: usize = 32;
/// Its files, in the order of their removal: without a log, there is nothing in it; who has its
/// lock is in charge to the end.
const FIRST: [&[u8]; 2] = [b"log", b"log.next"];
const LAST: [&[u8]; 3] = [b"origin", b"to", b"lock"];
const OTHERS: [&[u8]; 16] = [
    AMONG_USERS.as_bytes(),
    b"audit",
    b"headers",
    b"instructions",
    b"invitation",
    b"machines",
    b"machines.next",
    b"pages",
    b"pool",
    b"principals",
    b"server-says",
    b"small",
    b"spill",
    b"spilled",
    b"tables",
    b"unserved",
];
/// And those with a number.
const NUMBERED: [&[u8]; 4] = [b"seg-", b"session-", b"user-", b"user-next-"];
/// Names in an error, at most.
const NAMED: usize = 3;

/// What a directory is for.
#[derive(Clone, Copy)]
enum Purpose {
    Instance,
    /// `open`: empty directories with numbers as names.
    Open,
    /// `nodes`: FIFOs and sockets.
    Nodes,
    /// Programs may have made anything there.
    Shadow,
}

/// What a name in a directory is.
enum Part {
    Plain,
    Directory(Purpose),
    Foreign,
}

fn is_number(text: &[u8], radix: u32) -> bool {
    !text.is_empty() && text.iter().all(|byte| char::from(*byte).is_digit(radix))
}

fn is_file(name: &[u8]) -> bool {
    let numbered = |of: &&[u8]| name.strip_prefix(*of).is_some_and(|rest| is_number(rest, 10));
    FIRST.contains(&name)
        || LAST.contains(&name)
        || OTHERS.contains(&name)
        || NUMBERED.iter().any(numbered)
}

fn part(of: Purpose, name: &[u8], kind: FileType) -> Part {
    let directory = match (of, name) {
        (Purpose::Instance, b"open") => Some(Purpose::Open),
        (Purpose::Instance, b"shadow") | (Purpose::Shadow, _) => Some(Purpose::Shadow),
        (Purpose::Instance, name) if name == nodes::DIRECTORY.as_bytes() => Some(Purpose::Nodes),
        (Purpose::Open, name) if is_number(name, 10) => Some(Purpose::Open),
        _ => None,
    };
    let special = matches!(kind, FileType::Fifo | FileType::Socket);
    let plain = match of {
        Purpose::Instance if name == b"socket" => kind == FileType::Socket,
        Purpose::Instance if name == b"rsh" => kind == FileType::Symlink,
        Purpose::Instance => kind == FileType::RegularFile && is_file(name),
        Purpose::Open => false,
        Purpose::Nodes => special && nodes::is_name(name),
        Purpose::Shadow => true,
    };
    match directory {
        Some(purpose) if kind == FileType::Directory => Part::Directory(purpose),
        _ if plain => Part::Plain,
        _ => Part::Foreign,
    }
}

/// A file system as it is mounted at one place.
fn mount(directory: &OwnedFd) -> rustix::io::Result<(u32, u32, u64)> {
    let wanted = StatxFlags::MNT_ID;
    let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, wanted)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id))
}

fn open(above: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

/// One directory of an instance.
struct Place<'a> {
    fd: OwnedFd,
    purpose: Purpose,
    /// Where in the instance it is, with a slash at the end.
    within: &'a [u8],
}

impl Place<'_> {
    /// What it holds, in the order of its removal.
    fn names(&self) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        let place = |list: &[&[u8]], name: &[u8]| list.iter().position(|of| *of == name);
        let rank = |name: &[u8]| match (place(&FIRST, name), place(&LAST, name)) {
            (Some(at), _) => at,
            (_, Some(at)) => FIRST.len() + 1 + at,
            _ => FIRST.len(),
        };
        names.sort_by_key(|name| rank(name));
        Ok(names)
    }

    /// Looks at all that it holds, and adds what is no part to `foreign`.
    fn walk(&self, does: Does, foreign: &mut Vec<Vec<u8>>) -> rustix::io::Result<()> {
        for name in self.names()? {
            match self.part(&name, does, foreign) {
                // Somebody else does the same.
                Ok(()) | Err(Errno::NOENT) => {}
                // A mount, or what somebody else puts into it just now.
                Err(Errno::BUSY | Errno::NOTEMPTY | Errno::XDEV) => {
                    foreign.push([self.within, &name].concat());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn part(&self, name: &[u8], does: Does, foreign: &mut Vec<Vec<u8>>) -> rustix::io::Result<()> {
        let path = OsStr::from_bytes(name);
        let found = rustix::fs::statat(&self.fd, path, AtFlags::SYMLINK_NOFOLLOW)?;
        match part(self.purpose, name, FileType::from_raw_mode(found.st_mode)) {
            Part::Foreign => foreign.push([self.within, name].concat()),
            Part::Plain if does == Does::Removes => {
                rustix::fs::unlinkat(&self.fd, path, AtFlags::empty())?;
            }
            Part::Plain => {}
            Part::Directory(purpose) => {
                let fd = open(&self.fd, path)?;
                if mount(&fd)? != mount(&self.fd)? {
                    return Err(Errno::XDEV);
                }
                let within = &[self.within, name, b"/"].concat();
                let before = foreign.len();
                Place { fd, purpose, within }.walk(does, foreign)?;
                if does == Does::Removes && foreign.len() == before {
                    rustix::fs::unlinkat(&self.fd, path, AtFlags::REMOVEDIR)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Looks,
    Removes,
}

fn failed(path: &Path, error: Errno) -> Error {
    Error::system(&error.into(), path.display().to_string())
}

fn go_through(directory: &Path, does: Does) -> Result<Vec<Vec<u8>>> {
    let mut foreign = Vec::new();
    let fd = match open(CWD, directory.as_os_str()) {
        Err(Errno::NOENT) => return Ok(foreign),
        opened => opened.map_err(|error| failed(directory, error))?,
    };
    let top = Place { fd, purpose: Purpose::Instance, within: b"" };
    top.walk(does, &mut foreign).map_err(|error| failed(directory, error))?;
    Ok(foreign)
}

/// Why the directory of an instance that is over is still there: what lies there and is no part of
/// one. `None` if nothing does.
pub fn remains(directory: &Path) -> Option<String> {
    let foreign = go_through(directory, Does::Looks).ok()?;
    (!foreign.is_empty()).then(|| stays(directory, &foreign))
}

fn stays(directory: &Path, foreign: &[Vec<u8>]) -> String {
    let named = foreign.iter().take(NAMED).map(|name| name.escape_ascii().to_string());
    let mut named = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = foreign.len().checked_sub(NAMED) {
        named += &format!(" and {more} more");
    }
    format!("{} stays: it has {named} in it, which is not Terral's", directory.display())
}

/// Removes what is left of an instance that is none any more, or is not one yet.
///
/// # Errors
/// [`ErrorKind::NotEmpty`] if something else lies there: that is still there.
pub fn remove(directory: &Path) -> Result<()> {
    spill_file::remove(directory)?;
    let foreign = go_through(directory, Does::Removes)?;
    if !foreign.is_empty() {
        return Err(Error::new(ErrorKind::NotEmpty, stays(directory, &foreign)));
    }
    match rustix::fs::unlinkat(CWD, directory, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(directory, error)),
    }
}

/// Removes an instance of which nothing is needed any more. First it takes a name that says so:
/// whoever is killed in the middle leaves rubbish, see [`tidy`], and its own name is free for
/// another at once. One in which something else lies keeps its name.
///
/// # Errors
/// As [`remove`].
pub fn end(directory: &Path) -> Result<()> {
    if remains(directory).is_none() {
        let name = format!("{OVER}{:0OVER_DIGITS$x}", Clock.random()?);
        let over = directory.with_file_name(name);
        if std::fs::rename(directory, &over).is_ok() {
            return remove(&over);
        }
    }
    remove(directory)
}

/// Removes from a directory of instances what was left by those who were killed as they removed
/// one.
pub fn tidy(home: &Path) {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_rubbish(&entry.file_name())) {
        if !crate::shell::instance::is_served(&entry.path()) {
            // Somebody else may be doing the same.
            let _ = remove(&entry.path());
        }
    }
}

/// Whether a directory of this name is an instance no more.
pub fn is_rubbish(name: &OsStr) -> bool {
    let digits = name.as_bytes().strip_prefix(OVER.as_bytes());
    digits.is_some_and(|digits| digits.len() == OVER_DIGITS && is_number(digits, 16))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{end, is_rubbish, remains, remove, tidy};

    /// All that one ever consists of.
    fn make(instance: &Path) {
        for directory in ["open/0", "open/17", "nodes", "shadow/core/deep"] {
            fs::create_dir_all(instance.join(directory)).expect("makes");
        }
        let files = ["lock", "to", "origin", "server-says", "unserved", "tables", "small"];
        let more =
            ["instructions", "headers", "pages", "seg-0", "seg-12", "session-3", "log", "log.next"];
        let more = more.into_iter().chain(["spilled"]).collect::<Vec<_>>();
        for file in files.iter().chain(&more).chain(&["shadow/core/deep/.x"]) {
            fs::write(instance.join(file), "").expect("writes");
        }
        let socket = |name| std::os::unix::net::UnixListener::bind(instance.join(name));
        drop(socket("socket").expect("binds"));
        drop(socket("nodes/terral-00000001-2f").expect("binds"));
        let spill = instance.with_file_name(format!("terral-spill-{0}-{0}", "0a".repeat(16)));
        fs::write(&spill, "bytes").expect("writes");
        fs::write(instance.join("spill"), spill.as_os_str().as_encoded_bytes()).expect("writes");
    }

    #[test]
    fn an_instance_goes_whole() {
        let home = tempfile::tempdir().expect("directory");
        let instance = home.path().join("run-1");
        for removal in [end, remove] {
            make(&instance);
            removal(&instance).expect("goes");
            assert_eq!(fs::read_dir(home.path()).expect("lists").count(), 0);
        }
        remove(&instance).expect("is gone already");
    }

    #[test]
    fn what_is_no_part_of_an_instance_stays_and_is_named() {
        let home = tempfile::tempdir().expect("directory");
        let (instance, others) = (home.path().join("run-1"), home.path().join("others"));
        let foreign = ["seg-", "seg-1x", "notes", "open/x", "nodes/terral-1-2", "nodes/x", "a\x1b"];
        for name in foreign {
            make(&instance);
            fs::write(instance.join(name), "theirs").expect("writes");
            let error = end(&instance).expect_err("has more in it").to_string();
            let shown = name.as_bytes().escape_ascii().to_string();
            assert!(error.contains(&format!("it has {shown} in it")), "{error}");
            assert_eq!(fs::read(instance.join(name)).expect("is there"), b"theirs");
            assert!(!instance.join("log").exists() && !instance.join("shadow").exists());
            assert!(remains(&instance).is_some());
            fs::remove_file(instance.join(name)).expect("removes");
            assert!(remains(&instance).is_none());
            end(&instance).expect("nothing else is there");
        }
        // Known names of another kind, and what links lead to.
        fs::create_dir_all(others.join("open")).expect("makes");
        fs::write(others.join("open/log"), "theirs").expect("writes");
        fs::create_dir_all(instance.join("log/old")).expect("makes");
        symlink(&others, instance.join("nodes")).expect("links");
        symlink(others.join("open"), instance.join("open")).expect("links");
        symlink(others.join("open/log"), instance.join("tables")).expect("links");
        end(&instance).expect_err("none of that is its");
        assert_eq!(fs::read_dir(&instance).expect("lists").count(), 4);
        // Links that programs made past Terral go, and nothing that they lead to.
        fs::create_dir_all(instance.join("shadow")).expect("makes");
        symlink(&others, instance.join("shadow/link")).expect("links");
        end(&instance).expect_err("the rest is still not its");
        assert!(!instance.join("shadow").exists());
        let link = home.path().join("run-2");
        symlink(&others, &link).expect("links");
        remove(&link).expect_err("a link is no instance");
        assert_eq!(fs::read(others.join("open/log")).expect("is there"), b"theirs");
    }

    #[test]
    fn only_what_removals_left_is_tidied_up() {
        let home = tempfile::tempdir().expect("directory");
        let over = home.path().join(format!(".over-{:032x}", 7));
        let (theirs, full) = (home.path().join(".over-mine"), format!(".over-{:032x}", 8));
        fs::create_dir_all(over.join("open/0")).expect("makes");
        fs::create_dir(&theirs).expect("makes");
        fs::create_dir_all(home.path().join(&full)).expect("makes");
        fs::write(home.path().join(&full).join("mine"), "").expect("writes");
        assert!(is_rubbish(full.as_ref()) && !is_rubbish(".over-mine".as_ref()));
        tidy(home.path());
        assert!(!over.exists() && theirs.exists() && home.path().join(full).join("mine").exists());
    }
}
