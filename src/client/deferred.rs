//! Changes that need not wait for the server: small files made, closed and removed, attributes of
//! open files. See `terral_format::deferred` for how they are ordered with all others. What cannot
//! be deferred now is asked for, and nobody sees a difference.

use std::sync::atomic::Ordering;

use terral_format::deferred::{CHANGE_BYTES, Claim, Key};
use terral_format::geometry::NAME_MAX;
use terral_format::ids::{DescriptionSlot, Ino};
use terral_format::message::{Change, Deferred, FileRef, Kind, OpenHow, Reply, Request, Spare};
use terral_format::names::{Inode, Lookup, flag, hash, index_of};
use terral_format::tables::access;
use terral_format::{Result, frame};
use terral_transport::requests;

use crate::file::now_ns;
use crate::in_hand::SPARES;
use crate::names::Known;
use crate::session::{Connection, Own};

/// After so many deferred changes the server shall look soon: there is room for a thousand.
const MANY: u64 = 64;
/// Who has asked so often for what could be deferred gets the right to.
const ASKED: u32 = 2;
/// Sticky directories (mode 01000) need a look at who owns what.
const STICKY: u16 = 0o1000;
/// What a directory must let who makes or removes a name in it: write and search.
const CHANGE: u32 = 3;

/// A claim, and the words it is of.
struct Held<'c> {
    connection: &'c Connection,
    claim: Claim,
    /// The session's claims before this one.
    count: u64,
}

impl Held<'_> {
    /// Whether the gate is open; looked at after the claim.
    fn is_open(&self) -> bool {
        let superblock = self.connection.memory.superblock();
        superblock.gate.load(Ordering::SeqCst) == 0
            && superblock.server_pid.load(Ordering::SeqCst) != 0
    }

    fn withdraw(self) {
        self.connection.memory.deferred().withdraw(self.claim);
    }

    fn commit(self, change: &Deferred<'_>) -> bool {
        let mut buffer = [0; CHANGE_BYTES];
        let Ok(bytes) = frame::encode_into(change, &mut buffer) else {
            self.withdraw();
            return false;
        };
        let done = self.connection.memory.deferred().commit(self.claim, bytes);
        if done {
            let many = self.count.is_multiple_of(MANY);
            requests::ring_deferred(self.connection.memory.bell(), many);
        }
        done
    }
}

