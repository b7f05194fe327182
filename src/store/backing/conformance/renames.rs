//! What a rename may replace, and what not.

use terral_format::ErrorKind;

use super::{Backing, bytes, kind, names, put};

pub(super) fn a_rename_replaces_only_its_like(backing: &dyn Backing) {
    for path in [&b"d"[..], b"d/e", b"d/e/f", b"empty", b"full", b"full/x"] {
        backing.make_directory(path, 0o755).expect("make");
    }
    put(backing, b"file", b"bytes", None);
    put(backing, b"old", b"replaced", None);
    for (from, to, want) in [
        (&b"file"[..], &b"empty"[..], ErrorKind::IsDirectory),
        (b"empty", b"file", ErrorKind::NotDirectory),
        (b"empty", b"full", ErrorKind::NotEmpty),
        (b"d", b"d/e/f/g", ErrorKind::Invalid),
        (b"d", b"d/e", ErrorKind::Invalid),
        (b"none", b"file", ErrorKind::NotFound),
        (b"file", b"none/file", ErrorKind::NotFound),
        (b"file", b"old/file", ErrorKind::NotDirectory),
    ] {
        assert_eq!(kind(backing.rename(from, to)), Some(want), "{from:?} to {to:?}");
    }
    backing.rename(b"file", b"old").expect("over a file");
    assert_eq!(bytes(backing, b"old"), b"bytes");
    backing.rename(b"full", b"empty").expect("over an empty directory");
    backing.link(b"old", b"second").expect("link");
    backing.rename(b"old", b"second").expect("two names of one file");
    assert_eq!(names(backing, b""), [&b"d"[..], b"empty", b"old", b"second"]);
    backing.rename(b"empty", b"d/e/f/g").expect("down");
    assert_eq!(names(backing, b"d/e/f/g"), [b"x".to_vec()]);
}
