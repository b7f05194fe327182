//! What the server says of itself, and of where files are.

use std::collections::BTreeMap;

use terral_format::ids::{Ino, Member};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Attributes, Kind, Safety, Space, Status};
use terral_format::wire::status::{Membership, Other};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::{asking, committing};
use crate::members::policies;
use crate::members::role::Members;
use crate::naming::names::is_known;
use crate::naming::{lookup, lost};

/// A file system with less room is full.
const FULL_BYTES: u64 = 64 << 10;

/// Bytes and names, used and free.
pub fn space(state: &State) -> Space {
    let page = terral_format::local::geometry::PAGE_BYTES as u64;
    let total_bytes = u64::from(state.began.geometry.arena_pages()) * page;
    let files = u64::from(state.began.geometry.files);
    Space {
        total_bytes,
        free_bytes: total_bytes - state.storage.used_bytes().min(total_bytes),
        total_files: files,
        free_files: files.saturating_sub(state.names.count()),
    }
}

/// Where a file's bytes are.
pub fn safety(state: &mut State, caller: &Caller, path: &[u8]) -> Result<Safety> {
    let ino = lookup::resolve(state, caller, path)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let seen = state.seen(ino).ok_or_else(missing)?;
    let attributes = Attributes { ino: Ino(seen.number.word()), ..seen.attributes };
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    let memory_bytes = inode.slot.map_or(0, |slot| state.storage.resident(slot).0);
    let owed_bytes = inode.slot.map_or(0, |slot| state.storage.owed_bytes(slot));
    let debt = state.debts.get(ino);
    let known = inode.published.is_some() || (inode.kind != Kind::File && is_known(&inode));
    Ok(Safety {
        attributes,
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
        consistency: policies::of(state, ino, path),
        uncommitted_bytes: committing::bytes(state, asking::number_of(state, ino)),
    })
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

/// How many client processes there are. What a member does for others it is no program for; a
/// server that is alone does nothing for others.
pub fn programs(state: &State) -> u32 {
    let own = state.members.is_some().then(|| state.machine.pid());
    let others = state.sessions.clients().filter(|(_, client)| Some(client.process.pid()) != own);
    others.count() as u32
}

/// How the server is.
pub fn status(state: &mut State) -> Status {
    let drain = owing::drain_status(state);
    let page = terral_format::local::geometry::PAGE_BYTES as u64;
    let (totals, spoiled) = state.sessions.totals();
    if spoiled {
        state.say_counts_spoiled();
    }
    Status {
        pid: state.machine.pid(),
        starts: state.starts,
        uptime_ms: state.world.now().since(state.since).as_millis() as u64,
        backing: state.backing.as_ref().map(|backing| backing.describe()),
        sessions: programs(state),
        files: state.names.count() - state.names.count_preallocated(),
        open: (state.descriptions.count() + state.far.nameless())
            .saturating_sub(state.names.count_preallocated()),
        memory_bound_bytes: u64::from(state.began.geometry.arena_pages()) * page,
        memory_used_bytes: state.storage.used_bytes(),
        memory_warm_bytes: state.storage.warm_bytes(),
        totals,
        drain,
        warnings: state.warnings.clone(),
        spill: state.storage.memory().spill().map(|spill| spill.describe()),
        spilled_bytes: state.storage.spilled_bytes(),
        partition: state.members.as_deref().map(|members| membership(state, members)),
    }
}

fn membership(state: &State, members: &Members) -> Membership {
    let connected = |member| member == members.me() || members.is_connected(member);
    let seats = members.roster().seats.iter();
    Membership {
        me: members.me(),
        control: members.control(),
        epoch: members.roster().epoch,
        members: seats
            .map(|seat| Other {
                seat: seat.clone(),
                connected: connected(seat.member),
                current: members.is_current(seat.member),
            })
            .collect(),
        encrypted: members.partition().encrypted,
        sent: members.traffic().so_far(),
        losses: lost::losses(state),
        policies: members.roster().policies.clone(),
    }
}

/// Says so if programs lack memory for what others keep where the arena lies: `refused` if one
/// was refused some; else the place must be full, as a write to what is granted needs it too.
pub fn warn_if_cramped(state: &mut State, refused: bool) {
    let full = || state.storage.memory().arena().room_bytes() < FULL_BYTES;
    if if refused { state.storage.is_cramped() } else { full() } {
        let place = state.storage.memory().arena().place();
        state.warn(format!(
            "{place} was full: other files there leave less than --memory allows, so programs \
             wait or get ENOSPC"
        ));
    }
}
