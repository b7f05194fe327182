//! Memory whose file system is full: chunks cannot be moved, or be written to. That is said, and
//! nothing is lost by it, or left as nobody can use it.

use terral_format::ErrorKind;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::wire::message::FileRef;

use super::Sim;
use super::client::{CREATE, Opened};
use super::mapping::Mapping;
use super::writing::{Writing, Wrote};
use crate::core::state::State;
use crate::storage::{packing, reclaim};

/// So many bytes are kept.
const KEPT: u64 = 100;

fn with_state<T>(sim: &mut Sim, act: impl FnOnce(&mut State) -> T) -> T {
    sim.with(|server| act(&mut server.lock())).expect("nobody kills it")
}

/// Somebody has a file open, and has written this.
fn written(bytes: &[u8]) -> (Sim, usize, Opened) {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let open = sim.open(one, b"file", CREATE).expect("an empty store");
    sim.write(one, open.file, 0, bytes).expect("there is room for it");
    (sim, one, open)
}

/// At once, where a client would wait until the drain has made room.
fn cut(sim: &mut Sim, file: FileRef, size: u64) -> Option<ErrorKind> {
    let cut = with_state(sim, |state| reclaim::truncate(state, file.ino, size));
    cut.err().map(|error| error.kind)
}

/// What a file has in its first page beyond what was kept, once it is longer again.
fn beyond(sim: &mut Sim, file: FileRef) -> Vec<u8> {
    assert_eq!(cut(sim, file, PAGE_BYTES as u64), None);
    sim.read(0, file, KEPT, 8).expect("it is there")
}

#[test]
fn a_cut_that_finds_no_memory_leaves_a_chunk_that_can_be_used_and_cut_again() {
    for stopped in [false, true] {
        let (mut sim, one, Opened { file, .. }) = written(&[7; 200]);
        let mut half = Writing::new(one, file, 0, &[8; 200]);
        while stopped && sim.go_on_writing(&mut half).expect("there is room") != Wrote::Holds {}
        let used = with_state(&mut sim, |state| state.storage.used_bytes());
        sim.kept.arena.refuse_writes(u64::MAX);
        assert_eq!(cut(&mut sim, file, KEPT), Some(ErrorKind::NoSpace));
        assert!(!sim.memory.entry(file.slot, 0).is_recalled(), "nobody can use it");
        let uses = with_state(&mut sim, |state| state.storage.used_bytes());
        assert_eq!(uses, used, "what it should have moved to is lost");
        sim.kept.arena.refuse_writes(0);
        assert_eq!(cut(&mut sim, file, KEPT), None);
        assert_eq!(beyond(&mut sim, file), [0; 8]);
    }
}

#[test]
fn a_cut_of_which_a_part_finds_no_memory_fails() {
    let (mut sim, one, Opened { file, .. }) = written(&[7; 200]);
    sim.write(one, file, CHUNK_BYTES, &[7; 200]).expect("there is room for it");
    let mut mapping = Mapping::new(one, file, 1, false);
    while sim.go_on_mapping(&mut mapping).expect("there is room for it").is_none() {}
    // That of the first chunk.
    sim.kept.arena.refuse_writes(1);
    assert_eq!(cut(&mut sim, file, KEPT), Some(ErrorKind::NoSpace));
    assert_eq!(cut(&mut sim, file, KEPT), None);
    assert_eq!(beyond(&mut sim, file), [0; 8]);
}

#[test]
fn a_packed_file_of_which_the_log_does_not_know_yet_gives_its_memory_back_later() {
    let (mut sim, one, open) = written(b"small");
    sim.close(one, open).expect("it is open");
    let FileRef { ino, slot } = open.file;
    sim.kept.log.refuse(1);
    let packed = with_state(&mut sim, |state| packing::pack(state, ino, slot));
    assert_eq!(packed.map_err(|error| error.kind), Err(ErrorKind::NoSpace));
    with_state(&mut sim, |state| state.commit()).expect("there is room again");
    assert_eq!(with_state(&mut sim, |state| state.storage.used_bytes()), 0);
    let file = sim.open(one, b"file", CREATE).expect("it is there").file;
    assert_eq!(sim.read(one, file, 0, 8).expect("it is there"), b"small");
}
