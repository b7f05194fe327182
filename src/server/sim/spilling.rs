//! Who copies to the spill, as threads do for real (`crate::shell::spillers`), step by step:
//! between choosing a chunk, copying it, and concluding that, anybody may do anything. They also
//! have their steps while the drain is in the middle of a pass, and somebody may bring back what
//! that is just reading.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use terral_format::Result;
use terral_format::ids::{FileSlot, Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_store::moving::Copied;
use terral_store::spill::Block;

use super::Sim;
use super::world::Virtual;
use crate::core::state::State;
use crate::core::workers::Next;
use crate::core::world::World;
use crate::shared::Shared;
use crate::shell::spillers::THREADS;
use crate::storage::spill::jobs::{self, Job};
use crate::storage::spill::leaving;
use crate::storage::spill::under_way::Victim;

/// What one of them is at.
enum Spiller {
    Sleeps(Next),
    Copies(Victim, SpillPlace),
    Copied(Victim, SpillPlace, Box<Result<Option<Copied>>>),
    Clears(Vec<SpillPlace>),
    Cleared(Vec<SpillPlace>),
    Idle,
}

/// All of them, of one server.
pub struct Spillers {
    world: Arc<Virtual>,
    server: Mutex<Weak<Shared>>,
    all: Mutex<Vec<Spiller>>,
    /// What they copy through, as long as nobody does.
    blocks: Mutex<Vec<Block>>,
}

thread_local! {
    /// Something is done in the middle of something else.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

impl Spillers {
    pub fn new(world: Arc<Virtual>) -> Self {
        let (server, all, blocks) = Default::default();
        Spillers { world, server, all, blocks }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Spiller>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is another server, or none.
    pub fn serve(&self, server: &Weak<Shared>) {
        WITHIN.set(false);
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server.clone();
        *self.all() = (0..THREADS).map(|_| Spiller::Idle).collect();
    }

    /// One of them does one step. False: all sleep.
    pub fn step(&self, shared: &Shared) -> bool {
        let mut rest = std::mem::take(&mut *self.all());
        let count = rest.len();
        let first = self.world.one_of(count.max(1) as u64) as usize;
        for at in (0..count).map(|at| (first + at) % count) {
            let spiller = std::mem::replace(&mut rest[at], Spiller::Idle);
            // What it does may end this server, or have others do something.
            let (next, did) = self.step_of(shared, spiller);
            rest[at] = next;
            if did {
                *self.all() = rest;
                return true;
            }
        }
        *self.all() = rest;
        false
    }

    fn step_of(&self, shared: &Shared, spiller: Spiller) -> (Spiller, bool) {
        let next = match spiller {
            Spiller::Sleeps(next) => {
                let due = match next {
                    Next::Busy => true,
                    Next::Throttled(until) => until <= self.world.now(),
                    Next::Idle(until) => {
                        let over = until.is_some_and(|until| until <= self.world.now());
                        over || jobs::is_due(&shared.lock())
                    }
                };
                if !due {
                    return (Spiller::Sleeps(next), false);
                }
                Spiller::Idle
            }
            Spiller::Idle => {
                let mut state = shared.lock();
                match jobs::next_job(&mut state) {
                    Job::Copy(victim, place) => Spiller::Copies(victim, place),
                    Job::Clear(places) => Spiller::Clears(places),
                    Job::Rest(next) => return (Spiller::Sleeps(next), false),
                }
            }
            Spiller::Copies(victim, place) => {
                // Others may copy in the middle of that.
                let block = self.blocks().pop();
                let mut block = block.unwrap_or_default();
                let copied = leaving::copy(&shared.memory, &victim, place, &mut block);
                self.blocks().push(block);
                Spiller::Copied(victim, place, Box::new(copied))
            }
            Spiller::Copied(victim, place, copied) => {
                leaving::conclude(&mut shared.lock(), &victim, place, *copied);
                Spiller::Idle
            }
            Spiller::Clears(places) => {
                let spill = shared.memory.spill().expect("it has one");
                places.iter().for_each(|place| spill.free(*place));
                Spiller::Cleared(places)
            }
            Spiller::Cleared(places) => {
                shared.lock().storage.cleared(places);
                Spiller::Idle
            }
        };
        (next, true)
    }

    /// The chunks that are on their way: of which file, and which.
    pub fn under_way(&self) -> Vec<(Ino, u64)> {
        let chunk = |spiller: &Spiller| match spiller {
            Spiller::Copies(victim, _) | Spiller::Copied(victim, ..) => {
                Some((victim.ino, victim.index))
            }
            _ => None,
        };
        self.all().iter().filter_map(chunk).collect()
    }

    /// The drain, or somebody else who may not have the lock, asks the disk, or the permanent
    /// store; `reads`: what is spilled. Others go on meanwhile.
    pub fn meanwhile(&self, reads: bool) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let Some(server) = server.filter(|_| !WITHIN.get()) else { return };
        if self.world.one_of(4) != 0 || server.try_lock().is_none() {
            return;
        }
        WITHIN.set(true);
        for _ in 0..=self.world.one_of(6) {
            if reads && self.world.one_of(2) == 0 {
                bring_one(&mut server.lock(), &self.world);
            } else {
                self.step(&server);
            }
        }
        WITHIN.set(false);
    }
}

/// Somebody needs a chunk that is spilled.
fn bring_one(state: &mut State, world: &Virtual) {
    let slots = state.names.inodes().filter_map(|inode| inode.slot);
    let spilled = |slot: FileSlot| {
        let entries = state.storage.entries(slot).into_iter();
        entries.filter(|(_, entry)| entry.place().is_some()).map(move |at| (slot, at))
    };
    let mut all: Vec<(FileSlot, (u64, MapEntry))> = slots.flat_map(spilled).collect();
    all.sort_unstable_by_key(|(slot, (index, _))| (slot.0, *index));
    if all.is_empty() {
        return;
    }
    let (slot, (index, entry)) = all[world.one_of(all.len() as u64) as usize];
    let memory = state.storage.memory().clone();
    let place = entry.place().expect("it is spilled");
    let ino = Ino(memory.record(slot).ino().load(std::sync::atomic::Ordering::SeqCst));
    if let Ok(mut block) = memory.read_spilled(place, (ino, index)) {
        // A full memory only means that it stays where it is.
        let _ = state.storage.unspill(slot, index, entry, &mut block);
    }
}

impl Sim {
    /// Those who copy to the spill do a few steps, at most so many.
    pub fn spill(&mut self, most: u64) {
        let Some(spillers) = self.spillers.clone() else { return };
        for _ in 0..most {
            if self.world.one_of(8) == 0 {
                return;
            }
            if self.with(|server| spillers.step(server)) != Some(true) {
                return;
            }
        }
    }
}
