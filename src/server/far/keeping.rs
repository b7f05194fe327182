//! Who may be given chunks of striped files to keep, and which are to go to whom. Not here: how
//! they go there (`stripes`).

use terral_format::ids::{Ino, Member};

use crate::core::state::State;

/// Whether a member is one that may be given something to keep.
pub(super) fn may_keep(state: &State, member: Member) -> bool {
    let Some(members) = &state.members else { return false };
    let is_out =
        state.far.removed_of(member).is_some() || state.far.stripes.leaving.contains(&member);
    !is_out && members.user_of(member).is_none()
}

/// A member wants to be rid of a chunk that it has of a striped file. Whether it is not to come
/// here for that.
pub(super) fn goes_on(
    state: &mut State,
    ino: Ino,
    index: u64,
    (with, leaves): (Member, bool),
) -> bool {
    let Some(to) = state.far.stripes.holder(ino, index) else { return false };
    if leaves {
        state.far.stripes.leaving.insert(with);
    }
    let me = state.members.as_ref().map(|members| members.me());
    if leaves || Some(to) == me || !may_keep(state, to) {
        return false;
    }
    state.far.stripes.returned.insert((ino, index), with);
    state.far.stripes.is_unsettled(ino);
    true
}
