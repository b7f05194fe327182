//! Files that are created where another member has the directory. Each is born here, so that its
//! bytes are where they are written, and has no name: that member is asked for it. So many may
//! create in one directory at once, each with one question, and none needs the directory.
//!
//! Invariants: it is born, and its name asked for, in one transaction. Until it is known whether it
//! has that, it stays, and what the other member says counts where it is heard: who has asked may
//! be dead by then. Then it has its name, which the permanent store is owed with it, or it goes.
//! Who has asked learns what came of it from what was written down, also from another process of
//! this server, and opens it also if it has lost its name again. Who gives names in a directory has
//! had the permanent store brought what it was owed of them before (`sharing/leaving`).

use terral_format::disk::membership::{Creation, Membership};
use terral_format::ids::{Asker, Ino, SessionSlot, Thing, Wish};
use terral_format::local::names::flag;
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::peers::{Answer, Failure, Work};
use terral_format::wire::things::{By, Change, Child, Outcome};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Input;

use crate::authority::caller::Caller;
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::asking;
use crate::members::requiring::{self, Have};
use crate::members::stepping::tell;
use crate::naming::making::{self, New};
use crate::naming::{charging, elsewhere, homes, lookup, permitting};

/// `ENOSPC`.
const ENOSPC: i32 = 28;

/// What a name stands for.
pub enum Created {
    /// The file that was created.
    New(Ino),
    /// Something that had it before.
    There(Ino),
}

/// What comes of the file that this request has begun to create before; `None`: it has begun none,
/// or is to do so anew.
///
/// # Errors
/// As those of [`begin`].
pub fn begun(state: &mut State, caller: &Caller) -> Result<Option<Created>> {
    let Some(members) = &state.members else { return Ok(None) };
    let its = members.asker().and_then(|asker| members.creation_of(asker));
    let Some((wish, Creation { ino, named, .. })) = its.map(|(w, c)| (w, c.clone())) else {
        return Ok(None);
    };
    if named == Some(true) {
        return Ok(Some(Created::New(ino)));
    }
    let Some((thing, work)) = members.work_of(wish) else {
        is_left(state, wish);
        return Ok(None);
    };
    go_on(state, caller, wish, (thing, &work))
}

/// Begins to create a file where another member has the directory; `None`: that is here.
///
/// # Errors
/// If who asks must wait, and what the other member says.
pub fn begin(
    state: &mut State,
    caller: &Caller,
    (parent, name): (Ino, &[u8]),
    mode: u32,
) -> Result<Option<Created>> {
    let Some(thing) = elsewhere::thing_of(state, parent) else { return Ok(None) };
    if requiring::may_change(state, thing) {
        elsewhere::was_changed(state, parent);
        return Ok(None);
    }
    let refused = permitting::permit_names_in(state, parent, name);
    if let Err(full) = refused.and_then(|()| charging::may_make(state, (parent, name))) {
        // What is there already is opened.
        let there = lookup::child(state, caller, parent, name)?;
        return there.map(|ino| Some(Created::There(ino))).ok_or(full);
    }
    state.names.reserve()?;
    let next = state.names.next_ino();
    let number = state.members.as_ref().and_then(|members| members.number(next));
    let number = number.ok_or_else(|| refuse(ErrorKind::NoSpace, name))?;
    let child = Child { name: name.into(), number, kind: Kind::File, text: Vec::new() };
    let by = By { person: (*caller.person).clone(), what: Change::Name(child) };
    let work = Work::Change(by.body()?);
    let wish = requiring::wish(state, thing, &work)?;
    let new = New { place: (parent, b""), kind: Kind::File, mode, target: b"" };
    let ino = making::make(state, caller, &new);
    looks(state, ino, |is| Attributes { links: 1, gid: caller.person.group, ..is });
    let asker = state.members.as_ref().and_then(|members| members.asker());
    let creation = Creation { asker, parent, name: name.into(), ino, named: None };
    state.record(Membership::Creates { wish, creation: Some(creation) });
    go_on(state, caller, wish, (thing, &work))
}

/// What something looks like from now on.
fn looks(state: &mut State, ino: Ino, change: impl FnOnce(Attributes) -> Attributes) {
    if let Some(attributes) = state.attributes(ino) {
        state.record(Membership::Looks { attributes: change(attributes) });
    }
}

