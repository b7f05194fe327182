//! Chunks of other members' striped files that are kept here: how they come, and how others read
//! them. Each is, under its number, in the file without a name that has what was borrowed
//! (`loans`), and marked there as what is asked back is: no client uses it.
//!
//! Invariants: what is kept is as its home has it until that has taken it back, so whoever was told
//! there that it is here reads what the file is, or was after he asked; bytes that have come are
//! used by nobody before the home says that they are kept here; what the home says of an older
//! stamp means nothing that has come since. Not here: what goes where (`stripes`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::{Ino, Member, Number, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::wire::far::{Act, BYTES_MAX, Done};
use terral_format::wire::far_files::{PIECE_MAX, Piece};
use terral_format::wire::message::Reply;
use terral_format::{Error, ErrorKind, Result};
use terral_store::sparse::Sparse;

use super::asking;
use super::giving_back::{self, loan_of};
use super::loans::PARTS;
use super::role::{Outcome, part_of};
use crate::core::state::State;
use crate::core::world::Tick;
use crate::storage::{bringing, eviction};

/// So much of the memory others' parts leave free: this part of it.
const FREE: u64 = 8;
/// Most chunks that are on their way here at a time.
const TAKING_MAX: usize = 64;

/// What has not come after that does not.
const COMES: Duration = Duration::from_secs(30);

/// A chunk that is on its way here.
struct Taking {
    from: Member,
    bytes: u32,
    stamp: u64,
    since: Tick,
    parts: [Option<Vec<u8>>; PARTS],
}

/// See the module.
#[derive(Default)]
pub struct Parts {
    taking: BTreeMap<(Number, u64), Taking>,
    /// What has come, by which stamp, and its home has not said that it is kept.
    unkept: BTreeMap<(Number, u64), u64>,
}

impl Parts {
    /// By which stamp a chunk has come that may not be kept.
    pub(super) fn unkept(&self, file: Number, index: u64) -> Option<u64> {
        self.unkept.get(&(file, index)).copied()
    }

    /// Whether something of a file is on its way.
    pub(super) fn has(&self, file: Number) -> bool {
        self.taking.range((file, 0)..=(file, u64::MAX)).next().is_some()
    }
}

/// A chunk is to come here, of which the first so many bytes count, and to stay; there is a file
/// for it. False: it cannot.
///
/// # Errors
/// If what is here of it cannot be had in memory.
pub fn take(
    state: &mut State,
    (file, index, bytes): (Number, u64, u32),
    (from, stamp): (Member, u64),
) -> Result<bool> {
    let Some(me) = state.members.as_ref().map(|members| members.me()) else { return Ok(false) };
    let is_gone = state.far.is_removed(file.born()) || state.far.is_removed(from);
    let is_none = bytes == 0 || u64::from(bytes) > CHUNK_BYTES;
    let is_bound = state.departs || state.finishing || is_gone;
    if is_bound || is_none || index > FILE_BYTES_MAX / CHUNK_BYTES {
        return Ok(false);
    }
    asking::live(state)?;
    let is_old = |taking: &Taking| taking.stamp > stamp;
    if state.far.parts.taking.get(&(file, index)).is_some_and(is_old) {
        // What was said later is done.
        return Ok(true);
    }
    if state.far.parts.unkept(file, index) == Some(stamp) {
        // It has come, and was said to have.
        return Ok(true);
    }
    state.far.forget_taking(file, index);
    state.far.parts.taking.remove(&(file, index));
    if from == me {
        let stays = stay(state, (file, index), bytes, stamp)?;
        if stays {
            asking::say(state, file, Act::Kept { by: me, index, stamp });
        }
        return Ok(stays);
    }
    if is_of_unknown_age(state, file, index) {
        // Its home says that it is nothing, or this one's; and has it taken then.
        asking::say_once(
            state,
            file,
            Act::Return { by: me, first: index, count: 1, leaves: false },
        );
        return Ok(true);
    }
    let arena = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    let is_full = state.storage.used_bytes() + CHUNK_BYTES > arena - arena / FREE;
    if is_full || state.far.parts.taking.len() >= TAKING_MAX {
        return Ok(false);
    }
    let since = state.world.now();
    let taking = Taking { from, bytes, stamp, since, parts: Default::default() };
    state.far.parts.taking.insert((file, index), taking);
    for at in (0..bytes).step_by(BYTES_MAX) {
        let count = (bytes - at).min(BYTES_MAX as u32);
        let act = part_of(index * CHUNK_BYTES + u64::from(at), count, stamp);
        let now = state.world.now();
        state.far.asks_part((from, me), (file, act), stamp, now);
    }
    Ok(true)
}

