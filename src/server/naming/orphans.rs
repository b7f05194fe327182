//! Files without name and openers.

use terral_format::ids::Ino;
use terral_format::local::names::Inode;

use crate::core::state::State;
use crate::locks::releasing;
use crate::naming::nodes;
use crate::storage::{barring, closed};

/// A file without name and openers: its bytes go.
pub fn remove(state: &mut State, ino: Ino) {
    let Some(inode) = state.names.inode(ino).filter(|inode| state.is_orphan(inode)) else {
        return;
    };
    if !barring::bar(state, ino) {
        state.look_again_at(ino);
        return;
    }
    remove_barred(state, ino, &inode);
    barring::unbar(state);
}

fn remove_barred(state: &mut State, ino: Ino, inode: &Inode) {
    if !closed::free(state, inode) {
        // The drain is at it, finds nothing more, and removes it when it is through.
        return;
    }
    nodes::remove_node(state, inode);
    state.names.forget(ino);
    releasing::unlock_gone(state, ino);
    state.xattrs.forget(ino);
    state.debts.lost(ino, None);
}
