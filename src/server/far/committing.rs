//! How what was written here to other members' files comes to their homes: batches are sealed, and
//! what they have goes in parts, of whole records, in order; which question a part is follows from
//! the batch, so each is done once, also if this server dies meanwhile.
//!
//! Invariant: a batch is there until its home has said of each part that it is done, and nobody is
//! answered that it was committed before. Not here: how batches begin (`sharing/batching`), and who
//! adds to them (clients).

use terral_format::disk::membership::Membership;
use terral_format::ids::{FileSlot, Ino, Member, Number};
use terral_format::local::batch::{HEAD_BYTES, Head};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::{Act, Id};
use terral_format::wire::message::FileRef;
use terral_format::wire::peers::Failure;
use terral_format::{Error, ErrorKind, Result};
use terral_partition::terms::Terms;

use super::role::Behind;
use super::{asking, holders};
use crate::core::left_out::{Step, does};
use crate::core::paths::shown;
use crate::core::state::State;
use crate::sessions::clients::session_of;
use crate::storage::{bringing, reclaim};

/// Of questions about batches: no other that nobody waits for has it.
const STEP: u8 = 1;
/// Who adds to a batch is through with it in less, or is stopped: then it is overtaken.
const PATIENCE_MS: u128 = 100;
/// So often it is looked whether he is, before somebody else has his turn.
const LOOKS: u32 = 2000;

fn slot_of(state: &State, ino: Ino) -> Option<FileSlot> {
    state.names.inode(ino)?.slot
}

/// All that was written here to a file before this was asked for first is at its home.
///
/// # Errors
/// If who asks must wait for that; if its home does not answer, with the member's name.
pub fn settle(state: &mut State, file: Number) -> Result<()> {
    await_all_but(state, file, 0)
}

/// The same of a file by its place here, if it is another member's.
///
/// # Errors
/// As those of [`settle`].
pub fn settle_ino(state: &mut State, ino: Ino) -> Result<()> {
    if state.far.batches.is_empty() {
        return Ok(());
    }
    match asking::number_of(state, ino) {
        Some(file) => settle(state, file),
        None => Ok(()),
    }
}

/// The same for who wants to know what came of all that was written before.
///
/// # Errors
/// As those of [`settle`], and what the home has said.
pub fn commit(state: &mut State, file: Number) -> Result<()> {
    settle(state, file)?;
    state.far.batches.take_failure(file)
}

/// Waits until at most so many batches of a file are left.
///
/// # Errors
/// As those of [`settle`].
pub fn await_all_but(state: &mut State, file: Number, count: usize) -> Result<()> {
    if !state.far.batches.has_some(file) {
        return Ok(());
    }
    let late = || Error::new(ErrorKind::Busy, "it is on its way to another machine");
    let asker = state.members.as_ref().and_then(|members| members.asker()).ok_or_else(late)?;
    let now = state.world.now();
    if state.far.batches.waits(asker, file, count, now).is_none() {
        return Ok(());
    }
    if count == 0 {
        state.far.batches.must_go(file);
    }
    go_on(state)?;
    let Some(since) = state.far.batches.waits(asker, file, count, now) else { return Ok(()) };
    if let Some(removed) = state.far.removed_of(file.born()) {
        return Err(Failure::Removed(removed).error());
    }
    if now.since(since) >= Terms::USUAL.patience {
        return Err(Failure::Silent(file.born()).error());
    }
    Err(state.fetches.wait())
}

/// All of them go.
pub fn all_go(state: &mut State) {
    for file in state.far.batches.files() {
        state.far.batches.must_go(file);
    }
}

/// Batches that are to go are sealed, and sent.
///
/// # Errors
/// [`ErrorKind::System`] if the system has no random bits.
pub(super) fn go_on(state: &mut State) -> Result<()> {
    let Some(by) = state.members.as_ref().map(|members| members.me()) else { return Ok(()) };
    for file in state.far.batches.files() {
        if state.far.removed_of(file.born()).is_some() {
            continue;
        }
        asking::live(state)?;
        while let Some(batch) = state.far.batches.first_mut(file).filter(|batch| batch.goes) {
            let (ino, sealed) = (batch.ino, batch.sealed.is_some());
            if !sealed && !seal(state, ino) {
                break;
            }
            send(state, by, file);
            let over = state.far.batches.first_mut(file).is_some_and(|batch| batch.is_over());
            if !over {
                break;
            }
            ends(state, ino);
        }
    }
    Ok(())
}

