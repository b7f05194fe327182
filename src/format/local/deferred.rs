//! Deferred changes: what a client has done to names or attributes without waiting for the server.
//!
//! The client claims a word, looks once more that nothing speaks against the change, and commits;
//! from then on it is done. Whoever looks at the same name or inode sees the word, and reads what
//! was changed there, or asks the server, which applies what was committed before, in order of the
//! stamps. Rules:
//!
//! * A reader looks for a committed word first and at the table then: the server changes the table
//!   before it clears the word. Of several, that with the highest stamp counts, if its word is
//!   there when all were looked at: changes of one key are cleared in their order.
//! * A change of names claims them alone among what is not committed yet, and looks after.
//! * A change of two things has a *shadow* on the second of them, which counts if the change itself
//!   is committed: one compare-and-swap decides about both. They have the session and the count of
//!   their claims in common, and the server clears the shadow just before the change.
//! * Before the server changes names for somebody who waits, it closes the gate and revokes what is
//!   claimed and not committed; who claims looks at the gate next, then at what there is. So one
//!   of the two sees the other (Dekker). A revoked word is its claimer's, who may still be writing,
//!   until he lets it go.
//! * A word that is committed stays until its change is in the log: a server that died in between
//!   applies it again, which changes nothing.
//! * An *open* may be recalled by its client until the server has taken it: one compare-and-swap on
//!   the change's stamp, which never comes again, decides between the two. What was recalled is its
//!   client's, who clears the word.
//!
//! Not here: what the changes are ([`crate::local::changes::Deferred`]), who may defer, and the
//! table.

use crate::local::sync::{AtomicU64, Ordering, fence};

/// Words a key may lie in: one line of the cache, and in the model two.
pub const LINE: usize = if cfg!(loom) { 2 } else { 8 };
/// Lines.
pub const LINES: usize = if cfg!(loom) { 1 } else { 128 };
/// Changes that may be deferred at a time.
pub const CHANGES: usize = LINE * LINES;
/// Longest encoded change: one with the longest name, and 80 bytes more.
pub const CHANGE_BYTES: usize = 336;

const STAMP_WORD: usize = 0;
const FIRST_WORD: usize = 8;
const CHANGE_WORDS: usize = 2 + CHANGE_BYTES / 8;
const FIRST_CHANGE: usize = FIRST_WORD + CHANGES;
/// Words of all of it.
pub const WORDS: usize = FIRST_CHANGE + CHANGES * CHANGE_WORDS;

const CLAIMED: u64 = 1;
const COMMITTED: u64 = 2;
const REVOKED: u64 = 3;
const STATE: u64 = 3;
const DOMAIN_SHIFT: u32 = 2;
const DOMAIN: u64 = 7;
const SHADOW: u64 = 1 << 5;
const COUNT_SHIFT: u32 = 6;
const COUNT: u64 = 0x3ff;
const SESSION_SHIFT: u32 = 16;
const TAG_SHIFT: u32 = 32;
/// Beside a change's length: the directories that it is about.
const ABOUT_SHIFT: u32 = 32;
/// The domain of opens: the only changes that can be recalled.
const OPENING: u64 = 3;

// In the stamp of an open that was committed: nobody but the one who put it there goes on with it.
const TAKEN: u64 = 1 << 63;
const RECALLED: u64 = 1 << 62;

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    tag: u32,
    domain: u64,
}

impl Key {
    /// The name with this hash of its directory and itself (see [`crate::local::names::hash`]).
    pub fn name(hash: u32) -> Self {
        Key { tag: hash, domain: 0 }
    }

    /// The attributes of the inode in this slot of the table.
    pub fn attributes(index: u32) -> Self {
        Key { tag: index, domain: 1 }
    }

    /// The end of an open-file description: nobody looks for it.
    pub fn description(slot: u32) -> Self {
        Key { tag: slot, domain: 2 }
    }

