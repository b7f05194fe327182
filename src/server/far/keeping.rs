//! Who may be given chunks of striped files to keep, and which are to go to whom. Not here: how
//! they go there (`stripes`).

use terral_format::ids::{Ino, Member};

use crate::core::state::State;

/// Whether a member is one that may be given something to keep.
pub(super) fn may_keep(state: &State, member: Member) -> bool {
    let Some(members) = &state.members else { return false };
    let is_out =
        state.far.removed_of(member).is_some() || state.far.stripes.leaving.contains(&member);
    !is_out && members.is_ours(member)
}

/// Where a chunk is to be: where its file's layout says, or, if that member cannot keep anything,
/// at the next one of it that can. `None`: here.
pub(super) fn keeper(state: &State, ino: Ino, index: u64) -> Option<Member> {
    let me = state.members.as_ref()?.me();
    let mut holders = state.far.stripes.holders(ino, index);
    holders.find(|to| *to == me || may_keep(state, *to)).filter(|to| *to != me)
}

/// A member says that it has something of a file, and whether it is about to leave.
pub(super) fn says(state: &mut State, ino: Ino, (with, leaves): (Member, bool)) {
    if state.far.stripes.of(ino).is_some() {
        match leaves {
            true => state.far.stripes.leaving.insert(with),
            false => state.far.stripes.leaving.remove(&with),
        };
    }
}

/// A member wants to be rid of a chunk that it has. Whether it is not to come here for that.
pub(super) fn goes_on(state: &mut State, ino: Ino, index: u64, with: Member) -> bool {
    if state.finishing {
        return false;
    }
    let is_users = state.members.as_ref().is_some_and(|members| members.stranger(with).is_some());
    // What is a user's server's word is looked at here, and nobody else waits for it. What is not
    // striped has no keeper.
    if is_users || keeper(state, ino, index).is_none() {
        return false;
    }
    state.far.stripes.returned.insert((ino, index), with);
    state.far.stripes.is_unsettled(ino);
    true
}
