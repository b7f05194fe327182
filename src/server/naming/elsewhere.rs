//! What another member has: names and attributes that are looked at there, or in what it has shown.

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number, ROOT, Thing};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Attributes, Kind, Name};
use terral_format::wire::peers::{Answer, Failure, Work};
use terral_format::wire::things::{By, Change, Child, Look, Outcome};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Access;

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::far::asking;
use crate::members::copies::Copy;
use crate::members::moving::Way;
use crate::members::requiring::{self, Have};
use crate::members::role::gone::Gone;
use crate::naming::permitting::{self, STICKY};
use crate::naming::stat_ahead;

/// The thing that has what an inode looks like, and a directory's names.
pub fn thing_of(state: &State, ino: Ino) -> Option<Thing> {
    let number = state.members.as_ref()?.number(ino)?;
    let kind = state.names.inode(ino)?.kind;
    Some(if kind == Kind::Directory { Thing::Directory(number) } else { Thing::File(number) })
}

/// What comes of a look at what another member has; `None`: the tables say it.
///
/// # Errors
/// If who asks must wait, and what the other member says.
pub fn look(state: &mut State, caller: &Caller, ino: Ino, what: Look) -> Result<Option<Outcome>> {
    let Some(thing) = thing_of(state, ino) else { return Ok(None) };
    let by = By { person: (*caller.person).clone(), what };
    let body = by.body()?;
    let finds = Work::Find(body.clone());
    if !requiring::has_wished(state, thing, &finds)? {
        match requiring::need(state, thing, &Work::Look(body))? {
            Have::Here => return Ok(None),
            Have::Done(answer) => return outcome(state, answer).map(Some),
            Have::Missed => {}
            Have::Shown => {
                let copy = state.members.as_ref().and_then(|members| members.copy(thing));
                let seen = copy.map(|copy| copy.seen(&by.what)).transpose()?;
                if let Some(seen) = seen.flatten() {
                    return Ok(Some(seen));
                }
            }
        }
    }
    match requiring::need(state, thing, &finds)? {
        Have::Here | Have::Shown | Have::Missed => Ok(None),
        Have::Done(answer) => outcome(state, answer).map(Some),
    }
}

/// What comes of a change of what another member has, and who has it carries it out; `None`: it is
/// to be made here.
///
/// # Errors
/// As [`look`]'s.
pub fn change(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    what: Change,
) -> Result<Option<Option<Number>>> {
    let Some(thing) = thing_of(state, ino) else { return Ok(None) };
    let by = By { person: (*caller.person).clone(), what };
    match requiring::need(state, thing, &Work::Change(by.body()?))? {
        Have::Done(answer) => match outcome(state, answer)? {
            Outcome::Done(made) => Ok(Some(made)),
            _ => Err(Error::new(ErrorKind::Malformed, "what another member says")),
        },
        Have::Here | Have::Shown | Have::Missed => {
            was_changed(state, ino);
            Ok(None)
        }
    }
}

/// Something is changed by programs here: it is in use.
pub fn was_changed(state: &mut State, ino: Ino) {
    if let Some(thing) = thing_of(state, ino) {
        let now = state.world.now();
        state.members.iter_mut().for_each(|members| members.was_changed(thing, now));
    }
}

/// What leads to a directory from the root, and itself.
///
/// # Errors
/// [`ErrorKind::NotFound`] if that is not known.
pub fn way_to(state: &State, directory: Ino) -> Result<Way> {
    let gone = || Error::new(ErrorKind::NotFound, format!("directory {directory}"));
    let (mut way, mut at) = (Way::new(), directory);
    while at != ROOT {
        let (parent, name) = state.names.name_of(at).ok_or_else(gone)?;
        let number = state.members.as_ref().and_then(|members| members.number(at));
        way.push((number.ok_or_else(gone)?, name));
        at = parent;
    }
    way.reverse();
    Ok(way)
}

/// Has several directories here, and stay until the request has run.
///
/// # Errors
/// As [`look`]'s.
pub fn take_all(state: &mut State, inos: &[Ino]) -> Result<()> {
    for ino in inos {
        let path = || state.names.path(*ino).unwrap_or_default();
        permitting::permit_names_in(state, *ino, &path())?;
    }
    let things = inos.iter().filter_map(|ino| thing_of(state, *ino));
    let directories = things.filter(|thing| matches!(thing, Thing::Directory(_))).collect();
    requiring::hold_all(state, &directories)?;
    inos.iter().for_each(|ino| was_changed(state, *ino));
    Ok(())
}

