//! An object that is open.
//!
//! Invariant: it belongs to the process that opened it, until [`Object::close`] or that process's
//! end.

use std::sync::Arc;

use terral_format::wire::message::XattrHow;
use terral_format::{Error, ErrorKind, Result};

use super::address::Address;
use super::attribute::{Value, attribute_of, key_of, name_of};
use super::parts::Parts;
use super::vector::{self, Extent};
use crate::file::File;
use crate::holes;
use crate::submitted::UnderWay;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An open object.
#[derive(Clone)]
pub struct Object {
    file: File,
    address: Address,
    /// What it consists of, if its bytes are in several files, the first of which it is.
    parts: Option<Arc<Parts>>,
    /// What was submitted and is not done.
    pub(super) under_way: Arc<UnderWay>,
}

impl Object {
    pub(super) fn new(file: File, address: Address) -> Self {
        Object { file, address, parts: None, under_way: Arc::default() }
    }

    pub(super) fn striped(file: File, address: Address, parts: Parts) -> Self {
        Object { parts: Some(Arc::new(parts)), ..Object::new(file, address) }
    }

    /// Whether its bytes are in several files.
    pub fn is_striped(&self) -> bool {
        self.parts.is_some()
    }

    /// Where it is in its container.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The file that it is; of a striped one, the first.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes, from the first to the last that was written.
    pub fn size(&self) -> u64 {
        match &self.parts {
            Some(parts) => parts.size().unwrap_or(0),
            None => self.file.size(),
        }
    }

