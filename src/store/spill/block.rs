//! A buffer for a chunk, or the bytes of one, placed as direct input and output wants it.

use std::ops::{Deref, DerefMut};

use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};

/// Bytes as they lie in a place, at an address that a page begins at.
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
}

impl Block {
    /// For so many bytes of one.
    pub fn of(bytes: usize) -> Self {
        let bytes = vec![0; bytes + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Block { bytes, start }
    }

    fn end(&self) -> usize {
        self.start + self.bytes.len() - PAGE_BYTES
    }
}

impl Default for Block {
    fn default() -> Self {
        Block::of(CHUNK_BYTES as usize)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.end()]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let end = self.end();
        &mut self.bytes[self.start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, CHUNK_BYTES, PAGE_BYTES};

    #[test]
    fn a_block_begins_where_a_page_does() {
        let mut block = Block::default();
        assert_eq!((block.len(), block.as_ptr().addr() % PAGE_BYTES), (CHUNK_BYTES as usize, 0));
        block[CHUNK_BYTES as usize - 1] = 7;
        let block = Block::of(2 * PAGE_BYTES);
        assert_eq!((block.len(), block.as_ptr().addr() % PAGE_BYTES), (2 * PAGE_BYTES, 0));
    }
}
