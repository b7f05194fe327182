//! Chunks that are on their way to the spill, and what has kept others from it. Not here: which go
//! (`choosing`).

use std::collections::VecDeque;
use std::time::Duration;

use terral_format::ids::{FileSlot, Ino};
use terral_format::local::entry::MapEntry;

use crate::core::world::Tick;

/// Where nothing was found to spill, it is looked for again after so long.
pub const SOUGHT: Duration = Duration::from_millis(20);

/// A chunk on its way to the spill.
#[derive(Clone, Copy)]
pub struct Victim {
    /// Of which file.
    pub ino: Ino,
    /// Its record.
    pub slot: FileSlot,
    /// Which chunk of it.
    pub index: u64,
    /// As the file's map has it.
    pub entry: MapEntry,
}

/// What is on its way, and what has kept something from it.
#[derive(Default)]
pub struct Spilling {
    /// Those that nobody has begun to copy.
    pub chosen: VecDeque<Victim>,
    /// Those that are being copied.
    pub copied: Vec<(FileSlot, u64)>,
    /// When it is tried again after a failure, and the next pause.
    pub stopped: Option<(Tick, Duration)>,
    /// Nothing was found to spill, then.
    pub sought: Option<Tick>,
}

impl Spilling {
    /// Whether nothing is spilled for a while.
    pub fn is_stopped(&self, now: Tick) -> bool {
        self.stopped.is_some_and(|(until, _)| until > now)
    }

    /// Whether nothing was found just now.
    pub fn has_nothing(&self, now: Tick) -> bool {
        self.sought.is_some_and(|at| now.since(at) < SOUGHT)
    }
}
