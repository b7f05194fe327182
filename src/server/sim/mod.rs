//! A whole server in a test: private memory, a log that is a list, a permanent store in memory, a
//! clock that is moved, and clients that are scripts. One thread, and one seed: the same script
//! gives the same run. The server can be killed at every transaction it writes and before
//! everything it does in the permanent store, and is then followed by another one.
//!
//! Not here: what a run must come to (`schedule`), and the real clients' code.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use terral_format::disk::local::{Began, Local};
use terral_format::ids::{Ino, InstanceId, ROOT};
use terral_format::local::geometry::Geometry;
use terral_format::wire::capability::Key;
use terral_format::wire::message::{Attributes, Kind, Reply};
use terral_format::{Error, ErrorKind, frame};
use terral_store::backing::Backing;
use terral_store::backing::scripted::Scripted;
use terral_store::log::Journal;
use terral_store::memory::Memory;
use terral_store::private::{PrivateArena, PrivateLog, PrivatePacked};
use terral_store::ram::Ram;
use terral_store::small::Small;
use terral_transport::region::Region;
use terral_transport::requests::{self, Taken};

use crate::core::state::Parts;
use crate::core::world::{Tick, World};
use crate::debts::policy::Usual;
use crate::deferred::applying;
use crate::drain::turns::Doing;
use crate::recovery::{self, shared};
use crate::requests::handling;
use crate::requests::handling::Outcome;
use crate::shared::Shared;

mod attributes;
mod beside;
mod between;
mod client;
mod containers;
mod deferring;
mod disk;
mod ended;
mod failing;
mod faults;
mod fencing;
mod flaws;
mod full_memory;
mod full_table;
mod held_up;
mod machine;
mod mapping;
mod model;
mod names;
mod passing;
mod peers;
mod quotas;
mod regressions;
mod resting;
mod rights;
mod schedule;
mod seeds;
mod short_memory;
mod speed;
mod spilling;
mod transactions;
mod unwritten;
mod updating;
mod world;
mod writing;
mod zeros;

use client::Client;
use disk::SpillDisk;
use faults::{Faults, FullLog, KilledThere};
use flaws::Flaw;
use machine::Pretend;
use spilling::Spillers;
use world::Virtual;

/// Whoever waits for memory waits so long at most, on the simulation's clock.
const PATIENCE: Duration = Duration::from_secs(600);
/// So long for memory that is kept by clients which are stopped, or by what cannot be drained.
const STOPPED: Duration = Duration::from_secs(30);
/// How often the server is looked after; see [`crate::shell::watcher`].
const TEND: Duration = Duration::from_millis(500);

/// Logs are rewritten after 128 bytes more, and a half.
const LOG_WEIGHT: u64 = 32768;

/// How the server ended: it unwinds with this.
struct Killed;

/// Counts the moments at which a server may be killed, and kills it.
#[derive(Clone, Default)]
pub struct Moments {
    passed: Arc<AtomicU64>,
    /// So many more, and it is killed; below 0, never.
    left: Arc<AtomicI64>,
}

impl Moments {
    fn pass(&self) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        if self.left.load(Ordering::SeqCst) > 0 && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            resume_unwind(Box::new(Killed));
        }
    }
}

/// What outlives a server.
struct Kept {
    regions: [Arc<Region>; 3],
    arena: Arc<PrivateArena>,
    log: PrivateLog,
    packed: PrivatePacked,
}

/// The server, and all it has to do with.
pub struct Sim {
    world: Arc<Virtual>,
    machine: Arc<Pretend>,
    moments: Moments,
    /// Of writes to the arena.
    at_bytes: Moments,
    /// Whether it has a permanent store.
    has_dir: bool,
    /// The permanent store, as somebody else sees it.
    pub dir: Scripted,
    pub faults: Arc<Faults>,
    /// Where it spills to, and who does that.
    pub disk: Option<SpillDisk>,
    spillers: Option<Arc<Spillers>>,
    /// Files of which the disk has lost something.
    pub lost: BTreeSet<Ino>,
    began: Began,
    kept: Kept,
    /// As clients see it.
    memory: Arc<Memory>,
    server: Option<Arc<Shared>>,
    clients: Vec<Client>,
    /// Servers that were killed.
    pub killed: u64,
    /// How often somebody waited for memory.
    pub parked: u64,
    tended: Duration,
    /// What the drain is at, and whether it has carried it out.
    doing: Option<(Doing, bool)>,
    /// It stops when it has begun with such a thing.
    stops_at: Option<fn(&Doing) -> bool>,
    /// Until when the permanent store answers nothing.
    still_until: Tick,
}

/// As large as the tables of most are.
pub const GEOMETRY: Geometry =
    Geometry { segments: 1, files: 512, map_pages: 512, descriptions: 512, inodes: 4096 };

