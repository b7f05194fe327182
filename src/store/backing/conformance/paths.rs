//! What a path can be, whatever is done with it.

use terral_format::ErrorKind;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::Ino;
use terral_format::wire::message::Change;

use super::{Backing, INSTANCE, STAGING, attributes, bytes, kind, names, put};

pub(super) fn hostile_names_are_refused(backing: &dyn Backing) {
    let long = [b'x'; 256];
    let staging = [STAGING, b"/x"].concat();
    let deep = vec![b"abc".as_slice(); 1100].join(&b'/');
    for (path, want) in [
        (&b".."[..], ErrorKind::Invalid),
        (b"../x", ErrorKind::Invalid),
        (b"a/../../x", ErrorKind::Invalid),
        (b"/etc/passwd", ErrorKind::Invalid),
        (b"a//b", ErrorKind::Invalid),
        (b"a/", ErrorKind::Invalid),
        (b".", ErrorKind::Invalid),
        (b"a\0b", ErrorKind::Invalid),
        (&long, ErrorKind::NameTooLong),
        (&deep, ErrorKind::NameTooLong),
        (STAGING, ErrorKind::Denied),
        (&staging, ErrorKind::Denied),
    ] {
        let want = Some(want);
        assert_eq!(kind(backing.stat(path)), want);
        assert_eq!(kind(backing.list(path)), want);
        assert_eq!(kind(backing.read(path, 0, &mut [0])), want);
        assert_eq!(kind(backing.make_directory(path, 0o700)), want);
        assert_eq!(kind(backing.remove_directory(path)), want);
        assert_eq!(kind(backing.unlink(path)), want);
        assert_eq!(kind(backing.read_link(path)), want);
        assert_eq!(kind(backing.make_link(path, b"x")), want);
        assert_eq!(kind(backing.change(path, Change::default())), want);
        assert_eq!(kind(backing.update(path, Fingerprint::default())), want);
        put(backing, b"file", b"x", None);
        assert_eq!(kind(backing.rename(b"file", path)), want);
        assert_eq!(kind(backing.rename(path, b"file")), want);
        assert_eq!(kind(backing.link(b"file", path)), want);
        assert_eq!(kind(backing.link(path, b"file")), want);
        assert_eq!(kind(backing.exchange(b"file", path)), want);
        assert_eq!(kind(backing.exchange(path, b"file")), want);
        let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
        assert_eq!(
            kind(staged.publish(path, &attributes(backing, 0o600), 0, None, &mut |_| Ok(()))),
            want
        );
    }
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert!(staged.publish(b"", &attributes(backing, 0o600), 0, None, &mut |_| Ok(())).is_err());
    assert!(backing.unlink(b"").is_err() && backing.remove_directory(b"").is_err());
    assert!(backing.rename(b"", b"x").is_err() && backing.rename(b"file", b"").is_err());
    assert!(backing.link(b"", b"x").is_err() && backing.link(b"file", b"").is_err());
    assert!(backing.exchange(b"", b"file").is_err() && backing.exchange(b"file", b"").is_err());
    assert!(backing.make_link(b"", b"x").is_err());
    assert_eq!(kind(backing.read_link(b"")), Some(ErrorKind::Invalid));
    assert_eq!(kind(backing.read(b"", 0, &mut [0])), Some(ErrorKind::IsDirectory));
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

pub(super) fn any_name_of_255_bytes_works(backing: &dyn Backing) {
    let mut name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    name.push(b'\n');
    assert_eq!(name.len(), 255);
    backing.make_directory(&name, 0o700).expect("make");
    let path = [&name[..], &name[..]].join(&b'/');
    put(backing, &path, b"bytes", None);
    assert_eq!(bytes(backing, &path), b"bytes");
    assert_eq!(names(backing, &name), [name.clone()]);
    let missing = [&name[..], b"none"].join(&b'/');
    let error = backing.stat(&missing).expect_err("missing");
    assert!(!error.to_string().contains('\n'), "a message is one line");
}
