//! Who has become the control, as other servers say. One of a pool has that from the registry, and
//! from who has taken over. A user's server has no registry: it believes every member that is
//! trusted with all, whoever that says is the control.
//!
//! Invariants: no user's server is believed, nor that one is the control; what is older than what
//! is known changes nothing. Not here: who says it to whom (`sharing/guiding`).

use terral_format::ids::Member;
use terral_format::wire::roster::{Roster, Rule};

use super::roles;
use crate::core::state::State;

/// Whether this is to be believed of a member that is not the control, as far as is known here: it
/// has become that, or, to a user's server, knows who has.
pub fn is_taken_over(state: &State, by: Member, rule: &Rule) -> bool {
    let Some(members) = &state.members else { return false };
    let roster = members.roster();
    // Of whom nothing is known, nothing is believed.
    let is_known = roster.is_in(by) && roster.certificate(by).is_some();
    let is_newer = rule.roster.version > roster.version;
    if members.control() == by || !is_known || !is_newer || !roles::is_believed(roster, by) {
        return false;
    }
    match members.is_of_any_pool() {
        true => rule.control == Some(by),
        false => members.is_users() && says_who(rule),
    }
}

/// Whether who it says is the control may be it, as it says itself.
fn says_who(rule: &Rule) -> bool {
    let (certificates, authorities) = (rule.certificates.clone(), rule.authorities.clone());
    let roster = Roster { certificates, authorities, ..rule.roster.clone() };
    rule.control.is_some_and(|control| {
        let is_known = roster.is_in(control) && roster.certificate(control).is_some();
        is_known && roles::is_believed(&roster, control)
    })
}
