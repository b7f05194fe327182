//! Whose server adopts what only the permanent store has: what is in directories of root's, where
//! root's server looks, its owner's does, as he; what is his in a user's own directories, his. What
//! another owns there nobody does. So all that comes to be known has its home where it can be read
//! and brought with its owner's rights, and the kernel looks at them.
//!
//! Invariant: root's server takes nothing of what is another's but whose it is, from the store
//! itself; what his server says of it is believed of that name alone. Not here: what a user's
//! server does that is asked (`sharing/adopting`), and who starts one that has not come
//! (`sharing/starting`).

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number, ROOT};
use terral_format::local::names::flag;
use terral_format::wire::attributes::{Attributes, Kind};
use terral_format::wire::starting::Needed;
use terral_format::wire::things::{Child, Look, Outcome};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Found;

use crate::authority::caller::Caller;
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::naming::names::Place;
use crate::naming::{elsewhere, permitting};

/// `r`, `w` and `x` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// Who adopts something.
pub(super) enum Whose {
    /// This server.
    Ours,
    /// Another one, which has: it looks so, and is that.
    Theirs(Attributes, Child),
}

/// Whether something was a user's whose server has lost its memory, and is a member no more, and
/// none of his goes on with what that decided.
pub fn is_orphaned(state: &State, ino: Ino) -> bool {
    let Some(members) = state.members.as_ref().filter(|_| state.owner() == Some(0)) else {
        return false;
    };
    members.number(ino).is_some_and(|number| members.is_orphaned(number.born()))
}

/// Whose something is that was found in the store, in a directory that is here.
///
/// # Errors
/// If it must wait for its owner's server; what that one says; [`ErrorKind::Denied`] if nobody may
/// adopt it.
pub(super) fn whose(
    state: &mut State,
    caller: &Caller,
    (directory, name): Place<'_>,
    found: &Found,
) -> Result<Whose> {
    match (state.owner().filter(|_| state.is_among_users()), found.attributes.uid) {
        (None, _) => Ok(Whose::Ours),
        (Some(owner), is) if owner == is => {
            permitting::permit_names_in(state, directory, name).map(|()| Whose::Ours)
        }
        (Some(0), _) => theirs(state, caller, (directory, name), found),
        // His rights are not those of whose it is.
        (Some(_), _) => Err(refuse(ErrorKind::Denied, name)),
    }
}

/// Whether somebody may do anything with what was found, but to look that it is there: nobody's
/// server is started for less.
fn may_use(caller: &Caller, found: &Found) -> bool {
    let is = &found.attributes;
    let uses = match is.kind {
        Kind::Directory => [READ, SEARCH],
        Kind::File => [READ, WRITE],
        // The bits of a link say nothing, and whether it is followed is not known here.
        _ => return false,
    };
    uses.iter().any(|want| caller.person.may(is, *want))
}

/// Who asks must wait until a server of this user is there, which is started for him; or why it is
/// not.
fn awaits_server(state: &mut State, caller: &Caller, owner: u32) -> Error {
    let (now, needed) = (state.world.now(), Needed { owner, asker: caller.person.user });
    let mut members = state.members.iter_mut();
    let awaits = members.try_for_each(|members| members.awaits_server(needed, now));
    awaits.err().unwrap_or_else(|| state.fetches.wait())
}

/// Has the server of its owner adopt it, which is started if it is not there. Who asks may search
/// what leads to it: that was looked at on the way here.
fn theirs(
    state: &mut State,
    caller: &Caller,
    (directory, name): Place<'_>,
    found: &Found,
) -> Result<Whose> {
    let owner = found.attributes.uid;
    let members = state.members.as_ref();
    let server = members.and_then(|members| members.server_of(owner));
    let may = may_use(caller, found);
    // One that is in and away is asked all the same, by who may have none started.
    let there = |is: &Member| !may || members.is_some_and(|members| members.is_connected(*is));
    let Some(server) = server.filter(there) else {
        if !may {
            return Err(refuse(ErrorKind::Denied, name));
        }
        return Err(awaits_server(state, caller, owner));
    };
    let members = state.members.as_ref();
    let user = members.and_then(|members| members.user_of(server)).cloned().unwrap_or_default();
    // He is told no names that he may not come to by himself.
    if !state.names.may_search(&user, directory) {
        return Err(refuse(ErrorKind::Denied, name));
    }
    let malformed = || Error::new(ErrorKind::Malformed, "what a user's server says of a name");
    let way = if directory == ROOT { Vec::new() } else { elsewhere::way_to(state, directory)? };
    let asked = Number::new(server, 0).ok_or_else(malformed)?;
    let told = elsewhere::told_of(state, caller, asked, Look::Adopt(way, name.into()));
    let is_out = told.is_err() && state.members.as_ref().is_some_and(|it| !it.is_in(server));
    if is_out && !state.fetches.is_waiting() {
        // It has died with its memory as it was asked: another one comes.
        return Err(awaits_server(state, caller, owner));
    }
    match told.map_err(not_new)? {
        Outcome::Step(looks, Some(child)) => {
            let members = state.members.as_ref();
            let known = members.and_then(|members| members.place(child.number));
            let known = known.and_then(|ino| state.names.inode(ino));
            // So that no directory is in two places, nor anything two things.
            let is_free = known.is_none_or(|inode| {
                inode.kind == child.kind && !(inode.is_directory() && inode.is(flag::NAMED))
            });
            let is_his = members.is_some_and(|members| members.may_say(server, child.number));
            let is_his = is_his && child.number.counted() != 0;
            match is_his && is_free && child.name == name {
                true => Ok(Whose::Theirs(looks, child)),
                false => Err(malformed()),
            }
        }
        _ => Err(malformed()),
    }
}

/// Who does not know what has a name puts nothing in its place.
fn not_new(error: Error) -> Error {
    let is_away = error.kind == ErrorKind::Backing;
    if is_away { Error { kind: ErrorKind::System, ..error } } else { error }
}

/// What another one has adopted has its name here.
///
/// # Errors
/// If there is no room for it.
pub(super) fn is_theirs(
    state: &mut State,
    parent: Ino,
    (looks, child): (Attributes, &Child),
) -> Result<Ino> {
    let ino = elsewhere::place(state, child)?;
    let name = child.name.clone();
    if state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED)) {
        elsewhere::has_name_too(state, (parent, &name), ino)?;
    } else {
        state.record(Membership::Named { ino, parent, name });
    }
    elsewhere::is_seen(state, ino, looks);
    elsewhere::has_come(state, (ino, parent));
    Ok(ino)
}
