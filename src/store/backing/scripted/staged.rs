//! Versions that nobody sees yet, and how one gets its name.
//!
//! As in a directory, a version has its inode number from its first byte on, a foreign one is kept
//! before the caller is told that the name will be taken, and the name is taken after that.

use rustix::io::Errno;
use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::InstanceId;
use terral_format::wire::message::Attributes;

use super::super::staged::TRIES;
use super::call::{Call, Operation};
use super::handle::Handle;
use super::node::Content;
use super::pages::Pages;
use super::store::{Place, StagingKey, Store};
use super::{Announce, BesideOthers, Found, Published, RandomAccess, Staged, refused};
use crate::sparse::Sparse;

/// Mode of what is not published.
const PRIVATE: u32 = 0o600;

/// A version of a file in the making.
pub(super) struct ScriptedStaged {
    handle: Handle,
    key: StagingKey,
    resumed_bytes: Option<u64>,
}

/// What is known just before a name is taken.
struct Ready {
    /// Of the version that gets it.
    found: Found,
    /// Of what has it.
    present: Option<Fingerprint>,
    conflict: Option<Vec<u8>>,
}

impl ScriptedStaged {
    pub(super) fn new(handle: Handle, key: StagingKey, resumed_bytes: Option<u64>) -> Self {
        ScriptedStaged { handle, key, resumed_bytes }
    }

    /// Makes everything ready but the name.
    fn prepare(
        &self,
        store: &mut Store,
        path: &[u8],
        (attributes, size): (&Attributes, u64),
        expect: Option<Fingerprint>,
    ) -> rustix::io::Result<Ready> {
        let (place, inode) = (store.place(path)?, self.handle.inode);
        store.truncate(inode, size)?;
        let now_ns = store.now_ns;
        store.node_mut(inode).set_attributes(attributes, now_ns);
        store.put_staged(self.key, inode);
        let conflict = store.keep_foreign(&place, inode, expect)?;
        let present = store.at(&place).map(|there| store.fingerprint(there));
        Ok(Ready { found: store.found(inode), present, conflict })
    }

    /// Whether it has its name before it has lost the one that it grew under.
    fn is_named_by_link(&self, path: &[u8]) -> bool {
        let scripted = &self.handle.scripted;
        scripted.beside != BesideOthers::All && scripted.lock().is_shared(path)
    }

    /// Takes the name, if what has it is still what was there.
    fn take(
        &self,
        store: &mut Store,
        path: &[u8],
        present: Option<Fingerprint>,
        keeps_both: bool,
    ) -> rustix::io::Result<Option<Fingerprint>> {
        let place = store.place(path)?;
        if store.at(&place).map(|there| store.fingerprint(there)) != present {
            return Ok(None);
        }
        store.enter(&place, self.handle.inode);
        if !keeps_both {
            store.drop_staged(self.key);
        }
        Ok(Some(store.fingerprint(self.handle.inode)))
    }
}

impl RandomAccess for ScriptedStaged {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.handle.write(offset, bytes)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.handle.truncate(size)
    }

    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()> {
        self.handle.clear(offset, bytes)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.handle.read(offset, buffer)
    }

    fn read_sparse(&mut self, offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        self.handle.read_sparse(offset, bytes, into)
    }
}

impl Staged for ScriptedStaged {
    fn resumed_bytes(&self) -> Option<u64> {
        self.resumed_bytes
    }

    fn publish(
        self: Box<Self>,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Published> {
        let (scripted, call) = (&self.handle.scripted, Call::new(Operation::Publish, path));
        scripted.observe(&call)?;
        let mut conflict = None;
        // Whoever is told of it may do something there meanwhile: look again.
        for _ in 0..TRIES {
            let look = |store: &mut Store| self.prepare(store, path, (attributes, size), expect);
            let ready = scripted.step(&call, look)?;
            conflict = ready.conflict.or(conflict);
            announce(&ready.found)?;
            let by_link = self.is_named_by_link(path);
            let take = |store: &mut Store| self.take(store, path, ready.present, by_link);
            let mut taken = scripted.step(&call, take)?;
            if taken.is_some() && by_link {
                // Whoever dies here leaves it both names.
                scripted.observe(&Call::new(Operation::Discard, path))?;
                let drop = |store: &mut Store| {
                    store.drop_staged(self.key);
                    Ok(store.fingerprint(self.handle.inode))
                };
                taken = Some(scripted.step(&call, drop)?);
            }
            if let Some(fingerprint) = taken {
                return scripted.answer(&call, Published { fingerprint, conflict });
            }
        }
        Err(refused(&call, Errno::BUSY))
    }

    fn discard(self: Box<Self>) {
        // Nobody is told of a failure: then it stays there.
        let _ = self.handle.act(Operation::Discard, 0, |store| {
            store.drop_staged(self.key);
            Ok(())
        });
    }
}

impl Store {
    /// Goes on with what is staged, or begins anew; gives what it held, and the size from before.
    pub(super) fn stage(&mut self, key: StagingKey) -> (u64, Option<u64>) {
        let there = self.staging.get(&key).copied();
        // A second name would show whatever is written.
        let usable = there.filter(|inode| self.node(*inode).names == 1);
        let resumed =
            usable.and_then(|inode| Some((inode, self.node(inode).pages().map(Pages::size)?)));
        let inode = resumed.map_or_else(
            || self.make(Content::File(Pages::default()), PRIVATE),
            |(inode, _)| inode,
        );
        let now_ns = self.now_ns;
        let node = self.node_mut(inode);
        (node.mode, node.changed_ns) = (PRIVATE, now_ns);
        self.put_staged(key, inode);
        self.hold(inode);
        (inode, resumed.map(|(_, size)| size))
    }

    /// Makes what has a name of ours its staged version again.
    pub(super) fn take_back(&mut self, place: &Place, key: StagingKey) -> rustix::io::Result<()> {
        let inode = self.at(place).ok_or(Errno::NOENT)?;
        if self.node(inode).list().is_some() {
            return Err(Errno::ISDIR);
        }
        self.put_staged(key, inode);
        self.leave(place);
        Ok(())
    }

    /// Removes what an instance staged.
    pub(super) fn clean(&mut self, instance: InstanceId) {
        let keys: Vec<_> = self.staging.keys().filter(|key| key.0 == instance).copied().collect();
        keys.into_iter().for_each(|key| self.drop_staged(key));
    }

    /// Makes this the staged version, if it is not.
    fn put_staged(&mut self, key: StagingKey, inode: u64) {
        if self.staging.get(&key) != Some(&inode) {
            self.node_mut(inode).names += 1;
            self.drop_staged(key);
            self.staging.insert(key, inode);
        }
    }

    fn drop_staged(&mut self, key: StagingKey) {
        if let Some(inode) = self.staging.remove(&key) {
            self.lose(inode);
        }
    }

    /// Gives what has the name another one, unless it is what is expected or replacing it loses
    /// nothing.
    fn keep_foreign(
        &mut self,
        place: &Place,
        ours: u64,
        expect: Option<Fingerprint>,
    ) -> rustix::io::Result<Option<Vec<u8>>> {
        let Some(there) = self.at(place) else { return Ok(None) };
        if self.node(there).list().is_some() {
            return self.set_aside(place).map(Some);
        }
        if expect == Some(self.fingerprint(there)) || self.has_the_bytes(ours, there) {
            return Ok(None);
        }
        self.keep_aside(place, there).map(Some)
    }
}
