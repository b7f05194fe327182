//! Eviction: what the backing has leaves memory when memory is full.
//!
//! Invariants: a chunk goes only if nothing of it is owed, nobody writes to it or has it mapped, no
//! append is under way in it, and the backing has all of it that the file's size counts. Not here:
//! taking chunks back for other reasons (`reclaim`), what the backing does not have (`spilling`),
//! bringing them in again (`storage`), and who waits for room (`requests`).

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::names::{Inode, flag};
use terral_format::{Error, ErrorKind, Result};
use terral_store::tier;

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::debts::ledger::Debt;

/// Evicted at a time.
const EVICT_BYTES: u64 = 64 << 20;
/// Times as long as it took to find too little, nobody seeks again: the drain goes on.
const PAUSES: u32 = 4;

/// Whether the backing has under its name what is clean of a file. While it is changed there in
/// place, it may not: a server that died has taken it and not written it.
pub(crate) fn has_arrived(inode: &Inode) -> bool {
    let changing = inode.is(flag::REWRITTEN) || inode.is(flag::INTENT);
    inode.published.is_some() && !changing
}

impl State {
    /// What `take` gives; when memory is full for that, once more with some chunks evicted.
    ///
    /// # Errors
    /// Those of `take`; [`ErrorKind::NoSpace`] if nothing can be evicted now.
    pub(crate) fn with_room<T>(&mut self, take: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        self.storage.grow_again();
        match take(self) {
            Err(error) if error.kind == ErrorKind::NoSpace => {
                self.make_room()?;
                take(self)
            }
            taken => taken,
        }
    }

    /// Frees chunks whose bytes are safe in the backing, least recently used files first.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there are none, or were none just now.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let none = || Error::new(ErrorKind::NoSpace, "memory tier");
        if self.sought.is_some_and(|(at, took)| self.world.now().since(at) < took * PAUSES)
            && self.can_drain()
        {
            return Err(none());
        }
        let (begin, before) = (self.world.now(), self.storage.used_bytes());
        self.settle_all_lingering()?;
        self.storage.leave_quarantine(&self.sessions);
        let mut freed = before - self.storage.used_bytes();
        for (_, ino, slot) in self.evictable() {
            for (index, _) in self.storage.entries(slot) {
                freed += self.evict(ino, slot, index);
            }
            if freed >= EVICT_BYTES {
                break;
            }
        }
        let now = self.world.now();
        self.sought = (freed < EVICT_BYTES).then(|| (now, now.since(begin)));
        if freed > 0 { Ok(()) } else { Err(none()) }
    }

    /// Files that chunks may be taken from, by when they were last used, nanoseconds since 1970.
    fn evictable(&self) -> Vec<(u64, Ino, FileSlot)> {
        let mut found = Vec::new();
        for inode in self.names.inodes() {
            if let Some(slot) = inode.slot.filter(|_| self.is_evictable(&inode)) {
                let header = self.storage.memory().header(slot);
                let used = header.modified_ns().load(Ordering::SeqCst);
                let used = used.max(header.accessed_ns().load(Ordering::SeqCst));
                found.push((used, inode.ino, slot));
            }
        }
        found.sort_unstable();
        found
    }

    /// Whether clean chunks of a file may go: the backing has it, or a complete new version of it.
    pub(crate) fn is_evictable(&self, inode: &Inode) -> bool {
        let there = match self.debts.get(inode.ino) {
            Some(debt) if debt.draining => false,
            Some(Debt { version: Some(version), .. }) => version.is_whole(),
            _ => has_arrived(inode),
        };
        let ours = inode.is(flag::NAMED) && !inode.is(flag::CONTESTED);
        there && ours && self.keeping != Some(inode.ino)
    }

    /// Whether the drain can free memory: whether any file it owes has bytes that are not mapped
    /// and that it has not had as they are, or it is at a file that has lost some.
    pub(crate) fn can_drain(&self) -> bool {
        let frees = |ino| {
            let named = |inode: &Inode| inode.is(flag::NAMED) && self.keeping != Some(ino);
            let Some(inode) = self.names.inode(ino).filter(named) else { return false };
            let entries = inode.slot.map_or_else(Vec::new, |slot| self.storage.entries(slot));
            let behind = !self.is_evictable(&inode)
                || inode
                    .slot
                    .is_some_and(|slot| self.backed_bytes(&inode) < self.storage.size(slot));
            entries.into_iter().filter(|(_, entry)| entry.is_here()).any(|(_, entry)| {
                let owed = tier::owed_bytes(self.storage.memory(), entry) > 0;
                (owed || (behind && self.storage.has_bytes(entry)))
                    && !self.storage.is_mapped(entry)
            })
        };
        let lost = self.storage.has_lost();
        self.backing.is_some() && (lost || self.debts.iter().any(|(ino, _)| frees(ino)))
    }

    /// Frees one chunk if nobody writes to it and nothing of it is owed. Gives its bytes.
    pub(crate) fn evict(&mut self, ino: Ino, slot: FileSlot, index: u64) -> u64 {
        // Look before asking writers out: most chunks that cannot go are being written.
        let entry = self.storage.memory().entry(slot, index).unrecalled();
        let free = |state: &mut Self| state.storage.recall_unmapped(slot, index).is_some();
        let settled = |state: &Self| state.storage.is_settled(entry) || !does(Step::SpareDirty);
        if !entry.is_here() || !settled(self) || !free(self) {
            return 0;
        }
        let memory = self.storage.memory().clone();
        if self.storage.wait_unpinned(&self.sessions, slot, entry) || !settled(self) {
            self.storage.unrecall(slot, index, entry);
            return 0;
        }
        // What is being appended lies beyond the size, and nobody need be pinned for it.
        self.storage.mend_size(slot);
        let appending = memory.header(slot).ticket().load(Ordering::SeqCst) != 0;
        let (size, end) = (self.storage.size(slot), (index + 1) * CHUNK_BYTES);
        let needed = size.min(end);
        let backed = memory.record(slot).backed_bytes();
        let staged = self.debts.get(ino).is_some_and(|debt| debt.version.is_some());
        // Grown, or cut and grown, since the last pass: only the drain can make that good.
        let behind = backed.load(Ordering::SeqCst) < needed && !staged;
        if behind || (appending && end > size) {
            self.storage.unrecall(slot, index, entry);
            return 0;
        }
        if backed.load(Ordering::SeqCst) < needed {
            backed.store(size, Ordering::SeqCst);
            self.record(Fact::BackedTo { ino, size });
            if self.commit().is_err() {
                self.storage.unrecall(slot, index, entry);
                return 0;
            }
        }
        self.storage.release(slot, index, entry, false);
        u64::from(entry.pages()) * PAGE_BYTES as u64
    }
}
