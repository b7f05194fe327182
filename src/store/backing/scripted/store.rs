//! All that a scripted store has, and the steps of which every operation is made: finding what a
//! path names, giving a name, taking one away. What has neither name nor handle left is gone.
//!
//! Errors are those of Linux, and a step that fails has changed nothing.

use std::collections::BTreeMap;

use rustix::io::Errno;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::Kind;

use super::super::beneath::{beside, split};
use super::super::{Found, Touched, check_path};
use super::node::{Content, Node};
use super::pages::Pages;

/// The root directory's inode number.
const ROOT: u64 = 1;

/// Which instance stages a version of which of its files.
pub(super) type StagingKey = (InstanceId, Ino);

/// Everything there is.
#[derive(Debug)]
pub(super) struct Store {
    nodes: BTreeMap<u64, Node>,
    pub(super) staging: BTreeMap<StagingKey, u64>,
    /// The next inode number; none is used twice.
    next: u64,
    /// When what is done now is done.
    pub(super) now_ns: u64,
    /// Who owns what is made now; `None`: who owns the root.
    pub(super) owner: Option<u32>,
}

/// A name, whether there is something or not.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Place {
    directory: u64,
    within: Vec<u8>,
    pub(super) name: Vec<u8>,
}

/// Refuses what is not a path within a store.
pub(super) fn check(path: &[u8]) -> rustix::io::Result<()> {
    check_path(path).map_err(|error| Errno::from_raw_os_error(error.to_errno()))
}

impl Place {
    /// Another name in the same directory.
    pub(super) fn beside(&self, name: &[u8]) -> Self {
        Place { name: name.to_vec(), ..self.clone() }
    }

    pub(super) fn path(&self) -> Vec<u8> {
        beside(&self.within, &self.name)
    }
}

impl Store {
    /// The bytes of the file at a path, to be read.
    pub(super) fn readable(&self, path: &[u8]) -> rustix::io::Result<&Pages> {
        match &self.node(self.find(path)?).content {
            Content::File(pages) => Ok(pages),
            Content::Directory(_) => Err(Errno::ISDIR),
            Content::Symlink(_) => Err(Errno::LOOP),
            Content::Fifo => Err(Errno::OPNOTSUPP),
        }
    }

    /// An empty directory.
    pub(super) fn new(now_ns: u64) -> Self {
        let mut root = Node::new(Content::Directory(BTreeMap::new()), 0o755, now_ns);
        root.names = 1;
        let nodes = BTreeMap::from([(ROOT, root)]);
        Store { nodes, staging: BTreeMap::new(), next: ROOT + 1, now_ns, owner: None }
    }

    /// What has this inode number, which came from a name or a handle.
    pub(super) fn node(&self, inode: u64) -> &Node {
        &self.nodes[&inode]
    }

    pub(super) fn node_mut(&mut self, inode: u64) -> &mut Node {
        self.nodes.get_mut(&inode).expect("names and handles lead to nodes")
    }

