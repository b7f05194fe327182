//! The structures in shared memory. Native-endian: they never leave the machine.
//!
//! Every field is an atomic, so any process may read at any moment; who may *write* is a property
//! of the region (see `geometry`), and whatever a client may write is checked before use.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, KnownLayout};

use crate::ids::InstanceId;
use crate::local::geometry::{
    Geometry, HAND_DESCRIPTIONS, HAND_INOS, HAND_MORE_INOS, HAZARDS, INLINE_ENTRIES, MAP_FANOUT,
    MESSAGE_BYTES, PAGE_BYTES, REQUESTS, SEGMENTS_MAX,
};
use crate::{Error, ErrorKind, Result};

/// First word of `tables`: "TERRAL" and the version of everything in shared memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TERRAL\x03\x00");

/// How a segment's pages are, in [`Superblock::segments`].
pub mod segment {
    /// The file may be sparse: only `pwrite` and `pread`.
    pub const SPARSE: u64 = 0;
    /// Every page exists, 4 KiB each.
    pub const POPULATED: u64 = 1;
    /// Every page exists and is huge: a fresh mapping is as good as an old one.
    pub const HUGE: u64 = 2;
}

/// Start of `tables`.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Process id of the server that serves now; 0 after it left in order.
    pub server_pid: AtomicU64,
    /// Counts the server's starts: a client that sees it change looks again.
    pub starts: AtomicU64,
    /// The instance, low half first.
    pub instance: [AtomicU64; 2],
    /// Its [`Geometry`], field by field.
    pub geometry: [AtomicU64; 5],
    /// The gate: while not 0, no change may be deferred; see [`crate::local::deferred`].
    pub gate: AtomicU64,
    /// Not 0 while programs wait for memory.
    pub waiting: AtomicU64,
    /// The inode whose memory is just being taken, so that it is not to be opened; 0 for none.
    pub closing: AtomicU64,
    /// Unused, zero. What follows is read at every read and write, and lies in a cache line that
    /// the server does not write to at every turn.
    pub apart: [AtomicU64; 3],
    /// What the partition's time is ahead of this machine's clock, nanoseconds, as an `i64`; see
    /// [`crate::local::clock`].
    pub clock_offset: AtomicU64,
    /// Until when what is borrowed may be used without asking, nanoseconds since the machine was
    /// started; see [`crate::local::lease`].
    pub deadline: AtomicU64,
    /// The number of the member that this server is, 0 as long as it is alone: where the files were
    /// born that have no other number ([`crate::local::names::Inode::foreign`]).
    pub member: AtomicU64,
    /// Counts changes of containers, as a file is not checked again as long as none has changed:
    /// see [`CONTAINED`].
    pub containers: AtomicU64,
    /// Unused, zero.
    pub reserved: [AtomicU64; 44],
    /// See [`segment`].
    pub segments: [AtomicU64; SEGMENTS_MAX],
}
const _: () = assert!(size_of::<Superblock>() == 512 + 8 * SEGMENTS_MAX);
const _: () = assert!(size_of::<Superblock>() <= 256 << 10);
const _: () = assert!(offset_of!(Superblock, clock_offset).is_multiple_of(64));

impl Superblock {
    /// Notes whose memory this is, and its sizes. (Server only, before the magic word.)
    pub fn describe(&self, instance: InstanceId, geometry: Geometry) {
        let halves = [instance.0 as u64, (instance.0 >> 64) as u64];
        let Geometry { segments, files, map_pages, descriptions, inodes } = geometry;
        let sizes = [segments, files, map_pages, descriptions, inodes].map(u64::from);
        let words = self.instance.iter().chain(&self.geometry);
        for (word, value) in words.zip(halves.into_iter().chain(sizes)) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Whose memory this is, and its sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if another version of this program made it, or it is not yet made.
    pub fn described(&self) -> Result<(InstanceId, Geometry)> {
        let geometry = self.geometry.each_ref().map(|size| size.load(Ordering::SeqCst));
        let [segments, files, map_pages, descriptions, inodes] = geometry.map(|size| size as u32);
        let geometry = Geometry { segments, files, map_pages, descriptions, inodes };
        if self.magic.load(Ordering::SeqCst) != MAGIC || !geometry.is_sane() {
            return Err(Error::new(ErrorKind::Version, "shared memory of another version"));
        }
        let [low, high] = self.instance.each_ref().map(|half| half.load(Ordering::SeqCst));
        Ok((InstanceId(u128::from(high) << 64 | u128::from(low)), geometry))
    }
}

/// What the server says of a file with bytes in memory or openers.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct FileRecord {
    /// The [`crate::ids::Ino`]; 0 for a free slot. Checked after every use of the record.
    pub ino: AtomicU64,
    /// Bytes below this offset without a chunk lie in the backing and must be staged.
    pub backed_bytes: AtomicU64,
    /// Entries of the first chunks.
    pub inline: [AtomicU64; INLINE_ENTRIES],
    /// 1 + the map page at the top of the other chunks' three-level map; 0 for none.
    pub root: AtomicU64,
    /// The [`crate::local::size::SizeWord`] that the server has set last: its epoch is that of the
    /// header, and the file is no shorter. 0: an older program made it.
    pub given: AtomicU64,
    /// How often a chunk of it has left memory, counted before another request is carried out: who
    /// finds a chunk absent twice, and this the same, knows that nobody has written to it in
    /// between.
    pub evictions: AtomicU64,
    /// The greatest update id of a write that was done only as long as it had an earlier one, whose
    /// bytes are all there.
    pub applied: AtomicU64,
}
const _: () = assert!(size_of::<FileRecord>() == 64);

