//! The namespace: inodes, names, and the name operations the backing is owed.
//!
//! It changes only by [`Names::apply`], from records: what is replayed after a restart is what ran
//! before. Inodes and names lie in shared memory, where clients read them. Nothing here does I/O;
//! looking into the backing is `lookup`'s, what a change of names entails is `changes`', and what
//! the backing has meanwhile under names that are gone is `hidden`'s.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use terral_format::Result;
use terral_format::disk::facts::{Fact, InodeImage};
use terral_format::disk::local::{Local, Publishing};
use terral_format::disk::{NameOperation, Record};
use terral_format::fingerprint::Object;
use terral_format::ids::{Ino, Lsn, ROOT};
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::{Attributes, Change, Kind};
use terral_store::inodes::Inodes;
use terral_store::memory::Memory;

use crate::naming::hidden::Hidden;

/// What a name of a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// This inode.
    Here(Ino),
    /// Nothing, though the backing still has it until this operation is done there.
    Gone(Lsn),
}

/// Who has a file open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Openers {
    /// Descriptions.
    pub all: u32,
    /// Descriptions that may write.
    pub writers: u32,
}

/// Whether the backing has an inode under its names as soon as all that is owed is done.
pub(crate) fn is_known(inode: &Inode) -> bool {
    let whole = inode.published.is_some() && !inode.is(flag::REWRITTEN);
    // Sockets never get there: their programs end with the machine, if not before.
    inode.kind != Kind::Socket && (inode.kind != Kind::File || whole)
}

/// All names of one server.
pub struct Names {
    pub(crate) inodes: Inodes,
    openers: FxHashMap<Ino, Openers>,
    /// Further names of files that have some.
    pub(crate) aliases: HashMap<Ino, Vec<Ino>>,
    /// Who has taken a file's place in the backing, as long as it is not published there.
    pub(crate) heirs: HashMap<Ino, Ino>,
    pub(crate) hidden: Hidden,
    pub(crate) owed: VecDeque<(Lsn, NameOperation)>,
    ordinal: Lsn,
    /// The exchange that was begun in the backing, and what had the first name before.
    exchanging: Option<(Lsn, Object)>,
    /// Whole versions of which it is not known whether they have got their names.
    publishing: BTreeMap<Ino, Publishing>,
    /// The next operation may have been done by a server that died.
    resumed: bool,
    bound: Ino,
    /// Files in hand.
    pub(crate) spares: u64,
    has_backing: bool,
    /// Whose is what nobody has made yet: user and group.
    pub(crate) own: (u32, u32),
}

impl Names {
    /// A root directory and nothing else; `own`: user and group of the server.
    pub fn new(memory: Arc<Memory>, root: &Attributes, has_backing: bool, own: (u32, u32)) -> Self {
        let mut inodes = Inodes::new(memory);
        let mut inode = Inode::new(root);
        if has_backing {
            inode.flags |= flag::OVERLAY;
        }
        inodes.insert(inode, (ROOT, b""), b"");
        Names {
            inodes,
            openers: FxHashMap::default(),
            aliases: HashMap::new(),
            heirs: HashMap::new(),
            hidden: Hidden::default(),
            owed: VecDeque::new(),
            ordinal: Lsn(0),
            exchanging: None,
            publishing: BTreeMap::new(),
            resumed: false,
            bound: Ino(0),
            spares: 0,
            has_backing,
            own,
        }
    }

    /// Lets clients read the table; see [`Inodes::show`].
    pub fn show(&self, epoch: u64) {
        self.inodes.show(epoch);
    }

