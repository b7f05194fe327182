//! A member leaves that keeps parts of a striped file, or to which some are on their way. Chunk 0
//! is to be with 1, chunk 1 with 2, chunk 2 at home, with 0.

use terral_format::local::geometry::CHUNK_BYTES;

use super::Shared;
use crate::far::stripes;

/// One has a chunk to keep, and nobody has the file open there.
fn keeps_one() -> Shared {
    let mut shared = Shared::of(7, true);
    shared.peers.are_in();
    shared.write(0, 0, &[1; 100]);
    shared.close(0);
    shared.rest(20);
    shared.reopen(0);
    assert_eq!(shared.kept(), [(0, 1)]);
    shared.close(1);
    shared
}

#[test]
fn what_a_member_kept_that_leaves_goes_straight_to_the_next() {
    for cuts in [false, true] {
        let mut shared = keeps_one();
        let home = shared.open[0].file;
        let memory = shared.peers.sims[0].memory.clone();
        let mut left = if cuts { 3 } else { 0 };
        shared.peers.leaves(1, |peers| {
            assert!(!memory.entry(home.slot, 0).is_here(), "not by its home");
            if left > 0 {
                left -= 1;
                peers.cut(0, 1);
            }
        });
        assert_eq!(shared.kept(), [(0, 2)]);
        assert_eq!(shared.read(2, 0, 100), [1; 100]);
        assert_eq!(shared.kept(), [(0, 2)]);
        assert_eq!(shared.read(0, 0, 100), [1; 100]);
    }
}

#[test]
fn what_a_member_kept_that_leaves_comes_home_where_nothing_goes_out_any_more() {
    let mut shared = keeps_one();
    shared.peers.sims[0].with(|server| server.lock().finishing = true);
    shared.peers.leaves(1, |_| {});
    shared.peers.sims[0].with(|server| server.lock().finishing = false);
    assert_eq!(shared.kept(), []);
    assert_eq!(shared.read(2, 0, 100), [1; 100]);
}

#[test]
fn a_member_leaves_to_which_a_part_is_on_its_way() {
    for steps in 0..40 {
        let mut shared = Shared::of(7, true);
        shared.peers.are_in();
        [0, 1].iter().for_each(|index| shared.write(0, index * CHUNK_BYTES, &[1; 100]));
        shared.close(1);
        shared.peers.settle();
        shared.peers.sims[0].with(|server| stripes::can_send(&mut server.lock()));
        shared.peers.collect(0);
        for _ in 0..steps {
            shared.peers.carry();
        }
        shared.peers.leaves(1, |_| {});
        assert!(shared.kept().iter().all(|(_, with)| *with == 2), "{steps}");
        assert_eq!(shared.read(2, 0, 100), [1; 100], "{steps}");
    }
}
