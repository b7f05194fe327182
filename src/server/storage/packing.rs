//! Small closed files leave the arena for a place of just their size, and come back when opened.

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::names::Inode;
use terral_format::wire::message::Attributes;

use crate::core::state::State;

impl State {
    /// Packs a file that nobody has open and the backing is not owed, if it is small. True: it has
    /// no record any more.
    pub(crate) fn pack(&mut self, ino: Ino, slot: FileSlot) -> Result<bool> {
        if !self.storage.is_packable(slot) || !self.bar(ino) {
            return Ok(false);
        }
        let packed = self.pack_barred(ino, slot);
        self.unbar();
        packed
    }

    fn pack_barred(&mut self, ino: Ino, slot: FileSlot) -> Result<bool> {
        let Some(attributes) = self.attributes(ino) else { return Ok(false) };
        let Some(packed) = self.storage.pack(&self.sessions, slot) else { return Ok(false) };
        // Nobody has it open: size and times stand still.
        let Attributes { size, modified_ns, accessed_ns, changed_ns, .. } = attributes;
        let place = packed.place;
        self.record(Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns });
        self.record(Local::Packed { ino, place });
        self.commit()?;
        self.storage.packed(slot, packed);
        Ok(true)
    }

    /// Brings the bytes of a packed file into its new record.
    pub(crate) fn unpack(&mut self, inode: &Inode, slot: FileSlot) -> Result<()> {
        let Some(bytes) = self.storage.packed_bytes(inode)? else { return Ok(()) };
        self.with_room(|state| state.storage.fill(slot, 0, &bytes))?;
        self.storage.unpacked(inode);
        Ok(())
    }
}
