//! Objects that nobody changes any more.
//!
//! The store has no such notion of its own: a sealed object is a file that nobody may write. Its
//! server refuses who opens it for writing by its mode, and this library refuses root, too.
//! Invariant: who seals takes the right away and then looks for writers; who opens to write has
//! opened and then looks at the right. One of the two sees the other.

use terral_format::{Error, ErrorKind, Result};

use super::address::Address;
use super::container::{Container, WRITERS, is_sealed};
use crate::Change;

impl Container {
    /// Makes an object immutable: nobody can open it for writing any more.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if somebody has it open for writing, the caller included: it is as
    /// before then.
    pub fn seal(&self, address: Address) -> Result<()> {
        let path = self.path_of(address)?;
        let seen = self.client.stat(&path)?;
        if is_sealed(&seen) {
            return self.seal_parts(address, &seen);
        }
        let set =
            |mode| self.client.change(&path, Change { mode: Some(mode), ..Change::default() });
        let mode = seen.mode & 0o7777;
        set(mode & !WRITERS)?;
        if !self.client.safety(&path)?.open_for_writing {
            return self.seal_parts(address, &seen);
        }
        set(mode)?;
        let what = format!("object {} is open for writing: close it first", address.id);
        Err(Error::new(ErrorKind::Busy, what))
    }
}
