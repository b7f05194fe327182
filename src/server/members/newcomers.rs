//! Of the control: users' servers that come in at the word of a member that is trusted with all,
//! and answers for them from then on.
//!
//! Invariants: who asks again by the same key is the same member; a number, a life and a place are
//! taken once for it. A number of a user has one login name in the partition. Not here: who asks
//! (`sharing/newcomers`), and for whom a server speaks (`certifying`).

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::Member;
use terral_format::wire::answering::{Answers, Newcomer};
use terral_format::wire::roster::{Certificate, Invitation, Key, Roster};
use terral_format::{Error, ErrorKind, Result};
use terral_network::tcp::public_half;

use super::certifying;
use super::control::{self, Comes, MEMBERS_MAX, own_roster};
use crate::core::state::State;

/// The last numbers are for members that are trusted with all: who throws away his memory on all
/// machines keeps no machine out.
const ROOTS: usize = 64;
/// So many members of a pool are in when another user's server is let in: each that comes is told
/// to all, and says so to all.
const IN_MAX: usize = 128;
/// So many servers of one user for which one member answers may have lost their memory, or run.
pub const LIVES_MAX: usize = 5;
/// And so many may have left in order.
const LEFT_MAX: usize = 10;

fn invalid(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, context)
}

fn too_many(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::TooMany, context)
}

/// Lets in a server of this user, who shows the secret half of this key, at the word of `by`.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, `by` may answer for nobody, the key is
/// another's, or the user's number is another's on another machine; [`ErrorKind::Exists`] if that
/// server was removed; [`ErrorKind::TooMany`] if there is no place; [`ErrorKind::Busy`] as
/// [`control::let_in`].
pub fn let_in(state: &mut State, by: Member, whom: &Newcomer, key: Key) -> Result<Invitation> {
    let roster = own_roster(state)?;
    must_be_sound(whom)?;
    if !roster.is_in(by) || roster.is_users(by) {
        return Err(invalid(format!("{by} answers for no user's server")));
    }
    if let Some(known) = known(state, by, whom, key)? {
        // Groups may have been taken from him since it was asked first.
        certifying::speaks_for(state, by, whom.user.clone())?;
        return Ok(known);
    }
    let is_of_pool = state.members.as_ref().is_some_and(|members| members.is_of_any_pool());
    has_place(&roster, is_of_pool)?;
    has_lives(&roster, by, whom.user.user)?;
    has_one_name(&roster, whom)?;
    let user = Some((whom.user.clone(), by, whom.login.clone()));
    control::come(state, roster, Comes { key, role: None, user })
}

/// An invitation by this server, whoever is the control as it is used: who asks no registry hears
/// that here.
///
/// # Errors
/// [`ErrorKind::Busy`] if this server is not reachable yet.
pub fn by_this(state: &State, by_control: Invitation) -> Result<Invitation> {
    let members = state.members.as_ref();
    let own = members.and_then(|members| members.roster().seat(members.me()).cloned());
    let own = own.filter(|own| !own.addresses.is_empty()).zip(members);
    let late = || Error::new(ErrorKind::Busy, "the server does not listen yet: try again");
    let (own, members) = own.ok_or_else(late)?;
    let Invitation { root, control, .. } = by_control;
    let (root, key) = (root.or(Some(control)), public_half(&members.partition().secret));
    Ok(Invitation { root, control: own, key, ..by_control })
}

/// Refuses whom no server speaks for.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub fn must_be_sound(whom: &Newcomer) -> Result<()> {
    let context = "a server of a user: not of root, nor of who is in too many groups, or has no \
                   login name that can be said";
    whom.is_sound().then_some(()).ok_or_else(|| invalid(context))
}

/// Who has this key, if anybody has: nobody is let in by that.
///
/// # Errors
/// As those of [`let_in`] for who is known.
pub fn known(state: &State, by: Member, whom: &Newcomer, key: Key) -> Result<Option<Invitation>> {
    let roster = own_roster(state)?;
    let Some(known) = roster.certificates.iter().find(|it| it.key == key) else {
        return Ok(None);
    };
    let member = known.member;
    let user = known.user.as_ref().map(|user| user.user);
    if user != Some(whom.user.user) || roster.answers_for(member) != Some(by) {
        return Err(invalid("another server has this key"));
    }
    match roster.seat(member).map(|seat| seat.standing) {
        Some(Standing::In(server)) => control::invitation(state, (member, server)).map(Some),
        _ => {
            let context = format!("{member} was removed: another one comes by another key");
            Err(Error::new(ErrorKind::Exists, context))
        }
    }
}

fn has_place(roster: &Roster, is_of_pool: bool) -> Result<()> {
    let last = roster.seats.last().map_or(0, |seat| usize::from(seat.member.number()));
    if last + 1 >= MEMBERS_MAX - ROOTS {
        let why = "users' servers have used up the numbers of members: this pool is to begin anew";
        return Err(too_many(why));
    }
    let are_in = roster.seats.iter().filter(|seat| roster.is_in(seat.member)).count();
    if is_of_pool && are_in >= IN_MAX {
        return Err(too_many(format!("{IN_MAX} servers are in this pool: as many as may be")));
    }
    Ok(())
}

/// Whether he may begin with nothing once more there. Each is a number that no other member gets.
fn has_lives(roster: &Roster, by: Member, user: u32) -> Result<()> {
    let is_his = |of: &&Certificate| of.user.as_ref().is_some_and(|of| of.user == user);
    let his = roster.certificates.iter().filter(is_his).map(|of| of.member);
    let his: Vec<Member> = his.filter(|it| roster.answers_for(*it) == Some(by)).collect();
    let left = his.iter().filter(|member| {
        let standing = roster.seat(**member).map(|seat| seat.standing);
        matches!(standing, Some(Standing::Removed { verdict: Verdict::Left, .. }))
    });
    let left = left.count();
    if his.len() - left >= LIVES_MAX || left >= LEFT_MAX {
        let context = format!("{LIVES_MAX} servers of user {user} have lost their memory there");
        return Err(too_many(context));
    }
    Ok(())
}

/// Whether a user is the same on all machines, as far as they know him by a name.
fn has_one_name(roster: &Roster, whom: &Newcomer) -> Result<()> {
    let user = whom.user.user;
    let is_his = |of: &&Answers| roster.user_of(of.member) == Some(user) && !of.login.is_empty();
    let others = roster.answers.iter().filter(is_his);
    let other = others.filter(|_| !whom.login.is_empty()).find(|of| of.login != whom.login);
    match other {
        None => Ok(()),
        Some(Answers { login, by, .. }) => {
            let own = &whom.login;
            let context = format!("user {user} is {own} there, and {login} on the machine of {by}");
            Err(invalid(context))
        }
    }
}
