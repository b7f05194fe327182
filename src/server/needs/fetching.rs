//! What a request needs of the permanent store, or the spill, before it can be carried out. From
//! the spill, and from a store that is far or has been slow lately, it is fetched without the
//! server's lock: the request waits, others go on, and then it is carried out anew. A store that is
//! near is asked in place: waking another thread takes longer than its answer. A version that the
//! drain is just writing is not waited for under the lock, either.
//!
//! Invariants: until all that it needs is there, a request has changed nothing but what anybody may
//! know (names that were found, bytes that were brought). What was fetched counts only for exactly
//! the need it was fetched for, once (what was found of names: for all of one attempt of a request,
//! which may look at a name again), and not if the drain has changed a name above, below or at
//! its path meanwhile, nor if its chunk was brought. Not here: who fetches (`fetchers`), and what
//! becomes of it (`lookup`, `bringing`).

use std::time::Duration;

use terral_format::ids::Ino;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Source;
use terral_store::spill::Block;

use crate::core::world::{Tick, World};
use crate::needs::listings::Listings;
use crate::needs::need::{Fetched, Need, SpilledChunk};

/// A store that takes so long twice in a row is slow, and is taken for far for a while: once it may
/// be the machine, whose cores compute.
const SLOW: Duration = Duration::from_micros(500);
/// One that takes so long once is.
const VERY_SLOW: Duration = Duration::from_millis(10);
const SLOW_FOR: Duration = Duration::from_secs(10);

/// One fetch.
struct Fetch {
    number: u64,
    need: Need,
    /// Nobody has begun with it.
    new: bool,
    /// What it gave, once it has ended.
    fetched: Option<Fetched>,
    /// What is just being carried out has seen it.
    used: bool,
}

/// Everything that is being fetched, or was and waits to be used.
#[derive(Default)]
pub struct Fetches {
    all: Vec<Fetch>,
    next: u64,
    /// What directories of the store had, a while ago.
    pub listings: Listings,
    /// The store is behind a network, or another program.
    far: bool,
    /// It has been slow, and counts as far until then.
    slow_until: Tick,
    /// What it gave last took long.
    was_slow: bool,
    /// What is being carried out may wait.
    may_wait: bool,
    /// It must.
    waits: bool,
    /// Requests wait.
    awaited: bool,
    /// Somebody without a session does.
    asked: bool,
    /// There are threads that fetch. Else everything is asked in place.
    served: bool,
}

impl Fetches {
    /// From a store that is far, or is not.
    pub fn new(far: bool) -> Self {
        Fetches { far, ..Fetches::default() }
    }

    /// Something of the store took from `begin` to `now`.
    fn took(&mut self, begin: Tick, now: Tick) {
        let (took, before) = (now.since(begin), self.was_slow);
        self.was_slow = took >= SLOW;
        if took >= VERY_SLOW || self.was_slow && before {
            self.slow_until = now + SLOW_FOR;
        }
    }

    /// What `need` gives: as it was fetched, or asked for in place.
    ///
    /// # Errors
    /// If whoever asks must wait until it is fetched: whatever that means to who gets it, it is
    /// carried out anew.
    pub fn get(&mut self, need: &Need, source: &dyn Source, world: &dyn World) -> Result<Fetched> {
        let now = world.now();
        if let Some(fetched) = self.take(need, now)? {
            return Ok(fetched);
        }
        let Some(fetched) = need.fetch_now(Some(source)) else {
            return self.fetched(need);
        };
        self.took(now, world.now());
        Ok(fetched)
    }

    /// A spilled chunk, which is never read in place while somebody else may be waiting.
    ///
    /// # Errors
    /// As those of [`Fetches::get`]; [`ErrorKind::Busy`] for who may not wait.
    pub fn spilled(&mut self, chunk: SpilledChunk, leaving: bool) -> Result<Result<Block>> {
        if leaving || !self.served {
            return Ok(chunk.read());
        }
        match self.fetched(&Need::Spilled(chunk))? {
            Fetched::Block(block) => Ok(block),
            _ => Err(Error::new(ErrorKind::Busy, "something else was fetched")),
        }
    }

    /// What is carried out from now on may wait, or may not. Gives what was so before.
    pub fn let_wait(&mut self, may: bool) -> bool {
        self.all.retain(|fetch| !fetch.used);
        std::mem::replace(&mut self.may_wait, may && self.served)
    }

    /// Whether what is being carried out may wait.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether what was carried out must wait, since the last call.
    pub fn must_wait(&mut self) -> bool {
        std::mem::take(&mut self.waits)
    }

    /// Something must come about first that is not fetched: whoever asks waits, if he may.
    pub fn wait(&mut self) -> Error {
        self.waits |= self.may_wait;
        Error::new(ErrorKind::Busy, "it is not known yet")
    }

