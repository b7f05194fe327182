//! What is noted of a file when the drain begins with it, and when it is through. Not here: what it
//! copies (`copying`), how it gets its name (`publishing`), and in which order (`turns`).

use std::sync::atomic::Ordering;

use terral_format::Error;
use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;

use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::drain::copying::FileJob;

/// The drain begins with a file.
pub(crate) fn begin(state: &mut State, job: &FileJob) {
    state.debts.begin(job.ino);
}

/// It is through with it for now.
pub(crate) fn end(state: &mut State, job: &FileJob) {
    state.debts.end(job.ino, state.is_written(job.ino), state.world.now());
}

/// Bytes below `size` that are not in memory are the backing's from now on.
pub(crate) fn backed(state: &mut State, job: &FileJob, size: u64) {
    state.record(Fact::BackedTo { ino: job.ino, size });
    state.storage.memory().record(job.slot).backed_bytes().store(size, Ordering::SeqCst);
}

/// More is owed of a file that was just brought, and that may be changed further if it is `open`.
pub(crate) fn owe_again(state: &mut State, ino: Ino, open: bool) {
    owing::owe(state, ino);
    state.debts.happened(ino, Event::Passed { open }, state.world.now());
}

/// Whether the file can be called done: nobody writes, and nothing is dirty.
pub(crate) fn is_quiet(state: &State, ino: Ino) -> bool {
    let Some(inode) = state.names.inode(ino) else { return false };
    let quiet = !state.has_away(ino) && (state.finishing || !state.is_written(ino));
    quiet && inode.slot.is_none_or(|slot| state.storage.resident(slot).1 == 0)
}

pub(crate) fn again_soon(state: &mut State, job: &FileJob) {
    let still = state.is_stored(job.ino) || state.has_away(job.ino);
    let soon = !still && (state.finishing || !state.names.is_written(job.ino));
    if soon {
        state.debts.not_before(job.ino, state.world.now());
    }
}

/// Somebody else changed the backing's copy, or took it away: ours is brought there whole.
pub(crate) fn contested(state: &mut State, ino: Ino) {
    state.record(Fact::Contested { ino });
    state.debts.not_before(ino, state.world.now());
}

/// It could not be brought: it is tried again.
pub(crate) fn failed(state: &mut State, ino: Ino, error: &Error) {
    let path = state.names.path(ino).unwrap_or_default();
    let (what, shown) = (error.to_string(), shown(&path));
    // Not only somewhere in it: names of versions have every short name in them.
    let named = what.contains(&format!("{shown}:"));
    let what = if named { what } else { format!("{shown}: {what}") };
    state.debts.failed(ino, what, state.world.now());
}
