//! The checkpoints of a computation, one after the other.

use terral_format::{Error, ErrorKind, Result};

use super::attempt::Checkpoint;
use super::copies;
use super::keeping;
use super::whole::Whole;
use crate::Kind;
use crate::client::Client;
use crate::objects::{Container, ObjectId};

/// The checkpoints in one directory. Cheap to clone.
#[derive(Clone)]
pub struct Checkpoints {
    client: Client,
    path: Vec<u8>,
    /// Of all containers in which checkpoints of this directory are written.
    prefix: String,
    keep: usize,
    mode: u32,
    copies: bool,
}

/// What containers of a directory's checkpoints begin with.
fn prefix(path: &[u8]) -> String {
    format!("checkpoint-{:016x}.", terral_format::frame::checksum(path))
}

impl Checkpoints {
    /// The checkpoints in this directory, which is made if it is missing, with this mode (umask
    /// taken off). Of those that are ended `keep` stay, at least one.
    ///
    /// # Errors
    /// [`ErrorKind::NotDirectory`], and those of making a directory.
    pub fn open(client: &Client, path: &[u8], keep: usize, mode: u32) -> Result<Self> {
        match client.make_directory(path, mode) {
            Err(error) if error.kind != ErrorKind::Exists => return Err(error),
            _ => {}
        }
        if client.stat(path)?.kind != Kind::Directory {
            let what = String::from_utf8_lossy(path);
            return Err(Error::new(ErrorKind::NotDirectory, format!("/{what}")));
        }
        let (client, path) = (client.clone(), path.to_vec());
        Ok(Checkpoints { prefix: prefix(&path), client, path, keep, mode, copies: false })
    }

    /// The same, of which each object is had by so many servers, 1 or 2, before a checkpoint is
    /// ended. All processes say the same.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for another number.
    pub fn with_copies(self, servers: usize) -> Result<Self> {
        match servers {
            1 | 2 => Ok(Checkpoints { copies: servers == 2, ..self }),
            _ => Err(Error::new(ErrorKind::Invalid, "checkpoints: copies: 1 or 2")),
        }
    }

    fn container(&self, step: u64, attempt: u64) -> String {
        format!("{}{step}.{attempt:016x}", self.prefix)
    }

    fn checkpoint(
        &self,
        container: Container,
        (step, attempt): (u64, u64),
        safe: Option<u64>,
    ) -> Result<Checkpoint> {
        let own = self.client.member().number();
        let partner = self.copies.then(|| copies::partner(&self.client, own)).transpose()?;
        Ok(Checkpoint {
            client: self.client.clone(),
            container,
            path: self.path.clone(),
            prefix: self.prefix.clone(),
            keep: self.keep,
            partner,
            safe,
            step,
            attempt,
        })
    }

    /// Begins the checkpoint of a step: one process does, and tells the others the attempt. What
    /// earlier writers of this directory's checkpoints have begun and not ended is removed.
    ///
    /// # Errors
    /// Those of making and removing names; [`ErrorKind::Unsupported`] if there are to be copies,
    /// and no other server answers.
    pub fn begin(&self, step: u64) -> Result<Checkpoint> {
        let safe = keeping::newest_safe(&self.client, &self.path)?;
        keeping::clear_leftovers(&self.client, &self.prefix)?;
        let attempt = ObjectId::random()?.0 as u64;
        let name = self.container(step, attempt);
        let container = Container::create(&self.client, name.as_bytes(), self.mode)?;
        self.checkpoint(container, (step, attempt), safe)
    }

    /// Takes part in the checkpoint that another process has begun.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is over.
    pub fn join(&self, step: u64, attempt: u64) -> Result<Checkpoint> {
        let name = self.container(step, attempt);
        let container = Container::open(&self.client, name.as_bytes())?;
        self.checkpoint(container, (step, attempt), None)
    }

    /// Steps that have a checkpoint, the oldest first.
    ///
    /// # Errors
    /// Those of a listing.
    pub fn steps(&self) -> Result<Vec<u64>> {
        keeping::steps(&self.client, &self.path)
    }

    /// The checkpoint of a step.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none or something of it is missing,
    /// [`ErrorKind::Malformed`] if it is not what its manifest says.
    pub fn of_step(&self, step: u64) -> Result<Whole> {
        Whole::open(&self.client, &keeping::directory(&self.path, step))
    }

    /// The latest that is whole, if there is one.
    ///
    /// # Errors
    /// Those of reading.
    pub fn latest(&self) -> Result<Option<Whole>> {
        for step in self.steps()?.into_iter().rev() {
            match self.of_step(step) {
                Err(error) if keeping::is_incomplete(&self.client, &error)? => {}
                found => return found.map(Some),
            }
        }
        Ok(None)
    }
}