    /// Requests wait for what is fetched, or found out; or none does.
    pub fn are_awaited(&mut self, awaited: bool) {
        self.awaited = awaited;
    }

    /// Somebody who has no session waits, or nobody does.
    pub fn are_asked(&mut self, asked: bool) {
        self.asked = asked;
    }

    /// There are threads that fetch, or are no more.
    pub fn are_served(&mut self, served: bool) {
        self.served = served;
    }

    /// Whether any does.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// What could not be had was only of use.
    pub fn need_not_wait(&mut self) {
        self.waits = false;
    }

    /// What is being carried out must wait, or need not, whatever was tried since.
    pub fn set_waiting(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Whether what is being carried out must wait.
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// What was fetched for `need`; `None` if it is to be asked for in place.
    fn take(&mut self, need: &Need, now: Tick) -> Result<Option<Fetched>> {
        let there = |fetch: &Fetch| fetch.need == *need && fetch.fetched.is_some();
        let in_place = !self.may_wait || !(self.far || now < self.slow_until);
        if in_place && !self.all.iter().any(there) {
            return Ok(None);
        }
        self.fetched(need).map(Some)
    }

    /// What was fetched for `need`, by a thread.
    fn fetched(&mut self, need: &Need) -> Result<Fetched> {
        let there = self.all.iter().position(|fetch| fetch.need == *need);
        if let Some(at) = there {
            if let Some(again) = self.all[at].fetched.as_ref().and_then(Fetched::of_names) {
                self.all[at].used = true;
                return Ok(again);
            }
            if self.all[at].fetched.is_some()
                && let Some(fetched) = self.all.swap_remove(at).fetched
            {
                return Ok(fetched);
            }
        }
        let late = Error::new(ErrorKind::Busy, "it is being fetched");
        if !self.may_wait {
            return Err(late);
        }
        if there.is_none() {
            self.next += 1;
            let (number, need) = (self.next, need.clone());
            self.all.push(Fetch { number, need, new: true, fetched: None, used: false });
        }
        self.waits = true;
        Err(late)
    }

    /// Whether something is to be fetched that nobody has begun to fetch.
    pub fn is_new(&self) -> bool {
        self.all.iter().any(|fetch| fetch.new)
    }

    /// What nobody has begun to fetch, with the number under which it is [`Fetches::done`]: from
    /// the spill, or from the permanent store.
    pub fn begin(&mut self, spilled: bool) -> Vec<(u64, Need)> {
        let of = |fetch: &&mut Fetch| matches!(fetch.need, Need::Spilled(_)) == spilled;
        let new = |fetch: &mut Fetch| {
            let new = std::mem::take(&mut fetch.new);
            new.then(|| (fetch.number, fetch.need.clone()))
        };
        self.all.iter_mut().filter(of).filter_map(new).collect()
    }

    /// Something was fetched, by a thread that began with it then. What got its name meanwhile is
    /// to be had elsewhere: then it is as if nobody had asked for it.
    pub fn done(&mut self, number: u64, fetched: Fetched, (begun, now): (Tick, Tick)) {
        if fetched.is_elsewhere() {
            self.all.retain(|fetch| fetch.number != number);
            return;
        }
        if let Some(fetch) = self.all.iter_mut().find(|fetch| fetch.number == number) {
            let of_store = !matches!(fetch.need, Need::Spilled(_));
            fetch.fetched = Some(fetched);
            if of_store {
                self.took(begun, now);
            }
        }
    }

    /// Nobody can fetch it.
    pub fn failed(&mut self, number: u64, error: Error) {
        if let Some(fetch) = self.all.iter_mut().find(|fetch| fetch.number == number) {
            fetch.fetched = Some(fetch.need.failed(error));
        }
    }

    /// The drain has changed these names: what is at them, above or below is fetched anew.
    pub fn spoil(&mut self, paths: &[&[u8]]) {
        let near = |at: &[u8]| paths.iter().any(|path| are_near(at, path));
        self.all.retain(|fetch| !fetch.need.path().is_some_and(near));
        self.listings.spoil(near);
    }

    /// A chunk has come into memory, where it may change: what was fetched of it counts no more.
    pub fn brought(&mut self, ino: Ino, index: u64) {
        self.all.retain(|fetch| !fetch.need.is_of_chunk(ino, index));
    }

    /// No request waits any more: if nobody else does, nothing is needed.
    pub fn forget(&mut self, others: bool) {
        if !others && !self.asked {
            self.all.clear();
        }
    }
}

/// Whether one path is the other, or above it.
pub fn are_near(one: &[u8], other: &[u8]) -> bool {
    let within = |one: &[u8], other: &[u8]| {
        let rest = one.strip_prefix(other);
        rest.is_some_and(|rest| other.is_empty() || rest.is_empty() || rest[0] == b'/')
    };
    within(one, other) || within(other, one)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Error, ErrorKind, Fetched, Fetches, Need, SLOW, SLOW_FOR, Tick, VERY_SLOW};
    use crate::needs::listings::Wanted;