    /// That the inode in this slot of the table is opened: whoever takes its memory looks.
    pub fn opening(index: u32) -> Self {
        Key { tag: index, domain: OPENING }
    }

    /// That the directory in this slot goes: whoever puts something into it looks.
    pub fn removal(index: u32) -> Self {
        Key { tag: index, domain: 4 }
    }

    fn line(self) -> usize {
        // Fibonacci hashing (Knuth, TAOCP 3, 6.4): inode slots and descriptions are consecutive.
        let spread = (self.tag ^ (self.domain as u32) << 29).wrapping_mul(0x9e37_79b9);
        (spread >> 16) as usize % LINES * LINE
    }

    fn word(self, session: u16, count: u64) -> u64 {
        let session = u64::from(session) << SESSION_SHIFT;
        let count = (count & COUNT) << COUNT_SHIFT;
        u64::from(self.tag) << TAG_SHIFT | session | count | self.domain << DOMAIN_SHIFT
    }

    fn is_of(self, word: u64) -> bool {
        (word >> TAG_SHIFT) as u32 == self.tag && (word >> DOMAIN_SHIFT) & DOMAIN == self.domain
    }
}

/// A word that was claimed, with the state it has then.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    at: usize,
    word: u64,
    about: u32,
}

/// Two directories, as what was changed in them says: their slots' low bits.
fn both(directories: [u32; 2]) -> u32 {
    directories[0] & 0xffff | directories[1] << 16
}

/// As of [`both`]: it may be any.
const ANY: u32 = u32::MAX;

impl Claim {
    /// For a change of names in these directories, by their slots in the table, and in no others:
    /// who looks for changes in another one passes it over.
    #[must_use]
    pub fn within(self, directories: [u32; 2]) -> Self {
        Claim { about: both(directories), ..self }
    }
}

/// An open that was committed, and that its client may recall until the server has taken it.
#[derive(Clone, Copy, Debug)]
pub struct Recallable {
    at: usize,
    word: u64,
    stamp: u64,
}

impl Recallable {
    /// Whose it is.
    pub fn session(&self) -> u16 {
        (self.word >> SESSION_SHIFT) as u16
    }
}

/// What a reader finds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending<'b> {
    /// No change was committed that is not in the table.
    Nothing,
    /// This is the last one.
    Change(&'b [u8]),
    /// There is one, or may be.
    Unsure,
}

/// A change that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place among the changes' stamps.
    pub stamp: u64,
    /// By which session.
    pub session: u16,
    at: usize,
    word: u64,
}

/// Whether readers take notice of a word: it is committed, or the shadow of what may be.
fn is_shown(word: u64) -> bool {
    word & STATE == COMMITTED || word & SHADOW != 0
}

/// Whether a word is a change of a name, committed or not, and no shadow of one.
#[inline]
fn is_name(word: u64) -> bool {
    // The domain of names is 0.
    (word & (STATE | DOMAIN << DOMAIN_SHIFT | SHADOW)).wrapping_sub(1) < STATE
}

/// Whether a word is an open that was committed.
fn is_recallable(word: u64) -> bool {
    word & STATE == COMMITTED && (word >> DOMAIN_SHIFT) & DOMAIN == OPENING
}

/// Whether two words are of one change: session and count are the same.
fn of_one(one: u64, other: u64) -> bool {
    (one ^ other) as u32 >> COUNT_SHIFT == 0
}

/// All deferred changes of an instance.
#[derive(Clone, Copy)]
pub struct DeferredTable<'a>(&'a [AtomicU64]);

