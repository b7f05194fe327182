//! Files whose names other members' files were about to take: whether they have kept them. Who
//! asked for that has the directory until he is through, or is known not to be.
//!
//! Not here: how one is let go (`naming/homes`, and of several `naming/further`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::Ino;
use terral_format::local::names::flag;
use terral_format::wire::message::Kind;
use terral_format::wire::things::Child;

use crate::core::state::State;
use crate::naming::{counting, elsewhere};
use crate::sharing::own::{Own, are_wanted, as_own};

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
    let adrift: BTreeSet<Ino> = state.members.iter().flat_map(|members| members.adrift()).collect();
    are_wanted(state, Own::Adrift, &adrift);
    adrift.into_iter().for_each(|ino| settle_name(state, ino));
}

/// Whether what is here is only to be brought, and those who know more have been gone for long.
pub fn is_abandoned(state: &State) -> bool {
    if state.members.as_ref().is_some_and(|members| members.began_put_out()) {
        return state.finishing;
    }
    let since = state.members.as_ref().and_then(|members| members.cut_off_since(state.since));
    state.finishing && since.is_some_and(|since| state.world.now().since(since) > LONG)
}

/// Whether this process has not met any of the others.
pub fn has_met_nobody(state: &State) -> bool {
    let since = state.members.as_ref().and_then(|members| members.cut_off_since(state.since));
    since == Some(state.since)
}

/// The same for names of files that have others, and for those that other members say are lost:
/// then they are counted.
fn settle_names(state: &mut State) {
    let Some(members) = &state.members else { return };
    let leaving = state.names.leaving();
    let leaving: Vec<_> = leaving.map(|(ino, at, name)| (ino, at, name.to_vec())).collect();
    let lost: Vec<_> = members.uncounted().collect();
    are_wanted(state, Own::Lost, &lost.iter().map(|(ino, ..)| *ino).collect());
    let abandoned = !leaving.is_empty() && is_abandoned(state);
    let mut parents = BTreeSet::new();
    for (ino, directory, name) in leaving {
        let text = Vec::new();
        let child = Child { name: Vec::new(), number: directory, kind: Kind::Directory, text };
        let Ok(parent) = elsewhere::place(state, &child) else { continue };
        parents.insert(parent);
        as_own(state, (Own::Names, parent), |state| {
            if !abandoned {
                elsewhere::take_all(state, &[parent])?;
            }
            counting::has_stayed(state, ino, (directory, &name))
        });
    }
    are_wanted(state, Own::Names, &parents);
    for (ino, by, token) in lost {
        as_own(state, (Own::Lost, ino), |state| counting::count_lost(state, ino, (by, token)));
    }
}

/// Finds out what has become of a file's name: then it is not adrift any more. Another file may
/// have taken it, which is told otherwise.
fn settle_name(state: &mut State, ino: Ino) {
    if state.members.as_ref().is_some_and(|members| members.is_created(ino)) {
        // It will be called what it may be called no more.
        return;
    }
    let is_named =
        |state: &State| state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
    as_own(state, (Own::Adrift, ino), |state| {
        let above = state.names.above(ino).filter(|_| is_named(state));
        if let Some(parent) = above {
            elsewhere::take_all(state, &[parent])?;
        }
        if above.is_none() || is_named(state) {
            state.record(Membership::Adrift { ino, is: false });
        }
        Ok(())
    });
}
