//! Copies dirty chunks out of the memory tier, or the spill, for the drain, without the server's
//! lock.
//!
//! A copy is a snapshot: the dirty marks are cleared first, the bytes read after, and the entry
//! checked last. If the chunk moved meanwhile the copy is thrown away (its new place is dirty); if
//! a writer was in the middle, its pages are dirty again when it is done. While a chunk is taken,
//! or given back, it is in hand ([`Memory::is_in_hand`]): its marks and bytes are nobody else's.
//! One thread at a time does so.

use terral_format::ids::{FileSlot, Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::local::spill;
use terral_format::{Error, ErrorKind, Result};

use crate::memory::Memory;
use crate::sparse::{Piece, Sparse};
use crate::spill::unpack;

/// A chunk as the drain saw it.
pub struct Snapshot<'b> {
    /// Its bytes from its start on; pages that were never written are zeros.
    pub bytes: &'b Sparse,
    /// Byte ranges that must be copied, see [`Want`].
    pub runs: Vec<(usize, usize)>,
}

/// Which pages a snapshot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// The dirty ones.
    Dirty,
    /// All of them up to the last valid one; what was never written is zeros.
    Whole,
}

/// Bytes of a chunk that are not yet drained.
pub fn owed_bytes(memory: &Memory, entry: MapEntry) -> u64 {
    if entry.is_stored() {
        return u64::from(entry.pages()) * PAGE_BYTES as u64;
    }
    if entry.with().is_some() {
        return 0;
    }
    let count = match entry.place() {
        Some(place) => memory.place(place).map_or(0, |record| record.count_dirty()),
        None => {
            let first = entry.page().0;
            pages::count_dirty(memory.lanes(), first, first + entry.pages())
        }
    };
    u64::from(count) * PAGE_BYTES as u64
}

/// Whether pages of chunk `index` are marked as being written.
pub fn is_written(memory: &Memory, slot: FileSlot, index: u64) -> bool {
    let entry = memory.entry(slot, index);
    let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
    entry.is_here() && pages::is_written(memory.lanes(), first, last)
}

/// Takes the dirty marks of chunk `index` and its bytes, into `buffer`. `None`: nothing is owed, it
/// moved, or programs have it mapped for writing.
///
/// # Errors
/// If the memory cannot be read; the pages are dirty again then.
pub fn take<'b>(
    memory: &Memory,
    slot: FileSlot,
    index: u64,
    want: Want,
    buffer: &'b mut Sparse,
) -> Result<Option<Snapshot<'b>>> {
    let entry = memory.entry(slot, index).unrecalled();
    if entry.is_absent() || entry.is_stored() || entry.with().is_some() {
        return Ok(None);
    }
    let held = memory.take_in_hand(slot, index, entry);
    let took = match (held, entry.place()) {
        (false, _) => Ok(None),
        (true, Some(place)) => take_spilled(memory, place, (slot, index), want, buffer),
        (true, None) => take_pages(memory, entry, want, buffer),
    };
    let still = memory.entry(slot, index).is_chunk_of(entry);
    if still && took.is_err() {
        mark_dirty(memory, entry);
    }
    memory.put_down();
    if !still {
        return Ok(None);
    }
    Ok(took?.map(|runs| Snapshot { bytes: buffer, runs }))
}

/// Takes marks and bytes of a chunk in memory. Gives which bytes must be copied.
fn take_pages(
    memory: &Memory,
    entry: MapEntry,
    want: Want,
    buffer: &mut Sparse,
) -> Result<Option<Vec<(usize, usize)>>> {
    let (lanes, first, last) = (memory.lanes(), entry.page().0, entry.page().0 + entry.pages());
    let at = |page: u32| (page - first) as usize * PAGE_BYTES;
    let mut runs = Vec::new();
    pages::take_dirty(lanes, first, last, |from, to| runs.push((at(from), at(to))));
    let valid = valid_runs(lanes, first, last);
    let end = valid.last().map_or(0, |(_, to)| at(*to));
    let Some(runs) = wanted(runs, end, want) else { return Ok(None) };
    buffer.clear(end);
    for (from, to) in valid {
        memory.read(entry.page(), at(from) as u64, buffer.add(at(from), at(to) - at(from)))?;
    }
    Ok(Some(runs))
}

