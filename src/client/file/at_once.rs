//! What is done with few bytes of a file of this machine if that keeps nobody waiting. Not here:
//! when it does (`copy/at_once`).

use terral_format::Result;
use terral_format::local::tables::access;
use terral_format::wire::message::gives_rights;

use super::{File, READS, WRITES, check_range};
use crate::timing::Timed;

impl File {
    /// As [`File::read_at`], if nobody is to be waited for or asked. `None`: that may tell.
    pub fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        self.words_for(access::READ).ok().filter(|_| !self.is_far())?;
        let timed = self.begin(READS, buffer.len()).ok()?;
        let count = self.chunks.read_at_once(&self.connection, buffer, offset).ok()??;
        self.was_read(&timed, count).ok()?;
        Some(count)
    }

    /// As [`File::write_at`], if nobody is to be waited for or asked, and it has no set-id bits to
    /// lose. False: that is to be done instead, with the same bytes.
    pub fn write_at_once(&self, bytes: &[u8], offset: u64) -> bool {
        let may = self.words_for(access::WRITE).is_ok() && !self.is_far();
        let mode = self.connection.memory.names().mode_hint(self.ino());
        if !may || gives_rights(mode.into()) || check_range(offset, bytes.len() as u64).is_err() {
            return false;
        }
        let write = |timed: Timed| -> Result<bool> {
            let written = self.chunks.write_at_once(&self.connection, bytes, offset)?;
            if written {
                self.was_written(&timed, bytes.len())?;
            }
            Ok(written)
        };
        self.begin(WRITES, bytes.len()).and_then(write).unwrap_or(false)
    }
}
