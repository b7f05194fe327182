//! Taking back: chunks from writers, tickets from the dead, memory from files that are gone or
//! safe. Every chunk goes the way `docs/decisions/2026-11-21-grant-protocol.md` prescribes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino, Owner, SessionSlot};
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::local::names::Inode;
use terral_format::local::pages::{self};
use terral_format::local::size::SizeWord;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};
use terral_store::small::SMALL_BYTES;

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::sessions::clients::session_of;

/// A closed file whose last chunk needs no more pages than this is moved into a small chunk.
const COMPACT_PAGES: u32 = 64;

/// Takes the append ticket of a file from who has it. What he had appended may have been copied to
/// where nothing of the file is: the new version gets all of it anew.
fn revoke_ticket(state: &mut State, file: FileRef, holder: Owner) -> Result<()> {
    let revoked = state.storage.revoke_ticket(&state.sessions, file.slot, holder);
    let version = state.debts.get(file.ino).and_then(|debt| debt.version.as_ref());
    if let (Some(version), Ok(true) | Err(_)) = (version, &revoked) {
        version.set_incomplete(does(Step::CopyAnew) || version.is_incomplete());
    }
    revoked.map(drop)
}

impl State {
    /// Moves chunk `index` of a file into one of `order`, unless somebody has it mapped.
    pub(crate) fn move_chunk(&mut self, slot: FileSlot, index: u64, order: u8) -> Result<()> {
        let ino = Ino(self.storage.memory().record(slot).ino().load(Ordering::SeqCst));
        let at_rest = self.debts.may_move(ino);
        self.storage.move_chunk(&self.sessions, (slot, index), order, at_rest)
    }

    /// Bytes of a file below this without a chunk lie in the backing.
    pub(crate) fn backed_bytes(&self, inode: &Inode) -> u64 {
        inode.slot.map_or(inode.backed_bytes, |slot| self.storage.backed_bytes(slot))
    }

