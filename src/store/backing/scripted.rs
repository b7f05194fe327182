//! A permanent store that lives in this process alone: what a simulated server has for a directory.
//!
//! It answers as [`Dir`](super::dir::Dir) does for root on a local file system that keeps no times
//! of reads: the same look of files, the same staging, which outlives whoever staged, the same kept
//! conflicts, the same errors. It is the same in every run: times come from a clock that is handed
//! in, inode numbers are counted, names are in order, and nothing waits or draws random numbers.
//!
//! Clones share the store. A handle from [`Scripted::observed`] tells its observer of every call
//! before it is done, and the observer may fail it, move its clock, or do to the store what
//! somebody else does there at that moment; a server gets such a handle, the test's script keeps
//! one that is not observed, with which it acts as somebody else (`script`).
//!
//! Not here: permission bits that refuse something, other file systems below the root, a power cut
//! that takes back what was not synced, and faults ([`faulty`](super::faulty) wraps any backing,
//! also this one).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Change, Name, Space};
use terral_format::{Error, Result};

use super::staged::{is_copy, label};
use super::{
    Announce, BesideOthers, Found, Listing, NameSink, Published, RandomAccess, STAGING, Sink,
    Source, Staged, Touched,
};
use super::{Update, Xattrs, failed, shown};
use crate::sparse::Sparse;

mod call;

mod pages;

mod node;

mod store;

mod rights;

mod names;

mod handle;

mod staged;

mod update;

mod script;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod alike;

pub use call::{Call, Operation};
pub use script::{Body, Seen};

use handle::Handle;
use node::Content;
use rights::Whose;
use store::Store;

/// Bytes and names that it says it has room for; it does not refuse more.
const TOTAL_BYTES: u64 = 1 << 50;
const TOTAL_FILES: u64 = 1 << 32;

type Observer = dyn Fn(&Call<'_>) -> Result<()> + Send + Sync;

/// What a handle of root's was to touch that is not root's.
#[derive(Clone, Debug)]
pub struct Touch {
    /// Which operation, and where.
    pub what: String,
    /// It has a name on root's own way: somebody else's is where root's was to be.
    pub in_the_way: bool,
}

/// A store in memory; see the module.
#[derive(Clone)]
pub struct Scripted {
    shared: Arc<Shared>,
    observer: Option<Arc<Observer>>,
    answered: Option<Arc<Observer>>,
    far: bool,
    beside: BesideOthers,
    whose: Whose,
}

struct Shared {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    store: Mutex<Store>,
    /// What was not root's and was to be touched by a handle of root's.
    touched: Mutex<Vec<Touch>>,
}

impl Scripted {
    /// An empty store of root's. `clock` says what time it is, in nanoseconds since 1970: it is
    /// asked once for each operation, and its steps are the ticks of the file system's clock.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let store = Mutex::new(Store::new(clock()));
        let (clock, touched) = (Box::new(clock), Mutex::default());
        let shared = Arc::new(Shared { clock, store, touched });
        let whose = Whose::Anybody;
        let beside = BesideOthers::All;
        Scripted { shared, observer: None, answered: None, far: false, beside, whose }
    }

    /// The same handle, which says that it is far, or is not.
    #[must_use]
    pub fn far(self, far: bool) -> Self {
        Scripted { far, ..self }
    }

    /// The same handle, which says that it does so much with names where others make some.
    #[must_use]
    pub fn beside(self, beside: BesideOthers) -> Self {
        Scripted { beside, ..self }
    }

    /// The same handle, for root's server where others have their own: nothing but what is root's
    /// is touched by it, where nobody else renames that. What it was to touch is [noted].
    ///
    /// [noted]: Scripted::touched
    #[must_use]
    pub fn of_roots(self) -> Self {
        Scripted { whose: Whose::Roots, ..self }
    }

    /// The same handle, for a server of a user's: it touches what is his, below directories of his
    /// or of root's, as the permission bits let him, and what it makes is his.
    #[must_use]
    pub fn of_user(self, user: u32) -> Self {
        Scripted { whose: Whose::User(user), ..self }
    }

    /// The same handle, for any program of a user's: it does what the permission bits let him.
    #[must_use]
    pub fn of_program(self, user: u32) -> Self {
        Scripted { whose: Whose::Program(user), ..self }
    }

    /// What was not root's, and was to be touched by a handle of root's.
    #[must_use]
    pub fn touched(&self) -> Vec<Touch> {
        self.shared.touched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A handle of the same store that asks `observer` before each operation. If that fails, so
    /// does the operation, and nothing is done. It is asked with nothing locked: it may use other
    /// handles.
    #[must_use]
    pub fn observed(
        &self,
        observer: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let observer: Option<Arc<Observer>> = Some(Arc::new(observer));
        Scripted { observer, answered: None, ..self.clone() }
    }

    /// The same handle, but `observer` is asked after each operation that was done, too: if it
    /// fails, the operation was done all the same, and its answer is lost.
    #[must_use]
    pub fn and_after(
        self,
        observer: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Scripted { answered: Some(Arc::new(observer)), ..self }
    }

    /// Gives an answer, unless it is to be lost.
    fn answer<T>(&self, call: &Call<'_>, done: T) -> Result<T> {
        self.answered.as_ref().map_or(Ok(()), |observer| observer(call)).map(|()| done)
    }

    /// Asks the observer.
    fn observe(&self, call: &Call<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(call))
    }

    /// The store, at this moment.
    fn lock(&self) -> MutexGuard<'_, Store> {
        let now_ns = (self.shared.clock)();
        let mut store = self.shared.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.now_ns = now_ns;
        store
    }

    /// Does one step.
    fn step<T>(
        &self,
        call: &Call<'_>,
        act: impl FnOnce(&mut Store) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let mut store = self.lock();
        store.owner = self.whose.owner();
        let permitted = store.permit(self.whose, call);
        if self.whose == Whose::Roots && permitted.is_err() {
            let what = format!("{:?} of {}", call.operation, shown(call.path));
            let mut paths = std::iter::once(call.path).chain(call.to);
            let in_the_way = paths.all(|path| store.is_roots_way(path));
            let touch = Touch { what, in_the_way };
            self.shared.touched.lock().unwrap_or_else(PoisonError::into_inner).push(touch);
        }
        let keeps = || store.must_keep_theirs((self.whose, self.beside), call);
        let done = permitted.and_then(|()| keeps()).and_then(|()| act(&mut store));
        done.map_err(|errno| refused(call, errno))
    }

    /// Does an operation.
    fn act<T>(
        &self,
        call: Call<'_>,
        act: impl FnOnce(&mut Store) -> rustix::io::Result<T>,
    ) -> Result<T> {
        self.observe(&call)?;
        let done = self.step(&call, act)?;
        self.answer(&call, done)
    }

    /// Does an operation on what is at a path.
    fn at<T>(
        &self,
        operation: Operation,
        path: &[u8],
        act: impl FnOnce(&mut Store, u64) -> rustix::io::Result<T>,
    ) -> Result<T> {
        self.act(Call::new(operation, path), |store| {
            let inode = store.find(path)?;
            act(store, inode)
        })
    }

    /// Opens a file to be changed in place, if it is one and `same` knows it.
    fn open_update(
        &self,
        operation: Operation,
        path: &[u8],
        same: impl Fn(Fingerprint) -> bool,
    ) -> Result<Box<dyn Update>> {
        let call = Call::new(operation, path);
        self.observe(&call)?;
        let inode = self.step(&call, |store| {
            let inode = store.find(path)?;
            if store.node(inode).pages().is_none() || !same(store.fingerprint(inode)) {
                return Err(Errno::BUSY);
            }
            store.hold(inode);
            Ok(inode)
        })?;
        let update = update::ScriptedUpdate::new(Handle::new(self, inode, path.to_vec()));
        self.answer(&call, Box::new(update))
    }
}