/// The same of one that is in the spill.
fn take_spilled(
    memory: &Memory,
    place: SpillPlace,
    (slot, index): (FileSlot, u64),
    want: Want,
    buffer: &mut Sparse,
) -> Result<Option<Vec<(usize, usize)>>> {
    let missing = || Error::new(ErrorKind::Corrupt, format!("chunk {index}: no place of a spill"));
    let record = memory.place(place).ok_or_else(missing)?;
    let bytes = |bitmap| -> Vec<(usize, usize)> {
        let at = |page: u32| page as usize * PAGE_BYTES;
        spill::runs(bitmap).iter().map(|(from, to)| (at(*from), at(*to))).collect()
    };
    let (dirty, valid) = (record.take_dirty(), record.valid());
    let end = bytes(&valid).last().map_or(0, |(_, to)| *to);
    let Some(runs) = wanted(bytes(&dirty), end, want) else { return Ok(None) };
    let ino = Ino(memory.record(slot).ino().load(std::sync::atomic::Ordering::SeqCst));
    let block = memory.read_spilled(place, (ino, index))?;
    unpack(record, &block, (0, end), buffer)?;
    Ok(Some(runs))
}

/// What must be copied of a chunk whose last byte ends at `end`; `None` if nothing.
fn wanted(dirty: Vec<(usize, usize)>, end: usize, want: Want) -> Option<Vec<(usize, usize)>> {
    let runs = if want == Want::Whole && end > 0 { vec![(0, end)] } else { dirty };
    (!runs.is_empty()).then_some(runs)
}

/// Gives back what [`take`] took: the copy did not reach the backing.
pub fn give_back(memory: &Memory, slot: FileSlot, index: u64) {
    loop {
        let entry = memory.entry(slot, index).unrecalled();
        if entry.is_absent() || entry.with().is_some() {
            return;
        }
        let held = memory.take_in_hand(slot, index, entry);
        if held {
            mark_dirty(memory, entry);
        }
        // Who has moved it while it was in hand owes all of it.
        memory.put_down();
        if held {
            return;
        }
    }
}

/// All that a chunk has is owed.
fn mark_dirty(memory: &Memory, entry: MapEntry) {
    match entry.place() {
        Some(place) => memory.place(place).into_iter().for_each(|record| record.mark_dirty()),
        None => {
            let first = entry.page().0;
            pages::mark_dirty(memory.lanes(), first, first + entry.pages());
        }
    }
}

fn valid_runs(lanes: &[std::sync::atomic::AtomicU64], first: u32, last: u32) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in first..last {
        if !matches!(pages::state(lanes, page), PageState::Valid { .. }) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.1 == page => run.1 = page + 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

impl Snapshot<'_> {
    /// Checksum and length of all its bytes. They reach beyond the file's end by less than a page,
    /// or by what a writer has published and not yet counted into the size.
    pub fn sum(&self) -> (u64, u64) {
        (self.bytes.sum(), self.bytes.bytes() as u64)
    }

    /// What must be copied: file offset and bytes. What was cut off since its mark was taken is
    /// zeros, or left out at the end.
    pub fn pieces(&self, index: u64) -> impl Iterator<Item = (u64, Piece<'_>)> {
        let pieces = self.runs.iter().flat_map(|(from, to)| self.bytes.pieces(*from, *to));
        pieces.map(move |(at, piece)| (index * CHUNK_BYTES + at as u64, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, PAGE_BYTES, Piece, Snapshot, Sparse};

    #[test]
    fn what_was_cut_off_since_its_mark_was_taken_is_zeros_or_left_out() {
        const FAR: usize = 100 * PAGE_BYTES;
        let mut bytes = Sparse::zeros(FAR + PAGE_BYTES);
        bytes.add(0, PAGE_BYTES).fill(1);
        bytes.add(FAR, PAGE_BYTES).fill(2);
        let marked = vec![(0, 2 * PAGE_BYTES), (FAR, FAR + 3 * PAGE_BYTES), (FAR * 2, FAR * 3)];
        let snapshot = Snapshot { bytes: &bytes, runs: marked };
        let pieces: Vec<_> = snapshot.pieces(1).collect();
        let at = |within: usize| CHUNK_BYTES + within as u64;
        let must = [
            (at(0), Piece::Bytes(&[1; PAGE_BYTES])),
            (at(PAGE_BYTES), Piece::Zeros(PAGE_BYTES)),
            (at(FAR), Piece::Bytes(&[2; PAGE_BYTES])),
        ];
        assert_eq!(pieces, must);
    }
}