/// Nothing is added to it any more, or somebody is just at it: false.
fn seal(state: &mut State, ino: Ino) -> bool {
    let Some(slot) = slot_of(state, ino) else { return is_sealed(state, ino, 0) };
    if !does(Step::Seal) {
        let bytes = state.storage.size(slot);
        return is_sealed(state, ino, bytes);
    }
    let mut holder = state.storage.memory().seal(slot);
    for _ in 0..LOOKS {
        let Err(owner) = holder else { break };
        let client = session_of(owner).and_then(|(session, _)| state.sessions.client(session));
        if client.is_none_or(|client| !client.process.is_alive()) {
            break;
        }
        std::hint::spin_loop();
        holder = state.storage.memory().seal(slot);
    }
    if let Err(owner) = holder {
        let now = state.world.now();
        let client = session_of(owner).and_then(|(session, _)| state.sessions.client(session));
        let lives = client.is_some_and(|client| client.process.is_alive());
        let busy = state.far.batches.get_mut(ino).map(|batch| *batch.busy.get_or_insert(now));
        if lives && busy.is_some_and(|since| now.since(since).as_millis() < PATIENCE_MS) {
            // It is tried again at once.
            state.far.has_news();
            return false;
        }
        // Nobody may have it: a program wrote over it.
        state.storage.mend_ticket(slot);
        if reclaim::revoke_ticket(state, FileRef { ino, slot }, owner).is_err()
            || state.storage.memory().seal(slot).is_err()
        {
            state.far.has_news();
            return false;
        }
    }
    let bytes = state.storage.size(slot);
    is_sealed(state, ino, bytes)
}

fn is_sealed(state: &mut State, ino: Ino, bytes: u64) -> bool {
    if let Some(batch) = state.far.batches.get_mut(ino) {
        (batch.sealed, batch.busy) = (Some(bytes), None);
    }
    true
}

/// As many parts of the first batch of a file go as may be on their way.
fn send(state: &mut State, by: Member, file: Number) {
    loop {
        let Some(batch) = state.far.batches.first_mut(file).filter(|batch| batch.may_send()) else {
            return;
        };
        let (ino, id, strips) = (batch.ino, batch.id, batch.strips);
        let (at, most) = (batch.next, batch.part_max());
        let Some(slot) = slot_of(state, ino) else { return };
        if !bring(state, FileRef { ino, slot }, (at, most)) {
            return;
        }
        let part = part(state, slot, (at, most));
        let now = state.world.now();
        match part {
            Ok(bytes) => {
                let (index, pid, sequence) = (0, 0, at);
                let (session, started_ticks, step) = (Id::NOBODY, id, STEP);
                let id = Id { by, session, pid, started_ticks, index, sequence, step };
                let behind = Behind::Stored { slot, at, bytes };
                state.far.asks((id, None), (file, Act::Merge { strips }), behind, now);
                if let Some(batch) = state.far.batches.first_mut(file) {
                    (batch.next, batch.under_way) = (at + u64::from(bytes), batch.under_way + 1);
                }
            }
            Err(error) => {
                if let Some(batch) = state.far.batches.first_mut(file) {
                    batch.failure = Some(error);
                }
                return;
            }
        }
    }
}

/// Has these bytes in memory. False: not now.
fn bring(state: &mut State, file: FileRef, (at, bytes): (u64, u64)) -> bool {
    let chunks = at / CHUNK_BYTES..(at + bytes).div_ceil(CHUNK_BYTES);
    for index in chunks {
        let entry = state.storage.memory().entry(file.slot, index);
        if entry.is_absent() || entry.is_here() {
            continue;
        }
        if bringing::bring(state, file, index).is_err() {
            return false;
        }
    }
    true
}

