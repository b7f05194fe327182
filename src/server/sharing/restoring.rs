//! A directory of which a dead member had all is put together anew by who decides it, from what the
//! tables of all members have of it, and what the permanent store has.
//!
//! Invariants: nobody speaks for it who does not know of the removal, as what that member has
//! answered before may be on its way to him. What a file is called is said by its home alone, if
//! that is there. What only the dead one knew is in it no more: so it is written down that the
//! directory was put together, and from whom. Of what was a user's his other servers say it; root's
//! say only where it is, as a directory of his may lie in one of root's.
//!
//! Not here: when it may be (`terral_partition`: not while a removed member may live), and files
//! whose bytes are lost (`naming/lost`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::Result;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number, ROOT, Thing};
use terral_format::wire::attributes::{Attributes, Kind};
use terral_format::wire::person::Person;
use terral_format::wire::remembered::{Memory, Remember, Remembered};
use terral_format::wire::things::Child;
use terral_partition::effect::Input;
use terral_partition::terms::Terms;

use crate::core::state::State;
use crate::core::world::Tick;
use crate::members::role::Restoring;
use crate::members::stepping::tell;
use crate::naming::{elsewhere, homes, lookup};
use crate::sharing::{bodies, moving, removal, users};

/// Names that one message holds, bytes.
const NAMES_BYTES: usize = 256 << 10;
/// Who does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// What a directory looks like whose looks nobody knows; and where there are other users.
const MODE: u32 = 0o755;
const MODE_AMONG_USERS: u32 = 0o700;

/// A lost thing is wanted: a directory's names are asked for, all else is here.
pub fn begin(state: &mut State, thing: Thing, of: Member) -> Result<()> {
    let Some(members) = &mut state.members else { return Ok(()) };
    let Thing::Directory(_) = thing else { return is_done(state, thing, of) };
    if members.moves() == Some(thing) {
        tell(state, Input::Restored { thing, is: true });
        return Ok(());
    }
    gather(state, thing, Some(of))
}

/// Asks all others what they know of a directory; `of`: it is to be put together from that.
fn gather(state: &mut State, thing: Thing, of: Option<Member>) -> Result<()> {
    let Some(members) = &mut state.members else { return Ok(()) };
    if members.restoring().get(&thing).is_some_and(|known| known.of.is_some() || of.is_none()) {
        return Ok(());
    }
    // What another user's server says of it does not count.
    let (ours, strangers): (Vec<_>, Vec<_>) =
        members.others().into_iter().partition(|other| members.is_ours(*other));
    let place = members.place(thing.number());
    let has_place = place.is_some_and(|ino| state.names.path(ino).is_some());
    let roots =
        strangers.into_iter().filter(|other| !has_place && members.user_of(*other).is_none());
    let (since, known) = (state.world.now(), Vec::new());
    let places = roots.collect();
    let waits = ours.into_iter().map(|other| (other, Vec::new())).collect();
    let restoring = Restoring { of, since, asked: since, waits, places, known };
    members.restoring().insert(thing, restoring);
    ask(state, thing);
    conclude(state, thing)
}

/// What only this server has is as its tables say.
fn is_done(state: &mut State, thing: Thing, of: Member) -> Result<()> {
    if let Ok(inode) = bodies::inode_of(state, thing) {
        state.record(Membership::Restored { ino: inode.ino, of });
    }
    tell(state, Input::Restored { thing, is: true });
    Ok(())
}

fn ask(state: &mut State, thing: Thing) {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return };
    let epoch = members.epoch();
    let Some(restoring) = members.restoring().get_mut(&thing) else { return };
    restoring.asked = now;
    let directory = thing.number();
    let places = restoring.places.iter().map(|other| (*other, Vec::new()));
    let waits: Vec<_> = restoring.waits.clone().into_iter().chain(places).collect();
    for (other, after) in waits {
        members.says_of_memory(other, Memory::Asks(Remember { epoch, directory, after }));
    }
}