    /// Whether all that was to be put into the table found memory, in a replay.
    pub fn check(&self) -> Result<()> {
        self.inodes.failed().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Makes sure that the next names find memory.
    pub fn reserve(&mut self) -> Result<()> {
        self.inodes.reserve()
    }

    /// How many numbers there are for new files.
    pub fn left(&self) -> u32 {
        self.inodes.left()
    }

    /// The number the next new file gets.
    pub fn next_ino(&self) -> Ino {
        self.inodes.next_ino()
    }

    /// What must be remembered of the numbers of files that are no more.
    pub fn bound(&self) -> Ino {
        self.inodes.bound()
    }

    /// An inode.
    pub fn inode(&self, ino: Ino) -> Option<Inode> {
        self.inodes.get(ino).filter(|inode| !inode.is(flag::ALIAS))
    }

    /// What clients may act upon without asking, and what another server would know nothing of:
    /// they do not see it before it is written. See [`Names::release`].
    pub fn hold(&mut self, record: &Record) {
        match record {
            Record::Fact(Fact::Adopted { attributes, .. }) => self.inodes.hold(attributes.ino),
            Record::Local(Local::Attached { ino, .. }) => self.inodes.hold(*ino),
            _ => {}
        }
    }

    /// All is written.
    pub fn release(&mut self) {
        self.inodes.release();
    }

    /// Changes what is not logged of an inode.
    pub fn update(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        self.inodes.update(ino, change);
    }

    /// Who has a file open.
    pub fn openers(&self, ino: Ino) -> Openers {
        self.openers.get(&ino).copied().unwrap_or_default()
    }

    /// Whether somebody has a file open who may write.
    pub fn is_written(&self, ino: Ino) -> bool {
        self.openers(ino).writers > 0
    }

    /// Whether somebody else changed the backing's copy of a file.
    pub fn is_contested(&self, ino: Ino) -> bool {
        self.inode(ino).is_some_and(|inode| inode.is(flag::CONTESTED))
    }

    /// One description more, or less.
    pub fn count_open(&mut self, ino: Ino, writes: bool, change: i32) {
        let mut found = match self.openers.entry(ino) {
            Place::Occupied(found) => found,
            Place::Vacant(place) => place.insert_entry(Openers::default()),
        };
        let openers = found.get_mut();
        openers.all = openers.all.saturating_add_signed(change);
        if writes {
            openers.writers = openers.writers.saturating_add_signed(change);
        }
        if openers.all == 0 {
            found.remove();
        }
    }

    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.inodes.iter().filter(|inode| !inode.is(flag::ALIAS))
    }

    /// Files, directories and links there are.
    pub fn count(&self) -> u64 {
        self.inodes.count()
    }

    /// What `name` stands for in `directory`; `None` if only the backing can tell.
    pub fn entry(&self, directory: Ino, name: &[u8]) -> Option<Entry> {
        if let Some(found) = self.inodes.lookup(directory, name) {
            return Some(Entry::Here(self.file_of(&found)));
        }
        self.hidden.until((directory, name)).map(Entry::Gone)
    }

    /// The file of what may be a further name of it.
    pub(crate) fn file_of(&self, found: &Inode) -> Ino {
        if found.is(flag::ALIAS) { self.inodes.at(found.below).ino } else { found.ino }
    }

    /// Names of `directory` that are here, in no order.
    pub fn children(&self, directory: &Inode) -> impl Iterator<Item = (Vec<u8>, Inode)> {
        self.inodes.children(directory).map(|child| {
            let name = self.inodes.name(&child);
            (name, if child.is(flag::ALIAS) { self.inodes.at(child.below) } else { child })
        })
    }

    /// What a symbolic link says; of a socket, its address.
    pub fn target(&self, ino: Ino) -> Option<Vec<u8>> {
        let inode = self.inode(ino).filter(|inode| inode.kind.has_text())?;
        Some(self.inodes.target(&inode))
    }

    /// What has this name here.
    pub fn child_here(&self, directory: Ino, name: &[u8]) -> Option<Ino> {
        self.inodes.lookup(directory, name).map(|found| self.file_of(&found))
    }

