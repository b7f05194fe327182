//! What this machine writes to another one's file and has not committed: records that are appended
//! to a batch, at memory speed. Not here: who else sees it, and when (`server/far/committing`).
//!
//! Invariant: a write is answered once its record is in a batch that is not sealed, or has been
//! written by asking, which has all that was written before go first.

use std::sync::{Arc, RwLock};

use terral_format::ids::Ino;
use terral_format::local::batch::{BATCH_BYTES, HEAD_BYTES, Head, RECORD_MAX};
use terral_format::local::tables::access;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{FileRef, Reply, Request};
use terral_format::{ErrorKind, Result};

use super::File;
use crate::copy::Chunks;
use crate::session::unexpected;

/// So often a batch is sealed or full before anything was written to it.
const TRIES: u32 = 100;
/// Most bytes of one write in one record.
const PIECE: usize = RECORD_MAX - HEAD_BYTES;

/// Which batch is written to.
#[derive(Default)]
pub(super) struct Log {
    /// In a signal handler it may not be to be had.
    batch: RwLock<Option<Arc<Chunks>>>,
}

impl Log {
    fn get(&self) -> Option<Arc<Chunks>> {
        self.batch.try_read().ok()?.clone()
    }

    fn set(&self, file: Option<FileRef>) {
        let is_it = |chunks: &Arc<Chunks>| Some(chunks.ino) == file.map(|file| file.ino);
        if let Ok(mut batch) = self.batch.try_write()
            && !batch.as_ref().is_some_and(is_it)
        {
            *batch = file.map(|file| Arc::new(Chunks::new(file)));
        }
    }
}

impl File {
    /// Whether what is written to it is to be committed.
    pub fn commits(&self) -> bool {
        self.is_far() && self.access() & access::COMMIT != 0
    }

    /// Before a descriptor is closed: what was written here to a file of another machine that is
    /// under `consistency=commit` is there then. Nothing for any other.
    ///
    /// # Errors
    /// `EIO` if its home does not answer, or has not taken what was written before: then it is to
    /// be closed all the same.
    pub fn commit(&self) -> Result<()> {
        if self.commits() {
            self.done(Request::Far(FarFile::Commit(self.handle())))
        } else {
            Ok(())
        }
    }

    /// Writes at `at` to a batch, as much as there is one for. Gives how much that is.
    pub(super) fn put_to_log(&self, bytes: &[u8], at: u64) -> Result<usize> {
        let Some(log) = &self.log else { return Ok(0) };
        let mut done = 0;
        for piece in bytes.chunks(PIECE) {
            if !self.put_record(log, piece, at + done as u64)? {
                break;
            }
            done += piece.len();
        }
        Ok(done)
    }

    /// False: there is no batch to be had.
    fn put_record(&self, log: &Log, piece: &[u8], at: u64) -> Result<bool> {
        let head = Head { at, bytes: piece.len() as u32 }.write();
        let mut known = log.get();
        for _ in 0..TRIES {
            if let Some(batch) = &known {
                match batch.add_record(&self.connection, [&head, piece], BATCH_BYTES) {
                    Ok(true) => return Ok(true),
                    // It is sealed, full, or no more.
                    Ok(false) => {}
                    Err(error) if error.kind == ErrorKind::BadHandle => {}
                    Err(error) if error.kind == ErrorKind::NoSpace => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            let full = known.as_ref().map_or(Ino(0), |batch| batch.ino);
            let now = log.get().filter(|batch| batch.ino != full);
            if now.is_some() {
                // Another thread has had one.
                known = now;
                continue;
            }
            let asked = FarFile::Batch { of: self.handle(), full };
            match self.connection.call(Request::Far(asked))? {
                Reply::Lent(file) => {
                    log.set(Some(file));
                    let set = log.get().filter(|batch| batch.ino == file.ino);
                    known = Some(set.unwrap_or_else(|| Arc::new(Chunks::new(file))));
                }
                Reply::Again => {
                    log.set(None);
                    return Ok(false);
                }
                _ => return Err(unexpected()),
            }
        }
        Ok(false)
    }
}
