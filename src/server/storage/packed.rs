//! Small closed files leave the arena for a place of just their size, and come back when opened.

use terral_format::Result;
use terral_format::ids::FileSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::names::{Inode, flag};
use terral_format::local::pages::{self, PageState};
use terral_store::small::SMALL_BYTES;

use super::Storage;
use crate::sessions::clients::Sessions;

/// A file whose bytes are in their small place, and still in its recalled chunk.
pub struct Packed {
    /// Where they are.
    pub place: u32,
    entry: MapEntry,
    quarantined: bool,
}

impl Storage {
    /// After a restart: which inodes are packed.
    pub fn adopt_packed(&mut self, inodes: impl Iterator<Item = Inode>) {
        let packed = inodes.filter(|inode| inode.is(flag::PACKED));
        self.small.adopt(packed.map(|inode| (inode.below, inode.size)));
    }

    /// Whether a file is small enough, and has just one chunk.
    pub fn is_packable(&self, slot: FileSlot) -> bool {
        let size = self.size(slot);
        let entries = self.entries(slot);
        let one = matches!(entries[..], [(0, entry)] if entry.is_here());
        one && size > 0 && size <= SMALL_BYTES
    }

    /// Copies the bytes of such a file to where they need no page. Nobody opens it meanwhile.
    /// `None`: it keeps its page, as somebody has it mapped, or memory is full.
    pub fn pack(&mut self, clients: &Sessions, slot: FileSlot) -> Option<Packed> {
        let entry = self.recall_unmapped(slot, 0)?;
        let quarantined = self.wait_unpinned(clients, slot, entry);
        let mut bytes = vec![0; self.size(slot) as usize];
        let read = match pages::state(self.memory().lanes(), entry.page().0) {
            PageState::Valid { .. } => self.memory().read(entry.page(), 0, &mut bytes),
            _ => Ok(()),
        };
        match read.and_then(|()| self.small.put(&bytes)) {
            Ok(place) => Some(Packed { place, entry, quarantined }),
            Err(_) => {
                self.unrecall(slot, 0, entry);
                None
            }
        }
    }

    /// Its chunk and record go once the log says where its bytes are.
    pub fn packed(&mut self, slot: FileSlot, packed: Packed) {
        self.packed.push((slot, packed));
    }

    /// The log does.
    pub(super) fn release_packed(&mut self) {
        for (slot, packed) in std::mem::take(&mut self.packed) {
            self.release(slot, 0, packed.entry, packed.quarantined);
            self.detach(slot);
        }
    }

    /// Bytes of a packed file; `None` if it is none.
    ///
    /// # Errors
    /// What reading them gave.
    pub fn packed_bytes(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        if !inode.is(flag::PACKED) {
            return Ok(None);
        }
        let mut bytes = vec![0; inode.size as usize];
        self.small.get(inode.below, &mut bytes).map(|()| Some(bytes))
    }

    /// The place of a packed file is free once the log says so.
    pub fn unpacked(&mut self, inode: &Inode) {
        if inode.is(flag::PACKED) {
            self.freed.push((inode.below, inode.size));
        }
    }
}

const _: () = assert!(SMALL_BYTES <= PAGE_BYTES as u64);
