//! Names that change places, of things of several machines: where there is a permanent store, the
//! one that lets them does it there, too, as one operation on whatever has the two names by then.
//! Others rest meanwhile (`members/moving`). Before they say so, their tables have the names as
//! they will be, and what they owe of them, or below, is owed there: nothing is brought by it
//! before.
//!
//! Invariant: a file of another machine changes places only under a name of which its home knows.
//! Not here: what may change places with what (`links`), and how it is done in the store
//! (`drain/owed_names`).

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, Member, Number, ROOT, Thing};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::wire::moving::{Moving, Renamed};
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change, Child};
use terral_format::{ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::far::asking;
use crate::members::requiring::{self, Have};
use crate::naming::names::{Place, is_known};
use crate::naming::{counting, doubts, elsewhere, homes};

/// A file of another machine is about to change places with something: its home knows of the name.
///
/// # Errors
/// If it must wait for that; as [`elsewhere::look`]'s.
pub(super) fn may_swap(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    (parent, name): Place<'_>,
) -> Result<()> {
    let Some(number) = asking::number_of(state, ino).filter(|_| homes::decide(state)) else {
        return Ok(());
    };
    let directory = state.members.as_ref().and_then(|members| members.number(parent));
    let directory = directory.ok_or_else(|| refuse(ErrorKind::NotFound, name))?;
    let by = By { person: (*caller.person).clone(), what: Change::Swap(directory, name.into()) };
    let work = Work::Change(by.body()?);
    let Have::Done(answer) = requiring::need(state, Thing::File(number), &work)? else {
        return Err(refuse(ErrorKind::Malformed, name));
    };
    match elsewhere::outcome(state, answer) {
        // It has lost it since that was looked up, or does not know yet whether it has it.
        Err(error) if error.kind == ErrorKind::BadHandle => Err(requiring::anew(state)),
        outcome => outcome.map(drop),
    }
}

/// Another member is about to let this name of a file that was born here change places with
/// something. It has all directories that it needs for that, and nobody else changes the name.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if it has no such name, or that is not known yet; if it must wait.
pub fn is_swappable(state: &mut State, ino: Ino, (directory, name): (Number, &[u8])) -> Result<()> {
    doubts::must_have_its_names(state, ino)?;
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let has = place.is_some_and(|parent| state.names.child_here(parent, name) == Some(ino));
    let is_created = state.members.as_ref().is_some_and(|members| members.is_created(ino));
    match has && !is_created {
        true => Ok(()),
        false => Err(refuse(ErrorKind::BadHandle, name)),
    }
}

/// Where the last of these names is: the directories that lead there have a place, and a name.
///
/// # Errors
/// If the tables have no room.
pub fn above(state: &mut State, way: &[(Number, Vec<u8>)]) -> Result<Option<(Ino, Vec<u8>)>> {
    let Some((last, above)) = way.split_last() else { return Ok(None) };
    let parent = leads_on(state, ROOT, above, false)?;
    Ok(Some((parent, last.1.clone())))
}

/// The directory at the end of this way from another one: those that lead there have a place, and a
/// name; with `anew`, this one.
///
/// # Errors
/// If the tables have no room.
pub(super) fn leads_on(
    state: &mut State,
    mut parent: Ino,
    way: &[(Number, Vec<u8>)],
    anew: bool,
) -> Result<Ino> {
    for (number, name) in way {
        let (name, number) = (name.clone(), *number);
        let child = Child { name: name.clone(), number, kind: Kind::Directory, text: Vec::new() };
        let at = elsewhere::place(state, &child)?;
        if anew || !state.names.inode(at).is_some_and(|inode| inode.is(flag::NAMED)) {
            is_named(state, at, (parent, name));
        }
        parent = at;
    }
    Ok(parent)
}

/// What has this number, if anything is known of it here.
pub fn known(state: &State, number: Number) -> Option<Ino> {
    let place = state.members.as_ref().and_then(|members| members.place(number));
    place.filter(|ino| state.names.inode(*ino).is_some())
}

/// Something has this name now. Where the directory of a name is here, what is said of it is older
/// than what that has.
pub fn is_named(state: &mut State, ino: Ino, (parent, name): (Ino, Vec<u8>)) {
    let there = Some((parent, name.clone()));
    let named_here = state.names.above(ino).is_some_and(|above| elsewhere::is_here(state, above));
    if state.names.name_of(ino) == there || named_here || elsewhere::is_here(state, parent) {
        return;
    }
    if state.names.is_within(parent, ino) {
        // Where that directory is now is not known here yet: who looks there asks.
        return;
    }
    if state.names.child_here(parent, &name).is_some() {
        state.record(Membership::Unnamed { parent, name: name.clone() });
    }
    state.record(Membership::Named { ino, parent, name });
}

/// Two names of which another member says that they change places.
struct Pair {
    /// Each a directory, and a name in it.
    places: [(Ino, Vec<u8>); 2],
    /// What had them before, as that member has it.
    before: [Option<Number>; 2],
}

/// What another member lets change places, as `theirs` has it.
///
/// # Errors
/// If the tables have no room.
fn pair_of(state: &mut State, theirs: &Moving) -> Result<Option<Pair>> {
    let Some(back) = &theirs.back else { return Ok(None) };
    let places = (above(state, &back.way)?, above(state, &theirs.way)?);
    let (Some(one), Some(other)) = places else { return Ok(None) };
    let before = [&theirs.way, &back.way].map(|way| way.last().map(|(number, _)| *number));
    Ok(Some(Pair { places: [one, other], before }))
}

/// Two names that another member lets change places do so in the tables, if they have not: or, if
/// they have, are as they were. Who has one of their directories here has it from who let them
/// change places, and is through: it is newer than what he is about to say.
///
/// # Errors
/// If the tables have no room.
pub fn swap(state: &mut State, by: Member, is: bool) -> Result<()> {
    let Some(theirs) = state.names.resting().get(&by).cloned() else { return Ok(()) };
    let known = theirs.back.as_ref().map(|back| back.is_known);
    let Some(pair) = pair_of(state, &theirs)?.filter(|_| known != Some(is)) else { return Ok(()) };
    let here = pair.places.iter().any(|(parent, _)| elsewhere::is_here(state, *parent));
    match (here, is) {
        (false, _) => trade(state, by, &pair, is),
        (true, true) => {}
        (true, false) => {
            state.record(Membership::Swapped { by, names: None });
            stand_for(state, &pair.places, pair.before);
        }
    }
    Ok(())
}

/// They do so in the tables, or are as they were.
fn trade(state: &mut State, by: Member, Pair { places, before: [moved, came] }: &Pair, is: bool) {
    let (then, now) = match is {
        true => ([*moved, *came], [*came, *moved]),
        false => ([*came, *moved], [*moved, *came]),
    };
    places.iter().zip(then).for_each(|(place, number)| has_only(state, place, number));
    for ((parent, _), ino) in known_at(state, places, now) {
        // Where one of the directories is now is not known here yet.
        let within = state.names.is_within(parent, ino);
        let named = state.names.name_of(ino).filter(|at| within && places.contains(at));
        named.into_iter().for_each(|(parent, name)| {
            state.record(Membership::Unnamed { parent, name });
        });
    }
    state.record(Membership::Swapped { by, names: Some(places.clone()) });
    for (place, ino) in known_at(state, places, now) {
        if state.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
            is_named(state, ino, place);
        } else if is {
            counting::comes(state, ino, (place.0, &place.1));
        } else if state.names.name_of(ino).is_none() {
            has_name(state, ino, (place.0, &place.1));
        }
    }
}

