//! The table of names as the server writes it: slots, chains, lists of children, and the heap of
//! names. See `terral_format::local::names` for how it is read meanwhile.
//!
//! It holds no truth of its own: after a restart it is written anew from the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use terral_format::ids::{Ino, Member};
use terral_format::local::geometry::{GRANULE_BYTES, SLOT_WORDS};
use terral_format::local::names::{Buckets, FIRST_LEVEL, Inode, Table, flag, hash, index_of};
use terral_format::{Error, Result};

use crate::heap::Heap;
use crate::memory::Memory;
use crate::numbers::Numbers;
use crate::room::Room;
use crate::weights::Weights;

/// A name: where, and what it is called.
type Place<'a> = (Ino, &'a [u8]);

/// The table of names of one server.
pub struct Inodes {
    memory: Arc<Memory>,
    heap: Heap,
    numbers: Numbers,
    count: u64,
    named: u32,
    pub(crate) room: Room,
    /// Slots that readers are kept from.
    held: Vec<u32>,
    /// Hashes of names whose stripes they are kept from.
    held_names: Vec<u32>,
    /// How much the names of each directory are, if that is counted.
    weights: Option<Weights>,
}

fn granules(bytes: usize) -> u32 {
    bytes.div_ceil(GRANULE_BYTES) as u32
}

impl Inodes {
    /// Over a table that is all zeros.
    pub fn new(memory: Arc<Memory>) -> Self {
        Inodes {
            memory,
            heap: Heap::default(),
            numbers: Numbers::default(),
            count: 0,
            named: 0,
            room: Room::default(),
            held: Vec::new(),
            held_names: Vec::new(),
            weights: None,
        }
    }