/// A directory that is here is about to say something else than others have been shown, be it
/// that nobody here has looked since: they are shown it no more.
///
/// # Errors
/// If it must wait for that.
pub fn is_shown_no_more(state: &mut State, directory: Ino) -> Result<()> {
    let Some(thing) = thing_of(state, directory) else { return Ok(()) };
    let members = state.members.as_ref();
    if members.is_some_and(|members| {
        members.access(thing, state) == Access::Look || members.is_shown_to_others(thing)
    }) {
        requiring::hold_all(state, &[thing].into())?;
    }
    Ok(())
}

/// What is to be here, as it was taken. It is not if its name has come to stand for something else
/// since it was looked at: then all is done anew.
///
/// # Errors
/// If it is not.
pub fn must_be_here(state: &mut State, ino: Ino) -> Result<()> {
    match thing_of(state, ino) {
        Some(thing @ Thing::Directory(_)) => requiring::must_stay(state, thing),
        _ => Ok(()),
    }
}

/// Refuses what is not done yet where there are several machines.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn only_alone(state: &State, path: &[u8]) -> Result<()> {
    match state.members {
        None => Ok(()),
        Some(_) => Err(refuse(ErrorKind::Unsupported, path)),
    }
}

/// Has a file that was born here, where its bytes are, before they are used.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if that is elsewhere; as [`look`]'s.
pub fn file_is_here(state: &mut State, ino: Ino, path: &[u8]) -> Result<()> {
    let Some(thing @ Thing::File(number)) = thing_of(state, ino) else { return Ok(()) };
    if state.members.as_ref().is_some_and(|members| !members.is_born_here(number)) {
        return Err(refuse(ErrorKind::Unsupported, path));
    }
    requiring::need(state, thing, &Work::Take).map(drop)
}

/// What another member says that has come of it.
///
/// # Errors
/// If it was not done.
pub fn outcome(state: &mut State, answer: Answer) -> Result<Outcome> {
    let answer = answer.map_err(|failure| match failure {
        Failure::Removed(member) => requiring::is_removed(state, member),
        failure => failure.error(),
    });
    match Outcome::of(&answer?)? {
        Outcome::Failed(error) => Err(error),
        other => Ok(other),
    }
}

/// What the member says that decides a number, of what only it knows: nothing of it is kept.
///
/// # Errors
/// If who asks must wait, and what the other member says.
pub fn told_of(state: &mut State, caller: &Caller, of: Number, what: Look) -> Result<Outcome> {
    let by = By { person: (*caller.person).clone(), what };
    ask_home(state, of, &Work::Find(by.body()?))
}

/// Has something done by the member that decides a number, and by it alone.
///
/// # Errors
/// As [`told_of`]'s.
pub fn ask_home(state: &mut State, of: Number, work: &Work) -> Result<Outcome> {
    match requiring::need(state, Thing::File(of), work)? {
        Have::Done(answer) => outcome(state, answer),
        Have::Here | Have::Shown | Have::Missed => {
            Err(Error::new(ErrorKind::Malformed, "what another member says of its own"))
        }
    }
}

/// The place of what another member speaks of.
pub fn place(state: &mut State, child: &Child) -> Result<Ino> {
    let place = state.members.as_ref().and_then(|members| members.place(child.number));
    if let Some(ino) = place.filter(|ino| state.names.inode(*ino).is_some()) {
        return Ok(ino);
    }
    state.names.reserve()?;
    let (ino, number) = (state.names.next_ino(), child.number);
    let text = child.text.clone();
    state.record(Membership::Born { ino, number, kind: child.kind, text });
    Ok(ino)
}

/// Others may have something in a directory, or below: there and in all above it programs ask
/// before they change names.
pub fn overlay(state: &mut State, directory: Ino) {
    let mut at = Some(directory);
    while let Some(ino) = at {
        if state.names.inode(ino).is_some_and(|inode| !inode.is(flag::OVERLAY)) {
            state.record(Membership::Overlaid { ino });
        }
        at = state.names.above(ino).filter(|above| *above != ino);
    }
}

