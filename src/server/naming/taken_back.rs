//! Files whose names were delegated to a member that will not say any more what has become of them:
//! it was removed, or has been gone for long at the end. They are called as before.
//!
//! Not here: how names are delegated, and returned (`delegating`).

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::fingerprint::Object;
use terral_format::ids::{Ino, Lsn};

use crate::core::state::State;
use crate::naming::names::is_known;

/// A file is called as before. If the store has it under one of these paths instead, it is to have
/// it there again.
pub(super) fn is_taken_back(state: &mut State, ino: Ino, to: &[Vec<u8>]) {
    let inode = state.names.inode(ino).filter(is_known);
    let (Some(inode), Some(backing)) = (inode, state.backing.clone()) else { return };
    let (Some(path), Some(known)) = (state.names.path(ino), inode.published) else { return };
    let is_it = |path: &[u8]| {
        let found = backing.stat(path).ok().map(|found| found.fingerprint);
        found.filter(|found| found.is_same_object(known))
    };
    if is_it(&path).is_some() {
        return;
    }
    let mut found = to.iter().filter_map(|at| Some((at.clone(), is_it(at)?)));
    let Some((from, fingerprint)) = found.next() else { return };
    let (fingerprint, rewritten) = (Some(fingerprint), false);
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    let (lsn, over) = (Lsn(state.names.ordinal().0 + 1), Some(Object::NONE));
    let operation = NameOperation::Rename { from, to: path, ino, over };
    state.record(Fact::Owed { lsn, operation });
}
