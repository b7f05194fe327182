//! An open file: an open-file description in shared memory, and what can be done with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use terral_format::geometry::FILE_BYTES_MAX;
use terral_format::ids::{DescriptionSlot, Ino};
use terral_format::message::{Attributes, Change, FileRef, Reply, Request, Target};
use terral_format::tables::{Counters, Description, access};
use terral_format::{Error, ErrorKind, Result};

use crate::copy::Chunks;
use crate::session::{Connection, unexpected};

/// An open file. Cloning gives another handle on the same description; dropping does nothing: a
/// description opened with [`access::KERNEL`] ends with its last kernel descriptor, any other by
/// [`File::close`] or with the process.
#[derive(Clone)]
pub struct File {
    connection: Arc<Connection>,
    description: DescriptionSlot,
    nonce: u32,
    chunks: Arc<Chunks>,
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl File {
    pub(crate) fn new(
        connection: Arc<Connection>,
        description: DescriptionSlot,
        nonce: u32,
        file: FileRef,
    ) -> Self {
        File { connection, description, nonce, chunks: Arc::new(Chunks::new(file)) }
    }

    /// Index of the description.
    pub fn description(&self) -> DescriptionSlot {
        self.description
    }

    /// What descriptors of it carry.
    pub fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.chunks.file.ino
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.chunks.file.slot.0 == u32::MAX
    }

    /// The description, if it still is the one that was opened.
    fn words(&self) -> Result<&Description> {
        let words = self.connection.memory.description(self.description.0);
        let own = words.filter(|w| w.nonce.load(Ordering::Acquire) == u64::from(self.nonce));
        own.ok_or_else(|| Error::new(ErrorKind::BadHandle, "descriptor of a closed file"))
    }

    /// Bits of [`access`]; 0 if it is closed.
    pub fn access(&self) -> u64 {
        self.words().map_or(0, |words| words.access.load(Ordering::Relaxed))
    }

    /// Sets or clears `O_APPEND`, for all who share the description.
    pub fn set_append(&self, on: bool) {
        if let Ok(words) = self.words() {
            if on {
                words.access.fetch_or(access::APPEND, Ordering::Relaxed);
            } else {
                words.access.fetch_and(!access::APPEND, Ordering::Relaxed);
            }
        }
    }

    fn words_for(&self, need: u64) -> Result<&Description> {
        let words = self.words()?;
        if words.access.load(Ordering::Relaxed) & need == 0 {
            return Err(Error::new(ErrorKind::BadHandle, "descriptor not open for this"));
        }
        if self.is_directory() {
            return Err(Error::new(ErrorKind::IsDirectory, "descriptor"));
        }
        Ok(words)
    }

    fn count(
        &self,
        begin: Instant,
        bytes: usize,
        of: fn(&Counters) -> (&AtomicU64, &AtomicU64, &AtomicU64),
    ) -> Result<()> {
        let (calls, sum, time_ns) = of(&self.connection.own()?.page().counters);
        calls.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes as u64, Ordering::Relaxed);
        time_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn was_read(&self, begin: Instant, bytes: usize) -> Result<()> {
        let header = self.chunks.header(&self.connection)?;
        // As `relatime` has it: the first read after a write counts.
        let accessed = header.accessed_ns.load(Ordering::Relaxed);
        if accessed <= header.modified_ns.load(Ordering::Relaxed) {
            header.accessed_ns.store(now_ns(), Ordering::Relaxed);
        }
        self.count(begin, bytes, |c| (&c.reads, &c.read_bytes, &c.read_ns))
    }

    fn was_written(&self, begin: Instant, bytes: usize) -> Result<()> {
        self.chunks.header(&self.connection)?.modified_ns.store(now_ns(), Ordering::Relaxed);
        self.count(begin, bytes, |c| (&c.writes, &c.written_bytes, &c.write_ns))
    }

