//! Locks, client's side: taken and given back in shared memory, without the server.
//!
//! The server is asked when a lock is in the way whose holder may be dead, and by who has waited
//! for a while: it alone knows who waits for whom. A waiting thread sleeps on the file's word and
//! is woken by whoever gives the lock back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terral_format::ids::Ino;
use terral_format::local::lock_set;
use terral_format::local::lock_table::{Full, Head, Outcome, Pool};
use terral_format::wire::far_files::FarFile;
use terral_format::wire::locks::{HeldLock, Lock, LockAsk, LockKind, LockOwner, LockRange, Locker};
use terral_format::wire::message::{Reply, Request, WAIT_REFRESH_MS};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::process::Process;
use terral_transport::{descriptor, futex, process};

use crate::session::{Connection, Own, unexpected};

/// Longest sleep before telling the server again.
const REFRESH: Duration = Duration::from_millis(WAIT_REFRESH_MS);
/// Who waits longer tells the server.
const FIRST: Duration = Duration::from_millis(5);
/// Who waits for a lock of another machine's file asks again after so long, and then less often.
const FAR_FIRST: Duration = Duration::from_millis(1);
const FAR_MOST: Duration = Duration::from_millis(50);
/// How long to wait for a server that is being restarted before looking again.
const RESTART: Duration = Duration::from_millis(50);
/// How many waits for locks of other machines' files there were in this process.
static FAR_WAITS: AtomicU32 = AtomicU32::new(0);
/// Holders in the way that died one after the other.
const DEAD_MAX: usize = 1000;
/// `ENOLCK`.
const ENOLCK: i32 = 37;

fn full(context: String) -> Error {
    Error { kind: ErrorKind::TooMany, errno: ENOLCK, context }
}

/// What a thread that waits for one lock has done so far.
#[derive(Default)]
pub struct LockWait {
    begun: Option<Instant>,
    told: Option<Instant>,
    dead_since: Option<Instant>,
    far: Duration,
    /// Which of this process's waits for locks of other machines' files; 0: none yet.
    number: u32,
}

impl LockWait {
    /// Whether the server is to be told.
    fn is_due(&mut self) -> bool {
        let (since, after) = match self.told {
            Some(told) => (told, REFRESH),
            None => (*self.begun.get_or_insert_with(Instant::now), FIRST),
        };
        since.elapsed() >= after
    }

    /// Which of them it is.
    fn number(&mut self) -> u32 {
        if self.number == 0 {
            self.number = FAR_WAITS.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        }
        self.number
    }

    /// How long to sleep before another machine is asked again.
    fn far(&mut self) -> Duration {
        self.far = (self.far * 2).clamp(FAR_FIRST, FAR_MOST);
        self.far
    }
}

/// A place among those who wait for a lock, to be asked for again after [`LockTurn::wait`].
pub struct LockTurn<'c> {
    head: &'c AtomicU64,
    seen: u32,
    limit: Duration,
}

impl LockTurn<'_> {
    /// It lasts so long at most.
    #[must_use]
    pub fn no_longer_than(self, most: Option<Duration>) -> Self {
        LockTurn { limit: most.map_or(self.limit, |most| most.min(self.limit)), ..self }
    }

    /// Sleeps until something was released, or for a moment. Uses nothing of the client, so that a
    /// signal handler may. False: one ran, or has since the waiting began, as `handled` says, that
    /// does not have calls restarted (`SA_RESTART`).
    #[must_use]
    pub fn wait(self, handled: impl Fn() -> bool) -> bool {
        let slept = !handled() && futex::wait_low(self.head, self.seen, Some(self.limit));
        slept && !handled() || !futex::handlers_interrupt()
    }
}

