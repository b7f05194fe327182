//! Files without name and openers.

use terral_format::ids::Ino;
use terral_format::local::names::Inode;

use crate::core::state::State;
use crate::locks::releasing;
use crate::naming::nodes;
use crate::storage::closed;

/// A file without name and openers: its bytes go.
pub fn bury(state: &mut State, ino: Ino) {
    let Some(inode) = state.names.inode(ino).filter(|inode| state.is_orphan(inode)) else {
        return;
    };
    if !closed::bar(state, ino) {
        state.bury_later(ino);
        return;
    }
    bury_barred(state, ino, &inode);
    closed::unbar(state);
}

pub fn bury_barred(state: &mut State, ino: Ino, inode: &Inode) {
    if let Some(slot) = inode.slot {
        for (index, _) in state.storage.entries(slot) {
            state.storage.release_chunk(&state.sessions, slot, index);
        }
    }
    if !state.debts.may_move(ino) {
        // A drain is at it, finds nothing more, and buries it when it is through.
        return;
    }
    state.storage.unpacked(inode);
    if let Some(slot) = inode.slot {
        state.storage.detach(slot);
    }
    nodes::bury_node(state, inode);
    state.names.forget(ino);
    releasing::unlock_gone(state, ino);
    state.xattrs.forget(ino);
    state.debts.lost(ino, None);
}
