//! How many names a file has, where there are several machines: its home counts them, and nobody
//! else. It counts one more in the step that makes the name, which it makes itself. One less it
//! counts as it takes a name away, or before another machine does: that one asks it to let the name
//! go, and if it has others, it is counted no more, until it is known whether it has gone. Of its
//! only name it hears when that has gone. Who has a directory renames in it: that changes no count.
//!
//! Who asked says whether it has gone (`sharing/letting_go`); where there is a permanent store the
//! home looks. Invariants: as long as that is not known its bytes stay; where there is a permanent
//! store, no other name of it comes or goes meanwhile. What others have been shown is so. Not here:
//! what a file's home is asked for (`further`), and who asks it (`letting_go`).

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::things::Outcome;
use terral_format::wire::transactions::OPERATIONS_MAX;
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::refuse;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::asking;
use crate::members::requiring;
use crate::naming::elsewhere;
use crate::naming::leaving::{LetGo, Time};

/// Whether a file that was born here has, or may have, more than one name.
pub fn is_several(state: &State, ino: Ino) -> bool {
    let Some(inode) = state.names.inode(ino).filter(|inode| inode.kind == Kind::File) else {
        return false;
    };
    // What was found in the permanent store may have others there.
    let counted = state.backing.is_none() && inode.links > 1;
    let Some(members) = &state.members else { return false };
    let gets = members.number(ino).and_then(|file| members.prepared(file));
    let counts = gets.is_some_and(|doubt| doubt.gets > 0) || state.names.is_leaving(ino);
    let counts = counts || members.uncounted().any(|(of, ..)| of == ino);
    counted || state.names.has_further(ino) || counts
}

/// The count of a file that was born here is about to change: nobody is shown it any more, and what
/// is not known of it is found out before.
///
/// # Errors
/// If that must wait.
pub fn may_count(state: &mut State, ino: Ino) -> Result<()> {
    may_count_with(state, ino, 1)
}

/// The same, as long as so many names at least are counted, or none is in doubt.
fn may_count_with(state: &mut State, ino: Ino, least: u32) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    let knows = state.backing.is_none() && links >= least;
    if !knows && state.names.is_leaving(ino) || members.is_created(ino) {
        // Who has the directory of such a name may wait for what this request has taken.
        return Err(requiring::released(state));
    }
    elsewhere::file_is_here(state, ino, b"")
}

/// A transaction that another member decides may give a file that was born here so many names:
/// they are counted from now on.
///
/// # Errors
/// If that must wait; [`ErrorKind::NotFound`] if it has none; [`ErrorKind::Malformed`].
pub(super) fn may_get(state: &mut State, ino: Ino, names: u32) -> Result<()> {
    let inode = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    let some = (1..=OPERATIONS_MAX as u32).contains(&names) && state.backing.is_none();
    let Some(inode) = inode.filter(|_| some) else {
        return Err(Error::new(ErrorKind::Malformed, "names that a transaction gives"));
    };
    if inode.links == 0 && !state.names.is_leaving(ino) {
        return Err(refuse(ErrorKind::NotFound, b""));
    }
    may_count(state, ino)?;
    counts(state, ino, i64::from(names));
    Ok(())
}

/// The same where there is a permanent store, and its names are delegated; or so many less, of
/// which others are left.
pub(super) fn gets_more(state: &mut State, ino: Ino, names: i64) {
    if names != 0 {
        counts(state, ino, names);
    }
}

/// It does not come to be: they are not. What is in doubt may have stayed, so that it is not known
/// yet that there are none: then one that is counted once too often keeps the bytes.
pub(super) fn never_got(state: &mut State, ino: Ino, names: u32) {
    counts(state, ino, -i64::from(names));
    has_lost_all(state, ino);
}

/// What another member's file is called here it is counted as, at least: so it loses what it loses
/// and no more, whatever was heard of it before.
pub(super) fn has_all_its_names(state: &mut State, ino: Ino) {
    if asking::number_of(state, ino).is_none() {
        return;
    }
    let names = state.names.names_here(ino);
    if state.attributes(ino).is_some_and(|is| is.links < names) {
        has_links(state, ino, names);
    }
}

