//! Files' records: who has one, at a restart too.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::{FileSlot, Ino, PageNumber};
use terral_store::ram::Start;

use crate::core::invariant::holds;

use super::Storage;

impl Storage {
    /// Gives a file a record and a header.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::TooMany`] if the table is full.
    pub fn attach(&mut self, ino: Ino, start: Start) -> Result<FileSlot> {
        let attached = self.ram.attach(ino, start);
        let empty = |slot: &FileSlot| self.entries(*slot).is_empty();
        holds("a new record has no chunks", || attached.as_ref().map_or(true, empty));
        attached
    }

    /// Takes the record of a file without chunks back at once.
    pub fn detach(&mut self, slot: FileSlot) {
        self.ram.detach(slot);
    }

    /// Takes it back once the log says so.
    pub fn detach_logged(&mut self, slot: FileSlot) {
        let empty = || self.entries(slot).is_empty() && !self.detached.contains(&slot);
        holds("a record that goes has no chunks, and goes once", empty);
        self.detached.push(slot);
    }

    /// After a restart: the segments that exist are known again, before any file is adopted.
    pub fn adopt_segments(&mut self) {
        let count = self.memory().arena().count();
        self.ram.adopt_segments(count);
    }

    /// After a restart: takes over a file's record and chunks, of which the backing has so many
    /// bytes.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::Corrupt`] if the record is not this file's.
    pub fn adopt(&mut self, slot: FileSlot, ino: Ino, backed_bytes: u64) -> Result<()> {
        self.ram.adopt(slot, ino)?;
        self.adopt_away(slot);
        self.memory().record(slot).backed_bytes().store(backed_bytes, Ordering::SeqCst);
        Ok(())
    }

    /// After a restart, when all were adopted: what is pinned stays nobody's.
    pub fn adopted(&mut self, pinned: Vec<PageNumber>) {
        let pinned: Vec<PageNumber> = pinned.into_iter().chain(self.mapped_chunks()).collect();
        self.ram.adopted(&pinned);
    }
}
