//! Page states: which bytes of a chunk are a file's, which are being written, which are owed.
//!
//! Each arena page has a 16-bit lane; four lanes share a word. A lane is *invalid* (reads as zeros,
//! whatever the memory holds), *claimed* by the [`Owner`] who is writing its first bytes, *valid*,
//! or *overwritten* by an owner at this moment: valid bytes, which change. A valid lane has a
//! *dirty* mark until a drain has copied it; an overwritten one is dirty, mark or no mark.
//!
//! Writers hold every page of a piece, by claim or overwriting, before they touch the first, and
//! publish after the copy: pieces that overlap follow each other. Readers hold nothing. They
//! [`observe`] before the copy and look again after it; a valid lane counts its overwrites, so that
//! whoever finds it as it was has copied bytes that were at rest.
//!
//! Publishing is an atomic read-modify-write, and that is what the drain relies on: it clears the
//! dirty mark first and reads the bytes after, so a write that it half saw is dirty again.
//!
//! Layout of a lane, from bit 0: owner or count (14), dirty, valid. With valid: the count. Without:
//! all zero is invalid, the owner alone is a claim, the owner and dirty is an overwriting.

use crate::ids::Owner;
use crate::local::geometry::CHUNK_PAGES;
use crate::local::sync::{AtomicU64, Ordering};

/// Lanes of a word.
pub const LANES: u32 = 4;
/// Most words that the pages of a chunk lie in.
pub const WORDS: usize = (CHUNK_PAGES / LANES) as usize + 1;
const VALID: u16 = 1 << 15;
const DIRTY: u16 = 1 << 14;
const OWNER: u16 = DIRTY - 1;
/// The same in each lane of a word.
const EACH: u64 = 0x0001_0001_0001_0001;
const ALL_VALID: u64 = VALID as u64 * EACH;
const ALL_DIRTY: u64 = DIRTY as u64 * EACH;
const ALL_OWNER: u64 = OWNER as u64 * EACH;

/// The state of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// A hole: zeros.
    Invalid,
    /// The first write to it is under way.
    Claimed(Owner),
    /// Holds the file's bytes; `dirty` until they are drained.
    Valid {
        /// Not yet copied to the backing since the last write, or being overwritten.
        dirty: bool,
    },
}

impl PageState {
    fn decode(lane: u16) -> Self {
        match lane {
            0 => PageState::Invalid,
            lane if lane & (VALID | DIRTY) != 0 => PageState::Valid { dirty: lane & DIRTY != 0 },
            lane => PageState::Claimed(Owner(lane)),
        }
    }
}

/// Who is writing to the page of a lane.
fn writer(lane: u16) -> Option<Owner> {
    (lane & VALID == 0 && lane != 0).then_some(Owner(lane & OWNER))
}

fn lane_of(word: u64, lane: u32) -> u16 {
    (word >> (16 * lane)) as u16
}

fn spread(value: u16, lane: u32) -> u64 {
    u64::from(value) << (16 * lane)
}

/// All bits of lanes `from..to`.
fn mask(from: u32, to: u32) -> u64 {
    (u64::MAX >> (64 - 16 * (to - from))) << (16 * from)
}

/// The words of pages `first..last`: index, and the lanes of it.
fn words_of(first: u32, last: u32) -> impl Iterator<Item = (usize, u32, u32)> {
    (first / LANES..last.div_ceil(LANES)).filter(move |_| first < last).map(move |word| {
        let start = word * LANES;
        (word as usize, first.max(start) - start, last.min(start + LANES) - start)
    })
}

/// The state of page `page`, counted from the start of `words`.
#[inline]
pub fn state(words: &[AtomicU64], page: u32) -> PageState {
    let word = words[(page / LANES) as usize].load(Ordering::SeqCst);
    PageState::decode(lane_of(word, page % LANES))
}

/// What [`claim`] or [`observe`] met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Nobody in the way, and every page is valid.
    Bytes,
    /// Nobody in the way; some pages are holes.
    Holes,
    /// Page `.0` is being written to by somebody else. Wait, and begin anew.
    Writer(u32, Owner),
}