/// So many names more are counted.
fn counts(state: &mut State, ino: Ino, more: i64) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    let links = i64::from(links).saturating_add(more);
    has_links(state, ino, u32::try_from(links.max(0)).unwrap_or(u32::MAX));
}

/// What a file looks like with another count of names.
pub(super) fn has_links(state: &mut State, ino: Ino, links: u32) {
    if let Some(attributes) = state.attributes(ino) {
        let changed_ns = state.storage.time_ns();
        state.record(Membership::Looks {
            attributes: Attributes { links, changed_ns, ..attributes },
        });
    }
}

/// So many names of a file that was born here are about to be removed here: if these are all that
/// are counted, it is known before whether they are all there are.
///
/// # Errors
/// If that must wait.
pub(super) fn may_remove(state: &mut State, ino: Ino, names: u32) -> Result<()> {
    match is_several(state, ino) {
        true => may_count_with(state, ino, names.saturating_add(1)),
        false => Ok(()),
    }
}

/// A name of a file that was born here is about to be taken away for a member, or by another file
/// of its: if it has others it is counted no more, until it is known what has come of it.
///
/// # Errors
/// If that must wait; [`ErrorKind::BadHandle`] if the directory is here: he has it no more, and it
/// was asked before that.
pub(super) fn is_let_go(
    state: &mut State,
    ino: Ino,
    by: Member,
    (directory, name): (Number, &[u8]),
) -> Result<Outcome> {
    if !is_several(state, ino) {
        return Ok(Outcome::LetGoOf(None, 0, 0));
    }
    // Those in directories that are here are there, whatever is known of others.
    may_count_with(state, ino, state.names.names_here(ino).saturating_add(1))?;
    let now = state.world.now();
    let Some(members) = &state.members else { return Ok(Outcome::LetGoOf(None, 0, 0)) };
    let (which, place) = (members.next_let_go(now), members.place(directory));
    if place.is_some_and(|parent| elsewhere::is_here(state, parent)) {
        return Err(refuse(ErrorKind::BadHandle, name));
    }
    let others = state.names.in_doubt(ino);
    let name = name.to_vec();
    state.record(Membership::LetGo { ino, directory, name: name.clone(), by, which, is: true });
    if let Some(parent) = place.filter(|at| state.names.child_here(*at, &name) == Some(ino)) {
        state.record(Membership::Unnamed { parent, name });
    }
    counts(state, ino, -1);
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    Ok(Outcome::LetGoOf(None, links.saturating_add(others), which))
}

/// It is known what has come of a name that was: whether it has gone. It may be called otherwise by
/// now.
///
/// # Errors
/// If it must wait for that to be counted.
pub fn is_known(state: &mut State, (by, which): Time, gone: bool) -> Result<()> {
    let Some(LetGo { ino, directory, name }) = state.names.let_go_at((by, which)).cloned() else {
        return Ok(());
    };
    if gone {
        is_taken(state, (by, which), ino);
    } else if state.names.inode(ino).is_some() {
        elsewhere::file_is_here(state, ino, b"")?;
        counts(state, ino, 1);
    }
    state.record(Membership::LetGo { ino, directory, name, by, which, is: false });
    has_lost_all(state, ino);
    state.members.iter_mut().for_each(|members| members.go_on());
    Ok(())
}

/// What was let go has gone at this time: at others at which the same name was let go, if there are
/// any, it has not, unless who asked says so.
fn is_taken(state: &mut State, time: Time, ino: Ino) {
    let Some(gone) = state.names.let_go_at(time).filter(|_| state.names.in_doubt(ino) > 1) else {
        return;
    };
    let same = state.names.let_go().filter(|(other, it)| *other != time && *it == gone);
    let same: Vec<Time> = same.map(|(other, _)| other).collect();
    let directory = gone.directory;
    for (by, which) in same {
        let name = Vec::new();
        state.record(Membership::LetGo { ino, directory, name, by, which, is: true });
    }
}

