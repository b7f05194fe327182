//! What this server does by and by for itself, as a request of its own, which may wait for others.
//!
//! Invariant: what such a request has taken stays only as long as it is to be done: nobody else
//! would ever have it.

use std::collections::BTreeSet;

use terral_format::Result;
use terral_format::ids::{Asker, Ino};

use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::NOBODY;

/// What such requests are for: told apart by that, and by the inode, or what it says. What others
/// have had done here has the number 0, who is at the door has 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// A name that another file was about to take.
    Adrift = 2,
    /// One of several names of a file, likewise.
    Names,
    /// A name that another member says is lost.
    Lost,
    /// A file that has lost its last name.
    Unnamed,
    /// A directory of a member that is about to leave, by its number.
    Handed,
    /// Who waits for locks elsewhere, by the number of the question.
    Circles,
    /// Whether something was revoked, by the number of the question.
    Lease,
    /// A home that is to know that a transaction has come to be, by what tells both.
    Told,
    /// Whether one does, likewise.
    Doubt,
    /// Whoever knows of one, too, need not any more, by its number.
    Release,
    /// A file of which a name was let go, and has stayed.
    Stayed,
    /// A directory of which names were let go for a member that was removed.
    LetGo,
}

fn asker_of(what: Own, ino: Ino) -> Asker {
    Asker { session: NOBODY, index: what as u8, sequence: ino.0 }
}

/// Of those of this kind only these are to be done still.
pub(super) fn are_wanted(state: &mut State, what: Own, wanted: &BTreeSet<Ino>) {
    let is_old = |asker: Asker| {
        let ino = Ino(asker.sequence);
        asker == asker_of(what, ino) && !wanted.contains(&ino)
    };
    let old = state.members.as_ref().map(|members| members.askers(is_old));
    old.into_iter().flatten().for_each(|asker| requiring::has_run(state, asker));
}

/// Does something as such a request. If it waits it is to be done again, as long as it is wanted.
pub(super) fn as_own(
    state: &mut State,
    (what, ino): (Own, Ino),
    act: impl FnOnce(&mut State) -> Result<()>,
) {
    let asker = asker_of(what, ino);
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    let before = state.members.as_ref().and_then(|members| members.asker());
    state.members.iter_mut().for_each(|members| members.asks(Some(asker)));
    let done = act(state);
    state.members.iter_mut().for_each(|members| members.asks(before));
    if done.is_ok() || !state.fetches.is_waiting() {
        // It is done, or it was refused and is asked for anew by and by.
        requiring::has_run(state, asker);
    }
    state.fetches.must_wait();
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
}
