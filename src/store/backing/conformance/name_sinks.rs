//! Operations on names, done once, done again, and in the way of somebody else.

use terral_format::ErrorKind;
use terral_format::fingerprint::Object;
use terral_format::wire::message::{Change, Kind};

use super::{Backing, bytes, kind, names, put};

pub(super) fn names_can_be_repeated(backing: &dyn Backing) {
    for _ in 0..2 {
        backing.make_directory(b"a", 0o700).expect("make");
        backing.make_directory(b"a/b", 0o1777).expect("make");
    }
    assert_eq!(backing.stat(b"a/b").expect("stat").attributes.mode, 0o1777);
    put(backing, b"a/b/file", b"bytes", None);
    assert_eq!(kind(backing.make_directory(b"a/b/file", 0o700)), Some(ErrorKind::Exists));
    assert_eq!(kind(backing.list(b"a/b/file")), Some(ErrorKind::NotDirectory));
    assert_eq!(kind(backing.stat(b"a/b/file/x")), Some(ErrorKind::NotDirectory));
    let was = backing.stat(b"a/b/file").expect("stat").fingerprint;
    let touched = backing.rename(b"a/b/file", b"a/moved").expect("rename");
    let now = backing.stat(b"a/moved").expect("stat").fingerprint;
    assert_eq!((touched.before, touched.after), (was, now));
    assert_eq!(kind(backing.rename(b"a/b/file", b"a/moved")), Some(ErrorKind::NotFound));
    assert_eq!(kind(backing.remove_directory(b"a")), Some(ErrorKind::NotEmpty));
    let found = backing.list(b"a").expect("list");
    let kinds: Vec<_> = found.iter().map(|name| (&name.name[..], name.kind)).collect();
    assert_eq!(kinds, [(&b"b"[..], Kind::Directory), (b"moved", Kind::File)]);
    for _ in 0..2 {
        backing.unlink(b"a/moved").expect("unlink");
        backing.remove_directory(b"a/b").expect("remove");
        backing.remove_directory(b"a").expect("remove");
    }
    backing.unlink(b"a/b/none").expect("missing parents are no error either");
    assert!(names(backing, b"").is_empty());
}

pub(super) fn fifos_are_names_without_bytes(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    for _ in 0..2 {
        backing.make_fifo(b"fifo", 0o4626).expect("make, twice");
    }
    assert_eq!(kind(backing.make_fifo(b"file", 0o600)), Some(ErrorKind::Exists));
    assert_eq!(kind(backing.make_fifo(b"none/fifo", 0o600)), Some(ErrorKind::NotFound));
    let found = backing.stat(b"fifo").expect("stat").attributes;
    assert_eq!((found.kind, found.mode, found.size), (Kind::Fifo, 0o4626, 0));
    assert_eq!(backing.list(b"").expect("list")[0].kind, Kind::Fifo);
    assert_eq!(kind(backing.read(b"fifo", 0, &mut [0])), Some(ErrorKind::Unsupported));
    let change = Change { mode: Some(0o600), modified_ns: Some(77), ..Change::default() };
    backing.change(b"fifo", change).expect("change");
    backing.link(b"fifo", b"second").expect("link");
    backing.rename(b"fifo", b"moved").expect("rename");
    let found = backing.stat(b"moved").expect("stat").attributes;
    assert_eq!((found.mode, found.modified_ns, found.links), (0o600, 77, 2));
    let done = put(backing, b"moved", b"ours", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"moved.theirs-1"[..]));
    backing.unlink(b"second").expect("unlink");
    assert_eq!(backing.stat(b"moved.theirs-1").expect("kept").attributes.kind, Kind::Fifo);
}

