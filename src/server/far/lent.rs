//! Chunks of files that were born here, and that other members have for themselves: who gets which,
//! and how they come back, with what was written to them.
//!
//! Invariant: a chunk is lent only if nothing of it is here or in the permanent store, and nobody
//! was told since that it came back without having heard. What comes counts as far as the file is
//! long: who has written beyond writes that once more. Not here: who waits for it (`storage/away`),
//! and what the other member does (`borrowing`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::ids::{Ino, Member, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::{Act, BYTES_MAX, Done};
use terral_format::wire::far_files::LentTo;
use terral_format::wire::message::{FileRef, Reply};
use terral_format::wire::peers::Failure;
use terral_format::{ErrorKind, Result};
use terral_partition::terms::Terms;
use terral_store::sparse::Sparse;

use super::role::Outcome;
use super::{asking, keeping};
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::core::world::Tick;
use crate::debts::owing;
use crate::storage::away::Wanted;
use crate::storage::{Storage, charging, eviction};

/// Chunks that are on their way at a time.
const AT_ONCE: usize = 16;
/// And from one member: who does not give them holds no others up.
const OF_ONE: usize = 6;
/// Most chunks that are lent at once: 32 MiB.
const LENT_MAX: u32 = 16;
/// Most chunks that a member says at once that it wants to be rid of: 2 GiB.
pub const RETURNED_MAX: u32 = 1024;
/// Each comes in so many parts.
const PARTS: usize = (CHUNK_BYTES / BYTES_MAX as u64) as usize;
/// What finds no memory, or fails, is asked for again after that.
const PAUSE: Duration = Duration::from_millis(500);
/// A file of which so many chunks were needed by others, and more than half of all that were lent,
/// is one that several write to everywhere: none is lent any more, until none was needed for a
/// while, or the file is empty.
const NEEDED_MAX: u32 = 4;
const CALM: Duration = Duration::from_secs(5);

/// A chunk that is on its way.
struct Coming {
    with: Member,
    /// It was asked for with this: what is said of an earlier time is old.
    stamp: u64,
    since: Tick,
    parts: [Option<Vec<u8>>; PARTS],
}

/// What is asked for, of whom, and whether somebody waits for it.
type Asks = ((Ino, u64), Member, bool);

/// How what is lent of a file is used.
#[derive(Clone, Copy, Default)]
struct Use {
    lent: u32,
    needed: u32,
    /// When one was, last.
    last: Tick,
}

/// See the module.
#[derive(Default)]
pub struct Lent {
    stamp: u64,
    coming: BTreeMap<(Ino, u64), Coming>,
    uses: BTreeMap<Ino, Use>,
    /// What came back, and who had it has not heard that yet, as he is told with this stamp.
    untold: BTreeSet<(Ino, u64, Member, u64)>,
}

impl Lent {
    pub(super) fn next_stamp(&mut self, starts: u64) -> u64 {
        self.stamp = (self.stamp + 1).max(starts << 40);
        self.stamp
    }

    /// Whether all who had a chunk have heard that they have it no more.
    pub(super) fn is_told(&self, ino: Ino, index: u64) -> bool {
        let of = |member| (ino, index, member, u64::MIN);
        let mut untold = self.untold.range(of(Member::LEAST)..);
        untold.next().is_none_or(|untold| (untold.0, untold.1) != (ino, index))
    }

    /// Whether this one has not.
    fn is_telling(&self, ino: Ino, index: u64, with: Member) -> bool {
        let of = |stamp| (ino, index, with, stamp);
        self.untold.range(of(u64::MIN)..=of(u64::MAX)).next().is_some()
    }

    /// Whether more may be asked of a member, beside what just is.
    fn is_asked_little(&self, with: Member, just: &[Asks]) -> bool {
        let before = self.coming.values().filter(|coming| coming.with == with).count();
        before + just.iter().filter(|asks| asks.1 == with).count() < OF_ONE
    }

