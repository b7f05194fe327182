//! The namespace: inodes, names, and the name operations the backing is owed.
//!
//! It changes only by [`Names::apply`], from records: what is replayed after a restart is what ran
//! before. Nothing here does I/O; looking into the backing is `lookup`'s.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

use terral_format::ids::{FileSlot, Ino, Lsn, ROOT};
use terral_format::message::{Attributes, Change, Kind};
use terral_format::record::{Fingerprint, InodeImage, NameOperation, Record};

/// What the server knows of a file or directory.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Attributes; of an attached file, size and times are in its header.
    pub attributes: Attributes,
    /// Where its name is; `None` once removed.
    pub name: Option<(Ino, Box<[u8]>)>,
    /// Its record in shared memory.
    pub slot: Option<FileSlot>,
    /// How the backing's copy under its name looks, if there is one.
    pub published: Option<Fingerprint>,
    /// The backing's copy is to be replaced whole.
    pub rewritten: bool,
    /// A directory that was there before us: names we do not know may be in the backing.
    pub overlay: bool,
    /// Descriptions.
    pub opens: u32,
    /// Descriptions that may write.
    pub writers: u32,
    /// Bytes below this without a chunk lie in the backing.
    pub backed_bytes: u64,
    /// An update in place of the backing's copy was begun and not finished.
    pub intent: bool,
}

/// What a name of a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// This inode.
    Here(Ino),
    /// Nothing, though the backing still has it until this operation is done there.
    Gone(Lsn),
}

/// A hidden name: until which operation is done, where, and the name.
type Gone = (Lsn, Ino, Box<[u8]>);

/// All names of one server.
pub struct Names {
    inodes: HashMap<Ino, Inode>,
    entries: BTreeMap<(Ino, Box<[u8]>), Entry>,
    owed: VecDeque<(Lsn, NameOperation)>,
    gone: VecDeque<Gone>,
    ordinal: Lsn,
    next_ino: Ino,
    has_backing: bool,
}

impl Names {
    /// A root directory and nothing else.
    pub fn new(root: Attributes, has_backing: bool) -> Self {
        let mut inodes = HashMap::new();
        let mut inode = Inode::new(root);
        inode.overlay = has_backing;
        inodes.insert(ROOT, inode);
        Names {
            inodes,
            entries: BTreeMap::new(),
            owed: VecDeque::new(),
            gone: VecDeque::new(),
            ordinal: Lsn(0),
            next_ino: Ino(ROOT.0 + 1),
            has_backing,
        }
    }

    /// The number the next new file gets.
    pub fn next_ino(&self) -> Ino {
        self.next_ino
    }

