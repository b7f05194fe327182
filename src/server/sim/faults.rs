//! What goes wrong in the permanent store, and in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terral_format::disk::Record;
use terral_format::{Error, ErrorKind, Result};
use terral_store::arena::Arena;
use terral_store::backing::scripted::{Call, Operation};
use terral_store::log::Journal;
use terral_store::private::{PrivateArena, PrivateLog};

use super::Moments;
use super::model::BEGUN_WITH;
use super::world::Virtual;
use crate::core::world::{Tick, World};

/// A way to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is away: everything fails.
    Away,
    /// It is full.
    Full,
    /// One call in four fails.
    Shaky,
    /// One call in four is done, and its answer is lost.
    Lossy,
    /// So is every one.
    Mute,
    /// There is no room for directories.
    NoDirectories,
    /// It cannot say that what it has is safe.
    NoSync,
    /// It cannot say what has this name.
    Unseen(&'static [u8]),
}

/// Those of which one happens in a schedule.
pub const FAULTS: [Fault; 4] = [Fault::Away, Fault::Full, Fault::Shaky, Fault::Lossy];

/// A name, and where what had it was moved.
type Move = (Vec<u8>, Vec<u8>);

/// What happens now.
pub struct Faults {
    world: Arc<Virtual>,
    now: Mutex<Option<(Fault, Tick)>>,
    /// Calls that failed so far.
    injected: AtomicU64,
    /// Looks at a file that was there before anybody came that failed.
    unseen: AtomicU64,
    /// Names that the server has removed, and those that what it removed had before.
    removed: Mutex<BTreeSet<Vec<u8>>>,
    /// Names that it has moved, and where to, in their order.
    moved: Mutex<Vec<Move>>,
    /// How often it has listed each directory.
    listed: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// The log cannot be written.
    log_full: AtomicBool,
    /// Calls are printed.
    traced: bool,
}

/// A log that cannot be written now and then.
pub struct FullLog {
    pub log: PrivateLog,
    pub faults: Arc<Faults>,
}

impl FullLog {
    fn check(&self) -> Result<()> {
        match self.faults.log_full.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::NoSpace, "a log that is full")),
            false => Ok(()),
        }
    }
}

/// Memory in the middle of which the server is killed.
pub struct KilledThere {
    pub arena: Arc<PrivateArena>,
    pub moments: Moments,
}

impl Arena for KilledThere {
    fn create(&self, segment: u32) -> Result<()> {
        self.arena.create(segment)
    }

    fn count(&self) -> u32 {
        self.arena.count()
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> Result<()> {
        self.arena.read(segment, at, into)
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> Result<()> {
        self.moments.pass();
        self.arena.write(segment, at, bytes)
    }

    fn room_bytes(&self) -> u64 {
        self.arena.room_bytes()
    }

    fn place(&self) -> String {
        self.arena.place()
    }
}

impl Journal for FullLog {
    fn append(&mut self, records: &[Record]) -> Result<()> {
        self.check()?;
        self.log.append(records)
    }

    fn reserve(&mut self) -> Result<()> {
        self.check()?;
        self.log.reserve()
    }

    fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    fn rewrite(&mut self, snapshot: &mut dyn Iterator<Item = Record>) -> Result<()> {
        self.log.rewrite(snapshot)
    }
}

impl Faults {
    pub fn new(world: Arc<Virtual>) -> Self {
        let traced = std::env::var_os("TERRAL_TRACE").is_some();
        Faults {
            world,
            now: Mutex::default(),
            injected: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            removed: Mutex::default(),
            listed: Mutex::default(),
            moved: Mutex::default(),
            log_full: AtomicBool::new(false),
            traced,
        }
    }

    /// From now on, and so long.
    pub fn begin(&self, fault: Fault, time: Duration) {
        let until = self.world.now() + time;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some((fault, until));
    }

    /// Whether the log is full, from now on.
    pub fn fill_log(&self, full: bool) {
        self.log_full.store(full, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether anything has gone wrong so far.
    pub fn were(&self) -> bool {
        self.injected() > 0
    }

    /// How many calls have failed so far.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::SeqCst)
    }

    /// How often nobody could see whether the file was there that was before anybody came.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::SeqCst)
    }

    fn now(&self) -> Option<Fault> {
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.filter(|(_, until)| self.world.now() < *until).map(|(fault, _)| fault)
    }

    fn fail(&self, kind: ErrorKind, call: &Call<'_>) -> Result<()> {
        self.injected.fetch_add(1, Ordering::SeqCst);
        let path = String::from_utf8_lossy(call.path);
        self.tell(call, "fails");
        if call.operation == Operation::Stat && call.path == BEGUN_WITH {
            self.unseen.fetch_add(1, Ordering::SeqCst);
        }
        Err(Error::new(kind, format!("{:?} of {path} in a store that fails", call.operation)))
    }

    fn tell(&self, call: &Call<'_>, what: &str) {
        if self.traced {
            let path = String::from_utf8_lossy(call.path);
            let to = call.to.map(String::from_utf8_lossy);
            eprintln!("there: {:?} {path} {to:?} {what}", call.operation);
        }
    }

    /// How often the server has listed each directory there.
    pub fn listed(&self) -> BTreeMap<Vec<u8>, u64> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the server has removed this name there.
    pub fn has_removed(&self, path: &[u8]) -> bool {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    /// The server removes what has this name there by now, whatever name it had before.
    fn removes(&self, path: &[u8]) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        removed.insert(path.to_vec());
        let mut at = path;
        for (from, to) in moved.iter().rev() {
            if to == at {
                removed.insert(from.clone());
                at = from;
            }
        }
    }

    /// Before a call.
    pub fn before(&self, call: &Call<'_>) -> Result<()> {
        match (call.operation, call.to) {
            (Operation::Unlink, _) => self.removes(call.path),
            (Operation::Rename, Some(to)) => {
                let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                moved.push((call.path.to_vec(), to.to_vec()));
            }
            _ => {}
        }
        let adds = matches!(
            call.operation,
            Operation::Write
                | Operation::Stage
                | Operation::MakeDirectory
                | Operation::MakeLink
                | Operation::Link
                | Operation::SetXattr
        );
        self.tell(call, "");
        if call.operation == Operation::List {
            let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
            *listed.entry(call.path.to_vec()).or_default() += 1;
        }
        match self.now() {
            Some(Fault::Away) => self.fail(ErrorKind::Backing, call),
            Some(Fault::Full) if adds => self.fail(ErrorKind::NoSpace, call),
            Some(Fault::NoDirectories) if call.operation == Operation::MakeDirectory => {
                self.fail(ErrorKind::NoSpace, call)
            }
            Some(Fault::NoSync) if call.operation == Operation::Sync => {
                self.fail(ErrorKind::Backing, call)
            }
            Some(Fault::Unseen(path)) if call.operation == Operation::Stat && call.path == path => {
                self.fail(ErrorKind::Backing, call)
            }
            Some(Fault::Shaky) if self.world.one_of(4) == 0 => self.fail(ErrorKind::Backing, call),
            _ => Ok(()),
        }
    }

    /// After a call that was done.
    pub fn after(&self, call: &Call<'_>) -> Result<()> {
        match self.now() {
            Some(Fault::Lossy) if self.world.one_of(4) == 0 => self.fail(ErrorKind::Backing, call),
            Some(Fault::Mute) => self.fail(ErrorKind::Backing, call),
            _ => Ok(()),
        }
    }
}
