//! Chunks of another machine's file that are this machine's alone: its processes write and read
//! them as those of a file of their own, which has no name.
//!
//! Invariant: what was written beyond the end that the file is known to have is answered only once
//! its home has made it so long, and all chunks that it was written to still were this machine's
//! then; else it is written by asking. Not here: who may have a chunk (`server/far/lent`), and what
//! others do in it (`copy`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terral_format::Result;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::tables::access;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{FileRef, Reply, Request, Seen};

use super::File;
use crate::copy::Chunks;
use crate::session::unexpected;

/// Most chunks that are asked for at once: 32 MiB.
const COUNT_MAX: u32 = 16;
/// Who writes less, and not one after the other, does not need a chunk for itself; who begins
/// beyond the first chunk may go straight on.
const LEAST_BYTES: usize = 64 << 10;
/// After as many refusals as that, one after the other, it is hardly asked any more.
const STREAK_MAX: u32 = 10;
/// So often a chunk that was had is gone before anything was written to it.
const TRIES: u32 = 3;

/// See the module.
#[derive(Default)]
pub(super) struct Loan {
    /// Where the chunks are. In a signal handler it may not be to be had.
    file: Mutex<Option<FileRef>>,
    /// Where the last write ended.
    next: AtomicU64,
    /// Chunks asked for by who goes straight on.
    ahead: AtomicU32,
    /// Refusals one after the other, and writes until it is asked again.
    streak: AtomicU32,
    pause: AtomicU32,
}

/// So many chunks count together: what a call writes to more of them counts bit by bit.
const TOGETHER: usize = 16;

/// What was written to a chunk without asking, and where in the file that ends.
#[derive(Clone, Copy)]
struct Put {
    index: u64,
    entry: MapEntry,
    end: u64,
}

impl Loan {
    fn chunks(&self) -> Option<Chunks> {
        self.file.try_lock().ok().and_then(|file| *file).map(Chunks::new)
    }

    fn set(&self, file: Option<FileRef>) {
        if let Ok(mut known) = self.file.try_lock() {
            *known = file;
        }
    }

    /// How many chunks to ask for, if any, before so many bytes are written there.
    fn wanted(&self, at: u64, bytes: usize) -> Option<u32> {
        let next = self.next.load(Ordering::Relaxed);
        let (follows, begins) = (next == at && at > 0, next == 0 && at >= CHUNK_BYTES);
        if !follows && !begins && bytes < LEAST_BYTES {
            return None;
        }
        // What was refused has been written by asking: the rest of that chunk is at home, too.
        if follows && !at.is_multiple_of(CHUNK_BYTES) && self.streak.load(Ordering::Relaxed) > 0 {
            return None;
        }
        if self.pause.load(Ordering::Relaxed) > 0 {
            self.pause.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let call = (at % CHUNK_BYTES + bytes as u64).div_ceil(CHUNK_BYTES) as u32;
        let ahead = match follows {
            true => self.ahead.load(Ordering::Relaxed).clamp(1, COUNT_MAX),
            false => 1,
        };
        self.ahead.store(ahead * 2, Ordering::Relaxed);
        Some(call.max(ahead).min(COUNT_MAX))
    }

    fn had(&self, file: FileRef) {
        self.streak.store(0, Ordering::Relaxed);
        self.set(Some(file));
    }

    fn was_refused(&self) {
        let streak = self.streak.fetch_add(1, Ordering::Relaxed).min(STREAK_MAX);
        self.pause.store((1 << streak) - 1, Ordering::Relaxed);
    }
}

/// Bytes from `at` on by the chunk in which they are.
fn by_chunk(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let first = ((CHUNK_BYTES - at % CHUNK_BYTES) as usize).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let begins = (at + first as u64..).step_by(CHUNK_BYTES as usize);
    std::iter::once((at, head)).chain(begins.zip(rest.chunks(CHUNK_BYTES as usize)))
}

impl File {
    /// Writes at `at`: what it can to chunks that are this machine's alone, the rest by asking.
    pub(super) fn put(&self, bytes: &[u8], at: u64) -> Result<()> {
        if self.access() & access::COMMIT != 0 {
            let put = self.put_to_log(bytes, at)?;
            return match put == bytes.len() {
                true => Ok(()),
                false => self.ship(&bytes[put..], Some(at + put as u64)).map(drop),
            };
        }
        let Some(loan) = &self.loan else { return self.ship(bytes, Some(at)).map(drop) };
        let end = at + bytes.len() as u64;
        let (mut bytes, mut at) = (bytes, at);
        while !bytes.is_empty() {
            let most = TOGETHER * CHUNK_BYTES as usize - (at % CHUNK_BYTES) as usize;
            let (some, rest) = bytes.split_at(most.min(bytes.len()));
            self.put_together(loan, some, (at, end))?;
            (bytes, at) = (rest, at + some.len() as u64);
        }
        Ok(())
    }

