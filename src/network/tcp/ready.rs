//! Which sockets have something to read or room to write: an epoll set (level-triggered).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// A socket of the set.
pub(super) type Token = u64;

/// Sockets that are looked at in one go.
const AT_ONCE: usize = 128;
/// The longest wait; then one looks at the clock again.
const LONGEST: Duration = Duration::from_secs(3600);

/// The set.
pub(super) struct Ready {
    set: Arc<OwnedFd>,
}

/// Waits for what comes to an endpoint, without having it: others may say something meanwhile.
#[derive(Clone)]
pub struct Watch(Arc<OwnedFd>);

/// What a [`Watch`] has found: which sockets the endpoint need not look for any more.
#[derive(Default)]
pub struct Found(pub(super) Vec<Token>);

impl Watch {
    /// Until something has come, there is room for what waits, or somebody has woken it; not for
    /// longer than this, and maybe not so long.
    pub fn wait(&self, time: Duration) -> Found {
        Found(wait(&self.0, time))
    }
}

fn spec(time: Duration) -> Timespec {
    let time = time.min(LONGEST);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

fn wait(set: &OwnedFd, time: Duration) -> Vec<Token> {
    let mut found = [const { MaybeUninit::<Event>::uninit() }; AT_ONCE];
    match epoll::wait(set, &mut found, Some(&spec(time))) {
        Ok((found, _)) => found.iter().map(|event| event.data.u64()).collect(),
        Err(Errno::INTR) => Vec::new(),
        Err(error) => panic!("an epoll set of our own: {error}"),
    }
}

fn interest(writes: bool) -> EventFlags {
    if writes { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}

impl Ready {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Ready { set: Arc::new(epoll::create(CreateFlags::CLOEXEC)?) })
    }

    pub(super) fn watch(&self) -> Watch {
        Watch(self.set.clone())
    }

    pub(super) fn add(&self, of: impl AsFd, token: Token, writes: bool) -> std::io::Result<()> {
        Ok(epoll::add(&self.set, of, EventData::new_u64(token), interest(writes))?)
    }

    /// From now on it counts as ready when it can be written, too, or no more.
    pub(super) fn set(&self, of: impl AsFd, token: Token, writes: bool) -> std::io::Result<()> {
        Ok(epoll::modify(&self.set, of, EventData::new_u64(token), interest(writes))?)
    }

    /// It is not looked at until [`Ready::set`].
    pub(super) fn pause(&self, of: impl AsFd, token: Token) -> std::io::Result<()> {
        Ok(epoll::modify(&self.set, of, EventData::new_u64(token), EventFlags::empty())?)
    }

    /// Waits until one is ready, or for so long.
    pub(super) fn wait(&self, time: Duration) -> Vec<Token> {
        wait(&self.set, time)
    }
}
