//! The table of names and attributes, in shared memory: the server writes it, clients read it, and
//! a `stat` of a name that it knows costs no message.
//!
//! Names hang in chains from the buckets of a linear hash table (Litwin, VLDB 1980), by parent and
//! name; children of a directory in a list. An inode carries its first name; further ones (hard
//! links) are slots of their own that point to it. Every slot is a seqlock (Boehm, MSPC 2012): what
//! a reader finds is consistent in itself. That a name is *not* there is believed only if the
//! counter of its stripe of buckets stood still and even meanwhile.
//!
//! Not here: who may write, and what is free (the server's `store`).

use crate::fingerprint::Fingerprint;
use crate::ids::{FileSlot, Ino, Member, Number, ROOT};
use crate::local::geometry::{INDEX_BITS, NamesLayout, PATH_MAX, SLOT_WORDS};
use crate::local::sync::{AtomicU64, Ordering, fence};
use crate::wire::message::{Attributes, Kind, Name};

/// Stripes of buckets.
pub const STRIPES: usize = 64;
/// Buckets of an empty table, as a power of two; at least [`STRIPES`].
pub const FIRST_LEVEL: u32 = 6;

const BUCKETS_WORD: usize = 1;
const STRIPES_WORD: usize = 64;
/// A reader that is disturbed more often than this asks the server.
const TRIES: usize = 64;
/// No chain is so long: a reader that gets so far has lost its way.
const CHAIN_MAX: usize = 4096;

/// What a slot's flags say.
pub mod flag {
    /// The backing has a copy, and `published` is how it looks.
    pub const PUBLISHED: u16 = 1;
    /// That copy is to be replaced whole.
    pub const REWRITTEN: u16 = 2;
    /// A directory of the backing: names that are not here may be there.
    pub const OVERLAY: u16 = 4;
    /// An update in place of the backing's copy was begun and not finished.
    pub const INTENT: u16 = 8;
    /// It has a name.
    pub const NAMED: u16 = 16;
    /// A further name of the file whose slot is `below`.
    pub const ALIAS: u16 = 32;
    /// A small file whose bytes lie at `below` among the packed ones.
    pub const PACKED: u16 = 64;
    /// A client has it in hand for a file it will create; it has no name, or a deferred one.
    pub const PREALLOCATED: u16 = 128;
    /// Somebody else changed the backing's copy: ours goes there whole, theirs is kept.
    pub const CONTESTED: u16 = 256;
    /// It was executed, and may still be: who opens it for writing asks the server.
    pub const EXECUTED: u16 = 512;
    /// Another machine has lent its attributes, and a directory's names: see
    /// [`crate::local::lease`]. Beside [`ELSEWHERE`], to be looked at: names that are missing here
    /// may be there.
    pub const BORROWED: u16 = 1024;
    /// Another machine has its attributes, and a directory's names, or may: who changes them, or
    /// wants to see them, asks the server.
    pub const ELSEWHERE: u16 = 2048;
    /// A file that was born on another machine, which has its bytes: who opens it asks the server.
    pub const FAR: u16 = 4096;
    /// Beside [`ELSEWHERE`]: it is as the table says, and other machines have copies. Who looks
    /// need not ask.
    pub const SHOWN: u16 = 8192;
    /// It was born on another machine: see [`super::Inode::foreign`].
    pub const FOREIGN: u16 = 16384;
    /// It was made, or opened for writing, in the life of the instance: quotas count it.
    pub const COUNTED: u16 = 32768;
}

/// The slot an inode number says.
pub fn index_of(ino: Ino) -> u32 {
    (ino.0 & ((1 << INDEX_BITS) - 1)) as u32
}

/// The number of the inode in slot `index` whose life is the `generation`th.
pub fn ino_of(index: u32, generation: u64) -> Ino {
    Ino(generation << INDEX_BITS | u64::from(index))
}

/// The generation of an inode number.
pub fn generation_of(ino: Ino) -> u64 {
    ino.0 >> INDEX_BITS
}