    /// What nobody needs here, and is not on its way, is not to come.
    pub(super) fn does_not_come(&self, storage: &mut Storage, ino: Ino, index: u64) {
        let is_needed = storage.wanted_of(ino, index).is_some_and(|it| it.needed);
        if !is_needed && !self.coming.contains_key(&(ino, index)) {
            storage.forget_wanted(ino, index);
        }
    }

    /// Whether nothing of a file was needed here for so long.
    pub(super) fn is_calm(&self, ino: Ino, now: Tick, calm: Duration) -> bool {
        let last = self.uses.get(&ino).filter(|used| used.needed > 0).map(|used| used.last);
        last.is_none_or(|last| now.since(last) > calm)
    }

    fn may_lend(&mut self, ino: Ino, is_empty: bool, now: Tick) -> bool {
        let used = self.uses.entry(ino).or_default();
        if is_empty || now.since(used.last) > CALM {
            *used = Use { last: used.last, ..Use::default() };
        }
        used.needed < NEEDED_MAX || used.needed * 2 < used.lent
    }
}

/// A member wants so many chunks, from one on, of what was born here.
///
/// # Errors
/// If the log is full, or the map cannot have them.
pub fn lend_to(
    state: &mut State,
    (ino, to): (Ino, Member),
    (first, count): (u64, u32),
) -> Result<Reply> {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    // What is fenced is written where its fence is looked at.
    let lends = !state.finishing && state.fences.fence(ino) == 0;
    let Some(slot) = slot.filter(|_| lends) else { return Ok(Reply::Again) };
    let is_empty = state.storage.size(slot) == 0;
    if !state.far.lent.may_lend(ino, is_empty, state.world.now()) {
        return Ok(Reply::Again);
    }
    let (file, mut lent) = (FileRef { ino, slot }, 0);
    for index in first..first.saturating_add(u64::from(count.min(LENT_MAX))) {
        let told = state.far.lent.is_told(ino, index);
        let may = told && !state.storage.is_backed(file, index);
        let is_free = may && state.storage.take_unused(&state.sessions, slot, index);
        let is_its = state.storage.with(slot, index) == Some(to);
        let is_its = is_its && !state.storage.is_wanted(ino, index);
        let is_its = is_its && state.storage.placed(slot, index).is_none();
        let end = index.saturating_add(1).saturating_mul(CHUNK_BYTES);
        let fits = is_its || (is_free && charging::grow(state, ino, end).is_ok());
        if !fits || (is_free && state.storage.lend(slot, index, to).is_err()) {
            break;
        }
        is_lent(state, ino, index);
        lent += 1;
    }
    if lent == 0 {
        return Ok(Reply::Again);
    }
    owing::owe(state, ino);
    state.far.lent.uses.entry(ino).or_default().lent += lent;
    let (stamp, size) = (state.far.lent.next_stamp(state.starts), state.storage.size(slot));
    Ok(Reply::LentTo(LentTo { count: lent, size, stamp }))
}

/// A member has a chunk for itself from now on: what was offered or said of it before means
/// nothing.
pub(super) fn is_lent(state: &mut State, ino: Ino, index: u64) {
    if does(Step::ForgetOffers) {
        state.far.offers.forget(ino, (index, 1));
    }
    state.far.stripes.is_lent(ino, index);
}

