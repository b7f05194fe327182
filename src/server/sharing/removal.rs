//! What becomes of this server when a member was removed: itself, or one that moves a directory.
//!
//! Not here: what that one had (`terral_partition`, `restoring`).

use terral_format::Result;
use terral_format::disk::membership::Membership;
use terral_format::ids::Ino;

use crate::core::state::State;
use crate::deferred::applying;
use crate::far::linking;
use crate::sharing::moving;

/// This server was removed, or has left: programs here can do nothing any more but with what they
/// have open, and nothing is brought. What is owed stays in memory, for `terral recover`.
pub fn is_put_out(state: &mut State) -> Result<()> {
    let me = state.members.as_ref().map(|members| members.me());
    let has_left = |me| state.members.as_ref().is_some_and(|members| members.has_left(me));
    if !me.is_some_and(has_left) {
        state.warn(
            "this machine was removed from the partition: programs here get EIO; what it has not \
             brought stays in memory, for `terral recover`"
                .into(),
        );
    }
    let here = state.names.inodes().filter(|inode| inode.is_directory());
    let here: Vec<Ino> =
        here.map(|inode| inode.ino).filter(|ino| !state.names.is_elsewhere(*ino)).collect();
    here.into_iter().for_each(|ino| state.record(Membership::Elsewhere { ino, is: true }));
    state.names.may_look_nowhere();
    // What was deferred before that is applied; what is after asks.
    applying::close_gate(state)?;
    me.into_iter().for_each(|me| linking::put_out(state, me));
    Ok(())
}

/// A directory that a dead member was about to move is where it can be found.
///
/// # Errors
/// If the tables have no room.
pub fn settle_moves(state: &mut State) -> Result<()> {
    for (by, theirs) in state.names.resting().clone() {
        if state.members.as_ref().is_some_and(|members| members.is_dead(by)) {
            moving::settle_of(state, by, &theirs)?;
        }
    }
    Ok(())
}
