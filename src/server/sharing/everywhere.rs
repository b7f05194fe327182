//! How all servers of a partition are: each says it of itself, to whoever asks any of them.
//!
//! Invariant: who does not answer soon is said not to, and holds up nobody for longer (how long a
//! question waits: `shell/door`). Not here: what a server says of itself alone (`requests/status`).

use terral_format::ids::{Member, Number};
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::wire::status::{MemberAnswer, MemberStatus};
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::{committing, lent};
use crate::naming::elsewhere;

/// Of what goes wrong a member tells others so much.
const FIRST: usize = 16;

/// How many client processes there are. What a member does for others it is no program for; a
/// server that is alone does nothing for others.
pub fn programs(state: &State) -> u32 {
    let own = state.members.is_some().then(|| state.machine.pid());
    let others = state.sessions.clients().filter(|(_, client)| Some(client.process.pid()) != own);
    others.count() as u32
}

/// All that is owed is to be brought now, also what others have of this server's, and of what is
/// open.
pub fn hasten(state: &mut State) {
    lent::bring_all_back(state);
    committing::all_go(state);
    owing::hurry(state);
}

/// How this server is, after it was hastened or not.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is alone.
pub fn here(state: &mut State, hastens: bool) -> Result<MemberStatus> {
    if hastens {
        hasten(state);
    }
    let alone = || Error::new(ErrorKind::Invalid, "this server is alone");
    let (lent, borrowed) = state.members.as_ref().ok_or_else(alone)?.loans();
    let mut drain = owing::drain_status(state);
    drain.failures.truncate(FIRST);
    drain.conflicts.truncate(FIRST);
    Ok(MemberStatus {
        host: state.machine.name(),
        pid: state.machine.pid(),
        memory_bound_bytes: u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64,
        memory_used_bytes: state.storage.used_bytes(),
        programs: programs(state),
        lent,
        borrowed,
        drain,
    })
}

/// How all members are that are in, this one among them; nothing if this server is alone.
///
/// # Errors
/// If who asks must wait.
pub fn all(state: &mut State, caller: &Caller, hastens: bool) -> Result<Vec<MemberAnswer>> {
    let Some(members) = &state.members else { return Ok(Vec::new()) };
    let me = members.me();
    let mut all = members.others();
    all.insert(me);
    let (mut answers, mut late) = (Vec::new(), None);
    for member in all {
        let status = match member == me {
            true => Some(here(state, hastens)?),
            false => match asked(state, caller, member, hastens) {
                // All are asked before any is waited for.
                Err(error) if state.fetches.is_waiting() => {
                    late = Some(error);
                    None
                }
                answer => answer.ok().flatten(),
            },
        };
        answers.push(MemberAnswer { member, status });
    }
    late.map_or(Ok(answers), Err)
}

/// What another member says; `None` if there is no connection.
fn asked(
    state: &mut State,
    caller: &Caller,
    member: Member,
    hasten: bool,
) -> Result<Option<MemberStatus>> {
    let members = state.members.as_ref();
    let is_connected = members.is_some_and(|members| members.is_connected(member));
    // It is decided by that member, and nothing has it.
    let Some(its) = Number::new(member, 0).filter(|_| is_connected) else { return Ok(None) };
    match elsewhere::told_of(state, caller, its, Look::Server { hasten })? {
        Outcome::Server(status) => Ok(Some(*status)),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member says of itself")),
    }
}
