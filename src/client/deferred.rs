//! Changes that need not wait for the server: files opened and closed, attributes of open files;
//! names are `deferred_names`'. See `terral_format::local::deferred` for how they are ordered with
//! all others. What cannot be deferred now is asked for, and nobody sees a difference.

use std::sync::atomic::Ordering;

use terral_format::ids::{DescriptionSlot, FileSlot, Ino};
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::clock;
use terral_format::local::deferred::{CHANGE_BYTES, Claim, Key, Recallable};
use terral_format::local::lease::Until;
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::local::size::SizeWord;
use terral_format::local::tables::{FileHeader, FileRecord, WITHOUT_ASKING, access};
use terral_format::wire::capability::Operations;
use terral_format::wire::message::{Change, FileRef, Kind, OpenFile, OpenHow, Reply, Request};
use terral_format::{Result, frame};
use terral_transport::permission::acting;
use terral_transport::requests::{self, Begun};

use crate::borrowed::is_over;
use crate::in_hand::{PREALLOCATED, put_back, take_one};
use crate::pending::Known;
use crate::session::{Connection, Own};

/// After so many deferred changes the server shall look soon: there is room for a thousand.
const MANY: u64 = 64;
/// Who has asked so often for what could be deferred gets the right to.
const ASKED: u32 = 2;
/// Bits of a mode: who reads, and who writes.
const READ: u32 = 4;
const WRITE: u32 = 2;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// A claim, and the words it is of.
pub(crate) struct Held<'c> {
    connection: &'c Connection,
    own: &'c Own,
    authority: u32,
    pub(crate) claim: Claim,
    /// The session's claims before this one.
    count: u64,
    /// The server shall look soon.
    pub(crate) soon: bool,
    /// What the change is about, and until when: it may be borrowed.
    lent: [(Ino, Until); 2],
}

/// What one must be allowed to have files in hand.
const IN_HAND: Operations = Operations::CREATE.and(Operations::REMOVE).and(Operations::WRITE);

/// The bits of a session's operations by which it may defer what needs these. Whoever knows the
/// nonce may close, whatever else has run out.
fn without_asking(needs: Operations) -> u64 {
    if needs == Operations(0) { 0 } else { u64::from(needs.0) | WITHOUT_ASKING }
}

