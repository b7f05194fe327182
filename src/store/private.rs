//! Memory that nobody else sees, for tests and simulations of whole servers: words, segments, and
//! the log. Each outlives the server that uses it, as shared memory does, in the hands of whoever
//! made it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use terral_format::disk::Record;
use terral_format::local::geometry::SEGMENT_BYTES;
use terral_format::{Error, ErrorKind, Result, frame};

use crate::arena::Arena;
use crate::existing::Shared;
use crate::log::Journal;
use crate::small::Packed;

/// Words.
pub struct Private(Vec<AtomicU64>);

impl Private {
    /// `bytes` zeros.
    pub fn boxed(bytes: usize) -> Box<dyn Shared> {
        Box::new(Private((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Shared for Private {
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        &self.0[offset / 8..offset / 8 + count]
    }

    fn prepare(&self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }
}

/// Segments, in a file system with room for them all.
#[derive(Default)]
pub struct PrivateArena {
    segments: RwLock<Vec<Vec<u8>>>,
    refused: AtomicU64,
}

impl PrivateArena {
    /// The next so many writes find no memory.
    pub fn refuse_writes(&self, count: u64) {
        self.refused.store(count, Ordering::SeqCst);
    }
}

/// One of those that are refused, if any are.
fn refuse_one(refused: &AtomicU64) -> Result<()> {
    let (order, one_less) = (Ordering::SeqCst, |left: u64| left.checked_sub(1));
    match refused.fetch_update(order, order, one_less) {
        Ok(_) => Err(Error::new(ErrorKind::NoSpace, "private memory")),
        Err(_) => Ok(()),
    }
}

fn missing(segment: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("segment {segment}"))
}

impl Arena for PrivateArena {
    fn create(&self, segment: u32) -> Result<()> {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        while segments.len() <= segment as usize {
            segments.push(vec![0; SEGMENT_BYTES]);
        }
        Ok(())
    }

    fn count(&self) -> u32 {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> Result<()> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = segments.get(segment as usize).ok_or_else(|| missing(segment))?;
        into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
        Ok(())
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> Result<()> {
        refuse_one(&self.refused)?;
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let into = segments.get_mut(segment as usize).ok_or_else(|| missing(segment))?;
        into[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn room_bytes(&self) -> u64 {
        u64::MAX / 2
    }

    fn place(&self) -> String {
        "private memory".into()
    }
}

/// Called just before and just after each transaction is written. It may unwind: as if the server
/// had died there.
pub type AtAppend = Arc<dyn Fn() + Send + Sync>;

/// Which records are lost on their way into a log.
pub type Forgets = fn(&Record) -> bool;

/// A log. Clones share it.
#[derive(Clone, Default)]
pub struct PrivateLog {
    transactions: Arc<Mutex<Vec<Vec<Record>>>>,
    bytes: Arc<AtomicU64>,
    at_append: Option<AtAppend>,
    /// It says that it has so many times the bytes that it has.
    weight: u64,
    rewritten: Arc<AtomicU64>,
    forgets: Option<Forgets>,
    refused: Arc<AtomicU64>,
}

impl PrivateLog {
    /// An empty one.
    /// It says that it has `weight` times the bytes that it has, so that it is rewritten so much
    /// earlier.
    pub fn new(at_append: AtAppend, weight: u64) -> Self {
        PrivateLog { at_append: Some(at_append), weight, ..PrivateLog::default() }
    }

    /// The same, but some records are never written: as with a server that forgets to.
    #[must_use]
    pub fn forgetting(self, forgets: Option<Forgets>) -> Self {
        PrivateLog { forgets, ..self }
    }

    /// The next so many transactions find no memory.
    pub fn refuse(&self, count: u64) {
        self.refused.store(count, Ordering::SeqCst);
    }

    /// How often it was rewritten.
    pub fn rewritten(&self) -> u64 {
        self.rewritten.load(Ordering::SeqCst)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Vec<Record>>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a server that takes it over finds.
    pub fn transactions(&self) -> Vec<Vec<Record>> {
        self.held().clone()
    }

    fn moment(&self) {
        self.at_append.iter().for_each(|call| call());
    }
}

impl Journal for PrivateLog {
    fn append(&mut self, records: &[Record]) -> Result<()> {
        refuse_one(&self.refused)?;
        let bytes = frame::encode(&records)?.len() as u64;
        self.moment();
        let forgotten = |record: &&Record| self.forgets.is_some_and(|forgets| forgets(record));
        self.held().push(records.iter().filter(|record| !forgotten(record)).cloned().collect());
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.moment();
        Ok(())
    }

    fn reserve(&mut self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst) * self.weight
    }

    fn rewrite(&mut self, snapshot: &mut dyn Iterator<Item = Record>) -> Result<()> {
        let records: Vec<Record> = snapshot.collect();
        let bytes = frame::encode(&records)?.len() as u64;
        self.moment();
        *self.held() = vec![records];
        self.rewritten.fetch_add(1, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
        self.moment();
        Ok(())
    }
}

/// The bytes of packed files. Clones share them.
#[derive(Clone, Default)]
pub struct PrivatePacked(Arc<Mutex<Vec<u8>>>);

impl Packed for PrivatePacked {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = at as usize + into.len();
        let short = || Error::new(ErrorKind::Malformed, "packed bytes");
        into.copy_from_slice(bytes.get(at as usize..end).ok_or_else(short)?);
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = at as usize + from.len();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[at as usize..end].copy_from_slice(from);
        Ok(())
    }
}
