//! What a test's script does to a store as somebody else than the server, and how it looks at what
//! is there. No observer hears of any of it.
//!
//! What else somebody may do there, a handle that is not observed does as a
//! [`Backing`](super::super::Backing).

use std::collections::BTreeMap;

use rustix::io::Errno;
use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};

use super::super::beneath::beside;
use super::call::{Call, Operation};
use super::node::Content;
use super::pages::Pages;
use super::store::{Store, check};
use super::{Found, Scripted};

/// Mode of a file that somebody else makes, and of a directory.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// What is in something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All bytes of a file, holes as zeros.
    File(Vec<u8>),
    /// Of a directory nothing: what is in it has paths of its own.
    Directory,
    /// The target of a symbolic link.
    Symlink(Vec<u8>),
    /// Of a FIFO nothing.
    Fifo,
}

/// Pages of a file that are not all zeros, by their number.
pub type Filled = BTreeMap<u64, Vec<u8>>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As [`Source::stat`](super::Source::stat) says. Names of one file have one inode number.
    pub found: Found,
    /// What is in it.
    pub body: Body,
    /// Its extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Scripted {
    /// Puts a new file with these bytes at a path, over a file that is there, as an editor does;
    /// directories on the way are made.
    ///
    /// # Errors
    /// As of a [`Backing`](super::super::Backing), also in what follows; `IsDirectory` over a
    /// directory.
    pub fn put(&self, path: &[u8], bytes: &[u8]) -> Result<Fingerprint> {
        self.script(Operation::Rename, path, |store| store.put(path, bytes))
    }

    /// Writes into the file at a path, as a program that has it open does.
    ///
    /// # Errors
    /// `NotFound` if nothing is there, `Invalid` if no file is.
    pub fn overwrite(&self, path: &[u8], offset: u64, bytes: &[u8]) -> Result<Fingerprint> {
        self.script(Operation::Write, path, |store| {
            let (inode, now_ns) = (store.find(path)?, store.now_ns);
            store.pages_mut(inode)?.write(offset, bytes);
            store.node_mut(inode).modified(now_ns);
            Ok(store.fingerprint(inode))
        })
    }

    /// Removes what is at a path, a directory with all that is in it.
    ///
    /// # Errors
    /// `NotFound` if nothing is there, `Busy` for the root.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        self.script(Operation::Unlink, path, |store| {
            store.place(path)?;
            let gone = store.below(path)?;
            gone.keys().rev().try_for_each(|path| {
                let place = store.place(path)?;
                store.leave(&place);
                Ok(())
            })
        })
    }

    /// What is at a path; `None` if nothing.
    pub fn look(&self, path: &[u8]) -> Option<Seen> {
        let store = self.lock();
        store.find(path).ok().map(|inode| store.seen(inode))
    }

    /// All there is, by path, but the root. What is staged has no path.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, Seen> {
        let store = self.lock();
        let mut below = store.below(b"").unwrap_or_default();
        below.remove(&b""[..]);
        below.into_iter().map(|(path, inode)| (path, store.seen(inode))).collect()
    }

    /// Every file there is, by path: how it is, and its pages that are not all zeros, by number.
    pub fn files(&self) -> BTreeMap<Vec<u8>, (Found, Filled)> {
        let store = self.lock();
        let below = store.below(b"").unwrap_or_default();
        let file = |(path, inode): (Vec<u8>, u64)| {
            let filled = store.node(inode).pages()?.filled();
            Some((path, (store.found(inode), filled)))
        };
        below.into_iter().filter_map(file).collect()
    }

    /// All that is neither a file nor a directory, by path.
    pub fn specials(&self) -> BTreeMap<Vec<u8>, Body> {
        let store = self.lock();
        let below = store.below(b"").unwrap_or_default().into_iter();
        let special = |(path, inode)| match &store.node(inode).content {
            Content::File(_) | Content::Directory(_) => None,
            Content::Symlink(target) => Some((path, Body::Symlink(target.clone()))),
            Content::Fifo => Some((path, Body::Fifo)),
        };
        below.filter_map(special).collect()
    }

    /// Every directory there is, by path, but the root.
    pub fn directories(&self) -> Vec<Vec<u8>> {
        let store = self.lock();
        let below = store.below(b"").unwrap_or_default().into_iter();
        let inner =
            below.filter(|(path, inode)| !path.is_empty() && store.node(*inode).list().is_some());
        inner.map(|(path, _)| path).collect()
    }

    /// Whether something is at a path.
    pub fn has(&self, path: &[u8]) -> bool {
        self.lock().find(path).is_ok()
    }

    /// What is staged and not published, for which file of which instance.
    pub fn staged(&self) -> BTreeMap<(InstanceId, Ino), Seen> {
        let store = self.lock();
        store.staging.iter().map(|(key, inode)| (*key, store.seen(*inode))).collect()
    }

    fn script<T>(
        &self,
        operation: Operation,
        path: &[u8],
        act: impl FnOnce(&mut Store) -> rustix::io::Result<T>,
    ) -> Result<T> {
        self.step(&Call::new(operation, path), act)
    }
}

impl Store {
    fn put(&mut self, path: &[u8], bytes: &[u8]) -> rustix::io::Result<Fingerprint> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        check(path)?;
        for (end, _) in slashes {
            let above = self.place(&path[..end])?;
            if self.at(&above).is_none() {
                self.make_at(&above, Content::Directory(BTreeMap::new()), DIRECTORY_MODE);
            }
        }
        let place = self.place(path)?;
        if self.at(&place).is_some_and(|there| self.node(there).list().is_some()) {
            return Err(Errno::ISDIR);
        }
        let mut pages = Pages::default();
        pages.write(0, bytes);
        let inode = self.make_at(&place, Content::File(pages), FILE_MODE);
        Ok(self.fingerprint(inode))
    }

    /// What is at a path and below it, in order: a directory before what is in it.
    fn below(&self, path: &[u8]) -> rustix::io::Result<BTreeMap<Vec<u8>, u64>> {
        let mut found = BTreeMap::new();
        let mut left = vec![(path.to_vec(), self.find(path)?)];
        while let Some((path, inode)) = left.pop() {
            for (name, inode) in self.node(inode).list().into_iter().flatten() {
                left.push((beside(&path, name), *inode));
            }
            found.insert(path, inode);
        }
        Ok(found)
    }

    fn seen(&self, inode: u64) -> Seen {
        let node = self.node(inode);
        let body = match &node.content {
            Content::File(pages) => Body::File(pages.all()),
            Content::Directory(_) => Body::Directory,
            Content::Symlink(target) => Body::Symlink(target.clone()),
            Content::Fifo => Body::Fifo,
        };
        Seen { found: self.found(inode), body, xattrs: node.xattrs.clone() }
    }
}