    /// Writes all of `bytes` at `at`.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it is not open for writing, [`ErrorKind::TooLarge`] beyond any
    /// object, [`ErrorKind::NoSpace`] if memory is full and nothing can be drained.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let Some(parts) = &self.parts else { return self.file.write_at(bytes, at).map(drop) };
        let extent = Extent { at, bytes: bytes.len() as u64 };
        vector::check(&[extent], bytes.len())?;
        parts.write(&[extent], bytes)
    }

    /// Reads at `at`. Fewer bytes than asked for only at its end.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let Some(parts) = &self.parts else { return self.file.read_at(buffer, at) };
        let extent = Extent { at, bytes: buffer.len() as u64 };
        vector::check(&[extent], buffer.len())?;
        parts.read(&[extent], buffer)
    }

    /// Writes bytes that are packed one after the other to extents of it, in their order: where two
    /// have the same bytes, the later one's stay.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for more than [`vector::EXTENTS_MAX`], or if they are not as long as
    /// `packed`; those of [`Object::write`]. All are looked at before anything is written; what
    /// fails later leaves what came before it.
    pub fn write_vector(&self, extents: &[Extent], packed: &[u8]) -> Result<()> {
        vector::check(extents, packed.len())?;
        if let Some(parts) = &self.parts {
            return parts.write(extents, packed);
        }
        let mut rest = packed;
        for extent in extents {
            let (piece, others) = rest.split_at(extent.bytes as usize);
            self.write(piece, extent.at)?;
            rest = others;
        }
        Ok(())
    }

    /// Reads extents of it, packed one after the other; what lies beyond its end is zeros. Gives
    /// how many bytes were in it.
    ///
    /// # Errors
    /// As [`Object::write_vector`].
    pub fn read_vector(&self, extents: &[Extent], packed: &mut [u8]) -> Result<usize> {
        vector::check(extents, packed.len())?;
        if let Some(parts) = &self.parts {
            return parts.read(extents, packed);
        }
        let (mut rest, mut within) = (packed, 0);
        for extent in extents {
            let (piece, others) = rest.split_at_mut(extent.bytes as usize);
            let count = self.read(piece, extent.at)?;
            piece[count..].fill(0);
            within += count;
            rest = others;
        }
        Ok(within)
    }

    /// Its update id: greater after each change of its bytes, its size or its attributes, by
    /// whoever on whatever machine; see [`File::update_id`].
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] or [`ErrorKind::TextBusy`] while somebody has it mapped to store there;
    /// [`ErrorKind::Unsupported`] of a striped one.
    pub fn update_id(&self) -> Result<u64> {
        self.must_be_whole()?;
        self.file.update_id()
    }

    /// Writes bytes that are packed one after the other to extents of it, if it has an update id
    /// still: all of them or none, whoever is killed. Gives the update id that it has then.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it has another one; [`ErrorKind::TooBig`] if it is more than a
    /// message has room for, [`File::write_if`] says how much; those of [`Object::write_vector`].
    pub fn write_if(&self, id: u64, extents: &[Extent], packed: &[u8]) -> Result<u64> {
        vector::check(extents, packed.len())?;
        self.must_be_whole()?;
        let mut rest = packed;
        let writes: Vec<(u64, &[u8])> = extents
            .iter()
            .map(|extent| {
                let (piece, others) = rest.split_at(extent.bytes as usize);
                rest = others;
                (extent.at, piece)
            })
            .collect();
        self.file.write_if(id, &writes)
    }

    /// These bytes are zeros from now on, as far as it is long; their memory is kept.
    ///
    /// # Errors
    /// As [`Object::write`].
    pub fn punch(&self, at: u64, bytes: u64) -> Result<()> {
        let end = vector::end(at, bytes)?;
        match &self.parts {
            Some(parts) => parts.ranges((at, end), punch),
            None => punch(&self.file, at, end),
        }
    }

    fn must_be_whole(&self) -> Result<()> {
        let what = || format!("object {} is striped over servers", self.address.id);
        match self.parts {
            Some(_) => Err(Error::new(ErrorKind::Unsupported, what())),
            None => Ok(()),
        }
    }

    /// Makes it so long.
    ///
    /// # Errors
    /// As [`Object::write`].
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        match &self.parts {
            Some(parts) => parts.ranges((0, bytes), |file, _, size| file.truncate(size)),
            None => self.file.truncate(bytes),
        }
    }

    /// Returns when what was written is as safe as the durability of its container promises.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file.sync();
        let others = self.parts.as_ref().map_or(Ok(()), |parts| parts.others(File::sync));
        synced.and(others)
    }

    /// Sets an attribute, or removes it (`None`).
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a key of no or more than 200 bytes, [`ErrorKind::TooBig`] for a
    /// value of 8 KiB or more, [`ErrorKind::NoData`] if there is none to be removed.
    pub fn set_attribute(&self, key: &[u8], value: Option<&Value>) -> Result<()> {
        let (name, stored) = attribute_of(key, value)?;
        self.file.set_xattr(&name, stored.as_deref(), XattrHow::default())
    }

    /// An attribute, if it has it.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if somebody else has written it, in another form.
    pub fn attribute(&self, key: &[u8]) -> Result<Option<Value>> {
        match self.file.xattr(&name_of(key)?) {
            Ok(stored) => Value::read(&stored).map(Some),
            Err(error) if error.kind == ErrorKind::NoData => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keys of all its attributes, in order.
    pub fn attributes(&self) -> Result<Vec<Vec<u8>>> {
        let names = self.file.xattrs()?;
        Ok(names.iter().filter_map(|name| key_of(name)).map(<[u8]>::to_vec).collect())
    }

    /// Ends the use of it, once all that was submitted is done. What was written stays.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it was closed before; `EIO` if what was written could not be
    /// committed to the machine that has it.
    pub fn close(self) -> Result<()> {
        if self.file.access() == 0 {
            return Err(Error::new(ErrorKind::BadHandle, "closed object"));
        }
        self.under_way.wait();
        let committed = self.file.commit();
        let others = self.parts.as_ref().map_or(Ok(()), |parts| {
            parts.others(|file| {
                let committed = file.commit();
                file.close();
                committed
            })
        });
        self.file.close();
        committed.and(others)
    }
}

/// Bytes of a file are zeros, as far as it is long.
fn punch(file: &File, at: u64, end: u64) -> Result<()> {
    let (mut at, end) = (at, end.min(file.size()));
    while at < end {
        let Some(data) = file.seek(at, holes::Extent::Data)? else { return Ok(()) };
        let hole = file.seek(data, holes::Extent::Hole)?.unwrap_or(end);
        at = data.max(at);
        while at < hole.min(end) {
            let count = ((hole.min(end) - at) as usize).min(ZEROS.len());
            file.write_at(&ZEROS[..count], at)?;
            at += count as u64;
        }
    }
    Ok(())
}
