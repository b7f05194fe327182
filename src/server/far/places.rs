//! Places in the tables of what was born elsewhere: given back once nobody uses them.

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Thing};
use terral_format::local::names::flag;
use terral_partition::effect::Access;

use crate::core::state::State;
use crate::locks::releasing;

/// What was born elsewhere, has no name here, and nobody uses or is about to open, needs no place.
pub fn forget_unused(state: &mut State, ino: Ino, thing: Thing) {
    let Some(members) = &state.members else { return };
    let is_here = members.access(thing, state) != Access::Nothing || members.decides(thing);
    let Some(inode) = state.names.inode(ino) else { return };
    let is_open = state.names.openers(ino).all > 0 || state.far.has_open(thing.number());
    let is_used = is_open || inode.is(flag::NAMED) || inode.slot.is_some();
    let has_names = state.names.children(&inode).next().is_some();
    // Where it was born somebody is to hear first that it has lost its last name.
    if !is_here && !is_used && !has_names && !state.names.is_gone_elsewhere(ino) {
        forget(state, ino);
    }
}

/// It has no place any more. Who may have locks of it here has none: all that are its home's to
/// know, it has been told, or is told with what is said that nobody here uses it.
pub fn forget(state: &mut State, ino: Ino) {
    releasing::unlock_gone(state, ino);
    state.record(Membership::Forgotten { ino });
}
