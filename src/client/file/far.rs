//! A file whose bytes are on another machine: all that is done with it is asked of the server, and
//! done where it was born, so that all machines see one file.
//!
//! Invariant: nothing that was read is used here by another call. Not here: what this machine's
//! server keeps, and who carries it out, and once (`server/far`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use terral_format::Result;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::tables::{Description, access};
use terral_format::wire::far_files::{CALL_MAX, FarFile, Handle, PIECE_MAX, Piece, Stored};
use terral_format::wire::message::{FileRef, Reply, Request, Seen};
use terral_format::{Error, ErrorKind};
use terral_transport::fault;
use terral_transport::maps::How as MapHow;

use super::{File, READS, WRITES, check_range};
use crate::bounce::Shipped;
use crate::copy::Chunks;
use crate::holes::Extent;
use crate::maps::ask_patiently;
use crate::session::unexpected;

/// `ENODEV`.
const ENODEV: i32 = 19;
/// Parts of one call that are under way at a time.
const AHEAD: usize = 3;
/// A server that forgets the pieces of a call so often has too much to do.
const TRIES: u32 = 100;

/// A part of a write, and where it goes.
type UnderWay<'b> = (Shipped, &'b [u8], Option<u64>);

/// What a part of a call has read.
enum Part {
    /// There may be more.
    Some(usize),
    /// The file ends there.
    Last(usize),
}

/// Calls of this process so far.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// The number of a call that has several pieces.
pub(crate) fn next_call() -> u64 {
    CALLS.fetch_add(1, Ordering::Relaxed)
}

fn refused(errno: i32, what: &str) -> Error {
    let context = format!("{what} of a file of another machine");
    Error { errno, ..Error::new(ErrorKind::Unsupported, context) }
}

/// Where the pieces of a call begin, how long each is, and how much is after it.
fn pieces(bytes: usize) -> impl Iterator<Item = (usize, usize, u32)> {
    (0..bytes).step_by(PIECE_MAX).map(move |within| {
        let length = PIECE_MAX.min(bytes - within);
        (within, length, (bytes - within - length) as u32)
    })
}

impl File {
    pub(super) fn handle(&self) -> Handle {
        Handle { description: self.description, nonce: self.nonce }
    }

    /// Reads at `offset`; fewer bytes only at the end of the file.
    fn fetch(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let mut read = 0;
        while read < into.len() {
            let Some(at) = offset.checked_add(read as u64) else { break };
            if let Some(count) = self.read_lent(&mut into[read..], at)? {
                read += count;
                continue;
            }
            let most = self.to_ask_for(at, (into.len() - read).min(CALL_MAX));
            match self.fetch_part(&mut into[read..read + most], at)? {
                Part::Some(count) => read += count,
                Part::Last(count) => return Ok(read + count),
            }
        }
        Ok(read)
    }

    /// Reads what one call may.
    fn fetch_part(&self, into: &mut [u8], offset: u64) -> Result<Part> {
        let mut read = 0;
        let call = next_call();
        for (within, length, more) in pieces(into.len()) {
            let piece = Piece { call, within: within as u32, more };
            let Some(at) = offset.checked_add(within as u64) else { return Ok(Part::Last(read)) };
            let asked = FarFile::Read { of: self.handle(), at, bytes: length as u32, piece };
            let starts = self.starts();
            let bytes = match self.connection.call(Request::Far(asked))? {
                Reply::Extent(bytes) if bytes.len() <= length => bytes,
                Reply::Stored { places, ends } if within == 0 => {
                    return self.take_stored(into, &places, (call, ends, starts));
                }
                _ => return Err(unexpected()),
            };
            fault::copy(&mut into[within..within + bytes.len()], &bytes)?;
            read += bytes.len();
            if bytes.len() < length {
                return Ok(Part::Last(read));
            }
        }
        Ok(Part::Some(read))
    }

    /// Which process of the server this is.
    fn starts(&self) -> u64 {
        self.connection.memory.superblock().starts.load(Ordering::SeqCst)
    }

    /// Copies what this machine's server has stored for a call, and says that it is through. If the
    /// server died meanwhile, that counts as nothing: the memory may have been given to others.
    fn take_stored(
        &self,
        into: &mut [u8],
        places: &[Stored],
        (call, ends, starts): (u64, bool, u64),
    ) -> Result<Part> {
        let copied = self.copy_stored(into, places);
        fence(Ordering::SeqCst);
        let counts = self.starts() == starts;
        // Also if it failed, as for a buffer that is none.
        self.connection.tell(Request::Far(FarFile::Through { call }))?;
        let read = copied?;
        Ok(match counts {
            true if ends => Part::Last(read),
            true => Part::Some(read),
            false => Part::Some(0),
        })
    }

