//! Page states: which bytes of a chunk are a file's, which are being made so, which are owed.
//!
//! Each arena page has a 16-bit lane; four lanes share a word. A lane is *invalid* (0: reads as
//! zeros, whatever the memory holds), *claimed* (the [`Owner`] who is writing its first bytes), or
//! *valid*, with a *dirty* mark until a drain has copied it.
//!
//! Writers claim invalid pages before they touch them, and publish after the copy with an atomic
//! read-modify-write. That order is what the drain relies on: it clears the dirty mark first and
//! reads the bytes after, so a write that it half saw marks the page dirty again.

use crate::ids::Owner;
use crate::sync::{AtomicU64, Ordering};

/// Lanes of a word.
pub const LANES: u32 = 4;
const VALID: u16 = 1 << 15;
const DIRTY: u16 = 1 << 14;
const OWNER: u16 = DIRTY - 1;

/// The state of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// A hole: zeros.
    Invalid,
    /// The first write to it is under way.
    Claimed(Owner),
    /// Holds the file's bytes; `dirty` until they are drained.
    Valid {
        /// Not yet copied to the backing since the last write.
        dirty: bool,
    },
}

impl PageState {
    fn decode(lane: u16) -> Self {
        match lane {
            0 => PageState::Invalid,
            lane if lane & VALID != 0 => PageState::Valid { dirty: lane & DIRTY != 0 },
            lane => PageState::Claimed(Owner(lane & OWNER)),
        }
    }
}

fn lane_of(word: u64, lane: u32) -> u16 {
    (word >> (16 * lane)) as u16
}

fn spread(value: u16, lane: u32) -> u64 {
    u64::from(value) << (16 * lane)
}

/// Lanes `first..last` of the word that holds page `first`, clipped to that word.
fn clip(first: u32, last: u32) -> (usize, u32, u32) {
    let word = first / LANES;
    (word as usize, first % LANES, (last - word * LANES).min(LANES))
}

/// The state of page `page`, counted from the start of `words`.
pub fn state(words: &[AtomicU64], page: u32) -> PageState {
    let word = words[(page / LANES) as usize].load(Ordering::SeqCst);
    PageState::decode(lane_of(word, page % LANES))
}

/// Whether every page of `first..last` is valid: the common case of reads and overwrites.
pub fn all_valid(words: &[AtomicU64], first: u32, last: u32) -> bool {
    let mut page = first;
    while page < last {
        let (word, from, to) = clip(page, last);
        let value = words[word].load(Ordering::SeqCst);
        if (from..to).any(|lane| lane_of(value, lane) & VALID == 0) {
            return false;
        }
        page += to - from;
    }
    true
}

/// What [`claim`] met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Every page of the range is valid or claimed by the caller.
    Done,
    /// Page `.0` is claimed by somebody else; the pages before it are done. Wait and go on there.
    Wait(u32, Owner),
}

/// Claims the invalid pages of `first..last` for `owner`; valid pages are left as they are.
///
/// Ascending, so that two writers cannot wait for each other in a circle.
pub fn claim(words: &[AtomicU64], first: u32, last: u32, owner: Owner) -> Claim {
    let mut page = first;
    while page < last {
        let (index, from, to) = clip(page, last);
        let word = &words[index];
        let mut seen = word.load(Ordering::SeqCst);
        loop {
            let mut want = seen;
            let mut blocked = None;
            for lane in from..to {
                match PageState::decode(lane_of(seen, lane)) {
                    PageState::Invalid => want |= spread(owner.0, lane),
                    PageState::Claimed(other) if other != owner => {
                        blocked = Some((lane, other));
                        break;
                    }
                    PageState::Claimed(_) | PageState::Valid { .. } => {}
                }
            }
            if want != seen {
                let swap = word.compare_exchange(seen, want, Ordering::SeqCst, Ordering::SeqCst);
                if let Err(now) = swap {
                    seen = now;
                    continue;
                }
            }
            if let Some((lane, other)) = blocked {
                return Claim::Wait(page - from + lane, other);
            }
            break;
        }
        page += to - from;
    }
    Claim::Done
}

/// Whether `owner` holds the claim on `page`, which it must then fill whole.
pub fn is_claimed_by(words: &[AtomicU64], page: u32, owner: Owner) -> bool {
    state(words, page) == PageState::Claimed(owner)
}

/// After the copy: the caller's claims become valid, and all of `first..last` dirty.
pub fn publish(words: &[AtomicU64], first: u32, last: u32, owner: Owner) {
    update(words, first, last, |lane| match PageState::decode(lane) {
        PageState::Claimed(by) if by == owner => VALID | DIRTY,
        PageState::Valid { .. } => lane | DIRTY,
        PageState::Claimed(_) | PageState::Invalid => lane,
    });
}

/// Gives up the claims of `owner` in `first..last`: a dead or refused writer's pages are holes
/// again. Valid pages become dirty: the writer may have been half-way through them.
pub fn abandon(words: &[AtomicU64], first: u32, last: u32, owner: Owner) {
    update(words, first, last, |lane| match PageState::decode(lane) {
        PageState::Claimed(by) if by == owner => 0,
        PageState::Valid { .. } => lane | DIRTY,
        PageState::Claimed(_) | PageState::Invalid => lane,
    });
}