/// Something has got a name in this directory, which may be another member's, or have something of
/// it below.
pub fn has_come(state: &mut State, (ino, directory): (Ino, Ino)) {
    let others = flag::ELSEWHERE | flag::FAR | flag::OVERLAY;
    let is_others = state.names.inode(ino).is_some_and(|inode| inode.flags & others != 0);
    if state.members.is_some() && state.backing.is_some() && is_others {
        overlay(state, directory);
    }
}

/// Whether the tables say what names a directory has.
pub fn is_here(state: &State, directory: Ino) -> bool {
    let thing = thing_of(state, directory);
    let members = state.members.as_ref().zip(thing);
    members.is_none_or(|(members, thing)| members.has(thing, state))
}

/// Whether this server alone knows how something is called: where there is a permanent store, its
/// own file that has a name, or had its last one. What others have said may be older. Not if
/// another file is about to take that name.
pub fn knows_name(state: &State, ino: Ino) -> bool {
    let own = |inode: &Inode| inode.kind == Kind::File && !inode.is(flag::FAR);
    let Some(members) = state.members.as_ref().filter(|_| state.backing.is_some()) else {
        return false;
    };
    let inode = state.names.inode(ino).filter(own);
    let settled = inode.is_some_and(|inode| inode.is(flag::NAMED) || inode.links == 0);
    settled && !members.is_adrift(ino)
}

/// In a directory that another member has, a name stands for this, or for nothing: so the tables
/// have it, too, as far as nobody looks there but for a path.
pub fn is_called(state: &mut State, (parent, name): (Ino, &[u8]), is: Option<Ino>) {
    let known = state.names.child_here(parent, name);
    let is_known = |ino: &Ino| knows_name(state, *ino);
    if known == is || is_here(state, parent) || known.iter().chain(&is).any(is_known) {
        return;
    }
    // Where clients look by themselves, what was heard before the copy came is older.
    let borrowed = state.names.is_borrowed(parent);
    if borrowed && !is_copied(state, (parent, name), is) {
        return;
    }
    // What is brought is brought by these places, as long as directories are on their way there.
    let stays = |ino: &Ino| {
        let inode = state.names.inode(*ino);
        inode.is_some_and(|inode| inode.is_directory() && inode.is(flag::NAMED))
    };
    let rests = !state.names.resting().is_empty() && !is.is_some_and(|ino| is_new(state, ino));
    if rests && known.iter().chain(&is).any(stays) {
        return;
    }
    if known.is_some() {
        state.record(Membership::Unnamed { parent, name: name.into() });
    }
    let Some(ino) = is else { return };
    // What has a name in a directory that is here has it there; a file may have others.
    let has_name = state.names.names_of(ino).iter().any(|(above, _)| is_here(state, *above));
    let may_have = !has_name || (borrowed && is_file(state, ino));
    let named = may_have && !state.names.is_within(parent, ino);
    if named && has_name_too(state, (parent, name), ino).is_ok() && borrowed {
        state.names.may_look(parent, flag::BORROWED);
    }
}

/// Whether it is a file that was created here and has no name yet. Who gives it one has its
/// directory, so that nobody is moving what had that name; and it is not brought without.
fn is_new(state: &State, ino: Ino) -> bool {
    let own = |inode: Inode| inode.kind == Kind::File && !inode.is(flag::FAR);
    state.names.inode(ino).is_some_and(|inode| own(inode) && !inode.is(flag::NAMED))
}

fn is_file(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.kind == Kind::File)
}

/// Something has this name from now on. What is no file has no other; a file keeps those of which
/// the tables say how they are: what else is known of its names is older.
///
/// # Errors
/// If there is no room for it.
pub fn has_name_too(state: &mut State, (parent, name): (Ino, &[u8]), ino: Ino) -> Result<()> {
    if is_file(state, ino) && does(Step::KeepNames) {
        let knows_all = state.backing.is_some() && asking::number_of(state, ino).is_none();
        for (above, older) in state.names.names_of(ino) {
            let stays = above == parent || is_here(state, above) || state.names.is_borrowed(above);
            if !knows_all && !stays {
                state.record(Membership::Unnamed { parent: above, name: older });
            }
        }
        if state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED)) {
            state.names.reserve()?;
            let (alias, name) = (state.names.next_ino(), name.into());
            state.record(Fact::Alias { ino, alias, parent, name });
            return Ok(());
        }
    }
    state.record(Membership::Named { ino, parent, name: name.into() });
    Ok(())
}