    fn copy_stored(&self, into: &mut [u8], places: &[Stored]) -> Result<usize> {
        let mut read = 0;
        for place in places {
            let end = read + place.bytes as usize;
            let part = into.get_mut(read..end).ok_or_else(unexpected)?;
            self.connection.memory.read_arena(place.page, place.within as usize, part)?;
            read = end;
        }
        Ok(read)
    }

    /// Writes at `at`, or at the end of the file. Gives where the first of them is. More than
    /// [`CALL_MAX`] bytes are written in parts; if it is known where, some of them at a time.
    pub(super) fn ship(&self, bytes: &[u8], at: Option<u64>) -> Result<u64> {
        if let Some(at) = at {
            return self.ship_parts(bytes, at).map(|()| at);
        }
        let mut begins = bytes.chunks(CALL_MAX).map(|part| self.ship_part(part, None));
        let first = begins.next().transpose()?;
        begins.try_for_each(|begin| begin.map(drop))?;
        Ok(first.unwrap_or_default())
    }

    /// Also if one fails, no other is under way any more then.
    fn ship_parts(&self, bytes: &[u8], at: u64) -> Result<()> {
        let mut under_way = [const { None::<UnderWay<'_>> }; AHEAD];
        let mut parts = bytes.chunks(CALL_MAX).zip((at..).step_by(CALL_MAX)).enumerate();
        let done = parts.try_for_each(|(number, (part, at))| {
            let place = &mut under_way[number % AHEAD];
            place.take().map_or(Ok(()), |part| self.has_shipped(part).map(drop))?;
            match self.begin_to_ship(part, Some(at))? {
                Some(shipped) => *place = Some((shipped, part, Some(at))),
                None => drop(self.ship_pieces(part, Some(at))?),
            }
            Ok(())
        });
        let left = under_way.into_iter().flatten();
        left.fold(done, |done, part| done.and(self.has_shipped(part).map(drop)))
    }

    /// Where it begins.
    fn has_shipped(&self, (shipped, part, at): UnderWay<'_>) -> Result<u64> {
        match self.connection.has_shipped(shipped)? {
            Reply::At(begin) => Ok(begin),
            Reply::Again => self.ship_pieces(part, at),
            _ => Err(unexpected()),
        }
    }

    /// By way of a file of this machine, if it is more than a message. `None`: it is not, or there
    /// is no memory for it.
    fn begin_to_ship(&self, part: &[u8], at: Option<u64>) -> Result<Option<Shipped>> {
        if part.len() <= PIECE_MAX {
            return Ok(None);
        }
        let (of, bytes) = (self.handle(), part.len() as u32);
        self.connection.ship(part, |from| FarFile::Ship { of, at, from, bytes })
    }

    fn ship_part(&self, part: &[u8], at: Option<u64>) -> Result<u64> {
        match self.begin_to_ship(part, at)? {
            Some(shipped) => self.has_shipped((shipped, part, at)),
            None => self.ship_pieces(part, at),
        }
    }

    fn ship_pieces(&self, part: &[u8], at: Option<u64>) -> Result<u64> {
        for _ in 0..TRIES {
            if let Some(begin) = self.try_to_ship(part, at)? {
                return Ok(begin);
            }
        }
        Err(Error::new(ErrorKind::Busy, "too many long writes to files of other machines"))
    }

    /// `None`: the server has forgotten a piece.
    fn try_to_ship(&self, part: &[u8], at: Option<u64>) -> Result<Option<u64>> {
        let call = next_call();
        let mut buffer = vec![0; part.len().min(PIECE_MAX)];
        for (within, length, more) in pieces(part.len()) {
            let bytes = &mut buffer[..length];
            fault::copy(bytes, &part[within..within + length])?;
            let piece = Piece { call, within: within as u32, more };
            let asked = FarFile::Write { of: self.handle(), at, piece, bytes };
            match self.connection.call(Request::Far(asked))? {
                Reply::Done if more > 0 => {}
                Reply::At(begin) if more == 0 => return Ok(Some(begin)),
                Reply::Again => return Ok(None),
                _ => return Err(unexpected()),
            }
        }
        Err(unexpected())
    }

    #[cold]
    pub(super) fn read_far(&self, words: &Description, buffer: &mut [u8]) -> Result<usize> {
        let timed = self.begin(READS, buffer.len())?;
        let mut offset = words.offset.load(Ordering::SeqCst);
        loop {
            let count = self.fetch(buffer, offset)?;
            // Another reader of the same offset has these bytes; there are others for this one.
            let (next, order) = (offset + count as u64, Ordering::SeqCst);
            match words.offset.compare_exchange(offset, next, order, order) {
                Ok(_) => {
                    self.count(READS, &timed, count)?;
                    return Ok(count);
                }
                Err(now) => offset = now,
            }
        }
    }

    #[cold]
    pub(super) fn read_far_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let timed = self.begin(READS, buffer.len())?;
        let count = self.fetch(buffer, offset)?;
        self.count(READS, &timed, count)?;
        Ok(count)
    }

    #[cold]
    pub(super) fn write_far(&self, words: &Description, bytes: &[u8]) -> Result<usize> {
        let (timed, length) = (self.begin(WRITES, bytes.len())?, bytes.len() as u64);
        if words.access.load(Ordering::Relaxed) & access::APPEND != 0 {
            let at = self.ship(bytes, None)?;
            if length > 0 {
                words.offset.store(at + length, Ordering::SeqCst);
            }
        } else {
            let at = words.offset.fetch_add(length, Ordering::SeqCst);
            let shipped = check_range(at, length).and_then(|()| self.put(bytes, at));
            if let Err(error) = shipped {
                let order = Ordering::SeqCst;
                let _ = words.offset.compare_exchange(at.wrapping_add(length), at, order, order);
                return Err(error);
            }
        }
        self.count(WRITES, &timed, bytes.len())?;
        Ok(bytes.len())
    }

    #[cold]
    pub(super) fn write_far_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let timed = self.begin(WRITES, bytes.len())?;
        check_range(offset, bytes.len() as u64)?;
        self.put(bytes, offset)?;
        self.count(WRITES, &timed, bytes.len())?;
        Ok(bytes.len())
    }

