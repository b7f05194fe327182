//! The file that the spill lies in. Input and output are direct where the file system can: what was
//! moved out of memory must not come back as page cache.
//!
//! Invariants: nobody but this user can have put or changed anything there; it is a plain file with
//! one name. Not here: what it is called, and where it may be (`directory`).

use std::fs::{File, OpenOptions};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use terral_format::ids::SpillPlace;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::spill::PLACES_MAX;
use terral_format::{Error, ErrorKind, Result};

use super::{Block, Disk};

/// An open one.
pub struct DiskFile {
    path: PathBuf,
    file: File,
    /// What is read and written does not pass through the page cache.
    direct: bool,
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let mut failure = Error::system(error, path.display().to_string());
    // EDQUOT, EFBIG: no more of it can be had, either.
    if [122, 27].contains(&failure.errno) {
        failure.kind = ErrorKind::NoSpace;
    }
    failure
}

fn open(path: &Path, new: bool, flags: OFlags) -> std::io::Result<File> {
    let mut how = OpenOptions::new();
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    how.read(true).write(true).create_new(new).mode(0o600).custom_flags(flags.bits() as i32);
    how.open(path)
}

impl DiskFile {
    /// A new one.
    ///
    /// # Errors
    /// If there is something at `path`, or it cannot be made.
    pub fn make(path: &Path) -> Result<Self> {
        open(path, true, OFlags::empty()).map_err(|error| failed(path, &error))?;
        Self::find(path)
    }

    /// The one that is there.
    ///
    /// # Errors
    /// If there is none, and [`ErrorKind::Denied`] if it is not this user's alone.
    pub fn find(path: &Path) -> Result<Self> {
        let (file, direct) = match open(path, false, OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == IoKind::InvalidInput => {
                let plain = open(path, false, OFlags::empty());
                (plain.map_err(|error| failed(path, &error))?, false)
            }
            Err(error) => return Err(failed(path, &error)),
        };
        let found = file.metadata().map_err(|error| failed(path, &error))?;
        let own = found.uid() == rustix::process::geteuid().as_raw();
        if !own || !found.is_file() || found.mode() & 0o077 != 0 || found.nlink() != 1 {
            let context = format!("{}: is not a file of yours alone", path.display());
            return Err(Error::new(ErrorKind::Denied, context));
        }
        Ok(DiskFile { path: path.into(), file, direct })
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        failed(&self.path, error)
    }

    /// What went through the page cache does not stay there.
    fn forget(&self, at: u64, bytes: usize) {
        if !self.direct {
            let length = std::num::NonZeroU64::new(bytes as u64);
            let _ = rustix::fs::fadvise(&self.file, at, length, Advice::DontNeed);
        }
    }
}

fn at(place: SpillPlace) -> u64 {
    u64::from(place.0) * CHUNK_BYTES
}

impl Disk for DiskFile {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn places(&self) -> u32 {
        let limit = rustix::process::getrlimit(Resource::Fsize).current;
        let places = limit.map_or(u64::from(PLACES_MAX), |bytes| bytes / CHUNK_BYTES);
        places.min(u64::from(PLACES_MAX)) as u32
    }

    fn write(&self, place: SpillPlace, block: &Block, bytes: usize) -> Result<()> {
        // A file system that is full says so before anything is copied.
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at(place), bytes as u64) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(self.failed(&error.into())),
        }
        let written = self.file.write_all_at(&block[..bytes], at(place));
        written.map_err(|error| self.failed(&error))?;
        if !self.direct {
            let _ = self.file.sync_data();
        }
        self.forget(at(place), bytes);
        Ok(())
    }

    fn read(&self, place: SpillPlace, block: &mut Block, bytes: usize) -> Result<()> {
        let read = self.file.read_exact_at(&mut block[..bytes], at(place));
        read.map_err(|error| self.failed(&error))?;
        self.forget(at(place), bytes);
        Ok(())
    }

    fn free(&self, place: SpillPlace) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system that cannot has it used again.
        let _ = rustix::fs::fallocate(&self.file, how, at(place), CHUNK_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{Block, Disk, DiskFile};
    use terral_format::ErrorKind;
    use terral_format::ids::SpillPlace;

    #[test]
    fn places_hold_what_was_written_and_give_their_room_back() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let path = home.path().join("spill");
        let disk = DiskFile::make(&path).expect("makes");
        let mut block = Block::default();
        for place in [3, 0] {
            block.fill(place as u8 + 1);
            disk.write(SpillPlace(place), &block, 8192).expect("writes");
        }
        drop(disk);
        let disk = DiskFile::find(&path).expect("is there");
        for place in [0, 3] {
            disk.read(SpillPlace(place), &mut block, 8192).expect("reads");
            assert!(block[..8192].iter().all(|byte| *byte == place as u8 + 1));
        }
        let before = path.metadata().expect("is").blocks();
        disk.free(SpillPlace(3));
        assert!(path.metadata().expect("is").blocks() < before, "its room is free");
    }

    #[test]
    fn what_is_not_ours_alone_is_refused() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("spill");
        drop(DiskFile::make(&path).expect("makes"));
        assert!(DiskFile::make(&path).is_err(), "there is something");
        let kind = || DiskFile::find(&path).err().map(|error| error.kind);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).expect("sets");
        assert_eq!(kind(), Some(ErrorKind::Denied));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("sets");
        std::fs::hard_link(&path, home.path().join("other")).expect("links");
        assert_eq!(kind(), Some(ErrorKind::Denied));
        std::fs::remove_file(&path).expect("removes");
        symlink("other", &path).expect("links");
        assert!(DiskFile::find(&path).is_err(), "a link is not followed");
        assert!(DiskFile::make(&path).is_err(), "nor replaced");
    }
}