    /// Inode number of what is at `path`.
    pub(super) fn find(&self, path: &[u8]) -> rustix::io::Result<u64> {
        check(path)?;
        let mut at = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = *self.names(at)?.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The names in a directory.
    pub(super) fn names(&self, directory: u64) -> rustix::io::Result<&BTreeMap<Vec<u8>, u64>> {
        self.node(directory).list().ok_or(Errno::NOTDIR)
    }

    /// The place `path`, in a directory that there is.
    pub(super) fn place(&self, path: &[u8]) -> rustix::io::Result<Place> {
        check(path)?;
        let (within, name) = split(path);
        if name.is_empty() {
            return Err(Errno::BUSY);
        }
        let directory = self.find(within)?;
        self.names(directory)?;
        Ok(Place { directory, within: within.to_vec(), name: name.to_vec() })
    }

    /// What is there.
    pub(super) fn at(&self, place: &Place) -> Option<u64> {
        self.node(place.directory).list().and_then(|names| names.get(&place.name)).copied()
    }

    /// The bytes of a file.
    pub(super) fn pages_mut(&mut self, inode: u64) -> rustix::io::Result<&mut Pages> {
        match &mut self.node_mut(inode).content {
            Content::File(pages) => Ok(pages),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes something that has no name yet and belongs to whoever the root belongs to.
    pub(super) fn make(&mut self, content: Content, mode: u32) -> u64 {
        let root = self.node(ROOT);
        let own = (root.uid, root.gid);
        let (uid, gid) = self.owner.map_or(own, |owner| (owner, owner));
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, Node { uid, gid, ..Node::new(content, mode, self.now_ns) });
        inode
    }

    /// Makes something at a place, over what may be replaced.
    pub(super) fn make_at(&mut self, place: &Place, content: Content, mode: u32) -> u64 {
        let inode = self.make(content, mode);
        let above = self.node(place.directory);
        if above.mode & 0o2000 != 0 {
            self.node_mut(inode).gid = above.gid;
        }
        self.enter(place, inode);
        inode
    }

    /// Gives a name, which what had it before loses.
    pub(super) fn enter(&mut self, place: &Place, inode: u64) {
        let now_ns = self.now_ns;
        let node = self.node_mut(inode);
        node.names += 1;
        node.changed_ns = now_ns;
        if let Some(before) = self.put_name(place, Some(inode)) {
            self.lose(before);
        }
    }

    /// Takes a name away.
    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(before) = self.put_name(place, None) {
            self.lose(before);
        }
    }

    /// Writes into a directory; gives what was there.
    fn put_name(&mut self, place: &Place, inode: Option<u64>) -> Option<u64> {
        let now_ns = self.now_ns;
        let directory = self.node_mut(place.directory);
        directory.modified(now_ns);
        let Content::Directory(names) = &mut directory.content else {
            unreachable!("a place is in a directory");
        };
        match inode {
            Some(inode) => names.insert(place.name.clone(), inode),
            None => names.remove(&place.name),
        }
    }

    /// One name less leads here.
    pub(super) fn lose(&mut self, inode: u64) {
        let now_ns = self.now_ns;
        let node = self.node_mut(inode);
        node.names -= 1;
        node.changed_ns = now_ns;
        self.reap(inode);
    }

    /// Keeps something, also without a name.
    pub(super) fn hold(&mut self, inode: u64) {
        self.node_mut(inode).handles += 1;
    }

    /// Ends a [`Store::hold`].
    pub(super) fn release(&mut self, inode: u64) {
        self.node_mut(inode).handles -= 1;
        self.reap(inode);
    }

    fn reap(&mut self, inode: u64) {
        let node = self.node(inode);
        if node.names == 0 && node.handles == 0 {
            self.nodes.remove(&inode);
        }
    }

    pub(super) fn fingerprint(&self, inode: u64) -> Fingerprint {
        self.node(inode).fingerprint(inode)
    }

    /// How it looks.
    pub(super) fn found(&self, inode: u64) -> Found {
        let mut attributes = self.node(inode).attributes();
        if let Some(names) = self.node(inode).list() {
            let directories = names.values().filter(|i| self.node(**i).kind() == Kind::Directory);
            attributes.links = 2 + directories.count() as u32;
        }
        Found { attributes, fingerprint: self.fingerprint(inode) }
    }

    /// Does something, and says how what has this inode number looks before and after.
    pub(super) fn touching(
        &mut self,
        inode: u64,
        act: impl FnOnce(&mut Self) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<Touched> {
        let (before, modified_ns) = (self.fingerprint(inode), self.node(inode).modified_ns);
        act(self)?;
        Ok(Touched { before, after: self.fingerprint(inode), modified_ns })
    }

    /// Bytes and names in use.
    pub(super) fn used(&self) -> (u64, u64) {
        let held = self.nodes.values().filter_map(Node::pages).map(Pages::held_bytes);
        (held.sum(), self.nodes.len() as u64)
    }
}
