//! Files whose names other members' files were about to take: whether they have kept them. Who
//! asked for that has the directory until he is through, or is known not to be.
//!
//! Not here: how one is let go (`naming/homes`).

use std::time::Duration;

use terral_format::Result;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino};
use terral_format::local::names::flag;
use terral_format::wire::message::Kind;
use terral_format::wire::things::Child;

use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::NOBODY;
use crate::naming::{counting, elsewhere};

/// Of the server's own requests, these.
const INDEX: u8 = 1;
const NAMES: u8 = 2;
const LOST: u8 = 3;
/// Other members come back sooner, if they do.
const LONG: Duration = Duration::from_secs(30);

/// Finds it out, as far as that can be known now.
pub fn settle(state: &mut State) {
    settle_names(state);
    if is_abandoned(state) {
        let adrift = state.members.iter().flat_map(|members| members.adrift());
        let adrift: Vec<Ino> = adrift.collect();
        // What has come in their place meanwhile is kept beside them.
        let named = adrift.into_iter().map(|ino| Membership::Adrift { ino, is: false });
        named.for_each(|named| state.record(named));
        return;
    }
    let adrift: Vec<Ino> = state.members.iter().flat_map(|members| members.adrift()).collect();
    for ino in adrift {
        let asker = Asker { session: NOBODY, index: INDEX, sequence: ino.0 };
        if knows(state, ino, asker) {
            state.record(Membership::Adrift { ino, is: false });
            requiring::has_run(state, asker);
        }
    }
}

/// Whether what is here is only to be brought, and those who know more have been gone for long.
pub fn is_abandoned(state: &State) -> bool {
    if state.members.as_ref().is_some_and(|members| members.began_put_out()) {
        return state.finishing;
    }
    let since = state.members.as_ref().and_then(|members| members.cut_off_since(state.since));
    state.finishing && since.is_some_and(|since| state.world.now().since(since) > LONG)
}

/// The same for names of files that have others, and for those that other members say are lost:
/// then they are counted.
fn settle_names(state: &mut State) {
    let Some(members) = &state.members else { return };
    let leaving: Vec<_> = members.leaving().cloned().collect();
    let lost: Vec<_> = members.uncounted().collect();
    let abandoned = !leaving.is_empty() && is_abandoned(state);
    for (ino, directory, name) in leaving {
        let text = Vec::new();
        let child = Child { name: Vec::new(), number: directory, kind: Kind::Directory, text };
        let Ok(parent) = elsewhere::place(state, &child) else { continue };
        as_own(state, (NAMES, parent), |state| {
            if !abandoned {
                elsewhere::take_all(state, &[parent])?;
            }
            counting::has_stayed(state, ino, (directory, &name))
        });
    }
    for (ino, by, token) in lost {
        as_own(state, (LOST, ino), |state| counting::count_lost(state, ino, (by, token)));
    }
}

/// Does something as a request of this server's own, which may wait.
pub(super) fn as_own(
    state: &mut State,
    (index, ino): (u8, Ino),
    act: impl FnOnce(&mut State) -> Result<()>,
) {
    let asker = Asker { session: NOBODY, index, sequence: ino.0 };
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    state.members.iter_mut().for_each(|members| members.asks(Some(asker)));
    let done = act(state);
    state.members.iter_mut().for_each(|members| members.asks(None));
    if done.is_ok() || !state.fetches.is_waiting() {
        // It is done, or it was refused and is asked for anew by and by.
        requiring::has_run(state, asker);
    }
    state.fetches.must_wait();
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
}

/// Whether it is known what has become of a file's name.
fn knows(state: &mut State, ino: Ino, asker: Asker) -> bool {
    let is_named =
        |state: &State| state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
    if state.members.as_ref().is_some_and(|members| members.is_created(ino)) {
        // It will be called what it may be called no more.
        return false;
    }
    let Some(parent) = state.names.above(ino).filter(|_| is_named(state)) else { return true };
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    state.members.iter_mut().for_each(|members| members.asks(Some(asker)));
    let here = elsewhere::take_all(state, &[parent]).is_ok();
    state.members.iter_mut().for_each(|members| members.asks(None));
    if !here && !state.fetches.is_waiting() {
        // It was refused, and is asked for anew by and by.
        requiring::has_run(state, asker);
    }
    state.fetches.must_wait();
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
    // What it has lost it is told.
    here && is_named(state)
}
