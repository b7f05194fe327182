//! The bytes of one file, without its holes: a file of a terabyte with one byte in it costs a page.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::sparse::Sparse;

const PAGE_BYTES: u64 = 4096;

/// A file's bytes. Every page there is has [`PAGE_BYTES`]; what is beyond the size in it is zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Pages {
    /// The file's size.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes held for it: whole pages.
    pub(super) fn held_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Reads from `offset`; fewer bytes than asked for only at the end.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        for piece in pieces(offset, count) {
            let into = &mut buffer[piece.bytes];
            match self.pages.get(&piece.page) {
                Some(page) => into.copy_from_slice(&page[piece.within..][..into.len()]),
                None => into.fill(0),
            }
        }
        count
    }

    /// Reads so many bytes from `offset` on, without holes.
    pub(super) fn read_sparse(&self, offset: u64, bytes: usize, sparse: &mut Sparse) {
        let end = self.size.min(offset + bytes as u64);
        sparse.clear(bytes);
        if offset >= end {
            return;
        }
        for (page, held) in self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let at = page * PAGE_BYTES;
            let (from, to) = (at.max(offset), (at + PAGE_BYTES).min(end));
            let into = sparse.add((from - offset) as usize, (to - from) as usize);
            into.copy_from_slice(&held[(from - at) as usize..(to - at) as usize]);
        }
    }

    /// Makes zeros of what is there of so many bytes from `offset` on.
    pub(super) fn clear(&mut self, offset: u64, bytes: u64) {
        let end = self.size.min(offset + bytes);
        if offset >= end {
            return;
        }
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        for (page, held) in self.pages.range_mut(pages) {
            let at = page * PAGE_BYTES;
            let (from, to) = (at.max(offset), (at + PAGE_BYTES).min(end));
            held[(from - at) as usize..(to - at) as usize].fill(0);
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let from = &bytes[piece.bytes];
            let held = self.pages.contains_key(&piece.page);
            if !held && is_zero(from) {
                continue;
            }
            let page = self.pages.entry(piece.page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
            page[piece.within..][..from.len()].copy_from_slice(from);
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    /// Sets the size; what is new reads as zeros.
    pub(super) fn truncate(&mut self, size: u64) {
        self.pages.split_off(&size.div_ceil(PAGE_BYTES));
        if let Some(last) = self.pages.get_mut(&(size / PAGE_BYTES)) {
            last[(size % PAGE_BYTES) as usize..].fill(0);
        }
        self.size = size;
    }

    /// The pages that are not all zeros, by their number.
    pub(super) fn filled(&self) -> BTreeMap<u64, Vec<u8>> {
        let filled = self.pages.iter().filter(|(_, page)| !is_zero(page));
        filled.map(|(at, page)| (*at, page.clone())).collect()
    }

    /// All of them, holes as zeros.
    pub(super) fn all(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap_or(usize::MAX)];
        self.read(0, &mut bytes);
        bytes
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // As fast as memory: each is as the one before it, and the first is zero.
    bytes.first().is_none_or(|first| *first == 0)
        && bytes.get(1..) == bytes.split_last().map(|all| all.1)
}

/// A hole and a page of zeros are the same.
impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        let zeros = vec![0; PAGE_BYTES as usize];
        let mut held = self.pages.keys().chain(other.pages.keys());
        let page = |pages: &Self, at| pages.pages.get(at).unwrap_or(&zeros).clone();
        self.size == other.size && held.all(|at| page(self, at) == page(other, at))
    }
}

/// A part of a range of bytes that lies in one page.
struct Piece {
    page: u64,
    /// Where in the page it begins.
    within: usize,
    /// Which of the range's bytes it is.
    bytes: Range<usize>,
}

fn pieces(offset: u64, count: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == count {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let end = count.min(done + PAGE_BYTES as usize - within);
        let piece = Piece { page: at / PAGE_BYTES, within, bytes: done..end };
        done = end;
        Some(piece)
    })
}