/// `None`: all is to be done anew.
fn go_on(
    state: &mut State,
    caller: &Caller,
    wish: Wish,
    (thing, work): (Thing, &Work),
) -> Result<Option<Created>> {
    let have = requiring::need(state, thing, work)?;
    let creation = state.members.as_ref().and_then(|members| members.creation(wish)).cloned();
    let malformed = || Error::new(ErrorKind::Malformed, "what another member says");
    let Creation { parent, name, ino, named, .. } = creation.ok_or_else(malformed)?;
    let there = match have {
        Have::Done(answer) => match elsewhere::outcome(state, answer).map_err(not_here)? {
            Outcome::Step(_, Some(child)) => {
                let there = elsewhere::place(state, &child)?;
                // How one is called that was born here is known, and may have changed.
                if asking::number_of(state, there).is_some() {
                    elsewhere::is_called(state, (parent, &name), Some(there));
                }
                there
            }
            _ => return Err(malformed()),
        },
        Have::Here | Have::Shown | Have::Missed if named.is_some() => {
            // Something had the name, and may have lost it since.
            requiring::forget(state, wish);
            state.record(Membership::Creates { wish, creation: None });
            return Ok(None);
        }
        Have::Here | Have::Shown | Have::Missed => {
            // The directory has come here instead.
            elsewhere::was_changed(state, parent);
            let Work::Change(body) = work else { return Err(malformed()) };
            let Change::Name(child) = By::<Change>::of(body)?.what else { return Err(malformed()) };
            let named = name_in(state, caller, parent, &child);
            if !state.fetches.is_waiting() {
                let above = state.attributes(parent).filter(|_| named.as_ref() == Ok(&ino));
                settle(state, wish, above);
            }
            named?
        }
    };
    Ok(Some(if there == ino { Created::New(ino) } else { Created::There(there) }))
}

/// Memory that is full elsewhere is none that is to be waited for here.
fn not_here(error: Error) -> Error {
    match error.kind {
        ErrorKind::NoSpace => Error { kind: ErrorKind::TooMany, errno: ENOSPC, ..error },
        _ => error,
    }
}

/// Has a file called so in a directory that is here, unless that stands for something. What it
/// stands for then.
///
/// # Errors
/// If who asks must wait; those of creat(2).
pub fn name_in(state: &mut State, caller: &Caller, parent: Ino, child: &Child) -> Result<Ino> {
    lookup::permit_search_in(state, caller, parent, &child.name)?;
    let place = state.members.as_ref().and_then(|members| members.place(child.number));
    match place.and_then(|ino| state.names.inode(ino)) {
        Some(inode) if inode.kind != Kind::File => {
            return Err(Error::new(ErrorKind::Malformed, "a name for what is no file"));
        }
        // It was done before.
        Some(inode) if inode.is(flag::NAMED) => return Ok(inode.ino),
        _ => {}
    }
    if let Some(there) = lookup::child_or_new(state, caller, parent, &child.name)? {
        return Ok(there);
    }
    permitting::permit_change_in(state, caller, parent, &child.name)?;
    permitting::permit_file_in(state, parent, &child.name)?;
    let ino = elsewhere::place(state, child)?;
    state.record(Membership::Named { ino, parent, name: child.name.clone() });
    let time_ns = state.storage.time_ns();
    let (modified_ns, changed_ns) = (time_ns, time_ns);
    looks(state, parent, |is| Attributes { modified_ns, changed_ns, ..is });
    Ok(ino)
}

/// Another member has said whether a file is called so, or it will not be known. Whether nobody
/// else waits for that.
pub fn is_answered(state: &mut State, wish: Wish, answer: &Answer) -> bool {
    let creation = state.members.as_ref().and_then(|members| members.creation(wish));
    let Some(Creation { asker, ino, named: None, .. }) = creation.cloned() else { return false };
    let number = state.members.as_ref().and_then(|members| members.number(ino));
    match answer {
        // It may be done yet. Who has asked is told so, and then it is found out.
        Err(Failure::Silent(_)) if asker.is_some() => {}
        Err(Failure::Silent(_)) => ask_again(state, wish),
        answer => {
            let named = match elsewhere::outcome(state, answer.clone()) {
                Ok(Outcome::Step(above, Some(is))) if Some(is.number) == number => Some(above),
                _ => None,
            };
            settle(state, wish, named);
        }
    }
    asker.is_none()
}

/// Nobody waits for it any more: what its directory's member has done about it, it says if it is
/// asked again. Without a permanent store nothing depends on that: it stays as it is, with a name
/// there or with none.
fn ask_again(state: &mut State, wish: Wish) {
    let wanted = state.members.as_ref().and_then(|members| members.work_of(wish));
    requiring::forget(state, wish);
    match wanted {
        Some((thing, work)) if homes::decide(state) => {
            tell(state, Input::Wish { wish, thing, work });
        }
        _ => state.record(Membership::Creates { wish, creation: None }),
    }
}

