//! The locking role: who waits for which lock, and what becomes of locks whose holders are no more.
//! Who holds what is in shared memory, where clients take and give back locks by themselves
//! (docs/decisions/2026-11-22-locks-in-shared-memory.md).
//!
//! Invariant: the words in shared memory are the only truth; what is here only makes waits end. Not
//! here: whether a holder is still there, which descriptions and sessions say.

use std::collections::BTreeSet;
use std::sync::Arc;

use terral_format::ids::{Ino, Member, SessionSlot};
use terral_format::local::lock_set;
use terral_format::local::lock_table::{Full, GROUPS_OF_ONE, Outcome, Pool};
use terral_format::wire::locks::{Lock, LockKind, LockOwner, LockRange, Waiting};
use terral_format::wire::message::Reply;
use terral_format::{Error, ErrorKind, Result};
use terral_store::memory::Memory;
use terral_transport::futex;

use crate::core::world::Tick;

pub mod circles;
pub mod fences;
pub mod releasing;
mod waits;

pub use waits::Waiter;

use circles::{Edge, Search};
use waits::Waits;

/// `ENOLCK`.
const ENOLCK: i32 = 37;

fn full() -> Error {
    Error { kind: ErrorKind::TooMany, errno: ENOLCK, context: "locks".into() }
}

/// Who has what is in the way of a lock.
fn holders(memory: &Memory, lock: &Lock) -> Vec<LockOwner> {
    let (_, locks) = memory.locks().locks(lock.ino);
    lock_set::conflicts(&locks, lock).map(|held| held.owner).collect()
}

/// The role's state.
pub struct Locks {
    memory: Arc<Memory>,
    waits: Waits,
    /// What the server itself writes lists into.
    blocks: Pool,
    /// For circles over several machines.
    pub search: Search,
    /// Who has ended, and was marked at a file of another machine.
    left: Vec<(Ino, LockOwner)>,
}

impl Locks {
    /// Nobody waits.
    pub fn new(memory: Arc<Memory>) -> Self {
        let (waits, search, blocks) = Default::default();
        Locks { memory, waits, blocks, search, left: Vec::new() }
    }

    /// Blocks for a session's lists of locks.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if all are in use, [`ErrorKind::NoSpace`] if memory is.
    pub fn blocks_for(&self, session: SessionSlot) -> Result<Reply> {
        if self.memory.locks().groups_of(session.0) >= GROUPS_OF_ONE {
            return Err(full());
        }
        self.give_blocks(Some(session)).map(Reply::LockBlocks)
    }

    /// Blocks of a session or of the server itself. Gives their group.
    fn give_blocks(&self, session: Option<SessionSlot>) -> Result<u32> {
        for group in self.memory.locks().unowned() {
            self.memory.prepare_lock_blocks(group)?;
            if !self.memory.locks().has_list(group) {
                self.memory.locks().give_group(group, session.map(|session| session.0));
                return Ok(group);
            }
        }
        Err(full())
    }

    /// The blocks of sessions that are no more are others'.
    pub fn reclaim_blocks(&self, lives: impl Fn(u16) -> bool) {
        self.memory.locks().reclaim(false, lives);
    }

    /// A lock that is in the way of this one.
    pub fn in_the_way(&self, lock: &Lock) -> Option<Lock> {
        let (_, locks) = self.memory.locks().locks(lock.ino);
        lock_set::conflicts(&locks, lock).next().copied()
    }

    /// Takes, changes or gives back a lock for somebody on another machine, or a mark of somebody
    /// here who may have one there.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another one is in the way; `ENOLCK` if there is no place.
    pub fn set(&mut self, lock: &Lock) -> Result<()> {
        let memory = self.memory.clone();
        let table = memory.locks();
        match self.with_blocks(|pool| table.set(lock, pool)) {
            Some(Outcome::Set { wakes }) => {
                if wakes {
                    futex::wake_low(table.head(lock.ino));
                }
                Ok(())
            }
            Some(Outcome::Blocked { .. }) => {
                Err(Error::new(ErrorKind::WouldBlock, format!("file {}", lock.ino)))
            }
            None => Err(full()),
        }
    }

