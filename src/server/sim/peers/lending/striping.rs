//! The same of a striped file: whatever is done with it, its parts come to lie where they are to
//! be, and all see one file.

use std::time::Duration;

use terral_format::ids::{Member, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::{FileRef, OpenHow, Request};

use super::{CHUNKS, How, OPEN, Shared, walk};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::far::giving_back::loan_of;
use crate::far::stripes;
use crate::sim::peers::{member, walk_all};

const READ: OpenHow = OpenHow { access: 1, ..OPEN };

impl Shared {
    /// Which chunks of it a member keeps, as its home says.
    pub(super) fn placed(&mut self, file: FileRef) -> Vec<(u64, Member)> {
        let placed = self.peers.sims[0].with(|server| {
            let state = server.lock();
            let its = (0..CHUNKS)
                .filter_map(|index| Some((index, state.storage.placed(file.slot, index)?)));
            its.collect()
        });
        placed.expect("it lives")
    }

    /// Memory is short at its home, or nobody has it open for a while: parts go where they are to
    /// be.
    pub(super) fn send_parts(&mut self, rests: bool) {
        if !rests {
            // They are on their way while others go on.
            self.peers.sims[0].with(|server| stripes::can_send(&mut server.lock()));
            return self.peers.collect(0);
        }
        let open = self.open.clone();
        open.into_iter().for_each(|open| self.peers.close(open).expect("closed"));
        for _ in 0..10 {
            self.peers.pass(Duration::from_secs(1));
        }
        for at in 0..3 {
            self.open[at] = self.peers.open(at, b"a", OPEN).expect("opened");
        }
    }

    /// Nobody has it open for writing: its parts are where they are to be, and only there; all read
    /// the same; and once it has no name nothing of it is left.
    pub(super) fn check_stripes(&mut self) {
        let file = self.open[0].file;
        self.peers.close(self.open[0]).expect("closed");
        for _ in 0..20 {
            self.peers.pass(Duration::from_secs(1));
        }
        let chunks = (self.bytes.len() as u64).div_ceil(CHUNK_BYTES);
        let memory = self.peers.sims[0].memory.clone();
        let to = |index: u64| [1, 2, 0][index as usize % 3];
        for index in 0..chunks {
            let entry = memory.entry(file.slot, index);
            let kept = entry.with().filter(|_| entry.is_borrowed());
            let is_there = match to(index) {
                0 => entry.is_here() || entry.is_absent(),
                at => kept == Some(member(at)) || entry.is_absent(),
            };
            assert!(is_there, "{index} is {entry:?}");
        }
        let before = self.placed(file);
        for at in [1, 2, 0] {
            self.open[at] = self.peers.open(at, b"a", READ).expect("opened");
            let mut offset = 0;
            while offset < self.bytes.len() {
                let length = (self.bytes.len() - offset).min(1 << 19);
                while at == 0 && !self.bring(at, offset as u64) {}
                let read = self.peers.read(self.open[at], offset as u64, length).expect("read");
                assert!(read == self.bytes[offset..][..length], "{at}: {offset}");
                offset += length;
            }
            if at > 0 {
                assert_eq!(self.placed(file), before, "who reads elsewhere has nothing moved");
            }
            self.peers.close(self.open[at]).expect("closed");
        }
        self.peers.ask(0, Request::Unlink(b"a")).expect("removed");
        for _ in 0..20 {
            self.peers.pass(Duration::from_secs(1));
        }
        for at in [1, 2] {
            let is_empty = self.peers.sims[at].with(|server| server.lock().far.loans.is_empty());
            assert!(is_empty.expect("it lives"), "nothing is left on {at}");
        }
    }
}

const STRIPES: How = How { kills: false, maps: false, stripes: true };

#[test]
fn the_parts_of_a_striped_file_come_to_lie_where_they_are_to_be() {
    let [lent, ..] = walk_all(20, |seed| walk(seed, STRIPES));
    assert!(lent > 100, "written without asking: {lent}");
}

#[test]
fn no_part_of_a_striped_file_is_lost_whoever_dies() {
    let [lent, killed, _] = walk_all(20, |seed| walk(seed, How { kills: true, ..STRIPES }));
    assert!(lent > 50 && killed > 100, "written without asking: {lent}; killed: {killed}");
}

#[test]
fn what_programs_store_through_maps_of_a_striped_file_all_see() {
    let [.., mapped] = walk_all(20, |seed| walk(seed, How { maps: true, ..STRIPES }));
    assert!(mapped > 50, "mapped: {mapped}");
}

#[test]
fn what_was_stored_through_maps_of_a_striped_file_is_there_whoever_dies() {
    let how = How { kills: true, maps: true, ..STRIPES };
    let [_, killed, mapped] = walk_all(20, |seed| walk(seed, how));
    assert!(killed > 100 && mapped > 30, "{killed}, {mapped}");
}

/// A chunk is written to at its home once all of it has come where it is to be, and before the home
/// has heard so. Gives what is read of it then.
fn written_before_it_is_kept() -> Vec<u8> {
    let mut shared = Shared::of(7, true);
    for index in [0, 1] {
        shared.write(0, index * CHUNK_BYTES, &[1; 100]);
    }
    shared.send_parts(false);
    let of = Number::of(member(0), shared.open[0].file.ino);
    let has_come = |shared: &mut Shared| {
        let come = shared.peers.sims[1].with(|server| {
            let state = server.lock();
            let loan = loan_of(&state, of);
            loan.is_some_and(|loan| state.storage.memory().entry(loan.slot, 0).is_borrowed())
        });
        come == Some(true)
    };
    for _ in 0..10_000 {
        if has_come(&mut shared) {
            break;
        }
        shared.peers.carry();
    }
    assert!(has_come(&mut shared) && shared.placed(shared.open[0].file).is_empty());
    shared.write(0, 0, &[2; 100]);
    shared.peers.settle();
    shared.read(2, 0, 100)
}

#[test]
fn what_was_written_before_it_is_kept_elsewhere_stays_where_it_was() {
    assert_eq!(written_before_it_is_kept(), [2; 100]);
    assert_ne!(without(Step::CompareOffers, written_before_it_is_kept), [2; 100]);
}
