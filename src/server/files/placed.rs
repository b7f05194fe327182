//! Files that are opened, and created on another server if they are missing and to be there. Who
//! asks is told which server that is, and asks again with it: so it is the same one however often
//! his request is carried out, also by the next process of this server.
//!
//! Invariants: that server makes the file and its name as a program of its machine does; here it is
//! opened by its number. What is there already is opened as always. Not here: which server it is
//! (`naming/placement`).

use terral_format::ids::{FileSlot, Member};
use terral_format::local::tables::access;
use terral_format::wire::message::{Kind, OpenHow, Reply};
use terral_format::wire::placed::Placing;
use terral_format::wire::placement::Layout;
use terral_format::wire::things::Child;
use terral_format::{Error, ErrorKind, Result};

use super::opening;
use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::far::{layouts, placing};
use crate::members::placement::{self, is_usual};
use crate::naming::placement::{server_for, stores_here};
use crate::naming::{elsewhere, lookup};

/// Opens or creates.
///
/// # Errors
/// As those of [`opening::open`]; [`ErrorKind::Unsupported`] for a file without a name on a server
/// that keeps none.
pub fn open(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Reply> {
    let usual = state.members.as_ref().is_none_or(|of| is_usual(&of.roster().placement, of.me()));
    let makes = how.unnamed || (how.create && !path.is_empty());
    if !makes || (usual && how.on.is_none()) {
        return opening::open(state, caller, path, how);
    }
    if how.unnamed {
        return match stores_here(state) {
            true => opening::open(state, caller, path, how),
            false => Err(Error::new(ErrorKind::Unsupported, shown(path))),
        };
    }
    let is_me = |on: &Member| state.members.as_ref().is_none_or(|of| of.me() == *on);
    let storage = placement::storage_servers(state);
    let on = how.on.filter(|on| storage.contains(on) || state.members.is_none());
    match on {
        Some(on) if is_me(&on) => create_here(state, caller, path, how),
        Some(on) => create_on(state, caller, on, (path, how)),
        None => {
            if !how.exclusive && is_there(state, caller, path)? {
                return open_there(state, caller, path, how);
            }
            match server_for(state, caller, path)? {
                Some(on) => Ok(Reply::Elsewhere(on)),
                None => create_here(state, caller, path, how),
            }
        }
    }
}

/// Opens or creates here; an empty file that is opened so has its parts where a pattern says.
fn create_here(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Reply> {
    let reply = opening::open(state, caller, path, how)?;
    if let Reply::Opened { file, .. } = reply
        && let Layout::Stripe { count, chunks } = placement::layout_of(state, path)
        && file.slot != FileSlot::FAR
        && state.storage.size(file.slot) == 0
    {
        layouts::begin(state, file.ino, (count, chunks));
    }
    Ok(reply)
}

/// Whether something has this name.
fn is_there(state: &mut State, caller: &Caller, path: &[u8]) -> Result<bool> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    Ok(lookup::child(state, caller, parent, name)?.is_some())
}

fn open_there(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Reply> {
    opening::open(state, caller, path, OpenHow { create: false, on: None, ..how })
}

fn create_on(
    state: &mut State,
    caller: &Caller,
    on: Member,
    (path, how): (&[u8], OpenHow),
) -> Result<Reply> {
    let what = Placing::File { mode: how.mode, exclusive: how.exclusive };
    let number = match placing::place(state, caller, (on, what), (path, 0)) {
        Err(error) if error.kind == ErrorKind::Exists && !state.fetches.is_waiting() => {
            if how.exclusive {
                return Err(Error::new(ErrorKind::Exists, shown(path)));
            }
            return match is_there(state, caller, path)? {
                true => open_there(state, caller, path, how),
                // It is gone again.
                false => Ok(Reply::Elsewhere(on)),
            };
        }
        placed => placed?,
    };
    let strange = || Error::new(ErrorKind::Malformed, "what another member says of a file");
    let number = number.ok_or_else(strange)?;
    let child = Child { name: Vec::new(), number, kind: Kind::File, text: Vec::new() };
    let ino = elsewhere::place(state, &child)?;
    let access = how.access & !((access::COMMIT | access::LINK) as u8);
    let how = OpenHow { truncate: false, ..how };
    opening::open_placed(state, caller, (ino, number), (path, OpenHow { access, ..how }))
}
