//! A user puts something else in the place of what root is about to change.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use terral_format::ErrorKind;
use terral_format::fingerprint::Object;
use terral_format::wire::message::Change;

use crate::backing::dir::Dir;
use crate::backing::{NameSink, Source};

/// `nobody` on Debian.
const USER: u32 = 65534;
const TO_HIM: Change =
    Change { uid: Some(USER), gid: None, mode: Some(0o4777), accessed_ns: None, modified_ns: None };

/// Does this with root's directory, in which `his` is a user's and `roots` is not.
fn with_a_users_directory(act: impl FnOnce(&Path, &Dir)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root changes what is of others");
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let dir = Dir::open(home.path()).expect("opens");
    for name in ["his", "roots"] {
        std::fs::create_dir(home.path().join(name)).expect("makes");
        for file in ["meant", "secret"] {
            std::fs::write(home.path().join(name).join(file), "root's").expect("writes");
        }
    }
    chown(home.path().join("his"), Some(USER), Some(USER)).expect("gives");
    act(home.path(), &dir);
}

fn object(dir: &Dir, path: &[u8]) -> Object {
    dir.stat(path).expect("is there").fingerprint.object()
}

fn owner(home: &Path, path: &str) -> u32 {
    home.join(path).symlink_metadata().expect("is there").uid()
}

#[test]
fn root_changes_nothing_that_a_user_has_put_in_the_place_of_what_was_meant() {
    with_a_users_directory(|home, dir| {
        let meant = object(dir, b"his/meant");
        std::fs::rename(home.join("his/meant"), home.join("his/away")).expect("moves");
        std::fs::rename(home.join("his/secret"), home.join("his/meant")).expect("moves");
        let refused = |done: terral_format::Result<_>| done.err().map(|error| error.kind);
        for is in [Some(meant), Some(Object::NONE)] {
            let changed = dir.change(b"his/meant", TO_HIM, is);
            assert_eq!(refused(changed), Some(ErrorKind::Denied));
            let set = dir.set_xattr(b"his/meant", (b"user.x", Some(b"1")), is);
            assert_eq!(refused(set), Some(ErrorKind::Denied));
        }
        assert_eq!(owner(home, "his/meant"), 0);
        assert_eq!(dir.rename(b"his/meant", b"roots/moved", Some(meant)), Ok(None));
        dir.change(b"his/away", TO_HIM, Some(meant)).expect("that is it");
        assert_eq!(owner(home, "his/away"), USER);
    });
}

#[test]
fn where_only_root_may_rename_a_path_is_enough() {
    with_a_users_directory(|home, dir| {
        dir.change(b"roots/meant", TO_HIM, Some(Object::NONE))
            .expect("nobody else names anything there");
        assert_eq!(owner(home, "roots/meant"), USER);
        std::fs::set_permissions(home.join("roots"), Permissions::from_mode(0o1777))
            .expect("opens");
        let secret = dir.change(b"roots/secret", TO_HIM, Some(Object::NONE));
        assert_eq!(secret.err().map(|error| error.kind), Some(ErrorKind::Denied));
        std::fs::set_permissions(home.join("roots"), Permissions::from_mode(0o755))
            .expect("closes");
        std::fs::rename(home.join("roots"), home.join("his/roots")).expect("moves");
        let below = dir.change(b"his/roots/secret", TO_HIM, Some(Object::NONE));
        assert_eq!(below.err().map(|error| error.kind), Some(ErrorKind::Denied));
        dir.change(b"his", TO_HIM, Some(Object::NONE)).expect("it is in root's");
    });
}

#[test]
fn what_root_makes_is_known_where_nobody_else_renames() {
    with_a_users_directory(|home, dir| {
        let made = [
            dir.make_directory(b"roots/d", 0o1755).expect("makes"),
            dir.make_fifo(b"roots/fifo", 0o666).expect("makes"),
            dir.make_link(b"roots/link", b"to").expect("makes"),
        ];
        for (made, path) in made.iter().zip(["roots/d", "roots/fifo", "roots/link"]) {
            let known = made.expect("it is certain").object();
            assert_eq!(known, object(dir, path.as_bytes()), "{path}");
            dir.change(path.as_bytes(), TO_HIM, Some(known)).expect("that is it");
            assert_eq!(owner(home, path), USER);
        }
        assert_eq!(dir.make_directory(b"his/d", 0o1755), Ok(None), "it may be another one");
        assert_eq!(dir.make_link(b"roots/link", b"to"), Ok(None), "it was there");
        assert!(dir.make_link(b"roots/link", b"elsewhere").is_err());
    });
}