    /// The same of bytes from `at` on, in few chunks, of a call that ends there.
    fn put_together(&self, loan: &Loan, bytes: &[u8], (at, end): (u64, u64)) -> Result<()> {
        let mut put = [None; TOGETHER];
        let mut rest: Option<(u64, usize)> = None;
        for ((begin, piece), put) in by_chunk(at, bytes).zip(&mut put) {
            *put = self.put_lent(loan, begin, piece, (end - begin) as usize)?;
            if put.is_some() {
                self.ship_rest(bytes, at, rest.take())?;
            } else {
                let (from, count) = rest.unwrap_or((begin, 0));
                rest = Some((from, count + piece.len()));
            }
        }
        loan.next.store(at + bytes.len() as u64, Ordering::Relaxed);
        self.ship_rest(bytes, at, rest)?;
        match self.counts_lent(loan, &put)? {
            true => Ok(()),
            false => self.ship(bytes, Some(at)).map(drop),
        }
    }

    fn ship_rest(&self, bytes: &[u8], at: u64, rest: Option<(u64, usize)>) -> Result<()> {
        let Some((from, count)) = rest else { return Ok(()) };
        let begin = (from - at) as usize;
        self.ship(&bytes[begin..begin + count], Some(from)).map(drop)
    }

    /// Writes bytes of one chunk without asking; `call`: that many are left of the call. `None`:
    /// they are to be written by asking.
    fn put_lent(&self, loan: &Loan, at: u64, piece: &[u8], call: usize) -> Result<Option<Put>> {
        let index = at / CHUNK_BYTES;
        for _ in 0..TRIES {
            if let Some(chunks) = loan.chunks()
                && let Some(entry) = chunks.write_lent(&self.connection, piece, at)?
            {
                chunks.header(&self.connection)?.wrote(self.connection.time_ns());
                return Ok(Some(Put { index, entry, end: at + piece.len() as u64 }));
            }
            let Some(count) = loan.wanted(at, call) else { return Ok(None) };
            let asked = FarFile::Borrow { of: self.handle(), first: index, count };
            match self.connection.call(Request::Far(asked))? {
                Reply::Lent(file) => loan.had(file),
                Reply::Again => {
                    loan.was_refused();
                    return Ok(None);
                }
                _ => return Err(unexpected()),
            }
        }
        Ok(None)
    }

    /// Chunks of it are here.
    pub(super) fn has_lent(&self, file: FileRef) {
        self.loan.iter().for_each(|loan| loan.had(file));
    }

    /// Has the file as long as was written. False: a chunk is not this machine's any more, or was
    /// not for a while, and what was written there may not count.
    fn counts_lent(&self, loan: &Loan, put: &[Option<Put>]) -> Result<bool> {
        let Some(end) = put.iter().flatten().map(|put| put.end).max() else { return Ok(true) };
        let Some(chunks) = loan.chunks() else { return Ok(false) };
        let Ok(word) = chunks.known_size(&self.connection) else { return Ok(false) };
        if end > word.size() {
            let asked = FarFile::Grow { of: self.handle(), to: end, epoch: word.epoch() };
            match self.connection.call(Request::Far(asked))? {
                Reply::Done => {}
                Reply::Again => return Ok(false),
                _ => return Err(unexpected()),
            }
        }
        // Who is asked for one from now on gives it as far as the file is long by now.
        let is_still = |put: &Put| chunks.is_still(&self.connection, put.index, put.entry);
        Ok(put.iter().flatten().all(is_still))
    }

