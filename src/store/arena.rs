//! Where the bytes of chunks lie: segments, made as they are needed. Through [`Arena`] the tier can
//! also run on memory that nobody else sees; what clients map are the files of [`Segments`].
//!
//! Not here: which pages are used (`allocator`), and what their states are (`memory`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use terral_format::local::geometry::SEGMENT_BYTES;
use terral_format::{Error, Result};

/// The segments of one instance, each [`SEGMENT_BYTES`] long and zeros at first.
pub trait Arena: Send + Sync {
    /// Makes segment `segment`, sparse and empty.
    ///
    /// # Errors
    /// What the file system says.
    fn create(&self, segment: u32) -> Result<()>;

    /// Segments there are, counted from 0 without a gap.
    fn count(&self) -> u32;

    /// Reads bytes `at..` of a segment.
    ///
    /// # Errors
    /// What the file system says.
    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> Result<()>;

    /// Writes bytes `at..` of a segment.
    ///
    /// # Errors
    /// What the file system says, [`terral_format::ErrorKind::NoSpace`] if it is full.
    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> Result<()>;

    /// Bytes that the file system they lie in still has.
    fn room_bytes(&self) -> u64;

    /// That file system, as people know it.
    fn place(&self) -> String;
}

/// The files `seg-N` of an instance's directory.
pub struct Segments {
    directory: PathBuf,
    files: RwLock<Vec<Option<Arc<File>>>>,
}

impl Segments {
    /// Those in `directory`, at most `limit`.
    pub fn new(directory: PathBuf, limit: u32) -> Self {
        Segments { directory, files: RwLock::new(vec![None; limit as usize]) }
    }

    fn path(&self, segment: u32) -> PathBuf {
        self.directory.join(format!("seg-{segment}"))
    }

    /// The file of a segment.
    ///
    /// # Errors
    /// What opening it gave.
    pub fn file(&self, segment: u32) -> Result<Arc<File>> {
        let read = self.files.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(file)) = read.get(segment as usize) {
            return Ok(file.clone());
        }
        drop(read);
        let path = self.path(segment);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = Arc::new(file.map_err(|e| Error::system(&e, path.display().to_string()))?);
        let mut write = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = write.get_mut(segment as usize) {
            *place = Some(file.clone());
        }
        Ok(file)
    }
}

impl Arena for Segments {
    fn create(&self, segment: u32) -> Result<()> {
        let path = self.path(segment);
        let failed = |e: &std::io::Error| Error::system(e, path.display().to_string());
        let mut how = OpenOptions::new();
        let how = how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = how.open(&path).map_err(|e| failed(&e))?;
        // For whom the lanes of its pages are, for them it is, too.
        if let Ok(pages) = std::fs::metadata(self.directory.join("pages")) {
            file.set_permissions(pages.permissions()).map_err(|e| failed(&e))?;
        }
        file.set_len(SEGMENT_BYTES as u64).map_err(|e| failed(&e))
    }

    fn count(&self) -> u32 {
        let limit = self.files.read().unwrap_or_else(PoisonError::into_inner).len() as u32;
        (0..limit).take_while(|segment| self.path(*segment).exists()).count() as u32
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> Result<()> {
        let file = self.file(segment)?;
        file.read_exact_at(into, at).map_err(|e| Error::system(&e, "memory tier"))
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> Result<()> {
        let file = self.file(segment)?;
        file.write_all_at(bytes, at).map_err(|e| Error::system(&e, "memory tier"))
    }

    fn room_bytes(&self) -> u64 {
        let room = rustix::fs::statvfs(&self.directory);
        room.map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn place(&self) -> String {
        let shared = Path::new("/dev/shm");
        let place = if self.directory.starts_with(shared) { shared } else { &self.directory };
        place.display().to_string()
    }
}
