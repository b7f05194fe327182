//! Calls on an object that are done meanwhile, and waited for later.
//!
//! Invariant: an object is closed once all that was submitted on it is done. Between what is under
//! way there is no order. Not here: the threads (`submitted`).

use std::sync::Arc;

use terral_format::Result;

use super::object::Object;
use super::vector::{self, Extent};
use crate::submitted::Submitted;

/// What is submitted and not longer is done at once, if that keeps nobody waiting.
const AT_ONCE_MAX: usize = 64 << 10;

impl Object {
    /// Refuses extents that are in no object, or are not as long as the bytes.
    ///
    /// # Errors
    /// As those of [`Object::write_vector`].
    pub fn fits(extents: &[Extent], packed: usize) -> Result<()> {
        vector::check(extents, packed)
    }

    /// Has something done with the object by a thread of the library.
    ///
    /// # Errors
    /// If there is no thread, and none can begin.
    pub fn submit<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Object) -> Result<T> + Send + 'static,
    ) -> Result<Submitted<T>> {
        let (object, on_its_way) = (self.clone(), self.under_way.begin());
        Submitted::new(move || act(&object), on_its_way)
    }

    /// As [`Object::write_vector`], meanwhile; gives the bytes back. Few that are this machine's,
    /// in memory, and waited for by nobody are written at once.
    ///
    /// # Errors
    /// Of a call that makes no sense; what else fails is said to who waits.
    pub fn submit_write(&self, extents: &[Extent], packed: Vec<u8>) -> Result<Submitted<Vec<u8>>> {
        vector::check(extents, packed.len())?;
        if self.write_at_once(extents, &packed) {
            return Ok(Submitted::done(Ok(packed)));
        }
        let extents: Arc<[Extent]> = extents.into();
        self.submit(move |object| object.write_vector(&extents, &packed).map(|()| packed))
    }

    /// As [`Object::read_vector`], meanwhile, into memory of that length; gives how many bytes were
    /// in it, and the memory. At once as [`Object::submit_write`].
    ///
    /// # Errors
    /// As those of [`Object::submit_write`].
    pub fn submit_read(
        &self,
        extents: &[Extent],
        mut packed: Vec<u8>,
    ) -> Result<Submitted<(usize, Vec<u8>)>> {
        vector::check(extents, packed.len())?;
        if let Some(count) = self.read_at_once(extents, &mut packed) {
            return Ok(Submitted::done(Ok((count, packed))));
        }
        let extents: Arc<[Extent]> = extents.into();
        self.submit(move |object| {
            let count = object.read_vector(&extents, &mut packed)?;
            Ok((count, packed))
        })
    }

    /// As [`Object::write_vector`] for few bytes, if nobody is to be waited for or asked. False:
    /// that is to be called, with the same bytes.
    pub fn write_at_once(&self, extents: &[Extent], packed: &[u8]) -> bool {
        let mut rest = packed;
        packed.len() <= AT_ONCE_MAX
            && !self.is_striped()
            && vector::check(extents, packed.len()).is_ok()
            && extents.iter().all(|extent| {
                let (piece, others) = rest.split_at(extent.bytes as usize);
                rest = others;
                self.file().write_at_once(piece, extent.at)
            })
    }

    /// As [`Object::read_vector`] likewise. `None`: that may tell.
    pub fn read_at_once(&self, extents: &[Extent], packed: &mut [u8]) -> Option<usize> {
        if packed.len() > AT_ONCE_MAX
            || self.is_striped()
            || vector::check(extents, packed.len()).is_err()
        {
            return None;
        }
        let (mut rest, mut within) = (packed, 0);
        for extent in extents {
            let (piece, others) = rest.split_at_mut(extent.bytes as usize);
            let count = self.file().read_at_once(piece, extent.at)?;
            piece[count..].fill(0);
            within += count;
            rest = others;
        }
        Some(within)
    }
}
