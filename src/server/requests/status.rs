//! What the server says of itself. Not here: where files are (`sharing/safety`).

use terral_format::ids::Member;
use terral_format::wire::message::{Space, Status};
use terral_format::wire::status::{Membership, Other};

use crate::core::state::State;
use crate::debts::owing;
use crate::members::role::Members;
use crate::naming::lost;
use crate::sharing::everywhere;

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
        sessions: everywhere::programs(state),
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

fn users_of(members: &Members) -> Vec<(Member, u32)> {
    let certificates = members.roster().certificates.iter();
    certificates.filter_map(|it| Some((it.member, it.user.as_ref()?.user))).collect()
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
        placement: members.roster().placement.clone(),
        authorities: members.roster().authorities.clone(),
        answers: members.roster().answers.iter().map(|it| (it.member, it.by)).collect(),
        users: users_of(members),
        pool: members.pool(state.world.now()),
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
