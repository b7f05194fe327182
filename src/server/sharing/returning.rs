//! Names that homes have delegated for transactions that this member has decided: they are returned
//! once the permanent store has what that makes of them.
//!
//! Invariant: until a home knows of it, the directories in which such a file has, or had, a name do
//! not go to others (`leaving`). Not here: what homes are told else (`transacting`).

use terral_format::ids::{Ino, Number};
use terral_format::local::names::flag;
use terral_format::wire::things::Change;
use terral_format::wire::transactions::{Returned, TransactionId};

use crate::core::state::State;
use crate::members::role::Returning;

/// What a home is told of a file of its of which a transaction has come to be; `None`: nothing yet.
pub(super) fn said(state: &State, (of, file): (TransactionId, Number)) -> Option<Change> {
    let members = state.members.as_ref()?;
    let Some(Returning { after, lost, got, .. }) = members.returning((of, file)) else {
        return Some(Change::Commit(of));
    };
    let is_there = state.names.owed().front().is_none_or(|(lsn, _)| lsn > after);
    let inode = members.place(file).and_then(|ino| state.names.inode(ino));
    let returned = Returned {
        lost: lost.clone(),
        got: got.clone(),
        fingerprint: inode.and_then(|inode| inode.published),
        rewritten: inode.is_some_and(|inode| inode.is(flag::REWRITTEN)),
    };
    is_there.then(|| Change::Return(of, Box::new(returned)))
}

/// Its home knows: what the store has of it that one knows from now on.
pub(super) fn is_returned(state: &mut State, (of, file): (TransactionId, Number)) -> Option<Ino> {
    let members = state.members.as_ref()?;
    members.returning((of, file))?;
    // What a later one has is newer.
    let is_last = members.delegated().filter(|(_, other)| *other == file).count() == 1;
    members.place(file).filter(|ino| is_last && state.names.inode(*ino).is_some())
}
