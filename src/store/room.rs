//! How much of the table of names exists in memory, and the making of more ahead of need.

use terral_format::local::deferred::{CHANGE_BYTES, CHANGES};
use terral_format::local::geometry::{GRANULE_BYTES, NamesLayout};
use terral_format::{Error, ErrorKind, Result};

use crate::memory::Memory;

/// Slots, and granules, that are made ahead.
const AHEAD: u32 = 4096;
/// Granules of the longest name and the longest symbolic link, twice.
const TEXTS: u32 = 600;
/// Granules of the names of all changes that may be deferred.
const DEFERRED: u32 = (CHANGES * CHANGE_BYTES.div_ceil(GRANULE_BYTES)) as u32;

/// What exists.
#[derive(Default)]
pub struct Room {
    /// Slots below exist.
    pub slots: u32,
    /// Granules below exist.
    granules: u32,
    /// What kept something from existing.
    pub failed: Option<Error>,
}

impl Room {
    /// Makes sure that the next slots, from `next` on, of which `left` may be taken, and the next
    /// names, from granule `end` on, find memory.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the table is full, or would be with all that may be deferred;
    /// [`ErrorKind::NoSpace`] if memory is.
    pub fn reserve(&mut self, memory: &Memory, next: u32, end: u32, left: u32) -> Result<()> {
        let layout = memory.geometry.names();
        if left == 0 || end + DEFERRED.min(layout.granules() / 4) >= layout.granules() {
            return Err(full(layout));
        }
        self.prepare(memory, (next.min(layout.inodes() - 1), end), AHEAD / 2)
    }

    /// Whether slot `index` and its names find memory; once one does not, none does.
    pub fn has(&mut self, memory: &Memory, index: u32, end: u32) -> bool {
        if let Err(error) = self.prepare(memory, (index, end), TEXTS) {
            self.failed.get_or_insert(error);
        }
        self.failed.is_none()
    }

    fn prepare(&mut self, memory: &Memory, (slot, end): (u32, u32), margin: u32) -> Result<()> {
        let layout = memory.geometry.names();
        if slot >= layout.inodes() || end + TEXTS >= layout.granules() {
            return Err(full(layout));
        }
        let slots = (slot + AHEAD).min(layout.inodes());
        if slot + margin > self.slots && slots > self.slots {
            memory.prepare_names(layout.slot_at(self.slots), layout.slot_at(slots))?;
            let buckets = (layout.bucket_at(self.slots), layout.bucket_at(slots - 1) + 1);
            memory.prepare_names(buckets.0, buckets.1)?;
            self.slots = slots;
        }
        let granules = (end + AHEAD).min(layout.granules());
        if end + margin > self.granules && granules > self.granules {
            memory.prepare_names(layout.granule_at(end), layout.granule_at(granules))?;
            self.granules = granules;
        }
        Ok(())
    }
}

fn full(layout: NamesLayout) -> Error {
    Error::new(ErrorKind::TooMany, format!("{} files", layout.inodes()))
}
