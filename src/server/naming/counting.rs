//! How many names a file has, where there are several machines: its home counts them, and nobody
//! else. It counts one more in the step that makes the name, which it makes itself. One less it
//! counts as it takes a name away, or before another machine does: that one asks it to let the name
//! go, and if it has others, it is counted no more, until it is known whether it has gone. Of its
//! only name it hears when that has gone. Who has a directory renames in it: that changes no count.
//!
//! Invariants: as long as it is not known whether a name has gone, its bytes stay; where there is a
//! permanent store, no other name of it comes or goes meanwhile. What others have been shown is so.
//! Not here: what a file's home is asked for (`further`).

use std::collections::BTreeMap;

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino, Member, Number, Thing};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change, Outcome};
use terral_format::wire::transactions::OPERATIONS_MAX;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::asking;
use crate::members::requiring::{self, Have};
use crate::members::role::Counted;
use crate::naming::elsewhere;
use crate::naming::names::{Name, Place};

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
    let Some(members) = &state.members else { return Ok(()) };
    let is_leaving = state.backing.is_some() && state.names.is_leaving(ino);
    if is_leaving || members.is_created(ino) {
        // Who has the directory of such a name may wait for what this request has taken.
        return Err(requiring::released(state));
    }
    elsewhere::file_is_here(state, ino, b"")
}

/// A name of a file is about to be removed, or to be taken by something else of this machine: its
/// home lets it go, if that is elsewhere.
///
/// # Errors
/// If it must wait for that; as [`elsewhere::look`]'s.
pub fn may_lose(state: &mut State, caller: &Caller, ino: Ino, place: (Ino, &[u8])) -> Result<()> {
    is_let_go(state, caller, ino, place, None)
}

/// The same; `by`: so that this request can give it another one.
fn is_let_go(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    place: (Ino, &[u8]),
    by: Option<Asker>,
) -> Result<()> {
    if asking::number_of(state, ino).is_none() {
        return if is_several(state, ino) { may_count(state, ino) } else { Ok(()) };
    }
    let Some((thing, work)) = to_let_go(state, caller, ino, place)? else { return Ok(()) };
    is_asked(state, ino, place, by);
    let malformed = |what| Error::new(ErrorKind::Malformed, what);
    let Have::Done(answer) = requiring::need(state, thing, &work)? else {
        return Err(malformed("who has another member's file"));
    };
    match elsewhere::outcome(state, answer) {
        Ok(Outcome::LetGoOf(fingerprint, left)) => {
            state.record(Membership::There { ino, fingerprint });
            let others = names_here(state, ino).saturating_sub(1);
            if left == 0 && others > 0 && must_ask_again(state) {
                return Err(requiring::asks_again(state));
            }
            // This one is taken away yet.
            has_links(state, ino, left.max(others).saturating_add(1));
            Ok(())
        }
        Ok(_) => Err(malformed("what another member says")),
        // It has lost it since that was looked up, or does not know yet if it has another one.
        Err(error) if error.kind == ErrorKind::BadHandle => Err(requiring::anew(state)),
        // What has no name is gone, and this one is on its way to be.
        Err(error) if error.kind == ErrorKind::NotFound && state.backing.is_none() => Ok(()),
        Err(error) => Err(error),
    }
}

/// How the home of another member's file is asked to let a name go; `None`: nobody counts them.
fn to_let_go(
    state: &State,
    caller: &Caller,
    ino: Ino,
    place: (Ino, &[u8]),
) -> Result<Option<(Thing, Work)>> {
    let Some((file, directory, name)) = counted_as(state, ino, place)? else { return Ok(None) };
    if !does(Step::LetGo) {
        return Ok(None);
    }
    let by = By { person: (*caller.person).clone(), what: Change::LetGoOf(directory, name) };
    Ok(Some((Thing::File(file), Work::Change(by.body()?))))
}

