//! The table of locks in shared memory: the only truth about who holds what.
//!
//! The locks on some files (those of one *head*) are a list in blocks of memory. Nobody changes a
//! list: who takes or gives back a lock writes a new one into blocks of his own and publishes it by
//! one compare-and-swap of the head, which names the first block and counts its versions. So
//! whoever is killed or stopped in the middle has changed nothing, and is in nobody's way. Rules:
//!
//! * A block belongs to a session, and says as which version of which head it was published last.
//!   Its owner writes there only while that head has another version.
//! * A reader looks at the head again after it has read: the same version means that no block of
//!   the list was written to meanwhile.
//! * Who waits marks the head, and sleeps on it as long as it is so (a futex: the low half). Who
//!   takes a lock keeps the mark; who gives one back takes it away and wakes all who sleep.
//! * Blocks of a session that ended are given to another when no head has their version any more.
//!
//! What is in here may be anything: clients write it. Not here: who is dead, who waits for whom
//! (the server), and sleeping (`terral-transport`).

use crate::ids::Ino;
use crate::local::lock_set;
use crate::local::sync::{AtomicU64, Ordering, fence, spin_loop};
use crate::wire::locks::{Lock, LockKind, LockOwner, LockRange};
use std::collections::BTreeSet;

/// Heads: a file has one, which others may share.
pub const HEADS: usize = if cfg!(loom) { 1 } else { 4096 };
/// Groups of blocks, which sessions are given.
pub const GROUPS: usize = if cfg!(loom) { 4 } else { 1536 };
/// Blocks of a group: how many lists its session may have published at a time.
pub const GROUP: usize = if cfg!(loom) { 4 } else { 16 };
/// Groups a session may have.
pub const GROUPS_OF_ONE: usize = if cfg!(loom) { 1 } else { 64 };
/// Locks of a block.
const ENTRIES: usize = if cfg!(loom) { 2 } else { 15 };
/// Blocks of a list, at most.
const CHAIN: usize = 256;

const ENTRY_WORDS: usize = 4;
const TAG: usize = 0;
const COUNT: usize = 1;
const FIRST_ENTRY: usize = 2;
const BLOCK_WORDS: usize = if cfg!(loom) { FIRST_ENTRY + ENTRIES * ENTRY_WORDS } else { 64 };
const FIRST_BLOCK: usize = HEADS + GROUPS;
/// Words of all of it.
pub const WORDS: usize = FIRST_BLOCK + GROUPS * GROUP * BLOCK_WORDS;
/// Words that must exist from the first; those of a group must before it is given.
pub const WORDS_AT_FIRST: usize = FIRST_BLOCK;

const WAITS: u64 = 1;
const VERSION_SHIFT: u32 = 1;
const VERSION: u64 = (1 << 43) - 1;
const BLOCK_SHIFT: u32 = 44;
/// In a tag, below the version: 1 + the head.
const TAG_SHIFT: u32 = 16;
/// In a group's word: not 1 + a session, but the server itself.
const SERVER: u64 = u64::MAX;
/// In a word of a pool, above 1 + the group: blocks in use by a thread just now.
const BUSY_SHIFT: u32 = 32;

/// What a head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u64);

impl Head {
    fn new(version: u64, first: u64, waits: bool) -> Self {
        let version = (version & VERSION) << VERSION_SHIFT;
        Head(first << BLOCK_SHIFT | version | u64::from(waits))
    }

    /// Whether somebody may sleep on it.
    pub fn waits(self) -> bool {
        self.0 & WAITS != 0
    }

    fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT & VERSION
    }

    /// 1 + the first block; 0: the list is empty.
    fn first(self) -> u64 {
        self.0 >> BLOCK_SHIFT
    }

    /// The half that is slept on.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    fn is_same_list(self, other: Head) -> bool {
        (self.0 ^ other.0) & !WAITS == 0
    }
}

/// Why a list cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// No block is free; there may be others.
    Blocks,
    /// It is longer than lists are.
    List,
}

/// What became of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is so now.
    Set {
        /// Who sleeps on the head must be woken.
        wakes: bool,
    },
    /// Another is in the way.
    Blocked {
        /// Which.
        by: Lock,
        /// The head at that moment, for [`LockTable::wait`].
        seen: Head,
    },
}

