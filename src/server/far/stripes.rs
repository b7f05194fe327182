//! Striped files that were born here: over which members their parts lie, and how these come there.
//! A member where a chunk is to be takes it from who has it, be it this server or another member;
//! once it has all of it, and nobody has written to it since, it is said here to be kept there.
//!
//! Invariants: a chunk's bytes are where its map entry here says, whoever dies, and that changes in
//! one store; what is kept nobody writes to where it is: who wants to write to it has it come back
//! first, as anything that is lent. Not here: what the member does (`parts`), and how chunks come
//! back (`lent`).

use std::time::Duration;

use terral_format::ids::{FileSlot, Ino, Member, Number};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::wire::far::Act;
use terral_format::wire::far_files::LentTo;
use terral_format::wire::message::{FileRef, Reply};
use terral_format::wire::placement::STRIPE_UNIT;
use terral_format::{Error, ErrorKind, Result};

use super::keeping::{keeper, may_keep};
use super::offered::Offer;
use super::striped::{PAUSE_MAX, Stripes};
use super::{asking, lent};
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::storage::eviction;

// What is said in chunks is what is asked for in bytes.
const _: () = assert!(STRIPE_UNIT == CHUNK_BYTES);

/// Chunks that are on their way at a time, of all files.
const AT_ONCE: usize = 16;
/// So many fewer that one member has: another one's go as well.
const LEFT: usize = 4;
/// What was needed here is not sent away before it was not for so long.
const CALM: Duration = Duration::from_secs(5);
/// Where memory is scarce.
const SHORT: Duration = Duration::from_secs(1);

/// What is not where it is to be goes there.
pub(super) fn go_on(state: &mut State) {
    for (ino, index, with) in state.storage.take_dropped() {
        lent::tell_taken(state, ino, index, with);
    }
    if state.finishing {
        // Nothing goes anywhere any more: what others want to be rid of comes here.
        for ((ino, index), with) in state.far.stripes.take_returned() {
            lent::want(state, ino, index, with);
        }
        return;
    }
    if !std::mem::take(&mut state.far.stripes.looks) {
        return;
    }
    for ino in state.far.stripes.to_look_at() {
        if state.far.offers.taken() >= AT_ONCE {
            return;
        }
        state.far.stripes.is_looked_at(ino);
        look(state, ino);
    }
}

/// Time has passed.
pub(super) fn tick(state: &mut State) {
    let Stripes { unsettled, looks, pressed, .. } = &mut state.far.stripes;
    (*looks, *pressed) = (!unsettled.is_empty(), false);
    if !*looks {
        return;
    }
    let now = state.world.now();
    let me = state.members.as_ref().map(|members| members.me());
    for ((ino, index), Offer { from, to, .. }) in state.far.offers.expire(now) {
        // Who has heard that he is to take it had it not from who has it.
        match Some(from) == me || state.far.is_to_take(to, ino, index) {
            true => state.far.stripes.is_full(to, now),
            false => state.far.stripes.is_slow(from, now),
        }
        // Who waits for memory is told, if nobody else has some.
        state.far.has_news();
    }
}

/// A member cannot take what it was to: it is not asked for a while.
pub(super) fn refused(state: &mut State, by: Member, file: Number, (index, stamp): (u64, u64)) {
    let ino = Ino(file.counted());
    let offer = state.far.offers.end((ino, index), (by, stamp));
    let now = state.world.now();
    match offer {
        // It has that chunk, and does not keep it as it is.
        Some(offer) if offer.from == by && !state.far.stripes.leaving.contains(&by) => {
            lent::want(state, ino, index, by);
        }
        _ => state.far.stripes.is_full(by, now),
    }
    // Who waits for memory is told, if nobody else has some.
    state.far.has_news();
}

/// There is a new session with a member: what it was to take it may not have heard of.
pub(super) fn connected(state: &mut State, with: Member) {
    state.far.offers.forget_taken(with);
    state.far.stripes.looks = true;
}

/// A member is none any more.
pub(super) fn removed(state: &mut State, member: Member) {
    state.far.offers.forget_taken(member);
    state.far.stripes.removed(member);
}

