//! The disk that a simulated server spills to: places in memory, of which there are few, a table of
//! them, and what goes wrong there. It outlives servers. Not here: who copies (`spilling`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::ids::SpillPlace;
use terral_format::local::spill::{PLACES_MAX, TABLE_BYTES};
use terral_format::{Error, ErrorKind, Result};
use terral_store::spill::{Block, Disk, Spill};
use terral_transport::region::Region;

use super::world::Virtual;
use crate::core::world::{Tick, World};
use crate::recovery;

/// What a disk may do wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has no room for more.
    Full,
    /// One call in three fails.
    Shaky,
    /// All do.
    Away,
}

/// Called before the disk is asked for something: `true` if that is to read.
type Before = Box<dyn Fn(bool) + Send + Sync>;

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub struct SpillDisk {
    world: Arc<Virtual>,
    before: Arc<Before>,
    table: Arc<Region>,
    things: Arc<Mutex<Things>>,
}

#[derive(Default)]
struct Things {
    places: BTreeMap<u32, Vec<u8>>,
    /// Most places that hold something.
    room: usize,
    wrong: Option<(Wrong, Tick)>,
    /// Calls that failed for that.
    failed: u64,
    /// Chunks written, and read.
    moved: (u64, u64),
}

impl SpillDisk {
    /// With room for so many chunks.
    pub fn new(world: Arc<Virtual>, room: usize, before: Before) -> Self {
        let table = Region::anonymous(TABLE_BYTES).expect("address space");
        let things = Things { room, ..Things::default() };
        let (before, table) = (Arc::new(before), Arc::new(table));
        SpillDisk { world, before, table, things: Arc::new(Mutex::new(things)) }
    }

    /// As a server sees it, that has just started.
    pub fn spill(&self) -> Spill {
        Spill::new(Box::new(self.clone()), recovery::mapped(self.table.clone()))
    }

    fn things(&self) -> MutexGuard<'_, Things> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, and so long.
    pub fn begin(&self, wrong: Wrong, time: Duration) {
        self.things().wrong = Some((wrong, self.world.now() + time));
    }

    pub fn heal(&self) {
        self.things().wrong = None;
    }

    /// Whether a call has failed so far, for other reasons than room.
    pub fn has_failed(&self) -> bool {
        self.things().failed > 0
    }

    /// Chunks that were written there, and read, so far.
    pub fn moved(&self) -> (u64, u64) {
        self.things().moved
    }

    /// Places that hold something.
    pub fn used(&self) -> Vec<SpillPlace> {
        self.things().places.keys().copied().map(SpillPlace).collect()
    }

    /// Changes a byte of what a place holds. False: it holds nothing.
    pub fn corrupt(&self, place: SpillPlace) -> bool {
        let mut things = self.things();
        let byte = things.places.get_mut(&place.0).and_then(|bytes| bytes.first_mut());
        byte.map(|byte| *byte ^= 0x55).is_some()
    }

    fn begin_call(&self, reads: bool) -> Result<MutexGuard<'_, Things>> {
        (self.before)(reads);
        let mut things = self.things();
        let wrong = things.wrong.filter(|(_, until)| self.world.now() < *until);
        let fails = match wrong {
            Some((Wrong::Shaky, _)) => self.world.one_of(3) == 0,
            Some((Wrong::Away, _)) => true,
            _ => false,
        };
        if fails {
            things.failed += 1;
            return Err(Error::new(ErrorKind::System, self.describe()));
        }
        Ok(things)
    }
}

impl Disk for SpillDisk {
    fn describe(&self) -> String {
        "the simulated disk".into()
    }

    fn places(&self) -> u32 {
        PLACES_MAX
    }

    fn write(&self, place: SpillPlace, block: &Block, bytes: usize) -> Result<()> {
        let mut things = self.begin_call(false)?;
        let wrong = things.wrong.filter(|(_, until)| self.world.now() < *until);
        let full = wrong.is_some_and(|(wrong, _)| wrong == Wrong::Full);
        let more = !things.places.contains_key(&place.0);
        if more && (full || things.places.len() >= things.room) {
            return Err(Error::new(ErrorKind::NoSpace, self.describe()));
        }
        things.moved.0 += 1;
        things.places.insert(place.0, block[..bytes].to_vec());
        Ok(())
    }

    fn read(&self, place: SpillPlace, block: &mut Block, bytes: usize) -> Result<()> {
        let mut things = self.begin_call(true)?;
        things.moved.1 += 1;
        let missing = || Error::new(ErrorKind::System, "beyond the end of the simulated disk");
        let there = things.places.get(&place.0).filter(|there| there.len() >= bytes);
        block[..bytes].copy_from_slice(&there.ok_or_else(missing)?[..bytes]);
        Ok(())
    }

    fn free(&self, place: SpillPlace) {
        (self.before)(false);
        self.things().places.remove(&place.0);
    }
}
