//! Closed files keep their memory for a moment: what was closed just now is often opened again, and
//! that needs no server as long as the file has its record. Not here: how it is taken (`closed`).

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;
use terral_format::ids::Ino;

use crate::core::world::Tick;

/// How long.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// How many, at most.
const FILES_MAX: usize = 8192;

/// Files that were closed a moment ago, with the pages they keep.
#[derive(Default)]
pub struct Lingering {
    /// When each was put here, and which.
    queue: VecDeque<(Tick, Ino)>,
    /// When each was closed last.
    since: FxHashMap<Ino, (Tick, u32)>,
    pages: u64,
}

impl Lingering {
    /// One was closed that keeps so many pages.
    pub(crate) fn closed(&mut self, ino: Ino, pages: u32, now: Tick) {
        match self.since.insert(ino, (now, pages)) {
            Some((_, before)) => self.pages -= u64::from(before),
            None => self.queue.push_back((now, ino)),
        }
        self.pages += u64::from(pages);
    }

    /// The next one that has been closed for long enough, or for which there is no room.
    pub(crate) fn next(&mut self, most_pages: u64, now: Tick) -> Option<Ino> {
        let full = self.since.len() > FILES_MAX || self.pages > most_pages;
        let young = |since: Tick| !full && now.since(since) < LINGER;
        while let Some((_, ino)) = self.queue.pop_front_if(|(since, _)| !young(*since)) {
            let Some((since, pages)) = self.since.get(&ino).copied() else { continue };
            if young(since) {
                // It was closed again meanwhile.
                self.queue.push_back((since, ino));
                continue;
            }
            self.since.remove(&ino);
            self.pages -= u64::from(pages);
            return Some(ino);
        }
        None
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