/// The blocks that one session, or the server, may write to.
pub struct Pool([AtomicU64; GROUPS_OF_ONE]);

impl Default for Pool {
    fn default() -> Self {
        Pool(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Pool {
    /// A group that it was given. False: it has as many as it may.
    pub fn add(&self, group: u32) -> bool {
        let word = u64::from(group) + 1;
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let free = |place: &AtomicU64| place.compare_exchange(0, word, order.0, order.1).is_ok();
        self.0.iter().any(free)
    }

    /// A block that is in no list, for this thread alone.
    fn take(&self, table: &LockTable<'_>) -> Option<usize> {
        for place in &self.0 {
            let mut word = place.load(Ordering::Acquire);
            let Some(group) = (word as u32 as usize).checked_sub(1) else { continue };
            for slot in 0..GROUP {
                let (bit, at) = (1 << (BUSY_SHIFT as usize + slot), group * GROUP + slot);
                if word & bit != 0 || table.is_listed(at) {
                    continue;
                }
                word = place.fetch_or(bit, Ordering::AcqRel);
                if word & bit != 0 {
                    continue;
                }
                if !table.is_listed(at) {
                    return Some(at);
                }
                place.fetch_and(!bit, Ordering::AcqRel);
            }
        }
        None
    }

    /// The thread is done with it.
    fn put(&self, at: usize) {
        let (group, slot) = (at / GROUP + 1, at % GROUP);
        let its = |place: &&AtomicU64| place.load(Ordering::Relaxed) as u32 as usize == group;
        if let Some(place) = self.0.iter().find(its) {
            place.fetch_and(!(1 << (BUSY_SHIFT as usize + slot)), Ordering::AcqRel);
        }
    }
}

/// All locks of an instance.
#[derive(Clone, Copy)]
pub struct LockTable<'a>(&'a [AtomicU64]);

impl<'a> LockTable<'a> {
    /// The table in these [`WORDS`] words.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        LockTable(words)
    }

    fn head_of(ino: Ino) -> usize {
        // Fibonacci hashing (Knuth, TAOCP 3, 6.4): inode numbers are consecutive.
        (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % HEADS
    }

    /// The head of a file, to sleep on.
    pub fn head(&self, ino: Ino) -> &'a AtomicU64 {
        &self.0[Self::head_of(ino)]
    }

    fn groups(&self) -> &'a [AtomicU64] {
        &self.0[HEADS..][..GROUPS]
    }

