//! Chunks whose bytes another member has: no memory is theirs here. Not here: who has which, and
//! how they come back.

use terral_format::Result;
use terral_format::ids::{FileSlot, Member};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_ORDER;

use super::brought::fill_pages;
use super::moved::copy_pages;
use super::{Ram, order_of};
use crate::sparse::Sparse;

impl Ram {
    /// Makes chunk `index` of a file, of which nothing is here, another member's.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn lend(&mut self, slot: FileSlot, index: u64, to: Member) -> Result<()> {
        self.generation = self.generation.wrapping_add(1);
        self.install(slot, index, MapEntry::away(to, CHUNK_ORDER, self.generation))
    }

    /// Makes a recalled chunk of a file, in which nobody is, another member's, which has its bytes.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn hand_over(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        to: Member,
    ) -> Result<()> {
        self.lend(slot, index, to)?;
        self.lose(entry, false);
        Ok(())
    }

    /// Makes a chunk another member's, which has its bytes, and where nobody uses it: one in which
    /// nobody is, or that a member has.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn place(&mut self, slot: FileSlot, index: u64, entry: MapEntry, to: Member) -> Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let away = MapEntry::away(to, CHUNK_ORDER, self.generation);
        self.install(slot, index, away.borrowed())?;
        if entry.is_here() {
            self.lose(entry, false);
        }
        Ok(())
    }

    /// Makes the entry of a chunk that is here another one, of the same pages and flags.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn renew(&mut self, slot: FileSlot, index: u64) -> Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.memory().entry(slot, index);
        self.install(slot, index, entry.again(self.generation))
    }

    /// Puts bytes of a chunk that is offered to this machine in its place, whole, and marked: they
    /// are used by nobody yet.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn arrives(&mut self, slot: FileSlot, index: u64, bytes: &Sparse) -> Result<()> {
        let entry = self.take_chunk(CHUNK_ORDER, None)?;
        let filled = fill_pages(&self.memory, entry, bytes, true);
        let marked = entry.borrowed().recalled();
        let installed = filled.and_then(|()| self.install(slot, index, marked));
        if installed.is_err() {
            self.free(entry, false);
        }
        installed
    }

    /// Moves a chunk of which nobody uses anything any more, and that is marked so, away from who
    /// may still store into it.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn leave_behind(&mut self, slot: FileSlot, index: u64, entry: MapEntry) -> Result<()> {
        let new = self.take_chunk(entry.order(), None)?;
        let copied = copy_pages(&self.memory, entry, new, true);
        let marked = new.borrowed().recalled();
        if let Err(error) = copied.and_then(|()| self.install(slot, index, marked)) {
            self.free(new, false);
            return Err(error);
        }
        self.lose(entry, true);
        Ok(())
    }

    /// Puts bytes of a chunk that was another member's in its place. They are owed. Without any it
    /// is a hole.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full; it is away as before then.
    pub fn came(&mut self, slot: FileSlot, index: u64, bytes: &Sparse) -> Result<()> {
        if bytes.bytes() == 0 {
            self.clear_entry(slot, index);
            return Ok(());
        }
        let entry = self.take_chunk(order_of(bytes.bytes()), None)?;
        let filled = fill_pages(&self.memory, entry, bytes, true);
        let installed = filled.and_then(|()| self.install(slot, index, entry));
        if installed.is_err() {
            self.free(entry, false);
        }
        installed
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{Ino, Member};
    use terral_format::local::geometry::PAGE_BYTES;
    use terral_format::local::pages;

    use crate::ram::Start;
    use crate::ram::tests::ram;
    use crate::sparse::Sparse;

    #[test]
    fn what_is_away_takes_no_memory_and_is_owed_once_it_came() {
        let mut ram = ram();
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        let (to, used) = (Member::new(3).expect("few"), ram.used_bytes());
        ram.lend(slot, 0, to).expect("the map has room");
        ram.lend(slot, 1, to).expect("the map has room");
        let entry = ram.memory().entry(slot, 0);
        assert_eq!((entry.with(), ram.used_bytes()), (Some(to), used));
        ram.came(slot, 0, &vec![7; 3 * PAGE_BYTES].into()).expect("room");
        let entry = ram.memory().entry(slot, 0);
        let (lanes, first) = (ram.memory().lanes(), entry.page().0);
        assert_eq!(pages::count_dirty(lanes, first, first + entry.pages()), 3);
        ram.came(slot, 1, &Sparse::default()).expect("a hole");
        assert!(ram.memory().entry(slot, 1).is_absent());
    }
}
