//! Which directories have all their names in the tables, so that a permanent store is not asked for
//! what is missing in them: those that were made in this run, where it was known that there was
//! nothing of that name. A server alone has the same of a mark in the inode, which programs see,
//! too; where there are several, that mark says that programs ask about changes.

use terral_format::ids::{Ino, Thing};
use terral_format::local::names::{Inode, flag};

use crate::core::state::State;
use crate::naming::elsewhere::thing_of;

/// A directory was made just now, where nothing was called so.
pub fn is_made(state: &mut State, ino: Ino) {
    if let Some(thing @ Thing::Directory(_)) = thing_of(state, ino) {
        is_whole(state, thing);
    }
}

/// The tables have all names of a directory, which was made just now or has come so.
pub fn is_whole(state: &mut State, thing: Thing) {
    if state.backing.is_none() {
        return;
    }
    let State { members, names, .. } = state;
    let Some(members) = members else { return };
    members.has_whole(thing);
    members.forget_whole(|members, thing| {
        let place = members.place(thing.number());
        place.is_some_and(|ino| names.inode(ino).is_some())
    });
}

/// A directory goes to another member.
pub fn has_left(state: &mut State, thing: Thing) {
    state.members.iter_mut().for_each(|members| members.has_part(thing));
}

/// Whether the permanent store may have names of a directory that the tables do not have.
pub fn may_have_more(state: &State, directory: &Inode) -> bool {
    if state.backing.is_none() || !directory.is(flag::OVERLAY) {
        return false;
    }
    let thing = thing_of(state, directory.ino);
    let members = state.members.as_ref().zip(thing);
    !members.is_some_and(|(members, thing)| members.is_whole(thing))
}