    /// Reads at the shared offset. Fewer bytes than asked for only at the end of the file.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let begin = Instant::now();
        let words = self.words_for(access::READ)?;
        let mut offset = words.offset.load(Ordering::SeqCst);
        let count = loop {
            let size = self.chunks.size(&self.connection)?;
            let count = (buffer.len() as u64).min(size.saturating_sub(offset));
            // Taking the range first gives every reader of a shared offset bytes of its own.
            let next = offset + count;
            let order = Ordering::SeqCst;
            match words.offset.compare_exchange(offset, next, order, order) {
                Ok(_) => break count as usize,
                Err(now) => offset = now,
            }
        };
        let count = self.chunks.read(&self.connection, &mut buffer[..count], offset)?;
        self.was_read(begin, count)?;
        Ok(count)
    }

    /// Writes all of `bytes` at the shared offset, or at the end if the description appends.
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        let begin = Instant::now();
        let words = self.words_for(access::WRITE)?;
        let length = bytes.len() as u64;
        if words.access.load(Ordering::Relaxed) & access::APPEND != 0 {
            let at = self.chunks.append(&self.connection, bytes)?;
            words.offset.store(at + length, Ordering::SeqCst);
        } else {
            let at = words.offset.fetch_add(length, Ordering::SeqCst);
            let written = check_range(at, length)
                .and_then(|()| self.chunks.write(&self.connection, bytes, at));
            if let Err(error) = written {
                let order = Ordering::SeqCst;
                let _ = words.offset.compare_exchange(at.wrapping_add(length), at, order, order);
                return Err(error);
            }
        }
        self.was_written(begin, bytes.len())?;
        Ok(bytes.len())
    }

    /// Reads at `offset`. Fewer bytes than asked for only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let begin = Instant::now();
        self.words_for(access::READ)?;
        let count = self.chunks.read(&self.connection, buffer, offset)?;
        self.was_read(begin, count)?;
        Ok(count)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let begin = Instant::now();
        self.words_for(access::WRITE)?;
        check_range(offset, bytes.len() as u64)?;
        self.chunks.write(&self.connection, bytes, offset)?;
        self.was_written(begin, bytes.len())?;
        Ok(bytes.len())
    }

    /// Appends all of `bytes`, in one piece also among other appenders.
    pub fn append(&self, bytes: &[u8]) -> Result<usize> {
        let begin = Instant::now();
        self.words_for(access::WRITE)?;
        self.chunks.append(&self.connection, bytes)?;
        self.was_written(begin, bytes.len())?;
        Ok(bytes.len())
    }

    /// The shared offset, bytes.
    pub fn offset(&self) -> u64 {
        self.words().map_or(0, |words| words.offset.load(Ordering::SeqCst))
    }

    /// Sets the shared offset.
    pub fn set_offset(&self, offset: u64) {
        if let Ok(words) = self.words() {
            words.offset.store(offset, Ordering::SeqCst);
        }
    }

    /// Size now, bytes; 0 for a directory.
    pub fn size(&self) -> u64 {
        self.chunks.size(&self.connection).unwrap_or(0)
    }

    /// Attributes now.
    pub fn attributes(&self) -> Result<Attributes> {
        self.words()?;
        match self.connection.call(Request::Stat(self.target()))? {
            Reply::Attributes(attributes) => Ok(attributes),
            _ => Err(unexpected()),
        }
    }

    fn target(&self) -> Target<'static> {
        Target::File(self.chunks.file)
    }

    fn done(&self, request: Request<'_>) -> Result<()> {
        match self.connection.call(request)? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Changes attributes.
    pub fn change(&self, change: Change) -> Result<()> {
        self.words()?;
        self.done(Request::Change { target: self.target(), change })
    }

    /// Makes the file `size` bytes long.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.words_for(access::WRITE)?;
        self.done(Request::Truncate { target: self.target(), size })
    }

    /// Returns when the file is as safe as the durability of its container promises.
    pub fn sync(&self) -> Result<()> {
        self.words()?;
        if self.is_directory() { Ok(()) } else { self.done(Request::Sync(self.chunks.file)) }
    }

    /// Tells the server that a descriptor of the description is closed (for one opened with
    /// [`access::KERNEL`], after `close(2)`), or that the description is not needed any more.
    pub fn close(&self) {
        let (description, nonce) = (self.description, self.nonce);
        // A server that is gone has nothing left to close.
        let _ = self.connection.tell(Request::Close { description, nonce });
    }
}

fn check_range(offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Error::new(ErrorKind::TooLarge, "offset")),
    }
}
