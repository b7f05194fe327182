//! Chunks of which the server itself writes parts, while nobody else can, and how a file is then.
//!
//! Invariant: the recall flag is up on each of them from before the first byte to after the last,
//! and stays: who wants to write asks. A reader finds all pages of a chunk from one moment, as they
//! are held by [`Owner::SERVER`] meanwhile. Not here: what is written (`updating`).

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use terral_format::ids::{FileSlot, Owner};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, LANES, Met, PageState};
use terral_format::local::size::SizeWord;
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram::Move;

use super::Storage;
use super::updates::Seen;
use crate::core::left_out::{Step, does};
use crate::sessions::clients::Sessions;

/// Bytes that go to a place in one chunk.
#[derive(Clone, Copy)]
pub struct Piece<'r> {
    /// Which chunk.
    pub index: u64,
    /// From here on in it.
    pub within: usize,
    /// The bytes.
    pub bytes: &'r [u8],
}

impl Piece<'_> {
    /// Its pages in the chunk.
    pub fn pages(&self) -> Range<u32> {
        let end = self.within + self.bytes.len();
        (self.within / PAGE_BYTES) as u32..end.div_ceil(PAGE_BYTES) as u32
    }
}

/// Pages that the server holds, and what their words were before.
pub struct Held {
    pages: Range<u32>,
    before: Vec<u64>,
}

/// Cuts what is written where chunks end; nothing of it is empty.
pub fn pieces(at: u64, bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let (mut at, mut rest) = (at, bytes);
    std::iter::from_fn(move || {
        let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        let (bytes, after) = rest.split_at(rest.len().min(room));
        let piece = Piece { index: at / CHUNK_BYTES, within: (at % CHUNK_BYTES) as usize, bytes };
        (at, rest) = (at + bytes.len() as u64, after);
        (!bytes.is_empty()).then_some(piece)
    })
}

fn changed(slot: FileSlot) -> Error {
    Error::new(ErrorKind::Changed, format!("file in record {slot}"))
}

impl Storage {
    /// How a file is now.
    pub fn seen(&self, slot: FileSlot) -> Seen {
        let size = SizeWord::load(self.memory().header(slot).size());
        Seen { size, entries: self.entries(slot) }
    }

    /// Whether somebody stores through a map, or may: nobody sees when.
    pub(super) fn is_stored_to_by_maps(&mut self, slot: FileSlot) -> bool {
        self.settle_stores(slot);
        self.leave_maps(slot);
        let maps = |(_, entry): &(u64, MapEntry)| entry.is_stored() && self.is_mapped(*entry);
        self.entries(slot).iter().any(maps)
    }

    /// From now on who writes to a file asks first; who was at it is through, or is overtaken.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if a writer was stopped in the middle, and memory is full;
    /// [`ErrorKind::Busy`] if somebody has that mapped.
    pub(super) fn close_to_writers(&mut self, clients: &Sessions, slot: FileSlot) -> Result<()> {
        for (index, _) in self.entries(slot) {
            self.close_chunk(clients, slot, index)?;
        }
        // An append that is on its way does not count.
        self.memory().bump_size(slot);
        Ok(())
    }

    fn close_chunk(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> Result<()> {
        while let Some(entry) = self.recall(slot, index) {
            if !does(Step::WaitForWriters) || !self.wait_unpinned(clients, slot, entry) {
                break;
            }
            if self.is_mapped(entry) {
                self.unrecall(slot, index, entry);
                let context = "who writes there is stopped, and somebody has it mapped";
                return Err(Error::new(ErrorKind::Busy, context));
            }
            let how = Move { order: entry.order(), quarantined: true, at_rest: false };
            self.moved(slot, index, entry, how)?;
        }
        Ok(())
    }

    /// A chunk that nobody writes to without asking gets more pages, and stays so.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full; [`ErrorKind::Busy`] if somebody has it mapped.
    pub(super) fn enlarge(&mut self, slot: FileSlot, index: u64, order: u8) -> Result<()> {
        let entry = self.memory().entry(slot, index).unrecalled();
        match self.is_mapped(entry) {
            true => Err(Error::new(ErrorKind::Busy, "somebody has it mapped")),
            false => self.ram.enlarge(slot, index, entry, order),
        }
    }

    /// Holds all pages of pieces, whose chunks are there; what is no page yet is zeros.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full; [`ErrorKind::Changed`] if somebody else holds one,
    /// who must have come without asking. Nothing is held then.
    pub(super) fn hold(&self, slot: FileSlot, pieces: &[Piece<'_>]) -> Result<Vec<Held>> {
        let mut held = Vec::new();
        for pages in self.runs(slot, pieces)? {
            let done = self.hold_run(pages).map(|run| held.push(run));
            if let Err(error) = done {
                self.let_pages_go(held);
                return Err(error);
            }
        }
        fence(Ordering::Release);
        Ok(held)
    }

    fn hold_run(&self, pages: Range<u32>) -> Result<Held> {
        let memory = self.memory();
        let (first, last) = (pages.start, pages.end);
        memory.zero_pages(first, last, |state| state == PageState::Invalid)?;
        let words = last.div_ceil(LANES) - first / LANES;
        let mut before = vec![0; words as usize];
        match pages::claim(memory.lanes(), first, last, Owner::SERVER, &mut before) {
            Met::Writer(..) => {
                pages::give_up(memory.lanes(), first, last, Owner::SERVER, &before);
                Err(Error::new(ErrorKind::Changed, "pages that somebody writes to"))
            }
            _ => Ok(Held { pages, before }),
        }
    }

    fn let_pages_go(&self, held: Vec<Held>) {
        for Held { pages, before } in held {
            pages::give_up(self.memory().lanes(), pages.start, pages.end, Owner::SERVER, &before);
        }
    }

    /// Pages of the arena, ascending, without those between.
    fn runs(&self, slot: FileSlot, pieces: &[Piece<'_>]) -> Result<Vec<Range<u32>>> {
        let mut all = Vec::new();
        for piece in pieces {
            let (entry, pages) = (self.memory().entry(slot, piece.index), piece.pages());
            if !entry.is_here() || entry.pages() < pages.end {
                return Err(changed(slot));
            }
            all.push(entry.page().0 + pages.start..entry.page().0 + pages.end);
        }
        all.sort_unstable_by_key(|pages| pages.start);
        let mut runs: Vec<Range<u32>> = Vec::new();
        for pages in all {
            match runs.last_mut() {
                Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
                _ => runs.push(pages),
            }
        }
        Ok(runs)
    }

    /// Writes pieces, in their order, whose pages are held, and no longer then.
    ///
    /// # Errors
    /// If memory cannot be written.
    pub(super) fn put(&self, slot: FileSlot, pieces: &[Piece<'_>], held: Vec<Held>) -> Result<()> {
        let memory = self.memory();
        let written = pieces.iter().try_for_each(|piece| {
            let entry = memory.entry(slot, piece.index);
            memory.write(entry.page(), piece.within as u64, piece.bytes)
        });
        for Held { pages, before } in held {
            pages::publish(memory.lanes(), pages.start, pages.end, Owner::SERVER, &before);
        }
        written
    }

    /// What a server that is no more held of a file's pages is free; what it had begun there is to
    /// be done again.
    pub(super) fn take_over_held(&self, slot: FileSlot) {
        for (_, entry) in self.entries(slot).iter().filter(|(_, entry)| entry.is_here()) {
            let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
            if pages::holds_some(self.memory().lanes(), first, last, Owner::SERVER) {
                self.abandon(first, last, Owner::SERVER);
            }
        }
    }
}
