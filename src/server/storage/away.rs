//! Chunks that other members have: which they are, which are wanted back, and which they have
//! mapped, as far as this process knows.
//!
//! Not here: who waits for them (`recalling`), who may have which, and what is said to them
//! (`far/lent`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use terral_format::ids::{Asker, FileSlot, Ino, Member};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};
use terral_store::sparse::Sparse;

use super::Storage;
use crate::core::left_out::{Step, does};
use crate::core::world::Tick;
use crate::sessions::clients::Sessions;

/// A chunk that is wanted back.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Who has it.
    pub with: Member,
    /// Since when.
    pub since: Tick,
    /// Somebody needs it, and not only who has it wants to be rid of it.
    pub needed: bool,
    /// Why it does not come.
    pub error: Option<Error>,
    /// It has come, and found no room.
    pub lacks_room: bool,
    /// Requests that wait for it.
    pub askers: BTreeSet<Asker>,
    /// Those of them that did when it was asked for last.
    asked: BTreeSet<Asker>,
}

impl Wanted {
    /// That of this member, from now on.
    pub fn of(with: Member, since: Tick, needed: bool) -> Self {
        let (error, lacks_room, askers, asked) = Default::default();
        Wanted { with, since, needed, error, lacks_room, askers, asked }
    }

    /// Whether somebody waits for it, who does not wait for room first.
    pub fn is_awaited(&self) -> bool {
        self.needed && self.error.is_none() && !self.lacks_room
    }

    /// It is asked for now: what is said of it is said to all who wait by now.
    pub fn is_asked_for(&mut self) {
        self.asked = self.askers.clone();
    }
}

/// See the module.
#[derive(Default)]
pub struct Away {
    /// How many chunks of a file are, if any.
    counts: BTreeMap<FileSlot, u32>,
    wanted: BTreeMap<(Ino, u64), Wanted>,
    mapped: BTreeSet<(Ino, u64)>,
    /// Requests that have heard so.
    refused: BTreeSet<(Asker, Ino, u64)>,
    /// How many chunks of a file are kept where they are, if any.
    placed: BTreeMap<FileSlot, u32>,
    /// Chunks that are none any more, and whose members have not been told.
    dropped: Vec<(Ino, u64, Member)>,
}

fn count_one_less(counts: &mut BTreeMap<FileSlot, u32>, slot: FileSlot) {
    if let Some(count) = counts.get_mut(&slot) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&slot);
        }
    }
}

