//! Zeros that are written, cut, or lie in the permanent store, among other bytes: wherever the
//! chunks are that they lie in, programs read them, and the store has them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::InstanceId;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::wire::message::{FileRef, OpenHow, Request, Target};
use terral_store::backing::Sink;
use terral_store::spill::Block;

use super::Sim;
use super::client::CREATE;
use super::faults::Fault;
use crate::core::state::State;
use crate::debts::owing;
use crate::seeds::seeds;
use crate::storage::eviction;
use crate::storage::spill::leaving;
use crate::storage::spill::under_way::Victim;

const PAGE: u64 = PAGE_BYTES as u64;
/// Chunks of the file: more than memory has.
const CHUNKS: u64 = 36;

/// What the file must have: its pages that are not all zeros.
#[derive(Default)]
struct Must {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Must {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE_BYTES]);
            page[(at % PAGE) as usize] = *byte;
        }
        self.size = self.size.max(at + bytes.len() as u64);
    }

    fn truncate(&mut self, size: u64) {
        self.pages.split_off(&size.div_ceil(PAGE));
        if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
            last[(size % PAGE) as usize..].fill(0);
        }
        self.size = size;
    }

    fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = self.pages.get(&page).cloned().unwrap_or(vec![0; PAGE_BYTES]);
        bytes.truncate(self.size.saturating_sub(page * PAGE).min(PAGE) as usize);
        bytes
    }

    fn filled(&self) -> BTreeMap<u64, Vec<u8>> {
        let filled = self.pages.iter().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        filled.map(|(at, page)| (*at, page.clone())).collect()
    }
}

/// A page near the beginning of a chunk, its end, or within; most often of few.
fn some_page(sim: &Sim) -> u64 {
    let chunk = [sim.world.one_of(3), sim.world.one_of(CHUNKS)][sim.world.one_of(2) as usize];
    let within = [0, 1, 511, sim.world.one_of(512), 64 * sim.world.one_of(8)];
    chunk * CHUNK_BYTES / PAGE + within[sim.world.one_of(5) as usize]
}

fn some_bytes(sim: &Sim) -> Vec<u8> {
    let length = [PAGE_BYTES, 1 + sim.world.one_of(PAGE) as usize][sim.world.one_of(2) as usize];
    vec![[0, 1 + sim.world.one_of(255) as u8][sim.world.one_of(2) as usize]; length]
}

/// All that can go of a file leaves memory.
fn evict(sim: &mut Sim, file: FileRef) {
    sim.with(|server| {
        let mut state = server.lock();
        let Some(inode) = state.names.inode(file.ino) else { return };
        let slot = inode.slot.filter(|_| eviction::is_evictable(&state, &inode));
        for (index, _) in slot.map(|slot| state.storage.entries(slot)).unwrap_or_default() {
            eviction::evict(&mut state, file.ino, file.slot, index);
        }
    });
}

/// Some of what can go of a file goes to the spill.
fn spill(sim: &mut Sim, file: FileRef) {
    let some = sim.world.one_of(8);
    sim.with(|server| {
        let entries = server.lock().storage.entries(file.slot);
        for (index, entry) in entries.into_iter().filter(|(index, _)| some >> (index % 3) & 1 != 0)
        {
            let victim = Victim { ino: file.ino, slot: file.slot, index, entry };
            let may = |state: &State| state.storage.may_spill(file.slot, index, entry);
            let place = {
                let mut state = server.lock();
                may(&state).then(|| state.storage.take_place().ok()).flatten()
            };
            let Some(place) = place else { continue };
            let copied = leaving::copy(&server.memory, &victim, place, &mut Block::default());
            leaving::conclude(&mut server.lock(), &victim, place, copied);
        }
    });
}

/// A server, the file in its permanent store, and what it must have.
fn begin(seed: u64, spills: bool) -> (Sim, Must) {
    let (sim, mut must) = (Sim::made(seed, None, spills.then_some(64)), Must::default());
    if sim.world.one_of(4) == 0 {
        sim.dir.put(b"file", b"").expect("an empty store");
        return (sim, must);
    }
    let first = some_bytes(&sim);
    sim.dir.put(b"file", &first).expect("an empty store");
    must.write(0, &first);
    for _ in 0..20 {
        let (at, bytes) = (some_page(&sim) * PAGE, some_bytes(&sim));
        sim.dir.overwrite(b"file", at, &bytes).expect("it is there");
        must.write(at, &bytes);
    }
    (sim, must)
}

fn read(sim: &mut Sim, client: usize, file: FileRef, must: &Must) {
    let page = some_page(sim);
    let mut found = sim.read(client, file, page * PAGE, PAGE_BYTES);
    if found.is_err() {
        // It is only in the store, which is full.
        sim.faults.heal();
        found = sim.read(client, file, page * PAGE, PAGE_BYTES);
    }
    assert!(found.expect("it is there") == must.page(page), "{page}");
}

