//! Everything a server knows, behind one lock, and the one way it changes: records.
//!
//! A request's records are applied as they arise and written to the log together with its answer,
//! in one transaction. What must not happen before the log says so (giving a removed file's chunks
//! to another) waits for that in `orphans`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use terral_format::Result;
use terral_format::ids::{Ino, ROOT, SessionSlot};
use terral_format::message::{Attributes, Kind, Name, Status};
use terral_format::record::{Began, Record};
use terral_format::size::SizeWord;
use terral_format::tables::access;
use terral_store::backing::Backing;
use terral_store::log::Log;
use terral_store::ram::Ram;

use crate::authz::Authz;
use crate::debts::Debts;
use crate::descriptions::{Descriptions, Open};
use crate::names::Names;
use crate::sessions::Sessions;

/// The log is rewritten when it has doubled since the last time, and grown by at least this much.
const LOG_GROWTH_BYTES: u64 = 64 << 20;

/// Everything a server knows.
pub struct State {
    /// Its directory.
    pub instance: PathBuf,
    /// What it is, for ever.
    pub began: Began,
    /// The log.
    pub log: Log,
    /// The namespace.
    pub names: Names,
    /// The memory tier.
    pub ram: Ram,
    /// The clients.
    pub sessions: Sessions,
    /// The open files.
    pub descriptions: Descriptions,
    /// The issuer.
    pub authz: Authz,
    /// The permanent store.
    pub backing: Option<Arc<dyn Backing>>,
    /// What it is owed.
    pub debts: Debts,
    /// Starts of this instance so far, this one included.
    pub starts: u64,
    /// When this process began to serve.
    pub since: Instant,
    /// No more work will come.
    pub finishing: bool,
    /// Leave as soon as possible.
    pub leaving: bool,
    /// A directory's merged listing, while a client pages through it.
    pub listing: Option<(Ino, Vec<Name>)>,
    /// Somebody opened a file for writing since this process began to serve.
    pub wrote: bool,
    /// When a writer last got a chunk.
    pub granted: Option<Instant>,
    pending: Vec<Record>,
    orphans: Vec<Ino>,
    log_base: u64,
    nonce: u64,
}

/// What a [`State`] is made of.
pub struct Parts {
    /// See [`State::instance`].
    pub instance: PathBuf,
    /// See [`State::began`].
    pub began: Began,
    /// See [`State::log`].
    pub log: Log,
    /// See [`State::ram`].
    pub ram: Ram,
    /// See [`State::backing`].
    pub backing: Option<Arc<dyn Backing>>,
    /// Attributes of the root.
    pub root: Attributes,
    /// Seed of the nonces.
    pub seed: u64,
}

impl State {
    /// A state in which nothing has happened yet.
    pub fn new(parts: Parts) -> Self {
        State {
            names: Names::new(parts.root, parts.backing.is_some()),
            descriptions: Descriptions::new(parts.began.geometry.descriptions),
            authz: Authz::new(parts.began.key.clone()),
            log_base: parts.log.bytes(),
            instance: parts.instance,
            began: parts.began,
            log: parts.log,
            ram: parts.ram,
            sessions: Sessions::default(),
            backing: parts.backing,
            debts: Debts::default(),
            starts: 1,
            since: Instant::now(),
            finishing: false,
            leaving: false,
            listing: None,
            wrote: false,
            granted: None,
            pending: Vec::new(),
            orphans: Vec::new(),
            nonce: parts.seed,
        }
    }

    /// Applies a record now; [`State::commit`] writes it.
    pub fn record(&mut self, record: Record) {
        self.apply(&record);
        self.pending.push(record);
    }