/// Another member asks what is known here, or says what is known there.
///
/// # Errors
/// If the tables have no room.
pub fn heard(state: &mut State, from: Member, memory: Memory) -> Result<()> {
    let Some(memory) = users::remembers(state, from, memory) else { return Ok(()) };
    let Some(members) = &mut state.members else { return Ok(()) };
    match memory {
        // He asks again.
        Memory::Asks(asked) if asked.epoch > members.epoch() => members.needs_roster(),
        Memory::Asks(asked) => {
            removal::settle_moves(state)?;
            if is_moving(state) {
                return Ok(());
            }
            let said = match users::of(state, from) {
                Some(user) => place_for(state, &user, asked.directory),
                None => remembered(state, asked.directory, asked.after),
            };
            let said = Memory::Says(said);
            state.members.iter_mut().for_each(|members| members.says_of_memory(from, said.clone()));
        }
        Memory::Says(said) => {
            let thing = Thing::Directory(said.directory);
            let Some(restoring) = members.restoring().get_mut(&thing) else { return Ok(()) };
            if restoring.places.remove(&from) {
                restoring.known.push((from, only_place(said)));
                return conclude(state, thing);
            }
            if restoring.waits.get(&from) != Some(&said.after) {
                return Ok(());
            }
            let last = said.names.last().filter(|_| !said.last);
            match last.map(|(child, _)| child.name.clone()) {
                Some(after) => drop(restoring.waits.insert(from, after)),
                None => drop(restoring.waits.remove(&from)),
            }
            restoring.known.push((from, said));
            ask(state, thing);
            conclude(state, thing)?;
        }
    }
    Ok(())
}

/// Time passes. Who was removed meanwhile says nothing any more; who does not for long is not
/// there.
///
/// # Errors
/// If the tables have no room.
pub fn tick(state: &mut State) -> Result<()> {
    let wanted = state.members.as_mut().map(|members| members.take_wanted_memory());
    wanted.into_iter().flatten().try_for_each(|thing| gather(state, thing, None))?;
    let now = state.world.now();
    let Some(members) = &mut state.members else { return Ok(()) };
    let others = members.others();
    let mut late = Vec::new();
    for (thing, restoring) in members.restoring().iter_mut() {
        restoring.waits.retain(|other, _| others.contains(other));
        restoring.places.retain(|other| others.contains(other));
        late.push((*thing, is_past(restoring, now), now.since(restoring.asked) > AGAIN));
    }
    for (thing, is_over, again) in late {
        if is_over {
            gives_up(state, thing);
        } else {
            conclude(state, thing)?;
            if again {
                ask(state, thing);
            }
        }
    }
    Ok(())
}

/// Somebody does not say what he knows. Who wants the directory, or a lost file in it, is told that
/// it is lost; the next who does begins anew.
fn gives_up(state: &mut State, thing: Thing) {
    let has_path = bodies::inode_of(state, thing).map(|inode| state.names.path(inode.ino));
    let Some(members) = &mut state.members else { return };
    members.is_sought_no_more(thing);
    match members.restoring().remove(&thing) {
        Some(Restoring { of: None, .. }) => {
            members.is_silent_on(thing);
            members.go_on();
            // What is owed of it needs its place, whoever asks.
            if !matches!(has_path, Ok(Some(_))) {
                members.wants_memory(thing);
            }
        }
        _ => tell(state, Input::Restored { thing, is: false }),
    }
}

fn is_past(restoring: &Restoring, now: Tick) -> bool {
    !restoring.is_heard() && now.since(restoring.since) > Terms::USUAL.patience
}

/// What the tables here have of a directory.
fn remembered(state: &State, directory: Number, after: Vec<u8>) -> Remembered {
    let (way, attributes, mut names) = (Vec::new(), None, Vec::new());
    let Ok(inode) = bodies::inode_of(state, Thing::Directory(directory)) else {
        return Remembered { directory, after, way, attributes, names, last: true };
    };
    let way = way_of(state, inode.ino).unwrap_or_default();
    let attributes = state.attributes(inode.ino).filter(is_seen);
    let mut children = bodies::children(state, &inode);
    children.retain(|child| child.name > after);
    children.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let (mut bytes, mut last) = (0, true);
    for child in children {
        bytes += child.name.len() + child.text.len() + 128;
        if bytes > NAMES_BYTES {
            last = false;
            break;
        }
        let place = state.members.as_ref().and_then(|members| members.place(child.number));
        let seen = place.and_then(|ino| state.attributes(ino)).filter(is_seen);
        names.push((child, seen));
    }
    Remembered { directory, after, way, attributes, names, last }
}

/// Where a directory of this user's is, for his server: if he may come there.
fn place_for(state: &State, user: &Person, directory: Number) -> Remembered {
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let place = place.filter(|ino| {
        let above = state.names.above(*ino);
        above.is_some_and(|above| state.names.may_search(user, above))
    });
    let way = place.and_then(|ino| way_of(state, ino)).unwrap_or_default();
    let (after, attributes, names) = Default::default();
    Remembered { directory, after, way, attributes, names, last: true }
}

fn only_place(said: Remembered) -> Remembered {
    let (after, attributes, names) = Default::default();
    Remembered { after, attributes, names, last: true, ..said }
}

