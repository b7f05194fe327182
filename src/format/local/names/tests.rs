//! What a slot of the table of names says, and that no words stop a reader.

use super::{Inode, flag};
use crate::fingerprint::Fingerprint;
use crate::ids::{FileSlot, Ino, Member, Number};
use crate::local::geometry::SLOT_WORDS;
use crate::wire::message::{Attributes, Kind};

fn inode() -> Inode {
    let (size, accessed_ns, modified_ns, changed_ns) = (5, 6, 7, 8);
    let kind = Kind::File;
    let (ino, mode, links, uid, gid) = (Ino(1 << 24 | 9), 0o640, 2, 3, 4);
    Inode::new(&Attributes {
        ino,
        kind,
        mode,
        links,
        uid,
        gid,
        size,
        accessed_ns,
        modified_ns,
        changed_ns,
    })
}

#[test]
fn a_number_from_elsewhere_is_read_as_it_was_written() {
    for word in [1, u64::MAX, 1 << 63, 0xffff_ffff, 3 << 50 | 7] {
        let mut inode = Inode { foreign: Some(Number::of_word(word)), ..inode() };
        inode.flags = flag::NAMED | flag::FAR | flag::FOREIGN;
        inode.below = 77;
        assert_eq!(Inode::decode(&inode.encode()), inode);
        // How it is in the backing is beside it.
        inode.published = Some(Fingerprint::of_words([1, 2, 3]));
        inode.flags |= flag::PUBLISHED;
        assert_eq!(Inode::decode(&inode.encode()), inode);
        assert_eq!(inode.number(Member::LEAST).word(), word);
    }
}

#[test]
fn what_was_born_here_has_its_place_below_its_member() {
    let mut inode = Inode { slot: Some(FileSlot(3)), backed_bytes: (1 << 48) - 1, ..inode() };
    inode.flags = flag::NAMED;
    assert_eq!(Inode::decode(&inode.encode()), inode);
    assert_eq!(inode.number(Member::LEAST).word(), inode.ino.0);
    let member = Member::new(5).expect("14 bits");
    assert_eq!(Some(inode.number(member)), Number::new(member, inode.ino.0));
}

#[test]
fn any_words_are_read_as_something() {
    let mut word = 1u64;
    for _ in 0..10_000 {
        let words: [u64; SLOT_WORDS - 1] = std::array::from_fn(|_| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            word ^ word >> 29
        });
        let read = Inode::decode(&words);
        let number = read.number(Member::of_word(word));
        assert!(read.foreign.is_none_or(|foreign| foreign == number));
        assert_eq!(Inode::decode(&read.encode()).foreign, read.foreign);
    }
}
