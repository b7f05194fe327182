//! Files without name and openers.

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Thing};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::far::{asking, holders, layouts, lent, places};
use crate::locks::releasing;
use crate::naming::{counting, nodes};
use crate::storage::{barring, closed};

/// A file without name and openers: its bytes go. Who has the bytes of one without a name, or has
/// shown it, is told. What another member knows under other names has no place here.
pub fn remove(state: &mut State, ino: Ino) {
    let Some(inode) = state.names.inode(ino) else { return };
    let is_nameless = inode.links == 0 && !inode.is(flag::NAMED);
    let is_nameless = is_nameless && inode.kind == Kind::File;
    if inode.is(flag::FAR) && inode.links > 0 {
        if let Some(number) = asking::number_of(state, ino) {
            places::forget_unused(state, ino, Thing::File(number));
        }
        return;
    }
    if let Some(number) = asking::number_of(state, ino).filter(|_| is_nameless) {
        // Where it was born its bytes go. Without random bits it is said when it is looked at anew.
        let _ = asking::gone(state, number);
        return;
    }
    if is_nameless {
        holders::has_lost_its_name(state, ino);
    }
    if !state.is_orphan(&inode) {
        return;
    }
    if holders::may_be_open(state, ino) {
        return;
    }
    if !barring::bar(state, ino) {
        state.look_again_at(ino);
        return;
    }
    remove_barred(state, ino, &inode);
    barring::unbar(state);
}

/// What was born here has lost a name on another machine, the last one that was known there, which
/// says so with a token.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is no more.
pub fn lost_a_name(state: &mut State, ino: Ino, (by, token): (Member, u64)) -> Result<()> {
    if state.names.inode(ino).is_some() && counting::is_lost(state, ino, (by, token)) {
        return Ok(());
    }
    lost_elsewhere(state, ino)
}

fn lost_elsewhere(state: &mut State, ino: Ino) -> Result<()> {
    let missing = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
    let inode = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    inode.filter(|inode| !inode.is(flag::FAR)).ok_or_else(missing)?;
    let attributes = state.attributes(ino).ok_or_else(missing)?;
    if counting::is_several(state, ino) {
        return Ok(());
    }
    for (parent, name) in state.names.names_of(ino) {
        state.record(Membership::Unnamed { parent, name });
    }
    state.record(Membership::Looks { attributes: Attributes { links: 0, ..attributes } });
    state.look_again_at(ino);
    Ok(())
}

fn remove_barred(state: &mut State, ino: Ino, inode: &Inode) {
    if !closed::free(state, inode) {
        // The drain is at it, finds nothing more, and removes it when it is through.
        return;
    }
    state.quotas.forget(ino);
    nodes::remove_node(state, inode);
    state.names.forget(ino);
    holders::forget(state, ino);
    lent::forget(state, ino);
    layouts::forget(state, ino);
    state.far.offers.forget_all(ino);
    state.members.iter_mut().for_each(|members| members.forget_lost(|of| of == ino));
    releasing::unlock_gone(state, ino);
    state.xattrs.forget(ino);
    state.fences.forget(ino);
    state.updates.forget(ino);
    state.debts.lost(ino, None);
}
