//! Files that are changed in place.

use terral_format::ErrorKind;

use super::{Backing, TIME_NS, attributes, bytes, kind, put};

pub(super) fn an_update_touches_only_what_it_writes(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(2, b"ab").expect("write");
    update.truncate(8).expect("truncate");
    let mut buffer = [0; 20];
    assert_eq!(update.read(1, &mut buffer), Ok(7));
    let after = update.finish(&attributes(backing, 0o600)).expect("finish");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!((after, after.object()), (found.fingerprint, before.object()));
    assert_eq!((found.attributes.mode, found.attributes.modified_ns), (0o600, TIME_NS));
    assert_eq!(bytes(backing, b"file"), b"01ab4567");
}

pub(super) fn an_update_of_a_changed_file_is_refused(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(10, b"interrupted").expect("write");
    drop(update);
    assert_eq!(kind(backing.update(b"file", before)), Some(ErrorKind::Busy));
    backing.resume_update(b"file", before).expect("the same inode");
    put(backing, b"file", b"another file", None);
    assert_eq!(kind(backing.resume_update(b"file", before)), Some(ErrorKind::Busy));
    assert_eq!(kind(backing.update(b"none", before)), Some(ErrorKind::NotFound));
}

pub(super) fn an_update_of_a_file_that_was_replaced_meanwhile_does_not_count(
    backing: &dyn Backing,
) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(2, b"ab").expect("write");
    let (_, replacing) = (put(backing, b"other", b"theirs", None), attributes(backing, 0o600));
    backing.rename(b"other", b"file").expect("rename");
    assert_eq!(kind(update.finish(&replacing)), Some(ErrorKind::Busy));
    assert_eq!(bytes(backing, b"file"), b"theirs");
    let now = backing.stat(b"file").expect("stat").fingerprint;
    let update = backing.update(b"file", now).expect("update");
    backing.unlink(b"file").expect("unlink");
    assert_eq!(kind(update.finish(&replacing)), Some(ErrorKind::NotFound));
}

pub(super) fn readers_see_an_update_at_once_and_dropped_it_stays(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    backing.link(b"file", b"second").expect("link");
    let now = backing.stat(b"file").expect("stat").fingerprint;
    let mut update = backing.update(b"file", now).expect("update");
    update.write(2, b"ab").expect("write");
    assert_eq!(bytes(backing, b"second"), b"01ab456789");
    update.truncate(4).expect("truncate");
    assert_eq!(backing.stat(b"second").expect("stat").attributes.size, 4);
    drop(update);
    assert_eq!(bytes(backing, b"file"), b"01ab");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!((found.fingerprint.object(), found.attributes.links), (before.object(), 2));
}
