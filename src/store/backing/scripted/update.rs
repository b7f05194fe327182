//! Changing a file in place.

use rustix::io::Errno;
use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::wire::message::Attributes;

use super::call::Operation;
use super::handle::Handle;
use super::{RandomAccess, Update};
use crate::sparse::Sparse;

/// A file of the store, open to be changed.
pub(super) struct ScriptedUpdate(Handle);

impl ScriptedUpdate {
    pub(super) fn new(handle: Handle) -> Self {
        ScriptedUpdate(handle)
    }
}

impl RandomAccess for ScriptedUpdate {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write(offset, bytes)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.0.truncate(size)
    }

    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.0.clear(offset, bytes)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(offset, buffer)
    }

    fn read_sparse(&mut self, offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        self.0.read_sparse(offset, bytes, into)
    }
}

impl Update for ScriptedUpdate {
    fn finish(self: Box<Self>, attributes: &Attributes) -> Result<Fingerprint> {
        let Handle { inode, path, .. } = &self.0;
        self.0.act(Operation::Finish, 0, |store| {
            let now_ns = store.now_ns;
            store.node_mut(*inode).set_attributes(attributes, now_ns);
            // Somebody may have put another file there meanwhile.
            if store.find(path)? == *inode {
                Ok(store.fingerprint(*inode))
            } else {
                Err(Errno::BUSY)
            }
        })
    }
}
