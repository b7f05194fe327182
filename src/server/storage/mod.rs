//! The storage role: where the bytes of files are, in memory or in the spill. It gives files
//! records and chunks, and takes them back from writers, readers and the dead.
//!
//! Invariants: no chunk changes hands but on the way that the grant protocol prescribes; a record,
//! or a packed file's place, that was given up is nobody else's before the log says so
//! ([`Storage::logged`]). Not here: which files there are, who may do what, what the backing has of
//! them, and when they lose their memory.

use std::sync::Arc;

use terral_format::ids::{FileSlot, Ino};
use terral_format::local::clock;
use terral_format::local::entry::MapEntry;
use terral_store::memory::Memory;
use terral_store::ram::Ram;
use terral_store::small::Small;

use crate::core::machine::Machine;
use crate::core::world::{Tick, World};

pub mod attaching;
pub mod away;
pub mod barring;
pub mod bringing;
pub mod cache;
pub mod charging;
mod chunks;
pub mod closed;
mod counting;
pub mod eviction;
pub mod fencing;
pub mod granting;
pub mod lingering;
mod mapped;
pub mod mapping;
mod mending;
mod packed;
pub mod packing;
mod preparing;
pub mod recalling;
pub mod reclaim;
mod records;
pub mod spill;
mod taking;
pub mod updates;
pub mod updating;
mod writers;
mod written;

pub use mapped::Fit;

/// The role's state.
pub struct Storage {
    ram: Ram,
    small: Small,
    world: Arc<dyn World>,
    machine: Arc<dyn Machine>,
    /// Records that are free once the log says so.
    detached: Vec<FileSlot>,
    /// Records and chunks of packed files that are free once the log says so.
    packed: Vec<(FileSlot, packed::Packed)>,
    /// Places of small files that are free once the log says so.
    freed: Vec<(u32, u64)>,
    /// No segments are made until then, as one found no memory.
    grows_again: Option<Tick>,
    /// What was found to be written over, not yet said.
    spoiled: Vec<(Ino, &'static str)>,
    /// Bytes of other machines' files.
    cache: cache::Cache,
    /// Chunks that other members have.
    away: away::Away,
}

impl Storage {
    /// Of memory in which nothing is known yet.
    pub fn new(ram: Ram, small: Small, world: Arc<dyn World>, machine: Arc<dyn Machine>) -> Self {
        ram.memory().locks().reclaim(true, |_| true);
        let (detached, packed, freed, grows_again, spoiled) = Default::default();
        let (cache, away) = (cache::Cache::default(), away::Away::default());
        Storage {
            ram,
            small,
            world,
            machine,
            detached,
            packed,
            freed,
            grows_again,
            spoiled,
            cache,
            away,
        }
    }

    /// The shared memory below.
    pub fn memory(&self) -> &Arc<Memory> {
        self.ram.memory()
    }

    /// Now, by the partition's time: what files are stamped with.
    pub fn time_ns(&self) -> u64 {
        clock::time_ns(self.memory().clock_offset(), self.world.wall_ns())
    }

    /// A file's chunks, in memory or spilled, by index.
    pub fn entries(&self, slot: FileSlot) -> Vec<(u64, MapEntry)> {
        self.ram.entries(slot)
    }

    /// Size of a file as its header has it, cut to what a file can have.
    pub fn size(&self, slot: FileSlot) -> u64 {
        self.ram.size(slot)
    }

    /// The log says so: what was given up before is others' to have.
    pub fn logged(&mut self) {
        self.release_packed();
        for slot in std::mem::take(&mut self.detached) {
            self.ram.detach(slot);
        }
        for (place, bytes) in std::mem::take(&mut self.freed) {
            self.small.free(place, bytes);
        }
    }
}
