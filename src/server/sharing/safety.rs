//! Where the bytes of a file are, and how safe: what its home says of it, here or elsewhere.
//!
//! Invariant: who asks does not wait for a home that is out of reach: then attributes are as they
//! were last heard of, and the answer says so. Not here: how long a question waits (`shell/door`).

use std::collections::BTreeMap;

use terral_format::ids::{Ino, Member, Thing};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Attributes, Kind, Safety};
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::far::{asking, committing};
use crate::members::policies;
use crate::naming::names::is_known;
use crate::naming::{elsewhere, lookup};

/// Where a file's bytes are, by its path.
///
/// # Errors
/// Those of stat(2), and if who asks must wait.
pub fn at(state: &mut State, caller: &Caller, path: &[u8]) -> Result<Safety> {
    let ino = match lookup::resolve(state, caller, path) {
        Err(error) if gave_up(state, &error) => return Err(out_of_reach(path)),
        found => found?,
    };
    let Some(file @ Thing::File(_)) = elsewhere::thing_of(state, ino) else {
        return of(state, ino);
    };
    let Some((home, reached)) = home_of(state, file) else { return of(state, ino) };
    let said = if reached { said(state, caller, file)? } else { None };
    let all = match said {
        Some(said) => {
            elsewhere::is_seen(state, ino, said.attributes);
            said
        }
        None => Safety { heard: false, in_backing: false, parts: Vec::new(), ..of(state, ino)? },
    };
    Ok(Safety { home: Some(home), uncommitted_bytes: uncommitted(state, ino), ..all })
}

/// Whether something is not known, and this question does not wait for it any longer.
fn gave_up(state: &State, error: &Error) -> bool {
    error.kind == ErrorKind::Busy && !state.fetches.is_waiting()
}

fn out_of_reach(path: &[u8]) -> Error {
    let context = format!(
        "{}: a machine that has a directory of this path does not answer (`terral status` names \
         who has no connection)",
        shown(path)
    );
    Error::new(ErrorKind::Backing, context)
}

/// The other member that decides a file, and whether there is a session with it.
fn home_of(state: &State, file: Thing) -> Option<(Member, bool)> {
    let members = state.members.as_ref().filter(|members| !members.decides(file))?;
    let home = members.decider(file)?;
    Some((home, members.is_connected(home)))
}

/// What the home says; `None` if it has not answered for as long as this question may wait.
fn said(state: &mut State, caller: &Caller, file: Thing) -> Result<Option<Safety>> {
    match elsewhere::told_of(state, caller, file.number(), Look::Safety) {
        Ok(Outcome::Safety(safety)) => Ok(Some(*safety)),
        Ok(_) => Err(Error::new(ErrorKind::Malformed, "what another member says of a file")),
        Err(error) if gave_up(state, &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, of what is here.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is gone.
pub fn of(state: &State, ino: Ino) -> Result<Safety> {
    let path = state.names.path(ino).unwrap_or_default();
    let missing = || Error::new(ErrorKind::NotFound, shown(&path));
    let seen = state.seen(ino).ok_or_else(missing)?;
    let attributes = Attributes { ino: Ino(seen.number.word()), ..seen.attributes };
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    let memory_bytes = inode.slot.map_or(0, |slot| state.storage.resident(slot).0);
    let owed_bytes = inode.slot.map_or(0, |slot| state.storage.owed_bytes(slot));
    let debt = state.debts.get(ino);
    let known = inode.published.is_some() || (inode.kind != Kind::File && is_known(&inode));
    Ok(Safety {
        attributes,
        home: state.members.as_ref().map(|members| members.me()),
        heard: true,
        memory_bytes,
        owed_bytes: if state.backing.is_some() { owed_bytes } else { 0 },
        in_backing: state.backing.is_some()
            && known
            && !inode.is(flag::REWRITTEN)
            && debt.is_none()
            && state.names.owed().is_empty(),
        open_for_writing: state.is_written(ino),
        failure: debt.and_then(|debt| debt.failure()).map(str::to_owned),
        parts: parts(state, &inode),
        stripe: state.far.stripes.of(ino).cloned(),
        consistency: policies::of(state, ino, &path),
        uncommitted_bytes: uncommitted(state, ino),
    })
}

fn uncommitted(state: &State, ino: Ino) -> u64 {
    committing::bytes(state, asking::number_of(state, ino))
}

/// Which other members have chunks of a file, and how many bytes these are.
fn parts(state: &State, inode: &Inode) -> Vec<(Member, u64)> {
    let away = inode.slot.map(|slot| state.storage.away(slot)).unwrap_or_default();
    let mut parts = BTreeMap::new();
    for (_, with) in away {
        *parts.entry(with).or_default() += CHUNK_BYTES;
    }
    parts.into_iter().collect()
}
