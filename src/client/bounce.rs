//! Files of this machine by way of which long writes go to another one: a process puts its bytes
//! into one that only it has open, and the server sends them on from there, also one that was
//! started meanwhile.
//!
//! Invariant: what is under way nobody writes over; a file of which that cannot be known is not
//! used again. They end with the session.

use terral_format::wire::far_files::{FarFile, Handle};
use terral_format::wire::message::{OpenFile, Reply, Request};
use terral_format::{ErrorKind, Result};
use terral_transport::requests::Begun;

use crate::copy::Chunks;
use crate::session::{Connection, unexpected};

/// Something that the server was asked to send.
pub(crate) struct Shipped {
    from: OpenFile,
    answer: Answer,
}

enum Answer {
    Comes(Begun),
    /// It was waited for, as no place for a request was free.
    Came(Result<Reply>),
}

fn handle(open: &OpenFile) -> Handle {
    Handle { description: open.description, nonce: open.nonce }
}

impl Connection {
    /// Puts these into a file, and asks the server for what `request` says of it. `None`: there is
    /// no memory for them.
    ///
    /// # Errors
    /// As those of a write to a file of this machine, and what the server answers.
    pub(crate) fn ship(
        &self,
        bytes: &[u8],
        request: impl FnOnce(Handle) -> FarFile<'static>,
    ) -> Result<Option<Shipped>> {
        let own = self.own()?;
        let from = own.in_hand.take_bounce().map_or_else(|| self.new_bounce(), Ok)?;
        match Chunks::new(from.file).write(self, bytes, 0) {
            Ok(()) => {}
            Err(error) => {
                self.give_back(from);
                return if error.kind == ErrorKind::NoSpace { Ok(None) } else { Err(error) };
            }
        }
        let asked = Request::Far(request(handle(&from)));
        let begun = own.begin(self, asked).map(Answer::Comes);
        let answer = begun.unwrap_or_else(|| Answer::Came(self.call(asked)));
        Ok(Some(Shipped { from, answer }))
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// What the server answers.
    pub(crate) fn has_shipped(&self, shipped: Shipped) -> Result<Reply> {
        let Shipped { from, answer } = shipped;
        let answered = match answer {
            Answer::Comes(begun) => self.own()?.answer_to(self, begun),
            Answer::Came(answered) => answered,
        };
        // A server that is gone may yet come back, and send what is there by then.
        if !answered.as_ref().is_err_and(|error| error.kind == ErrorKind::Unreachable) {
            self.give_back(from);
        }
        answered
    }

    fn give_back(&self, from: OpenFile) {
        if !self.own().is_ok_and(|own| own.in_hand.keep_bounce(from)) {
            // With the session it ends in any case.
            let Handle { description, nonce } = handle(&from);
            let _ = self.call(Request::Close { description, nonce });
        }
    }

    fn new_bounce(&self) -> Result<OpenFile> {
        match self.call(Request::Far(FarFile::Bounce))? {
            Reply::Preallocated(files) => files.into_iter().next().ok_or_else(unexpected),
            _ => Err(unexpected()),
        }
    }
}
