//! Locks on bytes of files, of processes and of descriptions, and `flock`: taken in shared memory,
//! as clients do, and asked for where they are in the way. Who has ended, or closed what he had
//! them through, has none any more.

use std::rc::Rc;

use terral_format::ErrorKind;
use terral_format::ids::DescriptionSlot;
use terral_format::local::lock_table::Outcome;
use terral_format::wire::locks::{Lock, LockAsk, LockKind, LockOwner, LockRange, Locker};
use terral_format::wire::message::{Reply, Request};

use super::super::Sim;
use super::super::client::Opened;
use super::super::model::File;
use super::Schedule;

/// Bytes that are locked.
const BYTES: u64 = 8;

/// A lock that is held, byte by byte.
pub(super) struct Held {
    file: File,
    client: usize,
    owner: LockOwner,
    byte: u64,
    kind: LockKind,
}

impl Sim {
    pub fn locker(&self, client: usize, open: &Opened, locker: Locker) -> LockOwner {
        let pid = self.clients[client].pid;
        match locker {
            Locker::Process => LockOwner::process(pid, pid.into()),
            Locker::Description => LockOwner::Description(open.description, open.nonce),
            Locker::Flock => LockOwner::Flock(open.description, open.nonce),
        }
    }

    /// Takes a lock, changes one, or gives it back. False: another is in the way.
    pub fn lock(&mut self, client: usize, open: &Opened, (locker, lock): (Locker, Lock)) -> bool {
        for _ in 0..100 {
            let memory = self.memory.clone();
            match memory.locks().set(&lock, &self.clients[client].blocks) {
                Ok(Outcome::Set { .. }) => return true,
                Ok(Outcome::Blocked { .. }) => {
                    let (description, nonce) = (open.description, open.nonce);
                    let (ino, range, kind) = (lock.ino, lock.range, lock.kind);
                    let ask = LockAsk { ino, description, nonce, locker, range, kind };
                    match self.ask(client, Request::LockBlocked { ask, waiter: 0 }) {
                        Ok(_) => {}
                        Err(error) if error.kind == ErrorKind::WouldBlock => return false,
                        Err(error) => panic!("{error:?}"),
                    }
                }
                Err(_) => match self.ask(client, Request::LockBlocks).expect("there are some") {
                    Reply::LockBlocks(group) => assert!(self.clients[client].blocks.add(group)),
                    other => panic!("{other:?}"),
                },
            }
        }
        panic!("{lock:?} is free and held for ever")
    }
}

impl Schedule {
    pub(super) fn lock(&mut self, at: usize) {
        let which = self.chance(self.players[at].open.len().max(1) as u64) as usize;
        let Some(handle) = self.players[at].open.get(which) else { return };
        let (open, file, client) = (handle.opened, handle.file.clone(), self.players[at].client);
        let lockers = [Locker::Process, Locker::Description, Locker::Flock];
        let locker = lockers[self.chance(3) as usize];
        let kinds = [LockKind::Unlock, LockKind::Shared, LockKind::Exclusive];
        let kind = kinds[self.chance(3) as usize];
        let (first, length) = (self.chance(BYTES), self.chance(BYTES));
        let range = match locker {
            Locker::Flock => LockRange::ALL,
            _ => LockRange { first, last: (first + length).min(BYTES - 1) },
        };
        let owner = self.sim.locker(client, &open, locker);
        let lock = Lock { ino: open.file.ino, owner, range, kind };
        let got = self.sim.lock(client, &open, (locker, lock));
        self.tell(|| format!("{at}: {lock:?}: {got}"));
        let last = range.last.min(BYTES - 1);
        let bytes = range.first..=last;
        let in_the_way = |held: &Held| {
            let strict = held.kind == LockKind::Exclusive || kind == LockKind::Exclusive;
            let same = Rc::ptr_eq(&held.file, &file) && bytes.contains(&held.byte);
            same && strict && held.owner.competes(owner) && kind != LockKind::Unlock
        };
        let blocked = self.locks.iter().any(in_the_way);
        assert_eq!(got, !blocked, "{lock:?}");
        if got {
            let its = |held: &Held| held.owner == owner && Rc::ptr_eq(&held.file, &file);
            self.locks.retain(|held| !(its(held) && bytes.contains(&held.byte)));
            let new = |byte| Held { file: file.clone(), client, owner, byte, kind };
            self.locks.extend(bytes.filter(|_| kind != LockKind::Unlock).map(new));
        }
    }

    /// What a program does when it closes a file: a process has no locks of it any more.
    pub(super) fn unlock_own(&mut self, at: usize, open: &Opened, file: &File) {
        if !self.weather.locks {
            return;
        }
        let client = self.players[at].client;
        let owner = self.sim.locker(client, open, Locker::Process);
        let (ino, range, kind) = (open.file.ino, LockRange::ALL, LockKind::Unlock);
        let lock = Lock { ino, owner, range, kind };
        assert!(self.sim.lock(client, open, (Locker::Process, lock)), "nothing is in its way");
        self.locks.retain(|held| !(held.owner == owner && Rc::ptr_eq(&held.file, file)));
    }

    /// A description has come to its end.
    pub(super) fn unlock_closed(&mut self, at: DescriptionSlot, nonce: u32) {
        let its = [LockOwner::Description(at, nonce), LockOwner::Flock(at, nonce)];
        self.locks.retain(|held| !its.contains(&held.owner));
    }

    /// A client has died.
    pub(super) fn unlock_ended(&mut self, client: usize) {
        self.locks.retain(|held| held.client != client);
    }
}
