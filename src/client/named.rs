//! Named locks: a lock of the whole of a file that stands for the name, which its holder has on a
//! lease, with a token that files can be fenced with.
//!
//! Invariants: nobody is told that he has one before its home has given him a token for it; of one
//! process only one holder of a name is in the table of locks at a time, as that knows processes
//! only. A thread for each lock says that its holder is there: a process that is stopped does not.
//! Not here: what becomes of it then, and of writers with a lower token (the server).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::{LockKind, LockRange, Locker};
use terral_format::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::file::File;
use crate::locks::LockWait;
use crate::objects::{RESERVED, make_below};
use crate::{OpenHow, access};

mod beside;

use beside::{Name, Place};

/// The directory of the files that stand for names, in that which no listing shows.
const DIRECTORY: &[u8] = b".locks";
/// Everybody may have locks there.
const MODE_OF_ALL: u32 = 0o1777;
const MODE: u32 = 0o666;
/// Most bytes of a name.
const NAME_MAX: usize = 200;
/// The shortest and the longest lease.
const LEASES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// Who wants to hear that others wait hears of it within this.
const LOOKS: Duration = Duration::from_millis(100);
/// A lease is renewed so often while it lasts.
const RENEWALS: u32 = 3;

/// How a named lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHow {
    /// Others may have it so at the same time; nobody may have it alone.
    pub shared: bool,
    /// Give up waiting after this; `None`: never.
    pub timeout: Option<Duration>,
    /// Whoever is not heard of for so long, as he is stopped or cut off, loses it to who wants it:
    /// 0.1 s to an hour. That of a dead process is free at once.
    pub lease: Duration,
}

impl Default for LockHow {
    fn default() -> Self {
        LockHow { shared: false, timeout: None, lease: Duration::from_secs(30) }
    }
}

/// What a holder is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Somebody waits for the lock. Said once.
    Wanted,
    /// It is another's, or may be: what is fenced cannot be written any more.
    Lost,
}

type Told = Box<dyn Fn(News) + Send>;

/// What the thread that renews a lock knows.
#[derive(Default)]
struct Kept {
    ends: bool,
    told: Option<Told>,
}

/// What a lock is.
struct Held {
    file: File,
    how: LockHow,
    token: u64,
    process: u32,
    place: Place,
    lost: AtomicBool,
    /// When it was last asked whether it is ours, and it was.
    seen: Mutex<Instant>,
    kept: Mutex<Kept>,
    news: Condvar,
}

/// A named lock that this process has, until [`NamedLock::release`], or its drop, or its end.
pub struct NamedLock {
    held: Arc<Held>,
    keeper: Option<JoinHandle<()>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn lease_ms(how: LockHow) -> u32 {
    how.lease.as_millis() as u32
}

/// Where the file is that stands for a name.
fn path_of(name: &[u8]) -> Vec<u8> {
    [RESERVED, DIRECTORY, name].join(&b'/')
}

/// That file, made if there is none.
fn open(client: &Client, name: &[u8]) -> Result<File> {
    let (directory, path) = ([RESERVED, DIRECTORY].join(&b'/'), path_of(name));
    let rights = access::READ | access::WRITE;
    let how = OpenHow { access: rights as u8, create: true, mode: MODE, ..OpenHow::default() };
    match client.open(&path, how) {
        Err(error) if error.kind == ErrorKind::NotFound => {
            match make_below(client, &directory, MODE_OF_ALL) {
                Err(error) if error.kind != ErrorKind::Exists => Err(error),
                _ => client.open(&path, how),
            }
        }
        opened => opened,
    }
}

/// Has the lock in the table, or fails.
fn take(file: &File, kind: LockKind, until: Option<Instant>) -> Result<()> {
    let all = LockRange::ALL;
    // Who has it may be dead, or have been silent for too long.
    if !file.lock_if_free(kind)? {
        let mut waits = LockWait::default();
        while let Some(turn) = file.lock_or_queue(Locker::Process, all, kind, Some(&mut waits))? {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                file.stop_waiting();
                return Err(Error::new(ErrorKind::WouldBlock, "named lock"));
            }
            // A signal handler is no reason to give up.
            let _ = turn.no_longer_than(left).wait(|| false);
        }
    }
    Ok(())
}

impl NamedLock {
    /// Takes the lock of this name, of the whole partition: 1 to 200 bytes, no slash, no dot in
    /// front.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if others have it for longer than is to be waited,
    /// [`ErrorKind::Deadlock`] if its holder waits for this process, [`ErrorKind::TooMany`]
    /// (`ENOLCK`) if there is no place for it, [`ErrorKind::Invalid`] for what is no name.
    pub fn acquire(client: &Client, name: &[u8], how: LockHow) -> Result<Self> {
        let plain = !name.starts_with(b".") && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if name.is_empty() || name.len() > NAME_MAX || !plain {
            return Err(invalid("name of a lock: 1 to 200 bytes, no slash, no dot in front"));
        }
        if how.lease < LEASES.0 || how.lease > LEASES.1 {
            return Err(invalid("lease of a lock: 0.1 s to an hour"));
        }
        let until = how.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let named = Name { instance: client.instance_id(), name: name.into() };
        let place = Place::take(named, how.shared, until)?;
        let file = open(client, name)?;
        match Self::hold(&file, how, until) {
            Ok((seen, token)) => Ok(NamedLock::new(file, how, (seen, token), place)),
            Err(error) => {
                file.close();
                Err(error)
            }
        }
    }

