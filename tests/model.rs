//! The grant protocol on one file of one chunk, as loom explores it: the shared memory, and what a
//! client does there to write, append and read.
//!
//! The words and their transitions are the real ones of `terral_format`. Modelled are the bytes (a
//! few relaxed atomics a page) and the server's part, in [`crate::model_server`]. [`Flaw`] leaves
//! out one step at a time, which shows that the step is needed and that the model would notice.
//!
//! Loom takes `SeqCst` accesses for `AcqRel`; [`sequential`] stands where the protocol rests on the
//! single order of them. Not here: a malicious client, a server that dies, several chunks.

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread::yield_now;
use terral_format::ids::{Owner, PageNumber};
use terral_format::local::entry::MapEntry;
use terral_format::local::hazard::{self, HazardWord};
use terral_format::local::pages::{self, Met};
use terral_format::local::size::{self, SizeWord};

/// What the memory of a page holds before anybody writes to it: a former file's bytes.
pub const GARBAGE: u64 = 99;
/// What the next file that gets a recycled chunk has written there.
pub const FOREIGN: u64 = 77;
/// Pages of the model's arena; a chunk is one page.
pub const ARENA_PAGES: usize = 3;
/// Hazard slots, one for each writing thread.
pub const SLOTS: usize = 2;

/// One step done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The protocol as it is.
    None,
    /// Raises the size before the bytes are there.
    RaisesBeforeCopy,
    /// Marks pages valid before their bytes are there.
    PublishesBeforeCopy,
    /// Nobody tells an overtaken writer: there is no new epoch, and it does not ask its slot.
    ForgetsOvertaken,
    /// Does not read the entry again after it pinned.
    TrustsEntryBeforePin,
    /// Reads the size epoch when it has found the entry good.
    ReadsEpochAfterEntry,
    /// Does not zero the rest of a page that it claimed.
    LeavesComplement,
    /// The server uses a chunk again although an overtaken writer may still store there.
    RecyclesQuarantined,
    /// The server overtakes without starting a new size epoch.
    OvertakesInSilence,
    /// Publishes an append while pinned, and appends again if it was overtaken after that.
    PublishesAppendPinned,
    /// Does not check, once pinned, that it still holds the append ticket.
    TrustsTicketBeforePin,
    /// Does not check, once pinned, that the file ends where the append is to begin.
    TrustsSizeBeforePin,
    /// Raises the size while another's append is under way.
    RaisesWithoutTicket,
    /// The server takes a ticket away without first recalling the chunk at the end of the file.
    RevokesUnderPin,
    /// The server lets a lost append's bytes stand beyond the size.
    KeepsLostBytes,
    /// A reader does not look at the entry again.
    LooksOnce,
    /// A reader does not look at the size epoch again.
    IgnoresEpoch,
    /// The drain reads the bytes before it clears the dirty marks.
    DrainsBeforeTaking,
    /// The server sets the new size when it has given the chunk back, or out again.
    ResetsAfterPublishing,
    /// The server cuts what lies beyond the size that it saw before it recalled the chunk.
    CutsAtFirstLook,
    /// The server moves a page that an overtaken writer may have half written, and calls it clean.
    MovesAsClean,
    /// Overwrites pages that it does not hold.
    OverwritesUnheld,
    /// Publishes without counting the overwrite.
    CountsNothing,
    /// A reader does not look at the pages again.
    LooksAtPagesOnce,
    /// A reader copies what is being overwritten.
    ReadsHeldPages,
    /// The server makes holes of what a dead writer was overwriting.
    BuriesAsHole,
    /// The spill takes a chunk that somebody is writing to.
    SpillsUnderWriters,
    /// The spill does not look, once nobody can write, whether the chunk is as it was copied.
    SpillsWhatChanged,
    /// The server does not count evictions.
    EvictsUncounted,
    /// A reader of extents does not look at that count.
    IgnoresEvictions,
    /// A writer looks at the fence before it pins, and not after.
    LooksAtFenceBeforePin,
    /// The server fences without waiting for who is writing.
    FencesUnderWriters,
}

/// The full fence that the protocol gets from its `SeqCst` accesses.
pub fn sequential() {
    fence(Ordering::SeqCst);
}

