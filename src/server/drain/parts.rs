//! Files of which other machines have parts, as the drain meets them. Not here: how parts come back
//! (`far/lent`).

use std::time::Duration;

use terral_format::ids::{FileSlot, Ino, Member};
use terral_format::local::names::{Inode, flag};

use crate::core::state::State;
use crate::far::lent;

/// So long a file waits for parts of it that are on their way.
const COME: Duration = Duration::from_millis(100);

/// Whether what is here of a file is to be brought. Not if a dead machine had parts of it: a file
/// with holes in their place is none. `None`: later, as parts are on their way, of what this server
/// ends with, or would be missing in what the permanent store shows already; unless somebody waits
/// for memory.
pub(crate) fn are_ready(state: &mut State, ino: Ino, slot: FileSlot) -> Option<bool> {
    let away = state.storage.away(slot);
    let members = state.members.as_ref();
    let is_lost = |(_, with): &(u64, Member)| members.is_some_and(|it| it.is_removed(*with));
    if away.iter().any(is_lost) {
        state.debts.lost(ino, None);
        return Some(false);
    }
    let is_shown = |inode: Inode| inode.published.is_some() && !inode.is(flag::REWRITTEN);
    let shows = state.names.inode(ino).is_some_and(is_shown) && state.waiting.count() == 0;
    if away.is_empty() || !(state.finishing || shows) {
        return Some(true);
    }
    if state.finishing {
        lent::bring_all_back(state);
    }
    state.debts.not_before(ino, state.world.now() + COME);
    None
}