    const NOW: Tick = Tick(7);

    fn wanted(path: &[u8]) -> Wanted {
        Wanted { path: path.into(), ..Wanted::default() }
    }

    fn list() -> (Fetches, Need) {
        let mut fetches = Fetches::new(true);
        fetches.are_served(true);
        (fetches, Need::List(wanted(b"a/b")))
    }

    fn names() -> Fetched {
        Fetched::List(Ok(Arc::default()))
    }

    #[test]
    fn what_was_fetched_counts_once_and_for_who_may_not_wait_nothing_is() {
        let (mut fetches, need) = list();
        assert!(matches!(fetches.take(&need, NOW), Ok(None)) && !fetches.must_wait());
        assert!(!fetches.let_wait(true));
        assert!(fetches.take(&need, NOW).is_err() && fetches.must_wait());
        assert!(fetches.take(&need, NOW).is_err(), "it is not fetched twice");
        let [(number, begun)] = &fetches.begin(false)[..] else { panic!("one") };
        assert!(*begun == need && fetches.begin(false).is_empty());
        fetches.done(*number, names(), (NOW, NOW));
        // Who looks twice sees it twice, or would never be through.
        for _ in 0..2 {
            assert!(matches!(fetches.take(&need, NOW), Ok(Some(Fetched::List(Ok(_))))));
        }
        fetches.let_wait(true);
        assert!(fetches.take(&need, NOW).is_err(), "it was used");
    }

    #[test]
    fn what_nobody_can_fetch_fails_once() {
        let (mut fetches, need) = list();
        fetches.let_wait(true);
        assert!(fetches.take(&need, NOW).is_err());
        let number = fetches.begin(false)[0].0;
        fetches.failed(number, Error::new(ErrorKind::System, "no thread"));
        assert!(matches!(fetches.take(&need, NOW), Ok(Some(Fetched::List(Err(_))))));
        fetches.let_wait(true);
        assert!(fetches.take(&need, NOW).is_err() && fetches.begin(false).len() == 1);
    }

    #[test]
    fn bytes_of_a_version_that_got_its_name_meanwhile_are_asked_for_anew() {
        let (mut fetches, need) = list();
        fetches.let_wait(true);
        assert!(fetches.take(&need, NOW).is_err());
        let number = fetches.begin(false)[0].0;
        let named = Error::new(ErrorKind::Busy, "it gets its name");
        fetches.done(number, Fetched::Bytes(Err(named)), (NOW, NOW));
        assert!(fetches.take(&need, NOW).is_err() && fetches.begin(false).len() == 1);
    }

    #[test]
    fn what_the_drain_changes_meanwhile_does_not_count() {
        for path in [&b"a"[..], b"a/b", b"a/b/c", b""] {
            let (mut fetches, need) = list();
            fetches.let_wait(true);
            assert!(fetches.take(&need, NOW).is_err());
            let number = fetches.begin(false)[0].0;
            fetches.spoil(&[b"a/bc", b"b"]);
            assert_eq!(fetches.all.len(), 1);
            fetches.spoil(&[path]);
            fetches.done(number, names(), (NOW, NOW));
            assert!(
                fetches.take(&need, NOW).is_err() && fetches.begin(false).len() == 1,
                "{path:?}"
            );
        }
    }

    #[test]
    fn a_store_is_far_for_a_while_once_it_was_slow_twice_in_a_row_or_very_slow() {
        let near = |fetches: &mut Fetches, at| matches!(fetches.take(&list().1, at), Ok(None));
        let mut once = Fetches::new(false);
        once.are_served(true);
        once.let_wait(true);
        once.took(NOW, NOW + VERY_SLOW);
        assert!(!near(&mut once, NOW + VERY_SLOW));
        let (mut fetches, need) = (Fetches::new(false), list().1);
        fetches.are_served(true);
        fetches.let_wait(true);
        for took in [SLOW, SLOW / 2, SLOW] {
            fetches.took(NOW, NOW + took);
            assert!(near(&mut fetches, NOW + took), "it may be the machine");
        }
        fetches.took(NOW, NOW + SLOW);
        let over = NOW + SLOW + SLOW_FOR;
        assert!(fetches.take(&need, Tick(over.0 - 1)).is_err());
        let (mut fetches, later) = (fetches, Need::List(wanted(b"c")));
        assert!(matches!(fetches.take(&later, over), Ok(None)));
    }
}
