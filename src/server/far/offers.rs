//! Chunks that were born here, and that another member is to have whatever is in them, as programs
//! there map them: they are offered, read there, and handed over once all bytes are there.
//!
//! Invariant: a chunk is handed over only if nobody can have changed it since it was offered: its
//! entry is the very one that the offer left, with the recall flag, which whoever is about to write
//! has taken down by the server; an offer of a process that is no more counts nothing. So the bytes
//! are in the memory of one of both at any time. Not here: what the other member does (`arriving`),
//! and who has what afterwards (`lent`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::{Ino, Member};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far_files::{LentTo, Offered};
use terral_format::wire::message::{FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::core::world::Tick;
use crate::debts::owing;
use crate::storage::{bringing, mapping};

/// So long a chunk may take to where it is to be.
const TAKES: Duration = Duration::from_secs(5);
/// And who maps one to say that he has it: he may be gone.
const MAPS: Duration = Duration::from_secs(60);

/// A chunk that was offered.
pub(super) struct Offer {
    pub(super) to: Member,
    /// Who has it until then.
    pub(super) from: Member,
    pub(super) stamp: u64,
    /// What the offer has left in the map.
    pub(super) entry: MapEntry,
    /// When.
    pub(super) since: Tick,
    /// To be kept there, and not to be mapped: so many bytes of it count.
    pub(super) takes: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Offers(BTreeMap<(Ino, u64), Offer>);

impl Offers {
    /// How many chunks are on their way to where they are to be.
    pub(super) fn taken(&self) -> usize {
        self.0.values().filter(|offer| offer.takes.is_some()).count()
    }

    pub(super) fn has(&self, ino: Ino, index: u64) -> bool {
        self.0.contains_key(&(ino, index))
    }

    pub(super) fn begin(&mut self, which: (Ino, u64), offer: Offer) {
        self.0.insert(which, offer);
    }

    /// A chunk has come where it is to be, by this stamp, or does not. Gives its offer, if that is
    /// so.
    pub(super) fn end(&mut self, which: (Ino, u64), of: (Member, u64)) -> Option<Offer> {
        let is_it = |it: &Offer| (it.to, it.stamp) == of && it.takes.is_some();
        self.0.get(&which).filter(|offer| is_it(offer))?;
        self.0.remove(&which)
    }

    /// What a member was to have of a chunk, it has no more.
    pub(super) fn forget_of(&mut self, which: (Ino, u64), to: Member) {
        if self.0.get(&which).is_some_and(|offer| offer.to == to) {
            self.0.remove(&which);
        }
    }

    /// How many of these are a member's until then.
    pub(super) fn taken_from(&self, from: Member) -> usize {
        self.0.values().filter(|offer| offer.takes.is_some() && offer.from == from).count()
    }

    /// What a chunk that is to be taken from here by this stamp was when it was offered.
    pub(super) fn taken_by(&self, ino: Ino, index: u64, stamp: u64) -> Option<MapEntry> {
        let offer = self.0.get(&(ino, index))?;
        (offer.takes.is_some() && offer.stamp == stamp).then_some(offer.entry)
    }

    /// What has taken too long does not count any more. Gives those of it that were to be taken.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<((Ino, u64), Offer)> {
        let bound = |offer: &Offer| if offer.takes.is_some() { TAKES } else { MAPS };
        let old = self.0.extract_if(.., |_, offer| now.since(offer.since) >= bound(offer));
        old.filter(|(_, offer)| offer.takes.is_some()).collect()
    }

    /// What a member was to take, or to have taken from it, does not count any more.
    pub(super) fn forget_taken(&mut self, by: Member) {
        self.0.retain(|_, it| it.takes.is_none() || (it.to != by && it.from != by));
    }
}

/// Offers of these chunks count nothing any more.
pub fn forget(state: &mut State, ino: Ino, (first, count): (u64, u32)) {
    let chunks = first..first.saturating_add(u64::from(count));
    state.far.offers.0.retain(|(of, index), _| *of != ino || !chunks.contains(index));
}

/// So it is with all of a file.
pub fn forget_all(state: &mut State, ino: Ino) {
    state.far.offers.0.retain(|(of, _), _| *of != ino);
}

fn file_of(state: &State, ino: Ino) -> Option<FileRef> {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot)?;
    (!state.finishing).then_some(FileRef { ino, slot })
}