/// It is known whether a file is called what it was to be called: then in a directory that looks
/// like this.
fn settle(state: &mut State, wish: Wish, named: Option<Attributes>) {
    let creation = state.members.as_ref().and_then(|members| members.creation(wish));
    let Some(creation) = creation.filter(|creation| creation.named.is_none()).cloned() else {
        return;
    };
    let Creation { asker, parent, ino, .. } = creation;
    // It may have lost that name already, or have got another one.
    let inode = state.names.inode(ino).filter(|inode| inode.links > 0);
    let has_name = inode.as_ref().is_some_and(|inode| inode.is(flag::NAMED));
    if let Some(above) = named.filter(|above| above.mode & u32::from(making::SET_GROUP) != 0) {
        looks(state, ino, |is| Attributes { gid: above.gid, ..is });
    }
    if named.is_some() && inode.is_some() && !has_name {
        elsewhere::is_called(state, (parent, &creation.name), Some(ino));
    }
    if has_name || named.is_some() {
        owing::owe(state, ino);
    } else if inode.is_some() {
        looks(state, ino, |is| Attributes { links: 0, ..is });
        state.look_again_at(ino);
    }
    let settled = asker.map(|_| Creation { named: Some(named.is_some()), ..creation });
    if settled.is_none() {
        requiring::forget(state, wish);
    }
    state.record(Membership::Creates { wish, creation: settled });
    // Who waits to give it further names.
    state.members.iter_mut().for_each(|members| members.go_on());
}

/// The directory has come here for a file that nobody waits for any more: it goes. False: somebody
/// does, or it is no such wish.
pub fn goes(state: &mut State, wish: Wish) -> bool {
    let creation = state.members.as_ref().and_then(|members| members.creation(wish));
    let is = creation.is_some_and(|creation| creation.asker.is_none() && creation.named.is_none());
    if is {
        settle(state, wish, None);
    }
    is
}

/// A request has its answer.
pub fn has_run(state: &mut State, asker: Asker) {
    let its = state.members.as_ref().and_then(|members| members.creation_of(asker));
    if let Some((wish, _)) = its {
        is_left(state, wish);
    }
}

/// A session is over.
pub fn has_ended(state: &mut State, session: SessionSlot) {
    let its = state.members.as_ref().map(|members| members.creations_by(session));
    its.into_iter().flatten().for_each(|wish| is_left(state, wish));
}

/// Who has asked for it waits no more.
fn is_left(state: &mut State, wish: Wish) {
    let members = state.members.as_ref();
    let creation = members.and_then(|members| members.creation(wish)).cloned();
    let Some(creation) = creation else { return };
    // It may have lost its name since, and was not removed.
    state.look_again_at(creation.ino);
    let is_unnamed = creation.named.is_none();
    let creation = is_unnamed.then_some(Creation { asker: None, ..creation });
    state.record(Membership::Creates { wish, creation });
    requiring::is_left(state, wish);
    if is_unnamed {
        find_out(state, wish);
    }
}

/// Finds out what has come of those for which nobody waits: it is said again, if anything is known.
fn find_out(state: &mut State, wish: Wish) {
    let members = state.members.as_ref();
    match members.and_then(|members| members.work_of(wish)) {
        Some((thing, work)) => tell(state, Input::Wish { wish, thing, work }),
        None => settle(state, wish, None),
    }
}

/// The same for all, also those that a server before this one has left.
pub fn tick(state: &mut State) {
    let left = state.members.as_ref().map(|members| members.left_unnamed());
    left.into_iter().flatten().for_each(|wish| find_out(state, wish));
}

/// All others are gone. What somebody on another machine has written to had its name; of what is
/// empty nobody knows, and something else may be called so.
pub fn settle_alone(state: &mut State) {
    let unnamed: Vec<(Wish, Ino)> =
        state.members.iter().flat_map(|members| members.unnamed()).collect();
    for (wish, ino) in unnamed {
        let members = state.members.as_ref();
        let Some(creation) = members.and_then(|members| members.creation(wish)) else { continue };
        let free = state.names.child_here(creation.parent, &creation.name).is_none();
        let is_used = free && state.attributes(ino).is_some_and(|is| is.size > 0);
        let above = state.attributes(creation.parent).filter(|_| is_used);
        settle(state, wish, above);
    }
}