/// What is no directory has this name, unless something has it, or its directory is here.
fn has_name(state: &mut State, ino: Ino, (parent, name): Place<'_>) {
    if state.names.child_here(parent, name).is_none() && !elsewhere::is_here(state, parent) {
        // Without room for it, who looks there asks.
        let _ = elsewhere::has_name_too(state, (parent, name), ino);
    }
}

/// A name, and what has it here.
type Known = ((Ino, Vec<u8>), Ino);

/// What is known here of what has these names.
fn known_at(state: &State, places: &[(Ino, Vec<u8>)], have: [Option<Number>; 2]) -> Vec<Known> {
    let of = |(place, number): (&(Ino, Vec<u8>), Option<Number>)| {
        Some((place.clone(), known(state, number?)?))
    };
    places.iter().zip(have).filter_map(of).collect()
}

/// These have two names, as far as their directories are not here.
fn stand_for(state: &mut State, places: &[(Ino, Vec<u8>)], have: [Option<Number>; 2]) {
    places.iter().zip(have).for_each(|(place, number)| has_only(state, place, number));
    for ((parent, name), ino) in known_at(state, places, have) {
        if state.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
            is_named(state, ino, (parent, name));
        } else {
            has_name(state, ino, (parent, &name));
        }
    }
}

/// Two names have changed places: also in the tables, as far as the directories are not here.
///
/// # Errors
/// If the tables have no room.
pub fn are_swapped(state: &mut State, by: Member) -> Result<()> {
    swap(state, by, true)?;
    let Some(theirs) = state.names.resting().get(&by).cloned() else { return Ok(()) };
    let pair = pair_of(state, &theirs)?.filter(|_| !is_known_of(&theirs));
    if let Some(Pair { places, before: [moved, came] }) = pair {
        stand_for(state, &places, [came, moved]);
    }
    Ok(())
}

