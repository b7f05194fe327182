//! Files that are executed: nobody writes into them meanwhile, and what somebody may write into is
//! not executed (ETXTBSY).
//!
//! Invariants: a file that may be running has `flag::EXECUTED`, and who opens such a file for
//! writing asks the server; whether it is running the kernel says, so nothing need be remembered of
//! a program that has ended, or through the death of a server. Not here: how the kernel is asked
//! (`terral_transport::program`), and the copies that programs run from (`preload`).

use terral_format::ids::Ino;
use terral_format::local::names::flag;
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;

/// Refuses to have a file written into while a program runs it.
pub fn permit_writing(state: &mut State, ino: Ino) -> Result<()> {
    if !state.names.inode(ino).is_some_and(|inode| inode.is(flag::EXECUTED)) {
        return Ok(());
    }
    // First who is about to: then it runs, or does not.
    let starts = state.starting.has(&*state.machine, ino);
    if starts || state.machine.running().contains(&ino) {
        return Err(busy(state, ino));
    }
    state.names.update(ino, |inode| inode.flags &= !flag::EXECUTED);
    Ok(())
}

/// After another server has died: marks what programs run.
pub fn find_running(state: &mut State) {
    for ino in state.machine.running() {
        state.names.update(ino, |inode| inode.flags |= flag::EXECUTED);
    }
}

pub fn busy(state: &State, ino: Ino) -> Error {
    let path = state.names.path(ino).unwrap_or_default();
    Error::new(ErrorKind::TextBusy, shown(&path))
}

/// A process `pid` is about to execute a file, from the copy that it has as this descriptor.
pub fn starts(state: &mut State, ino: Ino, (pid, copy): (u32, u32)) {
    state.starting.add(&*state.machine, ino, (pid, copy));
    state.names.update(ino, |inode| inode.flags |= flag::EXECUTED);
}
