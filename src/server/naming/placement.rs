//! Where a new file is created that is not to be where its creator is: on the storage server that
//! a pattern says, or on the better of two that are chosen at random, so that all who choose at
//! the same time do not choose the same one (Mitzenmacher: The Power of Two Choices in Randomized
//! Load Balancing, IEEE TPDS 12(10), 2001).
//!
//! Invariants: nothing is changed; of one request the same two are looked at however often it is
//! carried out; a member is asked how it is only by who is about to create something, and at most
//! once a second. Not here: who creates it there (`files/placed`).

use terral_format::ids::{Member, Number};
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::wire::placement::Layout;
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::debts::owing;
use crate::members::placement;
use crate::members::role::Load;
use crate::naming::elsewhere;

/// So many are looked at.
const CHOICES: usize = 2;
/// `ENOSPC`.
const ENOSPC: i32 = 28;

/// Whether this server keeps bytes of new files.
pub fn stores_here(state: &State) -> bool {
    state.members.as_ref().is_none_or(|of| of.roster().placement.stores(of.me()))
}

/// On which server a new file of this path is to be created; `None`: on this one.
///
/// # Errors
/// As those of [`choose`].
pub fn server_for(state: &mut State, caller: &Caller, path: &[u8]) -> Result<Option<Member>> {
    match placement::layout_of(state, path) {
        Layout::Here | Layout::Stripe { .. } if stores_here(state) => Ok(None),
        Layout::One(member) if placement::storage_servers(state).contains(&member) => {
            Ok(Some(member))
        }
        _ => choose(state, caller).map(Some),
    }
}

/// The storage server that has more room, of two chosen at random among those that answer.
///
/// # Errors
/// If who asks must wait; `ENOSPC` if there is none.
pub fn choose(state: &mut State, caller: &Caller) -> Result<Member> {
    let mut all = placement::storage_servers(state);
    let Some(members) = &state.members else { return Ok(Member::LEAST) };
    let me = members.me();
    let answers = |it: &Member| *it == me || members.is_connected(*it);
    if all.iter().any(answers) {
        all.retain(answers);
    }
    let mut draw = draws(state, caller);
    let mut best: Option<(Member, Load)> = None;
    let (mut seen, mut late) = (0, None);
    let first = all.get(draw(all.len())).copied();
    while seen < CHOICES && !all.is_empty() {
        let member = all.swap_remove(draw(all.len()));
        match load_of(state, caller, member) {
            Ok(load) => {
                if best.is_none_or(|(_, least)| load.is_less_than(&least)) {
                    best = Some((member, load));
                }
            }
            // Both are asked before any is waited for.
            Err(error) if state.fetches.is_waiting() => late = Some(error),
            Err(_) => continue,
        }
        seen += 1;
    }
    if let Some(late) = late {
        return Err(late);
    }
    let none = || {
        let context = "no server of this run keeps files any more (`terral role HOST storage`)";
        Error { kind: ErrorKind::TooMany, errno: ENOSPC, context: context.into() }
    };
    let chosen = best.map(|(member, _)| member).or(first).ok_or_else(none)?;
    state.members.iter_mut().for_each(|members| members.was_chosen(chosen));
    Ok(chosen)
}

/// Numbers at random, the same for a request whenever it is carried out.
fn draws(state: &State, caller: &Caller) -> impl FnMut(usize) -> usize + use<> {
    let members = state.members.as_ref();
    let asker = members.and_then(|members| members.asker());
    let (index, sequence) = asker.map_or((0, 0), |asker| (asker.index, asker.sequence));
    let (pid, started) = state.sessions.process_of(caller.session).unwrap_or_default();
    let me = members.map_or(0, |members| members.me().number());
    let of = [u64::from(me), pid.into(), started, index.into(), sequence];
    let mut seed = of.into_iter().fold(0, |seed, word| mixed(seed ^ word));
    move |below| {
        seed = mixed(seed);
        (seed >> 32) as usize % below.max(1)
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
fn mixed(of: u64) -> u64 {
    let mut z = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How a member is, as it has said just now, or says.
fn load_of(state: &mut State, caller: &Caller, member: Member) -> Result<Load> {
    let now = state.world.now();
    let malformed = || Error::new(ErrorKind::Malformed, "what another member says of itself");
    let members = state.members.as_ref().ok_or_else(malformed)?;
    if member == members.me() {
        let bound = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
        let room = bound.saturating_sub(state.storage.used_bytes());
        return Ok(Load { room, owed: owing::drain_status(state).owed_bytes });
    }
    if let Some(load) = members.load_of(member, now) {
        return Ok(load);
    }
    let its = Number::new(member, 0).ok_or_else(malformed)?;
    match elsewhere::told_of(state, caller, its, Look::Server { hasten: false })? {
        Outcome::Server(status) => {
            let load = Load::of(&status);
            state.members.iter_mut().for_each(|members| members.reports(member, load, now));
            Ok(load)
        }
        _ => Err(malformed()),
    }
}
