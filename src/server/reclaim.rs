//! Taking back: chunks from writers, tickets from the dead, memory from files that are gone or
//! safe. Every chunk goes the way `docs/decisions/2026-11-21-grant-protocol.md` prescribes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use terral_format::entry::MapEntry;
use terral_format::geometry::{CHUNK_BYTES, CHUNK_ORDER, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::hazard::{self, HazardWord};
use terral_format::ids::{FileSlot, Ino, Owner, PageNumber, SessionSlot};
use terral_format::message::FileRef;
use terral_format::names::Inode;
use terral_format::pages::{self, PageState};
use terral_format::record::Record;
use terral_format::size::{self, SizeWord};
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram::Move;
use terral_store::small::SMALL_BYTES;
use terral_store::tier;

use crate::sessions::{owner, session_of};
use crate::state::State;

/// A slot that holds a chunk longer than this is overtaken.
const OVERTAKE_AFTER: Duration = Duration::from_millis(100);
/// A closed file whose last chunk needs no more pages than this is moved into a small chunk.
const COMPACT_PAGES: u32 = 64;

impl State {
    /// Waits until nobody copies into a recalled chunk. True: somebody was overtaken, and the chunk
    /// must go to quarantine; the file has a new epoch then, so that the overtaken write cannot
    /// count.
    pub(crate) fn wait_unpinned(&mut self, slot: FileSlot, entry: MapEntry) -> bool {
        while !self.wait_in_place(entry) {
            let mut quarantined = false;
            for (session, at, word, _) in self.pins_in(entry) {
                let Some(client) = self.sessions.client(session) else { continue };
                let hazard_slot = &client.session.page().hazards[at].word;
                quarantined |= word.is_overtaken() || hazard::overtake(hazard_slot, word);
            }
            if quarantined {
                self.ram.memory().bump_size(slot);
                return true;
            }
        }
        false
    }

    /// Waits until nobody copies into a recalled chunk, not for long. False: somebody still does.
    pub(crate) fn wait_in_place(&self, entry: MapEntry) -> bool {
        let begin = self.world.now();
        while !self.pins_in(entry).is_empty() {
            if self.world.now().since(begin) > OVERTAKE_AFTER {
                return false;
            }
            self.world.give_way();
        }
        true
    }

    /// Who has entered a chunk to write there.
    pub(crate) fn owners_in(&self, entry: MapEntry) -> Vec<Owner> {
        self.pins_in(entry).into_iter().map(|(session, at, ..)| owner(session, at)).collect()
    }

    fn pins_in(&self, entry: MapEntry) -> Vec<(SessionSlot, usize, HazardWord, PageNumber)> {
        let pages = entry.page().0..entry.page().0 + entry.pages();
        self.sessions.pins().into_iter().filter(|(.., page)| pages.contains(&page.0)).collect()
    }

    /// Moves chunk `index` of a file into one of `order`, unless somebody has it mapped.
    pub fn move_chunk(&mut self, slot: FileSlot, index: u64, order: u8) -> Result<()> {
        let Some(entry) = self.recall_unmapped(slot, index) else { return Ok(()) };
        let quarantined = self.wait_unpinned(slot, entry);
        let ino = Ino(self.ram.memory().record(slot).ino().load(Ordering::SeqCst));
        let how = Move { order, quarantined, at_rest: self.debts.may_move(ino) };
        let moved = self.ram.relocate(slot, index, entry, how);
        if let Err(error) = moved {
            self.ram.unrecall(slot, index, entry);
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn release_chunk(&mut self, slot: FileSlot, index: u64) {
        if let Some(entry) = self.ram.recall(slot, index) {
            let quarantined = self.wait_unpinned(slot, entry) || self.is_mapped(entry);
            self.ram.release(slot, index, entry, quarantined);
        }
    }

    /// Makes a file `size` bytes long.
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "size"));
        }
        let slot = self.attach(ino)?;
        let file = FileRef { ino, slot };
        self.mend_size(slot);
        let memory = self.ram.memory().clone();
        let header = memory.header(slot);
        let kept = size.min(SizeWord::load(header.size()).size());
        if !kept.is_multiple_of(CHUNK_BYTES) && self.is_backed(file, kept / CHUNK_BYTES) {
            self.stage(file, kept / CHUNK_BYTES, 1)?;
        }
        self.shorten_backed(file, kept)?;
        self.commit()?;
        let held = self.recall_from(slot, kept);
        // Until here writers may have made it longer: what they wrote counts, unless it is cut off.
        let before = memory.reset_size(slot, size);
        if size == 0 || size > before {
            header.holes().store(size.min(1), Ordering::SeqCst);
        }
        let kept = size.min(before);
        memory.record(slot).backed_bytes().fetch_min(kept, Ordering::SeqCst);
        header.wrote(self.world.wall_ns());
        self.owe(ino);
        self.drop_beyond(slot, kept, held)
    }

    /// What the backing has beyond `size` does not count any more.
    fn shorten_backed(&mut self, file: FileRef, size: u64) -> Result<()> {
        let FileRef { ino, slot } = file;
        // One with other names keeps them, and is truncated there.
        let alone = |inode: &Inode| inode.published.is_some() && inode.links < 2;
        if size == 0 && self.names.inode(ino).as_ref().is_some_and(alone) {
            // Without it, the backing's old file takes them along when it goes.
            let _ = self.find_xattrs(ino);
            self.record(Record::Rewritten { ino });
        }
        let debt =
            self.debts.get(ino).and_then(|debt| Some((debt.version.clone()?, debt.draining)));
        if let Some((version, draining)) = debt {
            let mut version = version.lock().unwrap_or_else(PoisonError::into_inner);
            if draining {
                // The pass may yet bring what it took before.
                (version.cut, version.incomplete) = (true, true);
            }
            version.staged.truncate(size)?;
            version.sums.retain(|index, _| (index + 1) * CHUNK_BYTES <= size);
        }
        // Readers are told by who sets the size: until then they find there what it still counts.
        if self.ram.memory().record(slot).backed_bytes().load(Ordering::SeqCst) > size {
            self.record(Record::BackedTo { ino, size });
        }
        Ok(())
    }

    /// Recalls every chunk that has bytes from `size` on.
    fn recall_from(&mut self, slot: FileSlot, size: u64) -> Vec<(u64, MapEntry, bool)> {
        let mut held = Vec::new();
        for (index, _) in self.ram.entries(slot) {
            if (index + 1) * CHUNK_BYTES > size
                && let Some(entry) = self.ram.recall(slot, index)
            {
                let quarantined = self.wait_unpinned(slot, entry);
                held.push((index, entry, quarantined));
            }
        }
        held
    }

    /// Releases recalled chunks beyond `size`; what is kept of the last page has zeros behind it.
    fn drop_beyond(
        &mut self,
        slot: FileSlot,
        size: u64,
        held: Vec<(u64, MapEntry, bool)>,
    ) -> Result<()> {
        let mut result = Ok(());
        for (index, entry, quarantined) in held {
            let within = size.saturating_sub(index * CHUNK_BYTES);
            let mapped = self.is_mapped(entry);
            if mapped && !quarantined {
                result = self.cut_mapped(slot, index, entry, within);
            } else if within == 0 {
                self.ram.release(slot, index, entry, quarantined);
            } else {
                result = self.cut_tail(slot, index, entry, within, quarantined);
            }
        }
        result
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
        let entry = if quarantined {
            let how = Move { order: entry.order(), quarantined, at_rest: false };
            self.ram.relocate(slot, index, entry, how)?
        } else {
            entry
        };
        let entry = entry.unmappable();
        self.ram.install(slot, index, entry.recalled())?;
        let memory = self.ram.memory().clone();
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
        self.ram.unrecall(slot, index, entry);
        Ok(())
    }

    /// Makes the bytes of a recalled chunk from `within` on zeros, for those who have it mapped.
    fn cut_mapped(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        within: u64,
    ) -> Result<()> {
        let memory = self.ram.memory().clone();
        let zeroed = memory.zero_from(entry, within);
        if within > 0 {
            pages::mark_dirty(memory.lanes(), entry.page().0, entry.page().0 + entry.pages());
        }
        self.ram.unrecall(slot, index, entry);
        zeroed
    }

    /// After a restart in the middle of a recall: if that was for a truncate, what lies beyond the
    /// size goes; if it was not, the writers it stopped begin anew anyway.
    pub fn cut_to_size(&mut self, slot: FileSlot) -> Result<()> {
        let held = self.recall_from(slot, self.ram.size(slot));
        let size = self.ram.memory().bump_size(slot);
        self.drop_beyond(slot, size, held)
    }

    /// Takes the append ticket from who has it: what was appended and not published is cut off.
    fn revoke_ticket(&mut self, slot: FileSlot, owner: Owner) -> Result<()> {
        let memory = self.ram.memory().clone();
        let header = memory.header(slot);
        if !size::holds_ticket(header.ticket(), owner) {
            return Ok(());
        }
        let held = self.recall_from(slot, SizeWord::load(header.size()).size());
        let size = memory.revoke_ticket(slot, owner);
        self.drop_beyond(slot, size, held)
    }

    /// A page being written or an append ticket has not moved for long: takes it from `in_the_way`
    /// if that is dead, or sleeps.
    pub fn unblock(&mut self, file: FileRef, index: u64, in_the_way: Owner) -> Result<()> {
        self.open_file(file)?;
        self.mend_ticket(file.slot);
        self.mend_pages(file.slot, index);
        let alive = session_of(in_the_way)
            .and_then(|(session, _)| self.sessions.client(session))
            .is_some_and(|client| client.process.is_alive());
        let entry = self.ram.memory().entry(file.slot, index).unrecalled();
        if !entry.is_absent() {
            let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
            let lanes = self.ram.memory().lanes();
            if !alive {
                self.abandon(first, last, in_the_way);
            } else if pages::holds_some(lanes, first, last, in_the_way) {
                self.with_room(|state| state.move_chunk(file.slot, index, entry.order()))?;
            }
        }
        self.revoke_ticket(file.slot, in_the_way)
    }

    // The end of clients and files.

    /// A client is dead: gives up what it was doing. It stays while a change that it has deferred
    /// cannot be applied, as it has the authority for that.
    pub fn end_session(&mut self, session: SessionSlot) -> Result<()> {
        if self.sessions.client(session).is_none() {
            return Ok(());
        }
        self.apply_deferred()?;
        self.ram.memory().deferred().drop_claims(session.0);
        if self.waiting.has(session) {
            // What it has open may be what is waited for.
            self.close_all_of(session)?;
            self.commit()?;
            self.waiting.hasten(self.world.now());
            self.apply_deferred()?;
            if self.waiting.has(session) {
                return Ok(());
            }
        }
        let Some(client) = self.sessions.client(session) else { return Ok(()) };
        let counted = crate::sessions::counted(&client.session.page().counters);
        let near = client.near;
        let memory = self.ram.memory().clone();
        for (at, slot) in client.session.page().hazards.iter().enumerate() {
            if let Some(page) = hazard::observe(&slot.word).page() {
                let chunk = page.0 & !((1 << CHUNK_ORDER) - 1);
                if chunk < memory.geometry.arena_pages() {
                    let last = chunk + (1 << CHUNK_ORDER);
                    self.abandon(page.0, last, owner(session, at));
                }
            }
            hazard::drop_dead(&slot.word);
        }
        self.revoke_tickets(session)?;
        if let Some(segment) = near {
            self.ram.allocator().writer(segment, false);
        }
        self.machine.remove_page(session);
        if counted.is_none() {
            self.say_counts_spoiled();
        }
        let totals = counted.unwrap_or_default();
        self.record(Record::SessionEnded { session, totals });
        self.reclaim_lock_blocks();
        self.close_unheld(Some(session))?;
        self.commit()?;
        self.leave_quarantine();
        Ok(())
    }

    /// Gives up what a dead process held of these pages; what it had begun to write in a hole goes.
    pub(crate) fn abandon(&self, first: u32, last: u32, dead: Owner) {
        let memory = self.ram.memory();
        // A page that cannot be written for want of memory is no page yet: zeros.
        let _ = memory.zero_pages(first, last, |state| state == PageState::Claimed(dead));
        pages::abandon(memory.lanes(), first, last, dead);
    }

    /// Takes back the append tickets of a dead client.
    fn revoke_tickets(&mut self, session: SessionSlot) -> Result<()> {
        let slot_of = |ino| self.names.inode(ino).and_then(|inode| inode.slot);
        let mut slots: Vec<_> =
            self.descriptions.iter().filter_map(|(_, open)| slot_of(open.ino)).collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let holder = self.ram.memory().header(slot).ticket().load(Ordering::SeqCst);
            let holder = Owner(holder as u16);
            if session_of(holder).is_some_and(|(of, _)| of == session) {
                self.revoke_ticket(slot, holder)?;
            }
        }
        Ok(())
    }

    /// The last description of a file that could write is closed: what it does not need goes back.
    pub fn settle_closed(&mut self, ino: Ino) -> Result<()> {
        let Some(inode) = self.names.inode(ino) else { return Ok(()) };
        let openers = self.names.openers(ino);
        let (Some(slot), 0, true) = (inode.slot, openers.writers, self.debts.may_move(ino)) else {
            return Ok(());
        };
        self.mend_size(slot);
        let idle = openers.all == 0 && self.debts.get(ino).is_none();
        if idle && self.ram.size(slot) <= SMALL_BYTES && self.ram.entries(slot).len() < 2 {
            return self.linger(ino);
        }
        // Who opens it without our knowing yet may have written beyond the size that we would see.
        if self.bar(ino) {
            self.shrink(ino, slot);
            self.unbar();
        }
        if idle && self.ram.entries(slot).is_empty() { self.linger(ino) } else { Ok(()) }
    }

    /// What a file that nobody writes does not need of its chunks goes back.
    pub(crate) fn shrink(&mut self, ino: Ino, slot: FileSlot) {
        let owed = self.debts.get(ino).is_some();
        let size = self.ram.size(slot);
        let past = size.div_ceil(CHUNK_BYTES);
        for (index, entry) in self.ram.entries(slot) {
            if index >= past {
                if self.recall_unmapped(slot, index).is_some() {
                    self.release_chunk(slot, index);
                }
            } else if index + 1 == past {
                let needed = (size - index * CHUNK_BYTES).div_ceil(PAGE_BYTES as u64) as u32;
                let order = needed.next_power_of_two().trailing_zeros() as u8;
                // What is small already waits until the drain has had it.
                let worth = entry.order() == CHUNK_ORDER || !owed;
                if needed <= COMPACT_PAGES && order < entry.order() && worth {
                    // A full memory tier only means that the file keeps its larger chunk.
                    let _ = self.move_chunk(slot, index, order);
                }
            }
        }
    }

    /// A file without name and openers: its bytes go.
    pub fn bury(&mut self, ino: Ino) {
        let Some(inode) = self.names.inode(ino).filter(|inode| self.is_orphan(inode)) else {
            return;
        };
        if !self.bar(ino) {
            self.bury_later(ino);
            return;
        }
        self.bury_barred(ino, &inode);
        self.unbar();
    }

    fn bury_barred(&mut self, ino: Ino, inode: &Inode) {
        if let Some(slot) = inode.slot {
            for (index, _) in self.ram.entries(slot) {
                self.release_chunk(slot, index);
            }
        }
        if !self.debts.may_move(ino) {
            // A drain is at it, finds nothing more, and buries it when it is through.
            return;
        }
        self.unpacked(inode);
        if let Some(slot) = inode.slot {
            self.ram.detach(slot);
        }
        self.bury_node(inode);
        self.names.forget(ino);
        self.unlock_gone(ino);
        self.xattrs.forget(ino);
        if let Some(version) = self.debts.paid(ino).and_then(|debt| debt.version)
            && let Some(version) = Arc::into_inner(version)
        {
            let version = version.into_inner().unwrap_or_else(PoisonError::into_inner);
            version.staged.discard();
        }
    }

    // What is owed.

    /// Bytes of a file that are not yet drained, as a person counts them: no more than it has.
    pub fn owed_bytes(&self, slot: FileSlot) -> u64 {
        self.resident(slot).1.min(self.ram.size(slot))
    }

    /// Whether a file has pages that a drain could copy now.
    pub fn has_dirty(&self, slot: FileSlot) -> bool {
        let memory = self.ram.memory();
        let owed = |entry: MapEntry| !entry.is_stored() && tier::owed_bytes(memory, entry) > 0;
        self.ram.entries(slot).into_iter().any(|(_, entry)| owed(entry))
    }

    /// Bytes of a file in memory, and those of pages not yet drained.
    pub fn resident(&self, slot: FileSlot) -> (u64, u64) {
        let memory = self.ram.memory();
        self.ram.entries(slot).iter().fold((0, 0), |(held, owed), (_, entry)| {
            let bytes = u64::from(entry.pages()) * PAGE_BYTES as u64;
            (held + bytes, owed + tier::owed_bytes(memory, *entry))
        })
    }
}