/// Whether the copy of a directory says so of a name.
fn is_copied(state: &State, (parent, name): (Ino, &[u8]), is: Option<Ino>) -> bool {
    let thing = thing_of(state, parent);
    let Some((members, thing)) = state.members.as_ref().zip(thing) else { return false };
    let said = members.copy(thing).and_then(|copy| copy.child(name)).map(|child| child.number);
    said == is.and_then(|ino| members.number(ino))
}

/// Has the tables say what the copy of something does, of a directory's names as far as they say
/// anything. Whether they do: then clients may look at it by themselves.
fn is_as_copied(state: &mut State, ino: Ino, copy: &Copy) -> bool {
    let (Ok(seen), Some(inode)) = (copy.attributes(), state.names.inode(ino)) else {
        return false;
    };
    if !does(Step::CompareCopies) {
        return true;
    }
    // What has lost its last name where it was born is not taken for what has lost it here.
    if seen.links == 0 {
        return false;
    }
    is_seen(state, ino, *seen);
    if !inode.is_directory() {
        return state.attributes(ino) == Some(Attributes { ino, ..*seen });
    }
    let names: Vec<Vec<u8>> = state.names.children(&inode).map(|(name, _)| name).collect();
    names.into_iter().all(|name| {
        let said = copy.child(&name).map(|child| child.number);
        let place = said.and_then(|number| state.members.as_ref()?.place(number));
        is_called(state, (ino, &name), place);
        // Of what is missing the server is asked.
        state.names.child_here(ino, &name).is_none_or(|ino| Some(ino) == place)
    })
}

/// Whether what a name is said to stand for is the permanent store's from now on: it was born on a
/// member that has left in order, which had brought it. Who says so does not know that yet.
pub fn is_in_store(state: &State, child: &Child) -> bool {
    let members = state.members.as_ref().filter(|_| state.backing.is_some());
    let has_left = members.is_some_and(|members| members.has_left(child.number.born()));
    has_left && child.kind != Kind::Directory
}

/// Members of which a name that was shown stands for something else from now on, which who has
/// shown it is to say.
pub fn gone(state: &State) -> Gone {
    let members = state.members.as_ref().filter(|_| state.backing.is_some());
    members.map(|members| members.gone_homes()).unwrap_or_default()
}

/// Where what another member says is in the tables.
fn said(state: &mut State, child: Option<Child>) -> Result<Option<Ino>> {
    let Some(child) = child else { return Ok(None) };
    if is_in_store(state, &child) {
        state.members.iter_mut().for_each(|members| members.meets_gone());
        return Err(refuse(ErrorKind::NotFound, &child.name));
    }
    place(state, &child).map(Some)
}

/// What a name in a directory stands for that another member has; `None`: the tables say it.
///
/// # Errors
/// As [`look`]'s.
pub fn name(
    state: &mut State,
    caller: &Caller,
    directory: Ino,
    name: &[u8],
) -> Result<Option<Option<Ino>>> {
    match look(state, caller, directory, Look::Name(name.into()))? {
        Some(Outcome::Name(child)) => {
            let ino = said(state, child)?;
            is_called(state, (directory, name), ino);
            Ok(Some(ino))
        }
        Some(_) => Err(Error::new(ErrorKind::Malformed, "what another member says")),
        None => Ok(None),
    }
}

/// The same, and the tables say then what the directory looks like: for who goes through it.
///
/// # Errors
/// As [`look`]'s.
pub fn step(
    state: &mut State,
    caller: &Caller,
    directory: Ino,
    name: &[u8],
) -> Result<Option<Option<Ino>>> {
    match looks_like(state, caller, directory, Look::Step(name.into()))? {
        Some(Outcome::Step(seen, child)) => {
            is_seen(state, directory, seen);
            let ino = said(state, child)?;
            is_called(state, (directory, name), ino);
            Ok(Some(ino))
        }
        Some(_) => Err(Error::new(ErrorKind::Malformed, "what another member says")),
        None => Ok(None),
    }
}

