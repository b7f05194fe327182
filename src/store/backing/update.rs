//! Changing a file in place: the bytes that differ, and nothing else about it.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use rustix::fs::OFlags;
use terral_format::fingerprint::Fingerprint;
use terral_format::wire::message::Attributes;
use terral_format::{Error, ErrorKind, Result};

use super::access::with_access;
use super::attributes::{by_name, clear_full, fingerprint, read_full, set_attributes, write_full};
use super::beneath::Root;
use super::{RandomAccess, Update};

/// An open file of the directory.
pub(super) struct DirUpdate {
    root: Arc<Root>,
    path: Vec<u8>,
    file: File,
}

impl DirUpdate {
    /// Opens it for writing if it is still the file that `same` knows.
    pub(super) fn open(
        root: &Arc<Root>,
        path: &[u8],
        same: impl Fn(Fingerprint) -> bool,
    ) -> Result<Self> {
        let fail = |error| root.failed_io("update", path, &error);
        let looked = root.open_at("update", path, OFlags::PATH)?;
        let metadata = looked.metadata().map_err(fail)?;
        if !metadata.is_file() || !same(fingerprint(&metadata)) {
            return Err(theirs(root, path));
        }
        let file = match writable(&looked) {
            // It may have become read-only while a writer had it open; `finish` sets the mode. Only
            // the owner gets through.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let mode = Permissions::from_mode(metadata.mode() & 0o7777 | 0o600);
                std::fs::set_permissions(by_name(&looked), mode).map_err(|_| fail(error))?;
                writable(&looked).map_err(fail)?
            }
            opened => opened.map_err(fail)?,
        };
        Ok(DirUpdate { root: root.clone(), path: path.to_vec(), file })
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> Error {
        self.root.failed_io(what, &self.path, error)
    }
}

fn theirs(root: &Root, path: &[u8]) -> Error {
    let what = "somebody else changed it; both versions must be kept";
    Error::new(ErrorKind::Busy, format!("update {}: conflict: {what}", root.full(path)))
}

fn writable(looked: &File) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(by_name(looked))
}

impl RandomAccess for DirUpdate {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_full(&self.file, offset, bytes).map_err(|error| self.failed("write", &error))
    }

    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()> {
        clear_full(&self.file, offset, bytes).map_err(|error| self.failed("write", &error))
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(|error| self.failed("truncate", &error))
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        read_full(&self.file, offset, buffer).map_err(|error| self.failed("read", &error))
    }
}

impl Update for DirUpdate {
    fn finish(self: Box<Self>, attributes: &Attributes) -> Result<Fingerprint> {
        let changed = set_attributes(&self.file, attributes).and_then(|()| self.file.metadata());
        let metadata = changed.map_err(|error| self.failed("set the attributes of", &error))?;
        // Somebody may have put another file there meanwhile.
        let look = || self.root.open_at("update", &self.path, OFlags::PATH);
        let named = with_access(&self.root, &[&self.path], look)?.metadata();
        let named = named.map_err(|error| self.failed("update", &error))?;
        if (named.dev(), named.ino()) != (metadata.dev(), metadata.ino()) {
            return Err(theirs(&self.root, &self.path));
        }
        Ok(fingerprint(&metadata))
    }
}