    /// What an owner has on the whole of a file.
    pub fn has_whole(&self, ino: Ino, owner: LockOwner) -> Option<LockKind> {
        let (_, locks) = self.memory.locks().locks(ino);
        let its = |held: &&Lock| (held.ino, held.owner) == (ino, owner);
        let mut whole = locks.iter().filter(its).filter(|held| held.range == LockRange::ALL);
        whole.next().map(|held| held.kind)
    }

    /// Whether somebody waits for a lock of a file.
    pub fn is_wanted(&self, ino: Ino, now: Tick) -> bool {
        self.waits.is_wanted(ino, now)
    }

    /// Who has locks of a file.
    pub fn owners(&self, ino: Ino) -> BTreeSet<LockOwner> {
        if self.memory.locks().is_free(ino) {
            return BTreeSet::new();
        }
        let (_, locks) = self.memory.locks().locks(ino);
        locks.into_iter().filter(|lock| lock.ino == ino).map(|lock| lock.owner).collect()
    }

    /// Who may have locks of a file on another machine has ended: that is to be said there.
    pub fn has_gone(&mut self, ino: Ino, owner: LockOwner) {
        self.left.push((ino, owner));
    }

    /// Whether there is such.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// All of them. Given once.
    pub fn take_left(&mut self) -> Vec<(Ino, LockOwner)> {
        std::mem::take(&mut self.left)
    }

    /// Somebody waits for `lock`, as of `now`, still or from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Deadlock`] if he would for ever; he does not then.
    pub fn wait(&mut self, waiter: Waiter, lock: Lock, now: Tick) -> Result<()> {
        let deadlock = || Error::new(ErrorKind::Deadlock, format!("file {}", lock.ino));
        if self.waits.is_doomed(waiter, &lock, now) {
            return Err(deadlock());
        }
        let memory = self.memory.clone();
        if self.waits.is_deadlock(&lock, now, |lock| holders(&memory, lock)) {
            self.waits.stop(waiter);
            return Err(deadlock());
        }
        self.waits.wait(waiter, lock, now);
        Ok(())
    }

    /// Somebody does not wait any more.
    pub fn stop_waiting(&mut self, waiter: Waiter) {
        self.waits.stop(waiter);
    }

    /// The processes that wait for locks of files of this server, which is `me`, and for whom.
    pub fn waiting(&self, me: Member, now: Tick) -> Vec<Waiting> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        self.waits.told(me, now, |lock| holders(&self.memory, lock))
    }

    /// This wait is one of a circle over several machines, and the one that is to end.
    pub fn doom(&mut self, edge: &Edge, now: Tick) {
        self.waits.doom(edge.home, (edge.waiter, edge.since_ns), now);
    }

    /// No thread of this session waits any more.
    pub fn ended(&mut self, session: SessionSlot) {
        self.waits.ended(session);
    }

    /// The files on which somebody has locks.
    pub fn files_of(&self, owner: LockOwner) -> BTreeSet<Ino> {
        self.memory.locks().files_of(owner)
    }

    /// Takes locks away from a file, and wakes those who wait for them.
    pub fn release(&mut self, ino: Ino, gone: impl Fn(&Lock) -> bool) {
        let memory = self.memory.clone();
        let table = memory.locks();
        if table.is_free(ino) {
            return;
        }
        if self.with_blocks(|pool| table.release(ino, pool, &gone)) == Some(true) {
            futex::wake_low(table.head(ino));
        }
    }

    /// Does something that needs blocks of the server's own.
    fn with_blocks<T>(
        &mut self,
        mut call: impl FnMut(&Pool) -> std::result::Result<T, Full>,
    ) -> Option<T> {
        loop {
            match call(&self.blocks) {
                Ok(done) => return Some(done),
                Err(Full::List) => return None,
                Err(Full::Blocks) => {}
            }
            // What cannot be taken away now is taken when somebody finds it in the way.
            let group = self.give_blocks(None).ok()?;
            if !self.blocks.add(group) {
                self.memory.locks().take_back(group);
                return None;
            }
        }
    }
}
