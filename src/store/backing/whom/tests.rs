//! What a process of root's does for users. Nobody else can be tested to be one.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::process::{getegid, geteuid, getgroups};
use terral_format::wire::message::Change;
use terral_format::wire::person::Person;
use terral_format::{ErrorKind, Result};

use super::as_user;
use crate::backing::dir::Dir;
use crate::backing::{NameSink, Source};

/// `nobody` on Debian.
const USER: u32 = 65534;
const GROUP: u32 = 4242;

fn user() -> Person {
    Person { user: USER, group: USER, groups: vec![GROUP] }
}

/// Does this with a directory as root finds it.
fn as_root(act: impl FnOnce(&std::path::Path, &Dir)) {
    if !geteuid().is_root() {
        eprintln!("skipped: only root does things for others");
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o755)).expect("opens it");
    act(home.path(), &Dir::open(home.path()).expect("opens"));
}

fn done(dir: &Dir, mut act: impl FnMut() -> Result<()>) -> Option<ErrorKind> {
    let before = (getegid(), getgroups().expect("groups"));
    let kind = dir.as_user(&user(), &mut act).err().map(|error| error.kind);
    assert!(geteuid().is_root(), "it is root again");
    assert_eq!((getegid(), getgroups().expect("groups")), before);
    kind
}

#[test]
fn what_is_done_for_a_user_is_done_with_his_rights() {
    as_root(|home, dir| {
        let make = |path: &'static [u8]| move || dir.make_directory(path, 0o750).map(drop);
        assert_eq!(done(dir, make(b"no")), Some(ErrorKind::Denied), "it is root's");
        for (name, owner, group, mode) in [("his", USER, USER, 0o700), ("group", 0, GROUP, 0o770)] {
            std::fs::create_dir(home.join(name)).expect("makes");
            chown(home.join(name), Some(owner), Some(group)).expect("gives");
            std::fs::set_permissions(home.join(name), Permissions::from_mode(mode)).expect("mode");
        }
        assert_eq!(done(dir, make(b"his/d")), None);
        assert_eq!(done(dir, make(b"group/d")), None, "he is in that group");
        for made in ["his/d", "group/d"] {
            let found = home.join(made).metadata().expect("is there");
            assert_eq!((found.uid(), found.mode() & 0o7777), (USER, 0o750));
        }
        let fifo = || dir.make_fifo(b"his/fifo", 0o622).map(drop);
        assert_eq!(done(dir, fifo), None);
        assert_eq!(home.join("his/fifo").metadata().expect("is there").mode() & 0o777, 0o622);
        assert_eq!(done(dir, || dir.unlink(b"his/fifo")), None);
    });
}

#[test]
fn what_is_not_a_users_is_neither_changed_nor_removed_for_him() {
    as_root(|home, dir| {
        std::fs::create_dir(home.join("his")).expect("makes");
        std::fs::create_dir(home.join("his/rest")).expect("makes");
        std::fs::write(home.join("his/secret"), "root's").expect("writes");
        std::fs::write(home.join("theirs"), "root's").expect("writes");
        chown(home.join("his"), Some(USER), Some(USER)).expect("gives");
        let mode = Change { mode: Some(0o4777), ..Change::default() };
        let before = home.join("his/secret").metadata().expect("is there").mode();
        for path in [b"his/secret".as_slice(), b"theirs"] {
            let change = || dir.change(path, mode, None).map(drop);
            assert_eq!(done(dir, change), Some(ErrorKind::Denied));
            let own = Change { uid: Some(USER), ..Change::default() };
            assert_eq!(
                done(dir, || dir.change(path, own, None).map(drop)),
                Some(ErrorKind::Denied)
            );
        }
        assert_eq!(home.join("his/secret").metadata().expect("is there").mode(), before);
        assert_eq!(done(dir, || dir.unlink(b"theirs")), Some(ErrorKind::Denied));
        let out = || dir.rename(b"his/secret", b"theirs", None).map(drop);
        assert_eq!(done(dir, out), Some(ErrorKind::Denied));
        assert_eq!(dir.stat(b"his/secret").expect("is there").attributes.uid, 0);
    });
}

#[test]
fn who_is_not_root_does_things_as_himself() {
    let mut done = false;
    let root = Person { user: 0, group: 0, groups: Vec::new() };
    as_user(&root, &mut || {
        done = true;
        Ok(())
    })
    .expect("is done");
    assert!(done);
}
