//! Which bytes of a file are holes: pages that nobody has written, in memory and in the backing.
//!
//! What lies only in the backing, or was spilled, counts as data, as `lseek(2)` allows.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::Ino;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::local::size::SizeWord;
use terral_format::local::tables::FileRecord;

use crate::borrowed::is_over;
use crate::copy::Chunks;
use crate::map;
use crate::session::Connection;

/// What is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that were written.
    Data,
    /// Bytes that were not.
    Hole,
}

impl Chunks {
    /// Where what is wanted begins, from `offset` on; the end of the file is a hole. `None` if
    /// `offset` is not in the file, or no data follows.
    pub(crate) fn seek(
        &self,
        connection: &Connection,
        offset: u64,
        want: Extent,
    ) -> Result<Option<u64>> {
        loop {
            let until = connection.memory.until_of_open(self.ino);
            let found = self.seek_now(connection, offset, want)?;
            if !is_over(until) || connection.counts(self.file(connection)?, None)? {
                return Ok(found);
            }
        }
    }

    fn seek_now(&self, connection: &Connection, offset: u64, want: Extent) -> Result<Option<u64>> {
        let size = self.size(connection)?;
        let page = PAGE_BYTES as u64;
        let mut at = offset;
        while at < size {
            let record = self.record(connection)?;
            if is_data(connection, record, at) == (want == Extent::Data) {
                return Ok(Some(at));
            }
            let absent = map::entry(&connection.memory, record, at / CHUNK_BYTES).is_absent();
            at = if absent { (at / CHUNK_BYTES + 1) * CHUNK_BYTES } else { (at / page + 1) * page };
        }
        Ok((want == Extent::Hole && offset < size).then_some(size))
    }
}

impl Connection {
    /// How many bytes of a file are data, counted by pages, if it may have holes.
    pub(crate) fn data_bytes(&self, ino: Ino) -> Option<u64> {
        let memory = &self.memory;
        let slot = memory.look(|table| table.find(ino))?.slot?;
        let header = memory.header(slot)?;
        if header.holes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let own = |record: &&FileRecord| record.ino.load(Ordering::SeqCst) == ino.0;
        let record = memory.record(slot).filter(own)?;
        let page = PAGE_BYTES as u64;
        let all = SizeWord::load(&header.size).size().div_ceil(page);
        let backed = record.backed_bytes.load(Ordering::SeqCst).div_ceil(page).min(all);
        let mut data = backed;
        map::each(memory, record, |index, entry| {
            let first = index * (CHUNK_BYTES / page);
            let within = |end: u64| end.saturating_sub(first).min(CHUNK_BYTES / page);
            if !entry.is_here() {
                data = data.saturating_sub(within(backed)) + within(all);
                return;
            }
            let (start, pages) = (entry.page().0, within(all).min(entry.pages().into()) as u32);
            let is = |at: &u32| pages::state(memory.lanes(), *at) != PageState::Invalid;
            // What the backing has of this chunk does not count any more.
            data = data.saturating_sub(within(backed));
            data += (start..start + pages).filter(is).count() as u64;
        });
        Some(data * page)
    }
}

fn is_data(connection: &Connection, record: &FileRecord, at: u64) -> bool {
    let memory = &connection.memory;
    let now = || map::entry(memory, record, at / CHUNK_BYTES).unrecalled();
    let mut entry = now();
    loop {
        if entry.is_absent() {
            return at < record.backed_bytes.load(Ordering::SeqCst);
        }
        if !entry.is_here() {
            return true;
        }
        let page = (at % CHUNK_BYTES) as u32 / PAGE_BYTES as u32;
        let is = page < entry.pages()
            && pages::state(memory.lanes(), entry.page().0 + page) != PageState::Invalid;
        // Another file's page may be a hole that this one's is not.
        let after = now();
        if after == entry {
            return is;
        }
        entry = after;
    }
}