/// A member wants chunks of its to be asked back, and may be about to leave.
///
/// # Errors
/// None.
pub fn bring_back(
    state: &mut State,
    (ino, with, leaves): (Ino, Member, bool),
    (first, count): (u64, u32),
) -> Result<Reply> {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    keeping::says(state, ino, (with, leaves));
    for index in first..first.saturating_add(u64::from(count.min(RETURNED_MAX))) {
        let has = slot.and_then(|slot| state.storage.with(slot, index));
        let coming = state.far.lent.coming.get(&(ino, index));
        let kept = slot.is_some_and(|slot| state.storage.placed(slot, index).is_some());
        if has == Some(with) {
            if kept && !leaves {
                continue;
            }
            match keeping::goes_on(state, ino, index, with) {
                true => state.far.lent.does_not_come(&mut state.storage, ino, index),
                false => want(state, ino, index, with),
            }
        } else if coming.is_none_or(|coming| coming.with != with) {
            tell_taken(state, ino, index, with);
        }
    }
    let stays = state.far.stripes.of(ino).is_some() && !leaves;
    Ok(if stays { Reply::Again } else { Reply::Done })
}

pub(super) fn want(state: &mut State, ino: Ino, index: u64, with: Member) {
    let wanted = Wanted::of(with, state.world.now(), false);
    state.storage.want((ino, index), wanted, None);
}

/// Everything that others have is to come back.
pub fn bring_all_back(state: &mut State) {
    let files: Vec<_> = state.names.inodes().map(|it| it.ino).collect();
    files.into_iter().for_each(|ino| bring_all_of(state, ino));
}

/// The same of one file.
pub fn bring_all_of(state: &mut State, ino: Ino) {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    let Some(slot) = slot else { return };
    for (index, with) in state.storage.away(slot) {
        if state.storage.placed(slot, index).is_none() {
            want(state, ino, index, with);
        }
    }
}

/// A member has a file open no more, and has nothing of it; what one had that was removed is lost,
/// and stays so.
pub fn has_nothing(state: &mut State, ino: Ino, member: Member) {
    if state.far.removed_of(member).is_some() || is_closed(state, ino, member) {
        return;
    }
    if let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) {
        state.storage.has_nothing(FileRef { ino, slot }, member);
    }
    state.far.lent.untold.retain(|(of, _, with, _)| (*of, *with) != (ino, member));
}

/// A member has a striped file open no more: what it has of it that it has not spoken of comes
/// here. Whether it is one.
fn is_closed(state: &mut State, ino: Ino, member: Member) -> bool {
    if state.far.stripes.of(ino).is_none() {
        return false;
    }
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    for (index, with) in slot.map(|slot| state.storage.away(slot)).unwrap_or_default() {
        let kept = slot.is_some_and(|slot| state.storage.placed(slot, index).is_some());
        let spoken = state.far.stripes.returned.get(&(ino, index)) == Some(&with);
        if with == member && !kept && !spoken {
            want(state, ino, index, with);
        }
    }
    true
}

/// What only who has it wants to be rid of comes once there is room for what counts of it.
fn wait_for_room(state: &mut State) {
    let now = state.world.now();
    let State { storage, far, .. } = state;
    let coming = &far.lent.coming;
    let waits = |wanted: &Wanted| !wanted.needed && wanted.since <= now && wanted.error.is_none();
    let due = storage.wanted().filter(|(which, it)| waits(it) && !coming.contains_key(*which));
    let due: Vec<(Ino, u64)> = due.map(|(which, _)| *which).collect();
    let (mut looked, mut lacking) = (0, usize::MAX);
    for (ino, index) in due {
        let slot = state.names.inode(ino).and_then(|inode| inode.slot);
        let kept = slot.and_then(|slot| state.storage.placed(slot, index));
        if kept.is_some_and(|with| !state.far.stripes.leaving.contains(&with)) {
            // Who needed it does not any more.
            state.storage.forget_wanted(ino, index);
            continue;
        }
        let size = slot.map_or(0, |slot| state.storage.size(slot));
        let bytes = size.saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES) as usize;
        if bytes > 0 && bytes < lacking && looked < AT_ONCE {
            looked += 1;
            lacking = if eviction::has_room(state, bytes) { lacking } else { bytes };
        }
        if bytes >= lacking {
            is_asked_later(state, ino, index);
        }
    }
}

