//! Shared memory whose pages are made before they are touched.
//!
//! A page of `/dev/shm` comes into being when it is touched first, by reading too, and where none
//! is left that is SIGBUS, in the server or in a program. So whoever is about to use a place makes
//! it exist first, and gets an error instead.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::Result;

/// A piece of shared memory, as words.
pub trait Shared: Send + Sync {
    /// `count` words from byte `offset` on; panics outside, since offsets are our own.
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64];

    /// Makes the pages of `bytes` from `offset` on exist.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full: touching them would be SIGBUS.
    fn prepare(&self, offset: usize, bytes: usize) -> Result<()>;
}

/// What is made to exist at a time.
const BLOCK_BYTES: usize = 16 << 10;

/// A region, and which of its blocks are known to exist.
pub struct Existing {
    region: Box<dyn Shared>,
    bytes: usize,
    blocks: Vec<AtomicU64>,
}

impl Existing {
    /// A region of so many bytes of which nothing is known.
    pub fn new(region: Box<dyn Shared>, bytes: usize) -> Self {
        let words = bytes.div_ceil(BLOCK_BYTES).div_ceil(64);
        Existing { region, bytes, blocks: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// As [`Shared::words`].
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.region.words(offset, count)
    }

    /// Makes the blocks of `bytes` from `offset` on exist, as [`Shared::prepare`] does, and costs
    /// nothing for those that do.
    pub fn make(&self, offset: usize, bytes: usize) -> Result<()> {
        for block in offset / BLOCK_BYTES..(offset + bytes).div_ceil(BLOCK_BYTES) {
            let (word, bit) = (&self.blocks[block / 64], 1 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                let at = block * BLOCK_BYTES;
                self.region.prepare(at, BLOCK_BYTES.min(self.bytes - at))?;
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::{BLOCK_BYTES, Existing, Shared};
    use terral_format::{Error, ErrorKind, Result};

    /// Notes how far it was made to exist.
    struct Noted(Arc<AtomicUsize>);

    impl Shared for Noted {
        fn words(&self, _: usize, _: usize) -> &[AtomicU64] {
            &[]
        }

        fn prepare(&self, offset: usize, bytes: usize) -> Result<()> {
            if offset + bytes > 3 * BLOCK_BYTES {
                return Err(Error::new(ErrorKind::NoSpace, "full"));
            }
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_block_is_made_once_and_one_that_could_not_be_is_tried_again() {
        let made = Arc::new(AtomicUsize::new(0));
        let region = Existing::new(Box::new(Noted(made.clone())), 4 * BLOCK_BYTES - 100);
        for _ in 0..2 {
            region.make(BLOCK_BYTES - 8, 16).expect("two blocks");
            assert_eq!(made.load(Ordering::Relaxed), 2 * BLOCK_BYTES);
        }
        for _ in 0..2 {
            assert!(region.make(3 * BLOCK_BYTES, 8).is_err());
        }
    }
}
