//! What a process of root's, and one of a user's, does in a directory where others may rename, if
//! each user has one.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change};
use terral_format::{ErrorKind, Result};

use crate::backing::dir::Dir;
use crate::backing::{NameSink, Published};
use crate::backing::{Sink, Source, conformance};

/// `nobody` on Debian.
const USER: u32 = 65534;
const INSTANCE: InstanceId = InstanceId(7);
const MODE: Change =
    Change { uid: None, gid: None, mode: Some(0o4777), accessed_ns: None, modified_ns: None };

fn is_roots_process() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        eprintln!("skipped: only root gives something to others");
    }
    is
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("root's");
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(USER), Some(USER)).expect("root may");
}

/// A directory with root's `all` (sticky), `open` (not), `own`, and `his`, a user's; in each of
/// them a file, directory and link of root's and of his.
fn house() -> (TempDir, Dir) {
    let home = tempfile::tempdir().expect("temporary directory");
    set_mode(home.path(), 0o755);
    for (name, mode) in [("all", 0o1777), ("open", 0o777), ("own", 0o755), ("his", 0o755)] {
        let directory = home.path().join(name);
        std::fs::create_dir(&directory).expect("made");
        set_mode(&directory, mode);
        for whose in ["root", "his"] {
            let path = |kind: &str| directory.join(format!("{whose}-{kind}"));
            std::fs::write(path("file"), whose).expect("written");
            std::fs::create_dir(path("directory")).expect("made");
            std::fs::write(path("directory").join("inner"), "root's").expect("written");
            symlink("/etc", path("link")).expect("made");
            if whose == "his" {
                ["file", "directory", "link"].iter().for_each(|kind| give(&path(kind)));
            }
        }
    }
    chown(home.path().join("his"), Some(USER), Some(USER)).expect("root may");
    let dir = Dir::open_among_users(home.path()).expect("it is root's");
    (home, dir)
}

/// A path, with its owner, bits, bytes and time of change.
type Seen = (String, u32, u32, u64, (i64, i64));

/// All there is.
fn all(home: &Path) -> Vec<Seen> {
    let mut found = Vec::new();
    let mut left = vec![home.to_path_buf()];
    while let Some(at) = left.pop() {
        let is = at.symlink_metadata().expect("there");
        if is.is_dir() {
            let inner = std::fs::read_dir(&at).expect("a directory");
            left.extend(inner.map(|entry| entry.expect("read").path()));
        }
        let path = at.strip_prefix(home).expect("below").display().to_string();
        found.push((path, is.uid(), is.mode(), is.size(), (is.ctime(), is.ctime_nsec())));
    }
    // Where the staging directory is made.
    found.retain(|found| !found.0.is_empty() && !found.0.starts_with(".terral"));
    found.sort();
    found
}

fn publish(dir: &Dir, path: &[u8], expect: Option<Fingerprint>) -> Result<Published> {
    publish_like(dir, (path, b"own/root-file"), expect)
}

fn publish_like(
    dir: &Dir,
    (path, from): (&[u8], &[u8]),
    expect: Option<Fingerprint>,
) -> Result<Published> {
    let mut staged = dir.stage(Ino(9), INSTANCE).expect("staged");
    staged.write(0, b"new").expect("written");
    let attributes = Attributes { ino: Ino(0), ..dir.stat(from)?.attributes };
    staged.publish(path, &attributes, 3, expect, &mut |_| Ok(()))
}

/// Everything that is done to what is at a path, or puts something there; `from`: a file that is
/// the owner's, in a directory that is.
fn each(dir: &Dir, path: &[u8], from: &[u8]) -> Vec<(&'static str, Result<()>)> {
    let [moved, away] = [path, from].map(|path| [path, b"-moved"].concat());
    let mut buffer = [0; 8];
    let looks = dir.stat(from).expect("the owner's").fingerprint;
    vec![
        ("list", dir.list(path).map(drop)),
        ("read", dir.read(path, 0, &mut buffer).map(drop)),
        ("read_link", dir.read_link(path).map(drop)),
        ("xattrs", dir.xattrs(path).map(drop)),
        ("update", dir.update(path, looks).map(drop)),
        ("resume", dir.resume_update(path, looks).map(drop)),
        ("take_back", dir.take_back(path, Ino(8), INSTANCE)),
        ("make_directory", dir.make_directory(path, 0o700)),
        ("remove_directory", dir.remove_directory(path)),
        ("make_link", dir.make_link(path, b"there")),
        ("make_fifo", dir.make_fifo(path, 0o600)),
        ("link to", dir.link(from, path).map(drop)),
        ("link from", dir.link(path, &moved).map(drop)),
        ("exchange", dir.exchange(from, path)),
        ("unlink", dir.unlink(path)),
        ("rename to", dir.rename(from, path).map(drop)),
        ("rename from", dir.rename(path, &away).map(drop)),
        ("keep_theirs", dir.keep_theirs(path, &[], from).map(drop)),
        ("set_aside", dir.set_aside(path).map(drop)),
        ("change", dir.change(path, MODE).map(drop)),
        ("set_xattr", dir.set_xattr(path, b"user.x", Some(b"1")).map(drop)),
        ("publish", publish_like(dir, (path, from), None).map(drop)),
    ]
}