impl Connection {
    /// Takes a lock, changes one, or gives it back; or gives the turn to wait for, if the caller
    /// does.
    pub(crate) fn lock(
        &self,
        ask: LockAsk,
        mut wait: Option<&mut LockWait>,
    ) -> Result<Option<LockTurn<'_>>> {
        let own = self.own()?;
        let lock = own.lock_of(&ask);
        if lock.kind != LockKind::Unlock {
            own.check_any()?;
            self.allows(0, || Ok(()))?;
        }
        for _ in 0..DEAD_MAX {
            let Some((by, seen)) = self.set_lock(own, &lock)? else {
                if wait.is_some_and(|wait| wait.told.is_some()) {
                    self.stop_waiting();
                }
                return Ok(None);
            };
            self.give_up_converted(own, &lock)?;
            let Some(wait) = &mut wait else {
                self.is_blocked(own, &by, ask)?;
                continue;
            };
            let limit = self.tell_if_due(ask, wait)?;
            // Whatever was asked meanwhile: a head that changed since cannot be marked.
            if let Some(seen) = self.memory.locks().wait(ask.ino, seen) {
                return Ok(Some(LockTurn { head: self.memory.locks().head(ask.ino), seen, limit }));
            }
        }
        Err(Error::new(ErrorKind::WouldBlock, format!("file {}", ask.ino)))
    }

    /// The same for a file whose bytes are on another machine, where it is asked for, again and
    /// again by who waits.
    pub(crate) fn lock_far(
        &self,
        ask: LockAsk,
        wait: Option<&mut LockWait>,
    ) -> Result<Option<LockTurn<'_>>> {
        let mut wait = wait;
        let number = wait.as_mut().map_or(0, |wait| wait.number());
        match (self.call(Request::Far(FarFile::Lock { ask, wait: number })), wait) {
            (Ok(Reply::Done), _) => Ok(None),
            (Ok(_), _) => Err(unexpected()),
            (Err(error), Some(wait)) if error.kind == ErrorKind::WouldBlock => {
                let (head, _) = self.memory.locks().locks(ask.ino);
                let (head, seen) = (self.memory.locks().head(ask.ino), head.low());
                Ok(Some(LockTurn { head, seen, limit: wait.far() }))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// What would be in the way of such a lock.
    pub(crate) fn test_lock_far(&self, ask: LockAsk) -> Result<Option<HeldLock>> {
        match self.call(Request::Far(FarFile::TestLock(ask)))? {
            Reply::Held(held) => Ok(held),
            _ => Err(unexpected()),
        }
    }

    /// Does it if nothing is in the way; what is otherwise, and the head that says so.
    fn set_lock(&self, own: &Own, lock: &Lock) -> Result<Option<(Lock, Head)>> {
        let table = self.memory.locks();
        loop {
            match table.set(lock, &own.lock_blocks) {
                Ok(Outcome::Set { wakes }) => {
                    if wakes {
                        futex::wake_low(table.head(lock.ino));
                    }
                    return Ok(None);
                }
                Ok(Outcome::Blocked { by, seen }) => return Ok(Some((by, seen))),
                Err(Full::Blocks) => self.ask_blocks(&own.lock_blocks)?,
                Err(Full::List) => return Err(full(format!("file {}", lock.ino))),
            }
        }
    }

    fn ask_blocks(&self, pool: &Pool) -> Result<()> {
        match self.call(Request::LockBlocks)? {
            Reply::LockBlocks(group) if pool.add(group) => Ok(()),
            Reply::LockBlocks(_) => Err(full("locks of one process".into())),
            _ => Err(unexpected()),
        }
    }

    /// flock(2): who converts a lock gives the old one up first.
    fn give_up_converted(&self, own: &Own, lock: &Lock) -> Result<()> {
        if !matches!(lock.owner, LockOwner::Flock(..)) {
            return Ok(());
        }
        let (_, locks) = self.memory.locks().locks(lock.ino);
        match lock_set::held(&locks, lock.ino, lock.owner) {
            Some(held) if held != lock.kind => {
                self.set_lock(own, &Lock { kind: LockKind::Unlock, ..*lock }).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// An error if the holder of `by` is still there; else it is gone now.
    fn is_blocked(&self, own: &Own, by: &Lock, ask: LockAsk) -> Result<()> {
        if self.is_held(own, by) {
            return Err(Error::new(ErrorKind::WouldBlock, format!("file {}", ask.ino)));
        }
        self.ask_blocked(ask, 0)
    }

    /// Whether the holder of a lock is seen to be there; what cannot be seen the server knows.
    fn is_held(&self, own: &Own, by: &Lock) -> bool {
        match by.owner {
            LockOwner::Process { pid, .. } => {
                own.knows_pids() && Process::open(pid).is_ok_and(|process| process.is_alive())
            }
            LockOwner::Description(at, nonce) | LockOwner::Flock(at, nonce) => {
                let words = self.memory.description(at.0);
                let shared = words.is_some_and(|words| words.is_shared(nonce));
                shared && descriptor::is_held(self.instance(), at).unwrap_or(false)
            }
            // Its machine says when it is not.
            LockOwner::Far(_) => true,
        }
    }

    pub(crate) fn ask_blocked(&self, ask: LockAsk, waiter: u32) -> Result<()> {
        match self.call(Request::LockBlocked { ask, waiter })? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Tells the server, if it is time to, that this thread waits. How long to sleep then.
    fn tell_if_due(&self, ask: LockAsk, wait: &mut LockWait) -> Result<Duration> {
        if !wait.is_due() {
            return Ok(if wait.told.is_some() { REFRESH } else { FIRST });
        }
        // Without a server nobody is found dead, but locks are given back all the same.
        self.check_server(&mut wait.dead_since)?;
        if wait.dead_since.is_some() {
            return Ok(RESTART);
        }
        let mut asked = self.ask_blocked(ask, process::thread());
        if matches!(&asked, Err(error) if error.kind == ErrorKind::Deadlock) {
            // Another may have got its lock a moment ago, and its word of that been on the way.
            asked = self.ask_blocked(ask, process::thread());
        }
        if matches!(&asked, Err(error) if error.kind == ErrorKind::Deadlock) {
            self.stop_waiting();
        }
        match asked {
            Err(error) if error.kind == ErrorKind::WouldBlock => {
                wait.told = Some(Instant::now());
                Ok(REFRESH)
            }
            done => done.map(|()| FIRST),
        }
    }

    /// The thread does not wait any more. Unheard, it is forgotten soon.
    pub(crate) fn stop_waiting(&self) {
        let _ = self.tell(Request::StopWaiting(process::thread()));
    }

    /// What would be in the way of a lock.
    pub(crate) fn lock_test(&self, ask: LockAsk) -> Result<Option<HeldLock>> {
        let own = self.own()?;
        let lock = own.lock_of(&ask);
        for _ in 0..DEAD_MAX {
            let (_, locks) = self.memory.locks().locks(ask.ino);
            let Some(by) = lock_set::conflicts(&locks, &lock).next() else { return Ok(None) };
            match self.is_blocked(own, by, ask) {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::WouldBlock => return Ok(Some((*by).into())),
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::WouldBlock, format!("file {}", ask.ino)))
    }

    /// Gives back all that this process holds of a file. Costs next to nothing if nobody holds
    /// anything.
    pub(crate) fn unlock_own(&self, ino: Ino) -> Result<()> {
        if !self.may_lock(ino) {
            return Ok(());
        }
        let own = self.own()?;
        let (owner, range, kind) = (own.owner, LockRange::ALL, LockKind::Unlock);
        self.set_lock(own, &Lock { ino, owner, range, kind }).map(drop)
    }

    /// Whether this process may hold any lock of a file.
    pub(crate) fn may_lock(&self, ino: Ino) -> bool {
        let table = self.memory.locks();
        !table.is_free(ino) && table.locks(ino).1.iter().any(|lock| self.may_be_own(ino, lock))
    }

    /// Whether a lock may be one of this process; without asking for a session, which a child that
    /// only closes what it inherited does not need.
    fn may_be_own(&self, ino: Ino, lock: &Lock) -> bool {
        let LockOwner::Process { pid, .. } = lock.owner else { return false };
        // What the server calls this process is not known before the first session.
        let known = self.last_session().is_some_and(Own::knows_pids);
        lock.ino == ino && (!known || pid == std::process::id())
    }
}

impl Own {
    fn lock_of(&self, ask: &LockAsk) -> Lock {
        let owner = match ask.locker {
            Locker::Process => self.owner,
            Locker::Description => LockOwner::Description(ask.description, ask.nonce),
            Locker::Flock => LockOwner::Flock(ask.description, ask.nonce),
        };
        Lock { ino: ask.ino, owner, range: ask.range, kind: ask.kind }
    }
}
