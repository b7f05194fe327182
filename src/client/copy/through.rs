//! Writes to a chunk that another machine has mapped: they go there, bit by bit. Not here: reads of
//! one, which the server has in its answers (`reading`).

use terral_format::Result;
use terral_format::wire::far_files::{FarFile, PIECE_MAX};
use terral_format::wire::message::{Reply, Request};
use terral_transport::fault;

use super::{Chunks, Growth};
use crate::session::{Connection, unexpected};

impl Chunks {
    /// Writes bytes of such a chunk. False: it is not mapped there any more, and some of them may
    /// have been written.
    #[cold]
    pub(super) fn write_through(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
        growth: Growth,
    ) -> Result<bool> {
        let file = self.file(connection)?;
        let mut buffer = vec![0; bytes.len().min(PIECE_MAX)];
        for (at, piece) in (offset..).step_by(PIECE_MAX).zip(bytes.chunks(PIECE_MAX)) {
            let bytes = &mut buffer[..piece.len()];
            fault::copy(bytes, piece)?;
            let asked = FarFile::WriteMapped { file, at, bytes };
            match connection.call(Request::Far(asked))? {
                Reply::Done => {}
                Reply::Again => return Ok(false),
                _ => return Err(unexpected()),
            }
        }
        if growth == Growth::Raise {
            self.raise_to(connection, offset + bytes.len() as u64)?;
        }
        Ok(true)
    }
}