/// Has the tables say what an inode looks like.
///
/// # Errors
/// As [`look`]'s.
pub fn attributes(state: &mut State, caller: &Caller, ino: Ino) -> Result<()> {
    let seen = looks_like(state, caller, ino, Look::Attributes);
    if seen.is_err() && state.fetches.is_waiting() {
        stat_ahead::go_on(state, caller, ino)?;
    }
    if let Some(Outcome::Attributes(seen)) = seen? {
        is_seen(state, ino, seen);
        may_look_by_itself(state, ino);
    }
    Ok(())
}

/// Has the tables say whose something is, where only he takes its name away: in a sticky directory.
///
/// # Errors
/// As [`look`]'s.
pub fn is_known_whose(state: &mut State, caller: &Caller, parent: Ino, ino: Ino) -> Result<()> {
    let above = state.names.inode(parent).map(|inode| inode.attributes());
    let asks = above.is_some_and(|is| is.mode & STICKY != 0 && !caller.person.owns(&is));
    if asks { attributes(state, caller, ino) } else { Ok(()) }
}

/// What was shown before it had a place here has no mark yet.
fn may_look_by_itself(state: &mut State, ino: Ino) {
    let Some(thing @ Thing::File(_)) = thing_of(state, ino) else { return };
    let members = state.members.as_ref();
    let access = members.map(|members| members.access(thing, state));
    if let Some(access @ Access::Leased) = access
        && !state.names.is_borrowed(ino)
    {
        let how = looks(state, thing, (ino, access));
        state.names.may_look(ino, how);
    }
}

/// How clients may look at something by themselves: at attributes, and a directory's names.
pub fn looks(state: &mut State, thing: Thing, (ino, access): (Ino, Access)) -> u16 {
    // What is written here is to be seen here, and only the server knows of all of it.
    if matches!(thing, Thing::File(file) if state.far.batches.has_some(file)) {
        return 0;
    }
    let copy = state.members.as_ref().and_then(|members| members.copy(thing)).cloned();
    match (access, copy) {
        (Access::Look, None) => flag::SHOWN,
        (Access::Leased, Some(copy)) if is_as_copied(state, ino, &copy) => flag::BORROWED,
        _ => 0,
    }
}

/// A look at what may be gone where it was born.
fn looks_like(state: &mut State, caller: &Caller, ino: Ino, what: Look) -> Result<Option<Outcome>> {
    let seen = look(state, caller, ino, what);
    if seen.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound) {
        state.members.iter_mut().for_each(|members| members.meets_gone());
    }
    seen
}

/// The tables say so, unless they say how it is: then what was seen is older.
pub fn is_seen(state: &mut State, ino: Ino, seen: Attributes) {
    if is_here(state, ino) {
        return;
    }
    let attributes = Attributes { ino, ..seen };
    if state.attributes(ino) != Some(attributes) {
        state.record(Membership::Looks { attributes });
    }
}

/// More names than any directory has.
const NAMES_MAX: usize = 1 << 24;

/// All names of a directory that another member has, in order; `None`: the tables say them.
///
/// # Errors
/// As [`look`]'s.
pub fn names(state: &mut State, caller: &Caller, directory: Ino) -> Result<Option<Vec<Name>>> {
    let mut names = Vec::new();
    let mut after = Vec::new();
    loop {
        let look = Look::Names(after.clone());
        let (children, last) = match self::look(state, caller, directory, look)? {
            Some(Outcome::Names(children, last)) => (children, last),
            Some(_) => return Err(Error::new(ErrorKind::Malformed, "what another member says")),
            None => return Ok(None),
        };
        let follows = |children: &[Child]| {
            let first = children.first().is_none_or(|first| names.is_empty() || first.name > after);
            first && children.is_sorted_by(|one, next| one.name < next.name)
        };
        if !follows(&children) || names.len() > NAMES_MAX {
            return Err(Error::new(ErrorKind::Malformed, "names that another member says"));
        }
        after = children.last().map(|child| child.name.clone()).unwrap_or_default();
        for child in children {
            let number = Some(child.number).filter(|number| number.counted() != 0);
            names.push(Name { name: child.name, number, kind: child.kind });
        }
        if last || after.is_empty() {
            return Ok(Some(names));
        }
    }
}