/// What a name stands for, or a further name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number; 0 in a free slot.
    pub ino: Ino,
    /// Slot of the directory it is in.
    pub parent: u32,
    /// First granule of its name.
    pub name_at: u32,
    /// Bytes of its name.
    pub name_bytes: u8,
    /// Of parent and name.
    pub hash: u32,
    /// Next slot in the bucket's chain; 0 for none.
    pub next: u32,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Names (directories: 2 + subdirectories).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes, also of a link's target or a socket's address; of a file with a record, see its
    /// header.
    pub size: u64,
    /// Last read, nanoseconds since 1970; see `size`.
    pub accessed_ns: u64,
    /// Last modification, nanoseconds since 1970; see `size`.
    pub modified_ns: u64,
    /// Last change of attributes, nanoseconds since 1970.
    pub changed_ns: u64,
    /// Its record in shared memory.
    pub slot: Option<FileSlot>,
    /// A directory's first child, in the heap a link's target or a socket's address, the slot of an
    /// alias's file, or where a packed file's bytes are.
    pub below: u32,
    /// Next child of the same directory.
    pub after: u32,
    /// Previous child of the same directory.
    pub before: u32,
    /// How the backing's copy looks, if there is one.
    pub published: Option<Fingerprint>,
    /// Bytes below this without a chunk lie in the backing.
    pub backed_bytes: u64,
    /// Its number, if it was born on another machine. It has neither a record nor bytes of the
    /// backing here, and the number is where these would be.
    pub foreign: Option<Number>,
    /// See [`flag`].
    pub flags: u16,
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Word of a slot that begins with the permission bits.
const MODE_WORD: usize = 4;
/// Word of a slot that ends with the flags.
pub const FLAGS_WORD: usize = 15;

/// The [`flag`]s of a slot whose [`FLAGS_WORD`] this is, by one load: while the server changes it,
/// anything.
#[inline]
pub fn flags_of(word: &AtomicU64) -> u16 {
    (word.load(Ordering::SeqCst) >> 48) as u16
}

const KINDS: [Kind; 5] = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket];

impl Inode {
    /// One with these attributes and nothing else.
    pub fn new(attributes: &Attributes) -> Self {
        Inode {
            ino: attributes.ino,
            parent: 0,
            name_at: 0,
            name_bytes: 0,
            hash: 0,
            next: 0,
            kind: attributes.kind,
            mode: attributes.mode as u16,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            accessed_ns: attributes.accessed_ns,
            modified_ns: attributes.modified_ns,
            changed_ns: attributes.changed_ns,
            slot: None,
            below: 0,
            after: 0,
            before: 0,
            published: None,
            backed_bytes: 0,
            foreign: None,
            flags: 0,
        }
    }

    /// Words 1 to 15 of its slot.
    pub fn encode(&self) -> [u64; SLOT_WORDS - 1] {
        let [object, published_bytes, published_ns] = self.published.unwrap_or_default().to_words();
        let flag = if self.published.is_some() { flag::PUBLISHED } else { 0 };
        let foreign = if self.foreign.is_some() { flag::FOREIGN } else { 0 };
        let flags = u64::from(self.flags & !(flag::PUBLISHED | flag::FOREIGN) | flag | foreign);
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64;
        let (slot, backed_bytes) = match self.foreign.map(Number::word) {
            Some(number) => (low(number), u64::from(high(number))),
            None => (self.slot.map_or(0, |slot| slot.0 + 1), self.backed_bytes),
        };
        [
            self.ino.0,
            pair(self.parent, self.name_at),
            pair(self.hash, self.next),
            u64::from(self.mode)
                | kind << 16
                | u64::from(self.name_bytes) << 24
                | u64::from(self.links) << 32,
            pair(self.uid, self.gid),
            self.size,
            self.accessed_ns,
            self.modified_ns,
            self.changed_ns,
            pair(slot, self.below),
            pair(self.after, self.before),
            object,
            published_bytes,
            published_ns,
            backed_bytes | flags << 48,
        ]
    }

