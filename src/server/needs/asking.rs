//! What is asked of the permanent store, and who waits until it can be asked.

use std::sync::Arc;

use terral_format::wire::peers::Failure;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::debts::failures::Work;
use crate::needs::listings::{Listed, Wanted};
use crate::needs::need::{Fetched, Need};

/// What the permanent store says.
///
/// # Errors
/// As [`Fetches::get`], also while a name above, below or at what is asked for is just being
/// moved there; [`ErrorKind::Backing`] if that fails, or there is no store.
pub fn fetch(state: &mut State, need: Need) -> Result<Fetched> {
    let none = || Error::new(ErrorKind::Backing, "no permanent store");
    let backing = state.backing.clone().ok_or_else(none)?;
    if let Some(path) = need.path().filter(|path| state.names.is_unsettled(path)) {
        return Err(wait_for(state, path));
    }
    state.fetches.get(&need, &*backing, &*state.world)
}

/// Where the permanent store has what is called so here; `None`: it has nothing of it, as a
/// directory that this is in is owed to it.
///
/// # Errors
/// As [`fetch`]'s, if it must wait until that is known.
pub fn place(state: &mut State, path: &[u8]) -> Result<Option<Vec<u8>>> {
    let (path, is_new) = state.names.before_owed(path);
    if state.names.is_unsettled(&path) {
        return Err(wait_for(state, &path));
    }
    Ok((!is_new).then_some(path))
}

/// The names that a directory has there, read anew only if they may be others than they just were.
///
/// # Errors
/// As [`fetch`]'s, and those of the store.
pub fn list(state: &mut State, path: Vec<u8>) -> Result<Arc<Listed>> {
    let (at, at_ns) = (state.world.now(), state.world.wall_ns());
    let known = state.fetches.listings.known(&path, at);
    let wanted = Wanted { path: path.clone(), known, at, at_ns };
    match fetch(state, Need::List(wanted))? {
        Fetched::List(listed) => {
            let listed = listed?;
            state.fetches.listings.keep(&path, &listed, at);
            Ok(listed)
        }
        _ => Err(Error::new(ErrorKind::Invalid, "something else was fetched")),
    }
}

/// As [`wait_until_settled`], for what has this path. Not for another member that changes it, and
/// does not answer.
fn wait_for(state: &mut State, path: &[u8]) -> Error {
    let delegated = state.names.delegated_at(path);
    let members = state.members.as_ref();
    let doubt = delegated.zip(members).and_then(|(ino, it)| it.prepared(it.number(ino)?));
    match doubt {
        Some(doubt) if doubt.trouble.is_some() => Failure::Silent(doubt.of.by).error(),
        _ => wait_until_settled(state),
    }
}

/// Whoever asks waits until the drain knows what the store has, unless it cannot find that out.
pub fn wait_until_settled(state: &mut State) -> Error {
    let failed = state.debts.failure(Work::Names).map(str::to_owned);
    let failed = failed.filter(|_| state.names.is_next_unsure());
    let unsure = state.debts.failure(Work::Versions);
    let unsure = unsure.map(|_| "what was published is not known".into());
    match failed.or(unsure) {
        Some(why) => Error::new(ErrorKind::Backing, why),
        None => state.fetches.wait(),
    }
}
