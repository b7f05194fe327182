//! Further names of files, also of other machines' ones: who gives them, and how a file that was
//! born here lets one go which another machine removes, or has something else take.
//!
//! Where there are several machines, a file's home gives them ([`counting`]), which is asked by its
//! number. A name that it has let go is not the file's any more, in the permanent store, too, or
//! turns out to have stayed.

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, Member, Number};
use terral_format::local::names::Inode;
use terral_format::wire::message::{Kind, Target, gives_rights};
use terral_format::wire::things::{Change, Child, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::authority::quotas::Shift;
use crate::core::paths::{join, refuse, shown};
use crate::core::state::State;
use crate::debts::owing;
use crate::far::asking;
use crate::members::requiring;
use crate::naming::{charging, counting, doubts, elsewhere, homes, lookup, permitting};
use crate::needs::asking as store;

/// `r` and `w` of permission bits.
const READ_WRITE: u32 = 6;

/// Gives a file a further name, or one that has none its first; or has its home do so.
///
/// # Errors
/// Those of link(2).
pub fn link(state: &mut State, caller: &Caller, target: &Target<'_>, path: &[u8]) -> Result<()> {
    if state.members.is_some()
        && let Some(done) = homes::asked(state)?
    {
        return Ok(done);
    }
    let ino = lookup::target(state, caller, target)?;
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    let named = matches!(target, Target::Path(_));
    let what = Change::Link { path: path.into(), named };
    if asking::number_of(state, ino).is_some() {
        // What is wrong with the new name comes first, as it does at home.
        return homes::at_home(state, caller, ino, what).map(drop);
    }
    if state.members.is_some() {
        return match link_here(state, caller, ino, path, named) {
            Err(error) if error.kind == ErrorKind::BadHandle => Err(requiring::anew(state)),
            linked => linked,
        };
    }
    link_in(state, caller, ino, ((parent, name), path))
}

/// The same for a file that was born here.
///
/// # Errors
/// Those of link(2); [`ErrorKind::BadHandle`] if it has lost its last name, and `named` says that
/// it has one.
pub fn link_here(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    path: &[u8],
    named: bool,
) -> Result<()> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    elsewhere::take_all(state, &[parent])?;
    // It is not, if that is not known of all its names.
    let is_gone = |inode: Inode| inode.links == 0 && named && !state.names.is_leaving(ino);
    if state.names.inode(ino).is_none_or(is_gone) {
        return Err(refuse(ErrorKind::BadHandle, path));
    }
    link_in(state, caller, ino, ((parent, name), path))
}

/// The same in a directory that is here.
fn link_in(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    ((parent, name), path): ((Ino, &[u8]), &[u8]),
) -> Result<()> {
    if lookup::child_or_new(state, caller, parent, name)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, shown(path)));
    }
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    if inode.is_directory() {
        let refused = Error::new(ErrorKind::Unauthorized, shown(path));
        return Err(Error { errno: refused.kind.to_errno(), ..refused });
    }
    if inode.kind != Kind::File {
        elsewhere::only_alone(state, path)?;
    }
    permit_linking(state, caller, ino, path)?;
    permitting::permit_change_in(state, caller, parent, path)?;
    permitting::permit_file_in(state, parent, path)?;
    let mut shift = Shift::default();
    charging::moves(state, &mut shift, ino, (None, path));
    state.quotas.permit(&shift)?;
    doubts::must_have_its_names(state, ino)?;
    if inode.kind == Kind::File {
        counting::may_count(state, ino)?;
    }
    state.names.reserve()?;
    counting::comes(state, ino, (parent, name));
    let (alias, name, time_ns) = (state.names.next_ino(), name.into(), state.storage.time_ns());
    state.record(Fact::Linked { ino, alias, parent, name, time_ns });
    if inode.links == 0 {
        // All of it came into memory before it lost its last name.
        let record = inode.slot.map(|slot| state.storage.memory().record(slot));
        record.into_iter().for_each(|record| record.backed_bytes().store(0, Ordering::SeqCst));
        owing::owe(state, ino);
    }
    Ok(())
}

/// Refuses a further name of somebody else's file to who may not read and write it, or where
/// it gives its runner rights, if this machine does so (`protected_hardlinks`, proc(5)).
pub(super) fn permit_linking(state: &State, caller: &Caller, ino: Ino, path: &[u8]) -> Result<()> {
    let Some(is) = state.attributes(ino) else { return Ok(()) };
    let safe =
        is.kind == Kind::File && !gives_rights(is.mode) && caller.person.may(&is, READ_WRITE);
    if safe || caller.person.owns(&is) || !state.machine.protects_links() {
        return Ok(());
    }
    Err(permitting::not_permitted(path))
}

/// Another member's file is about to take this name of a file that was born here. How many it has
/// besides, and how it looks in the permanent store, if it has that name there.
///
/// # Errors
/// If it must wait until it has not, or is known to.
pub fn lets_go(
    state: &mut State,
    ino: Ino,
    by: Member,
    (directory, name): (Number, &[u8]),
) -> Result<Outcome> {
    if !homes::decide(state) {
        return counting::is_let_go(state, ino, by, (directory, name));
    }
    doubts::must_have_its_names(state, ino)?;
    let is_leaving = state.names.is_leaving_as(ino, (directory, name));
    if !is_leaving && !counting::is_several(state, ino) {
        if is_there(state, (directory, name)) {
            // Once it is let go nothing of it is brought, nor what waits for that.
            state.debts.hasten_names();
            return Err(store::wait_until_settled(state));
        }
        let fingerprint = homes::is_let_go(state, ino)?;
        if is_there(state, (directory, name)) {
            // It would be done to what has the name next.
            state.debts.hasten_names();
            return Err(store::wait_until_settled(state));
        }
        return Ok(Outcome::LetGoOf(fingerprint, 0, 0));
    }
    if !is_leaving {
        if state.names.is_leaving(ino) {
            // Whether it has kept that is found out first: the directory may be that of this one.
            return Err(refuse(ErrorKind::BadHandle, name));
        }
        counting::may_count(state, ino)?;
        homes::await_drain(state, ino)?;
        let (kind, text) = (Kind::Directory, Vec::new());
        let child = Child { name: Vec::new(), number: directory, kind, text };
        elsewhere::place(state, &child)?;
        counting::leaves(state, ino, (directory, name))?;
    }
    if is_there(state, (directory, name)) {
        state.debts.hasten_names();
        return Err(store::wait_until_settled(state));
    }
    let counted = state.names.inode(ino).map_or(0, |inode| inode.links);
    // Of which it is not known whether they have gone: if they have, that is soon found out.
    let others = state.names.leaving_besides(ino, (directory, name));
    Ok(Outcome::LetGoOf(None, counted.saturating_add(others), 0))
}

/// Whether the permanent store is owed something of a name.
fn is_there(state: &State, (directory, name): (Number, &[u8])) -> bool {
    let place = state.members.as_ref().and_then(|members| members.place(directory));
    let path = place.and_then(|place| state.names.path(place)).map(|path| join(&path, name));
    let Some(path) = path else { return false };
    state.names.owed().iter().any(|(_, owed)| owed.paths().iter().any(|at| **at == *path))
}
