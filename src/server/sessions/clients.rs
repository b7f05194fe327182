//! Client processes: who is connected, what their slots hold, and what they were answered last.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{Owner, PageNumber, SessionSlot};
use terral_format::local::geometry::{HAZARDS, REQUESTS, SESSIONS};
use terral_format::local::hazard::{self, HazardWord};
use terral_format::local::tables::Counters;
use terral_format::local::tables::{CONTAINED, LEASED, WITHOUT_ASKING};
use terral_format::wire::capability::{Operations, Rights};
use terral_format::wire::locks::LockOwner;
use terral_format::wire::message::Totals;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::requests::Session;

use crate::authority::authz::{Allows, Good, Presented};
use crate::core::invariant::holds;
use crate::core::machine::Process;

/// One client process.
pub struct Client {
    /// Its process.
    pub process: Box<dyn Process>,
    /// Its session page, mapped.
    pub session: Session,
    /// The segment its chunks come from.
    pub near: Option<u32>,
    /// It has written into new files before.
    pub writes_small: bool,
    /// Descriptions and inode numbers that it shall have in hand.
    pub wanted: (usize, usize),
    /// What was denied to it, as far as that was written down.
    pub denied: Operations,
    /// The same, by containers.
    pub kept_out: BTreeMap<String, Operations>,
}

/// What the log says of a session, whether or not its process still lives.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its process.
    pub pid: u32,
    /// When that started.
    pub started_ticks: u64,
    /// Sequence and encoded reply of the last request of each slot that changed names.
    pub answered: [Option<(u64, Vec<u8>)>; REQUESTS],
    /// It may defer changes.
    pub defers: bool,
    /// What it has presented.
    pub presented: Presented,
}

/// All sessions of one server.
pub struct Sessions {
    clients: BTreeMap<SessionSlot, Client>,
    known: BTreeMap<SessionSlot, Known>,
    ended: Totals,
    /// Nothing that was presented runs out before, seconds since 1970.
    expires_s: u64,
    /// Names are changed by asking, whoever does.
    asks: bool,
    /// New files are created elsewhere, or may be.
    places: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        let (clients, known, ended, asks, places) = Default::default();
        Sessions { clients, known, ended, expires_s: u64::MAX, asks, places }
    }
}

/// No process counts so far: 64 PiB, or two years of one thread. A power of two.
const COUNT_END: u64 = 1 << 56;

/// The owner number of hazard slot `slot` of `session`.
pub fn owner(session: SessionSlot, slot: usize) -> Owner {
    Owner(session.0 * HAZARDS as u16 + slot as u16 + 1)
}

/// The session an owner number belongs to, if it is one, and its slot, or that of its appends.
pub fn session_of(owner: Owner) -> Option<(SessionSlot, usize)> {
    let at = owner.hazard().0.checked_sub(1)?;
    let session = at / HAZARDS as u16;
    (usize::from(session) < SESSIONS)
        .then_some((SessionSlot(session), (at % HAZARDS as u16).into()))
}

impl Sessions {
    // From records.

    /// A client came.
    pub fn began(&mut self, session: SessionSlot, pid: u32, started_ticks: u64) {
        self.ended.sessions += 1;
        let (answered, presented) = Default::default();
        let known = Known { pid, started_ticks, answered, defers: false, presented };
        let before = self.known.insert(session, known);
        holds("a session begins in a free place", || before.is_none());
    }

    /// A client is gone.
    pub fn ended(&mut self, session: SessionSlot, totals: &Totals) {
        self.known.remove(&session);
        self.clients.remove(&session);
        add(&mut self.ended, totals);
    }

    /// Whether names are changed only by asking, from now on, as what is published says then.
    pub fn ask_for_names(&mut self, asks: bool) {
        self.asks = asks;
    }

    /// The same, as new files are to be created elsewhere, or may be.
    pub fn ask_where(&mut self, places: bool) {
        self.places = places;
    }

    /// Totals of a snapshot.
    pub fn restore_totals(&mut self, totals: &Totals) {
        self.ended = *totals;
    }

