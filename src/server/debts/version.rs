//! A new version of a file on its way to the backing. Not here: what is copied into it (`copying`),
//! and how it gets its name (`publishing`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use terral_format::ids::{Ino, InstanceId};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Sink, Staged};
use terral_store::sparse::Sparse;

/// A new version of a file on its way, which the drain and readers of evicted bytes share. Who has
/// the server's lock never waits for who reads or writes it.
pub struct Version {
    inner: Mutex<Copied>,
    /// It has not yet had every chunk once: the next pass copies all of them, and nothing of the
    /// file may leave memory before.
    incomplete: AtomicBool,
    /// Beyond this it has what a truncate has taken away since the last pass.
    cut_to: AtomicU64,
}

/// What was copied.
pub struct Copied {
    /// The temporary file, until it gets its name.
    pub staged: Option<Box<dyn Staged>>,
    /// Chunk index → checksum, bytes.
    pub sums: BTreeMap<u64, (u64, u64)>,
}

/// A version that the drain and readers of evicted bytes share.
pub type SharedVersion = Arc<Version>;

impl Version {
    /// The version `instance` has staged, or a new one.
    pub fn open(sink: &dyn Sink, ino: Ino, instance: InstanceId) -> Result<(Self, bool)> {
        let staged = sink.stage(ino, instance)?;
        let resumed = staged.resumed_bytes().is_some();
        let inner = Mutex::new(Copied { staged: Some(staged), sums: BTreeMap::new() });
        let (incomplete, cut_to) = (AtomicBool::new(true), AtomicU64::new(u64::MAX));
        Ok((Version { inner, incomplete, cut_to }, resumed))
    }

    /// What was copied. Not for who has the server's lock: the store may be slow.
    pub fn copied(&self) -> MutexGuard<'_, Copied> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not had every chunk once.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::SeqCst)
    }

    /// It has, or has not.
    pub fn set_incomplete(&self, incomplete: bool) {
        self.incomplete.store(incomplete, Ordering::SeqCst);
    }

    /// The file was made `size` bytes long, or longer again: the next pass cuts the version.
    pub fn cut(&self, size: u64) {
        self.cut_to.fetch_min(size, Ordering::SeqCst);
    }

    /// Whether it has the file as it was: every chunk once, and nothing that was cut off since.
    pub fn is_whole(&self) -> bool {
        !self.is_incomplete() && self.cut_to.load(Ordering::SeqCst) == u64::MAX
    }

    /// A pass begins: cuts off what truncates have taken away since the last one.
    ///
    /// # Errors
    /// Those of [`Staged::truncate`]; it is cut by the next pass then.
    pub fn begin_pass(&self) -> Result<()> {
        let size = self.cut_to.swap(u64::MAX, Ordering::SeqCst);
        if size == u64::MAX {
            return Ok(());
        }
        let done = self.copied().truncate(size);
        if done.is_err() {
            self.cut(size);
        }
        done
    }

    /// Throws it away.
    pub fn discard(&self) {
        if let Some(staged) = self.copied().staged.take() {
            staged.discard();
        }
    }

    /// Bytes of the version; zeros beyond its end.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if it is getting its name, and those of [`Staged::read`].
    pub fn read(&self, at: u64, bytes: usize) -> Result<Sparse> {
        self.copied().read(at, bytes)
    }

    /// The same. `None` if somebody is just writing or reading it.
    pub fn try_read(&self, at: u64, bytes: usize) -> Option<Result<Sparse>> {
        let mut copied = match self.inner.try_lock() {
            Ok(copied) => copied,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(copied.read(at, bytes))
    }
}

/// A version that nobody needs any more: of a file that is gone.
pub struct Unneeded {
    /// The file.
    pub ino: Ino,
    /// This one, or what may be staged by an attempt that failed or a server that died.
    pub version: Option<SharedVersion>,
}

impl Unneeded {
    /// Throws it away.
    ///
    /// # Errors
    /// Those of [`Sink::stage`]; it is still there then.
    pub fn discard(&self, sink: &dyn Sink, instance: InstanceId) -> Result<()> {
        match &self.version {
            Some(version) => version.discard(),
            None => sink.stage(self.ino, instance)?.discard(),
        }
        Ok(())
    }
}

impl Copied {
    /// The temporary file.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if it is getting its name.
    pub fn staged(&mut self) -> Result<&mut Box<dyn Staged>> {
        let busy = || Error::new(ErrorKind::Busy, "a version that gets its name");
        self.staged.as_mut().ok_or_else(busy)
    }

    fn read(&mut self, at: u64, bytes: usize) -> Result<Sparse> {
        let mut read = Sparse::default();
        self.staged()?.read_sparse(at, bytes, &mut read)?;
        Ok(read)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.staged()?.truncate(size)?;
        self.sums.retain(|index, _| (index + 1) * CHUNK_BYTES <= size);
        Ok(())
    }
}