/// The error for what a file system would say.
fn refused(call: &Call<'_>, errno: Errno) -> Error {
    let what = format!("{:?} of {} in a scripted store", call.operation, shown(call.path));
    failed(&errno.into(), &what)
}

impl Source for Scripted {
    fn describe(&self) -> String {
        "a scripted store".to_owned()
    }

    fn is_far(&self) -> bool {
        self.far
    }

    fn owner(&self) -> Option<u32> {
        match self.whose {
            Whose::Anybody | Whose::Program(_) => None,
            Whose::Roots => Some(0),
            Whose::User(user) => Some(user),
        }
    }

    fn beside_others(&self) -> BesideOthers {
        self.beside
    }

    fn stat(&self, path: &[u8]) -> Result<Found> {
        self.at(Operation::Stat, path, |store, inode| Ok(store.found(inode)))
    }

    fn list_unless(&self, path: &[u8], known: Option<Fingerprint>) -> Result<Option<Listing>> {
        if known.is_some() && known == Some(self.stat(path)?.fingerprint) {
            return Ok(None);
        }
        self.at(Operation::List, path, |store, directory| {
            let shown = store.names(directory)?.iter().filter(|(name, _)| !is_copy(name));
            let kind = |inode: &u64| store.node(*inode).kind();
            let names = shown.map(|(name, inode)| (name.clone(), kind(inode)));
            let names = names.map(|(name, kind)| Name { name, number: None, kind }).collect();
            Ok(Some(Listing { looks: store.fingerprint(directory), names }))
        })
    }

    fn read(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let call = Call::new(Operation::Read, path).of_bytes(buffer.len());
        self.act(call, |store| store.readable(path).map(|pages| pages.read(offset, buffer)))
    }

