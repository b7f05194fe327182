//! Parts of a striped file that are on their way to where they are to be, message by message: what
//! happens to them meanwhile. Chunk 0 is to be with 1, chunk 1 with 2, chunk 2 at home, with 0.

use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::ids::{Number, ROOT};
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::wire::message::FileRef;

use super::{OPEN, Shared, is_striped};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::far::giving_back::loan_of;
use crate::far::parts;
use crate::shared::Shared as Server;
use crate::sim::peers::member;

/// So many messages are carried at most.
const MOST: usize = 10_000;

impl Shared {
    fn number(&self) -> Number {
        Number::of(member(0), self.open[0].file.ino)
    }

    /// The file that has what one keeps.
    fn loan(&mut self, at: usize) -> Option<FileRef> {
        let of = self.number();
        self.peers.sims[at].with(|server| loan_of(&server.lock(), of)).flatten()
    }

    /// Whether a chunk is at one, marked.
    fn is_marked(&mut self, at: usize, index: u64) -> bool {
        let Some(loan) = self.loan(at) else { return false };
        let entry = self.peers.sims[at].memory.entry(loan.slot, index);
        entry.is_here() && entry.is_borrowed()
    }

    /// Messages are carried until that is so.
    fn carry_until(&mut self, is: impl Fn(&mut Self) -> bool) {
        for _ in 0..MOST {
            if is(self) {
                return;
            }
            self.peers.carry();
        }
        panic!("it never is");
    }

    pub(super) fn close(&mut self, at: usize) {
        let open = self.open[at];
        self.peers.close(open).expect("closed");
    }

    pub(super) fn reopen(&mut self, at: usize) {
        self.open[at] = self.peers.open(at, b"a", OPEN).expect("opened");
    }

    pub(super) fn rest(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.peers.pass(Duration::from_secs(1)));
    }

    pub(super) fn kept(&mut self) -> Vec<(u64, usize)> {
        let file = self.open[0].file;
        let placed = self.placed(file).into_iter();
        placed.map(|(index, with)| (index, usize::from(with.number()))).collect()
    }
}

/// One machine writes a chunk and closes the file; once it is taken from there, be it to stay
/// there, and before its home has heard so, a program there maps it and stores something. Gives
/// that, and what others read then.
fn stored_before_it_is_kept(index: u64, keeper: usize) -> [Vec<u8>; 2] {
    let mut shared = Shared::of(7, true);
    let at = index * CHUNK_BYTES;
    shared.write(1, at, &[7; 100]);
    shared.close(0);
    // What it says is on its way.
    shared.peers.stopped = Some((0, Duration::MAX));
    shared.close(1);
    shared.peers.stopped = None;
    shared.carry_until(|shared| shared.is_marked(keeper, index));
    assert_eq!(shared.kept(), [], "its home has not heard so");
    // What says so is carried out late.
    let said = shared.peers.links.remove(&(keeper, 0)).unwrap_or_default();
    shared.reopen(1);
    shared.map(1, index);
    shared.use_map(1, 0, 100);
    shared.peers.links.entry((keeper, 0)).or_default().extend(said);
    let stored = shared.bytes[at as usize..][..100].to_vec();
    assert_ne!(stored, [7; 100]);
    shared.peers.settle();
    shared.map(1, index);
    shared.close(1);
    shared.rest(20);
    shared.reopen(1);
    shared.reopen(0);
    [stored, shared.read(2, at, 100)]
}

#[test]
fn what_a_writer_stores_after_it_closed_is_there_wherever_its_part_was_on_its_way_to() {
    for (index, keeper) in [(0, 1), (1, 2)] {
        let [stored, read] = stored_before_it_is_kept(index, keeper);
        assert!(stored == read, "chunk {index}");
    }
    let is_there = || {
        let [stored, read] = stored_before_it_is_kept(1, 2);
        stored == read
    };
    let flawed = std::panic::catch_unwind(|| without(Step::ForgetOffers, is_there));
    assert!(!flawed.unwrap_or(false), "it is found");
}