/// As what its home knows a name of another member's file; `None`: nobody counts them.
fn counted_as(state: &State, ino: Ino, (parent, name): (Ino, &[u8])) -> Result<Option<Counted>> {
    let Some(number) = asking::number_of(state, ino) else { return Ok(None) };
    let members = state.members.as_ref();
    let is_lost = members.is_some_and(|members| members.is_removed(number.born()));
    if is_lost && state.backing.is_none() {
        return Ok(None);
    }
    let unsaid = || Error::new(ErrorKind::Malformed, "a directory that has no number");
    let directory = members.and_then(|members| members.number(parent)).ok_or_else(unsaid)?;
    Ok(Some((number, directory, name.into())))
}

/// Its home is asked to let this name of another member's file go: whatever comes of that.
fn is_asked(state: &mut State, ino: Ino, place: (Ino, &[u8]), by: Option<Asker>) {
    if let Ok(Some(name)) = counted_as(state, ino, place) {
        state.members.iter_mut().for_each(|members| members.has_let_go(name.clone(), by));
    }
}

/// Its home has said that this is the only name, and there are others here: another request of this
/// server has got them since. If it says so again, there is no more to be known.
fn must_ask_again(state: &mut State) -> bool {
    let members = state.members.as_mut().filter(|_| state.backing.is_none());
    members.is_some_and(|members| members.asker().is_some_and(|asker| members.asks_again(asker)))
}

/// A file of another member is about to lose one name, and to get another one, of which its home
/// hears nothing: but it may have been asked to let one of them go not long ago. If it has not
/// looked yet what has become of that, it hears that the old one is there; and that the other one
/// is about to go, and not the new one.
///
/// # Errors
/// If it must wait for that; as [`elsewhere::look`]'s.
pub(super) fn may_move(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    (from, to): (Place<'_>, Place<'_>),
) -> Result<()> {
    has_kept(state, caller, ino, from)?;
    if has_kept(state, caller, ino, to)? {
        let by = state.members.as_ref().and_then(|members| members.asker());
        is_let_go(state, caller, ino, from, by)?;
        has_links(state, ino, names_here(state, ino).max(1));
    }
    Ok(())
}

/// A name of another member's file that its home was asked to let go is there, or is about to be.
/// Whether it was not counted, and is now.
///
/// # Errors
/// As those of [`may_move`].
pub(super) fn has_kept(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    place: (Ino, &[u8]),
) -> Result<bool> {
    if state.backing.is_some() {
        return Ok(false);
    }
    let Some(is) = counted_as(state, ino, place)? else { return Ok(false) };
    let members = state.members.as_ref();
    if !members.is_some_and(|members| members.was_let_go_of(&is, members.asker())) {
        return Ok(false);
    }
    let (file, directory, name) = is;
    let by = By { person: (*caller.person).clone(), what: Change::Stays(directory, name) };
    match elsewhere::ask_home(state, file, &Work::Change(by.body()?)) {
        Err(error) if error.kind == ErrorKind::NotFound && !state.fetches.is_waiting() => Ok(false),
        done => done.map(|_| true),
    }
}

/// How many names of a file the tables have in directories that are here.
fn names_here(state: &State, ino: Ino) -> u32 {
    let names = state.names.names_of(ino).into_iter();
    names.filter(|(parent, _)| elsewhere::is_here(state, *parent)).count() as u32
}

/// Several names of one thing each are about to go at once, as [`may_lose`] has it of one: their
/// homes are asked at the same time.
///
/// # Errors
/// As those of [`may_lose`].
pub(super) fn may_lose_all(
    state: &mut State,
    caller: &Caller,
    losses: &BTreeMap<Ino, Vec<Name>>,
) -> Result<()> {
    let mut late = Ok(());
    for (ino, names) in losses {
        for (parent, name) in names {
            let Some((thing, work)) = to_let_go(state, caller, *ino, (*parent, name))? else {
                continue;
            };
            is_asked(state, *ino, (*parent, name), None);
            match requiring::need(state, thing, &work) {
                Err(error) if state.fetches.is_waiting() => late = Err(error),
                // It is heard of below.
                _ => {}
            }
        }
    }
    late?;
    let mut names = losses.iter().flat_map(|(ino, names)| names.iter().map(|name| (*ino, name)));
    // Each home says how many are left besides one, also if several go.
    names.try_for_each(|(ino, (parent, name))| may_lose(state, caller, ino, (*parent, name)))
}