    /// A session presented a capability, of which so much was not revoked.
    pub fn presented(
        &mut self,
        session: SessionSlot,
        handle: u32,
        (good, left): (Good, Operations),
    ) {
        if let Some(known) = self.known.get_mut(&session) {
            self.expires_s = self.expires_s.min(good.rights.expires_s);
            holds("a handle stands for one capability", || known.presented.may_be(handle, &good));
            known.presented.insert(handle, good, left);
        }
    }

    /// Something was revoked: so much is `left` of what was presented; see [`Presented::revise`].
    pub fn revise(&mut self, left: impl Fn(&Good) -> Operations, stamp: u64) {
        self.known.values_mut().for_each(|known| known.presented.revise(&left, stamp));
    }

    /// What each session has presented last: its handle, and what that allows now.
    pub fn newest(&self) -> impl Iterator<Item = (SessionSlot, u32, Operations)> {
        self.known.iter().filter_map(|(session, known)| {
            let (handle, allows) = known.presented.newest()?;
            Some((*session, handle, allows))
        })
    }

    /// What each session has presented last that another member has issued.
    pub fn leased(&self) -> impl Iterator<Item = (SessionSlot, u32)> {
        let leased = self.known.iter().filter(|(_, known)| known.presented.is_leased());
        leased.filter_map(|(session, known)| Some((*session, known.presented.newest()?.0)))
    }

    /// A session may defer changes from now on.
    pub fn defers(&mut self, session: SessionSlot) {
        if let Some(known) = self.known.get_mut(&session) {
            known.defers = true;
        }
    }

    /// What a session has presented.
    pub fn presented_by(&self, session: SessionSlot) -> Option<&Presented> {
        self.known.get(&session).map(|known| &known.presented)
    }

    /// Whether a session may defer changes.
    pub fn may_defer(&self, session: SessionSlot) -> bool {
        self.known.get(&session).is_some_and(|known| known.defers)
    }

    /// A request that changed names was answered.
    pub fn answered(&mut self, session: SessionSlot, request: u8, sequence: u64, reply: &[u8]) {
        let slots = self.known.get_mut(&session).map(|known| &mut known.answered);
        if let Some(slot) = slots.and_then(|slots| slots.get_mut(usize::from(request))) {
            let newer = || slot.as_ref().is_none_or(|(seen, _)| *seen < sequence);
            holds("answers are remembered in the order of their requests", newer);
            *slot = Some((sequence, reply.to_vec()));
        }
    }

    // Live ones.

    /// The process of a session, as an owner of locks: through `exec` it has one session after the
    /// other, and stays the same.
    pub fn process(&self, session: SessionSlot) -> Option<LockOwner> {
        let known = self.known.get(&session)?;
        Some(LockOwner::process(known.pid, known.started_ticks))
    }

    /// The number of the process of a session, and when that started.
    pub fn process_of(&self, session: SessionSlot) -> Option<(u32, u64)> {
        self.known.get(&session).map(|known| (known.pid, known.started_ticks))
    }

    /// All sessions of a process.
    pub fn of_process(&self, pid: u32, started_ticks: u64) -> Vec<SessionSlot> {
        let same = |known: &Known| (known.pid, known.started_ticks) == (pid, started_ticks);
        self.known.iter().filter(|(_, known)| same(known)).map(|(session, _)| *session).collect()
    }

    /// How many sessions each process has.
    pub fn by_process(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        self.known.values().for_each(|known| *counts.entry(known.pid).or_default() += 1);
        counts
    }

    /// What the log says of each session.
    pub fn known(&self) -> impl Iterator<Item = (SessionSlot, &Known)> {
        self.known.iter().map(|(session, known)| (*session, known))
    }

    /// The reply this request got before its server died.
    pub fn reply_given(&self, session: SessionSlot, request: u8, sequence: u64) -> Option<&[u8]> {
        let slot = self.known.get(&session)?.answered.get(usize::from(request))?;
        slot.as_ref().filter(|(seen, _)| *seen == sequence).map(|(_, reply)| reply.as_slice())
    }

