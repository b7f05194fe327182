//! Where the spill of an instance is: its directory has a file `spill` with the path of the one
//! that holds the bytes, and a file `spilled` with the table of what is there.
//!
//! Invariant: the path is written before there is anything at it, and goes after it, so that
//! nothing is left on the disk that nobody knows of. Not here: what is spilled.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use terral_format::ids::{InstanceId, SpillPlace};
use terral_format::local::spill::TABLE_BYTES;
use terral_format::{Error, ErrorKind, Result};
use terral_store::spill::disk::DiskFile;
use terral_store::spill::{Block, Disk, Spill, directory};
use terral_transport::process;
use terral_transport::region::Region;

use crate::recovery;
use crate::shell::region_file::region_file;

/// Has the path.
const PATH: &str = "spill";
/// Is the table.
const TABLE: &str = "spilled";

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::system(&error, path)
}

/// A disk that cannot be reached: what is there stays, for a server that can.
struct Away(Error);

impl Disk for Away {
    fn describe(&self) -> String {
        self.0.context.clone()
    }

    fn places(&self) -> u32 {
        terral_format::local::spill::PLACES_MAX
    }

    fn write(&self, _: SpillPlace, _: &Block, _: usize) -> Result<()> {
        Err(self.0.clone())
    }

    fn read(&self, _: SpillPlace, _: &mut Block, _: usize) -> Result<()> {
        Err(self.0.clone())
    }

    fn free(&self, _: SpillPlace) {}
}

/// The spill of an instance: the one that it has, or a new one in `wanted`.
///
/// # Errors
/// Those of [`directory::check`], and what making it fails with.
pub fn open(
    instance: &Path,
    id: InstanceId,
    (wanted, store): (Option<&Path>, Option<&Path>),
) -> Result<Option<Spill>> {
    let disk: Box<dyn Disk> = match (path_of(instance)?, wanted) {
        (Some(path), _) => match DiskFile::find(&path) {
            Ok(disk) => Box::new(disk),
            Err(error) => Box::new(Away(error)),
        },
        (None, Some(wanted)) => Box::new(make(instance, id, wanted, store)?),
        (None, None) => return Ok(None),
    };
    let table = region_file(&instance.join(TABLE), Some(TABLE_BYTES))?;
    Ok(Some(Spill::new(disk, recovery::mapped(Region::map(&table, TABLE_BYTES, true)?))))
}

fn make(instance: &Path, id: InstanceId, wanted: &Path, store: Option<&Path>) -> Result<DiskFile> {
    let (home, boot) = (directory::check(wanted, store)?, process::boot_id()?);
    directory::tidy(&home, &boot);
    let (path, pointer) = (directory::path_of(&home, &boot, id), instance.join(PATH));
    fs::write(&pointer, path.as_os_str().as_bytes()).map_err(failed(&pointer))?;
    let made = DiskFile::make(&path);
    if made.is_err() {
        let _ = fs::remove_file(&pointer);
    }
    made
}

/// What the instance says; `None` if it has none.
fn path_of(instance: &Path) -> Result<Option<PathBuf>> {
    let pointer = instance.join(PATH);
    let path = match fs::read(&pointer) {
        Ok(text) => PathBuf::from(OsStr::from_bytes(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&pointer)(error)),
    };
    // A server that was killed as it wrote it has made no file.
    Ok(directory::is_spill(&path).then_some(path))
}

/// Removes what is on the disk, of an instance of which nothing is needed any more.
///
/// # Errors
/// [`ErrorKind::Denied`] if something else has its name.
pub fn remove(instance: &Path) -> Result<()> {
    let Ok(Some(path)) = path_of(instance) else { return Ok(()) };
    let Ok(found) = fs::symlink_metadata(&path) else { return Ok(()) };
    if !found.is_file() || found.uid() != process::user() {
        let context = format!("{}: is not the file that Terral made there", path.display());
        return Err(Error::new(ErrorKind::Denied, context));
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&path)(error)),
        _ => Ok(()),
    }
}
