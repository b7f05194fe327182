//! Small closed files leave the arena for a place of just their size, and come back when opened.

use terral_format::Result;
use terral_format::entry::MapEntry;
use terral_format::geometry::PAGE_BYTES;
use terral_format::ids::{FileSlot, Ino};
use terral_format::message::Attributes;
use terral_format::names::{Inode, flag};
use terral_format::pages::{self, PageState};
use terral_format::record::Record;
use terral_store::small::SMALL_BYTES;

use crate::state::State;

impl State {
    /// Packs a file that nobody has open and the backing is not owed, if it is small. True: it has
    /// no record any more.
    pub(crate) fn pack(&mut self, ino: Ino, slot: FileSlot) -> Result<bool> {
        let size = self.ram.size(slot);
        let [(0, entry)] = self.ram.entries(slot)[..] else { return Ok(false) };
        if size == 0 || size > SMALL_BYTES || !self.bar(ino) {
            return Ok(false);
        }
        let packed = self.pack_barred(ino, slot, entry, size);
        self.unbar();
        packed
    }

    fn pack_barred(
        &mut self,
        ino: Ino,
        slot: FileSlot,
        entry: MapEntry,
        size: u64,
    ) -> Result<bool> {
        let Some(attributes) = self.attributes(ino) else { return Ok(false) };
        if self.recall_unmapped(slot, 0).is_none() {
            return Ok(false);
        }
        let quarantined = self.wait_unpinned(slot, entry);
        let mut bytes = vec![0; size as usize];
        let memory = self.ram.memory();
        let read = match pages::state(memory.lanes(), entry.page().0) {
            PageState::Valid { .. } => memory.read(entry.page(), 0, &mut bytes),
            _ => Ok(()),
        };
        let place = match read.and_then(|()| self.small.put(&bytes)) {
            Ok(place) => place,
            // Memory that is full only means that the file keeps its page.
            Err(_) => {
                self.ram.unrecall(slot, 0, entry);
                return Ok(false);
            }
        };
        // Nobody has it open: the times stand still.
        let Attributes { modified_ns, accessed_ns, changed_ns, .. } = attributes;
        self.record(Record::Packed { ino, place, size, modified_ns, accessed_ns, changed_ns });
        self.commit()?;
        self.ram.release(slot, 0, entry, quarantined);
        self.ram.detach(slot);
        Ok(true)
    }

    /// Brings the bytes of a packed file into its new record.
    pub(crate) fn unpack(&mut self, inode: &Inode, slot: FileSlot) -> Result<()> {
        if !inode.is(flag::PACKED) {
            return Ok(());
        }
        let mut bytes = vec![0; inode.size as usize];
        self.small.get(inode.below, &mut bytes)?;
        self.with_room(|state| state.ram.fill(slot, 0, &bytes))?;
        self.unpacked(inode);
        Ok(())
    }

    /// The place of a packed file is free once the log says so.
    pub(crate) fn unpacked(&mut self, inode: &Inode) {
        if inode.is(flag::PACKED) {
            self.freed.push((inode.below, inode.size));
        }
    }
}

const _: () = assert!(SMALL_BYTES <= PAGE_BYTES as u64);
