//! Who is in. The control alone changes that: the member where the root was born, until another one
//! has taken over from it. All others go by what it says.
//!
//! Invariants: a number is given once; what the control has said it has written down before. A
//! member that was removed is in no more, whoever says so. Not here: how it is said
//! (`shell/links`), and who may take over (`shell/keeping`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use terral_format::disk::membership::Membership;
use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Epoch, Member, ServerId};
use terral_format::wire::answering::Answers;
use terral_format::wire::person::Person;
use terral_format::wire::placement::{Placement, Role};
use terral_format::wire::roster::{
    ADDRESSES_MAX, Certificate, Invitation, Key, Partition, Policy, REMOVED_MAX, Roster, Seat,
    Secret,
};
use terral_format::{Error, ErrorKind, Result};
use terral_network::tcp::public_half;
use terral_partition::effect::Input;
use terral_partition::members::Table;

use super::stepping::{join, tell};
use super::{removing, roles};
use crate::core::state::State;

/// Most members at the same time.
pub const MEMBERS_MAX: usize = 1024;

fn new_server(state: &State) -> Result<ServerId> {
    Ok(ServerId(state.world.random()? as u64))
}

/// This server, which is alone, becomes the control of a partition of its own. If it is of the
/// `authority` and nothing else, the root is born on the first that keeps files.
///
/// # Errors
/// If the system has no random bits.
pub fn begin(state: &mut State, encrypted: bool, authority: bool) -> Result<()> {
    let (server, secret) = (new_server(state)?, Secret(state.world.secret()?));
    let partition = Partition { id: state.world.random()?, secret, encrypted };
    let me = Member::LEAST;
    let root = Member::new(u16::from(authority)).unwrap_or(me);
    join(state, (me, server), root, partition);
    is_control(state, me);
    let (standing, key) = (Standing::In(server), public_half(&secret));
    let seats = vec![Seat { member: me, standing, addresses: Vec::new() }];
    let certificates = vec![Certificate { member: me, key, user: None }];
    let (version, epoch) = (1, Epoch(1));
    let mut roster = Roster { version, epoch, seats, certificates, ..Roster::default() };
    if authority {
        roster.authorities.push(me);
        roster.placement.storage = Some(Vec::new());
    }
    seat(state, roster);
    Ok(())
}

/// The control goes by what was said of paths before its partition began.
pub fn inherits(state: &mut State, policies: Vec<Policy>, placement: Placement) {
    let Ok(roster) = own_roster(state) else { return };
    let version = roster.version + 1;
    let placement = Placement { storage: roster.placement.storage.clone(), ..placement };
    seat(state, Roster { version, policies, placement, ..roster });
}

/// This server, which has nothing yet, becomes the member that it was invited to be.
pub fn accept(state: &mut State, invitation: &Invitation) {
    let Invitation { partition, me, server, control, key, root, .. } = invitation;
    let born = root.as_ref().map_or(control.member, |seat| seat.member);
    join(state, (*me, *server), born, *partition);
    is_control(state, control.member);
    let own = Seat { member: *me, standing: Standing::In(*server), addresses: Vec::new() };
    // Less than any that the control says: of the others nothing is known yet.
    let mut seats: Vec<Seat> = root.iter().cloned().chain([control.clone(), own]).collect();
    seats.sort_by_key(|seat| seat.member);
    // It may be the root's itself.
    seats.dedup_by_key(|seat| seat.member);
    let certificates = vec![Certificate { member: control.member, key: *key, user: None }];
    seat(state, Roster { seats, certificates, ..Roster::default() });
}

/// This member says who is in from now on.
fn is_control(state: &mut State, member: Member) {
    if state.members.as_ref().is_some_and(|members| members.control() != member) {
        state.record(Membership::Control(member));
    }
}