pub(super) fn a_file_gets_further_names(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    let was = put(backing, b"file", b"bytes", None).fingerprint;
    put(backing, b"d/other", b"other bytes", None);
    backing.make_link(b"symbolic", b"d").expect("make");
    let mut remembered = was;
    for to in [&b"d/new"[..], b"d/other", b"symbolic"] {
        let touched = backing.link(b"file", to).expect("link");
        let now = backing.stat(to).expect("stat").fingerprint;
        assert_eq!((touched.before, touched.after), (remembered, now));
        assert_eq!((now.object(), bytes(backing, to)), (was.object(), b"bytes".to_vec()));
        let again = backing.link(b"file", to).expect("again");
        assert_eq!((again.before, again.after), (now, now), "nothing changes");
        remembered = now;
    }
    assert_eq!(backing.stat(b"file").expect("stat").attributes.links, 4);
    assert_eq!(names(backing, b"d"), [b"new".to_vec(), b"other".to_vec()]);
    assert_eq!(names(backing, b""), [&b"d"[..], b"file", b"symbolic"]);
    backing.link(b"file", b"file").expect("to itself");
    let directory = Some(ErrorKind::IsDirectory);
    assert_eq!(kind(backing.link(b"file", b"d")), directory);
    assert_eq!(kind(backing.link(b"d", b"new")), directory);
    let none = Some(ErrorKind::NotFound);
    assert_eq!(kind(backing.link(b"none", b"file")), none);
    assert_eq!(kind(backing.link(b"file", b"none/new")), none);
    backing.make_link(b"dangling", b"none").expect("make");
    backing.link(b"dangling", b"also").expect("link");
    assert_eq!(backing.read_link(b"also"), Ok(b"none".to_vec()));
    backing.remove_directory(b"d").expect_err("has names");
    for name in [&b"d/new"[..], b"d/other"] {
        backing.unlink(name).expect("unlink");
    }
    backing.remove_directory(b"d").expect("nothing hidden is left in it");
}

pub(super) fn names_change_places(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    backing.make_directory(b"d/e", 0o755).expect("make");
    put(backing, b"d/e/file", b"inner", None);
    put(backing, b"file", b"outer", None);
    backing.make_link(b"d/link", b"file").expect("make");
    backing.exchange(b"file", b"d/e/file").expect("files");
    assert_eq!(bytes(backing, b"d/e/file"), b"outer");
    backing.exchange(b"d/e/file", b"file").expect("done twice it is undone");
    backing.exchange(b"file", b"d/e").expect("a file and a directory");
    assert_eq!(bytes(backing, b"d/e"), b"outer");
    assert_eq!(bytes(backing, b"file/file"), b"inner");
    backing.exchange(b"d/link", b"file").expect("a link and a directory");
    assert_eq!(backing.read_link(b"file"), Ok(b"file".to_vec()));
    assert_eq!(bytes(backing, b"d/link/file"), b"inner");
    backing.exchange(b"file", b"file").expect("with itself");
    let none = Some(ErrorKind::NotFound);
    for missing in [&b"none"[..], b"none/x"] {
        assert_eq!(kind(backing.exchange(missing, b"file")), none);
        assert_eq!(kind(backing.exchange(b"file", missing)), none);
    }
    for (outer, inner) in [(&b"d"[..], &b"d/link"[..]), (b"d", b"d/link/file")] {
        assert_eq!(kind(backing.exchange(outer, inner)), Some(ErrorKind::Invalid));
        assert_eq!(kind(backing.exchange(inner, outer)), Some(ErrorKind::Invalid));
    }
    assert_eq!(names(backing, b""), [b"d".to_vec(), b"file".to_vec()]);
    assert_eq!(names(backing, b"d"), [b"e".to_vec(), b"link".to_vec()]);
}

pub(super) fn a_foreign_version_is_kept_once(backing: &dyn Backing) {
    let theirs = put(backing, b"file", b"theirs", None).fingerprint;
    put(backing, b"alike", b"theirs", None);
    put(backing, b"other", b"others", None);
    backing.make_directory(b"d", 0o755).expect("make");
    let keep = |path, ours: &[Object], alike| backing.keep_theirs(path, ours, alike).expect("keep");
    assert_eq!(keep(b"none", &[], b"other"), None);
    assert_eq!(keep(b"d", &[], b"other"), None);
    assert_eq!(keep(b"file", &[Object::new(1 << 60), theirs.object()], b"other"), None);
    assert_eq!(keep(b"file", &[], b"alike"), None);
    for _ in 0..2 {
        let kept = keep(b"file", &[], b"other");
        assert_eq!(kept.as_deref(), Some(&b"file.theirs-1"[..]));
    }
    let kept = backing.stat(b"file.theirs-1").expect("stat");
    assert_eq!((kept.fingerprint.object(), kept.attributes.links), (theirs.object(), 2));
    assert_eq!(keep(b"d/none", &[], b"other"), None);
    assert_eq!(kind(backing.set_aside(b"none")), Some(ErrorKind::NotFound));
    assert_eq!(backing.set_aside(b"file").as_deref(), Ok(&b"file.theirs-2"[..]));
    assert_eq!(kind(backing.stat(b"file")), Some(ErrorKind::NotFound));
}
