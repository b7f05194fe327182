//! Bytes of a chunk, or of a part of one, without its long stretches of zeros: what lies between is
//! neither held, nor copied, nor compared.
//!
//! Invariant: runs are in order and apart; each begins where a page does, and ends there, or where
//! all ends. Not here: which pages of a chunk are holes (`memory`), and of a file (`backing`).

use terral_format::frame::checksum;
use terral_format::local::geometry::PAGE_BYTES;

/// Zeros between two runs that are not more than this are held, too: they cost less than a call.
const GAP_BYTES: usize = 16 * PAGE_BYTES;

/// So many bytes, of which those outside the runs are zeros.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    bytes: usize,
    runs: Vec<Run>,
    /// The bytes of the runs, one behind the other. What is behind the last one has no meaning, and
    /// need not be made again.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    from: usize,
    to: usize,
    /// Where its first byte is held.
    at: usize,
}

/// A part of such bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// These.
    Bytes(&'b [u8]),
    /// So many zeros.
    Zeros(usize),
}

impl Run {
    fn held(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.to - self.from
    }
}

impl Piece<'_> {
    /// How many bytes it is.
    pub fn bytes(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Zeros(bytes) => *bytes,
        }
    }
}

impl Sparse {
    /// So many zeros.
    pub fn zeros(bytes: usize) -> Self {
        Sparse { bytes, ..Sparse::default() }
    }

    /// The same, in place of what is there.
    pub fn clear(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.runs.clear();
    }

    /// How many bytes they are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where `count` bytes from `at` on are to be put, which is behind all that was added. What
    /// they are before has no meaning.
    pub fn add(&mut self, at: usize, count: usize) -> &mut [u8] {
        let from = at / PAGE_BYTES * PAGE_BYTES;
        let to = (at + count).next_multiple_of(PAGE_BYTES).min(self.bytes);
        assert!(at + count <= to, "within the bytes");
        let end = self.runs.last().map_or(0, |run| run.held().end);
        let run = match self.runs.last_mut() {
            Some(run) if from <= run.to + GAP_BYTES => {
                run.to = to.max(run.to);
                *run
            }
            _ => {
                self.runs.push(Run { from, to, at: end });
                Run { from, to, at: end }
            }
        };
        if self.held.is_empty() {
            // Zeros that nobody has to write.
            self.held = vec![0; run.held().end];
        } else if self.held.len() < run.held().end {
            self.held.resize(run.held().end, 0);
        }
        let begin = run.at + at - run.from;
        self.held[end.min(begin)..begin].fill(0);
        self.held[(begin + count).max(end)..run.held().end].fill(0);
        &mut self.held[begin..begin + count]
    }

    /// The runs: where each begins, and its bytes.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.runs.iter().map(|run| (run.from, &self.held[run.held()]))
    }

    /// The longest runs of pages that are not all zeros: where each begins, and its bytes.
    pub fn filled(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.runs().flat_map(|(from, bytes)| {
            let filled = filled(bytes).into_iter();
            filled.map(move |(first, last)| (from + first, &bytes[first..last]))
        })
    }

    /// What lies from `from` to `to`, in order, and where each begins; what is behind all the bytes
    /// is left out.
    pub fn pieces(&self, from: usize, to: usize) -> Vec<(usize, Piece<'_>)> {
        let (mut at, to) = (from, to.min(self.bytes));
        let mut pieces = Vec::new();
        for (begin, bytes) in self.runs() {
            let (first, last) = (begin.clamp(at, to.max(at)), (begin + bytes.len()).min(to));
            if first >= last {
                continue;
            }
            if at < first {
                pieces.push((at, Piece::Zeros(first - at)));
            }
            pieces.push((first, Piece::Bytes(&bytes[first - begin..last - begin])));
            at = last;
        }
        if at < to {
            pieces.push((at, Piece::Zeros(to - at)));
        }
        pieces
    }

    /// Whether they are these.
    pub fn is(&self, piece: Piece<'_>) -> bool {
        let same = |at: usize, bytes: &[u8]| match piece {
            Piece::Bytes(must) => must[at..at + bytes.len()] == *bytes,
            Piece::Zeros(_) => is_zero(bytes),
        };
        let equal = |(at, found): (usize, Piece<'_>)| match (found, piece) {
            (Piece::Bytes(bytes), _) => same(at, bytes),
            (Piece::Zeros(count), Piece::Bytes(must)) => is_zero(&must[at..at + count]),
            (Piece::Zeros(_), Piece::Zeros(_)) => true,
        };
        piece.bytes() == self.bytes && self.pieces(0, self.bytes).into_iter().all(equal)
    }

    /// A checksum, which is the same however zeros are held.
    pub fn sum(&self) -> u64 {
        let add = |sum: u64, (from, bytes): (usize, &[u8])| {
            let words = [sum, from as u64, bytes.len() as u64, checksum(bytes)];
            checksum(words.map(u64::to_le_bytes).as_flattened())
        };
        self.filled().fold(self.bytes as u64, add)
    }

    /// All of them.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.bytes];
        self.runs().for_each(|(at, bytes)| all[at..at + bytes.len()].copy_from_slice(bytes));
        all
    }
}

