//! With which token of a named lock a file is written, and that others may not with a lower one.
//!
//! Invariant: the token lies in the description, where this machine's server finds it for what is
//! written to another machine's file. Not here: how writers are kept out (`copy`, the server).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::local::tables::access;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::message::{FileRef, Reply, Request};

use super::File;
use crate::copy::Chunks;
use crate::holding::own_token;
use crate::session::unexpected;

impl File {
    /// A description that has none yet is written with the token of this process, if that has one.
    pub(super) fn begin_token(&self) {
        let token = own_token();
        if token != 0 {
            self.put_token(token);
        } else if let Ok(words) = self.words() {
            self.chunks.set_token(words.token.load(Ordering::SeqCst));
        }
    }

    fn put_token(&self, token: u64) {
        self.chunks.set_token(token);
        if let Ok(words) = self.words() {
            words.token.store(token, Ordering::SeqCst);
        }
    }

    /// The token of a named lock with which it is written; 0: without one.
    pub fn token(&self) -> u64 {
        self.chunks.token()
    }

    /// The same file, as it is written with another token.
    #[must_use]
    pub fn holding(&self, token: u64) -> File {
        let chunks = Chunks::new(FileRef { ino: self.ino(), slot: self.chunks.slot() });
        chunks.set_token(token);
        File { chunks: Arc::new(chunks), ..self.clone() }
    }

    /// From now on the file is written with this token of a named lock, or a greater one, by
    /// whatever process of whatever machine; through this description, with this one. Who has a
    /// lower one, or none, gets [`Stale`](terral_format::ErrorKind::Stale), also in the middle of a
    /// write. To be called before anything is read that the lock protects.
    ///
    /// # Errors
    /// [`Stale`](terral_format::ErrorKind::Stale) if it was fenced with a greater one;
    /// [`BadHandle`](terral_format::ErrorKind::BadHandle) if it is not open for writing;
    /// [`Busy`](terral_format::ErrorKind::Busy) or
    /// [`TextBusy`](terral_format::ErrorKind::TextBusy) while somebody has it mapped to store
    /// there.
    pub fn fence(&self, token: u64) -> Result<()> {
        self.commit()?;
        self.say(Fencing::Fence { token })?;
        self.put_token(token);
        // What waits for a commit nobody could look at.
        self.set_flag(access::COMMIT, false);
        Ok(())
    }

    /// Says something of a named lock that this file stands for, or that it is fenced.
    pub(crate) fn say(&self, what: Fencing) -> Result<Fenced> {
        self.words()?;
        match self.connection.call(Request::Far(FarFile::Fencing { of: self.handle(), what }))? {
            Reply::Fenced(fenced) => Ok(fenced),
            _ => Err(unexpected()),
        }
    }
}
