//! What a thing is, as others are told, and how it comes into the tables when others tell.
//!
//! Invariant: what comes replaces what the tables had of it, and nothing else: a name that stays
//! keeps its inode, and one that goes leaves its inode to who has it open, or has what is in it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Thing};
use terral_format::local::names::Inode;
use terral_format::wire::body::Body;
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::things::{Change, Child, Directory, Node};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Access;

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::far::{places, shown};
use crate::members::copies::Copy;
use crate::naming::{adopting, elsewhere, exchanging, homes, whole};

fn gone(thing: Thing) -> Error {
    Error::new(ErrorKind::NotFound, format!("{thing:?}"))
}

/// The inode of a thing that is here. What a directory has but its names and looks is a thing that
/// stays where that was born: clients look at none of it.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is none.
pub fn inode_of(state: &State, thing: Thing) -> Result<Inode> {
    let place = state.members.as_ref().and_then(|members| members.place(thing.number()));
    let inode = place.and_then(|ino| state.names.inode(ino));
    let is_it = |inode: &Inode| inode.is_directory() == matches!(thing, Thing::Directory(_));
    inode.filter(is_it).ok_or_else(|| gone(thing))
}

/// The same of what a change of names is about, which may be a directory that has its home here.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is none.
pub fn subject_of(state: &State, thing: Thing, change: &Change) -> Result<Inode> {
    let place = state.members.as_ref().and_then(|members| members.place(thing.number()));
    match (change, place.and_then(|ino| state.names.inode(ino))) {
        (Change::Unname(_) | Change::Move(..), Some(inode)) => Ok(inode),
        _ => inode_of(state, thing),
    }
}

/// The names of a directory that is here, as others are told.
pub fn children(state: &State, directory: &Inode) -> Vec<Child> {
    let child = |(name, inode): (Vec<u8>, Inode)| told(state, name, &inode);
    state.names.children(directory).filter_map(child).collect()
}

/// One of them.
pub fn child(state: &State, directory: &Inode, name: &[u8]) -> Option<Child> {
    let inode = state.names.inode(state.names.child_here(directory.ino, name)?)?;
    told(state, name.into(), &inode)
}

/// What has this name, as others are told: nothing if that is to be looked for anew.
pub fn told(state: &State, name: Vec<u8>, inode: &Inode) -> Option<Child> {
    if adopting::is_orphaned(state, inode.ino) {
        return None;
    }
    let number = state.members.as_ref()?.number(inode.ino)?;
    let text = state.names.target(inode.ino).unwrap_or_default();
    Some(Child { name, number, kind: inode.kind, text })
}

/// What a thing is that is here.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is no more, [`ErrorKind::NameTooLong`] if one message does not
/// hold it.
pub fn body_of(state: &State, thing: Thing) -> Result<Body> {
    let inode = inode_of(state, thing)?;
    let attributes = state.attributes(inode.ino).ok_or_else(|| gone(thing))?;
    match thing {
        Thing::Directory(_) => {
            let names = children(state, &inode);
            let all = names.len() == state.names.children(&inode).count();
            let whole = all && !whole::may_have_more(state, &inode);
            Directory { attributes, names, whole }.body()
        }
        _ => Node { attributes }.body(),
    }
}

/// The same; nothing if it is no more.
///
/// # Errors
/// [`ErrorKind::NameTooLong`] if one message does not hold it.
pub fn body_if_any(state: &State, thing: Thing) -> Result<Body> {
    match body_of(state, thing) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Body::default()),
        body => body,
    }
}