/// Takes all pages of `first..last`, of one chunk, for `owner`, who then writes to them. `before`
/// ([`WORDS`] suffice) is for [`publish`] and [`was_valid`]; for pages that the caller already had
/// it stays as it is.
///
/// Ascending, so that two writers cannot wait for each other in a circle. Before it stores the
/// first byte, the caller must issue a release fence.
#[inline]
pub fn claim(words: &[AtomicU64], first: u32, last: u32, owner: Owner, before: &mut [u64]) -> Met {
    let mut met = Met::Bytes;
    for ((index, from, to), before) in words_of(first, last).zip(before) {
        match claim_word(&words[index], from, to, owner, before) {
            Met::Writer(lane, other) => return Met::Writer(index as u32 * LANES + lane, other),
            Met::Holes => met = Met::Holes,
            Met::Bytes => {}
        }
    }
    met
}

#[inline]
fn claim_word(word: &AtomicU64, from: u32, to: u32, owner: Owner, before: &mut u64) -> Met {
    let all = mask(from, to);
    let mut seen = word.load(Ordering::SeqCst);
    loop {
        let (mut want, mut taken, mut met) = (seen, all, Met::Bytes);
        if seen & all & ALL_VALID == all & ALL_VALID {
            want = seen & !all | (u64::from(DIRTY | owner.0) * EACH) & all;
        } else {
            for lane in from..to {
                let state = lane_of(seen, lane);
                match writer(state) {
                    Some(other) if other != owner => {
                        met = Met::Writer(lane, other);
                        taken &= !mask(lane, to);
                        break;
                    }
                    Some(_) => taken &= !mask(lane, lane + 1),
                    None => {
                        let overwritten = if state == 0 { 0 } else { DIRTY };
                        want &= !mask(lane, lane + 1);
                        want |= spread(overwritten | owner.0, lane);
                    }
                }
                if lane_of(want, lane) & DIRTY == 0 {
                    met = Met::Holes;
                }
            }
        }
        if want != seen {
            let swap = word.compare_exchange(seen, want, Ordering::SeqCst, Ordering::SeqCst);
            if let Err(now) = swap {
                seen = now;
                continue;
            }
        }
        *before = *before & !taken | seen & taken;
        return met;
    }
}

/// Whether `owner` holds any page of `first..last`.
pub fn holds_some(words: &[AtomicU64], first: u32, last: u32, owner: Owner) -> bool {
    words_of(first, last).any(|(index, from, to)| {
        held(words[index].load(Ordering::SeqCst), mask(from, to), owner) != 0
    })
}

/// After the copy: what the caller holds of `first..last` is valid, dirty, and unlike `before`.
#[inline]
pub fn publish(words: &[AtomicU64], first: u32, last: u32, owner: Owner, before: &[u64]) {
    end(words, first, last, owner, before, |_| u64::MAX);
}

/// Instead of [`publish`]: the caller's claims are holes again. Where it was overwriting, the bytes
/// may be half new.
pub fn give_up(words: &[AtomicU64], first: u32, last: u32, owner: Owner, before: &[u64]) {
    end(words, first, last, owner, before, overwritten);
}

#[inline]
fn end(
    words: &[AtomicU64],
    first: u32,
    last: u32,
    owner: Owner,
    before: &[u64],
    kept: impl Fn(u64) -> u64,
) {
    for ((index, from, to), before) in words_of(first, last).zip(before) {
        let next = ((before & ALL_OWNER) + EACH) & ALL_OWNER;
        apply(&words[index], |word| {
            let lanes = held(word, mask(from, to), owner);
            word & !lanes | (ALL_VALID | ALL_DIRTY | next) & lanes & kept(word)
        });
    }
}

/// Gives up what a dead `owner` held of `first..last`: its claims are holes again; where it was
/// overwriting, the bytes are what it left, and owed. (Server only.)
pub fn abandon(words: &[AtomicU64], first: u32, last: u32, owner: Owner) {
    for (index, from, to) in words_of(first, last) {
        apply(&words[index], |word| {
            let lanes = held(word, mask(from, to), owner);
            // The owner's number stays as the count: hardly what it was before.
            word & !lanes | (word | ALL_VALID) & lanes & overwritten(word)
        });
    }
}

