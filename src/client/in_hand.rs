//! Files that a session has in hand for what it will create, or have sent to another machine: open,
//! and without a name. Nobody waits for a lock, as a signal handler may create files, too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use terral_format::ids::{DescriptionSlot, FileSlot, Ino};
use terral_format::wire::message::{FileRef, OpenFile};

/// Takes one of the numbers that the server has put into the session page, from the first of `all`
/// places on; and whether half of them are gone, so that the server shall look soon.
pub(crate) fn take_one<'p>(
    places: impl Iterator<Item = &'p AtomicU64>,
    all: usize,
) -> Option<(u64, bool)> {
    places.enumerate().find_map(|(at, place)| {
        let there = place.load(Ordering::Relaxed) != 0;
        let number =
            there.then(|| place.swap(0, Ordering::AcqRel)).filter(|number| *number != 0)?;
        Some((number, at == all / 2))
    })
}

/// Puts one back that was not needed.
pub(crate) fn put_back<'p>(mut places: impl Iterator<Item = &'p AtomicU64>, number: u64) {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    let put = |place: &AtomicU64| place.compare_exchange(0, number, order.0, order.1).is_ok();
    // The server may have filled the place: then this one goes with the session.
    let _ = places.any(put);
}

/// Files in hand at a time, at most.
pub(crate) const PREALLOCATED: usize = 256;

/// Files for what is sent to other machines that are kept for the next calls; those of more calls
/// at once are given back.
const BOUNCES: usize = 4;

/// Files in hand, and whether there may be.
pub(crate) struct InHand {
    /// The inode numbers; 0 for a free place.
    inos: [AtomicU64; PREALLOCATED],
    /// `description << 32 | slot` and `nonce` of each.
    places: [AtomicU64; PREALLOCATED],
    nonces: [AtomicU32; PREALLOCATED],
    /// 1 + whether their descriptions live as long as their kernel descriptors; 0: there were none.
    kind: AtomicU32,
    /// Where the next one is looked for first.
    taken: AtomicU32,
    /// What could have been deferred so far.
    pub(crate) asked: AtomicU32,
    /// How many to ask for next.
    pub(crate) next: AtomicU32,
    pub(crate) may_defer: AtomicBool,
    /// One thread asks for more at a time, or one has asked ahead.
    pub(crate) asking: AtomicBool,
    /// 1 + the request that was sent ahead, whose answer whoever takes this fetches; 0: none.
    pub(crate) ahead: AtomicUsize,
    /// How many are there.
    left: AtomicU32,
    /// Claims made.
    pub(crate) claims: AtomicU64,
    /// Opens that may be recalled, about, and the most that there were.
    pub(crate) opens: AtomicU64,
    pub(crate) most_opens: AtomicU64,
    /// For what is sent to other machines: those that no call has.
    bounces: Mutex<Vec<OpenFile>>,
}

impl Default for InHand {
    fn default() -> Self {
        InHand {
            inos: [const { AtomicU64::new(0) }; PREALLOCATED],
            places: [const { AtomicU64::new(0) }; PREALLOCATED],
            nonces: [const { AtomicU32::new(0) }; PREALLOCATED],
            kind: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            next: AtomicU32::new(4),
            may_defer: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            ahead: AtomicUsize::new(0),
            left: AtomicU32::new(0),
            claims: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            most_opens: AtomicU64::new(0),
            bounces: Mutex::default(),
        }
    }
}

impl InHand {
    /// Whether they are of this kind; the first who asks decides.
    pub(crate) fn are(&self, kernel: bool) -> bool {
        let kind = 1 + u32::from(kernel);
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        self.kind.compare_exchange(0, kind, order.0, order.1).map_or_else(|is| is == kind, |_| true)
    }

    /// One of them.
    pub(crate) fn take(&self) -> Option<OpenFile> {
        let first = self.taken.load(Ordering::Relaxed) as usize;
        for at in (0..PREALLOCATED).map(|at| (first + at) % PREALLOCATED) {
            let ino = self.inos[at].load(Ordering::Acquire);
            if ino == 0 {
                continue;
            }
            let place = self.places[at].load(Ordering::Relaxed);
            let nonce = self.nonces[at].load(Ordering::Relaxed);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            // A number never comes again: if it is still there, so is all that belongs to it.
            if self.inos[at].compare_exchange(ino, 0, order.0, order.1).is_ok() {
                self.taken.store(at as u32 + 1, Ordering::Relaxed);
                self.left.fetch_sub(1, Ordering::Relaxed);
                return Some(OpenFile {
                    file: FileRef { ino: Ino(ino), slot: FileSlot(place as u32) },
                    description: DescriptionSlot((place >> 32) as u32),
                    nonce,
                });
            }
        }
        None
    }

    /// A file for what is sent to another machine, for one call at a time.
    pub(crate) fn take_bounce(&self) -> Option<OpenFile> {
        self.bounces.try_lock().ok()?.pop()
    }

    /// That call is over. False: there is no place for it.
    pub(crate) fn keep_bounce(&self, file: OpenFile) -> bool {
        let kept = self.bounces.try_lock().ok().filter(|kept| kept.len() < BOUNCES);
        kept.map(|mut kept| kept.push(file)).is_some()
    }

    /// Whether half of them are gone, where there were as many as there may be.
    pub(crate) fn are_few(&self) -> bool {
        let half = PREALLOCATED as u32 / 2;
        self.left.load(Ordering::Relaxed) <= half && self.next.load(Ordering::Relaxed) > half
    }

    /// Only the thread that asks for more puts.
    pub(crate) fn put(&self, file: &OpenFile) {
        let free = (0..PREALLOCATED).find(|at| self.inos[*at].load(Ordering::Acquire) == 0);
        let Some(at) = free else { return };
        let place = u64::from(file.description.0) << 32 | u64::from(file.file.slot.0);
        self.left.fetch_add(1, Ordering::Relaxed);
        self.places[at].store(place, Ordering::Relaxed);
        self.nonces[at].store(file.nonce, Ordering::Relaxed);
        self.inos[at].store(file.file.ino.0, Ordering::Release);
    }
}