#[test]
fn a_store_of_roots_keeps_all_promises_where_all_is_roots() {
    if !is_roots_process() {
        return;
    }
    let homes = std::cell::RefCell::new(Vec::new());
    let make = || {
        let home = tempfile::tempdir().expect("temporary directory");
        let dir = Dir::open_among_users(home.path()).expect("it is root's");
        homes.borrow_mut().push(home);
        dir
    };
    conformance::check(make);
    conformance::check_looks(make);
}

fn all_is_refused(dir: &Dir, path: &str, from: &[u8]) {
    for (what, done) in each(dir, path.as_bytes(), from) {
        let error = done.map_err(|error| (error.kind, error.errno));
        let refused = matches!(
            error,
            Err((ErrorKind::Denied, 1) | (ErrorKind::NotDirectory | ErrorKind::Busy, _))
        );
        assert!(refused, "{what} {path}: {error:?}");
    }
}

/// Does something as a user, in a thread of his.
fn as_user<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let become_him = || {
        let user = rustix::process::Uid::from_raw(USER);
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
        act()
    };
    std::thread::scope(|threads| threads.spawn(become_him).join().expect("does not panic"))
}

#[test]
fn a_users_process_touches_what_is_his_below_directories_of_his_or_roots() {
    if !is_roots_process() {
        return;
    }
    let (home, _) = house();
    for path in ["his/his-directory", "all/his-directory", ".terral-65534"] {
        std::fs::create_dir_all(home.path().join(path)).expect("made");
        give(&home.path().join(path));
    }
    set_mode(&home.path().join(".terral"), 0o777);
    // What the kernel would let him, or he may have been made to take for his own.
    set_mode(&home.path().join("his/root-directory"), 0o777);
    set_mode(&home.path().join("his/root-file"), 0o666);
    give(&home.path().join("his/root-directory/inner"));
    let before = all(home.path());
    as_user(|| {
        let dir = Dir::open_among_users(home.path()).expect("it is root's");
        for path in [
            "his/root-file",
            "his/root-directory",
            "his/root-directory/inner",
            "his/root-directory/new",
            "his/root-link",
            "all/root-file",
            "all/root-directory",
            "own/root-file",
            "own/his-link/passwd",
            "open/his-file",
            "open/new",
        ] {
            all_is_refused(&dir, path, b"his/his-file");
        }
        // But whose it is.
        for path in [&b"his/root-file"[..], b"all/root-link"] {
            assert_eq!(dir.stat(path).expect("looked at").attributes.uid, 0);
        }
    });
    assert_eq!(all(home.path()), before);
    as_user(|| {
        let dir = Dir::open_among_users(home.path()).expect("it is root's");
        let mut buffer = [0; 8];
        for path in [&b"his/his-file"[..], b"all/his-file", b"own/his-file"] {
            assert_eq!(dir.read(path, 0, &mut buffer).expect("his"), 3);
            dir.change(path, MODE).expect("his");
        }
        assert_eq!(dir.list(b"his").expect("his").len(), 6);
        dir.make_directory(b"his/new", 0o700).expect("his");
        dir.make_directory(b"his/new", 0o700).expect("it is there, and his");
        publish_like(&dir, (b"his/new/f", b"his/his-file"), None).expect("his");
        dir.rename(b"his/new/f", b"his/his-directory/f").expect("his");
        dir.make_link(b"his/new/l", b"there").expect("his");
        dir.unlink(b"his/new/l").expect("his");
        dir.remove_directory(b"his/new").expect("his");
        assert_eq!(dir.read(b"his/his-directory/f", 0, &mut buffer).expect("his"), 3);
    });
}

#[test]
fn of_a_file_with_an_acl_the_group_has_no_bits() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    let path = home.path().join("own/root-file");
    // user::rw- user:65534:rw- group::--- mask::rw- other::r-- (acl(5), as xattr(7) has it).
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries = [
        (1, 6, u32::MAX),
        (2, 6, USER),
        (4, 0, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let entries = entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat();
    let acl = [&2u32.to_le_bytes()[..], &entries].concat();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "system.posix_acl_access", &acl, flags).is_err() {
        eprintln!("skipped: this file system has no ACLs");
        return;
    }
    assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o664);
    assert_eq!(dir.stat(b"own/root-file").expect("there").attributes.mode & 0o777, 0o604);
}