    #[cold]
    pub(super) fn append_far(&self, bytes: &[u8]) -> Result<u64> {
        let timed = self.begin(WRITES, bytes.len())?;
        let at = match bytes.is_empty() {
            true => self.attributes()?.size,
            false => self.ship(bytes, None)?,
        };
        self.count(WRITES, &timed, bytes.len())?;
        Ok(at + bytes.len() as u64)
    }

    pub(super) fn attributes_far(&self) -> Result<Seen> {
        match self.connection.call(Request::Stat(self.target()?))? {
            Reply::Attributes(attributes) => Ok(self.with_own_times(attributes)),
            _ => Err(unexpected()),
        }
    }

    /// All of it counts as data, as `lseek(2)` allows.
    pub(super) fn seek_far(&self, offset: u64, want: Extent) -> Result<Option<u64>> {
        let size = self.attributes_far()?.size;
        let found = if want == Extent::Data { offset } else { size };
        Ok((offset < size).then_some(found))
    }

    /// Maps chunks that are made this machine's alone for that.
    #[cold]
    pub(super) fn map_far(&self, how: MapHow) -> Result<usize> {
        if self.access() & access::COMMIT != 0 {
            // What is stored there would not wait for a commit.
            return Err(refused(ENODEV, "a shared map"));
        }
        let first = how.offset / CHUNK_BYTES;
        let chunks = Chunks::new(ask_patiently(|| self.ask_to_map(first, how.stores()))?);
        let at = chunks.map_by(&self.connection, how, &|first, _| {
            self.ask_to_map(first, how.stores()).map(|file| file.map(drop))
        })?;
        if how.stores() {
            chunks.header(&self.connection)?.wrote(self.connection.time_ns());
        }
        Ok(at)
    }

    /// Has a chunk here to be mapped. Gives where it is; `None`: not just now.
    fn ask_to_map(&self, index: u64, stores: bool) -> Result<Option<FileRef>> {
        let asked = FarFile::Map { of: self.handle(), index, stores };
        match self.connection.call(Request::Far(asked))? {
            Reply::Lent(file) => {
                self.has_lent(file);
                Ok(Some(file))
            }
            Reply::Again => Ok(None),
            _ => Err(unexpected()),
        }
    }
}
