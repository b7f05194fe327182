//! Deferred changes, the server's side: files in hand, and what clients did with them. See
//! `terral_format::deferred` for the rules.

use std::sync::atomic::Ordering;
use std::time::Instant;

use terral_format::Result;
use terral_format::deferred::{CHANGE_BYTES, Committed};
use terral_format::frame;
use terral_format::ids::{Ino, SessionSlot};
use terral_format::message::{Deferred, FileRef, Kind, Reply, Spare};
use terral_format::names::{Inode, flag};
use terral_format::record::Record;
use terral_format::tables::access;
use terral_store::ram::Start;

use crate::authn::now_ns;
use crate::operations::SET_GROUP;
use crate::state::State;
use crate::storage::SMALL_ORDERS;

/// Most files in hand of one session.
const SPARES_MAX: u32 = 256;

impl State {
    // Files in hand.

    /// Gives a session files that it can create without waiting, and the right to defer.
    pub fn spares(&mut self, session: SessionSlot, count: u32, kernel: bool) -> Result<Reply> {
        self.log.reserve()?;
        self.names.reserve()?;
        if !self.sessions.may_defer(session) {
            self.record(Record::Defers { session });
        }
        let spares = (0..count.min(SPARES_MAX)).map_while(|_| self.spare(session, kernel).ok());
        Ok(Reply::Spares(spares.collect()))
    }

    fn spare(&mut self, session: SessionSlot, kernel: bool) -> Result<Spare> {
        let (ino, now) = (self.names.next_ino(), now_ns());
        let description = self.descriptions.reserve(&self.instance)?;
        let start = Start { modified_ns: now, accessed_ns: now, ..Start::default() };
        let slot = match self.ram.attach(ino, start) {
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
        self.record(Record::Spared { ino, slot, description, nonce, access, session });
        if self.sessions.client(session).is_some_and(|client| client.writes_small) {
            // Without it, the first write asks.
            let _ = self.install_small(session, file);
        }
        Ok(Spare { file, description, nonce })
    }

    /// Gives a file of which nothing is there its first chunk, for little.
    pub(crate) fn install_small(&mut self, session: SessionSlot, file: FileRef) -> Result<()> {
        if !self.ram.memory().entry(file.slot, 0).is_absent() {
            return Ok(());
        }
        self.granted = Some(Instant::now());
        let entry = self.ram.take_chunk(SMALL_ORDERS[0], self.near(session))?;
        self.ram.install(file.slot, 0, entry).inspect_err(|_| self.ram.free(entry, false))
    }

    /// Files in hand now.
    pub fn count_spares(&self) -> u64 {
        self.names.spares()
    }

    // Changes.

    /// Applies what was deferred before now.
    pub fn apply_deferred(&mut self) -> Result<bool> {
        let limit = self.ram.memory().deferred().next_stamp();
        self.apply_collected(limit, false)
    }

    /// Closes the gate: applies all that was deferred, and nothing is until it is opened.
    pub fn close_gate(&mut self) -> Result<()> {
        self.ram.memory().gate().store(1, Ordering::SeqCst);
        self.apply_collected(u64::MAX, true).map(drop)
    }

    /// Opens the gate again, unless there is no memory in hand for what may come.
    pub fn open_gate(&mut self) {
        let ready = self.log.reserve().is_ok() && self.names.reserve().is_ok();
        if ready && !self.leaving {
            self.ram.memory().gate().store(0, Ordering::SeqCst);
        }
    }

    fn apply_collected(&mut self, limit: u64, revoke: bool) -> Result<bool> {
        let memory = self.ram.memory().clone();
        let (committed, more) = memory.deferred().collect(limit, revoke);
        for change in &committed {
            let mut buffer = [0; CHANGE_BYTES];
            let bytes = memory.deferred().read(change, &mut buffer);
            // What makes no sense, or is not this session's to do, did not happen.
            if let Ok(decoded) = frame::decode::<Deferred<'_>>(bytes) {
                self.apply_one(change, decoded)?;
            }
        }
        if !committed.is_empty() {
            self.debts.names_changed();
            self.commit()?;
            committed.iter().for_each(|change| memory.deferred().applied(change));
            if self.log.reserve().is_err() || self.names.reserve().is_err() {
                memory.gate().store(1, Ordering::SeqCst);
            }
        }
        Ok(more)
    }

    fn apply_one(&mut self, change: &Committed, what: Deferred<'_>) -> Result<()> {
        let session = SessionSlot(change.session);
        if let Deferred::Close { description, nonce } = what {
            return self.close(description, nonce);
        }
        if !self.sessions.may_defer(session) {
            return Ok(());
        }
        match what {
            Deferred::Create { ino, parent, name, mode, time_ns } => {
                self.create_deferred(ino, (parent, name), mode, time_ns);
            }
            Deferred::Unlink { parent, name, ino, time_ns } => {
                if self.names.child_here(parent, name) == Some(ino) {
                    self.keep_for_openers(ino)?;
                    self.record(Record::Removed { parent, name: name.into(), time_ns });
                }
            }
            Deferred::Change { ino, change, time_ns } => {
                if self.names.inode(ino).is_some() && self.permit_attributes(ino, &change).is_ok() {
                    let change = self.without_set_id(ino, change);
                    self.record(Record::Changed { ino, change, time_ns });
                }
            }
            Deferred::Close { .. } => {}
        }
        Ok(())
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
        let Some(inode) = self.names.inode(ino).filter(|inode| spare(inode) && missing) else {
            return;
        };
        let gid = if above.mode & SET_GROUP != 0 { above.gid } else { inode.gid };
        let (name, mode) = (name.to_vec(), mode & 0o7777);
        self.record(Record::Created { ino, parent, name, mode, gid, time_ns });
        self.owe(ino);
    }
}
