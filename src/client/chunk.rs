//! The grant protocol, client's side, inside one chunk: pins, pages held and observed, bytes in
//! and out. Unchanged in shape from the model in `tests/`.
//!
//! Not here: which chunk, the file's size, and whom to ask when a chunk cannot be had.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use terral_format::Result;
use terral_format::ids::{Owner, PageNumber};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{HAZARDS, PAGE_BYTES, SEGMENT_PAGES, SEGMENTS_MAX};
use terral_format::local::hazard::{self, HazardWord};
use terral_format::local::pages::{self, Met};
use terral_transport::fault;

use crate::session::{Memory, Own};

/// Somebody in the way longer than this is reported to the server.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// Who is in the way for the time of a copy is waited for without giving the processor away.
const SPINS: u32 = 50;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
static OPERATION: AtomicU32 = AtomicU32::new(0);

/// A number that differs between threads, most of the time: where their stacks are.
pub(crate) fn thread_hint() -> usize {
    let here = 0u8;
    (std::ptr::from_ref(&here).addr() >> 16) % HAZARDS
}

/// A pinned chunk.
pub(crate) struct Pin<'a> {
    slot: &'a AtomicU64,
    word: HazardWord,
    pub(crate) owner: Owner,
}

impl Own {
    pub(crate) fn pin(&self, page: PageNumber) -> Pin<'_> {
        // Two threads may get the same number; what counts is that one slot's differ.
        let operation = OPERATION.load(Ordering::Relaxed).wrapping_add(1);
        OPERATION.store(operation, Ordering::Relaxed);
        let first = thread_hint();
        loop {
            for at in (0..HAZARDS).map(|at| (first + at) % HAZARDS) {
                let slot = &self.page().hazards[at].word;
                if let Some(word) = hazard::enter(slot, page, operation) {
                    let owner = Owner(self.index * HAZARDS as u16 + at as u16 + 1);
                    return Pin { slot, word, owner };
                }
            }
            std::thread::yield_now();
        }
    }
}

impl Pin<'_> {
    #[must_use]
    pub(crate) fn leave(self) -> bool {
        hazard::leave(self.slot, self.word)
    }
}

/// Waits a moment, and gives the processor away when it has been called often.
pub(crate) fn pause(round: &mut u32) {
    *round = round.saturating_add(1);
    if *round < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// What the words of a call's pages were before it. Few words for few pages: clearing many would
/// cost a small call more than all else here.
#[expect(clippy::large_enum_variant, reason = "on the stack: a signal handler may write")]
pub(crate) enum Notes {
    Few([u64; 6]),
    Many([u64; pages::WORDS]),
}

impl Notes {
    /// Most bytes of a piece, wherever it begins, whose pages lie in few words.
    const FEW_BYTES: usize = 64 << 10;

    /// For a piece of `bytes` bytes.
    #[inline]
    pub(crate) fn new(bytes: usize) -> Self {
        if bytes <= Self::FEW_BYTES { Notes::Few([0; 6]) } else { Notes::Many([0; pages::WORDS]) }
    }

    #[inline]
    fn words(&mut self) -> &mut [u64] {
        match self {
            Notes::Few(words) => words,
            Notes::Many(words) => words,
        }
    }
}

impl Memory {
    /// Copies bytes out of the arena, from so many after the begin of a page.
    pub(crate) fn read_arena(&self, page: PageNumber, at: usize, into: &mut [u8]) -> Result<()> {
        let segment = (page.0 / SEGMENT_PAGES) as usize % SEGMENTS_MAX;
        let state = self.superblock().segments[segment].load(Ordering::Acquire);
        self.arena.read(page, at, into, state)
    }
}

/// Bytes that lie in one chunk.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'c> {
    memory: &'c Memory,
    lanes: &'c [AtomicU64],
    entry: MapEntry,
    within: usize,
    /// Its pages, as far as the chunk has them.
    first: u32,
    last: u32,
}

impl<'c> Piece<'c> {
    /// `length` bytes at `within` in the chunk of `entry`.
    pub(crate) fn new(memory: &'c Memory, entry: MapEntry, within: usize, length: usize) -> Self {
        let start = entry.page().0;
        let end = (within + length).div_ceil(PAGE_BYTES) as u32;
        let first = start + ((within / PAGE_BYTES) as u32).min(entry.pages());
        let last = start + end.min(entry.pages());
        Piece { memory, lanes: memory.lanes(), entry, within, first, last }
    }

    fn segment_state(&self) -> u64 {
        let segment = (self.entry.page().0 / SEGMENT_PAGES) as usize % SEGMENTS_MAX;
        self.memory.superblock().segments[segment].load(Ordering::Acquire)
    }