    /// Writes the pending records as one transaction; then what had to wait for it happens.
    pub fn commit(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.log.append(&self.pending)?;
            self.pending.clear();
            if self.log.bytes() > self.log_base + self.log_base.max(LOG_GROWTH_BYTES) {
                // A log that cannot be made shorter now is as good as before.
                let _ = self.log.rewrite(&self.snapshot());
                self.log_base = self.log.bytes();
            }
        }
        for ino in std::mem::take(&mut self.orphans) {
            self.bury(ino);
        }
        Ok(())
    }

    /// Applies a record, new or replayed.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::SessionBegan { session, pid, started_ticks } => {
                self.sessions.began(*session, *pid, *started_ticks);
            }
            Record::SessionEnded { session, totals } => self.sessions.ended(*session, totals),
            Record::Answered { session, request, sequence, reply } => {
                self.sessions.answered(*session, *request, *sequence, reply);
            }
            Record::Opened { description, nonce, ino, access, session } => {
                let (nonce, ino, session) = (*nonce, *ino, *session);
                let open = Open { nonce, ino, access: *access, session, seen: false };
                self.descriptions.opened(*description, open);
                self.count_open(ino, *access, 1);
            }
            Record::Closed { description } => {
                if let Some(open) = self.descriptions.closed(*description) {
                    self.count_open(open.ino, open.access, -1);
                    self.orphans.push(open.ino);
                }
            }
            Record::Counters { totals, .. } => {
                self.sessions.restore_totals(totals);
                self.names.apply(record);
            }
            _ => {
                if let Some(ino) = self.names.apply(record) {
                    self.orphans.push(ino);
                }
            }
        }
    }

    fn count_open(&mut self, ino: Ino, how: u8, change: i32) {
        let Some(inode) = self.names.inode_mut(ino) else { return };
        inode.opens = inode.opens.saturating_add_signed(change);
        if u64::from(how) & access::WRITE != 0 {
            inode.writers = inode.writers.saturating_add_signed(change);
            self.wrote = true;
        }
    }

    /// After a replay: nameless inodes that nobody has open.
    pub fn orphans_left(&mut self) -> Vec<Ino> {
        self.orphans.clear();
        let orphans = self
            .names
            .inodes()
            .filter(|(ino, inode)| inode.name.is_none() && inode.opens == 0 && **ino != ROOT);
        orphans.map(|(ino, _)| *ino).collect()
    }

    fn snapshot(&self) -> Vec<Record> {
        let mut records = vec![Record::Began(self.began.clone())];
        records.extend(self.names.snapshot());
        for (session, known) in self.sessions.known() {
            let (pid, started_ticks) = (known.pid, known.started_ticks);
            records.push(Record::SessionBegan { session, pid, started_ticks });
            for (request, answered) in known.answered.iter().enumerate() {
                if let Some((sequence, reply)) = answered {
                    records.push(Record::Answered {
                        session,
                        request: request as u8,
                        sequence: *sequence,
                        reply: reply.clone(),
                    });
                }
            }
        }
        for (description, open) in self.descriptions.iter() {
            records.push(Record::Opened {
                description,
                nonce: open.nonce,
                ino: open.ino,
                access: open.access,
                session: open.session,
            });
        }
        records.push(Record::Counters {
            next_ino: self.names.next_ino(),
            lsn: self.names.ordinal(),
            totals: self.sessions.totals_of_ended(),
        });
        records
    }

    /// A number no descriptor has carried lately: 31 bits, not 0.
    pub fn new_nonce(&mut self) -> u32 {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
        self.nonce = self.nonce.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.nonce;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) as u32 >> 1).max(1)
    }

    /// Attributes of an inode as they are now.
    pub fn attributes(&self, ino: Ino) -> Option<Attributes> {
        let inode = self.names.inode(ino)?;
        let mut attributes = inode.attributes;
        if let Some(slot) = inode.slot {
            let header = self.ram.memory().header(slot);
            let order = std::sync::atomic::Ordering::SeqCst;
            attributes.size = SizeWord::load(header.size()).size();
            attributes.modified_ns = header.modified_ns().load(order);
            attributes.accessed_ns = header.accessed_ns().load(order);
        }
        if attributes.kind == Kind::Directory {
            attributes.size = 4096;
        }
        Some(attributes)
    }

    /// The segment the next chunk of this session comes from, if it has one.
    pub fn near(&self, session: SessionSlot) -> Option<u32> {
        self.sessions.client(session)?.near
    }

    /// How the server is.
    pub fn status(&mut self) -> Status {
        let drain = self.drain_status();
        let page = terral_format::geometry::PAGE_BYTES as u64;
        Status {
            pid: std::process::id(),
            starts: self.starts,
            uptime_ms: self.since.elapsed().as_millis() as u64,
            backing: self.backing.as_ref().map(|backing| backing.describe()),
            sessions: self.sessions.clients().count() as u32,
            files: self.names.count(),
            open: self.descriptions.count(),
            memory_bound_bytes: u64::from(self.began.geometry.arena_pages()) * page,
            memory_used_bytes: self.ram.used_bytes(),
            memory_warm_bytes: self.ram.warm_bytes(),
            totals: self.sessions.totals(),
            drain,
        }
    }
}