    /// An inode.
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// An inode, to change what is not logged, or by [`Names::apply`]'s siblings for other tables.
    pub fn inode_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino)
    }

    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = (&Ino, &Inode)> {
        self.inodes.iter()
    }

    /// Files and directories there are.
    pub fn count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// What `name` stands for in `directory`; `None` if only the backing can tell.
    pub fn entry(&self, directory: Ino, name: &[u8]) -> Option<Entry> {
        self.entries.get(&(directory, name.into())).copied()
    }

    /// Entries of `directory` after `after`, in order.
    pub fn entries_after(
        &self,
        directory: Ino,
        after: &[u8],
    ) -> impl Iterator<Item = (&[u8], Entry)> {
        let from = Bound::Excluded((directory, Box::from(after)));
        let to = Bound::Excluded((Ino(directory.0 + 1), Box::from(&[][..])));
        self.entries.range((from, to)).map(|((_, name), entry)| (&name[..], *entry))
    }

    /// The path of an inode, relative to the root; `None` if it has none any more.
    pub fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = self.inodes.get(&at)?.name.as_ref()?;
            parts.push(name);
            at = *parent;
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }

    /// Where the backing has what we call `path` now, as long as renames are owed.
    pub fn backing_path(&self, path: &[u8]) -> Vec<u8> {
        let mut path = path.to_vec();
        for (_, operation) in self.owed.iter().rev() {
            if let NameOperation::Rename { from, to, .. } = operation
                && let Some(rest) = path.strip_prefix(&to[..])
                && (rest.is_empty() || rest[0] == b'/')
            {
                path = [from, rest].concat();
            }
        }
        path
    }

    /// Name operations the backing is owed, in order.
    pub fn owed(&self) -> &VecDeque<(Lsn, NameOperation)> {
        &self.owed
    }

    /// Forgets a nameless inode.
    pub fn forget(&mut self, ino: Ino) -> Option<Inode> {
        debug_assert!(self.inodes.get(&ino).is_none_or(|inode| inode.name.is_none()));
        self.inodes.remove(&ino)
    }

    /// Applies one record; those that are not about names change nothing here. Gives the inode that
    /// lost its name by it, if one did.
    pub fn apply(&mut self, record: &Record) -> Option<Ino> {
        match record {
            Record::Made { parent, name, attributes } => {
                self.insert(*parent, name, Inode::new(*attributes));
                if attributes.kind == Kind::Directory {
                    let path = self.path(attributes.ino)?;
                    self.owe(NameOperation::MakeDirectory { path, mode: attributes.mode });
                }
                None
            }
            Record::Adopted { parent, name, attributes, fingerprint } => {
                let mut inode = Inode::new(*attributes);
                inode.published = Some(*fingerprint);
                inode.overlay = attributes.kind == Kind::Directory;
                inode.backed_bytes = attributes.size;
                self.insert(*parent, name, inode);
                None
            }
            Record::Renamed { parent, name, to_parent, to_name, time_ns } => {
                self.rename((*parent, name), (*to_parent, to_name), *time_ns)
            }
            Record::Removed { parent, name, time_ns } => self.remove(*parent, name, *time_ns),
            Record::Changed { ino, change, time_ns } => {
                self.change(*ino, change, *time_ns);
                None
            }
            Record::NamesDrained(ordinal) => {
                self.drained(*ordinal);
                None
            }
            Record::Inode(image) => {
                self.restore(image);
                None
            }
            Record::Owed { lsn, operation } => {
                self.ordinal = self.ordinal.max(*lsn);
                self.owed.push_back((*lsn, operation.clone()));
                None
            }
            Record::Hidden { lsn, parent, name } => {
                let key = (*parent, name.as_slice().into());
                self.entries.entry(key).or_insert(Entry::Gone(*lsn));
                self.gone.push_back((*lsn, *parent, name.as_slice().into()));
                None
            }
            Record::Counters { next_ino, lsn, .. } => {
                self.next_ino = self.next_ino.max(*next_ino);
                self.ordinal = self.ordinal.max(*lsn);
                None
            }
            other => {
                self.apply_to_inode(other);
                None
            }
        }
    }

    fn apply_to_inode(&mut self, record: &Record) {
        let (Record::Rewritten { ino }
        | Record::BackedTo { ino, .. }
        | Record::Attached { ino, .. }
        | Record::Detached { ino, .. }
        | Record::Intent { ino }
        | Record::Published { ino, .. }) = record
        else {
            return;
        };
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        match record {
            Record::Rewritten { .. } => {
                inode.rewritten = true;
                inode.backed_bytes = 0;
            }
            Record::Intent { .. } => inode.intent = true,
            Record::BackedTo { size, .. } => inode.backed_bytes = *size,
            Record::Attached { slot, .. } => inode.slot = Some(*slot),
            Record::Detached { size, modified_ns, .. } => {
                inode.slot = None;
                inode.attributes.size = *size;
                inode.attributes.modified_ns = *modified_ns;
            }
            Record::Published { fingerprint, .. } => {
                inode.published = Some(*fingerprint);
                inode.rewritten = false;
                inode.intent = false;
            }
            _ => {}
        }
    }

    fn insert(&mut self, parent: Ino, name: &[u8], mut inode: Inode) {
        let ino = inode.attributes.ino;
        self.next_ino = self.next_ino.max(Ino(ino.0 + 1));
        inode.name = Some((parent, name.into()));
        if inode.attributes.kind == Kind::Directory {
            self.count_link(parent, 1);
        }
        self.inodes.insert(ino, inode);
        self.entries.insert((parent, name.into()), Entry::Here(ino));
    }

    fn count_link(&mut self, directory: Ino, change: i32) {
        if let Some(inode) = self.inodes.get_mut(&directory) {
            inode.attributes.links = inode.attributes.links.saturating_add_signed(change);
        }
    }

    fn owe(&mut self, operation: NameOperation) -> Option<Lsn> {
        if !self.has_backing {
            return None;
        }
        self.ordinal.0 += 1;
        self.owed.push_back((self.ordinal, operation));
        Some(self.ordinal)
    }

    fn touch(&mut self, directory: Ino, time_ns: u64) {
        if let Some(inode) = self.inodes.get_mut(&directory) {
            inode.attributes.modified_ns = time_ns;
            inode.attributes.changed_ns = time_ns;
        }
    }

    /// Takes `name` away; the backing's name is hidden until `owed` is done there.
    fn clear(&mut self, parent: Ino, name: &[u8], owed: Option<Lsn>) {
        let key = (parent, Box::from(name));
        match owed {
            Some(ordinal) => {
                self.entries.insert(key, Entry::Gone(ordinal));
                self.gone.push_back((ordinal, parent, name.into()));
            }
            // The backing may still have what had this name before.
            None => match self.gone.iter().rev().find(|(_, of, n)| (*of, n) == (key.0, &key.1)) {
                Some((ordinal, ..)) => {
                    let entry = Entry::Gone(*ordinal);
                    self.entries.insert(key, entry);
                }
                None => {
                    self.entries.remove(&key);
                }
            },
        }
    }

    fn remove(&mut self, parent: Ino, name: &[u8], time_ns: u64) -> Option<Ino> {
        let Some(Entry::Here(ino)) = self.entry(parent, name) else { return None };
        let path = self.path(ino)?;
        let inode = self.inodes.get(&ino)?;
        let directory = inode.attributes.kind == Kind::Directory;
        let known = directory || inode.published.is_some();
        let operation = if directory {
            NameOperation::RemoveDirectory { path }
        } else {
            NameOperation::Unlink { path }
        };
        let owed = if known { self.owe(operation) } else { None };
        self.clear(parent, name, owed);
        self.touch(parent, time_ns);
        if directory {
            self.count_link(parent, -1);
        }
        self.unname(ino, time_ns)
    }

    fn unname(&mut self, ino: Ino, time_ns: u64) -> Option<Ino> {
        let inode = self.inodes.get_mut(&ino)?;
        inode.name = None;
        inode.attributes.links = 0;
        inode.attributes.changed_ns = time_ns;
        Some(ino)
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), time_ns: u64) -> Option<Ino> {
        let Some(Entry::Here(ino)) = self.entry(from.0, from.1) else { return None };
        let old_path = self.path(ino)?;
        let replaced = match self.entry(to.0, to.1) {
            Some(Entry::Here(there)) if there != ino => Some(there),
            _ => None,
        };
        let inode = self.inodes.get(&ino)?;
        let directory = inode.attributes.kind == Kind::Directory;
        let known = directory || (inode.published.is_some() && !inode.rewritten);
        // What the backing has under the old name of a rewritten file is not to be seen again.
        let outdated = inode.published.is_some() && inode.rewritten;
        let inherited = replaced.and_then(|there| self.inodes.get(&there)?.published);

        self.entries.insert((to.0, to.1.into()), Entry::Here(ino));
        if directory {
            self.count_link(from.0, -1);
            self.count_link(to.0, 1);
        }
        let inode = self.inodes.get_mut(&ino)?;
        inode.name = Some((to.0, to.1.into()));
        inode.attributes.changed_ns = time_ns;
        if !known {
            // The backing's file of the new name stays until ours takes its place, whole.
            inode.published = inherited;
            inode.rewritten = inherited.is_some();
        }
        let new_path = self.path(ino)?;
        let owed = if known {
            self.owe(NameOperation::Rename { from: old_path, to: new_path, ino })
        } else if outdated {
            self.owe(NameOperation::Unlink { path: old_path })
        } else {
            None
        };
        self.clear(from.0, from.1, owed);
        self.touch(from.0, time_ns);
        self.touch(to.0, time_ns);
        let there = replaced?;
        if self.inodes.get(&there)?.attributes.kind == Kind::Directory {
            self.count_link(to.0, -1);
        }
        self.unname(there, time_ns)
    }

    fn change(&mut self, ino: Ino, change: &Change, time_ns: u64) {
        let path = self.path(ino);
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let attributes = &mut inode.attributes;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.accessed_ns = change.accessed_ns.unwrap_or(attributes.accessed_ns);
        attributes.modified_ns = change.modified_ns.unwrap_or(attributes.modified_ns);
        attributes.changed_ns = time_ns;
        let known = attributes.kind == Kind::Directory || inode.published.is_some();
        if let (Some(path), true) = (path, known) {
            self.owe(NameOperation::Change { path, change: *change });
        }
    }

    fn drained(&mut self, ordinal: Lsn) {
        while self.owed.front().is_some_and(|(at, _)| *at <= ordinal) {
            self.owed.pop_front();
        }
        while self.gone.front().is_some_and(|(at, ..)| *at <= ordinal) {
            let Some((at, parent, name)) = self.gone.pop_front() else { break };
            let key = (parent, name);
            if self.entries.get(&key) == Some(&Entry::Gone(at)) {
                self.entries.remove(&key);
            }
        }
    }

    // Snapshots.

    /// Records from which [`Names::apply`] makes the same names again.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.inodes.len() + self.owed.len());
        for inode in self.inodes.values() {
            records.push(Record::Inode(InodeImage {
                attributes: inode.attributes,
                name: inode.name.as_ref().map(|(parent, name)| (*parent, name.to_vec())),
                slot: inode.slot,
                published: inode.published,
                rewritten: inode.rewritten,
                backed_bytes: inode.backed_bytes,
                overlay: inode.overlay,
            }));
            if inode.intent {
                records.push(Record::Intent { ino: inode.attributes.ino });
            }
        }
        for (lsn, operation) in &self.owed {
            records.push(Record::Owed { lsn: *lsn, operation: operation.clone() });
        }
        for (lsn, parent, name) in &self.gone {
            records.push(Record::Hidden { lsn: *lsn, parent: *parent, name: name.to_vec() });
        }
        records
    }

    /// Ordinal of the newest owed operation.
    pub fn ordinal(&self) -> Lsn {
        self.ordinal
    }

    fn restore(&mut self, image: &InodeImage) {
        let ino = image.attributes.ino;
        let mut inode = Inode::new(image.attributes);
        inode.slot = image.slot;
        inode.published = image.published;
        inode.rewritten = image.rewritten;
        inode.backed_bytes = image.backed_bytes;
        inode.overlay = image.overlay;
        if let Some((parent, name)) = &image.name {
            inode.name = Some((*parent, name.as_slice().into()));
            self.entries.insert((*parent, name.as_slice().into()), Entry::Here(ino));
        }
        self.next_ino = self.next_ino.max(Ino(ino.0 + 1));
        self.inodes.insert(ino, inode);
    }
}

impl Inode {
    fn new(attributes: Attributes) -> Self {
        Inode {
            attributes,
            name: None,
            slot: None,
            published: None,
            rewritten: false,
            overlay: false,
            opens: 0,
            writers: 0,
            backed_bytes: 0,
            intent: false,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }
}
