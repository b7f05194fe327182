//! A backing that fails on demand, for the tests of whoever uses one.
//!
//! With no fault set it is the backing it wraps. Faults can be set and lifted at any time, also for
//! files already being staged or updated. A failing operation does nothing, except that a write
//! into a full store leaves the bytes that still fitted, as a disk does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terral_format::Result;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Space};

use super::{
    Announce, BesideOthers, Found, Listing, NameSink, Published, RandomAccess, Sink, Source,
    Staged, Touched, Update, Xattrs, failed,
};
use crate::sparse::Sparse;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The faults of a [`Faulty`]; clones share them.
#[derive(Clone)]
pub struct Faults(Arc<Switches>);

struct Switches {
    gate: Arc<AtomicBool>,
    operations: AtomicU64,
    fail_at: AtomicU64,
    space_bytes: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Faults(Arc::new(Switches {
            gate: Arc::default(),
            operations: AtomicU64::new(0),
            fail_at: AtomicU64::new(0),
            space_bytes: AtomicU64::new(u64::MAX),
        }))
    }
}

impl Faults {
    /// While this is true, every operation fails with EIO.
    pub fn gate(&self) -> Arc<AtomicBool> {
        self.0.gate.clone()
    }

    /// After this many more bytes written, writes fail with ENOSPC. `u64::MAX`: no bound.
    pub fn space(&self, bytes: u64) {
        self.0.space_bytes.store(bytes, Ordering::SeqCst);
    }

    /// The `k`-th operation from now, counted from 1, fails with EIO, once.
    pub fn fail_nth(&self, k: u64) {
        self.0.fail_at.store(self.operations() + k, Ordering::SeqCst);
    }

    /// Operations so far, failed ones too.
    pub fn operations(&self) -> u64 {
        self.0.operations.load(Ordering::SeqCst)
    }

    /// Lifts all faults.
    pub fn clear(&self) {
        self.0.gate.store(false, Ordering::SeqCst);
        self.0.fail_at.store(0, Ordering::SeqCst);
        self.space(u64::MAX);
    }

    fn pass(&self, what: &str) -> Result<()> {
        let number = self.0.operations.fetch_add(1, Ordering::SeqCst) + 1;
        let closed = self.0.gate.load(Ordering::SeqCst);
        if closed || number == self.0.fail_at.load(Ordering::SeqCst) {
            return Err(failed(&std::io::Error::from_raw_os_error(EIO), what));
        }
        Ok(())
    }

    /// How many of `wanted` bytes still fit.
    fn take(&self, wanted: usize) -> usize {
        let mut granted = 0;
        let _ = self.0.space_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            granted = usize::try_from(left).unwrap_or(usize::MAX).min(wanted);
            Some(if left == u64::MAX { left } else { left - granted as u64 })
        });
        granted
    }

    fn write(&self, bytes: &[u8], write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        self.pass("injected: write")?;
        let fits = self.take(bytes.len());
        write(&bytes[..fits])?;
        if fits < bytes.len() {
            let full = std::io::Error::from_raw_os_error(ENOSPC);
            return Err(failed(&full, "injected: write"));
        }
        Ok(())
    }
}

/// A backing with faults.
pub struct Faulty<B> {
    inner: B,
    faults: Faults,
}

impl<B> Faulty<B> {
    /// `inner`, failing as `faults` say.
    pub fn new(inner: B, faults: Faults) -> Self {
        Faulty { inner, faults }
    }
}

/// What is written to, failing as the faults say.
struct FaultyFile<T: ?Sized> {
    inner: Box<T>,
    faults: Faults,
}

impl<B: Source> Source for Faulty<B> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn is_far(&self) -> bool {
        self.inner.is_far()
    }

    fn owner(&self) -> Option<u32> {
        self.inner.owner()
    }

    fn beside_others(&self) -> BesideOthers {
        self.inner.beside_others()
    }

    fn stat(&self, path: &[u8]) -> Result<Found> {
        self.faults.pass("injected: stat")?;
        self.inner.stat(path)
    }

    fn list_unless(&self, path: &[u8], known: Option<Fingerprint>) -> Result<Option<Listing>> {
        self.faults.pass("injected: list")?;
        self.inner.list_unless(path, known)
    }

    fn read(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.faults.pass("injected: read")?;
        self.inner.read(path, offset, buffer)
    }

    fn read_sparse(&self, path: &[u8], offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        self.faults.pass("injected: read")?;
        self.inner.read_sparse(path, offset, bytes, into)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.faults.pass("injected: read link")?;
        self.inner.read_link(path)
    }

    fn xattrs(&self, path: &[u8]) -> Result<Xattrs> {
        self.faults.pass("injected: attributes")?;
        self.inner.xattrs(path)
    }

    fn space(&self) -> Result<Space> {
        self.faults.pass("injected: space")?;
        self.inner.space()
    }
}