/// These are in from now on.
pub(super) fn seat(state: &mut State, roster: Roster) {
    let (epoch, seats) = (roster.epoch, roster.seats.iter());
    let members = seats.map(|seat| (seat.member, seat.standing)).collect();
    let known = state.members.as_ref().map(|members| &members.roster().policies);
    let policies = (known != Some(&roster.policies)).then(|| roster.policies.clone());
    let known = state.members.as_ref().map(|members| &members.roster().certificates);
    let certificates = (known != Some(&roster.certificates)).then(|| roster.certificates.clone());
    let known = state.members.as_ref().map(|members| &members.roster().placement);
    let placement = (known != Some(&roster.placement)).then(|| roster.placement.clone());
    let known = state.members.as_ref().map(|members| &members.roster().authorities);
    let authorities = (known != Some(&roster.authorities)).then(|| roster.authorities.clone());
    let known = state.members.as_ref().map(|members| &members.roster().answers);
    let answers = (known != Some(&roster.answers)).then(|| roster.answers.clone());
    let before = state.members.as_ref().map_or(0, |members| members.roster().seats.len());
    let grows = roster.seats.len() > before;
    state.record(Membership::Roster(roster));
    state.members.iter_mut().filter(|_| grows).for_each(|members| members.have_come());
    certificates.into_iter().for_each(|all| state.record(Membership::Certificates(all)));
    policies.into_iter().for_each(|policies| state.record(Membership::Policies(policies)));
    placement.into_iter().for_each(|of| state.record(Membership::Placement(of)));
    authorities.into_iter().for_each(|of| state.record(Membership::Authorities(of)));
    answers.into_iter().for_each(|of| state.record(Membership::Answers(of)));
    tell(state, Input::Table(Table { epoch, members }));
}

/// The control, which is this member, has said who is in. What this one has become by its own word
/// it stays, though the control may not have heard of that yet; and who was removed by a control
/// before this one stays so.
pub fn heard(state: &mut State, mut roster: Roster, control: Member) {
    let Some(members) = &mut state.members else { return };
    let me = members.me();
    let said = roster.seats.iter().find(|seat| seat.member == me);
    if said.is_some_and(|seat| is_out(seat.standing)) {
        members.is_let_go();
    }
    if members.roster().version < roster.version {
        let known = members.roster().seats.iter();
        let known = known.map(|seat| (seat.member, seat.standing)).collect();
        keep_out(&mut roster, &known);
        is_control(state, control);
        seat(state, roster);
    }
}

fn is_out(standing: Standing) -> bool {
    matches!(standing, Standing::Removed { .. })
}

/// Who was removed stays so. Whether the roster did not say that of somebody.
fn keep_out(roster: &mut Roster, known: &BTreeMap<Member, Standing>) -> bool {
    let mut news = false;
    for seat in &mut roster.seats {
        let Some(Standing::Removed { heir, verdict }) = known.get(&seat.member).copied() else {
            continue;
        };
        let less = match seat.standing {
            Standing::In(_) => true,
            Standing::Removed { verdict: said, .. } => said == Verdict::Fenced && said != verdict,
        };
        if less {
            (seat.standing, news) = (Standing::Removed { heir, verdict }, true);
        }
    }
    news
}

/// So much is left for what a control before may have said, or revoked, that nobody who takes over
/// knows of.
pub const UNHEARD: u64 = 1 << 16;

/// This member takes over from the control: it says who is in from now on. It, or who is to, goes
/// on with what those controls had that are `gone`. All that they had written down it has heard.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is no member, or was removed itself.
pub fn take_over(state: &mut State, gone: &[(Member, Verdict)]) -> Result<()> {
    let me = may_take_over(state)?;
    let Some(members) = &state.members else { return Ok(()) };
    let mut roster = members.roster().clone();
    removing::take_out(&mut roster, gone, me);
    forget_unseated(&mut roster);
    roster.version += UNHEARD;
    roster.epoch = Epoch(roster.epoch.0 + UNHEARD);
    is_control(state, me);
    self::seat(state, roster);
    Ok(())
}

/// A control may be lost as it writes down what it has decided in parts, who is in last: who was to
/// come is nobody, and another one gets that number.
fn forget_unseated(roster: &mut Roster) {
    let members: BTreeSet<Member> = roster.seats.iter().map(|seat| seat.member).collect();
    roster.certificates.retain(|it| members.contains(&it.member));
    roster.answers.retain(|it| members.contains(&it.member));
    roster.authorities.retain(|member| members.contains(member));
    let storage = roster.placement.storage.iter_mut();
    storage.for_each(|storage| storage.retain(|member| members.contains(member)));
}

/// Who is in no more, as far as this member knows, for a control that may have taken over. What a
/// user's server knows of that counts for nobody.
pub fn gone(state: &State) -> Vec<(Member, Standing)> {
    let members = state.members.as_ref().filter(|members| members.may_have_another_control());
    let members = members.filter(|members| !members.is_users());
    let seats = members.into_iter().flat_map(|members| members.roster().seats.iter());
    let gone = seats.filter(|seat| is_out(seat.standing));
    gone.map(|seat| (seat.member, seat.standing)).take(REMOVED_MAX).collect()
}

