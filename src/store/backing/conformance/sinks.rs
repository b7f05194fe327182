//! New versions of files: whole or not at all, in place of others, gone on with, thrown away.

use terral_format::ErrorKind;
use terral_format::ids::{Ino, InstanceId};

use super::{Backing, INSTANCE, OTHER, attributes, bytes, kind, names, put};

pub(super) fn a_new_file_appears_whole_or_not_at_all(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), None);
    staged.write(2, b"cdef and more").expect("write");
    staged.write(0, b"ab").expect("write");
    assert_eq!(kind(backing.stat(b"file")), Some(ErrorKind::NotFound));
    assert!(names(backing, b"").is_empty(), "staging shows");
    let mut half = [0; 3];
    assert_eq!(staged.read(1, &mut half), Ok(3));
    assert_eq!(&half, b"bcd");
    let done = staged
        .publish(b"file", &attributes(backing, 0o600), 6, None, &mut |_| Ok(()))
        .expect("publish");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!((done.fingerprint, done.conflict), (found.fingerprint, None));
    assert_eq!(bytes(backing, b"file"), b"abcdef");
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

pub(super) fn a_replaced_file_stays_until_the_new_one_is_whole(backing: &dyn Backing) {
    let old = put(backing, b"file", b"old", None).fingerprint;
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"brand new").expect("write");
    assert_eq!(bytes(backing, b"file"), b"old");
    let attributes = attributes(backing, 0o600);
    let done =
        staged.publish(b"file", &attributes, 9, Some(old), &mut |_| Ok(())).expect("publish");
    assert_eq!(done.conflict, None);
    assert_eq!(bytes(backing, b"file"), b"brand new");
    let missing = backing.stage(Ino(2), INSTANCE).expect("stage");
    let refused = missing.publish(b"none/file", &attributes, 0, None, &mut |_| Ok(()));
    assert_eq!(kind(refused), Some(ErrorKind::NotFound));
    backing.make_directory(b"directory", 0o755).expect("make");
    backing.make_directory(b"directory/below", 0o755).expect("make");
    let done = put(backing, b"directory", b"ours", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"directory.theirs-1"[..]));
    assert_eq!(bytes(backing, b"directory"), b"ours");
    backing.stat(b"directory.theirs-1/below").expect("is kept");
    assert_eq!(backing.set_aside(b"directory").as_deref(), Ok(&b"directory.theirs-2"[..]));
}

pub(super) fn a_conflict_keeps_both(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    let ours = put(backing, b"d/file", b"first", None).fingerprint;
    put(backing, b"d/file", b"theirs", Some(ours));
    let done = put(backing, b"d/file", b"second", Some(ours));
    assert_eq!(done.conflict.as_deref(), Some(&b"d/file.theirs-1"[..]));
    assert_eq!(bytes(backing, b"d/file"), b"second");
    assert_eq!(bytes(backing, b"d/file.theirs-1"), b"theirs");
    let done = put(backing, b"d/file", b"third", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"d/file.theirs-2"[..]));
    assert_eq!(bytes(backing, b"d/file.theirs-1"), b"theirs");
    assert_eq!(bytes(backing, b"d/file.theirs-2"), b"second");
    assert_eq!(done.fingerprint, backing.stat(b"d/file").expect("stat").fingerprint);
    backing.unlink(b"d/file").expect("unlink");
    let done = put(backing, b"d/file", b"fourth", Some(done.fingerprint));
    assert_eq!(done.conflict, None, "nothing is there to be kept");
    let long = [b'x'; 255];
    put(backing, &long, b"theirs", None);
    let kept = put(backing, &long, b"ours", None).conflict.expect("conflict");
    assert_eq!((kept.len(), bytes(backing, &kept)), (255, b"theirs".to_vec()));
}

pub(super) fn publishing_the_same_bytes_again_is_no_conflict(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    assert_eq!(put(backing, b"file", b"bytes", None).conflict, None);
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

pub(super) fn staging_resumes(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"half").expect("write");
    drop(staged);
    let other = backing.stage(Ino(3), INSTANCE).expect("stage");
    assert_eq!(other.resumed_bytes(), None);
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(4));
    staged.write(4, b" whole").expect("write");
    let read_only = attributes(backing, 0o400);
    let refused = staged.publish(b"none/file", &read_only, 10, None, &mut |_| Ok(()));
    assert_eq!(kind(refused), Some(ErrorKind::NotFound));
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(10));
    staged.publish(b"file", &read_only, 10, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(bytes(backing, b"file"), b"half whole");
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), None, "a published version is not staged any more");
}

pub(super) fn a_discarded_version_leaves_nothing(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"half").expect("write");
    staged.discard();
    assert_eq!(backing.stage(Ino(2), INSTANCE).expect("stage").resumed_bytes(), None);
}

pub(super) fn a_sign_is_found_until_it_is_cleaned_away(backing: &dyn Backing) {
    assert!(!backing.has_sign(7).expect("look"), "nobody has left it");
    backing.leave_sign(7).expect("leave");
    backing.leave_sign(7).expect("leave it again");
    assert!(backing.has_sign(7).expect("look") && !backing.has_sign(8).expect("look"));
    backing.clean(INSTANCE).expect("clean what others have");
    assert!(backing.has_sign(7).expect("look"));
    backing.clean(InstanceId(7)).expect("clean");
    assert!(!backing.has_sign(7).expect("look"));
}

pub(super) fn cleaning_spares_others(backing: &dyn Backing) {
    backing.clean(INSTANCE).expect("nothing to clean");
    for instance in [INSTANCE, OTHER] {
        let mut staged = backing.stage(Ino(2), instance).expect("stage");
        staged.write(0, b"half").expect("write");
    }
    backing.clean(INSTANCE).expect("clean");
    let ours = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(ours.resumed_bytes(), None);
    let others = backing.stage(Ino(2), OTHER).expect("stage");
    assert_eq!(others.resumed_bytes(), Some(4));
}