    pub(crate) fn table(&self) -> Table<'_> {
        self.memory.names()
    }

    /// From now on what is in the table counts; `epoch` is not 0 and another one at each start.
    pub fn show(&self, epoch: u64) {
        self.table().epoch().store(epoch, Ordering::Release);
    }

    /// Makes sure that the next slots and names find memory.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the table is full, [`ErrorKind::NoSpace`] if memory is.
    pub fn reserve(&mut self) -> Result<()> {
        self.room.reserve(&self.memory, self.numbers.end(), self.heap.end(), self.left())
    }

    /// How many numbers there are for new inodes.
    pub fn left(&self) -> u32 {
        self.numbers.left(self.memory.geometry.names().inodes())
    }

    /// In a replay nothing is reserved: whether slot `index` and its names find memory.
    fn exists(&mut self, index: u32) -> bool {
        self.room.has(&self.memory, index, self.heap.end())
    }

    /// What kept something from being put into the table: it is of no use then.
    pub fn failed(&self) -> Option<&Error> {
        self.room.failed.as_ref()
    }

    // Looking.

    /// The number the next new inode gets.
    pub fn next_ino(&self) -> Ino {
        self.numbers.next()
    }

    /// An inode.
    pub fn get(&self, ino: Ino) -> Option<Inode> {
        Some(self.at(index_of(ino))).filter(|inode| inode.ino == ino && ino.0 != 0)
    }

    /// What is in slot `index`.
    pub fn at(&self, index: u32) -> Inode {
        // To read what does not exist is to make it exist.
        if index < self.room.slots { self.table().inode(index) } else { Inode::decode(&[0; 15]) }
    }

    /// What `name` is in `directory`; perhaps a further name ([`flag::ALIAS`]).
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Option<Inode> {
        let (parent, table) = (index_of(directory), self.table());
        let hash = hash(parent, name);
        let mut at = table.head(table.buckets().of(hash));
        // Readers are kept from what is held; we are not.
        while at != 0 && self.at(parent).ino == directory {
            let inode = self.at(at);
            let long = usize::from(inode.name_bytes) == name.len();
            if long && inode.hash == hash && inode.parent == parent && self.name(&inode) == name {
                return Some(inode);
            }
            at = inode.next;
        }
        None
    }

    /// The name of an inode.
    pub fn name(&self, inode: &Inode) -> Vec<u8> {
        self.text(inode.name_at, inode.name_bytes.into())
    }

    /// What a symbolic link says, or the address of a socket.
    pub fn target(&self, inode: &Inode) -> Vec<u8> {
        self.text(inode.below, inode.size as usize)
    }

    fn text(&self, granule: u32, bytes: usize) -> Vec<u8> {
        let mut text = vec![0; bytes];
        self.table().text(granule, &mut text);
        text
    }

    /// The children of a directory, in no order; among them further names.
    pub fn children(&self, directory: &Inode) -> impl Iterator<Item = Inode> {
        let mut at = directory.below;
        std::iter::from_fn(move || {
            let inode = self.at(at);
            let there = at != 0;
            at = inode.after;
            there.then_some(inode)
        })
    }

    /// All of them, further names included.
    pub fn iter(&self) -> impl Iterator<Item = Inode> {
        (1..self.numbers.end()).map(|index| self.at(index)).filter(|inode| inode.ino.0 != 0)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// From now on clients take what was not born elsewhere for this member's.
    pub fn belongs_to(&self, member: Member) {
        self.memory.member().store(member.number().into(), Ordering::SeqCst);
    }

    /// From now on it is counted how much the names of each directory are; one with more than
    /// `most` bytes is large.
    pub fn weigh(&mut self, most: u64) {
        let named = self.iter().filter(|inode| inode.is(flag::NAMED));
        self.weights = Some(Weights::new(most, named));
    }

    /// Bytes of the names in the directory in this slot, with what they stand for; 0 if that is not
    /// counted.
    pub fn weight(&self, index: u32) -> u64 {
        self.weights.as_ref().map_or(0, |weights| weights.of(index))
    }

    /// Directories that are large.
    pub fn large(&self) -> impl Iterator<Item = Ino> + '_ {
        let slots = self.weights.iter().flat_map(Weights::large);
        slots.map(|index| self.at(index).ino)
    }

    // Changing.

    /// Keeps readers from this inode, which may be about to be made, until [`Inodes::release`]:
    /// they ask.
    pub fn hold(&mut self, ino: Ino) {
        let index = index_of(ino);
        if self.exists(index) && !is_held(&self.table().slot(index)[0]) {
            begin(&self.table().slot(index)[0]);
            self.held.push(index);
        }
    }

    /// The same for what has, or has not, a name, and for the list of names of its directory.
    pub fn hold_name(&mut self, (directory, name): Place<'_>) {
        let hash = hash(index_of(directory), name);
        let stripe = self.table().stripe(hash);
        if !is_held(stripe) {
            begin(stripe);
            self.held_names.push(hash);
        }
        self.hold(directory);
    }

    /// Lets readers see all that was held.
    pub fn release(&mut self) {
        for index in std::mem::take(&mut self.held) {
            end(&self.table().slot(index)[0]);
        }
        for hash in std::mem::take(&mut self.held_names) {
            end(self.table().stripe(hash));
        }
    }

    /// Puts an inode into its slot, with a name in a directory unless the name is empty, and with
    /// the text of its kind.
    pub fn insert(&mut self, mut inode: Inode, place: Place<'_>, target: &[u8]) {
        let index = index_of(inode.ino);
        if !self.exists(index.max(index_of(place.0))) {
            return;
        }
        if self.at(index).ino.0 != 0 {
            // In a replay: it was forgotten before its slot was used again.
            self.forget(index);
        } else if inode.is_directory() {
            // In a snapshot, children may come before their directory.
            inode.below = self.at(index).below;
        }
        self.numbers.take(inode.ino);
        self.count += 1;
        if !target.is_empty() {
            inode.below = self.store_text(target);
            inode.size = target.len() as u64;
        }
        self.write(index, &inode);
        if !place.1.is_empty() {
            self.name_it(index, place, |_| ());
        }
    }

    /// Changes what is in a slot. Its names and lists change through the other functions.
    pub fn update(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        if let Some(mut inode) = self.get(ino) {
            change(&mut inode);
            self.write(index_of(ino), &inode);
        }
    }

    /// Something in a directory changed: its times.
    pub fn touch(&mut self, directory: Ino, time_ns: u64) {
        let slot = self.table().slot(index_of(directory));
        if slot[1].load(Ordering::Relaxed) == directory.0 {
            changing(&slot[0], || {
                slot[8].store(time_ns, Ordering::Relaxed);
                slot[9].store(time_ns, Ordering::Relaxed);
            });
        }
    }

    /// Takes the name of slot `index` away.
    pub fn unname(&mut self, index: u32) {
        let hash = self.at(index).hash;
        self.quietly(&[hash], |inodes| inodes.unlink(index));
    }

    /// Gives the inode in slot `index`, which has none, a name, and changes it in the same moment.
    pub fn name_it(&mut self, index: u32, to: Place<'_>, change: impl FnOnce(&mut Inode)) {
        let hash = hash(index_of(to.0), to.1);
        self.quietly(&[hash], |inodes| inodes.link(index, to, change));
        if self.named > self.table().buckets().count() {
            self.split();
        }
    }

    /// Moves the name of slot `index`; `replaced` loses its own in the same moment.
    pub fn rename(&mut self, index: u32, to: Place<'_>, replaced: Option<u32>) {
        let hashes = [self.at(index).hash, hash(index_of(to.0), to.1)];
        self.quietly(&hashes, |inodes| {
            replaced.into_iter().for_each(|there| inodes.unlink(there));
            inodes.unlink(index);
            inodes.link(index, to, |_| ());
        });
    }

    /// Lets two named slots change names.
    pub fn exchange(&mut self, one: u32, other: u32) {
        let (a, b) = (self.at(one), self.at(other));
        let (name_a, name_b) = (self.name(&a), self.name(&b));
        let (in_a, in_b) = (self.at(a.parent).ino, self.at(b.parent).ino);
        self.quietly(&[a.hash, b.hash], |inodes| {
            inodes.unlink(one);
            inodes.unlink(other);
            inodes.link(one, (in_b, &name_b), |_| ());
            inodes.link(other, (in_a, &name_a), |_| ());
        });
    }

    /// Empties a slot, which has no name any more; it may be used again.
    pub fn free(&mut self, index: u32) {
        let ino = self.at(index).ino;
        self.forget(index);
        self.numbers.free(ino);
    }

    fn forget(&mut self, index: u32) {
        let inode = self.at(index);
        if inode.is(flag::NAMED) {
            self.unname(index);
        }
        if inode.kind.has_text() {
            self.heap.give(inode.below, granules(inode.size as usize));
        }
        self.count -= 1;
        let slot = self.table().slot(index);
        changing(&slot[0], || {
            slot[1..SLOT_WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        });
    }

    /// Nobody else gets this number, which is the next one or was lent before.
    pub fn lend(&mut self, ino: Ino) {
        let index = index_of(ino);
        if self.at(index).ino.0 != 0 {
            // In a replay: as in `insert`.
            self.forget(index);
        }
        self.numbers.take(ino);
    }

    /// The slot of a number that was lent and not used may get another one.
    pub fn give_back(&mut self, ino: Ino) {
        self.numbers.free(ino);
    }

    /// What must be remembered of the numbers of inodes that are no more.
    pub fn bound(&self) -> Ino {
        self.numbers.bound()
    }

    /// After a replay: which slots are free, and that no number is used twice; these are lent.
    pub fn replayed(&mut self, bound: Ino, lent: impl Iterator<Item = Ino>) {
        let (table, slots) = (self.memory.names(), self.room.slots);
        let used = |index| index < slots && table.inode(index).ino.0 != 0;
        self.numbers.replayed(bound, lent, used);
    }

    // The structures.

    /// Runs `change` while readers of these stripes wait.
    fn quietly(&mut self, hashes: &[u32], change: impl FnOnce(&mut Self)) {
        let memory = self.memory.clone();
        let table = memory.names();
        let first = table.stripe(hashes[0]);
        let second = hashes.get(1).map(|hash| table.stripe(*hash));
        let second = second.filter(|second| !std::ptr::eq(*second, first));
        changing(first, || match second {
            Some(second) => changing(second, || change(self)),
            None => change(self),
        });
    }

    fn write(&self, index: u32, inode: &Inode) {
        let slot = self.table().slot(index);
        changing(&slot[0], || {
            for (word, value) in slot[1..].iter().zip(inode.encode()) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    fn store_text(&mut self, text: &[u8]) -> u32 {
        let place = self.heap.take(granules(text.len()));
        let layout = self.memory.geometry.names();
        let words = self.memory.names_words();
        // Whoever still reads what was there before has its slot's counter changed by now.
        fence(Ordering::Release);
        for (at, bytes) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            words[layout.granule_at(place) + at].store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        place
    }

    fn set_head(&self, bucket: u32, index: u32) {
        let word = self.table().bucket_word(bucket);
        let old = word.load(Ordering::Relaxed);
        let new = if bucket.is_multiple_of(2) {
            old >> 32 << 32 | u64::from(index)
        } else {
            u64::from(old as u32) | u64::from(index) << 32
        };
        word.store(new, Ordering::Release);
    }

    fn set_next(&self, index: u32, next: u32) {
        let word = &self.table().slot(index)[3];
        let hash = word.load(Ordering::Relaxed) as u32;
        word.store(u64::from(hash) | u64::from(next) << 32, Ordering::Release);
    }

    fn set_neighbour(&self, index: u32, after: Option<u32>, before: Option<u32>) {
        if index == 0 {
            return;
        }
        let word = &self.table().slot(index)[11];
        let old = word.load(Ordering::Relaxed);
        let (after, before) = (after.unwrap_or(old as u32), before.unwrap_or((old >> 32) as u32));
        word.store(u64::from(after) | u64::from(before) << 32, Ordering::Release);
    }

    /// Changes a directory's list of children by `change`, which gives its new first one.
    fn relist(&self, directory: u32, change: impl FnOnce(u32) -> u32) {
        let slot = self.table().slot(directory);
        changing(&slot[0], || {
            let old = slot[10].load(Ordering::Relaxed);
            let first = change((old >> 32) as u32);
            slot[10].store(u64::from(old as u32) | u64::from(first) << 32, Ordering::Relaxed);
        });
    }

    fn link(&mut self, index: u32, (directory, name): Place<'_>, change: impl FnOnce(&mut Inode)) {
        let parent = index_of(directory);
        let hash = hash(parent, name);
        let bucket = self.table().buckets().of(hash);
        let mut inode = self.at(index);
        change(&mut inode);
        inode.parent = parent;
        inode.name_at = self.store_text(name);
        inode.name_bytes = name.len() as u8;
        inode.hash = hash;
        inode.next = self.table().head(bucket);
        inode.flags |= flag::NAMED;
        inode.after = (self.table().slot(parent)[10].load(Ordering::Relaxed) >> 32) as u32;
        inode.before = 0;
        self.relist(parent, |first| {
            self.write(index, &inode);
            self.set_neighbour(first, None, Some(index));
            index
        });
        self.set_head(bucket, index);
        self.named += 1;
        self.weights.iter_mut().for_each(|weights| weights.comes(&inode));
    }

    fn unlink(&mut self, index: u32) {
        let mut inode = self.at(index);
        self.weights.iter_mut().for_each(|weights| weights.goes(&inode));
        let bucket = self.table().buckets().of(inode.hash);
        let head = self.table().head(bucket);
        if head == index {
            self.set_head(bucket, inode.next);
        } else {
            let mut at = head;
            while at != 0 && self.at(at).next != index {
                at = self.at(at).next;
            }
            if at != 0 {
                self.set_next(at, inode.next);
            }
        }
        let (after, before) = (inode.after, inode.before);
        self.heap.give(inode.name_at, granules(inode.name_bytes.into()));
        inode.flags &= !flag::NAMED;
        (inode.name_at, inode.name_bytes, inode.after, inode.before) = (0, 0, 0, 0);
        self.relist(inode.parent, |first| {
            self.set_neighbour(before, Some(after), None);
            self.set_neighbour(after, None, Some(before));
            self.write(index, &inode);
            if first == index { after } else { first }
        });
        self.named -= 1;
    }

    /// One more bucket: what belongs there moves out of the one it is split from.
    fn split(&mut self) {
        let now = self.table().buckets();
        let then = match now.split + 1 {
            split if split == 1 << now.level => Buckets { level: now.level + 1, split: 0 },
            split => Buckets { split, ..now },
        };
        let (old, new) = (now.split, (1 << now.level) + now.split);
        self.quietly(&[old], |inodes| {
            let mut heads = [0, 0];
            let mut at = inodes.table().head(old);
            while at != 0 {
                let inode = inodes.at(at);
                let moves = usize::from(then.of(inode.hash) == new);
                inodes.set_next(at, heads[moves]);
                heads[moves] = at;
                at = inode.next;
            }
            inodes.set_head(old, heads[0]);
            inodes.set_head(new, heads[1]);
            let word = u64::from(then.split) | u64::from(then.level) << 32;
            inodes.table().buckets_word().store(word, Ordering::Release);
        });
    }
}

const _: () = assert!(1 << FIRST_LEVEL >= terral_format::local::names::STRIPES);

/// From here to [`end`], readers wait.
fn begin(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    fence(Ordering::Release);
}

fn end(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// Whether readers wait already.
fn is_held(counter: &AtomicU64) -> bool {
    !counter.load(Ordering::Relaxed).is_multiple_of(2)
}

/// Readers of a slot, or a stripe, wait until `change` is done, or longer if it is held.
fn changing(counter: &AtomicU64, change: impl FnOnce()) {
    let held = is_held(counter);
    if !held {
        begin(counter);
    }
    change();
    if !held {
        end(counter);
    }
}

#[cfg(test)]
mod tests;
