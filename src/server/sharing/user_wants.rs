//! What a server that speaks for one user alone may ask of this one: what he may look at, and what
//! he may have changed, by the permission bits of when it is done.
//!
//! Invariant: what comes of it in the permanent store is his there, too ([`wanted`]). Not here:
//! what is heard of such a server (`users`), and what it asks of files' bytes (`far/users`).

use terral_format::ids::{Ino, ROOT, Thing};
use terral_format::local::names::Inode;
use terral_format::wire::attributes::Attributes;
use terral_format::wire::body::Body;
use terral_format::wire::person::Person;
use terral_format::wire::principal::Principal;
use terral_format::wire::status::MemberStatus;
use terral_format::wire::things::{By, Change, Child, Look};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::members::role::NOBODY;
use crate::naming::elsewhere;
use crate::sharing::bodies;

/// `r`, `w` and `x` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// Whether a user may search all that leads to something, as that is now.
///
/// # Errors
/// If that must wait for who has a directory.
fn reaches(state: &mut State, user: &Person, ino: Ino) -> Result<bool> {
    let is_left = |inode: &Inode| {
        let is_his = inode.attributes().uid == user.user;
        !is_his && !inode.is_directory() && state.names.names_of(ino).is_empty()
    };
    // Who has it open says so of its bytes.
    if state.names.inode(ino).is_some_and(|inode| is_left(&inode)) {
        return Ok(false);
    }
    let root = Caller { session: NOBODY, person: Person::default().into() };
    for (parent, _) in state.names.names_of(ino) {
        let mut at = Some(parent);
        while let Some(directory) = at {
            elsewhere::attributes(state, &root, directory)?;
            at = state.names.name_of(directory).filter(|_| directory != ROOT).map(|name| name.0);
        }
    }
    Ok(state.names.may_reach(user, ino))
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Unauthorized, format!("{what}: by root's server only"))
}

/// What a user's server wants to see of a thing, if he may. What it asks of the server itself says
/// nothing of others' files, and begins nothing.
///
/// # Errors
/// [`ErrorKind::Denied`], [`ErrorKind::Unauthorized`].
pub fn may_look(state: &mut State, user: &Person, thing: Thing, look: &mut Look) -> Result<()> {
    let want = match look {
        Look::Server { hasten } => {
            *hasten = false;
            return Ok(());
        }
        Look::Doubts => return Err(refused("what is in doubt")),
        Look::Adopt(..) => return Err(refused("what is in the permanent store")),
        Look::Issue(Principal::User(uid), _) if *uid == user.user => return Ok(()),
        Look::Issue(..) => return Err(refused("a capability for somebody else")),
        Look::Waits | Look::Verify(_) | Look::Revoked | Look::Authorize(_) | Look::Decided(_) => {
            return Ok(());
        }
        Look::Attributes | Look::Safety => 0,
        Look::Name(_) | Look::Step(_) => SEARCH,
        Look::Names(_) | Look::Xattr(_) | Look::XattrNames(_) => READ,
    };
    let inode = bodies::inode_of(state, thing)?;
    let is = inode.attributes();
    // The step to a name shows the directory, too, which who may not search it may look at.
    let want = if matches!(look, Look::XattrNames(_)) { 0 } else { want };
    match user.may(&is, want) && reaches(state, user, inode.ino)? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Denied, format!("{thing:?}"))),
    }
}

/// What a member wants changed, which is one of this server's user's own (`of_ours`), or may be
/// another's, who may change that then.
///
/// # Errors
/// As those of [`may_look`]; [`ErrorKind::Malformed`]; [`ErrorKind::Unauthorized`] for names: only
/// his own servers change those.
pub fn change_of(
    state: &mut State,
    (of_ours, user): (bool, Option<&Person>),
    thing: Thing,
    body: &Body,
) -> Result<By<Change>> {
    let by = By::<Change>::of(body)?;
    if changes_names(&by.what) && !of_ours {
        return Err(refused("names of another user's"));
    }
    if let Some(user) = user {
        may_change(state, user, thing, &by.what)?;
    }
    Ok(by)
}

/// Whether something gets a name by that, or loses one.
fn changes_names(change: &Change) -> bool {
    match change {
        Change::Name(_)
        | Change::Make(..)
        | Change::Remove(_)
        | Change::Unname(_)
        | Change::Move(..)
        | Change::LetGo
        | Change::LetGoOf(..)
        | Change::Swap(..)
        | Change::Link { .. } => true,
        Change::Attributes(_)
        | Change::Xattr { .. }
        | Change::Revoke(_)
        | Change::Logout(_)
        | Change::Container(..)
        | Change::Prepare(..)
        | Change::Commit(_)
        | Change::Return(..)
        | Change::Witness(..)
        | Change::Release(_)
        | Change::Resolve(..) => false,
    }
}

/// What a user's server wants changed, if he may change that.
///
/// # Errors
/// As those of [`may_look`].
fn may_change(state: &mut State, user: &Person, thing: Thing, change: &Change) -> Result<()> {
    let denied = || Error::new(ErrorKind::Denied, format!("{thing:?}"));
    match change {
        Change::Revoke(_) => return Err(refused("revoking")),
        Change::Container(..) => return Err(refused("a container")),
        Change::Resolve(..) => return Err(refused("resolving")),
        Change::Prepare(..)
        | Change::Commit(_)
        | Change::Return(..)
        | Change::Witness(..)
        | Change::Release(_) => {
            let what = "a transaction with what others have, of a user's server";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Change::Logout(_) => return Ok(()),
        Change::Xattr { .. } => {
            let inode = bodies::inode_of(state, thing)?;
            if !user.may(&inode.attributes(), WRITE) {
                return Err(denied());
            }
        }
        // By their owner: looked at as it is done.
        _ => {}
    }
    let ino = bodies::subject_of(state, thing, change)?.ino;
    match reaches(state, user, ino)? {
        true => Ok(()),
        false => Err(denied()),
    }
}

/// What this server says of itself to a user's: no paths of others.
pub fn told(status: &mut MemberStatus) {
    status.drain.failures.clear();
    status.drain.conflicts.clear();
}

/// Names of a directory that he may list, and not search: not what links say.
pub fn listed(user: &Person, directory: &Attributes, names: &mut [Child]) {
    if !user.may(directory, SEARCH) {
        names.iter_mut().for_each(|child| child.text.clear());
    }
}
