//! How the parts of files that are created here are to lie, and who keeps which. Not here: how they
//! come there (`stripes`).

use terral_format::disk::membership::Membership;
use terral_format::ids::Ino;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::Reply;
use terral_format::wire::placement::Stripe;

use super::keeping::may_keep;
use crate::core::state::State;
use crate::members::placement;

/// A file that was just created here has its parts over so many members that keep files, or all.
pub fn begin(state: &mut State, ino: Ino, (count, chunks): (u16, u32)) {
    let Some(members) = &state.members else { return };
    let (me, born) = (members.me(), members.number(ino).is_some_and(|it| members.is_born_here(it)));
    let is_new = state.far.stripes.of(ino).is_none();
    // What a permanent directory has is brought there whole; users' servers keep what is theirs.
    if !born || !is_new || state.backing.is_some() || state.is_among_users() {
        return;
    }
    let mut over = placement::storage_servers(state);
    over.retain(|member| may_keep(state, *member));
    if let Some(at) = over.iter().position(|member| *member == me) {
        over.rotate_left(at);
    } else if !over.is_empty() {
        let at = ino.0 as usize % over.len();
        over.rotate_left(at);
    }
    over.truncate(if count == 0 { usize::MAX } else { count.into() });
    if over.iter().any(|member| *member != me) {
        let stripe = Some(Stripe { over, chunks: chunks.max(1) });
        state.record(Membership::Striped { ino, stripe });
    }
}

/// Who keeps a chunk of what was born here, that has this byte.
pub fn of_byte(state: &State, ino: Ino, at: u64) -> Reply {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    let kept = slot.and_then(|slot| {
        let with = state.storage.placed(slot, at / CHUNK_BYTES)?;
        Some((with, state.storage.size(slot)))
    });
    match kept.filter(|(with, _)| state.far.removed_of(*with).is_none()) {
        Some((with, size)) => Reply::With(with, size),
        None => Reply::Again,
    }
}

/// What was born here is no more.
pub fn forget(state: &mut State, ino: Ino) {
    if state.far.stripes.of(ino).is_some() {
        state.record(Membership::Striped { ino, stripe: None });
    }
}
