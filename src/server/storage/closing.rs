//! When closed files lose their memory: some time after the last close, and never while somebody is
//! just opening them without the server's knowing yet.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::deferred::Key;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::names::index_of;

use crate::core::state::State;
use crate::core::world::Tick;
use crate::storage::lingering::LINGER;

/// What those that were closed just now may keep: this part of the memory, and no more than so many
/// bytes.
const MEMORY_MAX: (u64, u64) = (64, 32 << 20);

impl State {
    /// A file that nobody has open any more, and that could do without its memory.
    pub(crate) fn linger(&mut self, ino: Ino) -> Result<()> {
        let slot = self.names.inode(ino).and_then(|inode| inode.slot);
        slot.into_iter().for_each(|slot| self.empty(ino, slot));
        let entries = slot.map(|slot| self.storage.entries(slot)).unwrap_or_default();
        let pages = entries.iter().map(|(_, entry)| entry.pages()).sum();
        self.lingering.closed(ino, pages, self.world.now());
        self.settle_lingering()
    }

    /// Takes the memory of files that have been closed for long enough.
    pub(crate) fn settle_lingering(&mut self) -> Result<()> {
        let all = u64::from(self.began.geometry.arena_pages());
        let most = (all / MEMORY_MAX.0).min(MEMORY_MAX.1 / PAGE_BYTES as u64);
        self.settle_beyond(most, self.world.now())
    }

    /// Takes the memory of all of them.
    pub(crate) fn settle_all_lingering(&mut self) -> Result<()> {
        self.settle_beyond(u64::MAX, self.world.now() + LINGER)
    }

    fn settle_beyond(&mut self, most_pages: u64, now: Tick) -> Result<()> {
        while let Some(ino) = self.lingering.next(most_pages, now) {
            self.take_memory(ino)?;
        }
        Ok(())
    }

    /// Has a file packed, or its record taken back, if that is still right.
    fn take_memory(&mut self, ino: Ino) -> Result<()> {
        let Some(slot) = self.names.inode(ino).and_then(|inode| inode.slot) else { return Ok(()) };
        let wanted = self.names.openers(ino).all > 0 || self.debts.get(ino).is_some();
        if wanted || !self.debts.may_move(ino) {
            return Ok(());
        }
        self.empty(ino, slot);
        if !self.pack(ino, slot)? && self.storage.entries(slot).is_empty() {
            self.detach(ino);
        }
        Ok(())
    }

    /// Takes the first chunk of a file that was opened for writing, if nothing was written.
    fn empty(&mut self, ino: Ino, slot: FileSlot) {
        let unused = self.storage.size(slot) == 0 && !self.storage.entries(slot).is_empty();
        if unused && self.bar(ino) {
            self.shrink(ino, slot);
            self.unbar();
        }
    }

    /// Whether nobody is just opening a file without the server's knowing; until
    /// [`State::unbar`], nobody begins to.
    pub(crate) fn bar(&self, ino: Ino) -> bool {
        let memory = self.storage.memory();
        memory.closing().store(ino.0, Ordering::SeqCst);
        let opened = memory.deferred().revoke(Key::opening(index_of(ino)));
        if opened {
            self.unbar();
        }
        !opened
    }

    /// Files can be opened again that have a record.
    pub(crate) fn unbar(&self) {
        self.storage.memory().closing().store(0, Ordering::SeqCst);
    }
}