/// All bits of the lanes that are overwritten (or valid and dirty).
fn overwritten(word: u64) -> u64 {
    ((word & ALL_DIRTY) >> 14) * u64::from(u16::MAX)
}

/// All bits of those lanes among `all` that `owner` writes to.
fn held(word: u64, all: u64, owner: Owner) -> u64 {
    if word & all & !ALL_DIRTY == (u64::from(owner.0) * EACH) & all {
        return all;
    }
    let holds = |lane: &u32| writer(lane_of(word & all, *lane)) == Some(owner);
    (0..LANES).filter(holds).fold(0, |lanes, lane| lanes | mask(lane, lane + 1))
}

/// Whether anybody writes to pages of `first..last`, as their states have it.
pub fn is_written(words: &[AtomicU64], first: u32, last: u32) -> bool {
    words_of(first, last).any(|(index, from, to)| {
        let (word, all) = (words[index].load(Ordering::SeqCst), mask(from, to));
        let plain = word & all == 0 || word & all & ALL_VALID == all & ALL_VALID;
        !plain && (from..to).any(|lane| writer(lane_of(word, lane)).is_some())
    })
}

/// Who writes to pages of `first..last`, as their states have it.
pub fn writers(words: &[AtomicU64], first: u32, last: u32) -> Vec<Owner> {
    let mut found = Vec::new();
    for (index, from, to) in words_of(first, last) {
        let word = words[index].load(Ordering::SeqCst) & mask(from, to);
        let writers = (from..to).filter_map(|lane| writer(lane_of(word, lane)));
        writers.for_each(|owner| {
            if !found.contains(&owner) {
                found.push(owner);
            }
        });
    }
    found
}

/// Before a copy out: notes in `seen` what pages `first..last` are.
#[inline]
pub fn observe(words: &[AtomicU64], first: u32, last: u32, seen: &mut [u64]) -> Met {
    let mut met = Met::Bytes;
    for ((index, from, to), seen) in words_of(first, last).zip(seen) {
        let all = mask(from, to);
        let word = words[index].load(Ordering::SeqCst) & all;
        *seen = word & !ALL_DIRTY;
        if word & ALL_VALID == all & ALL_VALID {
            continue;
        }
        met = Met::Holes;
        for lane in from..to {
            if let Some(owner) = writer(lane_of(word, lane)) {
                return Met::Writer(index as u32 * LANES + lane, owner);
            }
        }
    }
    met
}

/// After a copy out, and an acquire fence: whether `first..last` stayed as [`observe`] found them.
#[inline]
pub fn is_unchanged(words: &[AtomicU64], first: u32, last: u32, seen: &[u64]) -> bool {
    words_of(first, last).zip(seen).all(|((index, from, to), seen)| {
        words[index].load(Ordering::SeqCst) & mask(from, to) & !ALL_DIRTY == *seen
    })
}