impl<'a> DeferredTable<'a> {
    /// The table in these [`WORDS`] words.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        DeferredTable(words)
    }

    fn line(&self, key: Key) -> &'a [AtomicU64] {
        &self.0[FIRST_WORD + key.line()..][..LINE]
    }

    fn change(&self, at: usize) -> &'a [AtomicU64] {
        &self.0[FIRST_CHANGE + at * CHANGE_WORDS..][..CHANGE_WORDS]
    }

    // Readers.

    /// Whether a change of `key` was committed, or is just being, that the server has not applied.
    #[inline]
    pub fn is_pending(&self, key: Key) -> bool {
        let mut words = self.line(key).iter().map(|word| word.load(Ordering::SeqCst));
        words.any(|word| is_shown(word) && key.is_of(word))
    }

    /// Whether any change of a name was.
    pub fn is_any_name_pending(&self) -> bool {
        let name = |word: u64| is_shown(word) && (word >> DOMAIN_SHIFT) & DOMAIN == 0;
        let mut words = self.0[FIRST_WORD..][..CHANGES].iter();
        words.any(|word| name(word.load(Ordering::SeqCst)))
    }

    /// Whether any change was committed.
    pub fn is_any_committed(&self) -> bool {
        // Without a branch for each word: the server asks often.
        let found =
            |found, word: &AtomicU64| found | (word.load(Ordering::SeqCst) & STATE == COMMITTED);
        self.0[FIRST_WORD..][..CHANGES].iter().fold(false, found)
    }

    /// Whether somebody has claimed `key`, committed or not.
    pub fn is_claimed(&self, key: Key) -> bool {
        let mut words = self.line(key).iter().map(|word| word.load(Ordering::SeqCst));
        words.any(|word| word & STATE != 0 && key.is_of(word))
    }

    /// The last change of `key` that was committed and that the server has not applied. `master`
    /// tells from what a shadow says what it is the shadow of.
    pub fn latest<'b>(
        &self,
        key: Key,
        master: impl Fn(&[u8]) -> Option<Key>,
        buffer: &'b mut [u8; CHANGE_BYTES],
    ) -> Pending<'b> {
        let mut last: Option<(u64, usize, usize, u64)> = None;
        let mut other = [0; CHANGE_BYTES];
        for within in 0..LINE {
            let at = key.line() + within;
            let word = self.0[FIRST_WORD + at].load(Ordering::SeqCst);
            if !is_shown(word) || !key.is_of(word) {
                continue;
            }
            let Some((stamp, length)) = self.peek(at, word, &mut other) else {
                return Pending::Unsure;
            };
            if word & SHADOW != 0 && word & STATE != COMMITTED {
                match master(&other[..length]).map(|key| self.is_cast(key, word)) {
                    Some(Some(true)) => {}
                    // Nothing has happened yet.
                    Some(Some(false)) => continue,
                    _ => return Pending::Unsure,
                }
            }
            if last.is_none_or(|(before, ..)| before < stamp) {
                last = Some((stamp, length, at, word));
                buffer[..length].copy_from_slice(&other[..length]);
            }
        }
        let Some((stamp, length, at, word)) = last else { return Pending::Nothing };
        // What came after it goes after it: as long as this one is there, nothing was missed.
        let there = self.0[FIRST_WORD + at].load(Ordering::SeqCst) == word;
        if there && self.change(at)[0].load(Ordering::Relaxed) == stamp {
            Pending::Change(&buffer[..length])
        } else {
            Pending::Unsure
        }
    }

    /// Whether the change whose shadow is `word` is committed; `None`: it is no more.
    fn is_cast(&self, key: Key, word: u64) -> Option<bool> {
        let same =
            |master: &u64| key.is_of(*master) && master & SHADOW == 0 && of_one(*master, word);
        let mut words = self.line(key).iter().map(|word| word.load(Ordering::SeqCst));
        words.find(same).map(|master| master & STATE == COMMITTED)
    }

    /// Stamp and length of what lies at a place, if the word there is `word` before and after.
    fn peek(&self, at: usize, word: u64, into: &mut [u8; CHANGE_BYTES]) -> Option<(u64, usize)> {
        let change = self.change(at);
        let stamp = change[0].load(Ordering::Acquire);
        let length = self.copy_out(at, into);
        fence(Ordering::Acquire);
        let same = change[0].load(Ordering::Relaxed) == stamp;
        (same && self.0[FIRST_WORD + at].load(Ordering::SeqCst) == word).then_some((stamp, length))
    }

    /// Has `look` see every change of names in the directory in this slot of the table that was
    /// committed, but for shadows, and maybe of others; it gives false to end that. False: it did,
    /// or one cannot be read just now. And with a claim of one's own, if somebody else has claimed
    /// one and not committed.
    pub fn names_are(
        &self,
        mine: Option<Claim>,
        directory: u32,
        mut look: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let mut buffer = [0; CHANGE_BYTES];
        for (line, words) in self.0[FIRST_WORD..][..CHANGES].chunks_exact(LINE).enumerate() {
            // Most lines have none: that is seen without a branch for each word.
            let found = |found, word: &AtomicU64| found | is_name(word.load(Ordering::SeqCst));
            if !words.iter().fold(false, found) {
                continue;
            }
            for (within, word) in words.iter().enumerate() {
                let (at, word) = (line * LINE + within, word.load(Ordering::SeqCst));
                if !is_name(word) || mine.is_some_and(|mine| mine.at == at) {
                    continue;
                }
                if word & STATE != COMMITTED {
                    if mine.is_some() {
                        return false;
                    }
                    continue;
                }
                // Should this be a later change's already: that one came after the caller's claim,
                // and what was here is in the table.
                let about = (self.change(at)[1].load(Ordering::Relaxed) >> ABOUT_SHIFT) as u32;
                let one = |slot: u32| (slot ^ directory) & 0xffff == 0;
                if about != ANY && !one(about) && !one(about >> 16) {
                    continue;
                }
                let read = self.peek(at, word, &mut buffer);
                if !read.is_some_and(|(_, length)| look(&buffer[..length])) {
                    return false;
                }
            }
        }
        true
    }

    // Clients.

    /// Claims a word for a change of `key`. `alone`: unless somebody has claimed the same key and
    /// not committed. `count` tells the claims of one session apart.
    pub fn claim(&self, key: Key, session: u16, count: u64, alone: bool) -> Option<Claim> {
        let (line, word) = (self.line(key), key.word(session, count) | CLAIMED);
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let take = |at: &usize| line[*at].compare_exchange(0, word, order.0, order.1).is_ok();
        let within = (0..LINE).find(take)?;
        // Whatever the claimer looks at now, it looks at after the claim.
        fence(Ordering::SeqCst);
        let claim = Claim { at: key.line() + within, word, about: ANY };
        let others = || line.iter().enumerate().filter(|(at, _)| *at != within);
        let met = |word: &AtomicU64| {
            let word = word.load(Ordering::SeqCst);
            word & STATE != 0 && word & STATE != COMMITTED && key.is_of(word)
        };
        if alone && others().any(|(_, word)| met(word)) {
            self.withdraw(claim);
            return None;
        }
        Some(claim)
    }

    /// Gives a claim up, revoked or not, and also if it has become a shadow.
    pub fn withdraw(&self, claim: Claim) {
        for shadow in [0, SHADOW] {
            self.clear(claim.at, claim.word | shadow);
        }
    }

    /// Empties a place with a claim that may have been revoked.
    fn clear(&self, at: usize, claimed: u64) {
        let word = &self.0[FIRST_WORD + at];
        for one in [claimed, claimed & !STATE | REVOKED] {
            let _ = word.compare_exchange(one, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Gives its stamp.
    fn write(&self, claim: Claim, bytes: &[u8]) -> u64 {
        let change = self.change(claim.at);
        let stamp = self.0[STAMP_WORD].fetch_add(1, Ordering::SeqCst);
        change[0].store(stamp, Ordering::Relaxed);
        fence(Ordering::Release);
        let about = u64::from(claim.about) << ABOUT_SHIFT;
        change[1].store(bytes.len() as u64 | about, Ordering::Relaxed);
        for (word, bytes) in change[2..].iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        stamp
    }

    /// Makes a claim the shadow of another with the same session and count, whose change will be
    /// the one encoded in `bytes`. False: it was revoked, and is no more.
    #[must_use]
    pub fn shadow(&self, claim: Claim, bytes: &[u8]) -> bool {
        self.write(claim, bytes);
        self.decide(claim, claim.word | SHADOW)
    }

    /// The change of a shadow is committed: others may claim the key after it.
    pub fn cast(&self, claim: Claim) {
        let (word, shadow) = (&self.0[FIRST_WORD + claim.at], claim.word | SHADOW);
        let committed = shadow & !STATE | COMMITTED;
        // The server may have cleared it already.
        let _ = word.compare_exchange(shadow, committed, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Commits the change encoded in `bytes`, at most [`CHANGE_BYTES`]. False: the claim was
    /// revoked, is no more, and nothing has happened.
    #[must_use]
    pub fn commit(&self, claim: Claim, bytes: &[u8]) -> bool {
        self.write(claim, bytes);
        self.decide(claim, claim.word & !STATE | COMMITTED)
    }

    /// Commits an open as [`DeferredTable::commit`] does; it can be recalled.
    #[must_use]
    pub fn commit_open(&self, claim: Claim, bytes: &[u8]) -> Option<Recallable> {
        let (stamp, word) = (self.write(claim, bytes), claim.word & !STATE | COMMITTED);
        self.decide(claim, word).then_some(Recallable { at: claim.at, word, stamp })
    }

    /// Takes back an open that the server has not taken: it never was. False: it is the server's.
    pub fn recall(&self, open: Recallable) -> bool {
        let (order, recalled) = ((Ordering::SeqCst, Ordering::Relaxed), open.stamp | RECALLED);
        let stamp = &self.change(open.at)[0];
        let own = stamp.compare_exchange(open.stamp, recalled, order.0, order.1).is_ok();
        if own {
            // Nobody else touches a word that was recalled.
            self.0[FIRST_WORD + open.at].store(0, Ordering::SeqCst);
        }
        own
    }

    fn decide(&self, claim: Claim, then: u64) -> bool {
        let word = &self.0[FIRST_WORD + claim.at];
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let done = word.compare_exchange(claim.word, then, order.0, order.1).is_ok();
        if !done {
            self.withdraw(claim);
        }
        done
    }

    // Server.

    /// The stamp the next change will get: whatever was committed before somebody began to wait
    /// for an answer has a lower one.
    pub fn next_stamp(&self) -> u64 {
        self.0[STAMP_WORD].load(Ordering::SeqCst)
    }

    /// Committed changes with stamps below `limit`, in their order. `revoke`: what is claimed and
    /// not committed is not to be. The second: there are changes beyond `limit`.
    pub fn collect(&self, limit: u64, revoke: bool) -> (Vec<Committed>, bool) {
        let (mut found, mut more) = (Vec::new(), false);
        // The gate was closed before.
        fence(Ordering::SeqCst);
        for (at, place) in self.0[FIRST_WORD..][..CHANGES].iter().enumerate() {
            let mut word = place.load(Ordering::SeqCst);
            if revoke && word & STATE == CLAIMED {
                let order = Ordering::SeqCst;
                match place.compare_exchange(word, word & !STATE | REVOKED, order, order) {
                    Ok(_) => continue,
                    Err(now) => word = now,
                }
            }
            if word & STATE != COMMITTED || word & SHADOW != 0 {
                continue;
            }
            let stamp = self.change(at)[0].load(Ordering::Acquire) & !TAKEN;
            if stamp & RECALLED != 0 {
                continue;
            }
            if stamp >= limit {
                more = true;
                continue;
            }
            if is_recallable(word) && !self.take(at, word, stamp) {
                continue;
            }
            let session = (word >> SESSION_SHIFT) as u16;
            found.push(Committed { stamp, session, at, word });
        }
        found.sort_unstable_by_key(|change| change.stamp);
        (found, more)
    }

    /// Takes an open that was found committed. False: its client has recalled it meanwhile, and the
    /// place may have another change.
    fn take(&self, at: usize, word: u64, stamp: u64) -> bool {
        let (place, order) = (&self.change(at)[0], Ordering::SeqCst);
        match place.compare_exchange(stamp, stamp | TAKEN, order, order) {
            Ok(_) => {}
            // By a server before this one.
            Err(now) if now == stamp | TAKEN => {}
            Err(_) => return false,
        }
        // A stamp is written before its word is committed: what has the same one before and after
        // is the change of this word. Another one's, taken too early, just cannot be recalled.
        let same = self.0[FIRST_WORD + at].load(order) == word;
        same && place.load(order) == stamp | TAKEN
    }

    /// What a committed change says, into `buffer`.
    pub fn read<'b>(&self, committed: &Committed, buffer: &'b mut [u8; CHANGE_BYTES]) -> &'b [u8] {
        let length = self.copy_out(committed.at, buffer);
        &buffer[..length]
    }

    fn copy_out(&self, at: usize, into: &mut [u8; CHANGE_BYTES]) -> usize {
        let change = self.change(at);
        let length = (change[1].load(Ordering::Relaxed) as u32 as usize).min(CHANGE_BYTES);
        for (word, bytes) in change[2..].iter().zip(into[..length].chunks_mut(8)) {
            let whole = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&whole[..bytes.len()]);
        }
        length
    }

    /// Takes back what is claimed of `key` and not committed. True: something is committed.
    pub fn revoke(&self, key: Key) -> bool {
        // Whoever claims it from now on sees why.
        fence(Ordering::SeqCst);
        let mut committed = false;
        for place in self.line(key) {
            let word = place.load(Ordering::SeqCst);
            if !key.is_of(word) {
                continue;
            }
            committed |= word & STATE == COMMITTED
                || (word & STATE == CLAIMED && {
                    let (revoked, order) = (word & !STATE | REVOKED, Ordering::SeqCst);
                    place
                        .compare_exchange(word, revoked, order, order)
                        .is_err_and(|now| now & STATE == COMMITTED)
                });
        }
        committed
    }

    /// The change is in the table and in the log; `shadow` is what else it was about.
    pub fn applied(&self, committed: &Committed, shadow: Option<Key>) {
        // The shadow first: of a server that dies in between, the next one finds the change.
        if let Some(key) = shadow {
            self.clear_shadow(key, committed.word);
        }
        let word = &self.0[FIRST_WORD + committed.at];
        let _ = word.compare_exchange(committed.word, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    fn clear_shadow(&self, key: Key, master: u64) {
        for place in self.line(key) {
            let mut word = place.load(Ordering::SeqCst);
            // Its client may be just marking it as committed.
            while word & SHADOW != 0 && key.is_of(word) && of_one(word, master) {
                let order = Ordering::SeqCst;
                match place.compare_exchange(word, 0, order, order) {
                    Ok(_) => break,
                    Err(now) => word = now,
                }
            }
        }
    }

    /// A session has ended: what it claimed and did not commit, or recalled, is nobody's.
    pub fn drop_claims(&self, session: u16) {
        for (at, place) in self.0[FIRST_WORD..][..CHANGES].iter().enumerate() {
            let word = place.load(Ordering::SeqCst);
            let claimed = matches!(word & STATE, CLAIMED | REVOKED)
                || (is_recallable(word)
                    && self.change(at)[0].load(Ordering::SeqCst) & RECALLED != 0);
            if claimed && (word >> SESSION_SHIFT) as u16 == session {
                let _ = place.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
