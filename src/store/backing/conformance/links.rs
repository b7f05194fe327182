//! Symbolic links are things of their own, and a version of a name like any other.

use terral_format::ErrorKind;
use terral_format::wire::message::{Change, Kind};

use super::{Backing, bytes, kind, names, put};

pub(super) fn symbolic_links_are_themselves(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    put(backing, b"d/file", b"bytes", None);
    for _ in 0..2 {
        backing.make_link(b"link", b"d").expect("make, twice");
        backing.make_link(b"d/link", b"file").expect("make");
    }
    for path in [&b"link"[..], b"d", b"d/file"] {
        assert_eq!(kind(backing.make_link(path, b"other")), Some(ErrorKind::Exists));
    }
    assert_eq!(backing.read_link(b"link"), Ok(b"d".to_vec()));
    let found = backing.stat(b"d/link").expect("stat");
    assert_eq!((found.attributes.kind, found.attributes.size), (Kind::Symlink, 4));
    assert_eq!(found.fingerprint.size(), 4);
    let listed = backing.list(b"").expect("list");
    let kinds: Vec<_> = listed.iter().map(|name| (&name.name[..], name.kind)).collect();
    assert_eq!(kinds, [(&b"d"[..], Kind::Directory), (b"link", Kind::Symlink)]);
    assert_eq!(kind(backing.read(b"d/link", 0, &mut [0])), Some(ErrorKind::Loop));
    for path in [&b"d"[..], b"d/file"] {
        assert_eq!(kind(backing.read_link(path)), Some(ErrorKind::Invalid));
    }
    let none = Some(ErrorKind::NotFound);
    assert_eq!(kind(backing.read_link(b"none")), none);
    assert_eq!(kind(backing.make_link(b"none/link", b"x")), none);
    let through = Some(ErrorKind::NotDirectory);
    assert_eq!(kind(backing.stat(b"link/file")), through);
    assert_eq!(kind(backing.list(b"link")), through);
    assert_eq!(kind(backing.unlink(b"link/file")), through);
    assert_eq!(kind(backing.make_directory(b"link", 0o700)), Some(ErrorKind::Exists));
    assert_eq!(kind(backing.remove_directory(b"link")), through);
    let before = backing.stat(b"link").expect("stat").fingerprint;
    let touched = backing.rename(b"link", b"moved").expect("rename");
    let after = backing.stat(b"moved").expect("stat").fingerprint;
    assert_eq!((touched.before, touched.after), (before, after));
    for _ in 0..2 {
        backing.unlink(b"moved").expect("unlink");
        backing.unlink(b"d/link").expect("unlink");
    }
    assert_eq!(bytes(backing, b"d/file"), b"bytes");
}

pub(super) fn any_target_can_be_linked_to(backing: &dyn Backing) {
    let bytes: Vec<u8> = (1..=255).collect();
    let targets = [&b"none"[..], b"/", b"/etc/passwd", b"../..", b".", b"a\nb\n", b"self", &bytes];
    for target in targets {
        for _ in 0..2 {
            backing.make_link(b"self", target).expect("make");
        }
        assert_eq!(backing.read_link(b"self"), Ok(target.to_vec()));
        let found = backing.stat(b"self").expect("stat").attributes;
        assert_eq!((found.kind, found.size), (Kind::Symlink, target.len() as u64));
        assert_eq!(names(backing, b""), [b"self".to_vec()]);
        backing.unlink(b"self").expect("unlink");
    }
    let long = [b'x'; 4095];
    match kind(backing.make_link(b"long", &long)) {
        None => assert_eq!(backing.read_link(b"long"), Ok(long.to_vec())),
        refused => assert_eq!(refused, Some(ErrorKind::NameTooLong)),
    }
    let too_long = kind(backing.make_link(b"longer", &[b'x'; 4096]));
    assert_eq!(too_long, Some(ErrorKind::NameTooLong));
    for target in [&b""[..], b"a\0b"] {
        assert_eq!(kind(backing.make_link(b"link", target)), Some(ErrorKind::Invalid));
    }
}

pub(super) fn a_symbolic_link_is_a_version_like_any(backing: &dyn Backing) {
    let file = put(backing, b"file", b"bytes", None).fingerprint;
    backing.make_link(b"link", b"file").expect("make");
    let link = backing.stat(b"link").expect("stat").fingerprint;
    for known in [file, link] {
        assert_eq!(kind(backing.update(b"link", known)), Some(ErrorKind::Busy));
        assert_eq!(kind(backing.resume_update(b"link", known)), Some(ErrorKind::Busy));
    }
    let change = Change { mode: Some(0o600), modified_ns: Some(77), ..Change::default() };
    let touched = backing.change(b"link", change).expect("change");
    let found = backing.stat(b"link").expect("stat");
    assert_eq!((touched.before, touched.after), (link, found.fingerprint));
    assert_eq!((found.attributes.kind, found.attributes.modified_ns), (Kind::Symlink, 77));
    assert_eq!(backing.stat(b"file").expect("stat").fingerprint, file);
    let done = put(backing, b"link", b"ours", Some(found.fingerprint));
    assert_eq!((done.conflict, bytes(backing, b"link")), (None, b"ours".to_vec()));
    backing.make_link(b"other", b"file").expect("make");
    let done = put(backing, b"other", b"bytes", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"other.theirs-1"[..]));
    assert_eq!(backing.read_link(b"other.theirs-1"), Ok(b"file".to_vec()));
    assert_eq!(bytes(backing, b"other"), b"bytes");
    assert_eq!(backing.stat(b"file").expect("stat").fingerprint, file);
}