impl Storage {
    /// Makes a chunk of which nothing is here another member's.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn lend(&mut self, slot: FileSlot, index: u64, to: Member) -> Result<()> {
        self.ram.lend(slot, index, to)?;
        *self.away.counts.entry(slot).or_default() += 1;
        Ok(())
    }

    /// Nobody writes to a chunk, if it is here, until somebody has asked; it is recalled. `None`:
    /// somebody has it mapped, or does not move out of it.
    pub fn offer(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> Option<MapEntry> {
        let entry = self.recall_unmapped(slot, index)?;
        if self.wait_unpinned(clients, slot, entry) {
            self.ram.unrecall(slot, index, entry);
            return None;
        }
        Some(entry.recalled())
    }

    /// A chunk that was offered, and has not changed since, is another member's.
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
        match entry.is_absent() {
            true => self.ram.lend(slot, index, to)?,
            false => self.ram.hand_over(slot, index, entry.unrecalled(), to)?,
        }
        *self.away.counts.entry(slot).or_default() += 1;
        Ok(())
    }

    /// Bytes of a chunk that is offered to this machine, of which nothing was here, are here, and
    /// used by nobody yet.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn arrives(&mut self, slot: FileSlot, index: u64, bytes: &Sparse) -> Result<()> {
        self.ram.arrives(slot, index, bytes)
    }

    /// Another member has a chunk mapped, as far as is known.
    pub fn is_mapped_there(&self, ino: Ino, index: u64) -> bool {
        self.away.mapped.contains(&(ino, index))
    }

    /// So it is, or is not any more.
    pub fn maps_there(&mut self, ino: Ino, index: u64, maps: bool) {
        match maps {
            true => drop(self.away.mapped.insert((ino, index))),
            false => drop(self.away.mapped.remove(&(ino, index))),
        }
    }

    /// A file is no more.
    pub fn forget_mapped(&mut self, ino: Ino) {
        self.away.mapped.retain(|(of, _)| *of != ino);
    }

    /// What is wanted back was mapped where it is when it was asked for: who waited for it then is
    /// told so. Who came later wants it yet: by then it may have been mapped no more.
    pub fn refuses(&mut self, ino: Ino, index: u64) {
        self.away.mapped.insert((ino, index));
        let Some(mut wanted) = self.away.wanted.remove(&(ino, index)) else { return };
        let refused = std::mem::take(&mut wanted.asked);
        wanted.askers.retain(|asker| !refused.contains(asker));
        self.away.refused.extend(refused.into_iter().map(|asker| (asker, ino, index)));
        if !wanted.askers.is_empty() {
            self.away.wanted.insert((ino, index), wanted);
        }
    }

    /// Whether a request is one of those.
    pub fn is_refused(&self, asker: Asker, ino: Ino, index: u64) -> bool {
        self.away.refused.contains(&(asker, ino, index))
    }

    /// Requests that this is true of have run, or never will.
    pub fn forget_refused(&mut self, of: impl Fn(Asker) -> bool) {
        self.away.refused.retain(|(asker, ..)| !of(*asker));
    }

    /// So it is: what they wait for, and nobody else does, nobody needs.
    pub fn forget_askers(&mut self, of: impl Fn(Asker) -> bool) {
        for wanted in self.away.wanted.values_mut().filter(|wanted| !wanted.askers.is_empty()) {
            wanted.askers.retain(|asker| !of(*asker));
            wanted.needed = !wanted.askers.is_empty();
        }
    }

    /// A chunk that was granted ahead, and to which nobody has written, is none any more. Whether
    /// nothing of it is here then.
    pub fn take_unused(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> bool {
        let entry = self.memory().entry(slot, index).unrecalled();
        if !entry.is_here() || self.has_bytes(entry) || entry.is_stored() {
            return entry.is_absent();
        }
        let Some(entry) = self.recall_unmapped(slot, index) else { return false };
        // Who is just beginning there goes on.
        if !self.owners_in(clients, entry).is_empty() || self.has_bytes(entry) {
            self.ram.unrecall(slot, index, entry);
            return false;
        }
        self.ram.release(slot, index, entry, false);
        true
    }

    /// Whether other members have chunks of a file.
    pub fn has_away(&self, slot: FileSlot) -> bool {
        self.away.counts.contains_key(&slot)
    }

    /// Who has a chunk, if another member does.
    pub fn with(&self, slot: FileSlot, index: u64) -> Option<Member> {
        self.memory().entry(slot, index).with()
    }

    /// Those of a file that other members have, in order.
    pub fn away(&self, slot: FileSlot) -> Vec<(u64, Member)> {
        if !self.has_away(slot) {
            return Vec::new();
        }
        let entries = self.entries(slot).into_iter();
        entries.filter_map(|(index, entry)| Some((index, entry.with()?))).collect()
    }

    /// What a member had of a chunk has come.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full; it is away as before then.
    pub fn came(&mut self, file: FileRef, index: u64, bytes: &Sparse) -> Result<()> {
        let placed = self.placed(file.slot, index);
        self.ram.came(file.slot, index, bytes)?;
        self.count_down(file.slot, placed);
        self.forget_wanted(file.ino, index);
        Ok(())
    }

    fn count_down(&mut self, slot: FileSlot, placed: Option<Member>) {
        count_one_less(&mut self.away.counts, slot);
        if placed.is_some() {
            count_one_less(&mut self.away.placed, slot);
        }
    }

    /// A chunk that another member has is none any more, which that one is to be told.
    pub(super) fn lose_away(&mut self, slot: FileSlot, index: u64) {
        if let Some(with) = self.clear_away(slot, index) {
            let ino = Ino(self.memory().record(slot).ino().load(Ordering::SeqCst));
            self.away.dropped.push((ino, index, with));
        }
    }

    /// The same without that. Gives who had it.
    fn clear_away(&mut self, slot: FileSlot, index: u64) -> Option<Member> {
        let (with, placed) = (self.with(slot, index)?, self.placed(slot, index));
        self.ram.came(slot, index, &Sparse::default()).ok()?;
        self.count_down(slot, placed);
        Some(with)
    }

    /// Chunks of a file that a member has, and says that it has nothing of, are holes; not those
    /// that are just asked back.
    pub fn has_nothing(&mut self, file: FileRef, member: Member) {
        for (index, with) in self.away(file.slot) {
            if with == member && !self.away.wanted.contains_key(&(file.ino, index)) {
                self.clear_away(file.slot, index);
            }
        }
    }

    /// Nobody uses a chunk any more, and it stays as it is: it is marked as borrowed. Who is in it
    /// is waited for; from who does not move it is moved away.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if there is no memory to move it to;
    /// [`terral_format::ErrorKind::TextBusy`] if somebody has it mapped: it is used as before.
    pub fn freeze(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> Result<()> {
        let entry = self.memory().entry(slot, index).unrecalled();
        if !entry.is_here() {
            return Ok(());
        }
        self.ram.install(slot, index, entry.borrowed().recalled())?;
        if self.is_mapped(entry) && does(Step::KeepMapped) {
            self.ram.install(slot, index, entry)?;
            return Err(Error::new(ErrorKind::TextBusy, format!("chunk {index} is mapped")));
        }
        if !self.wait_unpinned(clients, slot, entry) {
            return Ok(());
        }
        self.ram.leave_behind(slot, index, entry).inspect_err(|_| {
            // Who asks for it asks again.
            self.ram.unrecall(slot, index, entry);
        })
    }

    /// A chunk that is here is another one for who has seen it.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn renew(&mut self, slot: FileSlot, index: u64) -> Result<()> {
        self.ram.renew(slot, index)
    }

    /// After a restart.
    pub(super) fn adopt_away(&mut self, slot: FileSlot) {
        let entries = self.entries(slot);
        let count = entries.iter().filter(|(_, entry)| entry.with().is_some()).count();
        if count > 0 {
            self.away.counts.insert(slot, count as u32);
        }
        let placed = entries.iter().filter(|(index, _)| self.placed(slot, *index).is_some());
        let placed = placed.count();
        if placed > 0 {
            self.away.placed.insert(slot, placed as u32);
            // Of a truncation that was not finished.
            self.drop_placed(slot, self.size(slot));
        }
    }

    /// A chunk, whose entry is this, is another member's, and kept there.
    ///
    /// # Errors
    /// If the map cannot have it.
    pub fn place(&mut self, slot: FileSlot, index: u64, entry: MapEntry, to: Member) -> Result<()> {
        let (was_here, was_kept) = (entry.with().is_none(), self.placed(slot, index).is_some());
        self.ram.place(slot, index, entry.unrecalled(), to)?;
        if was_here {
            *self.away.counts.entry(slot).or_default() += 1;
        }
        if !was_kept {
            *self.away.placed.entry(slot).or_default() += 1;
        }
        Ok(())
    }

    /// Who keeps a chunk, if another member does: nobody writes to it there.
    pub fn placed(&self, slot: FileSlot, index: u64) -> Option<Member> {
        let entry = self.memory().entry(slot, index);
        entry.with().filter(|_| entry.is_borrowed())
    }

    /// Whether other members have chunks of a file that they may write to.
    pub fn has_lent(&self, slot: FileSlot) -> bool {
        let Away { counts, placed, .. } = &self.away;
        counts.get(&slot) > placed.get(&slot)
    }

    /// A file is this long: what is kept of it elsewhere behind that is nothing any more.
    pub fn drop_placed(&mut self, slot: FileSlot, size: u64) {
        for (index, _) in self.away(slot) {
            if index * CHUNK_BYTES >= size && self.placed(slot, index).is_some() {
                self.lose_away(slot, index);
            }
        }
    }

    /// Who is to be told that a chunk which he has is nothing any more. Said once.
    pub fn take_dropped(&mut self) -> Vec<(Ino, u64, Member)> {
        std::mem::take(&mut self.away.dropped)
    }

    /// A chunk is wanted back, by a request if there is one. Gives whether that is new.
    pub fn want(&mut self, (ino, index): (Ino, u64), wanted: Wanted, asker: Option<Asker>) -> bool {
        let needed = wanted.needed;
        let new = !self.away.wanted.contains_key(&(ino, index));
        let known = self.away.wanted.entry((ino, index)).or_insert(wanted);
        known.needed |= needed;
        known.askers.extend(asker);
        new
    }

    /// What is wanted back.
    pub fn wanted(&mut self) -> impl Iterator<Item = (&(Ino, u64), &mut Wanted)> {
        self.away.wanted.iter_mut()
    }

    /// What is wanted of a chunk, if it is.
    pub fn wanted_of(&mut self, ino: Ino, index: u64) -> Option<&mut Wanted> {
        self.away.wanted.get_mut(&(ino, index))
    }

    /// Why a chunk that is does not come, if that is known.
    pub fn why_not(&self, ino: Ino, index: u64) -> Option<Error> {
        self.away.wanted.get(&(ino, index)).and_then(|wanted| wanted.error.clone())
    }

    /// Whether a chunk is.
    pub fn is_wanted(&self, ino: Ino, index: u64) -> bool {
        self.away.wanted.contains_key(&(ino, index))
    }

    /// It is not any more: it is here, or nothing is.
    pub fn forget_wanted(&mut self, ino: Ino, index: u64) {
        self.away.wanted.remove(&(ino, index));
        self.away.mapped.remove(&(ino, index));
    }
}