    /// What words 1 to 15 of a slot say.
    pub fn decode(words: &[u64; SLOT_WORDS - 1]) -> Self {
        let flags = (words[14] >> 48) as u16;
        let published = Fingerprint::of_words([words[11], words[12], words[13]]);
        let (slot, backed_bytes) = (low(words[9]), words[14] & ((1 << 48) - 1));
        let (foreign, slot, backed_bytes) = match flags & flag::FOREIGN {
            0 => (None, slot.checked_sub(1).map(FileSlot), backed_bytes),
            _ => (Some(Number::of_word(pair(slot, low(backed_bytes)))), None, 0),
        };
        Inode {
            ino: Ino(words[0]),
            parent: low(words[1]),
            name_at: high(words[1]),
            hash: low(words[2]),
            next: high(words[2]),
            mode: words[3] as u16,
            kind: KINDS[(words[3] >> 16) as usize % 8 % KINDS.len()],
            name_bytes: (words[3] >> 24) as u8,
            links: high(words[3]),
            uid: low(words[4]),
            gid: high(words[4]),
            size: words[5],
            accessed_ns: words[6],
            modified_ns: words[7],
            changed_ns: words[8],
            slot,
            below: high(words[9]),
            after: low(words[10]),
            before: high(words[10]),
            published: (flags & flag::PUBLISHED != 0).then_some(published),
            backed_bytes,
            foreign,
            flags,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether all of these [`flag`]s are set.
    pub fn is(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// What `st_ino` says of it, where what has no other number was born on `here`.
    pub fn number(&self, here: Member) -> Number {
        self.foreign.unwrap_or_else(|| Number::of(here, self.ino))
    }

    /// Attributes as the slot has them.
    pub fn attributes(&self) -> Attributes {
        Attributes {
            ino: self.ino,
            kind: self.kind,
            mode: self.mode.into(),
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size: match self.kind {
                Kind::Directory => 4096,
                Kind::Socket => 0,
                _ => self.size,
            },
            accessed_ns: self.accessed_ns,
            modified_ns: self.modified_ns,
            changed_ns: self.changed_ns,
        }
    }
}

/// What a reader was told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is this.
    Found(Inode),
    /// The table does not have it.
    Missing,
    /// The server is just changing this part of the table.
    Unsure,
}

/// How many buckets there are: `2^level + split`, of which the first `split` have been split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// See above.
    pub level: u32,
    /// See above.
    pub split: u32,
}

impl Buckets {
    /// The bucket of a hash.
    pub fn of(self, hash: u32) -> u32 {
        let level = self.level.min(31);
        let bucket = hash & ((1 << level) - 1);
        if bucket < self.split { hash & ((2 << level) - 1) } else { bucket }
    }

    /// How many.
    pub fn count(self) -> u32 {
        (1 << self.level.min(31)) + self.split
    }
}

/// A view of a table.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
    layout: NamesLayout,
}

/// Hash of a name in a directory: XXH3-64, folded.
pub fn hash(parent: u32, name: &[u8]) -> u32 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(name, parent.into());
    low(hash) ^ high(hash)
}

impl<'a> Table<'a> {
    /// The table in `words`, which must be as many as the layout says.
    pub fn new(words: &'a [AtomicU64], layout: NamesLayout) -> Self {
        Table { words, layout }
    }

    /// Where things lie.
    pub fn layout(&self) -> NamesLayout {
        self.layout
    }