impl Held<'_> {
    /// Names in these, or their attributes, are what the change is about. To be said before a look
    /// at what speaks against it. They are marked as borrowed now, after the claim: a server that
    /// marks them later finds the claim.
    pub(crate) fn uses(&mut self, inodes: [&Inode; 2]) {
        let memory = &self.connection.memory;
        self.lent = inodes.map(|inode| (inode.ino, memory.until_now(inode.ino)));
    }

    /// Whether what was committed counts: what was committed too late, the server knows.
    fn counts(&self) -> Result<bool> {
        let late = self.lent.iter().filter(|(_, until)| is_over(*until));
        for (ino, _) in late {
            if !self.connection.counts(FileRef { ino: *ino, slot: FileSlot::NONE }, None)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the gate is open, what the change is about is not another machine's, and a change
    /// that needs these operations still allowed. To be asked after the claim, and before a look at
    /// what speaks against the change: a server that changes names for somebody may be done, and
    /// have opened the gate, by the end of that look.
    pub(crate) fn is_open(&self, needs: Operations, time_ns: u64) -> bool {
        let superblock = self.connection.memory.superblock();
        superblock.gate.load(Ordering::SeqCst) == 0
            && superblock.server_pid.load(Ordering::SeqCst) != 0
            && self.lent.iter().all(|(_, until)| *until != Until::NEVER)
            && self.own.check(without_asking(needs)).is_ok()
            && self.own.lasts(clock::wall_ns(&superblock.clock_offset, time_ns))
    }

    pub(crate) fn withdraw(self) {
        self.connection.memory.deferred().withdraw(self.claim);
    }

    /// Commits it. `None`: ask, it is not there. An error: nobody knows whether it is.
    pub(crate) fn commit(self, change: Deferred<'_>) -> Option<Result<()>> {
        self.commit_with(None, change)
    }

    /// Commits an open that can be recalled; nobody is told but when there are many.
    fn commit_open(&self, change: Deferred<'_>) -> Option<Recallable> {
        let (mut buffer, memory) = ([0; CHANGE_BYTES], &self.connection.memory);
        let made = Made { authority: self.authority, change };
        let bytes = frame::encode_into(&made, &mut buffer).ok();
        let open = bytes.and_then(|bytes| memory.deferred().commit_open(self.claim, bytes));
        if open.is_none() {
            memory.deferred().withdraw(self.claim);
            return None;
        }
        let left = self.own.in_hand.opens.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.own.in_hand.most_opens.fetch_max(left, Ordering::Relaxed);
        if self.soon && left > most {
            requests::ring_deferred(memory.bell(), true);
        } else {
            requests::note_deferred(memory.bell());
        }
        open
    }

    /// Commits what is about two keys; `other` is claimed, too. Answers as [`Held::commit`].
    pub(crate) fn commit_with(
        self,
        other: Option<Claim>,
        change: Deferred<'_>,
    ) -> Option<Result<()>> {
        if !self.commit_unasked(other, change) {
            return None;
        }
        match self.counts() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// The same, however late it is. False: it could not be, and is withdrawn.
    fn commit_unasked(&self, other: Option<Claim>, change: Deferred<'_>) -> bool {
        let (mut buffer, table) = ([0; CHANGE_BYTES], self.connection.memory.deferred());
        let made = Made { authority: self.authority, change };
        let bytes = frame::encode_into(&made, &mut buffer).ok();
        let shaded = bytes.filter(|bytes| other.is_none_or(|other| table.shadow(other, bytes)));
        let done = shaded.is_some_and(|bytes| table.commit(self.claim, bytes));
        if done {
            other.into_iter().for_each(|other| table.cast(other));
            requests::ring_deferred(self.connection.memory.bell(), self.soon);
        } else {
            table.withdraw(self.claim);
            other.into_iter().for_each(|other| table.withdraw(other));
        }
        done
    }
}

/// An open that was committed.
enum Committed {
    /// It is open.
    Open(Option<Recallable>),
    /// It was too late, and is to be done anew: its description is not free before the server has
    /// heard that it ends.
    Anew,
}

impl Connection {
    pub(crate) fn claim(&self, key: Key, alone: bool) -> Option<Held<'_>> {
        let own = self.own().ok()?;
        let authority = own.authority(self).ok()?;
        let count = own.in_hand.claims.fetch_add(1, Ordering::Relaxed);
        let claim = self.memory.deferred().claim(key, own.index, count, alone)?;
        let soon = count.is_multiple_of(MANY);
        let lent = [(Ino(0), Until::ALWAYS); 2];
        Some(Held { connection: self, own, authority, claim, count, soon, lent })
    }

    /// Claims a second key for the same change.
    pub(crate) fn claim_too(&self, held: &Held<'_>, key: Key) -> Option<Claim> {
        self.memory.deferred().claim(key, self.own().ok()?.index, held.count, true)
    }

    /// Whether this session may defer changes; who asks often enough gets the right to.
    pub(crate) fn may_defer(&self, kernel: bool) -> bool {
        let Ok(own) = self.own() else { return false };
        let hand = &own.in_hand;
        if hand.may_defer.load(Ordering::Acquire) {
            return true;
        }
        if own.check(without_asking(IN_HAND)).is_err() {
            return false;
        }
        // Another thread may be just asking: what is deferred before the answer is dropped.
        hand.asked.fetch_add(1, Ordering::Relaxed) >= ASKED
            && self.fetch(own, 0, kernel).is_ok()
            && hand.may_defer.load(Ordering::Acquire)
    }

    /// Asks for files in hand, or waits for those that were asked for ahead.
    fn fetch(&self, own: &Own, count: u32, kernel: bool) -> Result<()> {
        if self.receive(own) || own.in_hand.asking.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        self.received(own, self.call(Request::Preallocate { count, kernel }))
    }

    /// What was asked for is in hand.
    fn received(&self, own: &Own, reply: Result<Reply>) -> Result<()> {
        let hand = &own.in_hand;
        if let Ok(Reply::Preallocated(files)) = &reply {
            files.iter().for_each(|file| hand.put(file));
            hand.may_defer.store(true, Ordering::Release);
        }
        hand.asking.store(false, Ordering::Release);
        reply.map(drop)
    }

    /// Waits for what was asked for ahead. False: nothing was, or somebody else waits for it.
    fn receive(&self, own: &Own) -> bool {
        let ahead = own.in_hand.ahead.swap(0, Ordering::AcqRel);
        let Some(begun) = ahead.checked_sub(1).map(Begun) else { return false };
        // What fails is asked for again when there are none left.
        let _ = self.received(own, own.answer_to(self, begun));
        true
    }

    /// Where files in hand get few: asks for more, and takes them once they are there. Nobody
    /// waits.
    fn ask_ahead(&self, own: &Own, kernel: bool) {
        let hand = &own.in_hand;
        if !hand.are_few() {
            return;
        }
        let ahead = hand.ahead.load(Ordering::Acquire);
        if let Some(begun) = ahead.checked_sub(1).map(Begun) {
            if own.is_answered(begun) {
                self.receive(own);
            }
            return;
        }
        if hand.asking.swap(true, Ordering::Acquire) {
            return;
        }
        let request = Request::Preallocate { count: PREALLOCATED as u32 / 2, kernel };
        match own.begin(self, request) {
            Some(Begun(index)) => hand.ahead.store(1 + index, Ordering::Release),
            None => hand.asking.store(false, Ordering::Release),
        }
    }

    pub(crate) fn preallocated(&self, kernel: bool) -> Option<OpenFile> {
        let own = self.own().ok()?;
        if !own.in_hand.are(kernel) {
            return None;
        }
        if let Some(file) = own.in_hand.take() {
            self.ask_ahead(own, kernel);
            return Some(file);
        }
        let count = own.in_hand.next.load(Ordering::Relaxed);
        own.in_hand.next.store((count * 2).min(PREALLOCATED as u32), Ordering::Relaxed);
        self.fetch(own, count, kernel).ok()?;
        own.in_hand.take()
    }

    /// Changes attributes of an open file. `None`: ask.
    pub(crate) fn change_deferred(&self, file: FileRef, change: Change) -> Option<Result<()>> {
        let inode = self.memory.look(|table| table.find(file.ino))?;
        let person = &acting().person;
        let gives_away = change.uid.is_some() || change.gid.is_some();
        let own = person.owns(&inode.attributes()) && (person.is_root() || !gives_away);
        // Writers look at the table for those.
        let set_id = change.mode.is_some_and(|mode| mode & SET_ID != 0);
        if inode.kind != Kind::File || !own || set_id || !self.may_defer(true) {
            return None;
        }
        let header = self.memory.header(file.slot)?;
        let mut held = self.claim(Key::attributes(index_of(file.ino)), false)?;
        held.uses([&inode; 2]);
        let (ino, time_ns) = (file.ino, self.time_ns());
        if !held.is_open(Operations::WRITE, time_ns) {
            held.withdraw();
            return None;
        }
        let done = held.commit(Deferred::Change { ino, change, time_ns: change.made_ns(time_ns) });
        if matches!(done, Some(Ok(()))) {
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

    /// Opens what is there. `None`: ask.
    pub(crate) fn open_deferred(
        &self,
        path: &[u8],
        how: OpenHow,
    ) -> Option<(OpenFile, Option<Recallable>)> {
        if how.unnamed || how.exclusive {
            return None;
        }
        let place = self.parent(path);
        let (directory, name) = place.filter(|(above, _)| !above.is(flag::ELSEWHERE))?;
        let inode = self.openable(&directory, name, how)?;
        if !self.may_defer(true) {
            return None;
        }
        let hand = &self.own().ok()?.page().hand.descriptions;
        let (number, few) = take_one(hand.iter(), hand.len())?;
        let description = DescriptionSlot(number as u32);
        let nonce = (number >> 32) as u32;
        let open = OpenFile { file: file_of(&inode), description, nonce };
        let opened = self.claim(Key::opening(index_of(inode.ino)), false);
        let opened = opened.and_then(|held| {
            let mut held = Held { soon: held.soon || few, ..held };
            held.uses([&directory, &inode]);
            self.open_claimed(held, &directory, name, how, open)
        });
        match opened {
            Some(Committed::Open(opened)) => Some((open, opened)),
            Some(Committed::Anew) => None,
            None => {
                put_back(hand.iter(), number);
                None
            }
        }
    }

    fn open_claimed(
        &self,
        held: Held<'_>,
        directory: &Inode,
        name: &[u8],
        how: OpenHow,
        open: OpenFile,
    ) -> Option<Committed> {
        let (ino, OpenFile { file, description, nonce }) = (open.file.ino, open);
        let closing = self.memory.superblock().closing.load(Ordering::SeqCst) == ino.0;
        let (now, rights) = (self.time_ns(), how.access & (access::READ | access::WRITE) as u8);
        let still = !closing && held.is_open(Operations(rights), now);
        let found = still.then(|| self.openable(directory, name, how)).flatten();
        let words = found.filter(|found| file_of(found) == file);
        let Some(words) = words.and_then(|_| self.memory.description(description.0)) else {
            held.withdraw();
            return None;
        };
        let access = how.access & !(access::LINK as u8);
        let values = [(&words.ino, ino.0), (&words.file, file.slot.0.into())];
        let values = values.into_iter().chain([(&words.access, access.into()), (&words.offset, 0)]);
        let values = values.chain([(&words.token, 0)]);
        values.for_each(|(word, value)| word.store(value, Ordering::SeqCst));
        words.nonce.store(nonce.into(), Ordering::SeqCst);
        let (change, write) = (Deferred::Open { ino, description, nonce, access }, access::WRITE);
        // What may write is owed from its open on.
        let opened = match u64::from(access) & write != 0 {
            true => held.commit_unasked(None, change).then_some(None),
            false => held.commit_open(change).map(Some),
        };
        let Some(opened) = opened else {
            words.nonce.store(0, Ordering::SeqCst);
            return None;
        };
        // Without an answer it is open: what is read or written next asks again.
        if !held.counts().unwrap_or(true) {
            self.end(opened, description, nonce);
            return Some(Committed::Anew);
        }
        let cut = self.memory.header(file.slot).filter(|_| how.truncate);
        cut.into_iter().for_each(|header| header.wrote(now));
        Some(Committed::Open(opened))
    }

    /// A description is not used any more.
    pub(crate) fn end(&self, open: Option<Recallable>, description: DescriptionSlot, nonce: u32) {
        let recalled = open.is_some_and(|open| self.recall(open, description, nonce));
        if !recalled && !self.close_deferred(description, nonce) {
            // A server that is gone has nothing left to close.
            let _ = self.tell(Request::Close { description, nonce });
        }
    }

    /// Takes an open back that the server has not heard of, when its file is closed. False: say
    /// that it is.
    fn recall(&self, open: Recallable, description: DescriptionSlot, nonce: u32) -> bool {
        let Ok(own) = self.own() else { return false };
        let Some(words) = self.memory.description(description.0) else { return false };
        // A forked child has a session of its own.
        if own.index != open.session() {
            return false;
        }
        own.in_hand.opens.fetch_sub(1, Ordering::Relaxed);
        // What others may have ends otherwise.
        if !words.end(nonce) || !self.memory.deferred().recall(open) {
            return false;
        }
        let number = u64::from(description.0) | u64::from(nonce) << 32;
        put_back(own.page().hand.descriptions.iter(), number);
        true
    }

    /// What has a name, if it can be opened so without anything being done to it before.
    fn openable(&self, directory: &Inode, name: &[u8], how: OpenHow) -> Option<Inode> {
        let found = self.memory.look(|table| Some(self.memory.child(table, directory, name)))?;
        let Known::Here(inode) = found else { return None };
        let (reads, writes) =
            (u64::from(how.access) & access::READ != 0, u64::from(how.access) & access::WRITE != 0);
        let want = if reads { READ } else { 0 } | if writes { WRITE } else { 0 };
        let may = acting().person.may(&inode.attributes(), want);
        let set_id = u32::from(inode.mode) & SET_ID != 0;
        let cuts = how.truncate && (!writes || set_id);
        let runs = (writes || how.truncate) && inode.is(flag::EXECUTED);
        let fits = match inode.kind {
            Kind::File => {
                let rests = inode.slot.is_none() && !writes && !inode.is(flag::FAR);
                !how.directory && (rests || self.is_in_memory(&inode, how.truncate))
            }
            Kind::Directory => !writes && !how.create && !inode.is(flag::PREALLOCATED),
            Kind::Symlink | Kind::Fifo | Kind::Socket => false,
        };
        (may && fits && !cuts && !runs).then_some(inode)
    }

    /// Whether a file has its record, and is `empty` if it must be.
    fn is_in_memory(&self, inode: &Inode, empty: bool) -> bool {
        let Some(slot) = inode.slot else { return false };
        let own = |record: &FileRecord| record.ino.load(Ordering::SeqCst) == inode.ino.0;
        let sized = |header: &FileHeader| SizeWord::load(&header.size).size() > 0;
        self.memory.record(slot).is_some_and(own)
            && self.memory.header(slot).is_some_and(|header| !(empty && sized(header)))
    }

    /// Says that a descriptor was closed. False: tell.
    fn close_deferred(&self, description: DescriptionSlot, nonce: u32) -> bool {
        let Some(held) = self.claim(Key::description(description.0), false) else { return false };
        if !held.is_open(Operations(0), 0) {
            held.withdraw();
            return false;
        }
        held.commit(Deferred::Close { description, nonce }).is_some()
    }
}

fn file_of(inode: &Inode) -> FileRef {
    let none = if inode.kind == Kind::File { FileSlot::RESTING } else { FileSlot::NONE };
    FileRef { ino: inode.ino, slot: inode.slot.unwrap_or(none) }
}