/// What another member's file is called here it is counted as, at least: so it loses what it loses
/// and no more, whatever was heard of it before.
pub(super) fn has_all_its_names(state: &mut State, ino: Ino) {
    if asking::number_of(state, ino).is_none() {
        return;
    }
    let names = names_here(state, ino);
    if state.attributes(ino).is_some_and(|is| is.links < names) {
        has_links(state, ino, names);
    }
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
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    has_links(state, ino, links.saturating_add(names));
    Ok(())
}

/// It does not come to be: they are not.
pub(super) fn never_got(state: &mut State, ino: Ino, names: u32) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    has_links(state, ino, links.saturating_sub(names));
    has_lost_all(state, ino);
}

/// What a file looks like with another count of names.
fn has_links(state: &mut State, ino: Ino, links: u32) {
    if let Some(attributes) = state.attributes(ino) {
        let changed_ns = state.storage.time_ns();
        state.record(Membership::Looks {
            attributes: Attributes { links, changed_ns, ..attributes },
        });
    }
}

/// A name of a file that was born here is about to be taken by another member's: it is counted no
/// more, until it is known that it has stayed.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if it has no such name.
pub fn leaves(state: &mut State, ino: Ino, (directory, name): (Number, &[u8])) -> Result<()> {
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let has = place.filter(|parent| state.names.child_here(*parent, name) == Some(ino));
    if has.is_none() && state.backing.is_some() {
        return Err(refuse(ErrorKind::BadHandle, name));
    }
    state.record(Membership::Leaves { ino, directory, name: name.into(), is: true });
    match has {
        Some(parent) => {
            let (name, time_ns) = (name.to_vec(), state.storage.time_ns());
            state.record(Fact::Removed { parent, name, time_ns });
        }
        None => {
            let links = state.names.inode(ino).map_or(0, |inode| inode.links);
            has_links(state, ino, links.saturating_sub(1));
        }
    }
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

/// A file that has no name any more has none here: what it is still called is older.
fn has_lost_all(state: &mut State, ino: Ino) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    if links == 0 && !state.names.is_leaving(ino) {
        for (parent, name) in state.names.names_of(ino) {
            state.record(Membership::Unnamed { parent, name });
        }
    }
    state.look_again_at(ino);
}

/// Who has the directory says that a name of a file which was born here, and was let go, is one.
///
/// # Errors
/// If it must wait; [`ErrorKind::NotFound`] if it was not, or is counted already.
pub fn stays(state: &mut State, ino: Ino, name: (Number, &[u8])) -> Result<Outcome> {
    if !state.names.is_leaving_as(ino, name) {
        return Err(refuse(ErrorKind::NotFound, name.1));
    }
    elsewhere::file_is_here(state, ino, b"")?;
    counts_again(state, ino, name);
    Ok(Outcome::Done(None))
}

fn counts_again(state: &mut State, ino: Ino, name: (Number, &[u8])) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    has_links(state, ino, links.saturating_add(1));
    leaves_no_more(state, ino, name);
}

/// A directory has come here, and something has this name in it: if that was to leave, it has
/// stayed, and is counted before anything else becomes of it. Where there is a permanent store
/// nothing does before that is known.
pub fn has_come(state: &mut State, ino: Ino, (parent, name): (Ino, &[u8])) {
    let directory = state.members.as_ref().and_then(|members| members.number(parent));
    if let Some(directory) = directory.filter(|_| state.backing.is_none())
        && state.names.is_leaving_as(ino, (directory, name))
    {
        counts_again(state, ino, (directory, name));
    }
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
    if state.names.inode(ino).is_some() {
        elsewhere::file_is_here(state, ino, b"")?;
        let links = state.names.inode(ino).map_or(0, |inode| inode.links);
        has_links(state, ino, links.saturating_sub(1));
        has_lost_all(state, ino);
    }
    state.record(Membership::Lost { ino, by, token, counted: true });
    state.members.iter_mut().for_each(|members| members.go_on());
    Ok(())
}