/// Whether memory becomes free as chunks go where they are to be, or may, as somebody who is to
/// take them only pauses.
pub fn can_send(state: &mut State) -> bool {
    let Stripes { unsettled, looks, pressed, calms, .. } = &mut state.far.stripes;
    if unsettled.is_empty() {
        return false;
    }
    (*looks, *pressed, *calms) = (true, true, false);
    go_on(state);
    let me = state.members.as_ref().map(|members| members.me());
    // What others have takes no memory here.
    let now = state.world.now();
    let late = |since| now.since(since) < PAUSE_MAX;
    let is_sent = |me| state.far.offers.taken_from(me) > 0 || state.far.takes_from(me, late);
    me.is_some_and(is_sent) || state.far.stripes.calms || state.far.stripes.pauses(now)
}

/// How a file is, while it is looked at.
struct Looked {
    file: FileRef,
    /// Somebody may write to it without asking.
    written: bool,
    /// Memory is scarce.
    pressed: bool,
    /// Somebody waits for what is to come here: all of it stays until it is there.
    awaited: bool,
    /// The last chunk that has bytes.
    last: u64,
    me: Member,
}

/// Has as many chunks of a file as may be on their way go.
fn look(state: &mut State, ino: Ino) {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    let me = state.members.as_ref().map(|members| members.me());
    let Some((slot, me)) = slot.zip(me) else { return };
    if state.storage.is_stored(slot) {
        state.storage.settle_stores(slot);
    }
    let arena = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    let awaited = state.storage.wanted().any(|((of, _), wanted)| *of == ino && wanted.is_awaited());
    let looked = Looked {
        file: FileRef { ino, slot },
        written: state.names.is_written(ino) || state.is_stored(ino),
        awaited,
        pressed: state.far.stripes.pressed || state.storage.used_bytes() >= arena / 2,
        last: state.storage.size(slot).saturating_sub(1) / CHUNK_BYTES,
        me,
    };
    let mut rest = looked.written;
    for (index, entry) in state.storage.entries(slot) {
        match next(state, &looked, index, entry.unrecalled()) {
            Next::Settled => {}
            Next::Later => rest = true,
            Next::Goes { from, to } => {
                rest = true;
                if state.far.offers.taken() >= AT_ONCE {
                    return;
                }
                goes(state, &looked, (index, entry), (from, to));
            }
        }
    }
    if !rest {
        state.far.stripes.unsettled.remove(&ino);
    }
}

/// What becomes of a chunk.
enum Next {
    Settled,
    Later,
    Goes { from: Member, to: Member },
}

fn next(state: &mut State, looked: &Looked, index: u64, entry: MapEntry) -> Next {
    let Looked { file, me, .. } = *looked;
    let with = entry.with();
    let returned = state.far.stripes.returned.get(&(file.ino, index)).copied();
    let is_rid = with.is_some() && returned == with;
    let is_kept = with.is_some() && entry.is_borrowed() && !is_rid;
    if is_kept || with.is_none() && !entry.is_here() {
        return Next::Settled;
    }
    let is_behind = inside(state.storage.size(file.slot), index) == 0;
    let keeper = keeper(state, file.ino, index).filter(|_| !is_behind);
    let Some(to) = keeper else {
        if let Some(with) = with.filter(|_| is_rid) {
            lent::want(state, file.ino, index, with);
        }
        return Next::Settled;
    };
    if with.is_some() && !is_rid {
        return Next::Later;
    }
    let (from, now) = (with.unwrap_or(me), state.world.now());
    if !state.far.stripes.may_go((from, to), now) {
        comes_home(state, (file.ino, index), from);
        return Next::Later;
    }
    if state.far.stripes.leaving.contains(&from) {
        state.far.lent.does_not_come(&mut state.storage, file.ino, index);
    }
    let is_free = state.far.takes(to) < AT_ONCE
        && state.far.offers.taken_from(from) < AT_ONCE - LEFT
        && !state.far.is_to_take(to, file.ino, index)
        && !state.far.offers.has(file.ino, index)
        && !state.storage.is_wanted(file.ino, index)
        && state.far.lent.is_told(file.ino, index);
    let calm = if looked.pressed { SHORT } else { CALM };
    let is_done = !looked.written || (looked.pressed && index < looked.last);
    let is_calm = !looked.awaited && state.far.lent.is_calm(file.ino, now, calm);
    let may = from != me || (is_done && is_calm);
    state.far.stripes.calms |= from == me && is_done && !is_calm && !looked.awaited;
    if is_free && may { Next::Goes { from, to } } else { Next::Later }
}

