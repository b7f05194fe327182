//! What is read, and what a store says of itself.

use std::time::Duration;

use terral_format::wire::message::Name;

use super::{Backing, put};

/// Longer than a tick of the clock of any file system that these tests are run on.
const TICK: Duration = Duration::from_millis(50);

pub(super) fn reads_are_short_only_at_the_end(backing: &dyn Backing) {
    let content: Vec<u8> = (0..40_000_u32).map(|index| (index % 251) as u8).collect();
    put(backing, b"file", &content, None);
    let mut buffer = vec![0; 30_000];
    assert_eq!(backing.read(b"file", 5_000, &mut buffer), Ok(30_000));
    assert_eq!(buffer, content[5_000..35_000]);
    assert_eq!(backing.read(b"file", 35_000, &mut buffer), Ok(5_000));
    assert_eq!(backing.read(b"file", 40_000, &mut buffer), Ok(0));
    assert_eq!(backing.read(b"file", 1 << 40, &mut buffer), Ok(0));
}

pub(super) fn it_says_what_it_is_and_has(backing: &dyn Backing) {
    let space = backing.space().expect("space");
    assert!(space.free_bytes <= space.total_bytes);
    assert!(!backing.describe().is_empty());
}

pub(super) fn names_are_read_again_only_if_the_directory_looks_otherwise(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("made");
    put(backing, b"d/one", b"1", None);
    let first = backing.list_unless(b"d", None).expect("listed").expect("nothing is known");
    std::thread::sleep(TICK);
    let looks = Some(first.looks);
    assert_eq!(backing.list_unless(b"d", looks), Ok(None));
    put(backing, b"d/two", b"2", None);
    let second = backing.list_unless(b"d", looks).expect("listed").expect("it has changed");
    let names = |of: &[Name]| of.iter().map(|name| name.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&second.names), [b"one", b"two"]);
    std::thread::sleep(TICK);
    backing.unlink(b"d/one").expect("removed");
    let third = backing.list_unless(b"d", Some(second.looks)).expect("listed");
    assert_eq!(names(&third.expect("it has changed").names), [b"two"]);
    assert_ne!(backing.list_unless(b"", looks), Ok(None), "another one");
}