    fn block(&self, at: usize) -> Option<&'a [AtomicU64]> {
        let known = at < GROUPS * GROUP;
        known.then(|| &self.0[FIRST_BLOCK + at * BLOCK_WORDS..][..BLOCK_WORDS])
    }

    // What there is.

    /// Whether nobody has a lock on a file: cheap.
    pub fn is_free(&self, ino: Ino) -> bool {
        Head(self.head(ino).load(Ordering::SeqCst)).first() == 0
    }

    /// The locks on a file, and on others of the same head.
    pub fn locks(&self, ino: Ino) -> (Head, Vec<Lock>) {
        self.look(Self::head_of(ino))
    }

    fn look(&self, at: usize) -> (Head, Vec<Lock>) {
        loop {
            let head = Head(self.0[at].load(Ordering::SeqCst));
            let locks = self.read(head);
            // What was read is as old as this or older; see the fence of the one who writes.
            fence(Ordering::Acquire);
            if head.is_same_list(Head(self.0[at].load(Ordering::SeqCst))) {
                return (head, locks);
            }
            spin_loop();
        }
    }

    /// The list of a head, or rubbish if that has another by now.
    fn read(&self, head: Head) -> Vec<Lock> {
        let (mut locks, mut next) = (Vec::new(), head.first());
        for _ in 0..CHAIN {
            let at = (next as usize).checked_sub(1);
            let Some(block) = at.and_then(|at| self.block(at)) else { break };
            let word = block[COUNT].load(Ordering::Relaxed);
            let entries = block[FIRST_ENTRY..].chunks_exact(ENTRY_WORDS);
            locks.extend(entries.take(word as u32 as usize).filter_map(decoded));
            next = word >> 32;
        }
        locks
    }

    // Changes.

    /// Takes, changes or gives back a lock.
    pub fn set(&self, lock: &Lock, pool: &Pool) -> Result<Outcome, Full> {
        let at = Self::head_of(lock.ino);
        loop {
            let (seen, mut locks) = self.look(at);
            if let Some(by) = lock_set::conflicts(&locks, lock).next() {
                return Ok(Outcome::Blocked { by: *by, seen });
            }
            if !lock_set::set(&mut locks, lock) {
                return Ok(Outcome::Set { wakes: false });
            }
            let releases = lock.kind != LockKind::Exclusive;
            if self.publish(at, seen, &locks, releases, pool)? {
                return Ok(Outcome::Set { wakes: releases && seen.waits() });
            }
        }
    }

    /// Takes locks away from a file and others of its head. True: who sleeps must be woken.
    pub fn release(
        &self,
        ino: Ino,
        pool: &Pool,
        gone: impl Fn(&Lock) -> bool,
    ) -> Result<bool, Full> {
        let at = Self::head_of(ino);
        loop {
            let (seen, mut locks) = self.look(at);
            let before = locks.len();
            locks.retain(|lock| !gone(lock));
            if locks.len() == before {
                return Ok(false);
            }
            if self.publish(at, seen, &locks, true, pool)? {
                return Ok(seen.waits());
            }
        }
    }

    /// Marks a head as waited for, if it is as it was `seen`: the value to sleep on.
    pub fn wait(&self, ino: Ino, seen: Head) -> Option<u32> {
        let marked = Head(seen.0 | WAITS);
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let swap = || self.head(ino).compare_exchange(seen.0, marked.0, order.0, order.1).is_ok();
        (seen.waits() || swap()).then(|| marked.low())
    }

    /// As [`LockTable::set`] of who is killed before it publishes what it wrote: for the model.
    #[cfg(loom)]
    pub fn set_and_die(&self, lock: &Lock, pool: &Pool) {
        let at = Self::head_of(lock.ino);
        let (seen, mut locks) = self.look(at);
        lock_set::set(&mut locks, lock);
        let _ = self.write(Self::tag(at, seen.version() + 1), &locks, pool);
    }

    fn tag(at: usize, version: u64) -> u64 {
        (version & VERSION) << TAG_SHIFT | (at as u64 + 1)
    }

    /// Makes `locks` the list of a head. False: that was not as `seen` any more.
    fn publish(
        &self,
        at: usize,
        seen: Head,
        locks: &[Lock],
        releases: bool,
        pool: &Pool,
    ) -> Result<bool, Full> {
        if locks.len() > CHAIN * ENTRIES {
            return Err(Full::List);
        }
        let version = seen.version() + 1;
        let chain = self.write(Self::tag(at, version), locks, pool);
        let next = Head::new(version, *chain.as_ref().unwrap_or(&0), seen.waits() && !releases);
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let done =
            chain.is_ok() && self.0[at].compare_exchange(seen.0, next.0, order.0, order.1).is_ok();
        self.let_go(*chain.as_ref().unwrap_or_else(|begun| begun), done, pool);
        chain.map(|_| done).map_err(|_| Full::Blocks)
    }

    /// Writes a list into free blocks: 1 + the first, or what was written when there was none left.
    fn write(&self, tag: u64, locks: &[Lock], pool: &Pool) -> Result<u64, u64> {
        let mut next = 0;
        for piece in locks.chunks(ENTRIES).rev() {
            let at = pool.take(self).ok_or(next)?;
            let block = self.block(at).ok_or(next)?;
            // Whoever reads what is stored from here on finds the head that freed the block.
            fence(Ordering::Release);
            block[TAG].store(tag, Ordering::Relaxed);
            block[COUNT].store(next << 32 | piece.len() as u64, Ordering::Relaxed);
            for (lock, words) in piece.iter().zip(block[FIRST_ENTRY..].chunks_exact(ENTRY_WORDS)) {
                for (word, value) in words.iter().zip(encoded(lock)) {
                    word.store(value, Ordering::Relaxed);
                }
            }
            next = at as u64 + 1;
        }
        Ok(next)
    }

    /// The blocks of a list that this thread wrote are for all of its process; `listed`: a head has
    /// it.
    fn let_go(&self, first: u64, listed: bool, pool: &Pool) {
        let mut next = first;
        for _ in 0..CHAIN {
            let Some(at) = (next as usize).checked_sub(1) else { return };
            let Some(block) = self.block(at) else { return };
            next = block[COUNT].load(Ordering::Relaxed) >> 32;
            if !listed {
                block[TAG].store(0, Ordering::Relaxed);
            }
            pool.put(at);
        }
    }

    /// Whether a block may be in a list.
    fn is_listed(&self, at: usize) -> bool {
        let Some(block) = self.block(at) else { return true };
        let tag = block[TAG].load(Ordering::Relaxed);
        let head = (tag as usize & ((1 << TAG_SHIFT) - 1)).checked_sub(1);
        let Some(head) = head.filter(|head| *head < HEADS) else { return false };
        Head(self.0[head].load(Ordering::SeqCst)).version() == tag >> TAG_SHIFT
    }

    // Server.

    /// The groups that are nobody's.
    pub fn unowned(&self) -> impl Iterator<Item = u32> + use<'a> {
        let groups = self.groups().iter().enumerate();
        let unowned = groups.filter(|(_, word)| word.load(Ordering::SeqCst) == 0);
        unowned.map(|(group, _)| group as u32)
    }

    /// Where a group lies: bytes from the table's begin, and how many.
    pub fn place(group: u32) -> (usize, usize) {
        let words = GROUP * BLOCK_WORDS;
        ((FIRST_BLOCK + group as usize * words) * 8, words * 8)
    }

    /// Whether a list may be in a group, which must exist.
    pub fn has_list(&self, group: u32) -> bool {
        let first = group as usize * GROUP;
        (first..first + GROUP).any(|at| self.is_listed(at))
    }

    /// Gives a group to a session; `None`: to the server itself.
    pub fn give_group(&self, group: u32, session: Option<u16>) {
        let word = session.map_or(SERVER, |session| u64::from(session) + 1);
        self.groups()[group as usize].store(word, Ordering::SeqCst);
    }

    /// How many groups a session has.
    pub fn groups_of(&self, session: u16) -> usize {
        let its = |word: &&AtomicU64| word.load(Ordering::SeqCst) == u64::from(session) + 1;
        self.groups().iter().filter(its).count()
    }

    /// Takes a group back that was given and is not used.
    pub fn take_back(&self, group: u32) {
        self.groups()[group as usize].store(0, Ordering::SeqCst);
    }

    /// Takes the groups of sessions that are no more, and with `server` those of a former server.
    pub fn reclaim(&self, server: bool, lives: impl Fn(u16) -> bool) {
        for word in self.groups() {
            let is = word.load(Ordering::SeqCst);
            let session = is.checked_sub(1).and_then(|at| u16::try_from(at).ok());
            let keeps = if is == SERVER { !server } else { session.is_some_and(&lives) };
            if is != 0 && !keeps {
                word.store(0, Ordering::SeqCst);
            }
        }
    }

    /// The files on which an owner has a lock.
    pub fn files_of(&self, owner: LockOwner) -> BTreeSet<Ino> {
        let used = |at: &usize| Head(self.0[*at].load(Ordering::SeqCst)).first() != 0;
        let its = |at: usize| self.look(at).1.into_iter().filter(|lock| lock.owner == owner);
        (0..HEADS).filter(used).flat_map(its).map(|lock| lock.ino).collect()
    }
}

const EXCLUSIVE: u64 = 1 << 63;

fn encoded(lock: &Lock) -> [u64; ENTRY_WORDS] {
    let exclusive = if lock.kind == LockKind::Exclusive { EXCLUSIVE } else { 0 };
    [lock.ino.0, lock.owner.word(), lock.range.first, lock.range.last | exclusive]
}

fn decoded(words: &[AtomicU64]) -> Option<Lock> {
    let [ino, owner, first, last] = words else { return None };
    let [ino, owner, first, last] = [ino, owner, first, last].map(|w| w.load(Ordering::Relaxed));
    let range = LockRange { first, last: last & !EXCLUSIVE };
    let kind = if last & EXCLUSIVE == 0 { LockKind::Shared } else { LockKind::Exclusive };
    let lock = Lock { ino: Ino(ino), owner: LockOwner::of(owner)?, range, kind };
    range.is_sane().then_some(lock)
}
