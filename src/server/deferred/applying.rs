//! Deferred changes, the server's side: files in hand, and what clients did with them. See
//! `terral_format::local::deferred` for the rules.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::frame;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::changes;
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::deferred::{CHANGE_BYTES, Committed};
use terral_format::local::names::{Inode, flag};
use terral_format::local::tables::access;
use terral_format::wire::message::{FileRef, Kind, Reply, Spare};
use terral_store::ram::Start;

use crate::core::state::State;
use crate::deferred::lending;
use crate::deferred::waiting::Waiting;
use crate::naming::operations::SET_GROUP;
use crate::needs::fetching::Fetched;
use crate::sessions::clients::Client;
use crate::storage::granting::SMALL_ORDERS;

/// Most files in hand of one session.
const SPARES_MAX: u32 = 256;

impl State {
    // Files in hand.

    /// Gives a session files that it can create without waiting, and the right to defer.
    pub fn spares(&mut self, session: SessionSlot, count: u32, kernel: bool) -> Result<Reply> {
        self.log.reserve()?;
        self.names.reserve()?;
        if !self.sessions.may_defer(session) {
            self.record(Local::Defers { session });
        }
        if let Some(refill) = self.refill(session) {
            self.commit()?;
            self.hand_over(&refill);
        }
        let spares = (0..count.min(SPARES_MAX)).map_while(|_| self.spare(session, kernel).ok());
        Ok(Reply::Spares(spares.collect()))
    }

    fn spare(&mut self, session: SessionSlot, kernel: bool) -> Result<Spare> {
        let (ino, now) = (self.names.next_ino(), self.storage.time_ns());
        let memory = self.storage.memory();
        let description = self.descriptions.reserve(&*self.machine, memory)?;
        let start = Start { modified_ns: now, accessed_ns: now, ..Start::default() };
        let slot = match self.storage.attach(ino, start) {
            Ok(slot) => slot,
            Err(error) => {
                self.descriptions.unreserve(description);
                return Err(error);
            }
        };
        let (nonce, file) = (self.new_nonce(), FileRef { ino, slot });
        let kernel = if kernel { access::KERNEL } else { 0 };
        let access = (access::READ | access::WRITE | kernel) as u8;
        self.write_description(description, nonce, file, access);
        self.record(Local::Spare { ino, slot });
        self.record(Local::Opened { description, nonce, ino, access, session });
        if self.sessions.client(session).is_some_and(|client| client.writes_small) {
            // Without it, the first write asks.
            let _ = self.install_small(session, file);
        }
        Ok(Spare { file, description, nonce })
    }

    /// Gives an empty file that is open for writing its first chunk.
    pub(crate) fn install_first(&mut self, session: SessionSlot, file: FileRef) {
        if self.storage.size(file.slot) == 0 && !self.storage.is_backed(file, 0) {
            // Without it, the first write asks.
            let _ = self.install_small(session, file);
        }
    }

    /// Gives a file of which nothing is there its first chunk, for little.
    pub(crate) fn install_small(&mut self, session: SessionSlot, file: FileRef) -> Result<()> {
        if !self.storage.memory().entry(file.slot, 0).is_absent() {
            return Ok(());
        }
        let entry = self.storage.take_first(SMALL_ORDERS[0], self.sessions.near(session))?;
        self.storage.install(file.slot, 0, entry)
    }

    // Changes.

    /// Applies what was deferred before now. True: there is more. What cannot be applied now, and
    /// what depends on it, is in [`State::waiting`] then.
    ///
    /// # Errors
    /// If the log cannot be written; all of it is applied once more then.
    pub fn apply_deferred(&mut self) -> Result<bool> {
        let limit = self.storage.memory().deferred().next_stamp();
        self.apply_collected(limit, false)
    }

    /// What [`State::apply_deferred`] does, for who was told that there is something. True: there
    /// is more. What fails is tried again by and by.
    pub(crate) fn apply_rung(&mut self) -> bool {
        let applied = self.apply_deferred();
        self.unapplied = applied.is_err();
        applied.unwrap_or_default()
    }

    /// Tries again what could not be applied, and ends the sessions that stayed for that.
    pub(crate) fn try_waiting(&mut self) -> Result<()> {
        let due = self.waiting.count() > 0 && self.waiting.is_due(self.world.now());
        if !due && !self.unapplied {
            return Ok(());
        }
        self.unapplied = true;
        self.apply_deferred()?;
        self.unapplied = false;
        let late = |(at, client): &(SessionSlot, &Client)| {
            !self.waiting.has(*at) && !client.process.is_alive()
        };
        let late: Vec<_> = self.sessions.clients().filter(late).map(|(at, _)| at).collect();
        late.into_iter().try_for_each(|session| self.end_session(session))
    }