/// Asks for what is wanted back.
pub(super) fn ask_back(state: &mut State) {
    wait_for_room(state);
    let now = state.world.now();
    // Who does not give what was asked of him holds nobody up.
    let coming = state.far.lent.coming.values();
    let room = AT_ONCE.saturating_sub(coming.filter(|it| now.since(it.since) < CALM).count());
    let State { storage, far, .. } = state;
    let mut wanted: Vec<_> = storage.wanted().collect();
    wanted.sort_by_key(|(_, wanted)| !wanted.needed);
    let mut asked = Vec::new();
    for (which, wanted) in wanted {
        if far.lent.coming.contains_key(which) || wanted.since > now {
            continue;
        }
        if let Some(removed) = far.removed_of(wanted.with) {
            if wanted.error.is_none() {
                wanted.error = Some(Failure::Removed(removed).error());
                far.has_news();
            }
        } else if asked.len() < room && far.lent.is_asked_little(wanted.with, &asked) {
            wanted.is_asked_for();
            asked.push((*which, wanted.with, wanted.is_awaited()));
        }
    }
    for ((ino, index), with, needed) in asked {
        let uses = state.far.lent.uses.entry(ino).or_default();
        if needed {
            (uses.needed, uses.last) = (uses.needed + 1, now);
        }
        let stamp = state.far.lent.next_stamp(state.starts);
        let coming = Coming { with, stamp, since: now, parts: Default::default() };
        if asking::live(state).is_err() {
            return;
        }
        state.far.lent.coming.insert((ino, index), coming);
        for part in 0..PARTS {
            let (at, bytes) = ((part * BYTES_MAX) as u32, BYTES_MAX as u32);
            let act = Act::GiveBack { index, at, bytes, stamp };
            tell(state, with, ino, act);
        }
    }
}

pub(super) fn tell(state: &mut State, to: Member, ino: Ino, act: Act) {
    let Some(members) = &state.members else { return };
    let Some(file) = members.number(ino) else { return };
    let (by, now) = (members.me(), state.world.now());
    state.far.asks_user((to, by), (file, act), now);
}

/// Who had a chunk is told that it has it no more, unless it is being told already: it has got
/// nothing of it since.
pub(super) fn tell_taken(state: &mut State, ino: Ino, index: u64, with: Member) {
    if state.far.lent.is_telling(ino, index, with) {
        return;
    }
    let stamp = state.far.lent.next_stamp(state.starts);
    if state.far.removed_of(with).is_none() && asking::live(state).is_ok() {
        state.far.offers.forget_of((ino, index), with);
        state.far.lent.untold.insert((ino, index, with, stamp));
        tell(state, with, ino, Act::Took { index, stamp });
    }
}

/// Who had a chunk has heard that it is here.
pub(super) fn is_told(state: &mut State, from: Member, file: Number, (index, stamp): (u64, u64)) {
    state.far.lent.untold.remove(&(Ino(file.counted()), index, from, stamp));
    state.far.stripes.is_unsettled(Ino(file.counted()));
}

/// A part of a chunk has come, or does not.
pub(super) fn came(
    state: &mut State,
    file: Number,
    (index, at, stamp): (u64, u32, u64),
    outcome: Outcome,
) -> Result<()> {
    let ino = Ino(file.counted());
    let coming = state.far.lent.coming.get_mut(&(ino, index));
    let Some(coming) = coming.filter(|coming| coming.stamp == stamp) else { return Ok(()) };
    let bytes = match outcome {
        Ok((Done::Read, bytes)) => bytes,
        Ok(_) => Vec::new(),
        Err(error) if error.kind == ErrorKind::TextBusy => {
            state.far.lent.coming.remove(&(ino, index));
            state.storage.refuses(ino, index);
            state.far.has_news();
            return Ok(());
        }
        Err(error) => {
            later(state, ino, index, error.kind == ErrorKind::NotFound);
            return Ok(());
        }
    };
    if let Some(part) = coming.parts.get_mut(at as usize / BYTES_MAX) {
        *part = Some(bytes);
    }
    if coming.parts.iter().any(Option::is_none) {
        return Ok(());
    }
    let Some(coming) = state.far.lent.coming.remove(&(ino, index)) else { return Ok(()) };
    put(state, ino, index, coming)
}

