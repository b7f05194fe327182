//! Who gets a session, and how many one process may have. Not here: how somebody comes (`door`),
//! and what a session is (`sessions`).

use std::sync::Arc;

use terral_format::disk::local::Local;
use terral_format::ids::SessionSlot;
use terral_format::local::geometry::SESSIONS;
use terral_format::wire::capability::Capability;
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::requests::Session;

use crate::authority::audit::Who;
use crate::core::machine::Process;
use crate::core::state::State;
use crate::members::roles;
use crate::requests::{ending, presenting};

/// Most sessions of one process: one that uses the preload library and the C library has two.
const SESSIONS_PER_PROCESS: usize = 32;

/// Who comes.
pub struct Comer {
    /// The process.
    pub process: Box<dyn Process>,
    /// When it started, in clock ticks since boot.
    pub started_ticks: u64,
    /// Whom it acts as, which it may.
    pub person: Person,
}

/// A process gets a session, through the page that `page` makes for it. Gives its number, and
/// the handle that stands for the capability there.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if this server is of the authority alone, [`ErrorKind::Busy`] if it
/// has not heard who else is in its pool,
/// [`ErrorKind::TooMany`] if it has, or all have, as many as may be,
/// [`ErrorKind::Unauthorized`] if the capability is not good, and those of `page`.
pub fn admit(
    state: &mut State,
    comer: Comer,
    capability: &Capability,
    page: impl FnOnce(SessionSlot, &dyn Process) -> Result<Session>,
) -> Result<(SessionSlot, u32)> {
    let Comer { process, started_ticks, person } = comer;
    let pid = process.pid();
    let members = state.members.as_ref().filter(|members| members.is_of_any_pool());
    let is_own = pid == state.machine.pid();
    if !is_own && members.is_some_and(|members| members.roster().version == 0) {
        let context = "this server has not come into its pool yet: again in a moment";
        return Err(Error::new(ErrorKind::Busy, context));
    }
    if !is_own && roles::is_own_authority(state) {
        let context = "this server says who may what in its pool, and serves no programs: start \
                       them where another server of the pool is";
        return Err(Error::new(ErrorKind::Unsupported, context));
    }
    state.log.reserve()?;
    bound_sessions(state, pid, started_ticks)?;
    let who = Who { pid, user: person.user };
    presenting::verify(state, capability, who, Arc::default())?;
    let session = state.sessions.free_slot()?;
    let page = page(session, &*process)?;
    state.sessions.attach(session, process, page);
    state.record(Local::SessionBegan { session, pid, started_ticks });
    let authority = presenting::present(state, session, capability, person)?;
    state.commit()?;
    Ok((session, authority))
}

/// Refuses a process that has as many sessions as one may have, those not counted that it had
/// before it became another program.
fn bound_sessions(state: &mut State, pid: u32, started_ticks: u64) -> Result<()> {
    let own = state.sessions.of_process(pid, started_ticks);
    if own.len() < SESSIONS_PER_PROCESS {
        return bound_all(state);
    }
    for session in own {
        if !state.machine.has_page(pid, session) {
            ending::end_session(state, session)?;
        }
    }
    let left = state.sessions.of_process(pid, started_ticks).len();
    if left < SESSIONS_PER_PROCESS {
        return bound_all(state);
    }
    let who = state.machine.shown(pid);
    let what = format!("process {who} has {left} sessions and gets no more: it leaks them");
    state.warn(what.clone());
    Err(Error::new(ErrorKind::TooMany, what))
}

/// Says who has most sessions, if all are taken.
fn bound_all(state: &mut State) -> Result<()> {
    let counts = state.sessions.by_process();
    let all: usize = counts.values().sum();
    let Some((pid, most)) = counts.into_iter().max_by_key(|(_, most)| *most) else {
        return Ok(());
    };
    if all < SESSIONS {
        return Ok(());
    }
    let who = state.machine.shown(pid);
    let what = format!("all {SESSIONS} sessions are taken, {most} of them by process {who}");
    state.warn(what.clone());
    Err(Error::new(ErrorKind::TooMany, what))
}
