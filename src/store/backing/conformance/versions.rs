//! What becomes of versions of a file: announced, refused, taken back.

use terral_format::ids::Ino;
use terral_format::wire::message::Attributes;
use terral_format::{Error, ErrorKind};

use super::{Backing, INSTANCE, attributes, bytes, kind, names, put};
use crate::sparse::{Piece, Sparse};

/// `announce` tells how the version looks while the name is still the old one's, and the name
/// changes nothing of that but the time of change.
pub(super) fn the_announcement_comes_before_the_name(backing: &dyn Backing) {
    let old = put(backing, b"file", b"old", None).fingerprint;
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"brand new").expect("write");
    let mut told = Vec::new();
    let mut announce = |found: &super::super::Found| {
        assert_eq!(backing.stat(b"file").map(|found| found.fingerprint), Ok(old));
        told.push(*found);
        Ok(())
    };
    let want = attributes(backing, 0o640);
    let done = staged.publish(b"file", &want, 9, Some(old), &mut announce).expect("publish");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!(told.len(), 1, "nobody came between");
    assert_eq!(done.fingerprint, found.fingerprint);
    assert!(told[0].fingerprint.is_as_long(found.fingerprint));
    let changed_ns = found.attributes.changed_ns;
    assert_eq!(Attributes { changed_ns, ..told[0].attributes }, found.attributes);
}

/// A version whose announcement fails stays staged, and what has the name is not lost: it may have
/// its second name already, and gets no third when it is tried again.
pub(super) fn a_version_that_is_refused_stays_staged(backing: &dyn Backing) {
    put(backing, b"file", b"theirs", None);
    let refuse = || Error::new(ErrorKind::Interrupted, "refused");
    let want = attributes(backing, 0o640);
    for _ in 0..2 {
        let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
        staged.write(0, b"ours").expect("write");
        let refused = staged.publish(b"file", &want, 4, None, &mut |_| Err(refuse()));
        assert_eq!(refused, Err(refuse()));
        assert_eq!(bytes(backing, b"file"), b"theirs");
    }
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(4));
    let done = staged.publish(b"file", &want, 4, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(done.conflict.as_deref(), Some(&b"file.theirs-1"[..]));
    assert_eq!(names(backing, b""), [&b"file"[..], b"file.theirs-1"]);
    assert_eq!(bytes(backing, b"file.theirs-1"), b"theirs");
}

pub(super) fn a_published_version_can_be_taken_back(backing: &dyn Backing) {
    let published = put(backing, b"file", b"bytes", None).fingerprint;
    let mut later = backing.stage(Ino(9), INSTANCE).expect("stage");
    later.write(0, b"what was staged since").expect("write");
    drop(later);
    backing.take_back(b"file", Ino(9), INSTANCE).expect("take back");
    assert!(names(backing, b"").is_empty());
    let again = backing.take_back(b"file", Ino(9), INSTANCE);
    assert_eq!(kind(again), Some(ErrorKind::NotFound));
    let staged = backing.stage(Ino(9), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(published.size()));
    let want = attributes(backing, 0o640);
    staged.publish(b"file", &want, 5, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(bytes(backing, b"file"), b"bytes");
}

/// Whatever is staged after that, nobody sees it under the other name.
pub(super) fn a_version_with_another_name_is_left_as_it_is(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    backing.link(b"file", b"second").expect("link");
    backing.take_back(b"file", Ino(9), INSTANCE).expect("take back");
    let mut staged = backing.stage(Ino(9), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), None);
    staged.write(0, b"other").expect("write");
    let second = backing.stat(b"second").expect("stat").attributes;
    assert_eq!((second.mode, second.links), (0o640, 1));
    assert_eq!(bytes(backing, b"second"), b"bytes");
}

pub(super) fn what_is_new_in_a_version_reads_as_zeros(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"0123456789").expect("write");
    staged.truncate(3).expect("truncate");
    staged.truncate(1 << 40).expect("a hole costs nothing");
    let mut buffer = [7; 5];
    assert_eq!(staged.read(1, &mut buffer), Ok(5));
    assert_eq!(&buffer, b"12\0\0\0");
    assert_eq!(staged.read((1 << 40) - 2, &mut buffer), Ok(2));
    staged.write(8, b"x").expect("write");
    let want = attributes(backing, 0o640);
    let before = staged.publish(b"file", &want, 10, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(bytes(backing, b"file"), b"012\0\0\0\0\0x\0");
    let mut update = backing.update(b"file", before.fingerprint).expect("update");
    update.truncate(2).expect("truncate");
    update.write(4, b"y").expect("write");
    assert_eq!(bytes(backing, b"file"), b"01\0\0y");
}

pub(super) fn what_is_cleared_reads_as_zeros_and_makes_nothing_longer(backing: &dyn Backing) {
    let (size, ends) = (300_000_usize, [0, 1, 4096, 70_000, 200_001, 299_999, 300_000, 500_000]);
    let written: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + 1).collect();
    for (from, to) in ends.iter().flat_map(|from| ends.map(|to| (*from, to))) {
        if from > to {
            continue;
        }
        let mut must = written.clone();
        must[from.min(size)..to.min(size)].fill(0);
        let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
        staged.truncate(0).expect("truncate");
        staged.write(0, &written).expect("write");
        staged.clear(from as u64, (to - from) as u64).expect("clear");
        let mut found = vec![7; size + 1];
        assert_eq!(staged.read(0, &mut found), Ok(size), "{from} {to}");
        assert!(found[..size] == must, "{from} {to}");
        let mut sparse = Sparse::from(vec![7; 9]);
        staged.read_sparse(from as u64, to - from + 5, &mut sparse).expect("read");
        must.resize(to.max(size) + 5, 0);
        assert!(sparse.is(Piece::Bytes(&must[from..to + 5])), "{from} {to}");
    }
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    let want = attributes(backing, 0o640);
    let size = size as u64;
    let put = staged.publish(b"file", &want, size, None, &mut |_| Ok(())).expect("publish");
    let mut update = backing.update(b"file", put.fingerprint).expect("update");
    update.write(0, &written).expect("write");
    update.clear(5, 1).expect("clear");
    update.clear(size - 2, 1 << 40).expect("clear");
    drop(update);
    assert_eq!(backing.stat(b"file").expect("stat").attributes.size, size);
    let mut sparse = Sparse::default();
    backing.read_sparse(b"file", 0, size as usize + 5, &mut sparse).expect("read");
    let mut must = written;
    must[5] = 0;
    let end = must.len() - 2;
    must[end..].fill(0);
    must.resize(end + 7, 0);
    assert!(sparse.is(Piece::Bytes(&must)));
}