/// Whether [`observe`] or [`claim`], called for pages from `first` on, found `page` valid.
pub fn was_valid(seen: &[u64], first: u32, page: u32) -> bool {
    lane_of(seen[(page / LANES - first / LANES) as usize], page % LANES) & VALID != 0
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

/// Makes the holes among `first..last` valid. (Server only, on zeros, and with nobody writing.)
pub fn fill_holes(words: &[AtomicU64], first: u32, last: u32) {
    for page in first..last {
        if state(words, page) == PageState::Invalid {
            set(words, page, page + 1, VALID);
        }
    }
}

/// Clears the dirty mark of every valid page of `first..last` and calls `run(from, to)` for each
/// run of pages that had it. The bytes must be read after the call, never before.
pub fn take_dirty(words: &[AtomicU64], first: u32, last: u32, mut run: impl FnMut(u32, u32)) {
    let mut open: Option<u32> = None;
    for (index, from, to) in words_of(first, last) {
        let before = apply(&words[index], |word| {
            let valid = (word & ALL_VALID) >> 1;
            word & !(valid & mask(from, to))
        });
        for lane in from..to {
            let at = index as u32 * LANES + lane;
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
    }
    if let Some(start) = open {
        run(start, last);
    }
}

/// Marks the valid pages of `first..last` dirty again: a drain of them failed.
pub fn mark_dirty(words: &[AtomicU64], first: u32, last: u32) {
    for (index, from, to) in words_of(first, last) {
        apply(&words[index], |word| word | (word & mask(from, to) & ALL_VALID) >> 1);
    }
}

/// How many pages of `first..last` are valid and dirty.
pub fn count_dirty(words: &[AtomicU64], first: u32, last: u32) -> u32 {
    words_of(first, last)
        .map(|(index, from, to)| {
            let word = words[index].load(Ordering::SeqCst);
            (word & ALL_DIRTY & mask(from, to)).count_ones()
        })
        .sum()
}

fn set(words: &[AtomicU64], first: u32, last: u32, lane: u16) {
    for (index, from, to) in words_of(first, last) {
        let lanes = mask(from, to);
        apply(&words[index], |word| word & !lanes | (u64::from(lane) * EACH) & lanes);
    }
}

/// Changes a word by a read-modify-write that happens even when it changes nothing (it is also the
/// fence between copying and marking). Returns the word before.
fn apply(word: &AtomicU64, change: impl Fn(u64) -> u64) -> u64 {
    let mut seen = word.load(Ordering::SeqCst);
    loop {
        let want = change(seen);
        match word.compare_exchange(seen, want, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) => return before,
            Err(now) => seen = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        LANES, Met, PageState, WORDS, abandon, claim, count_dirty, fill, give_up, holds_some,
        is_unchanged, mark_dirty, observe, publish, state, take_dirty, was_valid,
    };
    use crate::ids::Owner;
    use proptest::prelude::{any, prop, proptest};
    use std::sync::atomic::AtomicU64;

    const A: Owner = Owner(1);
    const B: Owner = Owner(16368);

    fn words(pages: u32) -> Vec<AtomicU64> {
        (0..pages.div_ceil(LANES)).map(|_| AtomicU64::new(0)).collect()
    }

    fn write(w: &[AtomicU64], first: u32, last: u32, owner: Owner) {
        let mut before = [0; WORDS];
        let met = claim(w, first, last, owner, &mut before);
        assert!(!matches!(met, Met::Writer(..)), "{met:?}");
        publish(w, first, last, owner, &before);
    }

    #[test]
    fn a_second_writer_waits_at_the_first_foreign_page() {
        let w = words(16);
        fill(&w, 7, 8, false);
        let (mut a, mut b) = ([0; WORDS], [0; WORDS]);
        assert_eq!(claim(&w, 7, 9, A, &mut a), Met::Holes);
        assert_eq!(claim(&w, 2, 12, B, &mut b), Met::Writer(7, A));
        assert_eq!(state(&w, 6), PageState::Claimed(B));
        publish(&w, 7, 9, A, &a);
        assert_eq!(claim(&w, 2, 12, B, &mut b), Met::Holes);
        publish(&w, 2, 12, B, &b);
        let mut seen = [0; WORDS];
        assert_eq!(observe(&w, 2, 12, &mut seen), Met::Bytes);
        assert_eq!(observe(&w, 1, 12, &mut seen), Met::Holes);
        assert!(!was_valid(&seen, 1, 1) && was_valid(&seen, 1, 11));
    }

    #[test]
    fn dirty_pages_are_counted_as_one_would_one_by_one() {
        let w = words(24);
        let mut before = [0; WORDS];
        fill(&w, 2, 9, true);
        fill(&w, 9, 15, false);
        claim(&w, 1, 5, A, &mut before);
        claim(&w, 11, 13, B, &mut before);
        claim(&w, 18, 20, B, &mut before);
        for (first, last) in (0..24).flat_map(|first| (first..=24).map(move |last| (first, last))) {
            let dirty = |page: &u32| state(&w, *page) == PageState::Valid { dirty: true };
            let slow = (first..last).filter(dirty).count() as u32;
            assert_eq!(count_dirty(&w, first, last), slow, "{first}..{last}");
        }
        assert_eq!(count_dirty(&w, 0, 24), 9);
    }

    #[test]
    fn an_overwritten_page_is_owed_and_not_at_rest() {
        let w = words(16);
        fill(&w, 0, 16, false);
        let (mut before, mut seen) = ([0; WORDS], [0; WORDS]);
        assert_eq!(observe(&w, 3, 14, &mut seen), Met::Bytes);
        mark_dirty(&w, 0, 16);
        assert!(is_unchanged(&w, 3, 14, &seen), "a dirty mark is no write");
        assert_eq!(claim(&w, 5, 9, A, &mut before), Met::Bytes);
        assert!(!is_unchanged(&w, 3, 14, &seen));
        assert_eq!(observe(&w, 3, 14, &mut seen), Met::Writer(5, A));
        let mut runs = Vec::new();
        for _ in 0..2 {
            take_dirty(&w, 0, 16, |from, to| runs.push((from, to)));
        }
        assert_eq!(runs, [(0, 16), (5, 9)]);
        publish(&w, 5, 9, A, &before);
        assert_eq!(state(&w, 8), PageState::Valid { dirty: true });
        assert_eq!(state(&w, 9), PageState::Valid { dirty: false });
        assert_eq!(observe(&w, 3, 14, &mut seen), Met::Bytes);
        write(&w, 13, 14, B);
        assert!(!is_unchanged(&w, 3, 14, &seen));
    }

    #[test]
    fn an_overwrite_is_noticed_until_the_count_comes_round() {
        let w = words(4);
        fill(&w, 0, 4, false);
        let mut seen = [0; WORDS];
        observe(&w, 1, 2, &mut seen);
        for _ in 1..1 << 14 {
            write(&w, 1, 2, A);
            assert!(!is_unchanged(&w, 1, 2, &seen));
        }
        write(&w, 1, 2, A);
        assert!(is_unchanged(&w, 1, 2, &seen));
        assert_eq!(state(&w, 2), PageState::Valid { dirty: false });
    }

    #[test]
    fn a_dead_writers_claims_are_holes_again_and_its_overwrites_dirty() {
        let w = words(8);
        fill(&w, 0, 4, false);
        let mut seen = [0; WORDS];
        observe(&w, 2, 3, &mut seen);
        assert_eq!(claim(&w, 2, 6, B, &mut [0; WORDS]), Met::Holes);
        abandon(&w, 0, 8, A);
        assert!(holds_some(&w, 4, 8, B) && !holds_some(&w, 6, 8, B) && !holds_some(&w, 0, 8, A));
        assert_eq!(state(&w, 5), PageState::Claimed(B));
        abandon(&w, 0, 8, B);
        assert_eq!(state(&w, 5), PageState::Invalid);
        assert_eq!(state(&w, 2), PageState::Valid { dirty: true });
        assert_eq!(state(&w, 1), PageState::Valid { dirty: false });
        assert!(!is_unchanged(&w, 2, 3, &seen) && !holds_some(&w, 0, 8, B));
    }

    #[test]
    fn who_gives_up_leaves_holes_and_no_trace_of_rest() {
        let w = words(8);
        fill(&w, 0, 2, false);
        let (mut before, mut seen) = ([0; WORDS], [0; WORDS]);
        observe(&w, 0, 4, &mut seen);
        assert_eq!(claim(&w, 0, 4, A, &mut before), Met::Holes);
        give_up(&w, 0, 4, A, &before);
        assert_eq!(state(&w, 0), PageState::Valid { dirty: true });
        assert_eq!(state(&w, 3), PageState::Invalid);
        assert!(!is_unchanged(&w, 0, 2, &seen));
        assert!(was_valid(&before, 0, 1) && !was_valid(&before, 0, 2));
    }

    proptest! {
        #[test]
        fn dirty_runs_are_exactly_the_published_pages(
            writes in prop::collection::vec((0u32..60, 1u32..8, any::<bool>()), 0..12)
        ) {
            let w = words(68);
            let mut model = [false; 68];
            for (first, count, drain) in writes {
                write(&w, first, first + count, A);
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
