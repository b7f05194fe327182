//! Chunks that are taken back, moved and cut, and what the dead leave in them. Every chunk goes the
//! way `docs/decisions/2026-11-21-grant-protocol.md` prescribes. Not here: why.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::{FileSlot, Owner, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER, PAGE_BYTES};
use terral_format::local::hazard;
use terral_format::local::pages::{self, PageState};
use terral_format::local::size::{self, SizeWord};
use terral_store::memory::Memory;
use terral_store::ram::Move;

use super::Storage;
use crate::sessions::clients::{Client, Sessions, owner, session_of};

/// A recalled chunk: its index, its entry, and whether somebody was overtaken in it.
pub type Recalled = (u64, MapEntry, bool);

impl Storage {
    /// Moves chunk `index` of a file into one of `order`, unless somebody has it mapped; `at_rest`
    /// if no drain is at it.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full; it stays then.
    pub fn move_chunk(
        &mut self,
        clients: &Sessions,
        (slot, index): (FileSlot, u64),
        order: u8,
        at_rest: bool,
    ) -> Result<()> {
        if self.memory().entry(slot, index).is_borrowed() {
            // What is asked back stays as it is.
            return Ok(());
        }
        let Some(entry) = self.recall_unmapped(slot, index) else { return Ok(()) };
        let quarantined = self.wait_unpinned(clients, slot, entry);
        self.moved(slot, index, entry, Move { order, quarantined, at_rest })
    }

    /// Moves a recalled chunk.
    pub(super) fn moved(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        how: Move,
    ) -> Result<()> {
        let moved = self.ram.relocate(slot, index, entry, how);
        if moved.is_err() {
            self.ram.unrecall(slot, index, entry);
        }
        moved.map(drop)
    }

    /// A chunk is the file's no more. Who is in it is waited for; who does not move, or has it
    /// mapped, keeps it from everybody else.
    pub fn release_chunk(&mut self, clients: &Sessions, slot: FileSlot, index: u64) {
        self.ram.drop_spilled(slot, index);
        self.lose_away(slot, index);
        if let Some(entry) = self.ram.recall(slot, index) {
            let quarantined = self.wait_unpinned(clients, slot, entry) || self.is_mapped(entry);
            self.ram.release(slot, index, entry, quarantined);
        }
    }

    /// Recalls every chunk that has bytes from `size` on.
    pub fn recall_from(&mut self, clients: &Sessions, slot: FileSlot, size: u64) -> Vec<Recalled> {
        let mut held = Vec::new();
        for (index, entry) in self.entries(slot) {
            if (index + 1) * CHUNK_BYTES <= size {
                continue;
            }
            if entry.place().is_some() {
                // The flag says to the next server what was not finished.
                self.ram.recall_spilled(slot, index);
                held.push((index, entry.unrecalled(), false));
            } else if let Some(entry) = self.ram.recall(slot, index) {
                let quarantined = self.wait_unpinned(clients, slot, entry);
                held.push((index, entry, quarantined));
            }
        }
        held
    }

    /// As [`Storage::recall_from`], if there is room for what a cut there must move: a chunk in
    /// which a writer sleeps.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if there is none; nothing is recalled then.
    pub fn recall_to_cut(
        &mut self,
        clients: &Sessions,
        slot: FileSlot,
        size: u64,
    ) -> Result<Vec<Recalled>> {
        let held = self.recall_from(clients, slot, size);
        let moves = |(index, entry, quarantined): &&Recalled| {
            *quarantined && entry.is_here() && index * CHUNK_BYTES < size
        };
        let room = held.iter().find(moves).map(|(_, entry, _)| self.find_room(entry.order()));
        if let Some(Err(error)) = room {
            self.let_go(slot, &held);
            return Err(error);
        }
        Ok(held)
    }

    /// Recalled chunks stay as they are.
    fn let_go(&mut self, slot: FileSlot, held: &[Recalled]) {
        held.iter().for_each(|(index, entry, _)| self.unrecall(slot, *index, *entry));
    }

    /// Releases recalled chunks beyond `size`; what is kept of the last page has zeros behind it.
    ///
    /// # Errors
    /// The first of them; the others are released all the same, and no recall flag stays up.
    pub fn drop_beyond(&mut self, slot: FileSlot, size: u64, held: Vec<Recalled>) -> Result<()> {
        let mut result = Ok(());
        for (index, entry, quarantined) in held {
            let within = size.saturating_sub(index * CHUNK_BYTES);
            if entry.place().is_some() {
                self.drop_spilled_beyond((slot, index), entry, within);
                continue;
            }
            let mapped = self.is_mapped(entry);
            if mapped && !quarantined {
                result = result.and(self.cut_mapped(slot, index, entry, within));
            } else if within == 0 {
                self.ram.release(slot, index, entry, quarantined);
            } else {
                result = result.and(self.cut_tail(slot, index, entry, within, quarantined));
            }
        }
        result
    }