/// A chunk that is here stays here, with all that counts of it: what is behind the end of the file
/// nobody was told to be written. False: it is not here, or was lent since.
fn stay(state: &mut State, which: (Number, u64), bytes: u32, stamp: u64) -> Result<bool> {
    let (file, index) = which;
    if !freeze(state, which, stamp)? {
        return Ok(false);
    }
    let Some(loan) = loan_of(state, file) else { return Ok(false) };
    let known = state.storage.size(loan.slot).saturating_sub(index * CHUNK_BYTES);
    // A write that its home knows of may have made the file longer since that has said so.
    let end = known.min(CHUNK_BYTES).max(bytes.into()) as u32;
    let mut is_changed = false;
    for place in giving_back::places(state, state.storage.memory().entry(loan.slot, index)) {
        let (first, behind) = (place.within.max(end), place.within + place.bytes);
        if first < behind {
            is_changed = true;
            let nothing = vec![0; (behind - first) as usize];
            state.storage.memory().write(place.page, first.into(), &nothing)?;
        }
    }
    if is_changed {
        // Who has written there, and was not answered, must see that, also once it may be used
        // again.
        state.storage.renew(loan.slot, index)?;
    }
    Ok(true)
}

/// Whether something is here of a chunk that came to a process before this one: nothing else is
/// known to be newer.
fn is_of_unknown_age(state: &State, file: Number, index: u64) -> bool {
    let Some(loan) = loan_of(state, file) else { return false };
    let is_there = !state.storage.memory().entry(loan.slot, index).is_absent();
    is_there && state.far.loans.since(file, index).is_none()
}

/// A part of such a chunk has come, or does not.
///
/// # Errors
/// If the log cannot be written.
pub(super) fn came(
    state: &mut State,
    file: Number,
    (at, stamp): (u64, u64),
    outcome: Outcome,
) -> Result<()> {
    let which = (file, at / CHUNK_BYTES);
    let taking = state.far.parts.taking.get_mut(&which);
    let Some(taking) = taking.filter(|taking| taking.stamp == stamp) else { return Ok(()) };
    let part = (at % CHUNK_BYTES) as usize / BYTES_MAX;
    // Who is about to leave has said what is here: nothing comes any more.
    let stays = !state.departs && !state.finishing;
    match (outcome, taking.parts.get_mut(part)) {
        (Ok((Done::Read, bytes)), Some(part)) if stays => *part = Some(bytes),
        _ => {
            // Its home says so again, if it is to come.
            state.far.parts.taking.remove(&which);
            state.far.forget_taking(file, which.1);
            return Ok(());
        }
    }
    let count = (taking.bytes as usize).div_ceil(BYTES_MAX);
    if taking.parts.iter().take(count).any(Option::is_none) {
        return Ok(());
    }
    let Some(taking) = state.far.parts.taking.remove(&which) else { return Ok(()) };
    put(state, which, taking);
    state.commit()
}

/// All of it has: it is put in its place, and its home is told.
fn put(state: &mut State, (file, index): (Number, u64), taking: Taking) {
    let Taking { bytes, stamp, parts, .. } = taking;
    let by = state.members.as_ref().map(|members| members.me());
    let Some((loan, by)) = loan_of(state, file).zip(by) else { return };
    // What is here may be what its home has kept here since: nothing else is known to be older.
    let is_there = !state.storage.memory().entry(loan.slot, index).is_absent();
    let since = state.far.loans.since(file, index);
    if since.map_or(is_there, |since| since >= stamp) {
        return;
    }
    let mut whole = vec![0; bytes as usize];
    for (at, part) in (0..).step_by(BYTES_MAX).zip(parts.iter().flatten()) {
        let count = part.len().min(whole.len().saturating_sub(at));
        whole[at..at + count].copy_from_slice(&part[..count]);
    }
    let whole = Sparse::from(whole);
    let room = |state: &mut State| {
        let entry = state.storage.memory().entry(loan.slot, index);
        // What came before it and was not kept.
        if !entry.is_absent() {
            state.storage.release_chunk(&state.sessions, loan.slot, index);
        }
        state.storage.arrives(loan.slot, index, &whole)
    };
    if eviction::with_room(state, room).is_ok() {
        state.far.loans.has_arrived((file, index), stamp);
        state.far.parts.unkept.insert((file, index), stamp);
        asking::say(state, file, Act::Kept { by, index, stamp });
    }
}

/// A home has said whether what has come by this stamp is kept here.
pub(super) fn heard(state: &mut State, file: Number, (index, stamp): (u64, u64), kept: bool) {
    if state.far.parts.unkept(file, index) == Some(stamp) {
        state.far.parts.unkept.remove(&(file, index));
    }
    if kept && state.departs {
        // It is not among what was said to be here.
        state.far.loans.is_unsaid(file);
    }
    let is_it = state.far.loans.since(file, index) == Some(stamp);
    if let Some(loan) = loan_of(state, file).filter(|_| is_it && !kept) {
        state.storage.release_chunk(&state.sessions, loan.slot, index);
        state.far.loans.is_returned(file, index);
    }
}

