//! The bytes of small closed files, packed: such a file needs neither a record nor a page.
//!
//! What is where is in the log; a restarted server finds the bytes as they were. Only files that
//! the backing is not owed are packed, so nothing here is ever the only copy of a debt.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use terral_format::local::geometry::GRANULE_BYTES;
use terral_format::{Error, Result};

use crate::heap::Heap;

/// Where the bytes of packed files lie.
pub trait Packed: Send {
    /// Reads bytes `at..`.
    ///
    /// # Errors
    /// What the file system says, and if there are not so many.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// Writes bytes `at..`.
    ///
    /// # Errors
    /// What the file system says, [`terral_format::ErrorKind::NoSpace`] if it is full.
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()>;
}

/// The file of an instance's directory in which they lie.
pub struct PackedFile {
    path: PathBuf,
    file: File,
}

impl PackedFile {
    /// The file `path`, made if it is not there.
    ///
    /// # Errors
    /// What opening it gave.
    pub fn open(path: &Path) -> Result<Self> {
        let mut how = OpenOptions::new();
        let how = how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = how.open(path).map_err(|e| Error::system(&e, path.display().to_string()))?;
        Ok(PackedFile { path: path.into(), file })
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> Error {
        let path = self.path.display().to_string();
        move |error| Error::system(&error, path)
    }
}

impl Packed for PackedFile {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, at).map_err(self.failed())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        self.file.write_all_at(from, at).map_err(self.failed())
    }
}

/// Largest file that is packed, bytes.
pub const SMALL_BYTES: u64 = 1024;

/// The packed files of one server.
pub struct Small {
    bytes: Box<dyn Packed>,
    heap: Heap,
}

fn granules(bytes: u64) -> u32 {
    bytes.div_ceil(GRANULE_BYTES as u64) as u32
}

fn at(place: u32) -> u64 {
    u64::from(place) * GRANULE_BYTES as u64
}

impl Small {
    /// The packed files in `bytes`, of which nothing is known.
    pub fn new(bytes: Box<dyn Packed>) -> Self {
        Small { bytes, heap: Heap::default() }
    }

    /// After a restart: place and bytes of each file that is packed.
    pub fn adopt(&mut self, used: impl Iterator<Item = (u32, u64)>) {
        self.heap = Heap::with(used.map(|(place, bytes)| (place, granules(bytes))).collect());
    }

    /// Keeps `bytes`; gives the place.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn put(&mut self, bytes: &[u8]) -> Result<u32> {
        let count = granules(bytes.len() as u64);
        let place = self.heap.take(count);
        let written = self.bytes.write(at(place), bytes);
        if written.is_err() {
            self.heap.give(place, count);
        }
        written.map(|()| place)
    }

    /// What is kept at `place`.
    pub fn get(&self, place: u32, into: &mut [u8]) -> Result<()> {
        self.bytes.read(at(place), into)
    }

    /// What was kept at `place`, so many bytes, is not needed any more.
    pub fn free(&mut self, place: u32, bytes: u64) {
        self.heap.give(place, granules(bytes));
    }
}
