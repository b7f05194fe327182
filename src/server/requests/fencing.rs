//! Requests about named locks: tokens for those who have one, and files that are written with a
//! token only. A named lock is a lock of the whole of a file that stands for it; all about it is
//! done where that file was born, as all about a fenced file is where that was.
//!
//! Not here: the locks themselves (`locks`), and how writers are kept out (`storage/fencing`).

use std::time::Duration;

use terral_format::disk::local::Local;
use terral_format::ids::{Ino, SessionSlot};
use terral_format::local::names::flag;
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::Handle;
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::{FarOwner, LockKind, LockOwner};
use terral_format::wire::message::{FileRef, Kind};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::far::asking::{self, Step};
use crate::far::committing;
use crate::far::role::Behind;
use crate::storage::{attaching, fencing, recalling};

/// The shortest and the longest lease.
const LEASES_MS: (u32, u32) = (100, 3_600_000);

/// Something that a session says of an open file.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if it is not open for that; [`ErrorKind::Stale`] for who has no lock,
/// or too low a token; if he must wait.
pub fn ask(state: &mut State, session: SessionSlot, of: Handle, what: Fencing) -> Result<Fenced> {
    let bad = || Error::new(ErrorKind::BadHandle, "file that is to be fenced");
    let open = state.descriptions.get(of.description).filter(|open| open.nonce == of.nonce);
    let (ino, rights) = open.map(|open| (open.ino, u64::from(open.access))).ok_or_else(bad)?;
    let fences = matches!(what, Fencing::Fence { .. });
    if fences && rights & access::WRITE == 0 {
        return Err(bad());
    }
    let owner = state.sessions.process(session).ok_or_else(bad)?;
    let Some(file) = asking::number_of(state, ino) else { return here(state, ino, owner, what) };
    if fences {
        // What was written here without the token comes before it, or is refused.
        committing::settle(state, file)?;
    }
    let me = state.members.as_ref().map(|members| members.me());
    let far = me.and_then(|me| FarOwner::of(me, owner)).ok_or_else(bad)?;
    let act = Act::Fencing(far, what);
    match asking::ask(state, (file, act), Step::Fencing, |_| Behind::Nothing)?.0 {
        Done::Fenced(fenced) => Ok(fenced),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member says of a named lock")),
    }
}

/// The same of what was born here, for somebody on another machine.
///
/// # Errors
/// As those of [`ask`]; [`ErrorKind::NotFound`] if it is no more.
pub fn ask_for(state: &mut State, ino: Ino, owner: FarOwner, what: Fencing) -> Result<Fenced> {
    here(state, ino, LockOwner::Far(owner), what)
}

fn here(state: &mut State, ino: Ino, owner: LockOwner, what: Fencing) -> Result<Fenced> {
    let file = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    if file.is_none_or(|inode| inode.is(flag::FAR)) {
        return Err(Error::new(ErrorKind::NotFound, format!("file {ino}")));
    }
    match what {
        Fencing::Take { lease_ms } => take(state, (ino, owner), lease_ms),
        Fencing::Renew { token, lease_ms } => renew(state, (ino, owner), token, lease_ms),
        Fencing::Fence { token } => fence(state, ino, token),
    }
}

fn lost(ino: Ino) -> Error {
    Error::new(ErrorKind::Stale, format!("named lock (file {ino})"))
}

/// Who has a lock says so. What he has.
fn holds(state: &mut State, (ino, owner): (Ino, LockOwner), lease_ms: u32) -> Result<LockKind> {
    let kind = state.locks.has_whole(ino, owner).ok_or_else(|| lost(ino))?;
    let lease = Duration::from_millis(lease_ms.clamp(LEASES_MS.0, LEASES_MS.1).into());
    let owners = state.locks.owners(ino);
    state.fences.keep(ino, |of| owners.contains(&of));
    state.fences.has_until(ino, owner, state.world.now() + lease);
    Ok(kind)
}

/// Who has it alone gets a token greater than all before it: by the time, if that is greater, so
/// that it is also for a lock of the same name in a later run.
fn take(state: &mut State, of: (Ino, LockOwner), lease_ms: u32) -> Result<Fenced> {
    let (ino, kind) = (of.0, holds(state, of, lease_ms)?);
    let known = state.fences.token(ino);
    if kind == LockKind::Exclusive || known == 0 {
        state.log.reserve()?;
        let token = (known + 1).max(state.storage.time_ns());
        state.record(Local::Token { ino, token });
    }
    Ok(said(state, ino))
}

fn renew(state: &mut State, of: (Ino, LockOwner), token: u64, lease_ms: u32) -> Result<Fenced> {
    let ino = of.0;
    if state.fences.token(ino) != token {
        return Err(lost(ino));
    }
    holds(state, of, lease_ms)?;
    Ok(said(state, ino))
}

fn said(state: &State, ino: Ino) -> Fenced {
    let wanted = state.locks.is_wanted(ino, state.world.now());
    Fenced { token: state.fences.token(ino), wanted }
}

/// A file is written with this token or a greater one from now on.
fn fence(state: &mut State, ino: Ino, token: u64) -> Result<Fenced> {
    if token == 0 {
        return Err(Error::new(ErrorKind::Invalid, "token of a named lock"));
    }
    state.fences.permit(ino, token)?;
    let slot = attaching::attach(state, ino)?;
    if state.fences.fence(ino) < token {
        state.log.reserve()?;
        let file = FileRef { ino, slot };
        recalling::bring_all(state, file)?;
        state.far.offers.forget_all(ino);
        fencing::fence(state, file, token)?;
    }
    Ok(Fenced { token, wanted: false })
}
