//! How it is known that an object is striped, and where its parts are.
//!
//! Not here: how such objects come to be, and go (`striping`).

use terral_format::wire::message::{Attributes, XattrHow};
use terral_format::{Error, ErrorKind, Result};

use super::address::Address;
use super::parts::Parts;
use super::stripes::Striping;
use crate::client::Client;
use crate::file::File;
use crate::{Change, OpenHow};

/// The extended attribute that says how an object is striped; none of its own attributes is called
/// so.
const STRIPES: &[u8] = b"user.terral-stripes";
/// The mode of a striped object has this bit, which means nothing for files: so whoever opens
/// another one need not look for the attribute.
const STRIPED: u32 = 0o1000;
/// `EIO`.
const EIO: i32 = 5;

/// The container in which an object is: who asks, and its path.
#[derive(Clone, Copy)]
pub(super) struct Within<'c> {
    pub client: &'c Client,
    pub path: &'c [u8],
}

impl Within<'_> {
    /// What is at a path below it.
    pub fn below(&self, path: &str) -> Vec<u8> {
        [self.path, path.as_bytes()].join(&b'/')
    }

    /// How an object is striped; `None`: it is not.
    pub fn striping_of(&self, at: Address, seen: &Attributes) -> Result<Option<Striping>> {
        if seen.mode & STRIPED == 0 {
            return Ok(None);
        }
        match self.client.xattr(&self.below(&at.path()), STRIPES) {
            Err(error) if error.kind == ErrorKind::NoData => Ok(None),
            stored => Striping::read(&stored?).map(Some),
        }
    }

    /// The parts of an object that was opened, if it is striped; opened, too. What cannot be is an
    /// error once it is used.
    pub fn parts_of(&self, file: &File, at: Address, access: u8) -> Result<Option<Parts>> {
        // By its address: what was just created here is known by that without asking anybody.
        let seen = match self.client.stat(&self.below(&at.path())) {
            Ok(seen) if seen.attributes.ino == file.ino() => seen,
            _ => file.attributes()?,
        };
        let Some(striping) = self.striping_of(at, &seen.attributes)? else { return Ok(None) };
        let mut files = vec![Ok(file.clone())];
        for part in 1..striping.servers.len() {
            let how = OpenHow { access, ..OpenHow::default() };
            let opened = self.client.open(&self.below(&striping.path(at.id, part)), how);
            files.push(opened.map_err(|error| lost(&striping, (at, part), error)));
        }
        Ok(Some(Parts::new(striping, files)))
    }

    /// Refuses what cannot be done with an object that is several files.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub fn must_be_whole(&self, at: Address) -> Result<()> {
        let seen = self.client.stat(&self.below(&at.path()))?;
        if seen.mode & STRIPED == 0 {
            return Ok(());
        }
        let what = format!("object {} is striped over servers", at.id);
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// Has a file say that it is the first part of an object.
    pub fn mark(&self, file: &File, path: &[u8], striping: &Striping) -> Result<()> {
        file.set_xattr(STRIPES, Some(&striping.write()), XattrHow::default())?;
        let mode = file.attributes()?.mode & 0o7777 | STRIPED;
        self.client.change(path, Change { mode: Some(mode), ..Change::default() })
    }
}

/// What it is that a part is not to be had: never that there is none.
pub(super) fn lost(striping: &Striping, (at, part): (Address, usize), error: Error) -> Error {
    if error.kind != ErrorKind::NotFound {
        return error;
    }
    let server = striping.servers[part];
    let context = format!("object {}: its part of server {server} is lost", at.id);
    Error { kind: ErrorKind::System, errno: EIO, context }
}
