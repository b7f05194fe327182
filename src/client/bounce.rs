//! Files of this machine by way of which long writes go to another one: a process puts its bytes
//! into one that only it has open, and the server sends them on from there, also one that was
//! started meanwhile. They end with the session.

use terral_format::wire::far_files::{FarFile, Handle};
use terral_format::wire::message::{OpenFile, Reply, Request};
use terral_format::{ErrorKind, Result};

use crate::copy::Chunks;
use crate::session::{Connection, unexpected};

impl Connection {
    /// Puts these into a file, and has `act` use it. `None`: there is no memory for them.
    ///
    /// # Errors
    /// As those of a write to a file of this machine, and those of `act`.
    pub(crate) fn bounced<T>(
        &self,
        bytes: &[u8],
        act: impl FnOnce(Handle) -> Result<T>,
    ) -> Result<Option<T>> {
        let hand = &self.own()?.in_hand;
        let open = hand.take_bounce().map_or_else(|| self.new_bounce(), Ok)?;
        let of = Handle { description: open.description, nonce: open.nonce };
        let done = match Chunks::new(open.file).write(self, bytes, 0) {
            Ok(()) => act(of).map(Some),
            Err(error) if error.kind == ErrorKind::NoSpace => Ok(None),
            Err(error) => Err(error),
        };
        if !hand.keep_bounce(open) {
            // With the session it ends in any case.
            let Handle { description, nonce } = of;
            let _ = self.call(Request::Close { description, nonce });
        }
        done
    }

    fn new_bounce(&self) -> Result<OpenFile> {
        match self.call(Request::Far(FarFile::Bounce))? {
            Reply::Preallocated(files) => files.into_iter().next().ok_or_else(unexpected),
            _ => Err(unexpected()),
        }
    }
}