    /// The same of one that is spilled.
    fn drop_spilled_beyond(
        &mut self,
        (slot, index): (FileSlot, u64),
        entry: MapEntry,
        within: u64,
    ) {
        if within == 0 {
            self.ram.drop_spilled(slot, index);
            return;
        }
        self.ram.cut_spilled(entry, within);
        self.ram.unrecall(slot, index, entry);
    }

    /// Makes the bytes of a recalled chunk from `within` on a hole again.
    fn cut_tail(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        within: u64,
        quarantined: bool,
    ) -> Result<()> {
        // The writer that sleeps in it must not wake up in the middle of what we cut.
        let how = Move { order: entry.order(), quarantined, at_rest: false };
        let moved = match quarantined {
            true => self.ram.relocate(slot, index, entry, how),
            false => Ok(entry),
        };
        let cut = moved.and_then(|entry| {
            let entry = entry.unmappable();
            self.ram.install(slot, index, entry.recalled())?;
            make_hole(self.memory(), entry, within)
        });
        // What could not be cut is used as it is, until it is cut again.
        let kept = self.memory().entry(slot, index);
        self.ram.unrecall(slot, index, kept);
        cut
    }

    /// Makes the bytes of a recalled chunk from `within` on zeros, for those who have it mapped.
    fn cut_mapped(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        within: u64,
    ) -> Result<()> {
        let memory = self.memory().clone();
        let zeroed = memory.zero_from(entry, within);
        if within > 0 {
            pages::mark_dirty(memory.lanes(), entry.page().0, entry.page().0 + entry.pages());
        }
        self.ram.unrecall(slot, index, entry);
        zeroed
    }

    /// After a restart in the middle of a recall: if that was for a truncate, what lies beyond the
    /// size goes; if it was not, the writers it stopped begin anew anyway.
    pub fn cut_to_size(&mut self, clients: &Sessions, slot: FileSlot) -> Result<()> {
        let held = self.recall_from(clients, slot, self.size(slot));
        let size = self.memory().bump_size(slot);
        self.drop_beyond(slot, size, held)
    }

    /// Takes the append ticket from who has it: what was appended and not published is cut off.
    /// False: he does not have it.
    pub fn revoke_ticket(
        &mut self,
        clients: &Sessions,
        slot: FileSlot,
        owner: Owner,
    ) -> Result<bool> {
        let memory = self.memory().clone();
        let header = memory.header(slot);
        if !size::holds_ticket(header.ticket(), owner) {
            return Ok(false);
        }
        let held = self.recall_from(clients, slot, SizeWord::load(header.size()).size());
        let size = memory.revoke_ticket(slot, owner);
        self.drop_beyond(slot, size, held).map(|()| true)
    }

    /// Gives up what a dead process held of these pages; what it had begun to write in a hole goes.
    pub fn abandon(&self, first: u32, last: u32, dead: Owner) {
        let memory = self.memory();
        // A page that cannot be written for want of memory is no page yet: zeros.
        let _ = memory.zero_pages(first, last, |state| state == PageState::Claimed(dead));
        pages::abandon(memory.lanes(), first, last, dead);
    }

    /// A client is dead: gives up what it was doing in chunks.
    pub fn forget_client(&mut self, session: SessionSlot, client: &Client) {
        for (at, slot) in client.session.page().hazards.iter().enumerate() {
            if let Some(page) = hazard::observe(&slot.word).page() {
                let chunk = page.0 & !((1 << CHUNK_ORDER) - 1);
                if chunk < self.memory().geometry.arena_pages() {
                    let last = chunk + (1 << CHUNK_ORDER);
                    self.abandon(page.0, last, owner(session, at));
                }
            }
            hazard::drop_dead(&slot.word);
        }
        self.are_through(session);
    }

    /// Under which number a client has the append ticket of a file, if it has.
    pub fn ticket_of(&self, session: SessionSlot, slot: FileSlot) -> Option<Owner> {
        let holder = self.memory().header(slot).ticket().load(Ordering::SeqCst);
        let holder = Owner(holder as u16);
        session_of(holder).filter(|(of, _)| *of == session).map(|_| holder)
    }
}

/// Makes the bytes of a chunk from `within` on a hole; behind what is kept of a page, zeros.
fn make_hole(memory: &Memory, entry: MapEntry, within: u64) -> Result<()> {
    let page = (within / PAGE_BYTES as u64) as u32;
    let rest = PAGE_BYTES - (within % PAGE_BYTES as u64) as usize;
    let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
    let mut from = first + page;
    if rest < PAGE_BYTES && from < last {
        if matches!(pages::state(memory.lanes(), from), PageState::Valid { .. }) {
            memory.write(entry.page(), within, &vec![0; rest])?;
        }
        from += 1;
    }
    if from < last {
        pages::reset(memory.lanes(), from, last);
    }
    pages::mark_dirty(memory.lanes(), first, last);
    Ok(())
}
