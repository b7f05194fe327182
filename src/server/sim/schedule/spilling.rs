//! A disk for what does not fit in memory: it may be small, or full, fail, or lose what was written
//! to it. What it was told to lose, and nothing else, may be an error for who needs it.

use std::time::Duration;

use terral_format::ids::FileSlot;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::{Error, ErrorKind};

use super::super::disk::{SpillDisk, Wrong};
use super::super::model::File;
use super::{Disk, Handle, Schedule};

/// So often, and so many steps, that all which is to be copied, or cleared, surely is.
const ALL: u64 = 100;

/// How many chunks there is room for, if there is a disk.
pub(super) fn room(seed: u64, disk: Disk) -> Option<usize> {
    (disk != Disk::None).then(|| [4, 16, 1000][seed as usize % 3])
}

/// Whether that is the error which a file must give where the disk has lost something of it: at
/// that page, or anywhere.
pub(super) fn is_lost(file: &File, page: Option<u64>, error: &Error) -> bool {
    let pages = CHUNK_BYTES / PAGE_BYTES as u64;
    let corrupt = &file.borrow().corrupt;
    let there = page.map_or(!corrupt.is_empty(), |page| corrupt.contains(&(page / pages)));
    there && error.kind == ErrorKind::Corrupt
}

impl Schedule {
    /// Now and then, those who copy to the disk go on, and something goes wrong there.
    pub(super) fn strain(&mut self) {
        let Some(disk) = self.sim.disk.clone() else { return };
        if self.chance(4) == 0 {
            self.meddle();
        }
        if self.chance(4) == 0 {
            self.sim.spill(self.chance(8));
        }
        match self.weather.disk {
            Disk::Failing if self.chance(60) == 0 => {
                let wrong = [Wrong::Full, Wrong::Shaky, Wrong::Away][self.chance(3) as usize];
                self.tell(|| format!("the disk is {wrong:?}"));
                disk.begin(wrong, Duration::from_millis(self.chance(4000)));
            }
            Disk::Corrupting if self.chance(40) == 0 => self.corrupt(&disk),
            _ => {}
        }
    }

    /// Somebody writes to a chunk that is just on its way to the disk, if one is, and he can.
    fn meddle(&mut self) {
        let under_way = self.sim.spillers.as_ref().map(|spillers| spillers.under_way());
        let mut all = Vec::new();
        for (ino, index) in under_way.into_iter().flatten() {
            for (at, player) in self.players.iter().enumerate() {
                let writes = |handle: &&Handle| handle.writes && handle.opened.file.ino == ino;
                let found = player.open.iter().filter(writes);
                let to = |handle: &Handle| (player.client, handle.opened.file, handle.file.clone());
                all.extend(found.map(|handle| (at, to(handle), index)));
            }
        }
        if all.is_empty() {
            return;
        }
        let (at, to, index) = all.swap_remove(self.chance(all.len() as u64) as usize);
        self.write_to(at, to, index * (CHUNK_BYTES / PAGE_BYTES as u64) + self.chance(8));
    }

    /// The disk loses a chunk of something that is open.
    fn corrupt(&mut self, disk: &SpillDisk) {
        let at = self.chance(self.players.len() as u64) as usize;
        let Some((_, opened, file, _)) = self.handle(at) else { return };
        if opened.slot == FileSlot::RESTING {
            return;
        }
        let (index, memory) = (self.chance(12), &self.sim.memory);
        let Some(place) = memory.entry(opened.slot, index).place() else { return };
        if disk.corrupt(place) {
            self.tell(|| format!("the disk loses chunk {index} of {opened:?}"));
            file.borrow_mut().corrupt.insert(index);
            self.sim.lost.insert(opened.ino);
        }
    }

    /// Whether an error is that of a disk that has failed.
    pub(super) fn excuses_disk(&self, error: &Error) -> bool {
        let failed = self.sim.disk.as_ref().is_some_and(SpillDisk::has_failed);
        failed && error.kind == ErrorKind::System && error.context.contains("simulated disk")
    }

    /// What has arrived leaves the disk.
    pub(super) fn compare_spill(&mut self) {
        let Some(disk) = self.sim.disk.clone() else { return };
        // One that was full is not tried again at once.
        self.sim.pass(Duration::from_secs(11));
        (0..ALL).for_each(|_| self.sim.spill(ALL));
        // A server that was killed does not say what is free there, and what is lost stays owed.
        if self.sim.killed == 0 && self.sim.lost.is_empty() {
            assert!(disk.used().is_empty(), "the disk still has {:?}", disk.used());
        }
    }
}