/// Shared memory.
pub struct Machine {
    /// The step that is left out.
    pub flaw: Flaw,
    /// Bytes of a page, each modelled by one word.
    pub page_cells: usize,
    /// The arena.
    pub bytes: Vec<AtomicU64>,
    /// States of its pages.
    pub lanes: Vec<AtomicU64>,
    /// Which chunk holds the file.
    pub entry: AtomicU64,
    /// The file's size word, in cells.
    pub size: AtomicU64,
    /// The file's append ticket.
    pub ticket: AtomicU64,
    /// The least token with which it is written.
    pub fence: AtomicU64,
    /// Who is copying.
    pub slots: Vec<AtomicU64>,
    /// What the backing has got.
    pub backing: Vec<AtomicU64>,
    /// How often its chunk has left memory.
    pub evictions: AtomicU64,
    /// What a place of the spill has.
    pub place: Vec<AtomicU64>,
    /// The server does one thing at a time; it holds the pages handed out so far.
    pub server: Mutex<usize>,
}

impl Machine {
    /// A file of `content` in page 0, which has `page_cells` cells; no chunk if `content` is empty.
    pub fn new(flaw: Flaw, page_cells: usize, content: &[u64]) -> Self {
        let word = |value| AtomicU64::new(value);
        let resident = !content.is_empty();
        let entry = MapEntry::new(PageNumber(0), 0, 1);
        let cell = |at: usize| match content.get(at) {
            Some(value) => word(*value),
            None => word(if resident && at < page_cells { 0 } else { GARBAGE }),
        };
        let machine = Machine {
            flaw,
            page_cells,
            bytes: (0..ARENA_PAGES * page_cells).map(cell).collect(),
            lanes: vec![word(0)],
            entry: word(if resident { entry.0 } else { 0 }),
            size: word(SizeWord::new(content.len() as u64, 0).0),
            ticket: word(0),
            fence: word(0),
            slots: (0..SLOTS).map(|_| word(0)).collect(),
            backing: (0..page_cells)
                .map(|at| word(content.get(at).copied().unwrap_or(0)))
                .collect(),
            evictions: word(0),
            place: (0..page_cells).map(|_| word(GARBAGE)).collect(),
            server: Mutex::new(usize::from(resident)),
        };
        if resident {
            pages::fill(&machine.lanes, 0, 1, false);
        }
        machine
    }

    /// Whether the step `flaw` is done right.
    pub fn heeds(&self, flaw: Flaw) -> bool {
        self.flaw != flaw
    }

    /// Cell `cell` of page `page`.
    pub fn cell(&self, page: PageNumber, cell: usize) -> &AtomicU64 {
        &self.bytes[page.0 as usize * self.page_cells + cell]
    }

    fn leave(&self, slot: usize, pin: HazardWord) -> bool {
        hazard::leave(&self.slots[slot], pin) || !self.heeds(Flaw::ForgetsOvertaken)
    }

    /// Pins the file's chunk, asking the server for one as often as it must.
    ///
    /// The size word is read between the pin and the second look at the entry: the server starts an
    /// epoch when it overtakes, after it raised the flag, so an entry found good means that the
    /// epoch is from before.
    fn pin(&self, slot: usize) -> (MapEntry, HazardWord, SizeWord) {
        loop {
            let entry = MapEntry::load(&self.entry);
            if !entry.is_here() || entry.is_recalled() {
                self.grant();
                continue;
            }
            let pin = hazard::enter(&self.slots[slot], entry.page(), 1).expect("own slot");
            sequential();
            let seen = SizeWord::load(&self.size);
            if self.heeds(Flaw::TrustsEntryBeforePin) && MapEntry::load(&self.entry) != entry {
                let _ = self.leave(slot, pin);
                continue;
            }
            let late = SizeWord::load(&self.size);
            let in_time = self.heeds(Flaw::ReadsEpochAfterEntry);
            return (entry, pin, if in_time { seen } else { late });
        }
    }

    /// Takes the page of `entry`. `None`: another has it.
    fn hold(&self, slot: usize, entry: MapEntry) -> Option<[u64; 1]> {
        let page = entry.page().0;
        let mut before = [0];
        if self.heeds(Flaw::OverwritesUnheld) || self.is_hole(page) {
            let met = pages::claim(&self.lanes, page, page + 1, owner(slot), &mut before);
            if matches!(met, Met::Writer(..)) {
                return None;
            }
        } else {
            pages::observe(&self.lanes, page, page + 1, &mut before);
        }
        // As with the reader's fence: loom would not miss it.
        fence(Ordering::Release);
        Some(before)
    }

    fn is_hole(&self, page: u32) -> bool {
        !matches!(pages::state(&self.lanes, page), pages::PageState::Valid { .. })
    }

    fn publish(&self, slot: usize, page: u32, before: [u64; 1]) {
        pages::publish(&self.lanes, page, page + 1, owner(slot), &before);
        if !self.heeds(Flaw::CountsNothing) {
            pages::fill(&self.lanes, page, page + 1, true);
        }
        if !self.heeds(Flaw::OverwritesUnheld) {
            pages::mark_dirty(&self.lanes, page, page + 1);
        }
    }

