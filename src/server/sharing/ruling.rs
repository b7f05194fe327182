//! What the control says to all members, by which all go: who is in, what was revoked, containers,
//! policies, and where new bytes are.
//!
//! Not here: when it is said, and to whom (`shell/links`).

use terral_format::Result;
use terral_format::disk::local::Local;
use terral_format::wire::capability::{Operations, Revocation};
use terral_format::wire::pool::Inherited;
use terral_format::wire::roster::{Roster, Rule};

use crate::core::state::State;
use crate::members::control;
use crate::sharing::{containers, revoking};

/// As the control has it now; nothing if this server is alone.
pub fn said(state: &State) -> Option<Rule> {
    let members = state.members.as_ref()?;
    let (mut roster, control) = (members.roster().clone(), members.control());
    let control = members.may_have_another_control().then_some(control);
    let (containers, quotas, groups) = containers::told(state);
    Some(Rule {
        certificates: std::mem::take(&mut roster.certificates),
        policies: std::mem::take(&mut roster.policies),
        placement: std::mem::take(&mut roster.placement),
        authorities: std::mem::take(&mut roster.authorities),
        answers: std::mem::take(&mut roster.answers),
        revoked: state.authz.all_revoked().collect(),
        roster,
        containers,
        quotas,
        groups,
        control,
    })
}

/// The control of a pool begins with what an earlier one has left.
///
/// # Errors
/// Those of the log.
pub fn inherit(state: &mut State, left: &Inherited) -> Result<()> {
    let Inherited { containers, quotas, groups, rule, epoch } = left.clone();
    containers::heard(state, containers, quotas, groups)?;
    if state.authz.epoch() < epoch {
        // So that no epoch is counted twice.
        let nothing = Revocation::Operations(Operations(0));
        state.log.reserve()?;
        state.record(Local::Revoked { what: nothing, epoch });
    }
    control::inherits(state, rule.policies, rule.placement);
    Ok(())
}

/// The control says so.
///
/// # Errors
/// Those of the log.
pub fn heard(state: &mut State, rule: Rule) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let control = rule.control.unwrap_or(members.root());
    let Rule { roster, certificates, policies, placement, authorities, answers, .. } = rule;
    // Only then does it know of their epoch.
    containers::heard(state, rule.containers, rule.quotas, rule.groups)?;
    revoking::heard(state, rule.revoked)?;
    let roster = Roster { answers, ..roster };
    let roster = Roster { certificates, policies, placement, authorities, ..roster };
    control::heard(state, roster, control);
    containers::publish_if_asked(state);
    Ok(())
}