impl Connection {
    fn claim(&self, key: Key, alone: bool) -> Option<Held<'_>> {
        let own = self.own().ok()?;
        let count = own.in_hand.claims.fetch_add(1, Ordering::Relaxed);
        let claim = self.memory.deferred().claim(key, own.index, count, alone)?;
        Some(Held { connection: self, claim, count })
    }

    /// Whether this session may defer changes; who asks often enough gets the right to.
    fn may_defer(&self, kernel: bool) -> bool {
        let Ok(own) = self.own() else { return false };
        let hand = &own.in_hand;
        if hand.may_defer.load(Ordering::Acquire) {
            return true;
        }
        // Another thread may be just asking: what is deferred before the answer is dropped.
        hand.asked.fetch_add(1, Ordering::Relaxed) >= ASKED
            && self.fetch(own, 0, kernel).is_ok()
            && hand.may_defer.load(Ordering::Acquire)
    }

    /// Asks for files in hand.
    fn fetch(&self, own: &Own, count: u32, kernel: bool) -> Result<()> {
        let hand = &own.in_hand;
        if hand.asking.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        let reply = self.call(Request::Spares { count, kernel });
        if let Ok(Reply::Spares(spares)) = &reply {
            spares.iter().for_each(|spare| hand.put(spare));
            hand.may_defer.store(true, Ordering::Release);
        }
        hand.asking.store(false, Ordering::Release);
        reply.map(drop)
    }

    fn spare(&self, kernel: bool) -> Option<Spare> {
        let own = self.own().ok()?;
        if !own.in_hand.are(kernel) {
            return None;
        }
        if let Some(spare) = own.in_hand.take() {
            return Some(spare);
        }
        let count = own.in_hand.next.load(Ordering::Relaxed);
        own.in_hand.next.store((count * 2).min(SPARES as u32), Ordering::Relaxed);
        self.fetch(own, count, kernel).ok()?;
        own.in_hand.take()
    }

    /// The directory and name of `path`, if this user may change it and it has no names that only
    /// the backing knows.
    fn place<'p>(&self, path: &'p [u8]) -> Option<(Inode, &'p [u8])> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let Known::Here(directory) = self.memory.walk(above) else { return None };
        let person = &self.memory.person;
        let may = person.may(&directory.attributes(), CHANGE);
        let plain = directory.kind == Kind::Directory
            && (person.is_root() || directory.mode & STICKY == 0)
            && !directory.is(flag::OVERLAY);
        let named = !name.is_empty() && name.len() <= NAME_MAX;
        (may && plain && named).then_some((directory, name))
    }

    /// Whether `directory` is still one, and what has this name in it.
    fn look_again(&self, directory: Ino, name: &[u8]) -> Option<Lookup> {
        self.memory.look(|table| {
            let still = table.find(directory)?;
            (still.kind == Kind::Directory).then(|| table.lookup(directory, name))
        })
    }

    /// Creates a file of which nothing is known, for writing. `None`: ask.
    pub(crate) fn create_deferred(&self, path: &[u8], how: OpenHow) -> Option<Spare> {
        let kernel = u64::from(how.access) & access::KERNEL != 0;
        let plain = how.create && !how.directory && !how.unnamed;
        if !plain || u64::from(how.access) & access::WRITE == 0 {
            return None;
        }
        let (directory, name) = self.place(path)?;
        let held = self.claim(Key::name(hash(index_of(directory.ino), name)), true)?;
        let missing = matches!(self.look_again(directory.ino, name), Some(Lookup::Missing));
        let may = missing && held.is_open() && self.may_defer(kernel);
        let Some(spare) = may.then(|| self.spare(kernel)).flatten() else {
            held.withdraw();
            return None;
        };
        let time_ns = now_ns();
        let header = self.memory.header(spare.file.slot)?;
        header.modified_ns.store(time_ns, Ordering::Relaxed);
        header.accessed_ns.store(time_ns, Ordering::Relaxed);
        let words = self.memory.description(spare.description.0)?;
        words.access.store(how.access.into(), Ordering::Relaxed);
        let (ino, parent, mode) = (spare.file.ino, directory.ino, how.mode);
        held.commit(&Deferred::Create { ino, parent, name, mode, time_ns }).then_some(spare)
    }

    /// Removes a file's name. False: ask.
    pub(crate) fn unlink_deferred(&self, path: &[u8]) -> bool {
        let Some((directory, name)) = self.place(path) else { return false };
        if !self.may_defer(true) {
            return false;
        }
        let key = Key::name(hash(index_of(directory.ino), name));
        let Some(held) = self.claim(key, true) else { return false };
        let ino = match self.look_again(directory.ino, name) {
            Some(Lookup::Found(inode)) if self.is_plain(&inode) && held.is_open() => inode.ino,
            _ => {
                held.withdraw();
                return false;
            }
        };
        let (parent, time_ns) = (directory.ino, now_ns());
        held.commit(&Deferred::Unlink { parent, name, ino, time_ns })
    }

    /// A file whose only name can go without anything being brought from the backing first.
    fn is_plain(&self, inode: &Inode) -> bool {
        let alone = inode.kind == Kind::File && inode.links == 1 && !inode.is(flag::ALIAS);
        let record = inode.slot.and_then(|slot| self.memory.record(slot));
        let brought = record.is_none_or(|record| record.backed_bytes.load(Ordering::SeqCst) == 0);
        alone && brought
    }

    /// Changes attributes of an open file. False: ask.
    pub(crate) fn change_deferred(&self, file: FileRef, change: Change) -> bool {
        let Some(inode) = self.memory.look(|table| table.find(file.ino)) else { return false };
        let person = &self.memory.person;
        let gives_away = change.uid.is_some() || change.gid.is_some();
        let own = person.owns(&inode.attributes()) && (person.is_root() || !gives_away);
        if inode.kind != Kind::File || !own || !self.may_defer(true) {
            return false;
        }
        let Some(header) = self.memory.header(file.slot) else { return false };
        let Some(held) = self.claim(Key::attributes(index_of(file.ino)), false) else {
            return false;
        };
        if !held.is_open() {
            held.withdraw();
            return false;
        }
        let (ino, time_ns) = (file.ino, now_ns());
        let done = held.commit(&Deferred::Change { ino, change, time_ns });
        if done {
            // Not later: what is written next has a time of its own.
            if let Some(time) = change.modified_ns {
                header.modified_ns.store(time, Ordering::SeqCst);
            }
            if let Some(time) = change.accessed_ns {
                header.accessed_ns.store(time, Ordering::SeqCst);
            }
        }
        done
    }

    /// Says that a descriptor was closed. False: tell.
    pub(crate) fn close_deferred(&self, description: DescriptionSlot, nonce: u32) -> bool {
        let Some(held) = self.claim(Key::description(description.0), false) else { return false };
        if !held.is_open() {
            held.withdraw();
            return false;
        }
        held.commit(&Deferred::Close { description, nonce })
    }
}