impl From<Vec<u8>> for Sparse {
    fn from(held: Vec<u8>) -> Self {
        let bytes = held.len();
        let runs = if bytes == 0 { vec![] } else { vec![Run { from: 0, to: bytes, at: 0 }] };
        Sparse { bytes, runs, held }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(PAGE_BYTES).all(|page| *page == [0; PAGE_BYTES][..page.len()])
}

/// The longest runs of pages that are not all zeros: where each begins, and ends.
fn filled(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (page, bytes) in bytes.chunks(PAGE_BYTES).enumerate() {
        let from = page * PAGE_BYTES;
        if is_zero(bytes) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.1 == from => run.1 += bytes.len(),
            _ => runs.push((from, from + bytes.len())),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, Piece, Sparse};

    const PAGE: usize = PAGE_BYTES;

    /// Bytes at these places, in a buffer that had others before.
    fn with(bytes: usize, runs: &[(usize, usize)]) -> (Sparse, Vec<u8>) {
        let mut sparse = Sparse::from(vec![0xee; bytes]);
        let mut all = vec![0; bytes];
        sparse.clear(bytes);
        for (at, count) in runs {
            sparse.add(*at, *count).fill(7);
            all[*at..at + count].fill(7);
        }
        (sparse, all)
    }

    const CASES: [&[(usize, usize)]; 7] = [
        &[],
        &[(0, 100 * PAGE)],
        &[(0, PAGE), (PAGE, PAGE), (99 * PAGE, PAGE)],
        &[(5, 10), (30, 10), (PAGE + 5, 10)],
        &[(50 * PAGE + 1, 1)],
        &[(3 * PAGE, PAGE), (19 * PAGE, 7), (36 * PAGE + 9, PAGE)],
        &[(3 * PAGE, 1), (20 * PAGE, 7), (36 * PAGE + 9, PAGE), (99 * PAGE, 5)],
    ];

    #[test]
    fn what_was_added_is_there_and_zeros_between() {
        for runs in CASES {
            let (sparse, all) = with(100 * PAGE, runs);
            assert!(sparse.to_vec() == all, "{runs:?}");
            assert_eq!(sparse.is(Piece::Zeros(100 * PAGE)), runs.is_empty(), "{runs:?}");
            assert!(sparse.is(Piece::Bytes(&all)) && !sparse.is(Piece::Bytes(&all[1..])));
            for at in [0, 5, 30 * PAGE, 100 * PAGE - 1] {
                let mut other = all.clone();
                other[at] ^= 1;
                assert!(!sparse.is(Piece::Bytes(&other)), "{runs:?} {at}");
            }
            let whole = Sparse::from(all.clone());
            assert_eq!(sparse.sum(), whole.sum(), "{runs:?}");
            for (from, to) in [(0, 100 * PAGE), (PAGE, 2 * PAGE), (7, 90 * PAGE), (0, 200 * PAGE)] {
                let mut found = Vec::new();
                for (at, piece) in sparse.pieces(from, to) {
                    assert_eq!(at, from + found.len(), "{runs:?}");
                    match piece {
                        Piece::Bytes(bytes) => found.extend_from_slice(bytes),
                        Piece::Zeros(count) => found.resize(found.len() + count, 0),
                    }
                }
                assert!(found == all[from..to.min(all.len())], "{runs:?} {from} {to}");
            }
        }
    }

    #[test]
    fn other_bytes_have_another_sum() {
        let sums: Vec<u64> = CASES.iter().map(|runs| with(100 * PAGE, runs).0.sum()).collect();
        let mut all = [sums, vec![Sparse::zeros(99 * PAGE).sum()]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), CASES.len() + 1);
    }

    #[test]
    fn long_stretches_of_zeros_are_not_held() {
        let (sparse, _) = with(100 * PAGE, &[(0, PAGE), (10 * PAGE, PAGE), (99 * PAGE, 1)]);
        let runs: Vec<_> = sparse.runs().map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(runs, [(0, 11 * PAGE), (99 * PAGE, PAGE)]);
        let filled: Vec<_> = sparse.filled().map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(filled, [(0, PAGE), (10 * PAGE, PAGE), (99 * PAGE, PAGE)]);
    }

    #[test]
    fn whatever_is_added_it_is_the_same_as_bytes() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below.max(1)
        };
        let mut sparse = Sparse::default();
        for round in 0..3000 {
            let bytes = random(60 * PAGE) + random(2);
            let mut all = vec![0; bytes];
            sparse.clear(bytes);
            let mut at = 0;
            loop {
                at += [0, random(40), random(PAGE), random(40 * PAGE)][random(4)];
                let count = [1, PAGE, random(9000), PAGE - at % PAGE][random(4)];
                if at + count > bytes || count == 0 {
                    break;
                }
                let value = random(3) as u8;
                all[at..at + count].fill(value);
                sparse.add(at, count).fill(value);
                at += count;
            }
            assert!(sparse.to_vec() == all && sparse.is(Piece::Bytes(&all)), "{round}");
            assert_eq!(sparse.sum(), Sparse::from(all.clone()).sum(), "{round}");
            assert_eq!(sparse.is(Piece::Zeros(bytes)), all.iter().all(|byte| *byte == 0));
            let (one, other) = (random(bytes + PAGE), random(bytes + PAGE));
            let (from, to) = (one.min(other), one.max(other));
            let mut found = Vec::new();
            for (at, piece) in sparse.pieces(from, to) {
                assert_eq!(at, from + found.len(), "{round}");
                match piece {
                    Piece::Bytes(bytes) => found.extend_from_slice(bytes),
                    Piece::Zeros(count) => found.resize(found.len() + count, 0),
                }
            }
            assert!(found == all[from.min(bytes)..to.min(bytes)], "{round}");
            if let Some(at) = (bytes > 0).then(|| random(bytes)) {
                all[at] ^= 0x80;
                assert!(sparse.sum() != Sparse::from(all).sum(), "{round}");
            }
        }
    }
}