    /// Holds the pages, waiting so long for others; gives who has been in the way for longer.
    pub(crate) fn claim(
        &self,
        owner: Owner,
        notes: &mut Notes,
        patience: Duration,
    ) -> std::result::Result<(), Owner> {
        let mut since: Option<(Instant, u32, Owner)> = None;
        let mut round = 0;
        loop {
            let met = pages::claim(self.lanes, self.first, self.last, owner, notes.words());
            let Met::Writer(page, other) = met else {
                fence(Ordering::Release);
                return Ok(());
            };
            match since {
                Some((begin, at, who)) if (at, who) == (page, other) => {
                    if begin.elapsed() > patience {
                        self.give_up(owner, notes);
                        return Err(other);
                    }
                }
                _ => since = Some((Instant::now(), page, other)),
            }
            pause(&mut round);
        }
    }

    /// Copies `bytes` in, and zeroes what they do not cover of pages that had none. The caller
    /// holds the pages, and does no longer. What of an error is in place, is.
    pub(crate) fn put(&self, bytes: &[u8], owner: Owner, notes: &mut Notes) -> Result<()> {
        let copied = self.fill(bytes, notes);
        if copied.is_ok() {
            pages::publish(self.lanes, self.first, self.last, owner, notes.words());
        } else {
            self.clear_holes(notes);
            self.give_up(owner, notes);
        }
        copied
    }

    /// What was begun in holes must not show in maps of the chunk.
    #[cold]
    fn clear_holes(&self, notes: &mut Notes) {
        let (arena, state) = (&self.memory.arena, self.segment_state());
        for page in self.first..self.last {
            if !pages::was_valid(notes.words(), self.first, page) {
                // A page that cannot be written for want of memory is no page yet: zeros.
                let _ = arena.write(PageNumber(page), 0, &ZEROS, state);
            }
        }
    }

    fn fill(&self, bytes: &[u8], notes: &mut Notes) -> Result<()> {
        let (arena, page, state) = (&self.memory.arena, self.entry.page(), self.segment_state());
        let end = self.within + bytes.len();
        let (head, tail) = (self.within % PAGE_BYTES, end % PAGE_BYTES);
        let mut was_hole = |page| !pages::was_valid(notes.words(), self.first, page);
        let head = if head != 0 && was_hole(self.first) { head } else { 0 };
        let tail = if tail != 0 && was_hole(self.last - 1) { PAGE_BYTES - tail } else { 0 };
        if head + tail == 0 {
            return arena.write(page, self.within, bytes, state);
        }
        arena.write_between(page, self.within, bytes, (head, tail), state)
    }

    /// Holds the pages no longer, and has written nothing whole.
    pub(crate) fn give_up(&self, owner: Owner, notes: &mut Notes) {
        pages::give_up(self.lanes, self.first, self.last, owner, notes.words());
    }

    /// Copies out. False: somebody wrote there meanwhile.
    pub(crate) fn try_get(&self, into: &mut [u8], notes: &mut Notes) -> Result<bool> {
        let met = pages::observe(self.lanes, self.first, self.last, notes.words());
        if matches!(met, Met::Writer(..)) {
            return Ok(false);
        }
        self.get(into, met == Met::Bytes, notes)?;
        fence(Ordering::Acquire);
        Ok(pages::is_unchanged(self.lanes, self.first, self.last, notes.words()))
    }

    /// Copies out under a claim, and gives it up.
    pub(crate) fn get_claimed(
        &self,
        into: &mut [u8],
        owner: Owner,
        notes: &mut Notes,
    ) -> Result<()> {
        let copied = self.get(into, false, notes);
        self.give_up(owner, notes);
        copied
    }

    /// Copies out; pages that were not valid read as zeros.
    fn get(&self, into: &mut [u8], all_valid: bool, notes: &mut Notes) -> Result<()> {
        let (arena, page, state) = (&self.memory.arena, self.entry.page(), self.segment_state());
        let end = self.within + into.len();
        let here = (self.last - page.0) as usize * PAGE_BYTES;
        if all_valid && end <= here {
            return arena.read(page, self.within, into, state);
        }
        let words = notes.words();
        let is_valid = |at: usize| {
            let number = page.0 + (at / PAGE_BYTES) as u32;
            number < self.last && pages::was_valid(words, self.first, number)
        };
        let next = |at: usize| ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
        let mut at = self.within;
        while at < end {
            // A call for each run of pages: a file may have a hole here and there.
            let (valid, mut to) = (is_valid(at), next(at));
            while to < end && is_valid(to) == valid {
                to = next(to);
            }
            let piece = &mut into[at - self.within..to - self.within];
            if valid {
                arena.read(page, at, piece, state)?;
            } else {
                fault::clear(piece)?;
            }
            at = to;
        }
        Ok(())
    }
}