/// Somebody does something; gives how many chunks were evicted.
fn step(sim: &mut Sim, client: usize, file: FileRef, must: &mut Must, spills: bool) -> u64 {
    match sim.world.one_of(15) {
        0..5 => {
            let bytes = some_bytes(sim);
            let at = some_page(sim) * PAGE + sim.world.one_of(PAGE + 1 - bytes.len() as u64);
            sim.write(client, file, at, &bytes).expect("there is room for it");
            must.write(at, &bytes);
        }
        5..8 => read(sim, client, file, must),
        8 => {
            let size = some_page(sim) * PAGE + [0, 7, 4095][sim.world.one_of(3) as usize];
            let target = Target::File(file);
            sim.ask(client, Request::Truncate { target, size, token: 0 }).expect("it is there");
            must.truncate(size);
        }
        9..12 => {
            let time = Duration::from_millis(1 << sim.world.one_of(15));
            sim.pass(time);
        }
        14 if spills => spill(sim, file),
        _ => {
            let before = sim.memory.record(file.slot).evictions().load(Ordering::SeqCst);
            evict(sim, file);
            let after = sim.memory.record(file.slot).evictions().load(Ordering::SeqCst);
            return after.saturating_sub(before);
        }
    }
    0
}

/// The permanent store has what it must have in the end.
fn check(sim: &Sim, must: &Must) {
    let (found, filled) = &sim.dir.files()[&b"file"[..]];
    assert_eq!(found.attributes.size, must.size);
    let must = must.filled();
    let numbers = |pages: &BTreeMap<u64, Vec<u8>>| pages.keys().copied().collect::<Vec<_>>();
    assert_eq!(numbers(filled), numbers(&must));
    assert!(*filled == must);
}

/// Gives how many chunks were evicted, and in how many steps some were spilled.
fn run(seed: u64, spills: bool, kills: bool) -> [u64; 2] {
    let (mut sim, mut must) = begin(seed, spills);
    let one = sim.connect();
    let how = OpenHow { access: 3, ..OpenHow::default() };
    let open = sim.open(one, b"file", how).expect("it is there");
    // Others fill memory.
    let pad = sim.open(one, b"pad", CREATE).expect("a free name");
    let (mut spilled, mut evicted) = (0, 0);
    for _ in 0..100 {
        if sim.world.one_of(10) == 0 {
            let at = sim.world.one_of(16) * CHUNK_BYTES;
            sim.write(one, pad.file, at, b"bytes").expect("there is room for it");
        }
        if sim.world.one_of(10) == 0 {
            sim.faults.begin(Fault::Full, Duration::from_millis(1 << sim.world.one_of(13)));
        }
        let bytes = sim.with(|server| server.lock().storage.spilled_bytes());
        spilled += u64::from(bytes.is_some_and(|bytes| bytes > 0));
        if kills && sim.world.one_of(8) == 0 {
            sim.kill_at(1 + sim.world.one_of(30) as i64);
        }
        evicted += step(&mut sim, one, open.file, &mut must, spills);
    }
    sim.faults.heal();
    sim.close(one, open).expect("it is open");
    sim.finish();
    check(&sim, &must);
    [evicted, spilled]
}

#[test]
fn zeros_are_zeros_wherever_the_chunks_are_that_they_lie_in() {
    let mut went = [0, 0];
    for seed in seeds(30) {
        for (spills, kills) in [(false, false), (true, false), (false, true), (true, true)] {
            let ran = std::panic::catch_unwind(|| run(seed, spills, kills));
            let more = ran.unwrap_or_else(|_| panic!("seed {seed}, {spills}, {kills}"));
            went = [went[0] + more[0], went[1] + more[1]];
        }
    }
    assert!(went.iter().all(|count| *count > 0), "{went:?}");
}

#[test]
fn zeros_that_nobody_wrote_do_not_count_as_brought() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let open = sim.open(one, b"file", CREATE).expect("an empty store");
    let pages = [0, 100, 3 * CHUNK_BYTES / PAGE];
    for page in pages {
        sim.write(one, open.file, page * PAGE, &[7; PAGE_BYTES]).expect("there is room for it");
    }
    sim.close(one, open).expect("it is open");
    sim.finish();
    assert_eq!(sim.dir.files()[&b"file"[..]].1.len(), pages.len());
    let drain = sim.with(|server| owing::drain_status(&mut server.lock())).expect("it lives");
    assert_eq!(drain.bytes, pages.len() as u64 * PAGE);
    assert_eq!(drain.verified_bytes, 101 * PAGE + PAGE);
}

#[test]
fn a_version_that_begins_anew_has_nothing_old_behind_the_last_page_of_a_chunk() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let open = sim.open(one, b"file", CREATE).expect("an empty store");
    for at in [0, CHUNK_BYTES] {
        sim.write(one, open.file, at, &[7; PAGE_BYTES]).expect("there is room for it");
    }
    sim.pass(Duration::from_secs(60));
    let FileRef { ino, slot } = open.file;
    let gone = sim.with(|server| eviction::evict(&mut server.lock(), ino, slot, 1));
    assert!(gone.is_some_and(|bytes| bytes > 0), "all of it is staged");
    // An earlier server staged more, and died.
    let mut staged = sim.dir.stage(ino, InstanceId(1)).expect("it is there");
    assert_eq!(staged.resumed_bytes(), Some(CHUNK_BYTES + PAGE));
    staged.write(5 * PAGE, &[8; PAGE_BYTES]).expect("written");
    staged.write(CHUNK_BYTES + PAGE, &[8; PAGE_BYTES]).expect("written");
    drop(staged);
    sim.kill();
    sim.close(one, open).expect("it is open");
    sim.finish();
    let found = &sim.dir.files()[&b"file"[..]].1;
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, CHUNK_BYTES / PAGE]);
}