#[test]
fn what_is_lent_again_is_not_let_go_for_what_was_asked_before() {
    let mut shared = Shared::of(7, true);
    shared.write(1, CHUNK_BYTES, &[1; 100]);
    let of = shared.number();
    let asked = |shared: &mut Shared, stamp: u64| {
        let copy = |server: &Server| parts::copy(&mut server.lock(), (of, 1), stamp, (0, 100));
        shared.peers.sims[1].with(copy).expect("it lives").expect("it is in memory")
    };
    let since = shared.peers.sims[1].with(|server| server.lock().far.loans.since(of, 1));
    let since = since.flatten().expect("it was lent");
    assert_eq!(asked(&mut shared, since - 1), None, "of an earlier time");
    assert_eq!(asked(&mut shared, 0), None, "who only reads has nobody stop writing");
    assert!(!shared.is_marked(1, 1));
    assert!(asked(&mut shared, since + 1).is_some_and(|read| read[..100] == [1; 100]));
    assert!(shared.is_marked(1, 1));
}

#[test]
fn what_was_written_behind_the_end_and_never_answered_is_nothing_when_the_file_grows() {
    let mut shared = Shared::of(7, true);
    shared.write(1, 0, &[1; 100]);
    let (loan, _) = shared.usable(1, 0).expect("it was lent");
    shared.write_there(1, loan, PAGE_BYTES as u64 / 2, &[9; PAGE_BYTES]);
    shared.close(0);
    shared.close(1);
    shared.rest(20);
    shared.reopen(0);
    assert_eq!(shared.kept(), [(0, 1)], "who wrote it keeps it");
    shared.write(2, CHUNK_BYTES, &[2; 100]);
    shared.reopen(1);
    for at in [2, 1, 0] {
        let read = shared.read(at, 0, 2 * PAGE_BYTES);
        assert!(read[..100] == [1; 100] && read[100..] == [0; 2 * PAGE_BYTES - 100], "{at}");
    }
}

/// Chunks of a file, more than are on their way at a time, whose writer is silent, or is lost.
fn many_of_one_that_is_silent(lost: bool) -> Shared {
    let mut shared = Shared::of(7, true);
    shared.peers.are_in();
    for index in 0..18 {
        shared.write(1, (3 * index + 1) * CHUNK_BYTES, &[1; 100]);
    }
    let peers = &mut shared.peers;
    peers.create(0, b"b").expect("made");
    is_striped(peers, b"b", &[2, 0]);
    let other = peers.open(0, b"b", OPEN).expect("opened");
    peers.write(other, Some(0), &[2; 100]).expect("written");
    peers.close(other).expect("closed");
    shared.close(0);
    shared.close(1);
    shared.peers.dies(1);
    if lost {
        shared.peers.remove(1, Verdict::Dead, 3);
    }
    shared
}

#[test]
fn a_writer_that_is_silent_or_lost_holds_no_others_parts_up() {
    for lost in [false, true] {
        let mut shared = many_of_one_that_is_silent(lost);
        shared.rest(30);
        let placed = shared.peers.sims[0].with(|server| {
            let state = server.lock();
            let ino = state.names.child_here(ROOT, b"b").expect("made");
            let slot = state.names.inode(ino).and_then(|inode| inode.slot).expect("it has bytes");
            state.storage.placed(slot, 0)
        });
        assert_eq!(placed.flatten(), Some(member(2)), "lost: {lost}");
    }
}

#[test]
fn what_came_to_a_process_that_is_no_more_is_not_in_the_way() {
    let mut shared = Shared::of(7, true);
    [0, 1].iter().for_each(|index| shared.write(0, index * CHUNK_BYTES, &[1; 100]));
    shared.send_parts(false);
    shared.carry_until(|shared| shared.is_marked(1, 0));
    assert!(shared.kept().is_empty());
    // Its home never hears that it came.
    shared.peers.sims[1].kill_at(0);
    shared.peers.cut(0, 1);
    shared.write(0, 100, &[2; 100]);
    shared.close(0);
    shared.rest(30);
    shared.reopen(0);
    assert_eq!(shared.kept(), [(0, 1), (1, 2)]);
    let read = shared.read(2, 0, 200);
    assert!(read[..100] == [1; 100] && read[100..] == [2; 100]);
}