impl Sim {
    /// A server that has just started, with one segment of memory.
    pub fn new(seed: u64) -> Self {
        Sim::made(seed, None, None)
    }

    /// The same, but the server has this flaw, and spills to a disk with room for so many chunks.
    pub fn made(seed: u64, flaw: Option<Flaw>, spills: Option<usize>) -> Self {
        Sim::with_geometry(seed, flaw, spills, GEOMETRY)
    }

    /// One that has no permanent store.
    pub fn without_dir(seed: u64) -> Self {
        let mut sim = Sim::unstarted(seed, None, None, GEOMETRY);
        (sim.has_dir, sim.began.backing) = (false, None);
        sim.start();
        sim
    }

    /// One that has the same permanent store as others.
    pub fn sharing(seed: u64, dir: &Scripted) -> Self {
        let mut sim = Sim::unstarted(seed, None, None, GEOMETRY);
        sim.dir = dir.clone();
        sim.start();
        sim
    }

    /// The same, with tables of other sizes.
    pub fn with_geometry(
        seed: u64,
        flaw: Option<Flaw>,
        spills: Option<usize>,
        geometry: Geometry,
    ) -> Self {
        let mut sim = Sim::unstarted(seed, flaw, spills, geometry);
        sim.start();
        sim
    }

    fn unstarted(seed: u64, flaw: Option<Flaw>, spills: Option<usize>, geometry: Geometry) -> Self {
        let world = Arc::new(Virtual::new(seed));
        let moments = Moments::default();
        let spillers = spills.map(|_| Arc::new(Spillers::new(world.clone())));
        let disk = spills.zip(spillers.clone()).map(|(room, spillers)| {
            let passes = moments.clone();
            let before = move |reads| {
                passes.pass();
                spillers.meanwhile(reads);
            };
            SpillDisk::new(world.clone(), room, Box::new(before))
        });
        let (clock, at_append) = (world.clone(), moments.clone());
        let mut log = PrivateLog::new(Arc::new(move || at_append.pass()), LOG_WEIGHT)
            .forgetting(flaw.map(Flaw::forgets));
        let began = Began {
            instance: InstanceId(u128::from(seed)),
            boot: "boot".into(),
            geometry,
            backing: Some(b"dir".into()),
            key: Key([seed as u8; 32]),
        };
        log.append(&[Local::Began(began.clone()).into()]).expect("a list takes all");
        let region = |bytes| Arc::new(Region::anonymous(bytes).expect("address space"));
        let bytes = [geometry.tables_bytes(), geometry.headers_bytes(), geometry.pages_bytes()];
        let kept = Kept {
            regions: bytes.map(region),
            arena: Arc::default(),
            log,
            packed: PrivatePacked::default(),
        };
        Sim {
            has_dir: true,
            dir: Scripted::new(move || clock.wall_ns()).far(seed.is_multiple_of(2)),
            machine: Arc::default(),
            faults: Arc::new(Faults::new(world.clone())),
            disk,
            spillers,
            lost: BTreeSet::new(),
            memory: Arc::new(Memory::new(geometry, shared(&kept.regions), kept.arena.clone())),
            world,
            moments,
            at_bytes: Moments::default(),
            began,
            kept,
            server: None,
            clients: Vec::new(),
            killed: 0,
            parked: 0,
            tended: Duration::ZERO,
            doing: None,
            stops_at: None,
            still_until: Tick(0),
        }
    }

    /// Kills the server at the `moment`-th moment from now, counted from 1.
    pub fn kill_at(&self, moment: i64) {
        self.moments.left.store(moment, Ordering::SeqCst);
    }

    /// Kills the server at its `moment`-th write to the arena from now, counted from 1.
    pub fn kill_at_bytes(&self, moment: i64) {
        self.at_bytes.left.store(moment, Ordering::SeqCst);
    }

    /// Kills the server now.
    pub fn kill(&mut self) {
        self.killed += u64::from(self.server.take().is_some());
    }

    fn parts(&self) -> Parts {
        let arena = KilledThere { arena: self.kept.arena.clone(), moments: self.at_bytes.clone() };
        let memory = Memory::new(self.began.geometry, shared(&self.kept.regions), Arc::new(arena));
        let memory = memory.with_spill(self.disk.as_ref().map(SpillDisk::spill));
        let spillers = self.spillers.clone();
        let (before, after) = (self.moments.clone(), self.moments.clone());
        let (refusing, losing) = (self.faults.clone(), self.faults.clone());
        let dir = self.dir.observed(move |call| {
            before.pass();
            spillers.iter().for_each(|spillers| spillers.meanwhile(false));
            refusing.before(call)
        });
        let dir = dir.and_after(move |call| {
            after.pass();
            losing.after(call)
        });
        let now = self.world.wall_ns();
        Parts {
            world: self.world.clone(),
            machine: self.machine.clone(),
            began: self.began.clone(),
            log: Box::new(FullLog { log: self.kept.log.clone(), faults: self.faults.clone() }),
            ram: Ram::new(Arc::new(memory)),
            small: Small::new(Box::new(self.kept.packed.clone())),
            backing: self.has_dir.then(|| Arc::new(dir) as Arc<dyn Backing>),
            policy: Box::new(Usual),
            root: Attributes {
                ino: ROOT,
                kind: Kind::Directory,
                mode: 0o755,
                links: 2,
                uid: 0,
                gid: 0,
                size: 4096,
                accessed_ns: now,
                modified_ns: now,
                changed_ns: now,
            },
            seed: self.world.random().expect("a list of numbers") as u64,
        }
    }

