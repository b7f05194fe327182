//! Files of other members that nobody changes, as their homes have shown: what is read of them is
//! kept, for all processes here, and read ahead.
//!
//! Invariant: what is kept of a file was read there after it was shown, and goes when it is shown
//! no more, which its home waits for before anybody may write. A file that is open for writing at
//! its home is not shown. Not here: where the bytes lie (`storage/cache`), and how a file comes to
//! be shown (`files/far_reads`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use terral_format::Result;
use terral_format::ids::{Member, Number, Thing};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::BYTES_MAX;
use terral_format::wire::far_files::{CALL_MAX, PIECE_MAX};
use terral_format::wire::message::Reply;

use super::role::Ahead;
use super::{asking, parts};
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::core::world::Tick;
use crate::storage::cache::{BLOCK_BYTES, Call};

/// Blocks that one question asks for at most: those that are read ahead.
const ASKED_MAX: u64 = BYTES_MAX as u64 / BLOCK_BYTES;
/// And those that are waited for, so that the first are copied while others come.
const WAITED_MAX: u64 = ASKED_MAX / 2;
/// Blocks read ahead of who reads one after the other: 1 MiB at first, then twice as much each
/// time, up to 4 MiB.
const WINDOWS: Range<u64> = 8..33;
/// So many that read at once do not drive out what is read ahead for each other.
const STREAMS: u64 = 8;
/// A file that its home does not show is not asked for again before that.
const PAUSE: Duration = Duration::from_secs(1);

/// A file that is shown, and read.
struct Reading {
    /// Which time it is: what was asked before belongs to another one.
    since: u64,
    size: u64,
    /// The block after the last one that was read, and how much is read ahead there.
    next: Option<u64>,
    window: u64,
    /// Blocks that are on their way.
    asked: BTreeSet<u64>,
}

/// See the module.
#[derive(Default)]
pub struct Shown {
    files: BTreeMap<Number, Reading>,
    count: u64,
    refused: BTreeMap<Number, Tick>,
}

impl Shown {
    fn begins(&mut self, file: Number, size: u64) -> &mut Reading {
        self.files.entry(file).or_insert_with(|| {
            self.count += 1;
            let (next, window, asked) = Default::default();
            Reading { since: self.count, size, next, window, asked }
        })
    }
}

impl Reading {
    /// How much is to be read ahead of these blocks, of which so many may be kept.
    fn window(&self, blocks: &Range<u64>, most: u64) -> u64 {
        let follows = |next| blocks.start == next || blocks.start + 1 == next;
        match self.next.is_some_and(follows) {
            true => (self.window * 2).clamp(WINDOWS.start, WINDOWS.end - 1).min(most / STREAMS),
            false => 0,
        }
    }
}

/// Whether a file is to be had shown, which it is not: not if it was refused just now.
pub fn may_be(state: &State, file: Number) -> bool {
    let shown = state.members.as_ref().and_then(|it| it.shown(Thing::File(file), state));
    shown.is_none() && is_of_use(state, file)
}

/// Whether it is of use that a file is shown.
fn is_of_use(state: &State, file: Number) -> bool {
    let refused = |until: &Tick| state.world.now() < *until;
    let is_refused = state.far.shown.refused.get(&file).is_some_and(refused);
    !is_refused && !state.far.is_removed(file.born())
}

/// It is not shown, or cannot be kept: for some time all is asked for.
pub fn refused(state: &mut State, file: Number) {
    over(state, file);
    let now = state.world.now();
    state.far.shown.refused.retain(|_, until| now < *until);
    state.far.shown.refused.insert(file, now + PAUSE);
}

/// A file is shown no more.
pub fn over(state: &mut State, file: Number) {
    if does(Step::ForgetKept) && state.far.shown.files.remove(&file).is_some() {
        state.storage.forget_blocks(file);
    }
}

/// What a call reads of a file, if that is shown: from `at` on so many bytes, or fewer.
///
/// # Errors
/// If who asks must wait for it.
pub(super) fn read(
    state: &mut State,
    call: Call,
    file: Number,
    (at, bytes): (u64, u64),
) -> Result<Option<Reply>> {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    // What was asked for is waited for.
    if asker.is_none_or(|asker| state.far.is_asked(asker, file, asking::Step::Read as u8)) {
        return Ok(None);
    }
    let copy = state.members.as_ref().and_then(|it| it.shown(Thing::File(file), state));
    let copy = copy.filter(|_| is_of_use(state, file));
    let Some(size) = copy.map(|copy| copy.attributes().map(|attributes| attributes.size)) else {
        over(state, file);
        return Ok(None);
    };
    let size = state.far.shown.begins(file, size?).size;
    let end = at.saturating_add(bytes.min(CALL_MAX as u64)).min(size);
    if at >= end {
        return Ok(Some(Reply::Extent(Vec::new())));
    }
    let blocks = at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
    ask_for(state, file, &blocks)?;
    let is_small = bytes <= PIECE_MAX as u64;
    let mut needed = if is_small { blocks.clone() } else { blocks.start..blocks.start + 1 };
    if !needed.all(|block| state.storage.has_block((file, block))) {
        return match state.far.shown.files.contains_key(&file) {
            true => Err(state.fetches.wait()),
            false => Ok(None),
        };
    }
    let places = state.storage.lend_blocks(call, file, (at, end - at));
    if places.is_empty() {
        return Ok(None);
    }
    let most = state.storage.most_blocks();
    if let Some(reading) = state.far.shown.files.get_mut(&file) {
        reading.window = reading.window(&blocks, most);
        reading.next = Some(blocks.end);
    }
    if is_small {
        let read = state.storage.copy_blocks(&places);
        state.storage.is_through(call);
        return read.map(|read| Some(Reply::Extent(read)));
    }
    let read: u64 = places.iter().map(|place| u64::from(place.bytes)).sum();
    Ok(Some(Reply::Stored { places, ends: at + read == size }))
}

