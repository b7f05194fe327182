//! Maps a file's chunks into the program's address space, as
//! `docs/decisions/2026-11-21-memory-maps.md` prescribes. Not here: which maps are copies, and how
//! chunks of another machine's file come here (`file/far`).

use std::time::{Duration, Instant};

use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::wire::message::Request;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::maps::{How, Window};
use terral_transport::{own_files, requests};

use crate::copy::Chunks;
use crate::map;
use crate::session::Connection;

/// Chunks that the server is asked for at a time.
const ASKED: u64 = 8;
/// A chunk that is another one each time it is pinned is given up.
const TRIES: u32 = 1000;
/// How long memory may be full: what is pinned already cannot give way to somebody else's map.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Whether a chunk may be mapped as it is. One that is borrowed may not: nobody could look at the
/// clock after each access.
fn is_fit(entry: MapEntry, how: &How) -> bool {
    entry.is_mappable()
        && !entry.is_borrowed()
        && !entry.is_recalled()
        && (entry.is_stored() || !how.stores())
}

/// Asks again while memory is full, or what is asked for is not to be had just now, but not for
/// ever.
pub(crate) fn ask_patiently<T>(ask: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        let answer = match ask() {
            Ok(Some(had)) => return Ok(had),
            Ok(None) => Error::new(ErrorKind::TextBusy, "somebody else goes on writing there"),
            Err(error) if error.kind == ErrorKind::NoSpace => error,
            Err(error) => return Err(error),
        };
        if begin.elapsed() >= PATIENCE {
            return Err(answer);
        }
        requests::meanwhile(begin);
        std::thread::sleep(PAUSE);
    }
}

/// Has chunks made fit to be mapped, from one on at most so many. `None`: not just now.
pub(crate) type Ask<'a> = &'a dyn Fn(u64, u32) -> Result<Option<()>>;

impl Chunks {
    /// Maps what `how` says, whole. Gives the address.
    pub(crate) fn map(&self, connection: &Connection, how: How) -> Result<usize> {
        self.map_by(connection, how, &|first, count| {
            let (file, stores) = (self.file(connection)?, how.stores());
            connection.call(Request::Map { file, first, count, stores }).map(|_| Some(()))
        })
    }

    /// The same, if it is somebody else who is asked for chunks.
    pub(crate) fn map_by(&self, connection: &Connection, how: How, ask: Ask<'_>) -> Result<usize> {
        let bytes = how.length.next_multiple_of(PAGE_BYTES);
        let end = how.offset.checked_add(bytes as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or_else(|| Error::new(ErrorKind::TooLarge, "map"))?;
        if bytes as u64 > connection.memory.geometry.arena_bytes() {
            return Err(Error::new(ErrorKind::NoSpace, "a map of more than there is memory"));
        }
        own_files::retry(|| self.map_until(connection, how, end, ask))
    }

    fn map_until(
        &self,
        connection: &Connection,
        how: How,
        end: u64,
        ask: Ask<'_>,
    ) -> Result<usize> {
        let mut window = Window::reserve(connection.instance(), how)?;
        let mut at = how.offset;
        while at < end {
            let next = ((at / CHUNK_BYTES + 1) * CHUNK_BYTES).min(end);
            self.map_piece(connection, (&mut window, &how), at..next, (end, ask))?;
            at = next;
        }
        Ok(window.keep())
    }

    /// Maps bytes that lie in one chunk.
    fn map_piece(
        &self,
        connection: &Connection,
        (window, how): (&mut Window<'_>, &How),
        range: std::ops::Range<u64>,
        (end, ask): (u64, Ask<'_>),
    ) -> Result<()> {
        let first = range.start / CHUNK_BYTES;
        for _ in 0..TRIES {
            let entry = map::entry(&connection.memory, self.record(connection)?, first);
            if !is_fit(entry, how) {
                let count = (end.div_ceil(CHUNK_BYTES) - first).min(ASKED) as u32;
                ask_patiently(|| ask(first, count))?;
                continue;
            }
            window.pin(entry.page())?;
            // A server that moves it has raised the flag before it asked for locks.
            if map::entry(&connection.memory, self.record(connection)?, first) == entry {
                let (at, within) = (range.start - how.offset, range.start % CHUNK_BYTES);
                let bytes = (range.end - range.start) as usize;
                return window.place(at as usize, entry.page(), within as usize, bytes);
            }
            window.unpin(entry.page())?;
        }
        Err(Error::new(ErrorKind::WouldBlock, "a chunk that does not stay"))
    }
}