/// A directory has come here, and `says` what its names stand for: if that is what they stood for
/// before another member was to let one change places, it has not, and all that is here is as it
/// was.
///
/// # Errors
/// If the tables have no room.
pub fn has_come_back(
    state: &mut State,
    directory: Ino,
    says: impl Fn(&[u8]) -> Option<Number>,
) -> Result<()> {
    let ahead = state.names.resting().iter().filter(|(_, theirs)| is_known_of(theirs));
    let ahead: Vec<_> = ahead.map(|(by, theirs)| (*by, theirs.clone())).collect();
    for (by, theirs) in ahead {
        let Some(pair) = pair_of(state, &theirs)? else { continue };
        let stood = |((parent, name), number): (&(Ino, Vec<u8>), Option<Number>)| {
            *parent == directory && number.is_some() && says(name) == number
        };
        if pair.places.iter().zip(pair.before).any(stood) {
            trade(state, by, &pair, false);
        }
    }
    Ok(())
}

/// What else the tables have under a name is older, unless its directory is here: who let the names
/// change places has given that back before it said what came of it.
fn has_only(state: &mut State, (parent, name): &(Ino, Vec<u8>), number: Option<Number>) {
    if elsewhere::is_here(state, *parent) {
        return;
    }
    let there = state.names.child_here(*parent, name);
    let is = there.and_then(|ino| state.members.as_ref()?.number(ino));
    if there.is_some() && is != number {
        state.record(Membership::Unnamed { parent: *parent, name: name.clone() });
    }
}

/// The tables have names as they will be, of all that other members let change places: nothing is
/// brought now. Whether all is written down.
pub fn are_known(state: &mut State) -> Result<()> {
    let new = |moving: &Moving| moving.back.as_ref().is_some_and(|back| !back.is_known);
    let resting = state.names.resting().iter();
    let news: Vec<Member> = resting.filter(|(_, moving)| new(moving)).map(|(by, _)| *by).collect();
    if news.is_empty() {
        return Ok(());
    }
    news.into_iter().try_for_each(|by| swap(state, by, true))?;
    state.commit()
}

fn is_known_of(moving: &Moving) -> bool {
    moving.back.as_ref().is_some_and(|back| back.is_known)
}

/// What another member has let come in the place of something is this server's file, and looks so
/// in the permanent store now.
pub fn has_come(state: &mut State, theirs: &Moving) {
    let back = theirs.back.as_ref().and_then(|back| Some((back.way.last()?.0, back.seen?)));
    let Some((number, seen)) = back else { return };
    let own = own_file(state, number);
    own.into_iter().for_each(|ino| is_seen_renamed(state, ino, seen));
}

fn own_file(state: &State, number: Number) -> Option<Ino> {
    let ino = known(state, number)?;
    asking::number_of(state, ino).is_none().then_some(ino)
}

/// Our own change of a file's look is not somebody else's.
pub fn is_seen_renamed(state: &mut State, ino: Ino, seen: Renamed) {
    let Some(inode) = state.names.inode(ino) else { return };
    // Done twice, the first time by a server that died, it shows how it looked in between. A change
    // of its bytes would show, too: their time would be after what we know.
    let again = |known: Fingerprint| {
        seen.again && known.is_as_long(seen.before) && known.has_seen(seen.modified_ns)
    };
    let ours = |known| known == seen.before || again(known);
    if inode.published.is_some_and(ours) && !inode.is_directory() {
        state.record(Fact::Touched { ino, fingerprint: seen.after });
    }
}

/// Whether two names have changed places in the permanent store, by what is known of this server's
/// own files there; who was at it is gone, and cannot say.
pub fn is_swapped_there(state: &mut State, by: Member, theirs: &Moving) -> Option<bool> {
    let backing = state.backing.clone()?;
    let is_known_here = theirs.back.as_ref().is_some_and(|back| back.is_known);
    let own = |inode: &Inode| inode.kind == Kind::File && is_known(inode) && !inode.is(flag::FAR);
    let files: Vec<Inode> = state.names.inodes().filter(own).collect();
    for inode in files {
        let Some(path) = state.names.path(inode.ino) else { continue };
        let Some(other) = swapped_path(&path, theirs) else { continue };
        let (before, after) = if is_known_here { (other, path) } else { (path, other) };
        let is_it = |path: &[u8]| {
            backing.stat(path).ok().filter(|found| {
                inode.published.is_some_and(|known| known.is_same_object(found.fingerprint))
            })
        };
        if let Some(found) = is_it(&after) {
            let (before, modified_ns) = (found.fingerprint, found.attributes.modified_ns);
            let seen = Renamed { before, after: before, modified_ns, again: true };
            is_seen_renamed(state, inode.ino, seen);
            swap(state, by, true).ok()?;
            return Some(true);
        }
        if is_it(&before).is_some() {
            return Some(false);
        }
    }
    Some(false)
}

/// Where a path leads once two names have changed places, if it leads through one of them.
fn swapped_path(path: &[u8], theirs: &Moving) -> Option<Vec<u8>> {
    let below = |above: &[u8]| {
        let rest = path.strip_prefix(above)?;
        rest.first().is_none_or(|byte| *byte == b'/').then_some(rest)
    };
    let to = below(&theirs.from).map(|rest| [&theirs.to, rest].concat());
    to.or_else(|| below(&theirs.to).map(|rest| [&theirs.from, rest].concat()))
}