/// A name of a file that was born here is about to be taken by another member's: it is counted no
/// more, until it is known that it has stayed. Where there is a permanent store.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if it has no such name.
pub(super) fn leaves(
    state: &mut State,
    ino: Ino,
    (directory, name): (Number, &[u8]),
) -> Result<()> {
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let has = place.filter(|parent| state.names.child_here(*parent, name) == Some(ino));
    let parent = has.ok_or_else(|| refuse(ErrorKind::BadHandle, name))?;
    state.record(Membership::Leaves { ino, directory, name: name.into(), is: true });
    let (name, time_ns) = (name.to_vec(), state.storage.time_ns());
    state.record(Fact::Removed { parent, name, time_ns });
    Ok(())
}

/// A file is about to get a name in a directory that is here: one there that was to leave is gone.
pub fn comes(state: &mut State, ino: Ino, (parent, name): (Ino, &[u8])) {
    let directory = state.members.as_ref().and_then(|members| members.number(parent));
    if let Some(directory) = directory
        && state.names.is_leaving_as(ino, (directory, name))
    {
        state.record(Membership::Leaves { ino, directory, name: name.into(), is: false });
    }
}

/// It is known whether such a name has stayed: then it counts again. Its directory is here.
///
/// # Errors
/// If it must wait for that.
pub fn has_stayed(state: &mut State, ino: Ino, (directory, name): (Number, &[u8])) -> Result<()> {
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let stays = place.filter(|parent| state.names.child_here(*parent, name) == Some(ino));
    if let Some(parent) = stays {
        elsewhere::file_is_here(state, ino, b"")?;
        state.names.reserve()?;
        state.record(Membership::Unnamed { parent, name: name.into() });
        let (alias, time_ns) = (state.names.next_ino(), state.storage.time_ns());
        let name = name.to_vec();
        state.record(Fact::Linked { ino, alias, parent, name, time_ns });
        owing::owe(state, ino);
    }
    leaves_no_more(state, ino, (directory, name));
    Ok(())
}

/// It is known what has become of such a name.
fn leaves_no_more(state: &mut State, ino: Ino, (directory, name): (Number, &[u8])) {
    state.record(Membership::Leaves { ino, directory, name: name.into(), is: false });
    has_lost_all(state, ino);
    state.members.iter_mut().for_each(|members| members.go_on());
}

/// A file that has no name any more has none here: what it is still called is older. What it is
/// called in a directory that is here it is called, whatever was heard.
fn has_lost_all(state: &mut State, ino: Ino) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    let here = if state.backing.is_none() { state.names.names_here(ino) } else { 0 };
    if links == 0 && here > 0 && !state.names.is_leaving(ino) {
        has_links(state, ino, here);
    } else if links == 0 && !state.names.is_leaving(ino) {
        for (parent, name) in state.names.names_of(ino) {
            state.record(Membership::Unnamed { parent, name });
        }
    }
    state.look_again_at(ino);
}

/// A member says that a file which was born here has lost the name under which it knew it. Whether
/// others are left, and that is to be counted.
pub fn is_lost(state: &mut State, ino: Ino, (by, token): (Member, u64)) -> bool {
    if state.members.as_ref().is_some_and(|members| members.has_heard_lost(ino, by, token)) {
        return true;
    }
    if !is_several(state, ino) {
        return false;
    }
    // Where there is a permanent store, its home has taken it away itself.
    if state.backing.is_none() {
        state.record(Membership::Lost { ino, by, token, counted: false });
    }
    true
}

/// What was lost is counted, once nobody is shown another count.
///
/// # Errors
/// If it must wait for that.
pub fn count_lost(state: &mut State, ino: Ino, (by, token): (Member, u64)) -> Result<()> {
    if let Some(inode) = state.names.inode(ino) {
        if inode.links == 0 && state.names.is_leaving(ino) {
            // One that was let go may have stayed, and then it is that one less.
            return Err(state.fetches.wait());
        }
        elsewhere::file_is_here(state, ino, b"")?;
        counts(state, ino, -1);
        has_lost_all(state, ino);
    }
    state.record(Membership::Lost { ino, by, token, counted: true });
    state.members.iter_mut().for_each(|members| members.go_on());
    Ok(())
}
