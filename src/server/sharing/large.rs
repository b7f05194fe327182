//! Directories with more names than it is wise, or possible, to give to another machine: they are
//! used where they are decided. Who was lent one that has grown since gives it back.

use terral_format::ids::{Ino, Thing};
use terral_partition::effect::{Access, Giving, Input};

use crate::core::limits::limits;
use crate::core::state::State;
use crate::members::stepping::tell;
use crate::naming::elsewhere;
use crate::sharing::bodies;

/// Whether a thing that is here may be given to another member so.
pub fn may_be_given(state: &State, thing: Thing, to: Giving) -> bool {
    let most = if to == Giving::Take { limits().given } else { limits().lent };
    let weight = |ino| state.names.weight(ino);
    bodies::inode_of(state, thing).map_or(true, |inode| weight(inode.ino) <= most)
}

/// What has grown too much goes back to who decides it.
pub fn give_back(state: &mut State) {
    let large: Vec<Ino> = state.names.large().collect();
    for ino in large {
        let Some(thing) = elsewhere::thing_of(state, ino) else { continue };
        let is_borrowed = state.members.as_ref().is_some_and(|members| {
            !members.decides(thing) && members.access(thing, state) == Access::Change
        });
        if is_borrowed {
            tell(state, Input::GiveBack(thing));
        }
    }
}
