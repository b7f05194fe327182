//! A buffer for one chunk, placed as direct input and output wants it.

use std::ops::{Deref, DerefMut};

use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};

/// Bytes of a chunk, at an address that a page begins at.
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
}

impl Default for Block {
    fn default() -> Self {
        let bytes = vec![0; CHUNK_BYTES as usize + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Block { bytes, start }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + CHUNK_BYTES as usize]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK_BYTES as usize]
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
    }
}