    /// Takes the page, zeroes what is not written of a hole, copies and publishes. False: another
    /// has it.
    fn put(&self, slot: usize, entry: MapEntry, at: usize, values: &[u64]) -> bool {
        let page = entry.page();
        let Some(before) = self.hold(slot, entry) else { return false };
        if !self.heeds(Flaw::PublishesBeforeCopy) {
            self.publish(slot, page.0, before);
        }
        if !pages::was_valid(&before, page.0, page.0) && self.heeds(Flaw::LeavesComplement) {
            let written = at..at + values.len();
            for cell in (0..self.page_cells).filter(|cell| !written.contains(cell)) {
                self.cell(page, cell).store(0, Ordering::Relaxed);
            }
        }
        for (cell, value) in values.iter().enumerate() {
            self.cell(page, at + cell).store(*value, Ordering::Relaxed);
        }
        if self.heeds(Flaw::PublishesBeforeCopy) {
            self.publish(slot, page.0, before);
        }
        sequential();
        true
    }

    /// The size is at least `end`, or the write must be redone.
    fn raise(&self, slot: usize, seen: SizeWord, end: u64) -> bool {
        let extends = SizeWord::load(&self.size).size() < end;
        if !extends || !self.heeds(Flaw::RaisesWithoutTicket) {
            return size::raise(&self.size, end, seen.epoch());
        }
        if size::take_ticket(&self.ticket, owner(slot)).is_err() {
            return false;
        }
        let raised = size::raise(&self.size, end, seen.epoch());
        size::drop_ticket(&self.ticket, owner(slot));
        raised
    }

    /// `pwrite` of one cell through hazard slot `slot`.
    pub fn write(&self, slot: usize, at: usize, value: u64) {
        self.write_all(slot, at, &[value]);
    }

    /// `pwrite` of some cells.
    pub fn write_all(&self, slot: usize, at: usize, values: &[u64]) {
        self.write_as(slot, u64::MAX, at, values);
    }

    fn is_fenced(&self, token: u64) -> bool {
        self.fence.load(Ordering::SeqCst) > token
    }

    /// `pwrite` of some cells with this token; false if the file is written with greater ones only.
    pub fn write_as(&self, slot: usize, token: u64, at: usize, values: &[u64]) -> bool {
        loop {
            if !self.heeds(Flaw::LooksAtFenceBeforePin) && self.is_fenced(token) {
                return false;
            }
            let (entry, pin, seen) = self.pin(slot);
            if self.heeds(Flaw::LooksAtFenceBeforePin) && self.is_fenced(token) {
                let _ = self.leave(slot, pin);
                return false;
            }
            let end = (at + values.len()) as u64;
            let early = !self.heeds(Flaw::RaisesBeforeCopy) && self.raise(slot, seen, end);
            let done = self.put(slot, entry, at, values) && (early || self.raise(slot, seen, end));
            let left = self.leave(slot, pin);
            if done && left {
                return true;
            }
            yield_now();
        }
    }

    /// A write whose process dies when it is about to leave; false if it had to redo the write.
    pub fn write_and_die(&self, slot: usize, at: usize, value: u64) -> bool {
        let (entry, _, seen) = self.pin(slot);
        self.put(slot, entry, at, &[value]) && self.raise(slot, seen, at as u64 + 1)
    }

    /// A write whose process dies half-way: it holds its page and has stored `value`.
    pub fn store_and_die(&self, slot: usize, at: usize, value: u64) {
        let (entry, _, _) = self.pin(slot);
        if self.hold(slot, entry).is_some() {
            self.cell(entry.page(), at).store(value, Ordering::Relaxed);
        }
    }

    /// `write` with `O_APPEND` of one cell through hazard slot `slot`.
    pub fn append(&self, slot: usize, value: u64) {
        self.append_as(slot, u64::MAX, value);
    }