/// The control is this other member, as the registry of the pool says.
///
/// # Errors
/// [`ErrorKind::Invalid`] if that is in no more, as far as is known here, or speaks for one user.
pub fn follow(state: &mut State, control: Member) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let roster = members.roster();
    let is_in = roster.seat(control).is_some_and(|seat| !is_out(seat.standing));
    if !is_in || roster.is_users(control) {
        let context = format!("the pool's registry says that {control} is its control: none is");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    is_control(state, control);
    Ok(())
}

/// Whether this member, which is given, may take over.
///
/// # Errors
/// As [`take_over`].
pub fn may_take_over(state: &State) -> Result<Member> {
    let none = || Error::new(ErrorKind::Invalid, "this server is no member that may take over");
    let members = state.members.as_ref().ok_or_else(none)?;
    let (me, before, roster) = (members.me(), members.control(), members.roster());
    let knows = roster.seat(before).is_some();
    let is_in = roster.seat(me).is_some_and(|seat| !is_out(seat.standing));
    if knows && is_in && before != me { Ok(me) } else { Err(none()) }
}

/// A member knows of some that a control before this one has removed: so they are, where it is one
/// who could be the control by his own word ([`roles::is_believed`]). What any other says of that
/// changes nothing.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control.
pub fn were_removed(state: &mut State, by: Member, gone: Vec<(Member, Standing)>) -> Result<()> {
    let mut roster = own_roster(state)?;
    if !roles::is_believed(&roster, by) {
        return Ok(());
    }
    let me = state.members.as_ref().map(|members| members.me());
    let gone: BTreeMap<_, _> = gone.into_iter().filter(|(member, _)| Some(*member) != me).collect();
    let mut is_new = keep_out(&mut roster, &gone);
    // Who has come since, and goes with one of them.
    let lost = gone.iter().filter_map(|(member, standing)| match standing {
        Standing::Removed { verdict: Verdict::Left, .. } | Standing::In(_) => None,
        Standing::Removed { verdict, .. } => Some((*member, *verdict)),
    });
    let lost: Vec<_> = lost.collect();
    is_new |= me.is_some_and(|me| removing::take_out(&mut roster, &lost, me));
    if is_new {
        (roster.version, roster.epoch) = (roster.version + 1, Epoch(roster.epoch.0 + 1));
        seat(state, roster);
    }
    Ok(())
}

/// This member leaves: from now on it does nothing any more, whatever comes. The control is to hear
/// of it, and says it to all others.
pub fn leave(state: &mut State) {
    let Some(members) = &state.members else { return };
    let (me, mut roster) = (members.me(), members.roster().clone());
    let heir = heirs_of_own(state).first().copied().unwrap_or(members.control());
    let own = roster.seats.iter_mut().find(|seat| seat.member == me);
    let verdict = Verdict::Left;
    own.into_iter().for_each(|seat| seat.standing = Standing::Removed { heir, verdict });
    // The version is the control's to count.
    roster.epoch = Epoch(roster.epoch.0 + 1);
    seat(state, roster);
}

/// Who goes on with what this member decides, once it is in no more: any of these may have it.
pub fn heirs_of_own(state: &State) -> Vec<Member> {
    let members = state.members.iter();
    let heirs =
        members.flat_map(|it| roles::heirs(it.roster(), (it.me(), &[it.me()]), it.control()));
    heirs.collect()
}

/// A member says that it has left.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control.
pub fn has_left(state: &mut State, member: Member) -> Result<()> {
    match remove(state, member, Verdict::Left) {
        Err(error) if error.kind != ErrorKind::Exists => Err(error),
        // It says so until it hears that this is known.
        _ => Ok(()),
    }
}