/// A thing has come: into the tables if it is this server's to change, or to decide; else it is a
/// copy.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what no member sends.
pub fn install(state: &mut State, thing: Thing, body: &Body) -> Result<()> {
    drop_copy(state, thing);
    let Some(members) = &state.members else { return Ok(()) };
    if members.access(thing, state) != Access::Change && !members.decides(thing) {
        let mut copy = Copy::of(thing, body)?;
        let gone = elsewhere::gone(state);
        copy.forget(|child| gone.had(child));
        if let Some(members) = &mut state.members {
            members.is_shown(thing, copy);
        }
        return Ok(());
    }
    if body.bytes().is_empty() {
        is_gone(state, thing);
        return Ok(());
    }
    let Some(ino) = place_of(state, thing)? else { return Ok(()) };
    let attributes = match thing {
        Thing::Directory(_) => {
            let directory = Directory::of(body)?;
            let members = state.members.as_ref();
            let is_own = |child: &Child| members.is_some_and(|m| m.is_born_here(child.number));
            let is_own = directory.names.iter().all(is_own);
            let names = directory.names.into_iter().map(|child| (child.name.clone(), child));
            let names: BTreeMap<_, _> = names.collect();
            exchanging::has_come_back(state, ino, |name| names.get(name).map(|it| it.number))?;
            has_names(state, ino, names)?;
            if directory.whole {
                whole::is_whole(state, thing);
            }
            if homes::decide(state) && !(directory.whole && is_own) {
                // What is not among them may be in the permanent store, or another one is to be
                // asked before names of its files are changed.
                state.record(Membership::Overlaid { ino });
            }
            directory.attributes
        }
        _ => Node::of(body)?.attributes,
    };
    let attributes = Attributes { ino, ..attributes };
    state.record(Membership::Looks { attributes });
    // A file that was born here has its times beside its size, which nobody else has changed.
    if let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) {
        let header = state.storage.memory().header(slot);
        header.modified_ns().store(attributes.modified_ns, Ordering::SeqCst);
        header.accessed_ns().store(attributes.accessed_ns, Ordering::SeqCst);
    }
    Ok(())
}

/// A directory is no more: nothing gets a name in it.
fn is_gone(state: &mut State, thing: Thing) {
    let inode = inode_of(state, thing).ok().filter(|inode| inode.is_directory());
    let attributes = inode.and_then(|inode| state.attributes(inode.ino));
    if let Some(is) = attributes.filter(|is| is.links > 0) {
        state.record(Membership::Looks { attributes: Attributes { links: 0, ..is } });
    }
}

/// The place of what has come. A directory of a removed member may come to its heir, who has never
/// heard of it.
fn place_of(state: &mut State, thing: Thing) -> Result<Option<Ino>> {
    match (inode_of(state, thing), thing) {
        (Ok(inode), _) => Ok(Some(inode.ino)),
        (Err(_), Thing::Directory(number)) => {
            let (name, kind, text) = (Vec::new(), Kind::Directory, Vec::new());
            let ino = elsewhere::place(state, &Child { name, number, kind, text })?;
            state.members.iter_mut().for_each(|members| members.wants_memory(thing));
            Ok(Some(ino))
        }
        (Err(_), _) => Ok(None),
    }
}

/// What was shown is so no more. False: nothing was.
pub fn drop_copy(state: &mut State, thing: Thing) -> bool {
    if let Thing::File(file) = thing {
        shown::over(state, file);
    }
    let borrowed = inode_of(state, thing).ok().filter(|it| state.names.is_borrowed(it.ino));
    if let Some(inode) = borrowed.filter(|_| does(Step::EndLooks)) {
        state.names.may_look(inode.ino, 0);
    }
    state.members.as_mut().is_some_and(|members| members.drop_copy(thing))
}

/// These are the names of a directory from now on, but for those that the permanent store has of a
/// member that has left: they are looked for there.
pub fn has_names(
    state: &mut State,
    parent: Ino,
    mut names: BTreeMap<Vec<u8>, Child>,
) -> Result<()> {
    let Some(directory) = state.names.inode(parent) else { return Ok(()) };
    names.retain(|_, child| !elsewhere::is_in_store(state, child));
    let before: Vec<_> = state.names.children(&directory).collect();
    let mut left = Vec::new();
    for (name, inode) in before {
        let number = state.members.as_ref().and_then(|members| members.number(inode.ino));
        if names.get(&name).is_some_and(|child| Some(child.number) == number) {
            names.remove(&name);
            continue;
        }
        state.record(Membership::Unnamed { parent, name });
        left.push(inode.ino);
    }
    let members = state.members.as_ref();
    let of_ours = members.is_none_or(|members| {
        let home = members.number(parent).map(|number| number.born());
        home.is_some_and(|home| members.is_ours(home))
    });
    let has_users = state.is_among_users() && !of_ours;
    for (name, child) in names {
        let ino = elsewhere::place(state, &child)?;
        // What a user's server may have said of it is nothing that its home does not know.
        if has_users && (elsewhere::knows_name(state, ino) || state.names.is_within(parent, ino)) {
            continue;
        }
        elsewhere::has_name_too(state, (parent, &name), ino)?;
    }
    left.into_iter().for_each(|ino| forget_unused(state, ino));
    Ok(())
}

/// As [`places::forget_unused`].
pub(super) fn forget_unused(state: &mut State, ino: Ino) {
    if let Some(thing) = elsewhere::thing_of(state, ino) {
        places::forget_unused(state, ino, thing);
    }
}
