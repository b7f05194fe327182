//! Bytes of the backing that come into memory. Not here: who reads them there.

use terral_format::Result;
use terral_format::ids::FileSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages;

use super::{Ram, order_of};
use crate::memory::Memory;
use crate::sparse::Sparse;

impl Ram {
    /// Puts bytes of the backing into a new chunk `index`, clean. Pages of zeros are holes, but for
    /// the first one and the last one: however the chunk is cut, it has bytes, and how far it goes
    /// is to be seen.
    pub fn fill(&mut self, slot: FileSlot, index: u64, bytes: &Sparse) -> Result<()> {
        debug_assert!(bytes.bytes() as u64 <= CHUNK_BYTES);
        let entry = self.take_chunk(order_of(bytes.bytes()), None)?;
        let filled = fill_pages(&self.memory, entry, bytes, false);
        let installed = filled.and_then(|()| self.install(slot, index, entry));
        if installed.is_err() {
            self.free(entry, false);
        }
        installed
    }
}

/// Puts them into pages of a chunk that are all invalid, as [`Ram::fill`] says.
pub(super) fn fill_pages(
    memory: &Memory,
    entry: MapEntry,
    bytes: &Sparse,
    dirty: bool,
) -> Result<()> {
    let put = |at: usize, bytes: &[u8]| {
        let page = |at: usize| entry.page().0 + (at / PAGE_BYTES) as u32;
        memory.write(entry.page(), at as u64, bytes)?;
        pages::fill(memory.lanes(), page(at), page(at + bytes.len()), dirty);
        Ok(())
    };
    let last = bytes.bytes().saturating_sub(1) / PAGE_BYTES * PAGE_BYTES;
    let mut missing = vec![0, last];
    missing.dedup();
    for (from, bytes) in bytes.filled() {
        missing.retain(|at| !(from..from + bytes.len()).contains(at));
        let (whole, rest) = bytes.split_at(bytes.len() / PAGE_BYTES * PAGE_BYTES);
        if !whole.is_empty() {
            put(from, whole)?;
        }
        if !rest.is_empty() {
            let mut padded = [0; PAGE_BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            put(from + whole.len(), &padded)?;
        }
    }
    missing.into_iter().try_for_each(|at| put(at, &[0; PAGE_BYTES]))
}

#[cfg(test)]
mod tests {
    use terral_format::ids::Ino;
    use terral_format::local::geometry::{CHUNK_ORDER, CHUNK_PAGES, PAGE_BYTES};
    use terral_format::local::pages::{self, PageState};

    use crate::ram::Start;
    use crate::ram::tests::ram;

    /// How many bytes, which of them are no zeros (from where on, how many), and the pages that
    /// are there then; none: all.
    type Case<'c> = (usize, &'c [(usize, usize)], &'c [u32]);

    #[test]
    fn pages_of_zeros_that_are_brought_are_holes_but_at_both_ends() {
        let (page, whole) = (PAGE_BYTES, CHUNK_PAGES as usize * PAGE_BYTES);
        let cases: [Case<'_>; 7] = [
            (whole, &[], &[0, 511]),
            (whole, &[(0, whole)], &[]),
            (whole, &[(300 * page + 7, 1), (400 * page - 1, 2)], &[0, 300, 399, 400, 511]),
            (400 * page + 9, &[(400 * page, 9)], &[0, 400]),
            (400 * page + 9, &[(399 * page + 1, page + 8)], &[0, 399, 400]),
            (9, &[(8, 1)], &[0]),
            (9, &[], &[0]),
        ];
        for (bytes, runs, valid) in cases {
            let mut ram = ram();
            let slot = ram.attach(Ino(5), Start::default()).expect("room");
            let mut brought = vec![0; bytes];
            runs.iter().for_each(|(at, count)| brought[*at..at + count].fill(3));
            // Where others' bytes were.
            let before = ram.take_chunk(CHUNK_ORDER, None).expect("room");
            ram.memory().write(before.page(), 0, &vec![9; whole]).expect("writes");
            ram.free(before, false);
            ram.fill(slot, 0, &brought.clone().into()).expect("room");
            let entry = ram.memory().entry(slot, 0);
            brought.resize(bytes.next_multiple_of(page), 0);
            for (at, brought) in brought.chunks(page).enumerate() {
                let state = pages::state(ram.memory().lanes(), entry.page().0 + at as u32);
                let is = state == PageState::Valid { dirty: false };
                assert_eq!(is, valid.is_empty() || valid.contains(&(at as u32)), "{bytes} {at}");
                let mut found = vec![0; page];
                if is {
                    ram.memory().read(entry.page(), (at * page) as u64, &mut found).expect("is");
                }
                assert!(found == brought, "{bytes} {at}");
            }
        }
    }
}