    /// Starts a server on what is there, as often as it takes.
    fn start(&mut self) {
        while self.server.is_none() {
            let parts = self.parts();
            let log = self.kept.log.transactions();
            let is_empty = log.len() < 2 && self.kept.log.rewritten() == 0;
            let first = is_empty && self.killed == 0;
            let headers = self.kept.regions[1].clone();
            // What the dead one left of the names may be half done: they follow from the log.
            let names = parts.ram.memory().names_words().iter().filter(|_| !first);
            let used = names.filter(|word| word.load(Ordering::Relaxed) != 0);
            used.for_each(|word| word.store(0, Ordering::SeqCst));
            let superblock = self.kept.regions[0].view(0);
            self.server = alive(|| {
                let mut state = recovery::replay(parts, &log, superblock).expect("it recovers");
                if !first {
                    recovery::adopt(&mut state).expect("it takes over");
                }
                state.names.show(state.starts);
                state.fetches.are_served(true);
                applying::apply_rung(&mut state);
                Arc::new(Shared::new(state, headers))
            });
            let server = self.server.as_ref().map(Arc::downgrade).unwrap_or_default();
            self.spillers.iter().for_each(|spillers| spillers.serve(&server));
            self.killed += u64::from(self.server.is_none());
        }
    }

    /// Does something with the server. If it is killed gives `None`; there is none until the next
    /// time, and clients go on meanwhile.
    fn with<T>(&mut self, act: impl FnOnce(&Shared) -> T) -> Option<T> {
        self.start();
        let server = self.server.as_ref()?;
        let done = alive(|| act(server));
        if done.is_none() {
            self.killed += 1;
            self.server = None;
            self.doing = None;
        }
        done
    }

    /// Has a request answered, as its client waits for that, whichever server it is that answers.
    fn answered(&mut self, client: usize, taken: &Taken) -> Vec<u8> {
        let session = self.clients[client].session;
        let (begin, mut waits) = (self.world.now(), false);
        self.hear();
        loop {
            let outcome = self.with(|server| {
                let mut state = server.lock();
                match waits {
                    true => handling::handle_again(&mut state, session, taken),
                    false => handling::handle(&mut state, session, taken),
                }
            });
            waits = matches!(outcome, Some(Outcome::Park));
            match outcome {
                Some(Outcome::Answer(reply)) => {
                    self.with(|server| {
                        let mut state = server.lock();
                        let others = state.waiting.count() > 0;
                        state.fetches.forget(others);
                    });
                    return reply;
                }
                Some(Outcome::Fetch) => {
                    assert!(self.world.now().since(begin) < PATIENCE, "it waits for ever");
                    let slow = self.world.one_of(2) == 0;
                    let time = if slow { self.world.one_of(3000) } else { 0 };
                    self.fetch_needed(Duration::from_millis(time));
                }
                Some(Outcome::Park) => {
                    let waited = self.world.now().since(begin);
                    let keeps = self.is_somebody_pinned() || !self.lost.is_empty();
                    if waited > STOPPED && keeps {
                        // What he is in could be freed, if he went on: it waits for him. So it does
                        // for a file that cannot arrive.
                        let late = Error::new(ErrorKind::NoSpace, "it may wait for ever");
                        return frame::encode(&Reply::Failed(late)).expect("it fits");
                    }
                    assert!(waited < PATIENCE, "it waits for ever");
                    self.parked += 1;
                    self.pass(Duration::from_millis(100));
                }
                None => {}
            }
        }
    }

    /// What was written down of who was granted what.
    pub fn audited(&self) -> String {
        self.machine.audited()
    }

    /// The server hears of what was deferred.
    pub fn hear(&mut self) {
        let bell = self.kept.regions[1].clone();
        while requests::rung_deferred(bell.view(0)) {
            let more = self.with(|server| applying::apply_rung(&mut server.lock()));
            if more == Some(true) {
                requests::note_deferred(bell.view(0));
            }
        }
    }
}

/// What `act` gives, unless the server is killed in it.
fn alive<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(why) if why.is::<Killed>() => None,
        Err(why) => resume_unwind(why),
    }
}