    /// A number for a new client.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if all sessions are in use.
    pub fn free_slot(&self) -> Result<SessionSlot> {
        let free = (0..SESSIONS as u16).map(SessionSlot).find(|at| !self.known.contains_key(at));
        let full = || Error::new(ErrorKind::TooMany, format!("{SESSIONS} client processes"));
        free.ok_or_else(full)
    }

    /// A live client, by the page through which it asks.
    pub fn attach(&mut self, slot: SessionSlot, process: Box<dyn Process>, session: Session) {
        let (near, writes_small, wanted, denied) = (None, false, (0, 0), Operations(0));
        let kept_out = BTreeMap::new();
        let client = Client { process, session, near, writes_small, wanted, denied, kept_out };
        self.clients.insert(slot, client);
    }

    /// A live client.
    pub fn client(&self, session: SessionSlot) -> Option<&Client> {
        self.clients.get(&session)
    }

    /// The segment the next chunk of a live client comes from, if it has one.
    pub fn near(&self, session: SessionSlot) -> Option<u32> {
        self.client(session)?.near
    }

    /// A live client.
    pub fn client_mut(&mut self, session: SessionSlot) -> Option<&mut Client> {
        self.clients.get_mut(&session)
    }

    /// A live client was denied these operations; whether one of them was not before.
    pub fn was_denied(&mut self, session: SessionSlot, needs: Operations) -> bool {
        let Some(client) = self.clients.get_mut(&session) else { return false };
        let known = client.denied.contain(needs);
        client.denied = client.denied.and(needs);
        !known
    }

    /// A container has denied these operations to a session; whether that is to be written down, as
    /// one of them was not before, or nobody remembers.
    pub fn was_kept_out(
        &mut self,
        session: SessionSlot,
        container: &str,
        needs: Operations,
    ) -> bool {
        let Some(client) = self.clients.get_mut(&session) else { return true };
        let known = client.kept_out.entry(container.to_owned()).or_insert(Operations(0));
        let before = *known;
        *known = before.and(needs);
        !before.contain(needs)
    }

    /// Sets what a live client finds in its page: what this handle allows now, and where another
    /// member has issued it, no longer than its lease is good.
    pub fn publish(&self, session: SessionSlot, handle: u32, leased_until_ns: u64) {
        let allows = self.presented_by(session).and_then(|presented| presented.allows(handle));
        if let Some(allows) = allows {
            self.publish_as(session, allows, leased_until_ns);
        }
    }

    /// A live client finds in its page that it may do nothing any more.
    pub fn publish_none(&self, session: SessionSlot, now_s: u64) {
        let rights = Rights { operations: Operations(0), expires_s: now_s };
        let (everywhere, leased, contained) = (false, false, false);
        self.publish_as(session, Allows { rights, everywhere, leased, contained }, 0);
    }

    fn publish_as(&self, session: SessionSlot, allows: Allows, leased_until_ns: u64) {
        let Allows { rights, everywhere, leased, contained } = allows;
        if let Some(client) = self.clients.get(&session) {
            let until_ns = rights.expires_s.saturating_mul(1_000_000_000);
            let until_ns = if leased { until_ns.min(leased_until_ns) } else { until_ns };
            let none = rights.operations == Operations(0);
            let must_ask = !everywhere || none || self.asks || self.places;
            let without_asking = if must_ask { 0 } else { WITHOUT_ASKING };
            let leased = if leased && !none { LEASED } else { 0 };
            let contained = if contained && !none { CONTAINED } else { 0 };
            let how = without_asking | leased | contained;
            let operations = u64::from(rights.operations.0) | how;
            let page = client.session.page();
            page.until_ns.store(until_ns, Ordering::SeqCst);
            page.operations.store(operations, Ordering::SeqCst);
        }
    }

    /// Whether something that was presented may have run out.
    pub fn may_expire(&self, now_s: u64) -> bool {
        now_s >= self.expires_s
    }