    /// The path of an inode, relative to the root; `None` if it has none any more.
    pub fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        self.inodes.get(ino).and_then(|inode| self.inodes.path(index_of(inode.ino)))
    }

    /// Where the backing has what we call `path` now, as long as renames are owed.
    pub fn backing_path(&self, path: &[u8]) -> Vec<u8> {
        let mut path = path.to_vec();
        let below = |path: &[u8], top: &[u8]| {
            let rest = path.strip_prefix(top)?;
            (rest.is_empty() || rest[0] == b'/').then(|| rest.to_vec())
        };
        for (_, operation) in self.owed.iter().rev() {
            match operation {
                NameOperation::Rename { from, to, .. } => {
                    if let Some(rest) = below(&path, to) {
                        path = [&from[..], &rest].concat();
                    }
                }
                NameOperation::Link { from, to, .. } if path == *to => path.clone_from(from),
                NameOperation::Exchange { from, to, .. } => {
                    if let Some(rest) = below(&path, to) {
                        path = [&from[..], &rest].concat();
                    } else if let Some(rest) = below(&path, from) {
                        path = [&to[..], &rest].concat();
                    }
                }
                _ => {}
            }
        }
        path
    }

    /// Name operations the backing is owed, in order.
    pub fn owed(&self) -> &VecDeque<(Lsn, NameOperation)> {
        &self.owed
    }

    /// What had the first name of this exchange before it was begun, if it was.
    pub fn exchanging(&self, lsn: Lsn) -> Option<Object> {
        self.exchanging.filter(|(begun, _)| *begun == lsn).map(|(_, object)| object)
    }

    /// Whether the next owed operation may have been done by a server that died.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The next owed operation may have been done in part.
    pub fn may_be_begun(&mut self) {
        self.resumed = true;
    }

    /// The next owed operation was not begun.
    pub fn is_not_begun(&mut self) {
        self.resumed = false;
    }

    /// Where the names of the directories above `path` end in it, and their permission bits.
    pub fn modes_above(&self, path: &[u8]) -> Vec<(usize, u32)> {
        let (mut here, mut from) = (Some(ROOT), 0);
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let modes = slashes.map(|(end, _)| {
            here = here.and_then(|directory| self.child_here(directory, &path[from..end]));
            from = end + 1;
            (end, here.and_then(|ino| self.inode(ino)).map_or(0o755, |inode| inode.mode.into()))
        });
        modes.collect()
    }

    /// Who has taken a file's place in the backing.
    pub fn heir(&self, ino: Ino) -> Option<Ino> {
        self.heirs.get(&ino).copied()
    }

    /// A whole version of which it is not known whether it has got its name.
    pub fn publishing(&self) -> &BTreeMap<Ino, Publishing> {
        &self.publishing
    }

    /// It has not.
    pub fn is_unpublished(&mut self, ino: Ino) {
        self.publishing.remove(&ino);
    }

    /// Forgets a nameless inode.
    pub fn forget(&mut self, ino: Ino) {
        self.heirs.retain(|_, heir| *heir != ino);
        if let Some(inode) = self.inode(ino).filter(|inode| !inode.is(flag::NAMED)) {
            self.spares -= u64::from(inode.is(flag::SPARE));
            self.inodes.free(index_of(ino));
        }
    }

    /// Applies one fact; those that are not about names change nothing here. Gives the inode that
    /// lost its last name by it, if one did.
    pub fn apply(&mut self, fact: &Fact) -> Option<Ino> {
        match fact {
            Fact::Made { parent, name, ino, kind, mode, uid, gid, time_ns, target } => {
                let new = Attributes {
                    ino: *ino,
                    kind: *kind,
                    mode: *mode,
                    links: match kind {
                        Kind::Directory => 2,
                        _ => u32::from(!name.is_empty()),
                    },
                    uid: *uid,
                    gid: *gid,
                    size: 0,
                    accessed_ns: *time_ns,
                    modified_ns: *time_ns,
                    changed_ns: *time_ns,
                };
                self.made(*parent, name, &new, target);
                None
            }
            // The backing counts subdirectories itself.
            Fact::Adopted { parent, name, attributes, fingerprint, target } => {
                let mut inode = Inode::new(attributes);
                inode.published = Some(*fingerprint);
                inode.backed_bytes = attributes.size;
                if inode.is_directory() {
                    inode.flags |= flag::OVERLAY;
                }
                self.inodes.insert(inode, (*parent, name), target);
                None
            }
            Fact::Linked { ino, alias, parent, name, time_ns } => {
                self.linked(*ino, *alias, (*parent, name), *time_ns);
                None
            }
            Fact::Alias { ino, alias, parent, name } => {
                self.add_alias(*ino, *alias, (*parent, name));
                None
            }
            Fact::Renamed { parent, name, to_parent, to_name, time_ns } => {
                self.rename((*parent, name), (*to_parent, to_name), *time_ns)
            }
            Fact::Exchanged { parent, name, to_parent, to_name, time_ns } => {
                self.exchange((*parent, name), (*to_parent, to_name), *time_ns);
                None
            }
            Fact::Removed { parent, name, time_ns } => self.remove(*parent, name, *time_ns),
            Fact::Changed { ino, change, time_ns } => {
                self.change(*ino, change, *time_ns);
                None
            }
            other => {
                self.apply_to_inode(other);
                self.apply_to_owed(other);
                None
            }
        }
    }

    /// What the backing is owed, and what only a snapshot has.
    fn apply_to_owed(&mut self, fact: &Fact) {
        match fact {
            Fact::NamesDrained(ordinal) => self.drained(*ordinal),
            Fact::Inode(image) => self.restore(image),
            Fact::Owed { lsn, operation } => {
                self.ordinal = self.ordinal.max(*lsn);
                self.owed.push_back((*lsn, operation.clone()));
            }
            Fact::Hidden { lsn, parent, name } => self.hidden.hide((*parent, name), *lsn),
            Fact::Ordinal(lsn) => self.ordinal = self.ordinal.max(*lsn),
            _ => {}
        }
    }

    /// What becomes of one inode's bytes.
    fn apply_to_inode(&mut self, fact: &Fact) {
        match fact {
            Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns } => {
                self.update(*ino, |inode| {
                    inode.size = *size;
                    inode.modified_ns = *modified_ns;
                    inode.accessed_ns = *accessed_ns;
                    inode.changed_ns = *changed_ns;
                });
            }
            Fact::Rewritten { ino } => self.update(*ino, |inode| {
                inode.flags |= flag::REWRITTEN;
                inode.backed_bytes = 0;
            }),
            // What is there is not our own half of an update any more.
            Fact::Contested { ino } => self.update(*ino, |inode| {
                inode.flags = inode.flags & !flag::INTENT | flag::CONTESTED;
            }),
            Fact::Settled { ino, fingerprint } => self.update(*ino, |inode| {
                inode.published = Some(*fingerprint);
                inode.flags &= !flag::INTENT;
            }),
            Fact::BackedTo { ino, size } => {
                self.update(*ino, |inode| inode.backed_bytes = *size);
            }
            Fact::Touched { ino, fingerprint } => {
                self.update(*ino, |inode| inode.published = Some(*fingerprint));
            }
            Fact::Published { ino, fingerprint } => {
                self.publishing.remove(ino);
                self.heirs.retain(|_, heir| heir != ino);
                let Some(before) = self.inode(*ino) else { return };
                self.update(*ino, |inode| {
                    inode.published = Some(*fingerprint);
                    inode.flags &= !(flag::REWRITTEN | flag::INTENT | flag::CONTESTED);
                });
                if !before.published.is_some_and(|before| before.is_same_object(*fingerprint)) {
                    self.owe_aliases(*ino, before.published);
                }
            }
            _ => {}
        }
    }

    /// Applies what is so on this machine, as far as it is about inodes: where each is, and what
    /// the drain is about to do.
    pub fn apply_local(&mut self, local: &Local) {
        match local {
            Local::Spare { ino, slot } => self.spared(*ino, *slot),
            Local::Attached { ino, slot } => self.update(*ino, |inode| {
                inode.slot = Some(*slot);
                if inode.is(flag::PACKED) {
                    inode.flags &= !flag::PACKED;
                    inode.below = 0;
                }
            }),
            Local::Detached { ino } => self.update(*ino, |inode| inode.slot = None),
            Local::Packed { ino, place } => self.update(*ino, |inode| {
                inode.slot = None;
                inode.below = *place;
                inode.flags |= flag::PACKED;
            }),
            Local::Intent { ino } => self.update(*ino, |inode| inode.flags |= flag::INTENT),
            Local::Exchanging { lsn, object } => self.exchanging = Some((*lsn, *object)),
            Local::Publishing { ino, version } => {
                self.publishing.insert(*ino, version.clone());
            }
            Local::Counters { bound, .. } => self.bound = *bound,
            _ => {}
        }
    }

    /// Puts a new inode under a name.
    pub(crate) fn insert(&mut self, parent: Ino, name: &[u8], inode: Inode, target: &[u8]) {
        if inode.is_directory() {
            self.count_link(parent, 1);
        }
        self.inodes.insert(inode, (parent, name), target);
    }

    pub(crate) fn count_link(&mut self, directory: Ino, change: i32) {
        self.update(directory, |inode| inode.links = inode.links.saturating_add_signed(change));
    }

    /// The backing is owed this operation from now on.
    pub(crate) fn owe(&mut self, operation: NameOperation) -> Option<Lsn> {
        if !self.has_backing {
            return None;
        }
        self.ordinal.0 += 1;
        self.owed.push_back((self.ordinal, operation));
        Some(self.ordinal)
    }

    pub(crate) fn touch(&mut self, directory: Ino, time_ns: u64) {
        self.inodes.touch(directory, time_ns);
    }

    fn change(&mut self, ino: Ino, change: &Change, time_ns: u64) {
        self.update(ino, |inode| {
            inode.mode = change.mode.map_or(inode.mode, |mode| mode as u16);
            inode.uid = change.uid.unwrap_or(inode.uid);
            inode.gid = change.gid.unwrap_or(inode.gid);
            inode.accessed_ns = change.accessed_ns.unwrap_or(inode.accessed_ns);
            inode.modified_ns = change.modified_ns.unwrap_or(inode.modified_ns);
            inode.changed_ns = time_ns;
        });
        let Some(inode) = self.inode(ino) else { return };
        if let (Some(path), true) = (self.path(ino), is_known(&inode)) {
            self.owe(NameOperation::Change { path, ino, change: *change });
        }
    }

    fn drained(&mut self, ordinal: Lsn) {
        self.resumed = false;
        self.exchanging = self.exchanging.filter(|(begun, _)| *begun > ordinal);
        while self.owed.front().is_some_and(|(at, _)| *at <= ordinal) {
            self.owed.pop_front();
        }
        self.hidden.done(ordinal);
    }

    // Snapshots.

    /// Records from which [`Names::apply`] and [`Names::apply_local`] make the same names again.
    pub fn snapshot(&self) -> impl Iterator<Item = Record> {
        let inodes = self.inodes().flat_map(|inode| self.records_of(&inode));
        let aliases = self.inodes.iter().filter(|inode| inode.is(flag::ALIAS));
        let aliases = aliases.map(|alias| Fact::Alias {
            ino: self.file_of(&alias),
            alias: alias.ino,
            parent: self.inodes.at(alias.parent).ino,
            name: self.inodes.name(&alias),
        });
        let owed = self.owed.iter();
        let owed = owed.map(|(lsn, done)| Fact::Owed { lsn: *lsn, operation: done.clone() });
        let hidden = self.hidden.iter();
        let hidden =
            hidden.map(|(lsn, parent, name)| Fact::Hidden { lsn, parent, name: name.to_vec() });
        let facts = aliases.chain(owed).chain(hidden).chain([Fact::Ordinal(self.ordinal)]);
        let begun = self.exchanging.iter();
        let begun = begun.map(|(lsn, object)| Local::Exchanging { lsn: *lsn, object: *object });
        let publishing = self.publishing.iter();
        let publishing = publishing
            .map(|(ino, version)| Local::Publishing { ino: *ino, version: version.clone() });
        let local = begun.chain(publishing).map(Record::from);
        inodes.chain(facts.map(Record::from)).chain(local)
    }

    /// What there is to say of one inode.
    fn records_of(&self, inode: &Inode) -> impl Iterator<Item = Record> + use<> {
        let (ino, has) = (inode.ino, |flag| inode.is(flag));
        let spare = inode.slot.filter(|_| has(flag::SPARE));
        let image = spare.is_none().then(|| Fact::Inode(self.image(inode)));
        let contested = has(flag::CONTESTED).then_some(Fact::Contested { ino });
        let held = match inode.slot {
            Some(slot) if has(flag::SPARE) => Some(Local::Spare { ino, slot }),
            Some(slot) => Some(Local::Attached { ino, slot }),
            None => has(flag::PACKED).then_some(Local::Packed { ino, place: inode.below }),
        };
        let intent = has(flag::INTENT).then_some(Local::Intent { ino });
        let facts = image.into_iter().chain(contested).map(Record::from);
        facts.chain(held.into_iter().chain(intent).map(Record::from))
    }

    fn image(&self, inode: &Inode) -> InodeImage {
        let parent = self.inodes.at(inode.parent).ino;
        InodeImage {
            attributes: inode.attributes(),
            name: inode.is(flag::NAMED).then(|| (parent, self.inodes.name(inode))),
            published: inode.published,
            rewritten: inode.is(flag::REWRITTEN),
            backed_bytes: inode.backed_bytes,
            overlay: inode.is(flag::OVERLAY),
            target: if inode.kind.has_text() { self.inodes.target(inode) } else { Vec::new() },
        }
    }

    /// Ordinal of the newest owed operation.
    pub fn ordinal(&self) -> Lsn {
        self.ordinal
    }

    fn restore(&mut self, image: &InodeImage) {
        let mut inode = Inode::new(&image.attributes);
        inode.published = image.published;
        inode.backed_bytes = image.backed_bytes;
        if image.rewritten {
            inode.flags |= flag::REWRITTEN;
        }
        if image.overlay {
            inode.flags |= flag::OVERLAY;
        }
        let (parent, name) = image.name.as_ref().map_or((ROOT, &[][..]), |(at, name)| (*at, name));
        if inode.ino == ROOT {
            self.inodes.update(ROOT, |root| *root = Inode { below: root.below, ..inode });
        } else {
            self.inodes.insert(inode, (parent, name), &image.target);
        }
    }

    /// After a replay. Of what is not used, this is lent.
    pub fn replayed(&mut self, lent: impl Iterator<Item = Ino>) {
        self.resumed = true;
        // Some went without a record, and others have their slots.
        self.spares = self.inodes().filter(|inode| inode.is(flag::SPARE)).count() as u64;
        self.inodes.replayed(self.bound, lent);
    }
}
