//! Changes of containers: the control writes one down and tells all members with the roster, and
//! who changes something is answered when all go by it, as who revokes is.
//!
//! Invariants: a change counts as an epoch of revocations, so no member that has not heard of it
//! has its lease renewed, by which who has logged in acts there; programs look at a word of shared
//! memory, which has changed before anybody is answered. Not here: what containers allow
//! (`authority/containers`), and where that is looked at (`requests/contained`).

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::Member;
use terral_format::wire::capability::{Operations, Principal, Revocation, Revoked};
use terral_format::wire::containers::{Container, ContainerName, Group, Quota, Setting};
use terral_format::wire::message::Reply;
use terral_format::wire::things::Change;
use terral_format::{Result, frame};

use crate::authority::audit::{self, Who};
use crate::authority::containers::Changes;
use crate::core::state::State;
use crate::members::{control, placement};
use crate::sharing::{keeping, leasing, revoking};

/// Those of containers.
pub type Quotas = Vec<(ContainerName, Quota)>;

/// So many bytes of containers are said at a time.
const SAID_BYTES: usize = 24 << 10;

/// Changes something, everywhere, for somebody who may `admin` by his capability. Gives who has not
/// heard of it.
///
/// # Errors
/// If who asks must wait; those of
/// [`Containers::altered`](crate::authority::containers::Containers::altered), and of the log:
/// nothing was changed then.
pub fn change(
    state: &mut State,
    who: Who,
    by: Principal,
    setting: Setting,
) -> Result<(u32, Vec<Member>)> {
    match revoking::other_control(state) {
        Some(control) => {
            revoking::at_the_control(state, control, who.user, Change::Container(by, setting))
        }
        None => {
            if !revoking::is_begun(state) {
                keeping::may_begin(state)?;
            }
            revoking::for_all(state, |state| here(state, who, by, &setting))
        }
    }
}

fn here(state: &mut State, who: Who, by: Principal, setting: &Setting) -> Result<u32> {
    let server = Principal::User(state.machine.user());
    let Changes { altered, quota } = state.authz.containers.changes(by, server, setting)?;
    if quota.as_ref().is_some_and(|(_, quota)| *quota != Quota::NONE) {
        // Each server would have a part of it that is as large as root's.
        placement::not_among_users(state, "quotas")?;
    }
    let nothing = Revocation::Operations(Operations(0));
    let Revoked { what, epoch } = state.authz.revocation(nothing)?;
    let now_s = state.world.wall_s();
    let altered_is = altered.iter().map(|altered| audit::container(now_s, who, by, altered));
    let quota_is = quota.iter().map(|quota| audit::bounded(now_s, who, by, quota));
    let lines: String = altered_is.chain(quota_is).collect();
    let altered = altered.into_iter().map(Local::Container);
    let quota = quota.into_iter().map(|(name, quota)| Local::Quota(name, quota));
    let records = altered.chain(quota).chain([Local::Revoked { what, epoch }]).collect();
    // A member that is none does not tell.
    take_over(state, records, |state| drop(control::tell_all(state)))?;
    state.machine.audit(&lines);
    Ok(0)
}

/// The control says that these are all.
///
/// # Errors
/// Those of the log.
pub fn heard(
    state: &mut State,
    told: Vec<Container>,
    quotas: Quotas,
    groups: Vec<Group>,
) -> Result<()> {
    let bounds = state.authz.containers.bounds(quotas).into_iter();
    let altered = state.authz.containers.differences(told).into_iter();
    let bounds = bounds.map(|(name, quota)| Local::Quota(name, quota));
    let groups = (groups != state.authz.containers.groups()).then_some(Local::Groups(groups));
    let records: Vec<Local> = altered.map(Local::Container).chain(bounds).chain(groups).collect();
    if records.is_empty() {
        return Ok(());
    }
    take_over(state, records, |_| ())
}

/// The list of principals says that these are all groups. Whoever has not heard of what that
/// changes has its lease renewed no more, as by any change; nobody is waited for.
///
/// # Errors
/// Those of the log.
pub fn group(state: &mut State, groups: Vec<Group>) -> Result<()> {
    let known = state.authz.containers.groups();
    if groups == known || revoking::other_control(state).is_some() {
        return Ok(());
    }
    let now_s = state.world.wall_s();
    let who = Who { pid: state.machine.pid(), user: state.machine.user() };
    let new = groups.iter().filter(|group| !known.contains(group));
    let gone = known.iter().filter(|old| groups.iter().all(|group| group.name != old.name));
    let new = new.map(|group| audit::grouped(now_s, who, group, true));
    let lines: String =
        new.chain(gone.map(|group| audit::grouped(now_s, who, group, false))).collect();
    let Revoked { what, epoch } = state.authz.revocation(Revocation::Operations(Operations(0)))?;
    let records = vec![Local::Groups(groups), Local::Revoked { what, epoch }];
    take_over(state, records, |state| drop(control::tell_all(state)))?;
    state.machine.audit(&lines);
    Ok(())
}

fn take_over(state: &mut State, records: Vec<Local>, then: impl FnOnce(&mut State)) -> Result<()> {
    let done = revoking::end(state, records, |state| {
        publish_all(state);
        then(state);
    });
    state.storage.memory().containers().fetch_add(1, Ordering::SeqCst);
    done.map(drop)
}

/// What programs may do without asking is as it is now, where that may have changed.
pub fn publish_if_asked(state: &State) {
    if state.quotas.are_on() || state.members.is_some() {
        publish_all(state);
    }
}

/// With quotas names are asked for, and without them not any more: each session finds that in its
/// page.
fn publish_all(state: &State) {
    let until_ns = leasing::until_ns(state);
    let all = state.sessions.newest();
    all.for_each(|(session, handle, _)| state.sessions.publish(session, handle, until_ns));
}

/// A server begins: one before may have died before it had said that something changed.
pub fn begin(state: &State) {
    publish_if_asked(state);
    let word = state.storage.memory().containers();
    if word.load(Ordering::SeqCst) != 0 || !state.authz.containers.are_none() {
        word.fetch_add(1, Ordering::SeqCst);
    }
}

/// Those after a name, as many as are said at a time.
pub fn list(state: &State, after: &str) -> Reply {
    let all = state.authz.containers.all().into_iter();
    let mut left = all.filter(|one| one.name.as_str() > after).peekable();
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(container) = left.peek() {
        bytes += frame::encode(container).map_or(SAID_BYTES, |encoded| encoded.len());
        if bytes > SAID_BYTES && !page.is_empty() {
            break;
        }
        page.extend(left.next().cloned());
    }
    let bounded = if after.is_empty() { state.quotas.shown() } else { Vec::new() };
    Reply::Containers(page, bounded, left.peek().is_none())
}

/// All of them, their quotas, and groups, as the control says them.
pub fn told(state: &State) -> (Vec<Container>, Quotas, Vec<Group>) {
    let containers = &state.authz.containers;
    (containers.all().into_iter().cloned().collect(), containers.quotas(), containers.groups())
}
