//! Who has files open that were born here, and has not said so: a member that has been shown a file
//! opens it to read without waiting, where there is no permanent directory without a word
//! ([`opens_alone`]). Once it has lost its last name, and before its bytes go, all are asked.
//!
//! Invariants: a file without a name that may be open elsewhere keeps its bytes until each member
//! has said, after that, that it has it not open; nobody opens it anew by then, as what leads to it
//! is shown no more. That a member has closed it is a reason to ask once more, as it may have
//! opened it again without a word before. Not here: what members have said that they have open
//! (`desk`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::ids::{Ino, Member, Number, Thing};

use terral_format::wire::far::Act;

use super::asking;
use crate::core::left_out::{Step, does};
use crate::core::state::State;

/// So much may be said to others of what is open here before they have heard it: who opens more
/// waits for them.
const TOLD_MAX: usize = 64;

/// What is known of a member, and a file without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is asked; and whether it has closed the file since.
    Asked(bool),
    /// It has it open.
    Open,
}

/// See the module.
#[derive(Default)]
pub struct Holders {
    /// Files that were shown by this process.
    shown: BTreeSet<Ino>,
    /// Files without a name, and the members that may have them open.
    left: BTreeMap<Ino, BTreeMap<Member, Known>>,
    /// Files without a name that are open, and that others may still see with one.
    old: BTreeSet<Ino>,
}

/// Whether a member may open a file that was born elsewhere, to read it, without waiting for its
/// home: that has shown it, and asks before its bytes go. Where there is a permanent directory the
/// home is told, though nobody waits for it: bytes that only that one has go with their name.
pub fn opens_alone(state: &mut State, file: Number) -> bool {
    let copy = state.members.as_ref().and_then(|it| it.shown(Thing::File(file), state));
    let is_there = copy.is_some_and(|copy| copy.attributes().is_ok_and(|seen| seen.links > 0));
    if !is_there || state.far.is_removed(file.born()) {
        return false;
    }
    if state.backing.is_none() || state.far.has_open(file) {
        return true;
    }
    let may_tell = state.far.told() < TOLD_MAX;
    if may_tell {
        asking::has_open(state, file);
    }
    may_tell
}

/// What was born here was shown to another member.
pub fn was_shown(state: &mut State, thing: Thing) {
    let Thing::File(file) = thing else { return };
    let ino = state.members.as_ref().and_then(|members| members.place(file));
    if let Some(ino) = ino {
        state.far.holders.shown.insert(ino);
        state.far.holders.left.remove(&ino);
    }
}

/// Whether a file that was born here, and has no name any more, may be open elsewhere; who may have
/// it is asked.
pub fn may_be_open(state: &mut State, ino: Ino) -> bool {
    if let Some(left) = state.far.holders.left.get(&ino) {
        return !left.is_empty();
    }
    // What another process has shown nobody knows any more.
    let was_shown = state.starts > 1 || state.far.holders.shown.contains(&ino);
    let members = state.members.as_ref().filter(|_| was_shown);
    // A user's server says itself what it has open, or has it no more: it need never answer.
    let others = members.map(|it| it.others().into_iter().filter(|of| it.stranger(*of).is_none()));
    let others: Vec<Member> = others.into_iter().flatten().collect();
    if others.is_empty() || !does(Step::AskHolders) {
        return false;
    }
    let left = others.iter().map(|member| (*member, Known::Asked(false)));
    state.far.holders.left.insert(ino, left.collect());
    others.into_iter().for_each(|member| ask(state, member, ino));
    true
}

/// A file never had a name, and nobody was told of it: nobody is asked.
pub(super) fn is_nobodys(state: &mut State, ino: Ino) {
    state.far.holders.left.insert(ino, BTreeMap::new());
}

/// A file that was born here has lost its last name, and is open: others may have been shown it
/// with one.
pub fn has_lost_its_name(state: &mut State, ino: Ino) {
    if state.members.is_some() && (state.starts > 1 || state.far.holders.shown.contains(&ino)) {
        state.far.holders.old.insert(ino);
    }
}

/// Such files, until [`is_seen`].
pub fn old(state: &State) -> Vec<Ino> {
    state.far.holders.old.iter().copied().collect()
}

/// Nobody sees such a file as it was any more.
pub fn is_seen(state: &mut State, ino: Ino) {
    state.far.holders.old.remove(&ino);
}

fn ask(state: &mut State, member: Member, ino: Ino) {
    let Some(members) = &state.members else { return };
    let Some(file) = members.number(ino) else { return };
    let (by, now) = (members.me(), state.world.now());
    if let Some(left) = state.far.holders.left.get_mut(&ino) {
        left.insert(member, Known::Asked(false));
    }
    // Without random bits the bytes stay for the next process to ask.
    if asking::live(state).is_ok() {
        state.far.asks_user((member, by), (file, Act::IsOpen), now);
    }
}

/// A member has answered.
pub(super) fn heard(state: &mut State, from: Member, file: Number, is_open: bool) {
    let Some(ino) = state.members.as_ref().and_then(|members| members.place(file)) else { return };
    let Some(left) = state.far.holders.left.get_mut(&ino) else { return };
    match left.get_mut(&from) {
        Some(Known::Asked(true)) if is_open => ask(state, from, ino),
        Some(known) if is_open => *known = Known::Open,
        _ => {
            left.remove(&from);
            state.look_again_at(ino);
        }
    }
}

/// A member says that it has closed a file of this one.
pub fn closed(state: &mut State, ino: Ino, by: Member) {
    let left = state.far.holders.left.get_mut(&ino);
    match left.and_then(|left| left.get_mut(&by)) {
        Some(Known::Asked(closed)) => *closed = true,
        Some(Known::Open) => ask(state, by, ino),
        None => {}
    }
}

/// There is a new session with a member: what it has closed in the one before may not have come.
pub(super) fn connected(state: &mut State, with: Member) {
    let open = |left: &BTreeMap<_, _>| left.get(&with) == Some(&Known::Open);
    let open = state.far.holders.left.iter().filter(|(_, left)| open(left));
    let open: Vec<Ino> = open.map(|(ino, _)| *ino).collect();
    open.into_iter().for_each(|ino| ask(state, with, ino));
}

/// A member is none any more.
pub(super) fn removed(state: &mut State, member: Member) {
    let left = state.far.holders.left.iter_mut();
    let its = left.filter_map(|(ino, left)| left.remove(&member).map(|_| *ino));
    let its: Vec<Ino> = its.collect();
    its.into_iter().for_each(|ino| state.look_again_at(ino));
}

/// What was born here is no more.
pub fn forget(state: &mut State, ino: Ino) {
    state.far.holders.shown.remove(&ino);
    state.far.holders.left.remove(&ino);
    state.far.holders.old.remove(&ino);
}

/// Another member asks whether a file of its own is open here: if it is, it is told when that is
/// over.
pub fn is_open(state: &mut State, file: Number) -> bool {
    let place = state.members.as_ref().and_then(|members| members.place(file));
    let is_open = state.descriptions.iter().any(|(_, open)| Some(open.ino) == place);
    let is_open = is_open || state.far.is_opening(file);
    if is_open {
        asking::has_open(state, file);
    }
    is_open
}
