//! An open file: an open-file description in shared memory, and what can be done with it.

use std::ffi::CString;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::ids::{DescriptionSlot, FileSlot, Ino, Member};
use terral_format::local::deferred::{Key, Recallable};
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};
use terral_format::local::names::Table;
use terral_format::local::size::SizeWord;
use terral_format::local::tables::{Counters, Description, access};
use terral_format::wire::message::{
    Change, FileRef, OpenHow, Reply, Request, Seen, Target, XattrHow, gives_rights,
};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::maps::How as MapHow;
use terral_transport::permission::acting;
use terral_transport::program;

use crate::copy::Chunks;
use crate::holding::own_token;
use crate::holes::Extent;
use crate::session::{Connection, unexpected};
use crate::timing::Timed;

mod at_once;
pub(crate) mod far;
mod fencing;
mod loan;
mod locking;
mod log;
mod updating;

/// An open file. Cloning gives another handle on the same description; dropping does nothing: a
/// description opened with [`access::KERNEL`] ends with its last kernel descriptor, any other by
/// [`File::close`] or with the process.
#[derive(Clone)]
pub struct File {
    connection: Arc<Connection>,
    description: DescriptionSlot,
    nonce: u32,
    chunks: Arc<Chunks>,
    /// How the open can be recalled, if the server need not have heard of it.
    opened: Option<Recallable>,
    /// Chunks of another machine's file that are here.
    loan: Option<Arc<loan::Loan>>,
    /// What is written to such a file, and not committed.
    log: Option<Arc<log::Log>>,
}

/// Most paths of directories are no longer.
const SHORT_PATH: usize = 256;

/// A path that is no allocation.
pub struct ShortPath {
    bytes: [u8; SHORT_PATH],
    start: usize,
}

impl Deref for ShortPath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Which counters: calls, bytes, and nanoseconds.
type Calls = fn(&Counters) -> (&AtomicU64, &AtomicU64, &AtomicU64);

const READS: Calls = |c| (&c.reads, &c.read_bytes, &c.read_ns);
const WRITES: Calls = |c| (&c.writes, &c.written_bytes, &c.write_ns);

const DAY_NS: u64 = 86_400 * 1_000_000_000;

impl File {
    pub(crate) fn new(
        connection: Arc<Connection>,
        description: DescriptionSlot,
        nonce: u32,
        file: FileRef,
        opened: Option<Recallable>,
    ) -> Self {
        let is_far = file.slot == FileSlot::FAR;
        let (loan, log) = (is_far.then(Arc::default), is_far.then(Arc::default));
        let chunks = Arc::new(Chunks::new(file));
        let file = File { connection, description, nonce, chunks, opened, loan, log };
        file.begin_token();
        file
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
        self.chunks.ino
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.chunks.slot() == FileSlot::NONE && !self.is_link()
    }