/// A page of a file's map: entries at the lowest level, 1 + map page numbers above.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct MapPage(pub [AtomicU64; MAP_FANOUT]);
const _: () = assert!(size_of::<MapPage>() == PAGE_BYTES);

/// What writers keep of a file.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct FileHeader {
    /// See [`crate::local::size`].
    pub size: AtomicU64,
    /// See [`crate::local::size`].
    pub ticket: AtomicU64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: AtomicU64,
    /// Last read, nanoseconds since 1970, no finer than a second.
    pub accessed_ns: AtomicU64,
    /// Last write or change of size, nanoseconds since 1970: the file changed then, or later.
    pub changed_ns: AtomicU64,
    /// Not 0: it may have holes.
    pub holes: AtomicU64,
    /// What `F_SET_RW_HINT` said.
    pub hint: AtomicU64,
    /// The least token of a named lock with which it is written; 0: it needs none.
    pub fence: AtomicU64,
}
const _: () = assert!(size_of::<FileHeader>() == 64);

impl FileHeader {
    /// Notes a write.
    pub fn wrote(&self, time_ns: u64) {
        self.modified_ns.store(time_ns, Ordering::Relaxed);
        self.changed_ns.store(time_ns, Ordering::Relaxed);
    }
}

/// Access and status flags of a description.
pub mod access {
    /// May read.
    pub const READ: u64 = 1;
    /// May write.
    pub const WRITE: u64 = 2;
    /// Every write appends.
    pub const APPEND: u64 = 4;
    /// The description lives as long as its kernel descriptors; without it, as its session.
    pub const KERNEL: u64 = 8;
    /// Of a symbolic link itself, if that is what was named: only to look at.
    pub const LINK: u64 = 16;
    /// Opened with `O_DIRECT`, which changes nothing here, and is told to who asks.
    pub const DIRECT: u64 = 32;
    /// Of a file of another machine: what is written stays in a [batch](crate::local::batch) of
    /// this one until it is committed.
    pub const COMMIT: u64 = 64;
}

/// Beside the nonce of a description: its kernel descriptors are locked, so that none that holds
/// the lock means that all were closed.
pub const SHARED: u64 = 1 << 32;

/// An open-file description: what `dup`, `fork` and `exec` share.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct Description {
    /// Random, 31 bits, never 0 while open: a descriptor that carries another one is stale. And
    /// [`SHARED`].
    pub nonce: AtomicU64,
    /// The [`crate::ids::Ino`].
    pub ino: AtomicU64,
    /// The [`crate::ids::FileSlot`].
    pub file: AtomicU64,
    /// See [`access`].
    pub access: AtomicU64,
    /// The file offset, bytes.
    pub offset: AtomicU64,
    /// The token of a named lock with which it is written through this; 0: without one.
    pub token: AtomicU64,
    /// Unused, zero.
    pub reserved: [AtomicU64; 2],
}

impl Description {
    /// Whether it still is the one that got this nonce.
    pub fn is(&self, nonce: u32) -> bool {
        self.nonce.load(Ordering::SeqCst) as u32 == nonce
    }

    /// Whether it is that one, and [`SHARED`].
    pub fn is_shared(&self, nonce: u32) -> bool {
        self.nonce.load(Ordering::SeqCst) == u64::from(nonce) | SHARED
    }

    /// Marks it as [`SHARED`], if it still is the one that got this nonce.
    pub fn share(&self, nonce: u32) {
        let (alone, order) = (u64::from(nonce), (Ordering::SeqCst, Ordering::Relaxed));
        let _ = self.nonce.compare_exchange(alone, alone | SHARED, order.0, order.1);
    }

    /// Ends it for its handles, unless it is [`SHARED`], or not the one any more: then false.
    pub fn end(&self, nonce: u32) -> bool {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        self.nonce.compare_exchange(nonce.into(), 0, order.0, order.1).is_ok()
    }
}
const _: () = assert!(size_of::<Description>() == 64);

/// Start of `headers`: how a client tells the server that a request is waiting.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct Doorbell {
    /// Futex: clients add one and wake; the server waits for it to change.
    pub rings: AtomicU32,
    /// Whether the server sleeps, or is about to, see [`sleep`].
    pub sleeping: AtomicU32,
    /// A bit for each session with a request.
    pub sessions: [AtomicU64; 16],
    /// Not 0: changes were deferred.
    pub deferred: AtomicU64,
    /// Unused, zero.
    pub reserved: [AtomicU64; 14],
}
const _: () = assert!(size_of::<Doorbell>() == 256);