/// A member is none any more: what was to come from it, or of its files, does not.
pub(super) fn removed(state: &mut State, member: Member) {
    let Parts { taking, unkept } = &mut state.far.parts;
    taking.retain(|(file, _), taking| file.born() != member && taking.from != member);
    unkept.retain(|(file, _), _| file.born() != member);
}

/// What does not come is not waited for; nor is anything by who is about to leave.
pub(super) fn tick(state: &mut State) {
    let (now, leaves) = (state.world.now(), state.departs || state.finishing);
    let is_old = |taking: &Taking| leaves || now.since(taking.since) >= COMES;
    let old = state.far.parts.taking.extract_if(.., |_, taking| is_old(taking));
    let old: Vec<_> = old.map(|(which, _)| which).collect();
    old.into_iter().for_each(|(file, index)| state.far.forget_taking(file, index));
}

/// Nobody writes to a chunk that is here any more. False: nothing of it is here, or it was lent
/// since this stamp.
fn freeze(state: &mut State, (file, index): (Number, u64), stamp: u64) -> Result<bool> {
    let entry = |state: &State| {
        let loan = loan_of(state, file)?;
        Some((loan, state.storage.memory().entry(loan.slot, index)))
    };
    let Some((loan, found)) = entry(state).filter(|(_, entry)| !entry.is_absent()) else {
        return Ok(false);
    };
    if state.far.loans.since(file, index).is_some_and(|since| since > stamp) {
        return Ok(false);
    }
    if !found.is_here() {
        bringing::bring(state, loan, index)?;
    }
    if !found.is_borrowed() {
        eviction::with_room(state, |state| {
            state.storage.freeze(&state.sessions, loan.slot, index)
        })?;
    }
    Ok(true)
}

/// Where the bytes of a chunk are that somebody takes by this stamp, or, if it is 0, reads: nobody
/// writes to them.
fn still(state: &mut State, (file, index): (Number, u64), stamp: u64) -> Result<Option<MapEntry>> {
    let ino = Ino(file.counted());
    if state.members.as_ref().is_some_and(|members| members.is_born_here(file)) {
        let slot = state.names.inode(ino).and_then(|inode| inode.slot);
        let entry = slot.map(|slot| state.storage.memory().entry(slot, index));
        let offered = state.far.offers.taken_by(ino, index, stamp);
        // Who is about to write to it has taken the mark down.
        return Ok(offered.filter(|offered| entry == Some(*offered) && offered.is_here()));
    }
    if stamp > 0 && !freeze(state, (file, index), stamp)? {
        return Ok(None);
    }
    let loan = loan_of(state, file);
    let entry = loan.map(|loan| state.storage.memory().entry(loan.slot, index));
    Ok(entry.filter(|entry| entry.is_here() && entry.is_borrowed()))
}

/// Bytes of a chunk that is here, to which nobody writes: from there on so many, or fewer. `None`:
/// they are not to be had.
///
/// # Errors
/// As those of [`giving_back::give_back`].
pub fn copy(
    state: &mut State,
    which: (Number, u64),
    stamp: u64,
    (at, bytes): (u32, usize),
) -> Result<Option<Vec<u8>>> {
    let Some(entry) = still(state, which, stamp)? else { return Ok(None) };
    let (from, mut all) = (at as usize, Vec::new());
    for place in giving_back::places(state, entry) {
        let (begin, end) = (place.within as usize, (place.within + place.bytes) as usize);
        let (first, end) = (begin.max(from), end.min(from + bytes));
        if first < end {
            all.resize(first - from, 0);
            let begin = all.len();
            all.resize(end - from, 0);
            state.storage.memory().read(place.page, first as u64, &mut all[begin..])?;
        }
    }
    Ok(Some(all))
}

/// Reads a piece of a chunk that is here, from there in its file on; with the first, what its
/// others need.
///
/// # Errors
/// As those of [`copy`]; [`ErrorKind::Malformed`] for more than a piece.
pub fn read(
    state: &mut State,
    session: SessionSlot,
    (file, stamp): (Number, u64),
    (at, bytes): (u64, u32),
    piece: Piece,
) -> Result<Reply> {
    let whole = (bytes as usize).saturating_add(piece.more as usize);
    if bytes as usize > PIECE_MAX || whole > BYTES_MAX {
        return Err(Error::new(ErrorKind::Malformed, "a read of a part of a file"));
    }
    let call = (session, piece.call);
    if piece.within > 0 {
        let kept = state.far.pieces.read(call, at, bytes as usize);
        return Ok(kept.map_or(Reply::Again, Reply::Extent));
    }
    let (index, within) = (at / CHUNK_BYTES, (at % CHUNK_BYTES) as u32);
    let Some(mut read) = copy(state, (file, index), stamp, (within, whole))? else {
        return Ok(Reply::Again);
    };
    read.resize(whole, 0);
    let rest = read.split_off(bytes as usize);
    if !rest.is_empty() {
        state.far.pieces.was_read(call, at + u64::from(bytes), rest, false);
    }
    Ok(Reply::Extent(read))
}