/// A member has a chunk for itself from now on: what was offered or said of it before means nothing.
pub(super) fn is_lent(state: &mut State, ino: Ino, index: u64) {
    if does(Step::ForgetOffers) {
        forget(state, ino, (index, 1));
    }
    state.far.stripes.is_lent(ino, index);
}

/// Whether a member has a chunk, and nobody wants it back.
fn is_its(state: &State, file: FileRef, index: u64, to: Member) -> bool {
    let is_wanted = state.storage.is_wanted(file.ino, index);
    let is_kept = state.storage.placed(file.slot, index).is_some();
    state.storage.with(file.slot, index) == Some(to) && !is_wanted && !is_kept
}

/// A chunk is a member's, as it was: what was to be taken from it before may change from now on.
fn lent(state: &mut State, file: FileRef, index: u64) -> Reply {
    is_lent(state, file.ino, index);
    state.storage.maps_there(file.ino, index, true);
    let (count, size) = (1, state.storage.size(file.slot));
    let stamp = state.far.lent.next_stamp(state.starts);
    Reply::LentTo(LentTo { count, size, stamp })
}

/// A member wants a chunk of what was born here, to be mapped there.
///
/// # Errors
/// If who asks must wait for what is not here; [`ErrorKind::TextBusy`] if somebody has it mapped;
/// and as bringing it does.
pub fn offer(state: &mut State, (ino, to): (Ino, Member), index: u64) -> Result<Reply> {
    let me = state.members.as_ref().map(|members| members.me());
    let Some((file, from)) = file_of(state, ino).zip(me) else { return Ok(Reply::Again) };
    if is_its(state, file, index, to) {
        return Ok(lent(state, file, index));
    }
    mapping::permit_storing(state, ino)?;
    if !state.far.lent.is_told(ino, index) {
        return Ok(Reply::Again);
    }
    let found = state.storage.memory().entry(file.slot, index).unrecalled();
    if !found.is_here() && (!found.is_absent() || state.storage.is_backed(file, index)) {
        bringing::bring(state, file, index)?;
    }
    let mut entry = state.storage.memory().entry(file.slot, index).unrecalled();
    if entry.is_here() {
        let offered = state.storage.offer(&state.sessions, file.slot, index);
        let mapped = || Error::new(ErrorKind::TextBusy, format!("file {ino} is mapped"));
        entry = offered.ok_or_else(mapped)?;
    }
    let stamp = state.far.lent.next_stamp(state.starts);
    let offer = Offer { to, from, stamp, entry, since: state.world.now(), takes: None };
    state.far.offers.0.insert((ino, index), offer);
    let size = state.storage.size(file.slot);
    let inside = size.saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES) as u32;
    let bytes = if entry.is_absent() { 0 } else { inside };
    Ok(Reply::Offered(Offered { size, bytes, stamp }))
}

/// A member has all that was offered to it by this stamp.
///
/// # Errors
/// If the log is full, or the map cannot have it.
pub fn accepted(
    state: &mut State,
    (ino, to): (Ino, Member),
    (index, stamp): (u64, u64),
) -> Result<Reply> {
    let Some(file) = file_of(state, ino) else { return Ok(Reply::Again) };
    if is_its(state, file, index, to) {
        return Ok(lent(state, file, index));
    }
    let offer = state.far.offers.0.remove(&(ino, index));
    let offer =
        offer.filter(|offer| (offer.to, offer.stamp) == (to, stamp) && offer.takes.is_none());
    let Some(Offer { entry, .. }) = offer else { return Ok(Reply::Again) };
    let now = state.storage.memory().entry(file.slot, index);
    let same = now == entry || (!does(Step::CompareOffers) && now.is_chunk_of(entry));
    let backed = entry.is_absent() && state.storage.is_backed(file, index);
    if !same || backed || state.far.removed_of(to).is_some() {
        return Ok(Reply::Again);
    }
    state.storage.hand_over(file.slot, index, entry, to)?;
    owing::owe(state, ino);
    Ok(lent(state, file, index))
}