#[test]
fn nothing_of_a_users_is_touched_nor_anything_below_it() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    let before = all(home.path());
    let his = ["file", "directory", "link"].map(|kind| format!("all/his-{kind}"));
    let below = ["his/root-file", "his/new", "all/his-directory/inner", "all/his-link/passwd"];
    let where_others_rename = ["open/root-file", "open/his-file", "open/new", "open/d/new"];
    let paths = his.iter().map(String::as_str).chain(below).chain(where_others_rename);
    for path in paths.chain(["his", "own/his-file"]) {
        all_is_refused(&dir, path, b"own/root-file");
    }
    assert_eq!(all(home.path()), before);
    // But whose it is.
    for path in [&b"his"[..], b"all/his-file", b"own/his-link"] {
        assert_eq!(dir.stat(path).expect("looked at").attributes.uid, USER);
    }
    assert!(dir.stat(b"his/root-file").is_err() && dir.stat(b"open/root-file").is_err());
}

#[test]
fn what_is_roots_in_a_sticky_directory_is_roots_to_change() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    assert_eq!(dir.list(b"all").expect("root's").len(), 6);
    assert_eq!(dir.read_link(b"all/root-link").expect("root's"), b"/etc");
    dir.change(b"all/root-file", MODE).expect("root's");
    dir.rename(b"all/root-file", b"all/root-new").expect("root's");
    publish(&dir, b"all/new", None).expect("free");
    dir.unlink(b"all/root-new").expect("root's");
    assert_eq!(std::fs::read(home.path().join("all/new")).expect("there"), b"new");
}

#[test]
fn a_directory_that_moves_into_a_users_is_roots_way_no_more() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    std::fs::rename(home.path().join("own"), home.path().join("his/own")).expect("moves");
    symlink(home.path().join("his/own"), home.path().join("own")).expect("made");
    give(&home.path().join("own"));
    let mut buffer = [0; 8];
    for path in [&b"own/root-file"[..], b"his/own/root-file"] {
        assert!(dir.read(path, 0, &mut buffer).is_err(), "{path:?}");
        assert!(dir.unlink(path).is_err(), "{path:?}");
    }
}

#[test]
fn a_directory_that_others_may_change_is_not_served() {
    if !is_roots_process() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    for (owner, mode, may) in [(0, 0o755, true), (0, 0o1777, false), (0, 0o775, false)] {
        set_mode(home.path(), mode);
        chown(home.path(), Some(owner), None).expect("root may");
        assert_eq!(Dir::open_among_users(home.path()).is_ok(), may, "{owner} {mode:o}");
    }
    set_mode(home.path(), 0o755);
    chown(home.path(), Some(USER), None).expect("root may");
    let error = Dir::open_among_users(home.path()).map(drop).expect_err("it is his");
    assert!(error.to_string().contains("not root's"), "{error}");
}

#[test]
fn another_file_system_below_is_not_entered_nor_asked() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    let inner = home.path().join("own/root-directory");
    let Ok(()) = rustix::mount::mount("none", &inner, "tmpfs", MountFlags::empty(), None) else {
        eprintln!("skipped: nothing is mounted here");
        return;
    };
    std::fs::write(inner.join("inner"), "theirs").expect("root writes");
    let mut buffer = [0; 8];
    let results = [
        dir.stat(b"own/root-directory").map(drop),
        dir.stat(b"own/root-directory/inner").map(drop),
        dir.read(b"own/root-directory/inner", 0, &mut buffer).map(drop),
        dir.list(b"own/root-directory").map(drop),
        dir.remove_directory(b"own/root-directory"),
    ];
    rustix::mount::unmount(&inner, UnmountFlags::DETACH).expect("it is mounted");
    for done in results {
        let error = done.map_err(|error| (error.kind, error.errno));
        assert_eq!(error, Err((ErrorKind::Denied, 1)));
    }
    assert!(dir.read(b"own/root-directory/inner", 0, &mut buffer).is_ok());
}

#[test]
fn a_staging_directory_that_is_not_roots_is_none() {
    if !is_roots_process() {
        return;
    }
    let (home, dir) = house();
    for name in [".terral", ".terral-0"] {
        std::fs::create_dir_all(home.path().join(name)).expect("made");
        give(&home.path().join(name));
    }
    let staged = dir.stage(Ino(1), INSTANCE);
    assert_eq!(staged.map(drop).map_err(|error| error.kind), Err(ErrorKind::Denied));
    for name in [".terral", ".terral-0"] {
        let inner = std::fs::read_dir(home.path().join(name)).expect("there");
        assert_eq!(inner.count(), 0, "nothing was tried in it");
    }
}
