//! What is read, and what a store says of itself.

use super::{Backing, put};

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