/// Whether anybody has looked at it.
fn is_seen(attributes: &Attributes) -> bool {
    attributes.changed_ns != 0
}

/// The directories that lead to one, and itself, by their names.
fn way_of(state: &State, directory: Ino) -> Option<Vec<(Number, Vec<u8>)>> {
    let members = state.members.as_ref()?;
    let (mut at, mut way) = (directory, Vec::new());
    while at != ROOT {
        let (parent, name) = state.names.name_of(at)?;
        way.push((members.number(at)?, name));
        at = parent;
    }
    way.reverse();
    Some(way)
}

/// Whether a dead member may have moved a directory, and it cannot be said yet: nor can how that is
/// called.
fn is_moving(state: &State) -> bool {
    let Some(members) = &state.members else { return false };
    state.names.resting().keys().any(|by| members.is_dead(*by))
}

/// Puts a directory together once all have said what they know.
fn conclude(state: &mut State, thing: Thing) -> Result<()> {
    removal::settle_moves(state)?;
    if is_moving(state) {
        return Ok(());
    }
    let Some(members) = &mut state.members else { return Ok(()) };
    if members.restoring().get(&thing).is_none_or(|restoring| !restoring.is_heard()) {
        return Ok(());
    }
    let Some(restoring) = members.restoring().remove(&thing) else { return Ok(()) };
    members.is_sought_no_more(thing);
    let me = members.me();
    let own = all_remembered(state, thing.number());
    let told = restoring.known.iter().cloned();
    let known: Vec<_> = own.into_iter().map(|own| (me, own)).chain(told).collect();
    if restoring.of.is_some() && is_nowhere(state, thing, &known) {
        tell(state, Input::Restored { thing, is: false });
        return Ok(());
    }
    let ino = place_of(state, thing.number(), &known)?;
    let looks = known.iter().filter_map(|(_, said)| said.attributes);
    let mut looks = looks.max_by_key(|attributes| attributes.changed_ns);
    if looks.is_none() && restoring.of.is_some() {
        looks = match looks_there(state, ino) {
            Some(looks) => looks,
            None => {
                let members = state.members.iter_mut();
                members.for_each(|it| drop(it.restoring().insert(thing, restoring.clone())));
                return Ok(());
            }
        };
    }
    state.members.iter_mut().for_each(|members| {
        members.heard_all(thing);
        members.go_on();
    });
    let (names, seen) = names_of(state, &known);
    let Some(of) = restoring.of else {
        are_as_they_were_seen(state, seen);
        return Ok(());
    };
    let is_other = |state: &State, child: &Child| has_other_name(state, ino, child);
    let names = names.into_iter().filter(|(_, child)| !is_other(state, child));
    bodies::has_names(state, ino, names.collect())?;
    is_as_it_was_seen(state, ino, looks);
    are_as_they_were_seen(state, seen);
    if homes::decide(state) {
        elsewhere::overlay(state, ino);
    }
    state.record(Membership::Restored { ino, of });
    tell(state, Input::Restored { thing, is: true });
    Ok(())
}

/// All of what the tables here have.
fn all_remembered(state: &State, directory: Number) -> Vec<Remembered> {
    let (mut all, mut after) = (Vec::new(), Vec::new());
    loop {
        let said = remembered(state, directory, after);
        after = said.names.last().map(|(child, _)| child.name.clone()).unwrap_or_default();
        let last = said.last;
        all.push(said);
        if last {
            return all;
        }
    }
}

/// Whether nobody knows anything of a directory that was inherited, and users may make up: that is
/// no way to have one come to be.
fn is_nowhere(state: &State, thing: Thing, known: &[(Member, Remembered)]) -> bool {
    let says = |said: &Remembered| !said.way.is_empty() || !said.names.is_empty();
    let is_known =
        known.iter().any(|(_, said)| says(said)) || bodies::inode_of(state, thing).is_ok();
    state.is_among_users() && !is_known
}

/// Where it is in the tables, and what leads there if somebody knows.
fn place_of(state: &mut State, number: Number, known: &[(Member, Remembered)]) -> Result<Ino> {
    let (name, text, kind) = (Vec::new(), Vec::new(), Kind::Directory);
    let ino = elsewhere::place(state, &Child { name, number, kind, text })?;
    if state.names.path(ino).is_none()
        && let Some((_, said)) = known.iter().find(|(_, said)| !said.way.is_empty())
    {
        moving::has_place(state, &said.way)?;
    }
    Ok(ino)
}

type Known = (BTreeMap<Vec<u8>, Child>, BTreeMap<Number, Attributes>);