/// How the server sleeps, in [`Doorbell::sleeping`].
pub mod sleep {
    /// It does not.
    pub const AWAKE: u32 = 0;
    /// Until it is woken.
    pub const ASLEEP: u32 = 1;
    /// For a millisecond at most: what nobody waits for need not wake it.
    pub const DOZING: u32 = 2;
}

/// States of a request.
pub mod request {
    /// Nobody uses it.
    pub const FREE: u32 = 0;
    /// A client thread is writing its message.
    pub const FILLING: u32 = 1;
    /// The server shall answer.
    pub const ASKED: u32 = 2;
    /// The server shall act and free it; nobody waits.
    pub const TOLD: u32 = 3;
    /// The server has it, and will answer later.
    pub const TAKEN: u32 = 4;
    /// The answer is there.
    pub const ANSWERED: u32 = 5;

    /// Whether a state is any of these.
    pub fn is_sane(state: u32) -> bool {
        state <= ANSWERED
    }
}

/// One request in flight and, in the same place, its answer.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct RequestSlot {
    /// Futex, see [`request`].
    pub state: AtomicU32,
    /// Bytes of the message.
    pub length: AtomicU32,
    /// Counts the requests of this slot; with the session it names one for ever.
    pub sequence: AtomicU64,
    /// Not 0 while a client thread sleeps on `state`.
    pub waiting: AtomicU32,
    /// Unused, zero.
    pub padding: AtomicU32,
    /// Unused, zero.
    pub reserved: [AtomicU64; 5],
    /// The message.
    pub message: [AtomicU64; MESSAGE_BYTES / 8],
}
const _: () = assert!(size_of::<RequestSlot>() == 64 + MESSAGE_BYTES);

/// A hazard slot on a cache line of its own.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct HazardSlot {
    /// See [`crate::local::hazard`].
    pub word: AtomicU64,
    /// Unused, zero.
    pub reserved: [AtomicU64; 7],
}
const _: () = assert!(size_of::<HazardSlot>() == 64);

/// What a session's calls did, for the summary. Counted by the client, believed only for display.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct Counters {
    /// Files opened or created.
    pub opens: AtomicU64,
    /// Completed reads.
    pub reads: AtomicU64,
    /// Completed writes.
    pub writes: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Nanoseconds in reads.
    pub read_ns: AtomicU64,
    /// Nanoseconds in writes.
    pub write_ns: AtomicU64,
    /// Nanoseconds in every other call.
    pub other_ns: AtomicU64,
}
const _: () = assert!(size_of::<Counters>() == 64);

/// What a session has in hand for what it opens and makes without waiting. The server fills free
/// places, which are 0; who takes something leaves 0 there.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct Hand {
    /// Descriptions: number, and above it the nonce.
    pub descriptions: [AtomicU64; HAND_DESCRIPTIONS],
    /// Inode numbers.
    pub inos: [AtomicU64; HAND_INOS],
}
const _: () = assert!(size_of::<Hand>() == 1024);

/// What a session may do, it may do everywhere, and defer changes: beside the bits of operations in
/// [`SessionPage::operations`]. Who is bound to a path asks the server.
pub const WITHOUT_ASKING: u64 = 1 << 8;
/// What a session may do counts until [`SessionPage::until_ns`]; then the client has the server ask
/// who has issued it whether it still does.
pub const LEASED: u64 = 1 << 9;

/// Who has the session has logged in: containers say what he may with each open file, and he asks
/// again whenever [`Superblock::containers`] has changed.
pub const CONTAINED: u64 = 1 << 10;

/// All of `session-N`.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
pub struct SessionPage {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The session's index.
    pub session: AtomicU64,
    /// Bits of [`crate::wire::capability::Operations`] that what the session presented last allows,
    /// [`WITHOUT_ASKING`], [`LEASED`] and [`CONTAINED`]; 0 once that has run out. The client looks
    /// before it reads or writes bytes, and once more after it has claimed a word for a deferred
    /// change.
    pub operations: AtomicU64,
    /// When that runs out, nanoseconds since 1970.
    pub until_ns: AtomicU64,
    /// Unused, zero.
    pub reserved: [AtomicU64; 4],
    /// See [`Counters`].
    pub counters: Counters,
    /// See [`Hand`].
    pub hand: Hand,
    /// See [`crate::local::hazard`].
    pub hazards: [HazardSlot; HAZARDS],
    /// See [`request`].
    pub requests: [RequestSlot; REQUESTS],
    /// More inode numbers in hand.
    pub more_inos: [AtomicU64; HAND_MORE_INOS],
}
const _: () = assert!(size_of::<SessionPage>() == 2688 + 64 * HAZARDS + REQUESTS * 16448);

impl SessionPage {
    /// All places for inode numbers in hand.
    pub fn inos(&self) -> impl Iterator<Item = &AtomicU64> + Clone {
        self.hand.inos.iter().chain(&self.more_inos)
    }
}

/// Bytes of `session-N`, whole pages.
pub const SESSION_BYTES: usize = size_of::<SessionPage>().next_multiple_of(PAGE_BYTES);
