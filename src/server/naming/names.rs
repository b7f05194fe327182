//! The namespace: inodes, names, and the name operations the backing is owed.
//!
//! It changes only by [`Names::apply`], from records: what is replayed after a restart is what ran
//! before. Inodes and names lie in shared memory, where clients read them. Nothing here does I/O;
//! looking into the backing is `lookup`'s, what a change of names entails is `changes`', and what
//! the backing has meanwhile under names that are gone is `hidden`'s.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use terral_format::Result;
use terral_format::disk::NameOperation;
use terral_format::disk::local::Publishing;
use terral_format::fingerprint::Object;
use terral_format::ids::{Ino, Lsn, Member, ROOT};
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::moving::Moving;
use terral_store::inodes::Inodes;
use terral_store::memory::Memory;

use crate::core::invariant::holds;
use crate::naming::hidden::Hidden;
use crate::naming::leaving::Leaving;

/// A name: where, and what it is called.
pub type Place<'a> = (Ino, &'a [u8]);

/// The same, to be kept.
pub(super) type Name = (Ino, Vec<u8>);

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
    pub(super) inodes: Inodes,
    pub(super) openers: FxHashMap<Ino, Openers>,
    /// Further names of files that have some.
    pub(super) aliases: HashMap<Ino, Vec<Ino>>,
    /// Who has taken a file's place in the backing, as long as it is not published there.
    pub(super) replacements: HashMap<Ino, Ino>,
    pub(super) leaving: Leaving,
    /// Files whose names are delegated to who decides a transaction.
    pub(super) delegated: BTreeSet<Ino>,
    /// What the backing is owed of these once that is over.
    pub(super) later: Vec<NameOperation>,
    pub(super) hidden: Hidden,
    pub(super) owed: VecDeque<(Lsn, NameOperation)>,
    pub(super) ordinal: Lsn,
    /// The exchange that was begun in the backing, and what had the first name before.
    pub(super) exchanging: Option<(Lsn, Object)>,
    /// Directories that other members move just now.
    pub(super) resting: BTreeMap<Member, Moving>,
    /// Whole versions of which it is not known whether they have got their names.
    pub(super) publishing: BTreeMap<Ino, Publishing>,
    /// The next operation may have been done by a server that died.
    pub(super) resumed: bool,
    /// This one may have done it, or a part.
    pub(super) begun: bool,
    pub(super) bound: Ino,
    /// Files in hand.
    pub(super) preallocated: u64,
    pub(super) has_backing: bool,
    /// There are other members.
    pub(super) has_others: bool,
    /// Whose is what nobody has made yet: user and group.
    pub(super) own: (u32, u32),
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
            replacements: HashMap::new(),
            leaving: Leaving::default(),
            delegated: BTreeSet::new(),
            later: Vec::new(),
            hidden: Hidden::default(),
            owed: VecDeque::new(),
            ordinal: Lsn(0),
            exchanging: None,
            resting: BTreeMap::new(),
            publishing: BTreeMap::new(),
            resumed: false,
            begun: false,
            bound: Ino(0),
            preallocated: 0,
            has_backing,
            has_others: false,
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

    /// Changes what is not logged of an inode.
    pub fn update(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        self.inodes.update(ino, |inode| {
            change(inode);
            let nothing = || inode.slot.is_none() && inode.backed_bytes == 0;
            holds("what was born elsewhere has its number", || {
                inode.foreign.is_none() || nothing()
            });
        });
    }

    /// Who has a file open.
    pub fn openers(&self, ino: Ino) -> Openers {
        self.openers.get(&ino).copied().unwrap_or_default()
    }

    /// Quotas count a file from now on.
    pub fn is_counted(&mut self, ino: Ino) {
        let not = flag::COUNTED | flag::PREALLOCATED | flag::FAR;
        let not_yet = |inode: Inode| inode.kind == Kind::File && inode.flags & not == 0;
        if self.inode(ino).is_some_and(not_yet) {
            self.update(ino, |inode| inode.flags |= flag::COUNTED);
        }
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
            hash_map::Entry::Occupied(found) => found,
            hash_map::Entry::Vacant(place) => place.insert_entry(Openers::default()),
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

    /// The same for what the backing is owed. Where there is none, nothing is, and what other
    /// members of a partition have above it may be unknown here.
    pub(super) fn path_there(&self, ino: Ino) -> Option<Vec<u8>> {
        if self.has_backing { self.path(ino) } else { Some(Vec::new()) }
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

    /// Forgets a nameless inode.
    pub fn forget(&mut self, ino: Ino) {
        self.replacements.retain(|_, replacement| *replacement != ino);
        if let Some(inode) = self.inode(ino).filter(|inode| !inode.is(flag::NAMED)) {
            self.preallocated -= u64::from(inode.is(flag::PREALLOCATED));
            self.inodes.free(index_of(ino));
        }
    }

    /// Puts a new inode under a name.
    pub(crate) fn insert(&mut self, parent: Ino, name: &[u8], inode: Inode, target: &[u8]) {
        if inode.is_directory() {
            self.count_link(parent, 1);
        }
        self.inodes.insert(inode, (parent, name), target);
    }

    /// One that was removed has none, and no other.
    pub(crate) fn count_link(&mut self, directory: Ino, change: i32) {
        self.update(directory, |inode| {
            let least = inode.links.min(1);
            inode.links = inode.links.saturating_add_signed(change).max(least);
        });
    }

    pub(crate) fn touch(&mut self, directory: Ino, time_ns: u64) {
        self.inodes.touch(directory, time_ns);
    }
}
