//! Small closed files leave the arena for a place of just their size, and come back when opened.

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino};
use terral_format::wire::message::Attributes;

use crate::core::state::State;
use crate::storage::barring;

/// Packs a file that nobody has open and the backing is not owed, if it is small. True: it has
/// no record any more.
pub fn pack(state: &mut State, ino: Ino, slot: FileSlot) -> Result<bool> {
    if !state.storage.is_packable(slot) || !barring::bar(state, ino) {
        return Ok(false);
    }
    let packed = pack_barred(state, ino, slot);
    barring::unbar(state);
    packed
}

fn pack_barred(state: &mut State, ino: Ino, slot: FileSlot) -> Result<bool> {
    let Some(attributes) = state.attributes(ino) else { return Ok(false) };
    let Some(packed) = state.storage.pack(&state.sessions, slot) else { return Ok(false) };
    // Nobody has it open: size and times stand still.
    let Attributes { size, modified_ns, accessed_ns, changed_ns, .. } = attributes;
    let place = packed.place;
    state.record(Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns });
    state.record(Local::Packed { ino, place });
    state.storage.packed(slot, packed);
    state.commit().map(|()| true)
}
