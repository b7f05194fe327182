//! Nobody begins to use a closed file, or a chunk of it, while it is looked at: files that clients
//! open without asking, and chunks that move to others.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::deferred::Key;
use terral_format::local::names::index_of;

use crate::core::state::State;

/// Whether nobody is just opening a file without the server's knowing; until
/// `unbar`, nobody begins to.
pub fn bar(state: &State, ino: Ino) -> bool {
    let memory = state.storage.memory();
    memory.closing().store(ino.0, Ordering::SeqCst);
    let opened = memory.deferred().revoke(Key::opening(index_of(ino)));
    if opened {
        unbar(state);
    }
    !opened
}

/// Files can be opened again that have a record.
pub fn unbar(state: &State) {
    state.storage.memory().closing().store(0, Ordering::SeqCst);
}

/// Moves chunk `index` of a file into one of `order`, unless somebody has it mapped.
pub fn move_chunk(state: &mut State, slot: FileSlot, index: u64, order: u8) -> Result<()> {
    let ino = Ino(state.storage.memory().record(slot).ino().load(Ordering::SeqCst));
    let at_rest = state.debts.may_move(ino);
    state.storage.move_chunk(&state.sessions, (slot, index), order, at_rest)
}
