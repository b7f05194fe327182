//! Blocks of other machines' files that are kept in memory, as long as nobody changes the files.
//!
//! Invariants: what a client was told to be stored here is nobody else's memory before that client
//! is through with it, or gone; memory that is wanted for anything else is not kept. No map names
//! these blocks and no log: the next process of the server knows of none. Not here: whether a block
//! still is what the file says (`far`).

use std::collections::BTreeMap;

use terral_format::ids::{Number, PageNumber, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::wire::far_files::Stored;
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram;

use super::Storage;

/// Bytes of a block; fewer are in a file's last one.
pub const BLOCK_BYTES: u64 = (PAGE_BYTES as u64) << BLOCK_ORDER;
/// Pages of it, as a power of two: 128 KiB.
const BLOCK_ORDER: u32 = 5;
/// They take at most this part of memory.
const PART: u64 = 2;
/// A session's calls that are not through, at most.
const CALLS_MAX: usize = 64;

/// A call of a session.
pub type Call = (SessionSlot, u64);

#[derive(Clone, Copy)]
struct Block {
    entry: MapEntry,
    bytes: u32,
    used: u64,
}

/// See the module.
#[derive(Default)]
pub struct Cache {
    blocks: BTreeMap<(Number, u64), Block>,
    /// By when they were used last.
    ages: BTreeMap<u64, (Number, u64)>,
    uses: u64,
    /// With those that are left.
    pages: u64,
    calls: BTreeMap<Call, Vec<MapEntry>>,
    /// How many calls look at a block.
    pins: BTreeMap<PageNumber, u32>,
    /// Blocks that are nobody's any more, and are looked at.
    left: BTreeMap<PageNumber, MapEntry>,
    #[cfg(test)]
    lent: u64,
}

impl Cache {
    fn touch(&mut self, which: (Number, u64)) -> Option<Block> {
        let block = self.blocks.get_mut(&which)?;
        self.ages.remove(&block.used);
        self.uses += 1;
        block.used = self.uses;
        self.ages.insert(self.uses, which);
        Some(*block)
    }

    /// Takes a block out. It is free if nobody looks at it: then its memory is given.
    fn remove(&mut self, which: (Number, u64)) -> Option<MapEntry> {
        let Block { entry, used, .. } = self.blocks.remove(&which)?;
        self.ages.remove(&used);
        if self.pins.contains_key(&entry.page()) {
            self.left.insert(entry.page(), entry);
            return None;
        }
        self.pages -= u64::from(entry.pages());
        Some(entry)
    }

    fn oldest(&self) -> Option<(Number, u64)> {
        let free = |which: &&(Number, u64)| {
            self.blocks.get(which).is_some_and(|block| !self.pins.contains_key(&block.entry.page()))
        };
        self.ages.values().find(free).copied()
    }
}

impl Storage {
    /// Keeps a block of a file: all of its bytes, of which there is at least one.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no memory for it.
    pub fn keep_block(&mut self, which: (Number, u64), bytes: &[u8]) -> Result<()> {
        let order = ram::order_of(bytes.len());
        let most = self.most_blocks() << BLOCK_ORDER;
        while self.cache.pages + (1 << order) > most && self.shed(1) > 0 {}
        if self.cache.pages + (1 << order) > most {
            return Err(Error::new(ErrorKind::NoSpace, "memory for other machines' files"));
        }
        let entry = loop {
            match self.ram.take_chunk(order, None) {
                Err(error) if error.kind == ErrorKind::NoSpace && self.shed(1) > 0 => {}
                taken => break taken?,
            }
        };
        if let Err(error) = self.memory().write(entry.page(), 0, bytes) {
            self.ram.free(entry, false);
            return Err(error);
        }
        self.drop_block(which);
        self.cache.pages += u64::from(entry.pages());
        let block = Block { entry, bytes: bytes.len() as u32, used: 0 };
        self.cache.blocks.insert(which, block);
        self.cache.touch(which);
        Ok(())
    }

    /// So many blocks are kept at most.
    pub fn most_blocks(&self) -> u64 {
        (u64::from(self.memory().geometry.arena_pages()) / PART) >> BLOCK_ORDER
    }

    /// Whether it is kept.
    pub fn has_block(&self, which: (Number, u64)) -> bool {
        self.cache.blocks.contains_key(&which)
    }

    fn drop_block(&mut self, which: (Number, u64)) {
        if let Some(entry) = self.cache.remove(which) {
            self.ram.free(entry, false);
        }
    }

    /// What is kept of a file is nothing any more.
    pub fn forget_blocks(&mut self, file: Number) {
        let of = (file, 0)..=(file, u64::MAX);
        let its: Vec<_> = self.cache.blocks.range(of).map(|(which, _)| *which).collect();
        its.into_iter().for_each(|which| self.drop_block(which));
    }

    /// Where bytes `at..at + bytes` of a file are, as far as they are kept from the first on. They
    /// stay there until the call is through; none if too many are not.
    pub fn lend_blocks(
        &mut self,
        call: Call,
        file: Number,
        (at, bytes): (u64, u64),
    ) -> Vec<Stored> {
        let (first, last) = ((call.0, 0), (call.0, u64::MAX));
        if self.cache.calls.range(first..=last).count() >= CALLS_MAX {
            return Vec::new();
        }
        let (mut at, end, mut places) = (at, at + bytes, Vec::new());
        while at < end {
            let Some(Block { entry, bytes, .. }) = self.cache.touch((file, at / BLOCK_BYTES))
            else {
                break;
            };
            let within = at % BLOCK_BYTES;
            let count = u64::from(bytes).saturating_sub(within).min(end - at);
            if count == 0 {
                break;
            }
            places.push(Stored { page: entry.page(), within: within as u32, bytes: count as u32 });
            *self.cache.pins.entry(entry.page()).or_default() += 1;
            self.cache.calls.entry(call).or_default().push(entry);
            at += count;
        }
        #[cfg(test)]
        {
            self.cache.lent += u64::from(!places.is_empty());
        }
        places
    }

    /// How often a call was told of blocks.
    #[cfg(test)]
    pub fn lent(&self) -> u64 {
        self.cache.lent
    }

    /// Copies bytes out that are where [`Storage::lend_blocks`] says.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn copy_blocks(&self, places: &[Stored]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for Stored { page, within, bytes } in places {
            let from = all.len();
            all.resize(from + *bytes as usize, 0);
            self.memory().read(*page, u64::from(*within), &mut all[from..])?;
        }
        Ok(all)
    }

    /// A call is through with what it was told of.
    pub fn is_through(&mut self, call: Call) {
        for entry in self.cache.calls.remove(&call).into_iter().flatten() {
            let Some(count) = self.cache.pins.get_mut(&entry.page()) else { continue };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            self.cache.pins.remove(&entry.page());
            if let Some(entry) = self.cache.left.remove(&entry.page()) {
                self.cache.pages -= u64::from(entry.pages());
                self.ram.free(entry, false);
            }
        }
    }

    /// So are all of a session that is over.
    pub fn are_through(&mut self, session: SessionSlot) {
        let of = (session, 0)..=(session, u64::MAX);
        let its: Vec<Call> = self.cache.calls.range(of).map(|(call, _)| *call).collect();
        its.into_iter().for_each(|call| self.is_through(call));
    }

    /// Frees so many bytes of blocks, those that were used longest ago first. Gives how many.
    pub fn shed(&mut self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            let Some(entry) = self.cache.oldest().and_then(|which| self.cache.remove(which)) else {
                break;
            };
            freed += u64::from(entry.pages()) * PAGE_BYTES as u64;
            self.ram.free(entry, false);
        }
        freed
    }
}