/// Makes every page of `first..last` invalid. (Server only, on a chunk nobody can reach.)
pub fn reset(words: &[AtomicU64], first: u32, last: u32) {
    set(words, first, last, 0);
}

/// Makes every page of `first..last` valid, and clean or dirty. (Server only, before the entry is
/// published: staged bytes, moved bytes.)
pub fn fill(words: &[AtomicU64], first: u32, last: u32, dirty: bool) {
    set(words, first, last, if dirty { VALID | DIRTY } else { VALID });
}

/// Clears the dirty mark of every valid page of `first..last` and calls `run(from, to)` for each
/// run of pages that had it. The bytes must be read after the call, never before.
pub fn take_dirty(words: &[AtomicU64], first: u32, last: u32, mut run: impl FnMut(u32, u32)) {
    let mut open: Option<u32> = None;
    let mut page = first;
    while page < last {
        let (index, from, to) = clip(page, last);
        let before = apply(&words[index], from, to, |lane| match PageState::decode(lane) {
            PageState::Valid { .. } => lane & !DIRTY,
            PageState::Claimed(_) | PageState::Invalid => lane,
        });
        for lane in from..to {
            let at = page - from + lane;
            let dirty = matches!(
                PageState::decode(lane_of(before, lane)),
                PageState::Valid { dirty: true }
            );
            match (dirty, open) {
                (true, None) => open = Some(at),
                (false, Some(start)) => {
                    run(start, at);
                    open = None;
                }
                _ => {}
            }
        }
        page += to - from;
    }
    if let Some(start) = open {
        run(start, last);
    }
}

/// Marks the valid pages of `first..last` dirty again: a drain of them failed.
pub fn mark_dirty(words: &[AtomicU64], first: u32, last: u32) {
    update(words, first, last, |lane| if lane & VALID != 0 { lane | DIRTY } else { lane });
}

/// How many pages of `first..last` are valid and dirty.
pub fn count_dirty(words: &[AtomicU64], first: u32, last: u32) -> u32 {
    (first..last)
        .filter(|page| matches!(state(words, *page), PageState::Valid { dirty: true }))
        .count() as u32
}

fn set(words: &[AtomicU64], first: u32, last: u32, value: u16) {
    update(words, first, last, |_| value);
}

fn update(words: &[AtomicU64], first: u32, last: u32, change: impl Fn(u16) -> u16) {
    let mut page = first;
    while page < last {
        let (index, from, to) = clip(page, last);
        apply(&words[index], from, to, &change);
        page += to - from;
    }
}

/// Changes lanes `from..to` of one word by a read-modify-write that happens even when it changes
/// nothing (it is also the fence between copying and marking). Returns the word before.
fn apply(word: &AtomicU64, from: u32, to: u32, change: impl Fn(u16) -> u16) -> u64 {
    let mut seen = word.load(Ordering::SeqCst);
    loop {
        let mut want = seen;
        for lane in from..to {
            want &= !spread(u16::MAX, lane);
            want |= spread(change(lane_of(seen, lane)), lane);
        }
        match word.compare_exchange(seen, want, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) => return before,
            Err(now) => seen = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        Claim, LANES, PageState, abandon, all_valid, claim, fill, publish, state, take_dirty,
    };
    use crate::ids::Owner;
    use proptest::prelude::{any, prop, proptest};
    use std::sync::atomic::AtomicU64;

    const A: Owner = Owner(1);
    const B: Owner = Owner(16368);

    fn words(pages: u32) -> Vec<AtomicU64> {
        (0..pages.div_ceil(LANES)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_second_writer_waits_at_the_first_foreign_claim() {
        let w = words(16);
        assert_eq!(claim(&w, 6, 9, A), Claim::Done);
        assert_eq!(claim(&w, 2, 12, B), Claim::Wait(6, A));
        assert_eq!(state(&w, 5), PageState::Claimed(B));
        publish(&w, 6, 9, A);
        assert_eq!(claim(&w, 6, 12, B), Claim::Done);
        publish(&w, 2, 12, B);
        assert!(all_valid(&w, 2, 12));
        assert_eq!(state(&w, 1), PageState::Invalid);
    }

    #[test]
    fn a_dead_writers_claims_are_holes_again_and_its_overwrites_dirty() {
        let w = words(8);
        fill(&w, 0, 4, false);
        assert_eq!(claim(&w, 2, 6, A), Claim::Done);
        abandon(&w, 0, 8, A);
        assert_eq!(state(&w, 5), PageState::Invalid);
        assert_eq!(state(&w, 2), PageState::Valid { dirty: true });
    }

    proptest! {
        #[test]
        fn dirty_runs_are_exactly_the_published_pages(
            writes in prop::collection::vec((0u32..60, 1u32..8, any::<bool>()), 0..12)
        ) {
            let w = words(68);
            let mut model = [false; 68];
            for (first, count, drain) in writes {
                assert_eq!(claim(&w, first, first + count, A), Claim::Done);
                publish(&w, first, first + count, A);
                model[first as usize..(first + count) as usize].fill(true);
                if drain {
                    let mut seen = [false; 68];
                    take_dirty(&w, 0, 68, |a, b| seen[a as usize..b as usize].fill(true));
                    assert_eq!(seen, model);
                    model = [false; 68];
                }
            }
        }
    }
}
