//! Where what is somebody's is, where each user has servers.
//!
//! Not here: who may change what (`naming/permitting`).

use terral_format::ids::Ino;

use crate::core::state::State;

/// Whether something is only in directories of whose it is: else nothing new could get its name
/// there. So it is where no user has a server.
pub fn is_at_home(state: &State, ino: Ino) -> bool {
    let Some(members) = state.members.as_ref().filter(|_| state.is_among_users()) else {
        return true;
    };
    let home = |ino: Ino| members.number(ino).map(|number| number.born());
    let is_his = |parent: Ino| match (home(parent), home(ino)) {
        (Some(parent), Some(is)) => members.are_for_one(parent, is),
        (parent, is) => parent == is,
    };
    state.names.names_of(ino).into_iter().all(|(parent, _)| is_his(parent))
}