/// All of a chunk has come.
fn put(state: &mut State, ino: Ino, index: u64, coming: Coming) -> Result<()> {
    let Coming { with, parts, .. } = coming;
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    let slot = slot.filter(|slot| state.storage.with(*slot, index) == Some(with));
    let Some(slot) = slot else {
        state.storage.forget_wanted(ino, index);
        state.far.has_news();
        return Ok(());
    };
    let mut bytes = Vec::new();
    for (at, part) in (0..).step_by(BYTES_MAX).zip(parts.into_iter().flatten()) {
        if !part.is_empty() {
            bytes.resize(at, 0);
            bytes.extend(part);
        }
    }
    let size = state.storage.size(slot).saturating_sub(index * CHUNK_BYTES);
    bytes.truncate(size.min(CHUNK_BYTES) as usize);
    let (file, bytes) = (FileRef { ino, slot }, Sparse::from(bytes));
    let put = eviction::with_room(state, |state| state.storage.came(file, index, &bytes));
    state.far.has_news();
    if put.is_err() {
        // Who needs it waits for room, and asks for it then.
        later(state, ino, index, false);
        if let Some(wanted) = state.storage.wanted_of(ino, index) {
            wanted.lacks_room = true;
        }
        return Ok(());
    }
    owing::owe(state, ino);
    let is_striped = state.far.stripes.of(ino).is_some();
    if let Some(uses) = state.far.lent.uses.get_mut(&ino).filter(|_| is_striped) {
        // It is not sent away before who needs it has it.
        uses.last = state.world.now();
    }
    tell_taken(state, ino, index, with);
    state.far.stripes.is_unsettled(ino);
    state.commit()
}

/// It is asked for again by and by, if it still is wanted.
fn later(state: &mut State, ino: Ino, index: u64, forget: bool) {
    state.far.lent.coming.remove(&(ino, index));
    if forget {
        state.storage.forget_wanted(ino, index);
    }
    is_asked_later(state, ino, index);
}

fn is_asked_later(state: &mut State, ino: Ino, index: u64) {
    let again = state.world.now() + PAUSE;
    if let Some(wanted) = state.storage.wanted_of(ino, index) {
        wanted.since = again;
    }
}

/// Who waits for what does not come is told why.
pub(super) fn tick(state: &mut State) {
    let now = state.world.now();
    let State { storage, far, .. } = state;
    for (_, wanted) in storage.wanted() {
        let is_late = wanted.needed && now.since(wanted.since) >= Terms::USUAL.patience;
        if is_late && wanted.error.is_none() {
            wanted.error = Some(Failure::Silent(wanted.with).error());
            far.has_news();
        }
    }
}

/// A member is none any more: what it has does not come.
pub(super) fn removed(state: &mut State, member: Member) {
    state.far.lent.coming.retain(|_, coming| coming.with != member);
    state.far.lent.untold.retain(|(_, _, with, _)| *with != member);
}

/// What was born here is no more.
pub fn forget(state: &mut State, ino: Ino) {
    state.storage.forget_mapped(ino);
    let Lent { coming, uses, untold, .. } = &mut state.far.lent;
    coming.retain(|(of, _), _| *of != ino);
    untold.retain(|(of, ..)| *of != ino);
    uses.remove(&ino);
    let wanted = state.storage.wanted().map(|(which, _)| *which);
    let wanted: Vec<_> = wanted.filter(|(of, _)| *of == ino).collect();
    wanted.into_iter().for_each(|(ino, index)| state.storage.forget_wanted(ino, index));
}