impl<B: Sink> Sink for Faulty<B> {
    fn stage(&self, ino: Ino, instance: InstanceId) -> Result<Box<dyn Staged>> {
        self.faults.pass("injected: stage")?;
        let inner = self.inner.stage(ino, instance)?;
        Ok(Box::new(FaultyFile { inner, faults: self.faults.clone() }))
    }

    fn take_back(&self, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()> {
        self.faults.pass("injected: take back")?;
        self.inner.take_back(path, ino, instance)
    }

    fn update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        self.faults.pass("injected: update")?;
        let inner = self.inner.update(path, expect)?;
        Ok(Box::new(FaultyFile { inner, faults: self.faults.clone() }))
    }

    fn resume_update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        self.faults.pass("injected: resume update")?;
        let inner = self.inner.resume_update(path, expect)?;
        Ok(Box::new(FaultyFile { inner, faults: self.faults.clone() }))
    }

    fn sync(&self) -> Result<()> {
        self.faults.pass("injected: sync")?;
        self.inner.sync()
    }

    fn leave_sign(&self, number: u128) -> Result<()> {
        self.faults.pass("injected: leave a sign")?;
        self.inner.leave_sign(number)
    }

    fn has_sign(&self, number: u128) -> Result<bool> {
        self.faults.pass("injected: look for a sign")?;
        self.inner.has_sign(number)
    }

    fn clean(&self, instance: InstanceId) -> Result<()> {
        self.faults.pass("injected: clean")?;
        self.inner.clean(instance)
    }
}

impl<B: NameSink> NameSink for Faulty<B> {
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        self.faults.pass("injected: make directory")?;
        self.inner.make_directory(path, mode)
    }

    fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.faults.pass("injected: remove directory")?;
        self.inner.remove_directory(path)
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()> {
        self.faults.pass("injected: make link")?;
        self.inner.make_link(path, target)
    }

    fn make_fifo(&self, path: &[u8], mode: u32) -> Result<()> {
        self.faults.pass("injected: make FIFO")?;
        self.inner.make_fifo(path, mode)
    }

    fn link(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        self.faults.pass("injected: link")?;
        self.inner.link(from, to)
    }

    fn exchange(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.faults.pass("injected: exchange")?;
        self.inner.exchange(from, to)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.faults.pass("injected: remove")?;
        self.inner.unlink(path)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        self.faults.pass("injected: rename")?;
        self.inner.rename(from, to)
    }

    fn keep_theirs(&self, path: &[u8], ours: &[Object], alike: &[u8]) -> Result<Option<Vec<u8>>> {
        self.faults.pass("injected: keep")?;
        self.inner.keep_theirs(path, ours, alike)
    }

    fn set_aside(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.faults.pass("injected: set aside")?;
        self.inner.set_aside(path)
    }

    fn change(&self, path: &[u8], change: Change) -> Result<Touched> {
        self.faults.pass("injected: change")?;
        self.inner.change(path, change)
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<Touched> {
        self.faults.pass("injected: set an attribute")?;
        self.inner.set_xattr(path, name, value)
    }
}

impl<T: RandomAccess + ?Sized> RandomAccess for FaultyFile<T> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let FaultyFile { inner, faults } = self;
        faults.write(bytes, |fits| inner.write(offset, fits))
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.faults.pass("injected: truncate")?;
        self.inner.truncate(size)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.faults.pass("injected: read")?;
        self.inner.read(offset, buffer)
    }

    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.faults.pass("injected: clear")?;
        self.inner.clear(offset, bytes)
    }

    fn read_sparse(&mut self, offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        self.faults.pass("injected: read")?;
        self.inner.read_sparse(offset, bytes, into)
    }
}

impl Staged for FaultyFile<dyn Staged> {
    fn resumed_bytes(&self) -> Option<u64> {
        self.inner.resumed_bytes()
    }

    fn publish(
        self: Box<Self>,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Published> {
        self.faults.pass("injected: publish")?;
        self.inner.publish(path, attributes, size, expect, announce)
    }

    fn discard(self: Box<Self>) {
        // Counted, but a discard has no way to fail; with a fault it leaves the bytes there.
        if self.faults.pass("injected: discard").is_ok() {
            self.inner.discard();
        }
    }
}

impl Update for FaultyFile<dyn Update> {
    fn finish(self: Box<Self>, attributes: &Attributes) -> Result<Fingerprint> {
        self.faults.pass("injected: finish")?;
        self.inner.finish(attributes)
    }
}