    /// Makes a file `size` bytes long.
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "size"));
        }
        let slot = self.attach(ino)?;
        let file = FileRef { ino, slot };
        self.storage.mend_size(slot);
        let memory = self.storage.memory().clone();
        let header = memory.header(slot);
        let kept = size.min(SizeWord::load(header.size()).size());
        let last = kept / CHUNK_BYTES;
        let absent = memory.entry(slot, last).is_absent();
        if absent && !kept.is_multiple_of(CHUNK_BYTES) && self.storage.is_backed(file, last) {
            self.stage(file, last, 1)?;
        }
        self.shorten_backed(file, kept)?;
        self.commit()?;
        let held = self.storage.recall_from(&self.sessions, slot, kept);
        // Until here writers may have made it longer: what they wrote counts, unless it is cut off.
        let before = memory.reset_size(slot, size);
        if size == 0 || size > before {
            header.holes().store(size.min(1), Ordering::SeqCst);
        }
        let kept = size.min(before);
        memory.record(slot).backed_bytes().fetch_min(kept, Ordering::SeqCst);
        header.wrote(self.storage.time_ns());
        self.owe(ino);
        self.storage.drop_beyond(slot, kept, held)
    }

    /// What the backing has beyond `size` does not count any more.
    fn shorten_backed(&mut self, file: FileRef, size: u64) -> Result<()> {
        let FileRef { ino, slot } = file;
        // One with other names keeps them, and is truncated there.
        let alone = |inode: &Inode| inode.published.is_some() && inode.links < 2;
        if size == 0 && self.names.inode(ino).as_ref().is_some_and(alone) {
            // Without it, the backing's old file takes them along when it goes.
            match self.find_xattrs(ino) {
                Err(error) if self.fetches.is_waiting() => return Err(error),
                _ => {}
            }
            self.record(Fact::Rewritten { ino });
        }
        if let Some((version, draining)) =
            self.debts.get(ino).and_then(|debt| Some((debt.version.as_ref()?, debt.draining)))
        {
            version.cut(size);
            if draining {
                // The pass may yet bring what it took before.
                version.set_incomplete(true);
            }
        }
        // Readers are told by who sets the size: until then they find there what it still counts.
        if self.storage.memory().record(slot).backed_bytes().load(Ordering::SeqCst) > size {
            self.record(Fact::BackedTo { ino, size });
        }
        Ok(())
    }

    /// A page being written or an append ticket has not moved for long: takes it from `in_the_way`
    /// if that is dead, or sleeps.
    pub fn unblock(&mut self, file: FileRef, index: u64, in_the_way: Owner) -> Result<()> {
        self.open_file(file)?;
        self.storage.mend_ticket(file.slot);
        self.storage.mend_pages(&self.sessions, file.slot, index);
        let alive = session_of(in_the_way)
            .and_then(|(session, _)| self.sessions.client(session))
            .is_some_and(|client| client.process.is_alive());
        let entry = self.storage.memory().entry(file.slot, index).unrecalled();
        if entry.is_here() {
            let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
            let lanes = self.storage.memory().lanes();
            if !alive {
                self.storage.abandon(first, last, in_the_way);
            } else if pages::holds_some(lanes, first, last, in_the_way) {
                self.with_room(|state| state.move_chunk(file.slot, index, entry.order()))?;
            }
        }
        revoke_ticket(self, file, in_the_way)
    }

    // The end of clients and files.

    /// A client is dead: gives up what it was doing. It stays while a change that it has deferred
    /// cannot be applied, as it has the authority for that.
    pub fn end_session(&mut self, session: SessionSlot) -> Result<()> {
        if self.sessions.client(session).is_none() {
            return Ok(());
        }
        self.apply_deferred()?;
        self.storage.memory().deferred().drop_claims(session.0);
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
        let counted = crate::sessions::clients::counted(&client.session.page().counters);
        self.storage.forget_client(session, client);
        let open: BTreeSet<Ino> = self.descriptions.iter().map(|(_, open)| open.ino).collect();
        for ino in open {
            let slot = self.names.inode(ino).and_then(|inode| inode.slot);
            let holder = slot.and_then(|slot| self.storage.ticket_of(session, slot));
            if let (Some(slot), Some(holder)) = (slot, holder) {
                revoke_ticket(self, FileRef { ino, slot }, holder)?;
            }
        }
        self.machine.remove_page(session);
        if counted.is_none() {
            self.say_counts_spoiled();
        }
        let totals = counted.unwrap_or_default();
        self.record(Local::SessionEnded { session, totals });
        self.reclaim_lock_blocks();
        self.close_unheld(Some(session))?;
        self.commit()?;
        self.storage.leave_quarantine(&self.sessions);
        Ok(())
    }

    /// The last description of a file that could write is closed: what it does not need goes back.
    pub fn settle_closed(&mut self, ino: Ino) -> Result<()> {
        let Some(inode) = self.names.inode(ino) else { return Ok(()) };
        let openers = self.names.openers(ino);
        let (Some(slot), 0, true) = (inode.slot, openers.writers, self.debts.may_move(ino)) else {
            return Ok(());
        };
        self.storage.mend_size(slot);
        let idle = openers.all == 0 && self.debts.get(ino).is_none();
        if idle && self.storage.size(slot) <= SMALL_BYTES && self.storage.entries(slot).len() < 2 {
            return self.linger(ino);
        }
        // Who opens it without our knowing yet may have written beyond the size that we would see.
        if self.bar(ino) {
            self.shrink(ino, slot);
            self.unbar();
        }
        if idle && self.storage.entries(slot).is_empty() { self.linger(ino) } else { Ok(()) }
    }

    /// What a file that nobody writes does not need of its chunks goes back.
    pub(crate) fn shrink(&mut self, ino: Ino, slot: FileSlot) {
        let owed = self.debts.get(ino).is_some();
        let size = self.storage.size(slot);
        let past = size.div_ceil(CHUNK_BYTES);
        for (index, entry) in self.storage.entries(slot) {
            if index >= past {
                let spilled = entry.place().is_some();
                if spilled || self.storage.recall_unmapped(slot, index).is_some() {
                    self.storage.release_chunk(&self.sessions, slot, index);
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
            for (index, _) in self.storage.entries(slot) {
                self.storage.release_chunk(&self.sessions, slot, index);
            }
        }
        if !self.debts.may_move(ino) {
            // A drain is at it, finds nothing more, and buries it when it is through.
            return;
        }
        self.storage.unpacked(inode);
        if let Some(slot) = inode.slot {
            self.storage.detach(slot);
        }
        self.bury_node(inode);
        self.names.forget(ino);
        self.unlock_gone(ino);
        self.xattrs.forget(ino);
        let version = self.debts.paid(ino).and_then(|debt| debt.version);
        self.debts.discarded.extend(version);
    }
}
