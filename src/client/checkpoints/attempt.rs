//! A checkpoint that is being written.

use terral_format::{ErrorKind, Result};

use super::copies;
use super::keeping;
use super::manifest::{Manifest, Part};
use super::whole::{MANIFEST, MANIFEST_COPY, check_sizes};
use crate::client::Client;
use crate::objects::{Container, Object, ObjectId, clear, tidy};
use crate::{OpenHow, RenameHow, access};

/// A checkpoint that is being written, by as many processes as there are.
pub struct Checkpoint {
    pub(super) client: Client,
    pub(super) container: Container,
    /// Where those that are ended are.
    pub(super) path: Vec<u8>,
    pub(super) prefix: String,
    pub(super) keep: usize,
    /// The server that has a copy of what is created on this machine's, if one is wanted.
    pub(super) partner: Option<u16>,
    /// What was safe in the permanent directory when this was begun, if anything.
    pub(super) safe: Option<u64>,
    pub(super) step: u64,
    pub(super) attempt: u64,
}

impl Checkpoint {
    /// What others need to take part, beside the step.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Which step of the computation it is of.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Creates a process's object for bytes from `at` on, of all bytes; what is in it then, the
    /// caller says to [`Checkpoint::end`]. Nobody is asked.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if this rank has one there, [`ErrorKind::NotFound`] if another one was
    /// begun meanwhile.
    pub fn create(&self, rank: u32, at: u64) -> Result<Object> {
        // So who looks at DIR sees whose it is.
        self.container.create_object(ObjectId(u128::from(rank) << 64 | u128::from(at)))
    }

    /// Writes a process's bytes, which are those from `at` on, of all bytes; if there are to be
    /// copies, another server has one then.
    ///
    /// # Errors
    /// As [`Checkpoint::create`], and those of writing.
    pub fn dump(&self, rank: u32, at: u64, bytes: &[u8]) -> Result<Part> {
        let object = self.create(rank, at)?;
        let address = object.address();
        let written = object.write(bytes, 0);
        object.close()?;
        written?;
        if let Some(partner) = self.partner {
            self.container.copy_object(address, partner)?;
        }
        Ok(Part { address, at, bytes: bytes.len() as u64 })
    }

    /// Ends it, with the parts of all processes, in whatever order: from then on it is the latest.
    /// Who has begun it does this, after all have said what they wrote. One of the same step that
    /// is there is replaced; older ones go, but for as many as are kept. What of them cannot be
    /// removed now is removed by the end of a later one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if parts are missing or have the same bytes,
    /// [`ErrorKind::Malformed`] if an object is not as long as it is said to be,
    /// [`ErrorKind::NotFound`] if one is missing or another checkpoint was begun meanwhile. What
    /// was the latest is the latest then.
    pub fn end(self, parts: &[Part]) -> Result<()> {
        let manifest = Manifest::new(self.step, parts)?;
        check_sizes(&self.container, &manifest)?;
        if self.partner.is_some() {
            copies::complete(&self.client, &self.container, &manifest.parts)?;
        }
        self.write(&manifest)?;
        self.commit()?;
        // It has its name whatever becomes of those before it: what does not go now goes later.
        let keep = (self.keep, self.safe);
        let _ = keeping::keep_last(&self.client, &self.path, keep, &self.prefix);
        tidy(&self.client);
        Ok(())
    }

    fn write(&self, manifest: &Manifest) -> Result<()> {
        let how = OpenHow {
            access: access::WRITE as u8,
            create: true,
            exclusive: true,
            mode: 0o644,
            ..OpenHow::default()
        };
        let file = self.client.open(&[self.container.path(), MANIFEST].join(&b'/'), how)?;
        let text = manifest.write();
        let written = file.write_at(text.as_bytes(), 0);
        file.close();
        written?;
        let Some(partner) = self.partner else { return Ok(()) };
        let object = self.container.create_object(MANIFEST_COPY)?;
        let (address, written) = (object.address(), object.write(text.as_bytes(), 0));
        object.close()?;
        written?;
        self.container.copy_object(address, partner).map(drop)
    }

    /// Gives it its name. Once it has that, nothing fails any more.
    fn commit(&self) -> Result<()> {
        let (from, to) = (self.container.path(), keeping::directory(&self.path, self.step));
        match self.client.rename(from, &to, RenameHow::Keep) {
            Err(error) if error.kind == ErrorKind::Exists => {
                self.client.rename(from, &to, RenameHow::Exchange)?;
                let _ = clear(&self.client, from);
            }
            done => done?,
        }
        // Older ones go only once a newer one is in the permanent directory, if there is one.
        let _ = self.client.flush();
        Ok(())
    }

    /// Gives it up: nothing is left of it.
    ///
    /// # Errors
    /// Those of removing names.
    pub fn abandon(self) -> Result<()> {
        self.container.remove()
    }
}