/// What its names are, by all that is known: of a file whose home is there, that one says it.
fn names_of(state: &State, known: &[(Member, Remembered)]) -> Known {
    let Some(members) = &state.members else { return Known::default() };
    let (me, others) = (members.me(), members.others());
    let is_there = |member: Member| member == me || others.contains(&member);
    let mut names = BTreeMap::<Vec<u8>, (bool, Child)>::new();
    let mut called = BTreeMap::<Number, Vec<u8>>::new();
    let mut seen = BTreeMap::<Number, Attributes>::new();
    for (from, said) in known {
        for (child, attributes) in &said.names {
            let home = child.number.born();
            let says = home == *from;
            if child.kind == Kind::File && is_there(home) && !says {
                continue;
            }
            // Only a file that says so itself has two names: what is heard first is as good as what
            // is heard later.
            let may_have_two = child.kind == Kind::File && says;
            let other_name = called.get(&child.number).is_some_and(|name| *name != child.name);
            let other_name = other_name && !may_have_two;
            let better = |(other, _): &(bool, Child)| says && !other;
            if !other_name && names.get(&child.name).is_none_or(better) {
                names.insert(child.name.clone(), (says, child.clone()));
                called.insert(child.number, child.name.clone());
            }
            let Some(attributes) = attributes else { continue };
            let newer = |before: &Attributes| before.changed_ns < attributes.changed_ns;
            if seen.get(&child.number).is_none_or(newer) {
                seen.insert(child.number, *attributes);
            }
        }
    }
    (names.into_iter().map(|(name, (_, child))| (name, child)).collect(), seen)
}

/// Whether what is said to have a name here has one, for sure, in another directory, or none.
fn has_other_name(state: &State, directory: Ino, child: &Child) -> bool {
    let place = state.members.as_ref().and_then(|members| members.place(child.number));
    let Some(ino) = place.filter(|ino| state.names.inode(*ino).is_some()) else { return false };
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    let may_have_two = child.kind == Kind::File && (homes::decide(state) || links > 1);
    let above = state.names.above(ino).filter(|above| *above != directory && !may_have_two);
    state.names.is_gone_elsewhere(ino)
        || above.is_some_and(|above| elsewhere::is_here(state, above))
}

/// What was born elsewhere looks as whoever has seen it last says.
fn are_as_they_were_seen(state: &mut State, seen: BTreeMap<Number, Attributes>) {
    for (number, attributes) in seen {
        let place = state.members.as_ref().and_then(|members| members.place(number));
        let is_newer = |is: Attributes| is.changed_ns < attributes.changed_ns;
        let older = |ino: &Ino| state.attributes(*ino).is_some_and(is_newer);
        let is_own = state.members.as_ref().is_some_and(|members| members.is_born_here(number));
        if let Some(ino) = place.filter(older).filter(|_| !is_own) {
            state.record(Membership::Looks { attributes: Attributes { ino, ..attributes } });
        }
    }
}

/// What the permanent store says that a directory looks like whose looks nobody knows, if it says
/// it; `None`: that must wait, and is asked for anew by and by.
fn looks_there(state: &mut State, ino: Ino) -> Option<Option<Attributes>> {
    if !homes::decide(state) {
        return Some(None);
    }
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    let looks = lookup::looks_there(state, ino);
    let is_late = looks.is_err() && state.fetches.must_wait();
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
    (!is_late).then(|| looks.ok().flatten())
}

/// It looks as it was seen last, by whoever it was.
fn is_as_it_was_seen(state: &mut State, ino: Ino, seen: Option<Attributes>) {
    let now = state.attributes(ino);
    let looks = match (seen, now) {
        (Some(seen), _) => Attributes { ino, ..seen },
        (None, Some(now)) if now.mode == 0 => {
            let time_ns = state.storage.time_ns();
            let (modified_ns, changed_ns) = (time_ns, time_ns);
            let (mode, uid, gid) = unseen(state);
            Attributes { mode, uid, gid, modified_ns, changed_ns, ..now }
        }
        _ => return,
    };
    if Some(looks) != now {
        state.record(Membership::Looks { attributes: looks });
    }
}

/// Bits, owner and group of a directory whose looks nobody knows.
fn unseen(state: &State) -> (u32, u32, u32) {
    let members = state.members.as_ref().filter(|_| state.is_among_users());
    match members.and_then(|members| members.user_of(members.me())) {
        Some(user) => (MODE_AMONG_USERS, user.user, user.group),
        None => {
            // Whose all is here.
            let owner = state.attributes(ROOT).map_or((0, 0), |root| (root.uid, root.gid));
            let mode = if state.is_among_users() { MODE_AMONG_USERS } else { MODE };
            (mode, owner.0, owner.1)
        }
    }
}