    /// Which server wrote the table (its start, from 1); 0 while one writes it anew, and then
    /// nothing in it counts.
    pub fn epoch(&self) -> &'a AtomicU64 {
        &self.words[0]
    }

    /// The counter of the stripe of a hash: odd while the server changes a bucket of it.
    pub fn stripe(&self, hash: u32) -> &'a AtomicU64 {
        &self.words[STRIPES_WORD + hash as usize % STRIPES]
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> Buckets {
        let word = self.words[BUCKETS_WORD].load(Ordering::Acquire);
        Buckets { level: high(word).max(FIRST_LEVEL), split: low(word) }
    }

    /// The word of [`Table::buckets`].
    pub fn buckets_word(&self) -> &'a AtomicU64 {
        &self.words[BUCKETS_WORD]
    }

    /// First slot of a bucket's chain; 0 for none.
    pub fn head(&self, bucket: u32) -> u32 {
        let word = self.bucket_word(bucket).load(Ordering::Acquire);
        if bucket.is_multiple_of(2) { low(word) } else { high(word) }
    }

    /// The word that has buckets `bucket & !1` and the one after.
    pub fn bucket_word(&self, bucket: u32) -> &'a AtomicU64 {
        &self.words[self.layout.bucket_at(bucket % self.layout.inodes())]
    }

    /// The words of a slot; of slot 0 if there is no such slot.
    pub fn slot(&self, index: u32) -> &'a [AtomicU64] {
        let index = if index < self.layout.inodes() { index } else { 0 };
        let at = self.layout.slot_at(index);
        &self.words[at..at + SLOT_WORDS]
    }

    /// A slot as it is now; the server's own way, which nobody disturbs.
    pub fn inode(&self, index: u32) -> Inode {
        let slot = self.slot(index);
        Inode::decode(&std::array::from_fn(|at| slot[at + 1].load(Ordering::Relaxed)))
    }

    /// What a slot says of its name: its number, its parent, where the name is and how long, and
    /// its flags; the server's own way, too.
    pub fn place(&self, index: u32) -> (Ino, u32, (u32, u8), u16) {
        let slot = self.slot(index);
        let [ino, place, kind, flags] =
            [1, 2, MODE_WORD, FLAGS_WORD].map(|at| slot[at].load(Ordering::Relaxed));
        (Ino(ino), low(place), (high(place), (kind >> 24) as u8), (flags >> 48) as u16)
    }

    /// A consistent copy of a slot, and what `look` made of it before that was certain.
    fn read<T>(&self, index: u32, mut look: impl FnMut(&Inode) -> T) -> Option<(Inode, T)> {
        let sequence = &self.slot(index)[0];
        for _ in 0..TRIES {
            let before = sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let inode = self.inode(index);
                let looked = look(&inode);
                fence(Ordering::Acquire);
                if sequence.load(Ordering::Relaxed) == before {
                    return Some((inode, looked));
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// The inode with this number, if the table has it and the server is not just changing it.
    pub fn find(&self, ino: Ino) -> Option<Inode> {
        let (inode, ()) = self.read(index_of(ino), |_| ())?;
        (inode.ino == ino && ino.0 != 0).then_some(inode)
    }

    /// The permission bits in an inode's slot, for one load: while the server changes it, anything.
    #[inline]
    pub fn mode_hint(&self, ino: Ino) -> u16 {
        self.slot(index_of(ino))[MODE_WORD].load(Ordering::Relaxed) as u16
    }

    /// Bytes of the heap; fewer if there is no such place.
    pub fn text(&self, granule: u32, into: &mut [u8]) -> usize {
        let first = self.layout.granule_at(granule);
        let words = self.words.get(first..first + into.len().div_ceil(8)).unwrap_or(&[]);
        let count = into.len().min(words.len() * 8);
        for (word, bytes) in words.iter().zip(into.chunks_mut(8)) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        count
    }

    fn has_text(&self, granule: u32, bytes: &[u8]) -> bool {
        let first = self.layout.granule_at(granule);
        let words = self.words.get(first..first + bytes.len().div_ceil(8)).unwrap_or(&[]);
        words.len() * 8 >= bytes.len()
            && words.iter().zip(bytes.chunks(8)).all(|(word, bytes)| {
                word.load(Ordering::Relaxed).to_le_bytes()[..bytes.len()] == *bytes
            })
    }

    /// What `name` is in `directory`. A further name of a file is given as it is: [`flag::ALIAS`].
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Lookup {
        let parent = index_of(directory);
        let hash = hash(parent, name);
        let stripe = self.stripe(hash);
        for _ in 0..TRIES {
            let before = stripe.load(Ordering::Acquire);
            if !before.is_multiple_of(2) {
                std::hint::spin_loop();
                continue;
            }
            let mut at = self.head(self.buckets().of(hash));
            let mut steps = 0;
            while at != 0 && steps < CHAIN_MAX {
                let link = self.slot(at)[3].load(Ordering::Acquire);
                if low(link) == hash {
                    // The server may sleep, or have died, in the middle of changing it.
                    let Some((inode, is_it)) = self.candidate(at, parent, name) else {
                        return Lookup::Unsure;
                    };
                    let same = self.slot(parent)[1].load(Ordering::Acquire) == directory.0;
                    match (is_it, same) {
                        (true, true) => return Lookup::Found(inode),
                        (true, false) => return Lookup::Unsure,
                        (false, _) => {}
                    }
                }
                at = high(link);
                steps += 1;
            }
            fence(Ordering::Acquire);
            let there = self.slot(parent)[1].load(Ordering::Relaxed) == directory.0;
            if there && steps < CHAIN_MAX && stripe.load(Ordering::Relaxed) == before {
                return Lookup::Missing;
            }
        }
        Lookup::Unsure
    }

    /// What is in a slot, and whether it has this name. `None`: it is just being changed.
    fn candidate(&self, index: u32, parent: u32, name: &[u8]) -> Option<(Inode, bool)> {
        self.read(index, |inode| {
            inode.ino.0 != 0
                && inode.is(flag::NAMED)
                && inode.parent == parent
                && usize::from(inode.name_bytes) == name.len()
                && self.has_text(inode.name_at, name)
        })
    }

    /// The file a further name stands for.
    pub fn file_of(&self, alias: &Inode) -> Option<Inode> {
        if !alias.is(flag::ALIAS) {
            return Some(*alias);
        }
        let (inode, ()) = self.read(alias.below, |_| ())?;
        (inode.ino.0 != 0 && !inode.is(flag::ALIAS)).then_some(inode)
    }

    /// The path of an inode from the root, its first one if it has several; `None` if it has none,
    /// or the server is just changing it, or a name with a hash for which `moves` was changed.
    pub fn path(&self, ino: Ino, moves: impl Fn(u32) -> bool) -> Option<Vec<u8>> {
        let mut out = vec![0; PATH_MAX];
        let start = self.path_before(ino, &mut out, moves)?;
        Some(out[start..].to_vec())
    }

    /// As [`Table::path`], at the end of `out`: gives where it begins. `None` also if it is longer.
    pub fn path_before(
        &self,
        ino: Ino,
        out: &mut [u8],
        moves: impl Fn(u32) -> bool,
    ) -> Option<usize> {
        let mut start = out.len();
        let mut at = self.find(ino)?;
        while at.ino != ROOT {
            // First the deferred changes, then what is read again below.
            if !at.is(flag::NAMED) || moves(at.hash) {
                return None;
            }
            if start < out.len() {
                start = start.checked_sub(1)?;
                out[start] = b'/';
            }
            let end = start;
            start = start.checked_sub(at.name_bytes.into())?;
            let text = |inode: &Inode| {
                let same = inode.name_bytes == at.name_bytes;
                same && self.text(inode.name_at, &mut out[start..end]) == end - start
            };
            let (again, same) = self.read(index_of(at.ino), text)?;
            // It may have moved between the two looks.
            let moved = (again.ino, again.parent, again.name_at) != (at.ino, at.parent, at.name_at);
            if moved || !same {
                return None;
            }
            (at, ()) = self.read(at.parent, |_| ())?;
        }
        Some(start)
    }

    /// Where a symbolic link leads, or the address of a socket, unless the server is just changing
    /// it.
    pub fn target(&self, ino: Ino) -> Option<Vec<u8>> {
        let (inode, target) = self.read(index_of(ino), |inode| {
            let mut target = vec![0; (inode.size as usize).min(PATH_MAX)];
            self.text(inode.below, &mut target);
            target
        })?;
        (inode.ino == ino && inode.kind.has_text()).then_some(target)
    }

    /// The children of a directory that the table of this member has, at most so many, in no order,
    /// unless the server changes them meanwhile.
    pub fn children(&self, directory: Ino, most: usize, here: Member) -> Option<Vec<Name>> {
        let parent = index_of(directory);
        let sequence = &self.slot(parent)[0];
        let before = sequence.load(Ordering::Acquire);
        let first = self.find(directory)?.below;
        let (mut names, mut at) = (Vec::new(), first);
        while at != 0 && names.len() < most.min(self.layout.inodes() as usize) {
            let (inode, name) = self.read(at, |inode| {
                let mut name = vec![0; inode.name_bytes.into()];
                self.text(inode.name_at, &mut name);
                name
            })?;
            if inode.parent != parent || !inode.is(flag::NAMED) {
                return None;
            }
            let file = self.file_of(&inode)?;
            names.push(Name { name, number: Some(file.number(here)), kind: file.kind });
            at = inode.after;
        }
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before).then_some(names)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