    /// Reads bytes of a chunk that is this machine's alone, as far as the file is known to go.
    /// `None`: they are to be asked for, up to the end of that chunk.
    pub(super) fn read_lent(&self, into: &mut [u8], at: u64) -> Result<Option<usize>> {
        let Some(chunks) = self.loan.as_ref().and_then(|loan| loan.chunks()) else {
            return Ok(None);
        };
        let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        let most = into.len().min(room);
        chunks.read_lent(&self.connection, &mut into[..most], at)
    }

    /// How many bytes from `at` on may be asked for at once.
    pub(super) fn to_ask_for(&self, at: u64, bytes: usize) -> usize {
        let borrows = self.loan.as_ref().is_some_and(|loan| loan.chunks().is_some());
        let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        if borrows { bytes.min(room) } else { bytes }
    }

    /// What was written here without asking counts for who has the file open.
    pub(super) fn with_own_times(&self, mut seen: Seen) -> Seen {
        let chunks = self.loan.as_ref().and_then(|loan| loan.chunks());
        let header = chunks.as_ref().and_then(|chunks| chunks.header(&self.connection).ok());
        let modified_ns = header.map_or(0, |header| header.modified_ns.load(Ordering::Relaxed));
        let own = &mut seen.attributes;
        if modified_ns > own.changed_ns {
            (own.modified_ns, own.changed_ns) = (modified_ns, modified_ns);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, COUNT_MAX, LEAST_BYTES, Loan, by_chunk};

    #[test]
    fn calls_are_cut_where_chunks_end() {
        let bytes = vec![0; 2 * CHUNK_BYTES as usize];
        let cut = |at| -> Vec<(u64, usize)> {
            by_chunk(at, &bytes).map(|(at, piece)| (at, piece.len())).collect()
        };
        let (chunk, whole) = (CHUNK_BYTES, CHUNK_BYTES as usize);
        assert_eq!(cut(chunk), [(chunk, whole), (2 * chunk, whole)]);
        assert_eq!(cut(chunk + 5), [(chunk + 5, whole - 5), (2 * chunk, whole), (3 * chunk, 5)]);
    }

    #[test]
    fn who_goes_straight_on_asks_for_more_and_who_is_refused_for_less() {
        let loan = Loan::default();
        assert_eq!(loan.wanted(100, 100), None);
        assert_eq!(loan.wanted(100, LEAST_BYTES), Some(1));
        assert_eq!(loan.wanted(CHUNK_BYTES, 100), Some(1), "the first beyond the first chunk");
        loan.next.store(1, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(loan.wanted(CHUNK_BYTES, 100), None);
        loan.next.store(CHUNK_BYTES, std::sync::atomic::Ordering::Relaxed);
        let counts: Vec<_> = (0..6).map(|_| loan.wanted(CHUNK_BYTES, 100)).collect();
        assert_eq!(counts.last(), Some(&Some(COUNT_MAX)));
        (0..3).for_each(|_| loan.was_refused());
        let asks = (0..8).filter(|_| loan.wanted(CHUNK_BYTES, 100).is_some()).count();
        assert_eq!(asks, 5, "three are left out");
    }

    /// Two writes for each chunk, of which the first of all is refused.
    #[test]
    fn who_is_refused_one_chunk_asks_for_one_that_is_not_begun() {
        let (loan, half) = (Loan::default(), CHUNK_BYTES / 2);
        let mut asked = Vec::new();
        for at in (0..8).map(|n| 4 * CHUNK_BYTES + n * half) {
            if loan.wanted(at, half as usize).is_some() {
                asked.push(at / half - 8);
                loan.was_refused();
            }
            loan.next.store(at + half, std::sync::atomic::Ordering::Relaxed);
        }
        assert_eq!(asked, [0, 2, 6]);
    }
}
