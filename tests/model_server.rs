//! The server's part in the model of the grant protocol: grant, recall, move, truncate, revoke,
//! drain.
//!
//! Each runs under the machine's `server` lock: one thread of the server decides about chunks. A
//! chunk that nobody can reach is given to another file at once, which fills it with
//! [`FOREIGN`]: whatever is stored there afterwards is a lost chunk's ghost.

use loom::sync::atomic::{Ordering, fence};
use loom::thread::yield_now;
use terral_format::ids::{PageNumber, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::hazard;
use terral_format::local::pages::{self, Met, PageState};
use terral_format::local::size::{self, SizeWord};

use crate::model::{FOREIGN, Flaw, Machine, owner, sequential};

/// What the server does about a writer in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits until the writer leaves.
    Waits,
    /// Overtakes it: it may have stopped.
    Overtakes,
}

impl Machine {
    /// Gives the file a chunk if it has none; one that is spilled comes back.
    pub fn grant(&self) {
        let mut used = self.server.lock().expect("no panic under the lock");
        let entry = MapEntry::load(&self.entry);
        if entry.is_here() {
            return;
        }
        let new = fresh(&mut used);
        if entry.place().is_some() {
            for (cell, from) in self.place.iter().enumerate() {
                self.cell(new.page(), cell).store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            pages::fill(&self.lanes, new.page().0, new.page().0 + 1, true);
        }
        new.store(&self.entry);
    }

    /// Copies the chunk to the spill, without the lock; then, under it, takes it out of memory if
    /// it is as it was.
    pub fn spill(&self) {
        let entry = MapEntry::load(&self.entry);
        let (first, last) = (entry.page().0, entry.page().0 + 1);
        let mut seen = [0];
        let met = pages::observe(&self.lanes, first, last, &mut seen);
        if !entry.is_here() || entry.is_recalled() || matches!(met, Met::Writer(..)) {
            return;
        }
        for (cell, to) in self.place.iter().enumerate() {
            to.store(self.cell(entry.page(), cell).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let used = self.server.lock().expect("no panic under the lock");
        if MapEntry::load(&self.entry) != entry {
            return;
        }
        entry.recalled().store(&self.entry);
        sequential();
        let in_it = |slot| hazard::observe(slot).page() == Some(entry.page());
        let written = self.heeds(Flaw::SpillsUnderWriters) && self.slots.iter().any(in_it);
        let same = pages::is_unchanged(&self.lanes, first, last, &seen);
        if written || (self.heeds(Flaw::SpillsWhatChanged) && !same) {
            entry.store(&self.entry);
            return;
        }
        MapEntry::spilled(SpillPlace(0), 0, 99).store(&self.entry);
        drop(used);
        self.recycle(entry, false);
    }

    /// Moves the file to another chunk.
    pub fn relocate(&self, patience: Patience) {
        let mut used = self.server.lock().expect("no panic under the lock");
        let old = MapEntry::load(&self.entry);
        let quarantined = self.recall(old, patience);
        self.carry(old, fresh(&mut used), self.page_cells, quarantined);
        drop(used);
        self.recycle(old, quarantined);
    }

    /// `ftruncate` to `cells`.
    pub fn truncate(&self, cells: usize, patience: Patience) {
        let mut used = self.server.lock().expect("no panic under the lock");
        let seen = SizeWord::load(&self.size).size();
        let old = MapEntry::load(&self.entry);
        let quarantined = self.recall(old, patience);
        let mut counted = seen;
        if self.heeds(Flaw::ResetsAfterPublishing) {
            let replaced = size::reset(&self.size, cells as u64);
            counted = if self.heeds(Flaw::CutsAtFirstLook) { replaced } else { seen };
        }
        sequential();
        if cells == 0 {
            MapEntry::ABSENT.store(&self.entry);
        } else {
            let kept = cells.min(counted as usize);
            let keep = if self.heeds(Flaw::KeepsLostBytes) { kept } else { self.page_cells };
            self.carry(old, fresh(&mut used), keep, quarantined);
        }
        if !self.heeds(Flaw::ResetsAfterPublishing) {
            size::reset(&self.size, cells as u64);
        }
        drop(used);
        self.recycle(old, quarantined);
    }

    /// The file is written with this token or a greater one from now on.
    pub fn raise_fence(&self, token: u64, patience: Patience) {
        let mut used = self.server.lock().expect("no panic under the lock");
        self.fence.fetch_max(token, Ordering::SeqCst);
        sequential();
        let old = MapEntry::load(&self.entry);
        if !old.is_here() || !self.heeds(Flaw::FencesUnderWriters) {
            return;
        }
        if !self.recall(old, patience) {
            old.store(&self.entry);
            size::bump(&self.size);
            return;
        }
        self.carry(old, fresh(&mut used), self.page_cells, true);
        size::bump(&self.size);
        drop(used);
        self.recycle(old, true);
    }

    /// Takes the append ticket away from `slot`, dead or stopped, if it has it: a truncation to the
    /// size that the file has.
    pub fn revoke(&self, slot: usize) {
        let mut used = self.server.lock().expect("no panic under the lock");
        if !size::holds_ticket(&self.ticket, owner(slot)) {
            return;
        }
        let old = MapEntry::load(&self.entry);
        if old.is_absent() || !self.heeds(Flaw::RevokesUnderPin) {
            size::revoke_ticket(&self.size, &self.ticket, owner(slot));
            return;
        }
        let quarantined = self.recall(old, Patience::Overtakes);
        let size = size::revoke_ticket(&self.size, &self.ticket, owner(slot)) as usize;
        sequential();
        let keep = if self.heeds(Flaw::KeepsLostBytes) { size } else { self.page_cells };
        self.carry(old, fresh(&mut used), keep, quarantined);
        drop(used);
        self.recycle(old, quarantined);
    }

    /// Frees what a dead process held through `slot`.
    pub fn reap(&self, slot: usize) {
        let _used = self.server.lock().expect("no panic under the lock");
        if let Some(page) = hazard::observe(&self.slots[slot]).page() {
            if self.heeds(Flaw::BuriesAsHole) {
                pages::abandon(&self.lanes, page.0, page.0 + 1, owner(slot));
            } else {
                pages::reset(&self.lanes, page.0, page.0 + 1);
            }
        }
        hazard::drop_dead(&self.slots[slot]);
    }

    /// Copies the dirty page, if it is, to the backing.
    pub fn drain(&self) {
        let _used = self.server.lock().expect("no panic under the lock");
        let page = MapEntry::load(&self.entry).page();
        let copy = || {
            for (cell, to) in self.backing.iter().enumerate() {
                let value = self.cell(page, cell).load(Ordering::Relaxed);
                to.store(value, Ordering::Relaxed);
            }
        };
        if !self.heeds(Flaw::DrainsBeforeTaking) {
            copy();
        }
        let mut is_dirty = false;
        pages::take_dirty(&self.lanes, page.0, page.0 + 1, |_, _| is_dirty = true);
        if is_dirty && self.heeds(Flaw::DrainsBeforeTaking) {
            copy();
        }
    }

    /// Takes the chunk out of memory if the backing has it as it is.
    pub fn evict(&self) {
        let used = self.server.lock().expect("no panic under the lock");
        let old = MapEntry::load(&self.entry);
        if old.is_absent() {
            return;
        }
        let quarantined = self.recall(old, Patience::Waits);
        if pages::state(&self.lanes, old.page().0) != (PageState::Valid { dirty: false }) {
            old.store(&self.entry);
            return;
        }
        if self.heeds(Flaw::EvictsUncounted) {
            self.evictions.fetch_add(1, Ordering::SeqCst);
        }
        MapEntry::ABSENT.store(&self.entry);
        drop(used);
        self.recycle(old, quarantined);
    }

    /// What the backing has of an absent chunk; `None` if it is there.
    pub fn extent(&self, cell: usize) -> Option<u64> {
        let _used = self.server.lock().expect("no panic under the lock");
        let absent = MapEntry::load(&self.entry).is_absent();
        absent.then(|| self.backing[cell].load(Ordering::Relaxed))
    }

    /// Whether every valid and clean page is in the backing as it is in memory.
    pub fn is_drained_or_dirty(&self) -> bool {
        let page = MapEntry::load(&self.entry).page();
        let clean = pages::state(&self.lanes, page.0) == PageState::Valid { dirty: false };
        let same = |(cell, to): (usize, &loom::sync::atomic::AtomicU64)| {
            self.cell(page, cell).load(Ordering::Relaxed) == to.load(Ordering::Relaxed)
        };
        !clean || self.backing.iter().enumerate().all(same)
    }

    /// Whether no byte was stored to page `page` after it went to another file.
    pub fn is_unharmed(&self, page: u32) -> bool {
        let cells = 0..self.page_cells;
        cells
            .map(|at| self.cell(PageNumber(page), at))
            .all(|c| c.load(Ordering::Relaxed) == FOREIGN)
    }

    /// [`Machine::is_unharmed`] if the file is not in page `page` any more.
    pub fn is_unharmed_if_left(&self, page: u32) -> bool {
        MapEntry::load(&self.entry).page().0 == page || self.is_unharmed(page)
    }

    /// Raises the recall flag and gets every writer out of the chunk, or past it: then true.
    fn recall(&self, old: MapEntry, patience: Patience) -> bool {
        old.recalled().store(&self.entry);
        sequential();
        let mut quarantined = false;
        for slot in &self.slots {
            loop {
                let seen = hazard::observe(slot);
                if seen.page() != Some(old.page()) {
                    break;
                }
                if patience == Patience::Waits {
                    yield_now();
                } else if hazard::overtake(slot, seen) {
                    quarantined = true;
                    break;
                }
            }
        }
        let tells = self.heeds(Flaw::OvertakesInSilence) && self.heeds(Flaw::ForgetsOvertaken);
        if quarantined && tells {
            size::bump(&self.size);
        }
        sequential();
        quarantined
    }

    /// Copies the first `keep` cells to the new chunk and publishes its entry.
    fn carry(&self, old: MapEntry, new: MapEntry, keep: usize, quarantined: bool) {
        if let PageState::Valid { dirty } = pages::state(&self.lanes, old.page().0) {
            for cell in 0..self.page_cells {
                let value = self.cell(old.page(), cell).load(Ordering::Relaxed);
                let value = if cell < keep { value } else { 0 };
                self.cell(new.page(), cell).store(value, Ordering::Relaxed);
            }
            let torn = quarantined && self.heeds(Flaw::MovesAsClean);
            let page = new.page().0;
            pages::fill(&self.lanes, page, page + 1, dirty || torn || keep < self.page_cells);
        }
        new.store(&self.entry);
    }

    /// Gives the chunk to another file, as soon as no overtaken writer can store to it.
    fn recycle(&self, old: MapEntry, quarantined: bool) {
        let page = old.page();
        while quarantined
            && self.heeds(Flaw::RecyclesQuarantined)
            && self.slots.iter().any(|slot| hazard::observe(slot).page() == Some(page))
        {
            yield_now();
        }
        sequential();
        pages::reset(&self.lanes, page.0, page.0 + 1);
        for cell in 0..self.page_cells {
            self.cell(page, cell).store(FOREIGN, Ordering::Relaxed);
        }
        pages::fill(&self.lanes, page.0, page.0 + 1, true);
    }
}

fn fresh(used: &mut usize) -> MapEntry {
    *used += 1;
    MapEntry::new(PageNumber(*used as u32 - 1), 0, *used as u32)
}
