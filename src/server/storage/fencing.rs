//! Keeps writers with a lower token out of a file.
//!
//! Invariant: who writes looks at the fence after he has entered a chunk, and before its first
//! byte. So once the fence stands, and all who had entered before have left or are overtaken, no
//! byte comes with a lower token; the new epoch has an append of such a one not count. Not here:
//! chunks that other members have, which come back before.

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::FileSlot;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram::Move;

use super::Storage;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::sessions::clients::Sessions;
use crate::storage::eviction;

/// A file whose chunks are all here is written with this token or a greater one from now on.
///
/// # Errors
/// As those of [`Storage::fence`], or if who asks must wait for memory.
pub fn fence(state: &mut State, file: FileRef, token: u64) -> Result<()> {
    eviction::with_room(state, |state| state.storage.fence(&state.sessions, file.slot, token))?;
    state.record(Local::Fenced { ino: file.ino, token });
    Ok(())
}

impl Storage {
    /// A file is written with this token or a greater one from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if somebody has it mapped to store there; [`ErrorKind::NoSpace`] if a
    /// writer was stopped in the middle, and memory is full: the fence stands then, and it is to be
    /// done again.
    fn fence(&mut self, clients: &Sessions, slot: FileSlot, token: u64) -> Result<()> {
        if self.is_stored_to_by_maps(slot) {
            return Err(Error::new(ErrorKind::Busy, "somebody has the file mapped to store there"));
        }
        self.memory().header(slot).fence().fetch_max(token, Ordering::SeqCst);
        if does(Step::WaitForWriters) {
            for (index, _) in self.entries(slot) {
                self.wait_for_writers(clients, slot, index)?;
            }
        }
        self.memory().bump_size(slot);
        Ok(())
    }

    /// Who is in a chunk leaves it; who does not move loses it.
    fn wait_for_writers(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> Result<()> {
        let found = self.memory().entry(slot, index);
        if !found.is_here() || found.is_borrowed() {
            return Ok(());
        }
        let Some(entry) = self.recall(slot, index) else { return Ok(()) };
        let quarantined = self.wait_unpinned(clients, slot, entry);
        let done = match quarantined {
            true if self.is_mapped(entry) => {
                let context = "who writes there is stopped, and somebody has it mapped";
                Err(Error::new(ErrorKind::Busy, context))
            }
            true => {
                let how = Move { order: entry.order(), quarantined, at_rest: false };
                return self.moved(slot, index, entry, how);
            }
            false => Ok(()),
        };
        self.unrecall(slot, index, entry);
        done
    }
}