    /// Live clients that lose what they may do, as their newest capability has run out.
    pub fn expired(&self, now_s: u64) -> Vec<SessionSlot> {
        let over = self.known.iter().filter(|(_, known)| known.presented.is_over(now_s));
        over.map(|(session, _)| *session).collect()
    }

    /// What has run out covers nothing any more.
    pub fn end_expired(&mut self, now_s: u64) {
        self.known.values_mut().for_each(|known| known.presented.end(now_s));
        let left = self.known.values().filter_map(|known| known.presented.expires_s());
        self.expires_s = left.min().unwrap_or(u64::MAX);
    }

    /// All live clients.
    pub fn clients(&self) -> impl Iterator<Item = (SessionSlot, &Client)> {
        self.clients.iter().map(|(session, client)| (*session, client))
    }

    /// Every slot that pins a page, with its word.
    pub fn pins(&self) -> Vec<(SessionSlot, usize, HazardWord, PageNumber)> {
        let mut pins = Vec::new();
        for (session, client) in &self.clients {
            for (at, slot) in client.session.page().hazards.iter().enumerate() {
                let word = hazard::observe(&slot.word);
                if let Some(page) = word.page() {
                    pins.push((*session, at, word, page));
                }
            }
        }
        pins
    }

    /// Records from which they come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        self.known.iter().flat_map(|(session, known)| {
            let (session, pid, started_ticks) = (*session, known.pid, known.started_ticks);
            let began = Local::SessionBegan { session, pid, started_ticks };
            let answered = known.answered.iter().enumerate().filter_map(move |(at, answered)| {
                let (sequence, reply) = answered.clone()?;
                Some(Local::Answered { session, request: at as u8, sequence, reply })
            });
            let presented = known.presented.iter();
            let presented = presented.map(move |(handle, good)| good.record(session, handle));
            let defers = known.defers.then_some(Local::Defers { session });
            std::iter::once(began).chain(answered).chain(presented).chain(defers)
        })
    }

    /// Sums of what the clients that are gone did.
    pub fn totals_of_ended(&self) -> Totals {
        self.ended
    }

    /// Sums of what all clients did, the gone ones included; and whether one has counted what
    /// cannot be, which is left out.
    pub fn totals(&self) -> (Totals, bool) {
        let (mut totals, mut spoiled) = (self.ended, false);
        for client in self.clients.values() {
            match counted(&client.session.page().counters) {
                Some(more) => add(&mut totals, &more),
                None => spoiled = true,
            }
        }
        (totals, spoiled)
    }
}

/// What a session has counted so far, unless that cannot be.
pub fn counted(counters: &Counters) -> Option<Totals> {
    let counted = Totals {
        sessions: 0,
        opens: counters.opens.load(Ordering::Relaxed),
        reads: counters.reads.load(Ordering::Relaxed),
        writes: counters.writes.load(Ordering::Relaxed),
        read_bytes: counters.read_bytes.load(Ordering::Relaxed),
        written_bytes: counters.written_bytes.load(Ordering::Relaxed),
        read_ns: counters.read_ns.load(Ordering::Relaxed),
        write_ns: counters.write_ns.load(Ordering::Relaxed),
        other_ns: counters.other_ns.load(Ordering::Relaxed),
    };
    let calls = counted.opens | counted.reads | counted.writes;
    let all = calls | counted.read_bytes | counted.written_bytes;
    let all = all | counted.read_ns | counted.write_ns | counted.other_ns;
    (all < COUNT_END).then_some(counted)
}

fn add(sum: &mut Totals, more: &Totals) {
    let pairs = [
        (&mut sum.sessions, more.sessions),
        (&mut sum.opens, more.opens),
        (&mut sum.reads, more.reads),
        (&mut sum.writes, more.writes),
        (&mut sum.read_bytes, more.read_bytes),
        (&mut sum.written_bytes, more.written_bytes),
        (&mut sum.read_ns, more.read_ns),
        (&mut sum.write_ns, more.write_ns),
        (&mut sum.other_ns, more.other_ns),
    ];
    for (sum, more) in pairs {
        *sum = sum.wrapping_add(more);
    }
}
