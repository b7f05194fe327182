//! Attributes and extended attributes belong to a file, whatever its names.

use terral_format::ErrorKind;
use terral_format::ids::Ino;
use terral_format::wire::message::{Attributes, Change, Kind};

use super::{Backing, TIME_NS, kind, put};

/// Where the store has extended attributes at all.
pub(super) fn extended_attributes_belong_to_the_file(backing: &dyn Backing) {
    let before = put(backing, b"file", b"bytes", None).fingerprint;
    let set = |path, name, value| backing.set_xattr(path, name, value);
    let set_first = set(b"file", b"user.one", Some(b"1"));
    if kind(set_first.clone()) == Some(ErrorKind::Unsupported) {
        return;
    }
    let touched = set_first.expect("set");
    assert_eq!((touched.before, touched.after.object()), (before, before.object()));
    set(b"file", b"user.two", Some(b"")).expect("set");
    set(b"file", b"user.one", Some(b"\0\xff")).expect("replace");
    set(b"file", b"user.none", None).expect("a missing one is no error");
    backing.link(b"file", b"second").expect("link");
    backing.rename(b"file", b"moved").expect("rename");
    for name in [&b"moved"[..], b"second"] {
        let mut found = backing.xattrs(name).expect("list");
        found.sort();
        let one = (b"user.one".to_vec(), b"\0\xff".to_vec());
        assert_eq!(found, [one, (b"user.two".to_vec(), Vec::new())]);
    }
    set(b"second", b"user.one", None).expect("remove");
    assert_eq!(backing.xattrs(b"moved").expect("list").len(), 1);
    assert_eq!(kind(set(b"none", b"user.one", None)), Some(ErrorKind::NotFound));
    let present = backing.stat(b"moved").expect("stat").fingerprint;
    let done = put(backing, b"moved", b"another version", Some(present));
    assert_eq!(done.conflict, None);
    assert!(backing.xattrs(b"moved").expect("list").is_empty(), "of the old version");
    assert_eq!(backing.xattrs(b"second").expect("list").len(), 1);
}

/// A change of some attributes leaves the others, and one of a file changes all of its names.
pub(super) fn a_change_is_of_the_file(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    backing.link(b"file", b"second").expect("link");
    let was = backing.stat(b"second").expect("stat").attributes;
    let change = Change { accessed_ns: Some(99), ..Change::default() };
    backing.change(b"file", change).expect("change");
    let now = backing.stat(b"second").expect("stat").attributes;
    assert_eq!(Attributes { accessed_ns: 99, changed_ns: now.changed_ns, ..was }, now);
    backing.change(b"", Change { mode: Some(0o711), ..Change::default() }).expect("the root");
    assert_eq!(backing.stat(b"").expect("stat").attributes.mode, 0o711);
}

pub(super) fn attributes_are_kept(backing: &dyn Backing) {
    put(backing, b"file", b"12345", None);
    let found = backing.stat(b"file").expect("stat");
    let got = found.attributes;
    assert_eq!((got.ino, got.kind, got.mode, got.size), (Ino(0), Kind::File, 0o640, 5));
    assert_eq!((got.modified_ns, got.accessed_ns), (TIME_NS, TIME_NS + 5));
    assert!(found.fingerprint.has_seen(got.changed_ns));
    let mode = Change { mode: Some(0o444), ..Change::default() };
    let touched = backing.change(b"file", mode).expect("change");
    assert_eq!(touched.before, found.fingerprint);
    let times = Change { modified_ns: Some(77), ..Change::default() };
    let touched = backing.change(b"file", times).expect("change");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!(touched.after, found.fingerprint);
    assert_eq!((found.attributes.mode, found.attributes.modified_ns), (0o444, 77));
    assert_eq!(found.attributes.accessed_ns, TIME_NS + 5);
    assert_eq!(kind(backing.change(b"none", mode)), Some(ErrorKind::NotFound));
    let mut update = backing.update(b"file", found.fingerprint).expect("update, read-only or not");
    update.write(0, b"x").expect("write");
    update.finish(&Attributes { mode: 0o444, ..got }).expect("finish");
    assert_eq!(backing.stat(b"file").expect("stat").attributes.mode, 0o444);
}
