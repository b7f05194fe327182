//! What its owner has closed to himself. Root is nobody here, as nothing is closed to root.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::process::Uid;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Kind};

use crate::backing::dir::Dir;
use crate::backing::{NameSink, Sink, Source};

const INSTANCE: InstanceId = InstanceId(0xacce55);
/// `nobody` on Debian.
const NOBODY: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changes its mode");
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("is there").permissions().mode() & 0o7777
}

/// Does this in a new directory of an ordinary user's, as that user.
fn as_ordinary_user(act: impl FnOnce(&Path) + Send) {
    let home = tempfile::tempdir().expect("temporary directory");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("gives it away");
    }
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            if is_root {
                // Of this thread alone, which gives up root's privileges with it.
                let nobody = Uid::from_raw(NOBODY);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("becomes nobody");
            }
            act(home.path());
        });
        acting.join().expect("succeeds");
    });
}

/// A directory with a file that was brought there.
fn with_file(root: &Path) -> (Dir, Attributes) {
    let backing = Dir::open(root).expect("opens");
    backing.make_directory(b"d", 0o755).expect("makes");
    let root = backing.stat(b"").expect("root").attributes;
    let attributes = Attributes { kind: Kind::File, mode: 0o644, ..root };
    let mut staged = backing.stage(Ino(5), INSTANCE).expect("stages");
    staged.write(0, b"bytes").expect("writes");
    staged.publish(b"d/f", &attributes, 5, None, &mut |_| Ok(())).expect("publishes");
    (backing, attributes)
}

#[test]
fn what_is_owed_arrives_in_a_directory_that_its_owner_has_closed_to_himself() {
    as_ordinary_user(|root| {
        let (backing, attributes) = with_file(root);
        let known = backing.stat(b"d/f").expect("stat").fingerprint;
        let closed = root.join("d");
        set_mode(&closed, 0);
        assert!(root.join("d/f").metadata().is_err(), "it is not closed");

        let mut update = backing.update(b"d/f", known).expect("begins");
        update.write(0, b"BYTES").expect("writes");
        update.finish(&attributes).expect("finishes");
        let change = Change { mode: Some(0o600), ..Change::default() };
        backing.change(b"d/f", change).expect("changes");
        backing.set_xattr(b"d/f", b"user.a", Some(b"1")).expect("sets");
        let attribute = (b"user.a".to_vec(), b"1".to_vec());
        assert_eq!(backing.xattrs(b"d/f").expect("has"), [attribute]);
        assert_eq!(backing.list(b"d").expect("lists").len(), 1);
        assert_eq!(mode(&closed), 0, "it stays closed");

        backing.take_back(b"d/f", Ino(5), INSTANCE).expect("takes back");
        assert_eq!(mode(&closed), 0, "it stays closed");
        let staged = backing.stage(Ino(5), INSTANCE).expect("stages");
        assert_eq!(staged.resumed_bytes(), Some(5));
        set_mode(&closed, 0o700);
        assert_eq!(std::fs::read_dir(&closed).expect("lists").count(), 0);
    });
}

#[test]
fn a_file_gets_attributes_that_its_owner_has_closed_to_himself() {
    as_ordinary_user(|root| {
        let (backing, _) = with_file(root);
        for (path, closed) in [(&b"d/f"[..], 0o444), (b"d/f", 0), (b"d", 0o555)] {
            let file = root.join(std::str::from_utf8(path).expect("a name"));
            set_mode(&file, closed);
            let before = backing.stat(path).expect("stat").fingerprint;
            let touched = backing.set_xattr(path, b"user.a", Some(b"1")).expect("sets");
            let after = backing.stat(path).expect("stat").fingerprint;
            assert_eq!((touched.before, touched.after), (before, after));
            assert_eq!(mode(&file), closed, "it stays closed");
        }
    });
}