/// How many bytes the whole records there have that go at once.
fn part(state: &State, slot: FileSlot, (at, most): (u64, u64)) -> Result<u32> {
    let mut bytes = 0;
    let torn = || Error::new(ErrorKind::Malformed, "a program wrote over what it had written");
    while bytes < most {
        let mut head = [0; HEAD_BYTES];
        if most - bytes < HEAD_BYTES as u64 {
            break;
        }
        let read = state.storage.read_from(slot, at + bytes, &mut head);
        let record = read.and_then(|()| Head::read(&head).ok()).ok_or_else(torn)?.record_bytes();
        if bytes + record > most {
            break;
        }
        bytes += record;
    }
    if bytes == 0 { Err(torn()) } else { Ok(bytes as u32) }
}

/// A home has said what came of a part of a batch.
///
/// # Errors
/// If the log cannot be written.
pub(super) fn came(state: &mut State, id: u64, outcome: Result<()>) -> Result<()> {
    let Some(batch) = state.far.batches.by_id(id) else { return Ok(()) };
    batch.under_way = batch.under_way.saturating_sub(1);
    let file = batch.file;
    match outcome {
        Ok(()) => {
            let now = state.world.now();
            state.far.batches.moves(file, now);
        }
        Err(error) => drop(batch.failure.get_or_insert(error)),
    }
    go_on(state)?;
    state.commit()
}

/// All of a batch is there, or lost.
fn ends(state: &mut State, ino: Ino) {
    let Some(batch) = state.far.batches.get_mut(ino) else { return };
    let (file, id, failure) = (batch.file, batch.id, batch.failure.take());
    if let Some(error) = failure {
        fails(state, file, error);
    }
    state.far.forget_merges(id);
    state.record(Membership::Merged { ino });
    holders::is_nobodys(state, ino);
    state.look_again_at(ino);
    state.far.has_news();
    // What its home is told then is told; what is not, the next process tells.
    let _ = asking::closed(state, file);
}

/// What was written to a file here is not taken at its home: its writers are told, and who runs it.
fn fails(state: &mut State, file: Number, error: Error) {
    let place = state.members.as_ref().and_then(|members| members.place(file));
    let path = place.and_then(|ino| state.names.path(ino)).unwrap_or_default();
    let what = "what was written here and not committed is lost";
    state.warn(format!("{}: {what}: {error}", shown(&path)));
    state.far.batches.fails(file, error);
}

/// A member is none any more: what was written to its files, and is not there, is lost.
pub(super) fn removed(state: &mut State, member: Member) {
    for file in state.far.batches.files() {
        if file.born() == member {
            lose(state, file, &Failure::Removed(member).error());
        }
    }
}

/// So it is of all that are there no more.
pub(super) fn abandoned(state: &mut State) {
    for file in state.far.batches.files() {
        lose(state, file, &Failure::Silent(file.born()).error());
    }
}

fn lose(state: &mut State, file: Number, why: &Error) {
    while let Some(batch) = state.far.batches.first_mut(file) {
        let ino = batch.ino;
        batch.failure = Some(why.clone());
        ends(state, ino);
    }
}

/// Who waits for what does not come is to be told.
pub(super) fn tick(state: &mut State) {
    let now = state.world.now();
    if state.far.batches.is_late(|since| now.since(since) >= Terms::USUAL.patience) {
        state.far.has_news();
    }
}

/// What is to go as this process begins: what was about to in the one before, and of what nobody
/// has open.
pub(super) fn resume(state: &mut State) -> Result<()> {
    for file in state.far.batches.files() {
        let inos: Vec<Ino> = state.far.batches.of(file).map(|batch| batch.ino).collect();
        for (at, ino) in inos.iter().enumerate() {
            let slot = slot_of(state, *ino);
            let sealed = slot.is_some_and(|slot| state.storage.memory().is_sealed(slot));
            if let Some(batch) = state.far.batches.get_mut(*ino) {
                batch.goes |= sealed || at + 1 < inos.len();
            }
        }
        state.far.opens(file);
        asking::closed(state, file)?;
    }
    Ok(())
}

/// Bytes that are not committed yet: of a file, or of all.
pub fn bytes(state: &State, file: Option<Number>) -> u64 {
    let of = |ino: Ino| slot_of(state, ino).map_or(0, |slot| state.storage.size(slot));
    match file {
        Some(file) => state.far.batches.of(file).map(|batch| of(batch.ino)).sum(),
        None => state.far.batches.inos().into_iter().map(of).sum(),
    }
}