/// What a member that is about to leave has, and nobody else takes just now, comes here if there
/// is room.
fn comes_home(state: &mut State, (ino, index): (Ino, u64), from: Member) {
    let is = state.far.stripes.leaving.contains(&from) && !state.storage.is_wanted(ino, index);
    let few = state.storage.wanted().filter(|(_, it)| !it.needed && it.error.is_none());
    let few = few.count() < AT_ONCE;
    if is && few && eviction::has_room(state, CHUNK_BYTES as usize) {
        lent::want(state, ino, index, from);
    }
}

/// So many bytes of a chunk are in a file of this size.
fn inside(size: u64, index: u64) -> u32 {
    size.saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES) as u32
}

/// A member is told to take a chunk.
fn goes(
    state: &mut State,
    looked: &Looked,
    (index, found): (u64, MapEntry),
    (from, to): (Member, Member),
) {
    let FileRef { ino, slot } = looked.file;
    // What nobody has written to takes no memory anywhere.
    if from == looked.me && state.storage.take_unused(&state.sessions, slot, index) {
        return;
    }
    let entry = match from == looked.me {
        true => state.storage.offer(&state.sessions, slot, index),
        false => Some(found),
    };
    let (Some(entry), Ok(())) = (entry, asking::live(state)) else { return };
    let bytes = inside(state.storage.size(slot), index);
    let stamp = state.far.lent.next_stamp(state.starts);
    let offer = Offer { to, from, stamp, entry, since: state.world.now(), takes: Some(bytes) };
    state.far.offers.begin((ino, index), offer);
    lent::tell(state, to, ino, Act::Take { index, bytes, from, stamp });
}

/// A member has all of a chunk that it was to take.
///
/// # Errors
/// [`ErrorKind::NotFound`] if the file is no more; if the map cannot have it.
pub fn kept(
    state: &mut State,
    (ino, to): (Ino, Member),
    (index, stamp): (u64, u64),
) -> Result<Reply> {
    let slot: Option<FileSlot> = state.names.inode(ino).and_then(|inode| inode.slot);
    let gone = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
    let slot = slot.ok_or_else(gone)?;
    let size = state.storage.size(slot);
    let answer = Reply::LentTo(LentTo { count: 1, size, stamp });
    if state.storage.placed(slot, index) == Some(to) {
        return Ok(answer);
    }
    let offer = state.far.offers.end((ino, index), (to, stamp));
    let Some(Offer { entry, from, takes: Some(bytes), .. }) = offer else {
        return Ok(Reply::Again);
    };
    // Not for each, where there are many.
    state.far.stripes.looks |= state.far.offers.taken() <= AT_ONCE / 2;
    state.far.stripes.is_quick((from, to));
    let now = state.storage.memory().entry(slot, index);
    let same = now == entry || (!does(Step::CompareOffers) && now.is_chunk_of(entry));
    let is_free = state.far.lent.is_told(ino, index) && !state.storage.is_wanted(ino, index);
    // What was written there before nobody did any more may have made the file longer since.
    let is_all = inside(size, index) <= bytes;
    if !same || !is_all || !is_free || !may_keep(state, to) || state.finishing {
        return Ok(Reply::Again);
    }
    let with = entry.with().filter(|with| *with != to);
    state.storage.place(slot, index, entry, to)?;
    state.far.stripes.returned.remove(&(ino, index));
    with.into_iter().for_each(|with| lent::tell_taken(state, ino, index, with));
    // Who waits for memory may have some.
    state.far.has_news();
    state.far.offers.forget(ino, (index, 1));
    Ok(answer)
}