/// The roster, which only the control may change.
pub(super) fn own_roster(state: &State) -> Result<Roster> {
    let members = state.members.as_ref();
    let alone = || Error::new(ErrorKind::Invalid, "this server is alone: serve with --listen");
    let members = members.ok_or_else(alone)?;
    if members.control() != members.me() {
        let context =
            format!("{} lets members in, and this is {}", members.control(), members.me());
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    if members.is_handing_over() {
        let context = "another server is about to be the control of this pool: again in a moment";
        return Err(Error::new(ErrorKind::Busy, context));
    }
    Ok(members.roster().clone())
}

/// Something else that the control keeps has changed: all are told of it with the roster, whose
/// version this is.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control.
pub fn tell_all(state: &mut State) -> Result<u64> {
    let mut roster = own_roster(state)?;
    roster.version += 1;
    let version = roster.version;
    seat(state, roster);
    Ok(version)
}

/// A member is at these addresses.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control.
pub fn is_at(state: &mut State, member: Member, addresses: Vec<SocketAddr>) -> Result<()> {
    let mut roster = own_roster(state)?;
    let seat = roster.seats.iter_mut().find(|seat| seat.member == member);
    let seat = seat.filter(|seat| seat.addresses != addresses);
    let Some(seat) = seat else { return Ok(()) };
    seat.addresses = addresses.into_iter().take(ADDRESSES_MAX).collect();
    roster.version += 1;
    self::seat(state, roster);
    Ok(())
}

/// Removes a member: the control, or who is to ([`roles::heir`]), decides from now on what that
/// decided. One that was removed as somebody who may live may be said to be dead later. With
/// who is trusted with all go those for whom it answers.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, or is that member; [`ErrorKind::NotFound`] if
/// there is none; [`ErrorKind::Exists`] if there is nothing new in it.
pub fn remove(state: &mut State, member: Member, verdict: Verdict) -> Result<()> {
    let mut roster = own_roster(state)?;
    let unknown = || Error::new(ErrorKind::NotFound, format!("{member}: there is none"));
    let me = state.members.as_ref().map(|members| members.me()).ok_or_else(unknown)?;
    if me == member {
        let context = format!("{member} is this server, which says who is in: end it instead");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    roster.seat(member).ok_or_else(unknown)?;
    if !removing::take_out(&mut roster, &[(member, verdict)], me) {
        return Err(Error::new(ErrorKind::Exists, format!("{member} was removed before")));
    }
    (roster.version, roster.epoch) = (roster.version + 1, Epoch(roster.epoch.0 + 1));
    self::seat(state, roster);
    Ok(())
}

/// A server says that it is a member, and shows what it was invited with: the first to do so is.
/// Why not, for who is to be told.
pub fn claims(
    state: &mut State,
    member: Member,
    instance: u128,
) -> std::result::Result<(), String> {
    let Some(members) = &state.members else { return Ok(()) };
    let never_came = |seat: &Seat| {
        matches!(seat.standing, Standing::Removed { .. }) && seat.addresses.is_empty()
    };
    let again = "`terral invite` there makes another one";
    match (members.bound(member), members.roster().seat(member)) {
        (Some(bound), _) if bound != instance => {
            Err(format!("this invitation was used by another server, which is {member}: {again}"))
        }
        (None, Some(seat)) if never_came(seat) => {
            Err(format!("this invitation has expired, as nobody used it for an hour: {again}"))
        }
        (Some(_), _) => Ok(()),
        (None, _) => {
            state.record(Membership::Bound { member, instance });
            Ok(())
        }
    }
}

/// Those who were invited, and did not come, are in no more.
pub fn expire(state: &mut State) {
    let now = state.world.now();
    let members = state.members.iter_mut().filter(|it| it.control() == it.me());
    let expired: Vec<Member> = members.flat_map(|members| members.expired(now)).collect();
    for member in expired {
        // They are there, and had nothing.
        let _ = remove(state, member, Verdict::Left);
    }
}

/// Who was let in to have the root, and has not been heard of for long, where another one could
/// have it. Whether it is there the registry knows.
pub fn is_missed(state: &mut State) -> Option<Member> {
    let now = state.world.now();
    let members = state.members.as_mut().filter(|it| it.control() == it.me())?;
    let missed = members.missed_root(now)?;
    let heir = roles::heir(members.roster(), (missed, &[missed]), members.me());
    members.roster().placement.stores(heir).then_some(missed)
}

/// The seat of the member where the root was born, if that is another than the control; if it is in
/// no more, with the last of its heirs.
fn root_seat(state: &State) -> Option<Seat> {
    let members = state.members.as_ref()?;
    let (control, root) = (members.control(), members.root());
    let mut seat = members.roster().seat(root).filter(|_| root != control)?.clone();
    let of = members.roster().seats.len();
    for _ in 0..of {
        let Standing::Removed { heir, .. } = &mut seat.standing else { break };
        match members.roster().seat(*heir).map(|seat| seat.standing) {
            Some(Standing::Removed { heir: next, .. }) => *heir = next,
            _ => break,
        }
    }
    Some(seat)
}

/// Whether the root is somewhere, or is about to be.
fn is_root_born(state: &State, role: Option<Role>) -> Result<()> {
    let root = state.members.as_ref().map(|members| (members.root(), members.roster()));
    let is_nowhere = root.is_some_and(|(root, roster)| roster.seat(root).is_none());
    if is_nowhere && role != Some(Role::Storage) {
        let context = "no server of this pool keeps files yet: start one with --role storage";
        return Err(Error::new(ErrorKind::Busy, context));
    }
    Ok(())
}

/// A new member is for that.
fn comes_as(roster: &mut Roster, me: Member, role: Option<Role>) {
    let storage = &mut roster.placement.storage;
    if storage.is_none() && matches!(role, Some(Role::Authority | Role::Compute)) {
        let all = roster.seats.iter().filter(|seat| !is_out(seat.standing));
        *storage = Some(all.map(|seat| seat.member).collect());
    }
    match role {
        Some(Role::Storage) => storage.iter_mut().for_each(|storage| storage.push(me)),
        Some(Role::Authority) => roster.authorities.push(me),
        Some(Role::Compute) | None => {}
    }
}

/// Lets in one more, which is trusted with all, and shows this.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, [`ErrorKind::TooMany`] if there is no place,
/// [`ErrorKind::Busy`] if it is not reachable yet.
pub fn invite(state: &mut State) -> Result<Invitation> {
    let secret = Secret(state.world.secret()?);
    let invitation = let_in(state, public_half(&secret), None)?;
    Ok(Invitation { partition: Partition { secret, ..invitation.partition }, ..invitation })
}

/// The same for who has made a key himself, and gives the public half of it. The invitation has no
/// secret. What he is for may be said (`role`). Who asks again by the same key is who he was.
///
/// # Errors
/// As those of [`invite`]; [`ErrorKind::Busy`], too, as long as the root is nowhere, to who keeps
/// no files; [`ErrorKind::Invalid`] if a user's server has this key.
pub fn let_in(state: &mut State, key: Key, role: Option<Role>) -> Result<Invitation> {
    let roster = own_roster(state)?;
    let known = roster.certificates.iter().filter(|it| it.key == key).map(|it| it.member);
    let known: Vec<Member> = known.collect();
    if known.iter().any(|member| roster.is_users(*member)) {
        return Err(Error::new(ErrorKind::Invalid, "a user's server has this key"));
    }
    let is_in = |member: Member| match roster.seat(member)?.standing {
        Standing::In(server) => Some((member, server)),
        Standing::Removed { .. } => None,
    };
    match known.into_iter().find_map(is_in) {
        Some(known) => invitation(state, known),
        None => come(state, roster, Comes { key, role, user: None }),
    }
}

/// Who comes.
pub(super) struct Comes {
    /// By which key.
    pub(super) key: Key,
    /// For what.
    pub(super) role: Option<Role>,
    /// For which user alone it speaks, if it does; who answers for it, and what he is called there.
    pub(super) user: Option<(Person, Member, String)>,
}

/// Lets in a new member.
pub(super) fn come(state: &mut State, mut roster: Roster, comes: Comes) -> Result<Invitation> {
    let server = new_server(state)?;
    let full = || Error::new(ErrorKind::TooMany, format!("members, more than {MEMBERS_MAX}"));
    let last = roster.seats.last().map_or(0, |seat| seat.member.number());
    let me = Member::new(last + 1).filter(|me| usize::from(me.number()) < MEMBERS_MAX);
    let me = me.ok_or_else(full)?;
    let Comes { key, role, user } = comes;
    is_root_born(state, role)?;
    // Nobody is let in by who cannot be found.
    invitation(state, (me, server))?;
    comes_as(&mut roster, me, role);
    roster.seats.push(Seat { member: me, standing: Standing::In(server), addresses: Vec::new() });
    let (user, answers) =
        user.map(|(user, by, login)| (user, Answers { member: me, by, login })).unzip();
    roster.certificates.push(Certificate { member: me, key, user });
    roster.answers.extend(answers);
    (roster.version, roster.epoch) = (roster.version + 1, Epoch(roster.epoch.0 + 1));
    seat(state, roster);
    invitation(state, (me, server))
}

/// What lets a server be that member.
pub(super) fn invitation(state: &State, (me, server): (Member, ServerId)) -> Result<Invitation> {
    let late = || Error::new(ErrorKind::Busy, "the server does not listen yet: try again");
    let members = state.members.as_ref().ok_or_else(late)?;
    let own = *members.partition();
    let partition = Partition { secret: Secret([0; 32]), ..own };
    let control = members.roster().seat(members.me()).cloned();
    let control = control.filter(|control| !control.addresses.is_empty()).ok_or_else(late)?;
    let (key, permanent) = (public_half(&own.secret), state.backing.is_some());
    Ok(Invitation { partition, me, server, control, key, root: root_seat(state), permanent })
}