    /// Closes the gate: applies all that was deferred, and nothing is until it is opened.
    pub fn close_gate(&mut self) -> Result<()> {
        self.storage.memory().gate().store(1, Ordering::SeqCst);
        self.apply_collected(u64::MAX, true).map(drop)
    }

    /// Opens the gate again, unless there is no memory in hand for what may come.
    pub fn open_gate(&mut self) {
        let ready = self.log.reserve().is_ok() && self.names.reserve().is_ok();
        if ready && !self.leaving {
            self.storage.memory().gate().store(0, Ordering::SeqCst);
        }
    }

    /// What needs something of the permanent store waits until that is fetched, and not whoever has
    /// it applied now.
    fn apply_collected(&mut self, limit: u64, revoke: bool) -> Result<bool> {
        let may = self.fetches.let_wait(true);
        let waits = self.fetches.must_wait();
        let applied = self.apply_those(limit, revoke);
        self.fetches.let_wait(may);
        self.fetches.set_waiting(waits);
        applied
    }

    /// Something was fetched: what waits for it is tried again.
    pub(crate) fn was_fetched(&mut self, number: u64, fetched: Fetched) {
        let now = self.world.now();
        self.fetches.done(number, fetched, now);
        if self.waiting.count() > 0 {
            self.waiting.hasten(now);
        }
    }

    /// Tries again what could not be applied, if something has come about since.
    pub(crate) fn try_what_was_fetched(&mut self) {
        if self.waiting.count() > 0 && self.waiting.is_due(self.world.now()) {
            // What fails is tried again by and by.
            let _ = self.try_waiting();
        }
    }