    fn read_sparse(&self, path: &[u8], offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        let call = Call::new(Operation::Read, path).of_bytes(bytes);
        self.act(call, |store| {
            store.readable(path).map(|pages| pages.read_sparse(offset, bytes, into))
        })
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.at(Operation::ReadLink, path, |store, inode| match &store.node(inode).content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        })
    }

    fn xattrs(&self, path: &[u8]) -> Result<Xattrs> {
        self.at(Operation::Xattrs, path, |store, inode| {
            Ok(store.node(inode).xattrs.clone().into_iter().collect())
        })
    }

    fn space(&self) -> Result<Space> {
        self.act(Call::new(Operation::Space, b""), |store| {
            let (bytes, files) = store.used();
            Ok(Space {
                total_bytes: TOTAL_BYTES,
                free_bytes: TOTAL_BYTES.saturating_sub(bytes),
                total_files: TOTAL_FILES,
                free_files: TOTAL_FILES.saturating_sub(files),
            })
        })
    }
}

/// As what it lies in the staging directory.
fn sign(number: u128) -> (InstanceId, Ino) {
    (InstanceId(number), Ino(0))
}

impl Sink for Scripted {
    fn stage(&self, ino: Ino, instance: InstanceId) -> Result<Box<dyn Staged>> {
        let path = [STAGING, label(ino, instance).as_bytes()].join(&b'/');
        let call = Call::new(Operation::Stage, &path);
        self.observe(&call)?;
        let key = (instance, ino);
        let (inode, resumed_bytes) = self.step(&call, |store| Ok(store.stage(key)))?;
        let handle = Handle::new(self, inode, path.clone());
        let staged = staged::ScriptedStaged::new(handle, key, resumed_bytes);
        self.answer(&call, Box::new(staged))
    }

    fn take_back(&self, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()> {
        self.act(Call::new(Operation::TakeBack, path), |store| {
            let place = store.place(path)?;
            store.take_back(&place, (instance, ino))
        })
    }

    fn update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        self.open_update(Operation::Update, path, |present| present == expect)
    }

    fn resume_update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        let same = |present: Fingerprint| present.is_same_object(expect);
        self.open_update(Operation::ResumeUpdate, path, same)
    }

    fn sync(&self) -> Result<()> {
        self.act(Call::new(Operation::Sync, b""), |_| Ok(()))
    }

    fn leave_sign(&self, number: u128) -> Result<()> {
        self.act(Call::new(Operation::LeaveSign, b""), |store| {
            let (inode, _) = store.stage(sign(number));
            store.release(inode);
            Ok(())
        })
    }

    fn has_sign(&self, number: u128) -> Result<bool> {
        let call = Call::new(Operation::HasSign, b"");
        self.act(call, |store| Ok(store.staging.contains_key(&sign(number))))
    }

    fn clean(&self, instance: InstanceId) -> Result<()> {
        self.act(Call::new(Operation::Clean, b""), |store| {
            store.clean(instance);
            Ok(())
        })
    }
}

impl NameSink for Scripted {
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        self.act(Call::new(Operation::MakeDirectory, path), |store| {
            if path.is_empty() {
                return Ok(());
            }
            let place = store.place(path)?;
            store.make_name(&place, Content::Directory(Default::default()), mode)
        })
    }

    fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.act(Call::new(Operation::RemoveDirectory, path), |store| store.remove(path, true))
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()> {
        self.act(Call::new(Operation::MakeLink, path), |store| {
            let place = store.place(path)?;
            store.make_link(&place, target)
        })
    }

    fn make_fifo(&self, path: &[u8], mode: u32) -> Result<()> {
        self.act(Call::new(Operation::MakeFifo, path), |store| {
            let place = store.place(path)?;
            store.make_name(&place, Content::Fifo, mode)
        })
    }

    fn link(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        self.act(Call::new(Operation::Link, from).with(to), |store| {
            let (from, to) = (store.place(from)?, store.place(to)?);
            store.link(&from, &to)
        })
    }

    fn exchange(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.act(Call::new(Operation::Exchange, from).with(to), |store| {
            let (from, to) = (store.place(from)?, store.place(to)?);
            store.exchange(&from, &to)
        })
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.act(Call::new(Operation::Unlink, path), |store| store.remove(path, false))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        self.act(Call::new(Operation::Rename, from).with(to), |store| {
            let (from, to) = (store.place(from)?, store.place(to)?);
            store.rename(&from, &to)
        })
    }

    fn keep_theirs(&self, path: &[u8], ours: &[Object], alike: &[u8]) -> Result<Option<Vec<u8>>> {
        self.act(Call::new(Operation::KeepTheirs, path).with(alike), |store| {
            let place = store.place(path)?;
            store.keep_theirs(&place, ours, alike)
        })
    }

    fn set_aside(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.act(Call::new(Operation::SetAside, path), |store| {
            let place = store.place(path)?;
            store.set_aside(&place)
        })
    }

    fn change(&self, path: &[u8], change: Change) -> Result<Touched> {
        self.at(Operation::Change, path, |store, inode| {
            let now_ns = store.now_ns;
            store.touching(inode, |store| {
                store.node_mut(inode).set(&change, now_ns);
                Ok(())
            })
        })
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<Touched> {
        self.at(Operation::SetXattr, path, |store, inode| {
            let now_ns = store.now_ns;
            store.touching(inode, |store| store.node_mut(inode).set_xattr(name, value, now_ns))
        })
    }
}
