//! A file that is open: it goes on being there when its name is gone.

use rustix::io::Errno;
use terral_format::Result;

use super::call::{Call, Operation};
use super::{Scripted, Store};
use crate::sparse::Sparse;

/// Longest file, as on every file system of Linux at most.
const FILE_MAX: u64 = i64::MAX.cast_unsigned();

/// A file that was held for this, which ends with it.
pub(super) struct Handle {
    pub(super) scripted: Scripted,
    pub(super) inode: u64,
    pub(super) path: Vec<u8>,
}

impl Handle {
    /// Takes over a [`Store::hold`].
    pub(super) fn new(scripted: &Scripted, inode: u64, path: Vec<u8>) -> Self {
        Handle { scripted: scripted.clone(), inode, path }
    }

    /// Does something to the file.
    pub(super) fn act<T>(
        &self,
        operation: Operation,
        bytes: usize,
        act: impl FnOnce(&mut Store) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let call = Call::new(operation, &self.path).of_bytes(bytes);
        self.scripted.observe(&call)?;
        let done = self.scripted.step(&call, act)?;
        self.scripted.answer(&call, done)
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.act(Operation::Write, bytes.len(), |store| {
            if offset > FILE_MAX - bytes.len() as u64 {
                return Err(Errno::FBIG);
            }
            if !bytes.is_empty() {
                store.pages_mut(self.inode)?.write(offset, bytes);
                let now_ns = store.now_ns;
                store.node_mut(self.inode).modified(now_ns);
            }
            Ok(())
        })
    }

    pub(super) fn truncate(&self, size: u64) -> Result<()> {
        self.act(Operation::Truncate, 0, |store| store.truncate(self.inode, size))
    }

    pub(super) fn clear(&self, offset: u64, bytes: u64) -> Result<()> {
        self.act(Operation::Write, bytes as usize, |store| {
            store.pages_mut(self.inode)?.clear(offset, bytes);
            let now_ns = store.now_ns;
            store.node_mut(self.inode).modified(now_ns);
            Ok(())
        })
    }

    pub(super) fn read_sparse(&self, offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        self.act(Operation::ReadBack, bytes, |store| {
            into.clear(bytes);
            let pages = store.node(self.inode).pages().into_iter();
            pages.for_each(|pages| pages.read_sparse(offset, bytes, into));
            Ok(())
        })
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.act(Operation::ReadBack, buffer.len(), |store| {
            Ok(store.node(self.inode).pages().map_or(0, |pages| pages.read(offset, buffer)))
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.scripted.lock().release(self.inode);
    }
}

impl Store {
    /// Sets a file's size.
    pub(super) fn truncate(&mut self, inode: u64, size: u64) -> rustix::io::Result<()> {
        if size > FILE_MAX {
            return Err(Errno::FBIG);
        }
        self.pages_mut(inode)?.truncate(size);
        let now_ns = self.now_ns;
        self.node_mut(inode).modified(now_ns);
        Ok(())
    }
}