    fn apply_those(&mut self, limit: u64, revoke: bool) -> Result<bool> {
        let memory = self.storage.memory().clone();
        let (committed, more) = memory.deferred().collect(limit, revoke);
        let sessions = committed.iter().map(|change| SessionSlot(change.session));
        lending::fill_hands(self, sessions)?;
        let mut done = Vec::with_capacity(committed.len());
        let before = std::mem::take(&mut self.waiting);
        let mut waiting = Waiting::after(&before, self.world.now());
        for change in &committed {
            let mut buffer = [0; CHANGE_BYTES];
            let bytes = memory.deferred().read(change, &mut buffer);
            // What makes no sense, or is not this session's to do, did not happen.
            let Ok(made) = frame::decode::<Made<'_>>(bytes) else {
                done.push((change, None));
                continue;
            };
            let user = SessionSlot(change.session);
            let (late, who) = (waiting.precede(&made.change), (user, change.stamp));
            if late || before.keeps(change.stamp, self.world.now()) {
                waiting.add(who, &made.change, before.why().filter(|_| !late).cloned());
                continue;
            }
            if let Err(error) = self.apply_one(change, &made) {
                waiting.add(who, &made.change, Some(error));
                continue;
            }
            if matches!(made.change, Deferred::Close { .. }) {
                waiting.hasten(self.world.now());
            }
            done.push((change, changes::shadow_of(&made.change)));
        }
        if waiting.count() > 0 {
            self.waiting = waiting;
        }
        if !done.is_empty() {
            self.debts.names_changed(self.world.now());
            self.commit()?;
            done.into_iter().for_each(|(change, shadow)| memory.deferred().applied(change, shadow));
            if self.log.reserve().is_err() || self.names.reserve().is_err() {
                memory.gate().store(1, Ordering::SeqCst);
            }
        }
        Ok(more)
    }

    fn apply_one(&mut self, change: &Committed, made: &Made<'_>) -> Result<()> {
        let session = SessionSlot(change.session);
        if let Deferred::Close { description, nonce } = made.change {
            return self.close(description, nonce);
        }
        let presented = self.sessions.presented_by(session);
        let who = presented.and_then(|presented| {
            self.authz.covers(presented, made.authority, made.change.needs())
        });
        let Some(person) = who.filter(|_| self.sessions.may_defer(session)) else {
            return Ok(());
        };
        // Somebody else may be asking meanwhile.
        let asks = std::mem::replace(&mut self.person, person);
        let applied = self.apply_as(session, made.change);
        self.person = asks;
        applied
    }

    fn apply_as(&mut self, session: SessionSlot, change: Deferred<'_>) -> Result<()> {
        match change {
            Deferred::Create { ino, parent, name, mode, time_ns, .. } => {
                self.create_deferred(ino, (parent, name), mode, time_ns);
            }
            Deferred::Unlink { parent, name, ino, time_ns } => {
                if self.names.child_here(parent, name) == Some(ino) {
                    let kept = self.keep_for_openers(ino);
                    self.keeping = None;
                    kept?;
                    self.record(Fact::Removed { parent, name: name.into(), time_ns });
                }
            }
            Deferred::Change { ino, change, time_ns } => {
                if self.names.inode(ino).is_some() && self.permit_attributes(ino, &change).is_ok() {
                    let change = self.without_set_id(ino, change);
                    self.record(Fact::Changed { ino, change, time_ns });
                }
            }
            Deferred::Open { ino, description, nonce, access } => {
                self.open_deferred(session, ino, (description, nonce), access);
            }
            Deferred::MakeDirectory { ino, parent, name, mode, time_ns, .. } => {
                self.make_directory_deferred(session, ino, (parent, name), mode, time_ns);
            }
            Deferred::RemoveDirectory { parent, name, ino, time_ns } => {
                if self.names.child_here(parent, name) == Some(ino) && self.is_empty_here(ino) {
                    self.record(Fact::Removed { parent, name: name.into(), time_ns });
                }
            }
            Deferred::Rename { parent, name, to_parent, to_name, ino, over, time_ns } => {
                let there = self.names.child_here(to_parent, to_name).unwrap_or(Ino(0));
                if self.names.child_here(parent, name) == Some(ino) && there == over && ino != over
                {
                    let kept = self.keep_for_openers(over);
                    self.keeping = None;
                    kept?;
                    let (name, to_name) = (name.into(), to_name.into());
                    self.record(Fact::Renamed { parent, name, to_parent, to_name, time_ns });
                }
            }
            Deferred::Close { .. } => {}
        }
        Ok(())
    }

    fn is_empty_here(&self, directory: Ino) -> bool {
        let inode = self.names.inode(directory).filter(Inode::is_directory);
        inode.is_some_and(|inode| self.names.children(&inode).next().is_none())
    }

    fn open_deferred(
        &mut self,
        session: SessionSlot,
        ino: Ino,
        (description, nonce): (DescriptionSlot, u32),
        how: u8,
    ) {
        // One that was opened already is applied once more after a server died.
        let ours = self.hands.has(session, description, nonce);
        let Some(inode) = self.names.inode(ino).filter(|_| ours) else { return };
        let (file, writes) = (inode.kind == Kind::File, u64::from(how) & access::WRITE != 0);
        // One at rest may only be read; it gets its record when that is needed.
        let fits = if file { inode.slot.is_some() || !writes } else { inode.is_directory() };
        if !fits {
            return;
        }
        self.record(Local::Opened { description, nonce, ino, access: how, session });
        if let (Some(slot), true) = (inode.slot, file && writes) {
            self.owe(ino);
            self.install_first(session, FileRef { ino, slot });
        }
    }

    fn make_directory_deferred(
        &mut self,
        session: SessionSlot,
        ino: Ino,
        (parent, name): (Ino, &[u8]),
        mode: u32,
        time_ns: u64,
    ) {
        let above = self.names.inode(parent).filter(Inode::is_directory);
        let missing = self.names.child_here(parent, name).is_none();
        if above.is_some() && missing && self.hands.has_ino(session, ino) {
            self.make_as(ino, (parent, name), Kind::Directory, (mode, b""), time_ns);
        }
    }

    fn create_deferred(&mut self, ino: Ino, place: (Ino, &[u8]), mode: u32, time_ns: u64) {
        let (parent, name) = place;
        let spare = |inode: &Inode| inode.is(flag::SPARE);
        let Some(above) = self.names.inode(parent).filter(|above| above.kind == Kind::Directory)
        else {
            return;
        };
        // One that was created already is applied once more after a server died.
        let missing = self.names.child_here(parent, name).is_none();
        if !self.names.inode(ino).is_some_and(|inode| spare(&inode) && missing) {
            return;
        }
        let gid = if above.mode & SET_GROUP != 0 { above.gid } else { self.person.group };
        let (name, mode, uid) = (name.to_vec(), mode & 0o7777, self.person.user);
        let (kind, target) = (Kind::File, Vec::new());
        self.record(Fact::Made { parent, name, ino, kind, mode, uid, gid, time_ns, target });
        self.owe(ino);
    }
}
