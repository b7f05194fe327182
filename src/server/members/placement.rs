//! Which members keep bytes of new files, and where those of some paths are created. The control
//! keeps it, and all members go by what it says.
//!
//! Invariant: somebody keeps bytes, as far as the control has a say in it: the last one cannot be
//! told not to. Not here: what it means for a file that is created (`naming/placement`).

use terral_format::ids::Member;
use terral_format::wire::placement::{Layout, LayoutPolicy, Placement};
use terral_format::wire::roster::POLICIES_MAX;
use terral_format::{Error, ErrorKind, Result};

use super::{control, policies, roles};
use crate::core::state::State;

/// Members that are in and keep bytes of new files of who asks here, in order; none if this server
/// is alone.
pub fn storage_servers(state: &State) -> Vec<Member> {
    let Some(members) = &state.members else { return Vec::new() };
    let roster = members.roster();
    let all = roster.seats.iter().map(|seat| seat.member);
    let keeps = |it: &Member| roster.is_in(*it) && roster.placement.stores(*it);
    all.filter(|it| keeps(it) && members.is_ours(*it)).collect()
}

/// Refuses what machines do for each other where each user has a server, which does it for nobody
/// else.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn not_among_users(state: &State, what: &str) -> Result<()> {
    let context = || format!("{what}: not where each user has a server (`terral serve --users`)");
    match state.owner() {
        Some(_) => Err(Error::new(ErrorKind::Unsupported, context())),
        None => Ok(()),
    }
}

/// A member keeps bytes of new files from now on, or does not; from the first time that this is
/// said of one, none does that comes later and of which it is not said.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, or nobody would keep any;
/// [`ErrorKind::NotFound`] if there is no such member; those of [`not_among_users`].
pub fn set_role(state: &mut State, member: Member, stores: bool) -> Result<()> {
    not_among_users(state, "roles")?;
    let mut roster = control::own_roster(state)?;
    if !roster.is_in(member) {
        let context = format!("{member}: no server of this run");
        return Err(Error::new(ErrorKind::NotFound, context));
    }
    if roles::is_authority(&roster, member) {
        let context = format!("{member} is of the pool's authority, and keeps no files");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let known = roster.placement.storage.is_some();
    if known && roster.placement.stores(member) == stores {
        return Ok(());
    }
    let mut storage = storage_servers(state);
    storage.retain(|it| *it != member);
    if stores {
        storage.push(member);
        storage.sort_unstable();
    }
    if storage.is_empty() {
        let context = format!("{member} is the last server that keeps files: name another one");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    roster.placement.storage = Some(storage);
    roster.version += 1;
    control::seat(state, roster);
    Ok(())
}

/// New files whose paths a pattern matches are created so from now on; `None`: nothing is said of
/// them any more.
///
/// # Errors
/// As those of [`policies::set`]; [`ErrorKind::NotFound`] if there is no such member, too, and
/// [`ErrorKind::Invalid`] if it keeps no bytes; [`ErrorKind::Unsupported`] for files that are
/// striped where they are brought to a permanent directory; those of [`not_among_users`].
pub fn set_layout(state: &mut State, pattern: &str, layout: Option<Layout>) -> Result<()> {
    if layout.is_some() {
        not_among_users(state, "layouts")?;
    }
    let mut roster = control::own_roster(state)?;
    if let Some(Layout::One(member)) = layout {
        let refuse = |kind, why: &str| Err(Error::new(kind, format!("{member}: {why}")));
        if !roster.is_in(member) {
            return refuse(ErrorKind::Invalid, "no server of this run");
        }
        if !roster.placement.stores(member) {
            return refuse(ErrorKind::Invalid, "it has not the role storage");
        }
    }
    if matches!(layout, Some(Layout::Stripe { .. })) && state.backing.is_some() {
        let context = "files are brought to the permanent directory whole, and not striped before";
        return Err(Error::new(ErrorKind::Unsupported, context));
    }
    let all = &mut roster.placement.layouts;
    let before = all.len();
    all.retain(|policy| policy.pattern != pattern);
    match layout {
        Some(layout) => {
            policies::check(pattern)?;
            if all.len() >= POLICIES_MAX {
                let context = format!("policies, more than {POLICIES_MAX}");
                return Err(Error::new(ErrorKind::TooMany, context));
            }
            all.push(LayoutPolicy { pattern: pattern.to_owned(), layout });
        }
        None if all.len() == before => {
            let context = format!("{pattern}: no such policy");
            return Err(Error::new(ErrorKind::NotFound, context));
        }
        None => {}
    }
    roster.version += 1;
    control::seat(state, roster);
    Ok(())
}

/// Whether all new files of a member's programs are created there.
pub fn is_usual(placement: &Placement, member: Member) -> bool {
    placement.layouts.is_empty() && placement.stores(member)
}

/// Where a new file of this path is to be created, as patterns say.
pub fn layout_of(state: &State, path: &[u8]) -> Layout {
    let members = state.members.iter();
    let layouts = members.flat_map(|members| &members.roster().placement.layouts);
    let path = String::from_utf8_lossy(path);
    let found = layouts.rev().find(|policy| policies::matches(&policy.pattern, &path));
    found.map_or(Layout::Here, |policy| policy.layout)
}