    fn hold(file: &File, how: LockHow, until: Option<Instant>) -> Result<(Instant, u64)> {
        let kind = if how.shared { LockKind::Shared } else { LockKind::Exclusive };
        loop {
            take(file, kind, until)?;
            let now = Instant::now();
            match file.say(Fencing::Take { lease_ms: lease_ms(how) }) {
                // It was lost before it was had: this process was stopped in between.
                Err(error) if error.kind == ErrorKind::Stale => {}
                Err(error) => {
                    let _ = give_back(file);
                    return Err(error);
                }
                Ok(fenced) => return Ok((now, fenced.token)),
            }
        }
    }

    fn new(file: File, how: LockHow, (seen, token): (Instant, u64), place: Place) -> Self {
        let held = Held {
            file,
            how,
            token,
            process: std::process::id(),
            place,
            lost: AtomicBool::new(false),
            seen: Mutex::new(seen),
            kept: Mutex::default(),
            news: Condvar::new(),
        };
        let held = Arc::new(held);
        let keeps = held.clone();
        // Without the thread it is had as long as its first lease lasts.
        let keeper = std::thread::Builder::new().name("terral-lock".into());
        let keeper = keeper.spawn(move || keeps.keep()).ok();
        NamedLock { held, keeper }
    }

    /// The file that stands for it.
    pub(crate) fn path(&self) -> Vec<u8> {
        path_of(&self.held.place.name().name)
    }

    /// Greater than that of all who had it alone before; of a shared one, that of the last of them.
    pub fn token(&self) -> u64 {
        self.held.token
    }

    /// Whether it is this process's, as far as is known without asking: by the lease.
    pub fn is_held(&self) -> bool {
        !self.held.is_lost() && locked(&self.held.seen).elapsed() < self.held.how.lease
    }

    /// Asks whether somebody waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if it is this process's no more.
    pub fn is_wanted(&self) -> Result<bool> {
        self.held.renew().map(|fenced| fenced.wanted)
    }

    /// Has a function called once somebody waits for the lock, and once it is lost, in a thread of
    /// its own; in place of one that was said before.
    pub fn tell(&self, told: impl Fn(News) + Send + 'static) {
        locked(&self.held.kept).told = Some(Box::new(told));
        self.held.news.notify_all();
    }

    /// A file that is open for writing is written with this lock's token from now on, and with no
    /// lower one: see [`File::fence`].
    ///
    /// # Errors
    /// Those of [`File::fence`]; [`ErrorKind::Stale`] if the lock is this process's no more, and
    /// [`ErrorKind::Invalid`] if it is shared.
    pub fn fence(&self, file: &File) -> Result<()> {
        if self.held.how.shared {
            return Err(invalid("only who has a lock alone fences a file with it"));
        }
        self.held.renew()?;
        file.fence(self.held.token)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if it was this process's no more, so that others may have had it
    /// meanwhile.
    pub fn release(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let held = &self.held;
        // A forked child has nothing of it.
        if held.process != std::process::id() {
            return Ok(());
        }
        locked(&held.kept).ends = true;
        held.news.notify_all();
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        if keeper.thread().id() != std::thread::current().id() {
            let _ = keeper.join();
        }
        let was_ours = held.renew().map(drop);
        if !held.is_lost() && held.place.is_last() {
            let _ = give_back(&held.file);
        }
        held.file.close();
        held.place.leave();
        was_ours
    }
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn give_back(file: &File) -> Result<()> {
    file.lock(Locker::Process, LockRange::ALL, LockKind::Unlock, false)
}

impl Held {
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Says that its holder is there.
    fn renew(&self) -> Result<Fenced> {
        let stale = || Error::new(ErrorKind::Stale, "named lock");
        if self.is_lost() {
            return Err(stale());
        }
        let (now, lease_ms) = (Instant::now(), lease_ms(self.how));
        let said = self.file.say(Fencing::Renew { token: self.token, lease_ms });
        match &said {
            Ok(_) => *locked(&self.seen) = now,
            Err(error) if error.kind == ErrorKind::Stale => self.lose(),
            Err(_) => {}
        }
        said
    }

    /// It is another's. Another of this process may want it, too: the table knows processes only.
    fn lose(&self) {
        if !self.lost.swap(true, Ordering::SeqCst) {
            self.place.leave();
        }
    }

    /// Tells who wants to hear of it; he may give the lock back meanwhile. False: nobody does.
    fn told(&self, news: News) -> bool {
        let told = locked(&self.kept).told.take();
        let Some(told) = told else { return false };
        told(news);
        locked(&self.kept).told.get_or_insert(told);
        true
    }

    /// Says so again and again, until it is given back or lost.
    fn keep(&self) {
        let (mut said, mut kept) = (false, locked(&self.kept));
        let mut due = Instant::now() + self.how.lease / RENEWALS;
        while !kept.ends {
            if Instant::now() >= due || (kept.told.is_some() && !said) {
                drop(kept);
                let wanted = self.renew().is_ok_and(|fenced| fenced.wanted);
                due = Instant::now() + self.how.lease / RENEWALS;
                let news = if self.is_lost() { Some(News::Lost) } else { None };
                let news = news.or((wanted && !said).then_some(News::Wanted));
                let told = news.is_some_and(|news| self.told(news));
                said |= told;
                if self.is_lost() {
                    return;
                }
                kept = locked(&self.kept);
            }
            let looks = if kept.told.is_some() && !said { LOOKS } else { self.how.lease };
            let rest = due.saturating_duration_since(Instant::now()).min(looks);
            let waited = self.news.wait_timeout(kept, rest);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
