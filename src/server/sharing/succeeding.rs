//! The control of a pool is removed by another server, which takes over from it: a person says so
//! there. Who asks waits until the pool's registry has it.
//!
//! Invariant: two do not take over, as one key of the registry says who is the control. Not here:
//! how that is written (`shell/keeping`), and what becomes of what the other had (`control`).

use std::time::Duration;

use terral_format::disk::local::Local;
use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::capability::{Revocation, Revoked};
use terral_format::wire::roster::Rule;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::members::control::{self, UNHEARD};
use crate::members::role::Succession;
use crate::sharing::{keeping, revoking, ruling};

/// Nobody waits longer for it: who asks takes a server for dead after 10 s.
const BOUND: Duration = Duration::from_secs(8);

/// Removes a member; the control of a pool, too.
///
/// # Errors
/// If who asks must wait; those of [`control::remove`]; [`ErrorKind::Busy`] if the control is
/// there; [`ErrorKind::Unanswered`] if the registry has not answered for long.
pub fn remove(state: &mut State, member: Member, verdict: Verdict) -> Result<()> {
    if let Some(done) = is_asked(state, member, verdict) {
        return done;
    }
    keeping::once_kept(state, |state| control::remove(state, member, verdict))
}

/// What is said to who wants the control of a pool removed, or has wanted it; nothing if this is
/// something else.
fn is_asked(state: &mut State, member: Member, verdict: Verdict) -> Option<Result<()>> {
    let now = state.world.now();
    let members = state.members.as_mut()?;
    let (asker, is_other) = (members.asker()?, members.control() != members.me());
    let is_control = is_other && members.control() == member && !members.is_put_out();
    let succession = members.succession()?;
    let waits = match succession {
        Some(asked) if asked.asker == asker => match asked.done.take() {
            Some(done) => {
                *succession = None;
                return Some(done);
            }
            None => now.since(asked.since) < BOUND,
        },
        Some(asked) if now.since(asked.since) < BOUND => true,
        _ if !is_control => return None,
        _ => {
            *succession =
                Some(Succession { asker, since: now, control: member, verdict, done: None });
            true
        }
    };
    if waits {
        return Some(Err(state.fetches.wait()));
    }
    *succession = None;
    let registry = members.pool(now).map(|pool| pool.registry).unwrap_or_default();
    let context = format!(
        "{registry} does not answer: whether this server takes over is known once it does \
         (`terral status`)"
    );
    Some(Err(Error::new(ErrorKind::Unanswered, context)))
}

/// The registry says that this member is the control: it is, and knows all that the one before had
/// written down. Those `gone` are removed; what was handed out before is good no more.
///
/// # Errors
/// Those of the log, and of [`control::take_over`].
pub fn succeed(state: &mut State, written: Rule, gone: &[(Member, Verdict)]) -> Result<()> {
    let before = state.members.as_ref().map(|members| members.control());
    ruling::heard(state, Rule { control: before, ..written })?;
    control::may_take_over(state)?;
    let Revoked { what, epoch } = state.authz.revocation(Revocation::HandedOut)?;
    let record = Local::Revoked { what, epoch: epoch + UNHEARD };
    // In one transaction: else what was handed out might stay good.
    revoking::end(state, vec![record], |state| drop(control::take_over(state, gone))).map(drop)
}

/// The registry says that this other member is the control, and has this of what was decided: so it
/// is here, too, be it that the two have never met.
///
/// # Errors
/// Those of the log; [`ErrorKind::Invalid`] if that is none who may be.
pub fn follow(state: &mut State, written: Rule, control: Member) -> Result<()> {
    ruling::heard(state, Rule { control: Some(control), ..written })?;
    control::follow(state, control)
}