    /// The same with this token; false if the file is written with greater ones only.
    pub fn append_as(&self, slot: usize, token: u64, value: u64) -> bool {
        let owner = owner(slot);
        loop {
            if !self.heeds(Flaw::LooksAtFenceBeforePin) && self.is_fenced(token) {
                return false;
            }
            if size::take_ticket(&self.ticket, owner).is_err() {
                yield_now();
                continue;
            }
            let seen = SizeWord::load(&self.size);
            let (entry, pin, now) = self.pin(slot);
            if self.heeds(Flaw::LooksAtFenceBeforePin) && self.is_fenced(token) {
                let _ = self.leave(slot, pin);
                size::drop_ticket(&self.ticket, owner);
                return false;
            }
            let is_ours = size::holds_ticket(&self.ticket, owner);
            let done = (is_ours || !self.heeds(Flaw::TrustsTicketBeforePin))
                && (now == seen || !self.heeds(Flaw::TrustsSizeBeforePin))
                && self.put(slot, entry, seen.size() as usize, &[value]);
            let publish = || size::append(&self.size, seen, seen.size() + 1);
            let done = if self.heeds(Flaw::PublishesAppendPinned) {
                self.leave(slot, pin) && done && publish()
            } else {
                (done && publish()) & self.leave(slot, pin)
            };
            size::drop_ticket(&self.ticket, owner);
            if done {
                return true;
            }
            yield_now();
        }
    }

    /// `pread` of one cell; `None` at or beyond the end of the file.
    pub fn read(&self, at: usize) -> Option<u64> {
        self.read_all(at, 1).pop()
    }

    /// `pread` of `count` cells; fewer at the end of the file.
    pub fn read_all(&self, at: usize, count: usize) -> Vec<u64> {
        loop {
            let seen = SizeWord::load(&self.size);
            let end = (at + count).min(seen.size() as usize);
            if at >= end {
                return Vec::new();
            }
            let entry = MapEntry::load(&self.entry);
            if entry.place().is_some() {
                self.grant();
                continue;
            }
            let page = entry.page();
            let mut notes = [0];
            let met = if entry.is_absent() {
                Met::Holes
            } else {
                pages::observe(&self.lanes, page.0, page.0 + 1, &mut notes)
            };
            let values = match met {
                Met::Holes => vec![0; end - at],
                Met::Writer(..) if self.heeds(Flaw::ReadsHeldPages) => {
                    yield_now();
                    continue;
                }
                Met::Bytes | Met::Writer(..) => self.cells(page, at, end),
            };
            // Loom's loads stay in program order, so it would not miss this; processors would.
            fence(Ordering::Acquire);
            let is_at_rest = entry.is_absent()
                || pages::is_unchanged(&self.lanes, page.0, page.0 + 1, &notes)
                || !self.heeds(Flaw::LooksAtPagesOnce);
            let is_same_chunk =
                MapEntry::load(&self.entry) == entry || !self.heeds(Flaw::LooksOnce);
            let is_same_epoch = SizeWord::load(&self.size).epoch() == seen.epoch();
            if is_at_rest && is_same_chunk && (is_same_epoch || !self.heeds(Flaw::IgnoresEpoch)) {
                return values;
            }
            yield_now();
        }
    }

    fn cells(&self, page: PageNumber, at: usize, end: usize) -> Vec<u64> {
        (at..end).map(|cell| self.cell(page, cell).load(Ordering::Relaxed)).collect()
    }

    /// `pread` of `count` cells of a file that has them, by a reader who takes a turn among the
    /// writers.
    pub fn read_in_turn(&self, slot: usize, at: usize, count: usize) -> Vec<u64> {
        loop {
            let (entry, pin, _) = self.pin(slot);
            let page = entry.page();
            let values = self.hold(slot, entry).map(|before| {
                let values = self.cells(page, at, at + count);
                pages::give_up(&self.lanes, page.0, page.0 + 1, owner(slot), &before);
                values
            });
            if let (Some(values), true) = (values, self.leave(slot, pin)) {
                return values;
            }
            yield_now();
        }
    }

    /// `pread` of the first `count` cells of a file that has them, while memory has no room for its
    /// chunk: one after the other, from the server. `None` if the chunk is there.
    pub fn read_extents(&self, count: usize) -> Option<Vec<u64>> {
        loop {
            let evictions = self.evictions.load(Ordering::SeqCst);
            if !MapEntry::load(&self.entry).is_absent() {
                return None;
            }
            let cells: Vec<u64> = (0..count).map_while(|at| self.extent(at)).collect();
            let still = MapEntry::load(&self.entry).is_absent();
            let same = self.evictions.load(Ordering::SeqCst) == evictions;
            let same = same || !self.heeds(Flaw::IgnoresEvictions);
            if cells.len() == count && still && same {
                return Some(cells);
            }
            yield_now();
        }
    }

    /// The whole file, when nobody else is at work.
    pub fn content(&self) -> Vec<u64> {
        let size = SizeWord::load(&self.size).size() as usize;
        (0..size).filter_map(|at| self.read(at)).collect()
    }
}

/// The owner that claims through hazard slot `slot`.
pub fn owner(slot: usize) -> Owner {
    Owner(slot as u16 + 1)
}