    /// Whether its bytes are on another machine.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.chunks.slot() == FileSlot::FAR
    }

    /// Whether it is a symbolic link itself.
    pub fn is_link(&self) -> bool {
        self.access() & access::LINK != 0
    }

    /// The description, if it still is the one that was opened.
    fn words(&self) -> Result<&Description> {
        let words = self.connection.memory.description(self.description.0);
        let own = words.filter(|words| words.is(self.nonce));
        own.ok_or_else(|| Error::new(ErrorKind::BadHandle, "descriptor of a closed file"))
    }

    /// Bits of [`access`]; 0 if it is closed.
    pub fn access(&self) -> u64 {
        self.words().map_or(0, |words| words.access.load(Ordering::Relaxed))
    }

    /// Its kernel descriptors are locked from now on.
    pub fn set_shared(&self) {
        if let Some(words) = self.connection.memory.description(self.description.0) {
            words.share(self.nonce);
        }
    }

    /// Sets or clears [`access::APPEND`] or [`access::DIRECT`], for all who share the description.
    pub fn set_flag(&self, flag: u64, on: bool) {
        if let Ok(words) = self.words() {
            if on {
                words.access.fetch_or(flag, Ordering::Relaxed);
            } else {
                words.access.fetch_and(!flag, Ordering::Relaxed);
            }
        }
    }

    fn words_for(&self, need: u64) -> Result<&Description> {
        let words = self.words()?;
        if words.access.load(Ordering::Relaxed) & need == 0 {
            return Err(Error::new(ErrorKind::BadHandle, "descriptor not open for this"));
        }
        self.connection.allows(need, move || self.is_contained(need))?;
        if self.is_directory() {
            return Err(Error::new(ErrorKind::IsDirectory, "descriptor"));
        }
        Ok(words)
    }

    /// Who has logged in asks once more, whenever containers have changed.
    fn is_contained(&self, need: u64) -> Result<()> {
        let changes = self.connection.containers();
        if changes == 0 || self.chunks.is_let(changes, need) {
            return Ok(());
        }
        let file = FileRef { ino: self.chunks.ino, slot: self.chunks.slot() };
        self.connection.use_of(file, need)?;
        self.chunks.let_so(changes, need);
        Ok(())
    }

    /// Before bytes are written: who is not root takes set-id bits off.
    #[inline]
    fn drop_set_id(&self, bytes: usize) -> Result<()> {
        let mode = self.connection.memory.names().mode_hint(self.ino());
        if !gives_rights(mode.into()) || acting().person.is_root() || bytes == 0 {
            return Ok(());
        }
        self.done(Request::DropSetId(self.file()?))
    }

    /// Before bytes are written beyond the end: what they leave out is a hole.
    #[inline]
    fn note_gap(&self, offset: u64) -> Result<()> {
        let header = self.chunks.header(&self.connection)?;
        if offset > SizeWord::load(&header.size).size() {
            header.holes.store(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A read or write of so many bytes begins.
    fn begin(&self, of: Calls, bytes: usize) -> Result<Timed> {
        let (calls, ..) = of(&self.connection.own()?.page().counters);
        Ok(Timed::begin(bytes, calls.load(Ordering::Relaxed)))
    }

    fn count(&self, of: Calls, timed: &Timed, bytes: usize) -> Result<()> {
        let (calls, sum, time_ns) = of(&self.connection.own()?.page().counters);
        calls.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes as u64, Ordering::Relaxed);
        time_ns.fetch_add(timed.ns(), Ordering::Relaxed);
        Ok(())
    }

    fn was_read(&self, timed: &Timed, bytes: usize) -> Result<()> {
        let header = self.chunks.header(&self.connection)?;
        // As `relatime` has it: the first read after a write counts, and one a day.
        let accessed = header.accessed_ns.load(Ordering::Relaxed);
        let now = self.connection.time_ns();
        let old = accessed.saturating_add(DAY_NS) <= now;
        if old || accessed <= header.modified_ns.load(Ordering::Relaxed) {
            header.accessed_ns.store(now, Ordering::Relaxed);
        }
        self.count(READS, timed, bytes)
    }

    fn was_written(&self, timed: &Timed, bytes: usize) -> Result<()> {
        if bytes > 0 {
            self.chunks.header(&self.connection)?.wrote(self.connection.time_ns());
        }
        self.count(WRITES, timed, bytes)
    }

    /// Reads at the shared offset. Fewer bytes than asked for only at the end of the file.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let words = self.words_for(access::READ)?;
        if self.is_far() {
            return self.read_far(words, buffer);
        }
        let timed = self.begin(READS, buffer.len())?;
        let mut offset = words.offset.load(Ordering::SeqCst);
        let count = loop {
            let end = offset.saturating_add(buffer.len() as u64);
            let size = self.chunks.size_to(&self.connection, end)?;
            let count = (buffer.len() as u64).min(size.saturating_sub(offset));
            // Taking the range first gives every reader of a shared offset bytes of its own.
            let next = offset + count;
            let order = Ordering::SeqCst;
            match words.offset.compare_exchange(offset, next, order, order) {
                Ok(_) => break count as usize,
                Err(now) => offset = now,
            }
        };
        let read = self.chunks.read(&self.connection, &mut buffer[..count], offset);
        if read.is_err() {
            let (next, order) = (offset + count as u64, Ordering::SeqCst);
            let _ = words.offset.compare_exchange(next, offset, order, order);
        }
        let count = read?;
        self.was_read(&timed, count)?;
        Ok(count)
    }

    /// Writes all of `bytes` at the shared offset, or at the end if the description appends.
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        let words = self.words_for(access::WRITE)?;
        if self.is_far() {
            return self.write_far(words, bytes);
        }
        let timed = self.begin(WRITES, bytes.len())?;
        self.drop_set_id(bytes.len())?;
        let length = bytes.len() as u64;
        if words.access.load(Ordering::Relaxed) & access::APPEND != 0 {
            let at = self.chunks.append(&self.connection, bytes)?;
            words.offset.store(at + length, Ordering::SeqCst);
        } else {
            let at = words.offset.fetch_add(length, Ordering::SeqCst);
            self.note_gap(at)?;
            let written = check_range(at, length)
                .and_then(|()| self.chunks.write(&self.connection, bytes, at));
            if let Err(error) = written {
                let order = Ordering::SeqCst;
                let _ = words.offset.compare_exchange(at.wrapping_add(length), at, order, order);
                return Err(error);
            }
        }
        self.was_written(&timed, bytes.len())?;
        Ok(bytes.len())
    }

    /// Reads at `offset`. Fewer bytes than asked for only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.words_for(access::READ)?;
        if self.is_far() {
            return self.read_far_at(buffer, offset);
        }
        let timed = self.begin(READS, buffer.len())?;
        let count = self.chunks.read(&self.connection, buffer, offset)?;
        self.was_read(&timed, count)?;
        Ok(count)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.words_for(access::WRITE)?;
        if self.is_far() {
            return self.write_far_at(bytes, offset);
        }
        let timed = self.begin(WRITES, bytes.len())?;
        self.drop_set_id(bytes.len())?;
        check_range(offset, bytes.len() as u64)?;
        self.note_gap(offset)?;
        self.chunks.write(&self.connection, bytes, offset)?;
        self.was_written(&timed, bytes.len())?;
        Ok(bytes.len())
    }

    /// Appends all of `bytes`, in one piece also among other appenders; gives where they end.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.words_for(access::WRITE)?;
        if self.is_far() {
            return self.append_far(bytes);
        }
        let timed = self.begin(WRITES, bytes.len())?;
        self.drop_set_id(bytes.len())?;
        let at = self.chunks.append(&self.connection, bytes)?;
        self.was_written(&timed, bytes.len())?;
        Ok(at + bytes.len() as u64)
    }

    /// For another member, which has the chunk where that is: the file has so many bytes at least.
    /// False: it does not have it any more. For a server's own process.
    ///
    /// # Errors
    /// As those of a write.
    pub fn grow_for(&self, by: Member, to: u64) -> Result<bool> {
        let index = to.saturating_sub(1) / CHUNK_BYTES;
        if !self.chunks.is_with(&self.connection, index, by)? {
            return Ok(false);
        }
        self.note_gap(index * CHUNK_BYTES)?;
        self.chunks.raise_to(&self.connection, to)?;
        self.chunks.header(&self.connection)?.wrote(self.connection.time_ns());
        Ok(true)
    }

    /// Whether another member has the chunk with this byte. For a server's own process.
    ///
    /// # Errors
    /// If the file is not open any more.
    pub fn is_away(&self, at: u64) -> Result<bool> {
        self.chunks.is_away(&self.connection, at / CHUNK_BYTES)
    }

    /// It was written then, nanoseconds since 1970, if it was not changed since. For a server's own
    /// process.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it is closed.
    pub fn wrote_at(&self, at_ns: u64) -> Result<()> {
        if self.attributes()?.changed_ns < at_ns {
            self.chunks.header(&self.connection)?.wrote(at_ns);
        }
        Ok(())
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
        if self.is_far() {
            return self.attributes_far().map_or(0, |attributes| attributes.size);
        }
        self.chunks.size(&self.connection).unwrap_or(0)
    }

    /// Where it is now, relative to the root, by its first name; `None` if it has none any more.
    pub fn path(&self) -> Option<Vec<u8>> {
        let memory = &self.connection.memory;
        let asked =
            || self.target().is_ok_and(|of| self.connection.call(Request::Stat(of)).is_ok());
        // Those of directories are looked at one by one.
        if !self.is_directory() && memory.deferred().is_any_name_pending() && !asked() {
            return None;
        }
        let find = || memory.path_of(self.ino());
        // A server that was held up in the middle of a change is through with it once it answers.
        find().or_else(|| (0..3).find_map(|_| asked().then(find)?))
    }

    /// Where a directory is now, without allocating; `None`: [`File::path`] may tell.
    pub fn short_path(&self) -> Option<ShortPath> {
        let mut bytes = [0; SHORT_PATH];
        let memory = &self.connection.memory;
        let moves = |hash| memory.deferred().is_pending(Key::name(hash));
        let find = |table: Table<'_>| table.path_before(self.ino(), &mut bytes, moves);
        let start = memory.look(find).filter(|_| self.is_directory())?;
        Some(ShortPath { bytes, start })
    }

    /// Opens the same once more, with a description of its own; nothing is made. A FIFO that is
    /// looked at is given as its number, see [`crate::Opened`].
    pub(crate) fn open_again(&self, how: OpenHow) -> Result<std::result::Result<File, Ino>> {
        self.words()?;
        let file = self.file()?;
        let how = OpenHow { token: own_token(), ..how };
        match self.connection.call(Request::Reopen { file, how })? {
            Reply::Opened { description, nonce, file } => {
                Ok(Ok(File::new(self.connection.clone(), description, nonce, file, None)))
            }
            Reply::Node(ino) => Ok(Err(ino)),
            _ => Err(unexpected()),
        }
    }

    /// The first byte from `offset` on that is data, or that is not; a hole ends the file.
    pub fn seek(&self, offset: u64, want: Extent) -> Result<Option<u64>> {
        self.words()?;
        if self.is_far() {
            return self.seek_far(offset, want);
        }
        self.chunks.seek(&self.connection, offset, want)
    }

    /// Maps a part of the file into the address space, as `mmap(2)` does: no copy, seen by all who
    /// map it. It reaches as far as is asked, also beyond the end of the file. Gives the address.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if the file does not fit into memory, [`ErrorKind::TextBusy`] if
    /// another machine has it mapped, `ENODEV` if its bytes are on another machine and are to be
    /// committed.
    pub fn map(&self, how: MapHow) -> Result<usize> {
        self.words_for(access::READ)?;
        if self.is_far() {
            return self.map_far(how);
        }
        let timed = self.begin(READS, usize::MAX)?;
        let at = self.chunks.map(&self.connection, how)?;
        if how.stores() {
            // Nobody can tell when; later it might undo a time that was set.
            self.chunks.header(&self.connection)?.wrote(self.connection.time_ns());
        }
        self.was_read(&timed, 0)?;
        Ok(at)
    }

    /// Attributes now.
    pub fn attributes(&self) -> Result<Seen> {
        self.words()?;
        if self.is_far() {
            return self.attributes_far();
        }
        if let Some(attributes) = self.connection.memory.attributes_of(self.ino()) {
            return Ok(attributes);
        }
        match self.connection.call(Request::Stat(self.target()?))? {
            Reply::Attributes(seen) => Ok(seen),
            _ => Err(unexpected()),
        }
    }

    /// Has it count as written now, though no byte was.
    pub fn touch(&self) -> Result<()> {
        self.words_for(access::WRITE)?;
        if self.is_far() {
            let modified_ns = Some(self.connection.time_ns());
            return self.change(Change { modified_ns, ..Change::default() });
        }
        self.chunks.header(&self.connection)?.wrote(self.connection.time_ns());
        Ok(())
    }

    /// What was said of how long its bytes will live, since somebody has opened it; 0: nothing.
    pub fn hint(&self) -> u64 {
        let header = self.chunks.header(&self.connection);
        header.map_or(0, |header| header.hint.load(Ordering::Relaxed))
    }

    /// Says how long its bytes will live. A directory keeps no hint.
    pub fn set_hint(&self, hint: u64) {
        if let Ok(header) = self.chunks.header(&self.connection) {
            header.hint.store(hint, Ordering::Relaxed);
        }
    }

    fn file(&self) -> Result<FileRef> {
        self.chunks.file(&self.connection)
    }

    fn target(&self) -> Result<Target<'static>> {
        self.file().map(Target::File)
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
        if !self.is_directory()
            && !self.is_far()
            && let Some(done) = self.connection.change_deferred(self.file()?, change)
        {
            return done;
        }
        self.done(Request::Change { target: self.target()?, change })
    }

    /// Makes the file `size` bytes long.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.words_for(access::WRITE)?;
        let token = self.chunks.token();
        self.done(Request::Truncate { target: self.target()?, size, token })
    }

    /// Makes the file longer, as if the new bytes had been given memory.
    pub fn grow(&self, size: u64) -> Result<()> {
        if self.is_far() {
            return self.truncate(size);
        }
        let header = self.chunks.header(&self.connection)?;
        let before = header.holes.load(Ordering::Relaxed);
        self.truncate(size)?;
        header.holes.store(before, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the file, which may have none, a name.
    pub fn link(&self, path: &[u8]) -> Result<()> {
        self.words()?;
        self.done(Request::Link { target: self.target()?, path })
    }

    /// Returns when the file is as safe as the durability of its container promises.
    pub fn sync(&self) -> Result<()> {
        self.words()?;
        if self.is_directory() { Ok(()) } else { self.done(Request::Sync(self.file()?)) }
    }

    /// The name for the copy of a program that is to be executed by this path.
    pub fn name_of_copy(&self, path: &[u8]) -> CString {
        program::name_of_copy(self.connection.id(), self.ino(), path)
    }

    /// Takes set-id bits off, as a write by somebody else than root does.
    pub fn strip_set_id(&self) -> Result<()> {
        let mode = self.connection.memory.names().mode_hint(self.ino());
        if gives_rights(mode.into()) { self.done(Request::DropSetId(self.file()?)) } else { Ok(()) }
    }

    /// To be called before the file is executed, with the descriptor of the copy that will run,
    /// which has its [name](File::name_of_copy); with none for a script.
    ///
    /// # Errors
    /// [`ErrorKind::TextBusy`] if somebody may write into it.
    pub fn execute(&self, copy: Option<u32>) -> Result<()> {
        self.words_for(access::READ)?;
        self.done(Request::Execute { file: self.file()?, copy })
    }

    /// An extended attribute; see [`crate::Client::xattr`].
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.words()?;
        self.connection.xattr(self.target()?, name)
    }

    /// Names of the extended attributes, in order.
    pub fn xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.words()?;
        self.connection.xattrs(self.target()?)
    }

    /// Sets an extended attribute, or removes it.
    pub fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Result<()> {
        self.words()?;
        self.connection.set_xattr(self.target()?, name, value, how)
    }

    /// Tells the server that a descriptor of the description is closed (for one opened with
    /// [`access::KERNEL`], after `close(2)`), or that the description is not needed any more.
    pub fn close(&self) {
        let (description, nonce) = (self.description, self.nonce);
        self.connection.end(self.opened, description, nonce);
    }
}

fn check_range(offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Error::new(ErrorKind::TooLarge, "offset")),
    }
}
