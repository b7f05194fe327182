//! Requests for update ids, and for writes as long as a file has one. All about them is done where
//! the file was born, as it is known there alone who writes to it.
//!
//! Not here: how that is known (`storage/updating`).

use terral_format::ids::{Ino, Member, SessionSlot};
use terral_format::local::names::flag;
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::Handle;
use terral_format::wire::message::{FileRef, Kind};
use terral_format::wire::updates::{Attempt, Update};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::far::asking::{self, Step};
use crate::far::committing;
use crate::far::role::Behind;
use crate::storage::updating::Condition;
use crate::storage::{attaching, recalling, updating};

type Asked<'a> = (Update, &'a [u8]);

/// Something that a session asks of an open file.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if it is not open for that; [`ErrorKind::Changed`] if it has another
/// update id; if he must wait.
pub fn ask(state: &mut State, who: &Caller, of: Handle, (what, records): Asked<'_>) -> Result<u64> {
    let bad = || Error::new(ErrorKind::BadHandle, "file that is to be updated");
    let open = state.descriptions.get(of.description).filter(|open| open.nonce == of.nonce);
    let (ino, rights) = open.map(|open| (open.ino, u64::from(open.access))).ok_or_else(bad)?;
    let need = if what == Update::Look { access::READ } else { access::WRITE };
    if rights & need == 0 {
        return Err(bad());
    }
    let me = state.members.as_ref().map_or(Member::LEAST, |members| members.me());
    let process = state.sessions.process_of(who.session).ok_or_else(bad)?;
    let attempt = Attempt::of(me, state.asker.ok_or_else(bad)?, process, what);
    let Some(file) = asking::number_of(state, ino) else {
        return here(state, (who.session, ino), attempt, (what, records));
    };
    // What was written here before comes before it.
    committing::settle(state, file)?;
    let act = Act::Update(attempt, what);
    let behind = |_: &mut State| match what {
        Update::Look => Behind::Nothing,
        Update::Write { .. } => Behind::Bytes(records.to_vec()),
    };
    match asking::ask(state, (file, act), Step::Update, behind)?.0 {
        Done::Updated(id) => Ok(id),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member says of an update")),
    }
}

/// The same of what was born here, for somebody on another machine.
///
/// # Errors
/// As those of [`ask`]; [`ErrorKind::NotFound`] if it is no more.
pub fn ask_for(
    state: &mut State,
    of: (SessionSlot, Ino),
    attempt: Attempt,
    asked: Asked<'_>,
) -> Result<u64> {
    here(state, of, attempt, asked)
}

fn here(
    state: &mut State,
    (session, ino): (SessionSlot, Ino),
    attempt: Attempt,
    (what, records): Asked<'_>,
) -> Result<u64> {
    let file = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    if file.is_none_or(|inode| inode.is(flag::FAR)) {
        return Err(Error::new(ErrorKind::NotFound, format!("file {ino}")));
    }
    if let Update::Write { token, .. } = what {
        state.fences.permit(ino, token)?;
    }
    let slot = attaching::attach(state, ino)?;
    let file = FileRef { ino, slot };
    recalling::bring_all(state, file)?;
    state.far.offers.forget_all(ino);
    match what {
        Update::Look => updating::look(state, file),
        Update::Write { seen, .. } => {
            updating::write(state, session, (file, Condition { seen, attempt }), records)
        }
    }
}