/// Has these blocks of a file on their way, and those that will be read next.
fn ask_for(state: &mut State, file: Number, blocks: &Range<u64>) -> Result<()> {
    let Some(reading) = state.far.shown.files.get(&file) else { return Ok(()) };
    let (since, size) = (reading.since, reading.size);
    let is_free =
        |block: &u64| !reading.asked.contains(block) && !state.storage.has_block((file, *block));
    let window = reading.window(blocks, state.storage.most_blocks());
    let all = size.div_ceil(BLOCK_BYTES);
    let ahead = blocks.end..(blocks.end + window).min(all);
    let mut wanted: Vec<u64> = blocks.clone().filter(is_free).collect();
    // More at a time, and not a block for each that was read.
    let far = ahead.clone().find(is_free);
    if far.is_some_and(|far| far <= blocks.end + window / 2) {
        wanted.extend(ahead.filter(is_free));
    }
    let Some(me) = state.members.as_ref().map(|members| members.me()) else { return Ok(()) };
    if wanted.is_empty() {
        return Ok(());
    }
    asking::live(state)?;
    let now = state.world.now();
    let (waited, ahead) = wanted.split_at(wanted.partition_point(|block| *block < blocks.end));
    let of = |wanted: &[u64], most: u64| {
        let runs = wanted.chunk_by(|one, next| one + 1 == *next);
        let runs = runs.flat_map(|run| run.chunks(most as usize)).map(<[u64]>::to_vec);
        runs.collect::<Vec<_>>()
    };
    for run in [of(waited, WAITED_MAX), of(ahead, ASKED_MAX)].concat() {
        let at = run[0] * BLOCK_BYTES;
        let bytes = (run.len() as u64 * BLOCK_BYTES).min(size - at) as u32;
        state.far.reads_ahead((me, None), &Ahead { file, at, bytes, since }, now);
    }
    if let Some(reading) = state.far.shown.files.get_mut(&file) {
        reading.asked.extend(wanted);
    }
    Ok(())
}

/// What was asked for has come, or does not.
pub(super) fn came(state: &mut State, ahead: &Ahead, bytes: Option<&[u8]>) {
    let Ahead { file, at, since, .. } = *ahead;
    let first = at / BLOCK_BYTES;
    let Some(reading) = state.far.shown.files.get_mut(&file).filter(|it| it.since == since) else {
        return;
    };
    let count = u64::from(ahead.bytes).div_ceil(BLOCK_BYTES);
    reading.asked.retain(|block| !(first..first + count).contains(block));
    let Some(bytes) = bytes.filter(|bytes| bytes.len() == ahead.bytes as usize) else {
        return refused(state, file);
    };
    for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
        if state.storage.keep_block((file, block), bytes).is_err() {
            return refused(state, file);
        }
    }
}

/// What was asked for is with a member that keeps its chunk, as its home says: it is asked of that
/// one, and what comes after that chunk of its home again.
pub(super) fn is_with(state: &mut State, ahead: &Ahead, member: Member) {
    let Ahead { file, at, bytes, since } = *ahead;
    let is_still = state.far.shown.files.get(&file).is_some_and(|reading| reading.since == since);
    let me = state.members.as_ref().map(|members| members.me());
    let Some(me) = me.filter(|_| is_still) else { return };
    if state.far.removed_of(member).is_some() {
        return refused(state, file);
    }
    let first = (CHUNK_BYTES - at % CHUNK_BYTES).min(bytes.into()) as u32;
    let now = state.world.now();
    let part = Ahead { file, at, bytes: first, since };
    if first < bytes {
        let (at, bytes) = (at + u64::from(first), bytes - first);
        state.far.reads_ahead((me, None), &Ahead { file, at, bytes, since }, now);
    }
    if member != me {
        return state.far.reads_ahead((me, Some(member)), &part, now);
    }
    let (index, within) = (at / CHUNK_BYTES, (at % CHUNK_BYTES) as u32);
    let mut read = parts::copy(state, (file, index), 0, (within, first as usize)).ok().flatten();
    read.iter_mut().for_each(|read| read.resize(first as usize, 0));
    came(state, &part, read.as_deref());
}
