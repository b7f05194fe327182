//! What this process knows of its descriptor numbers.
//!
//! Invariants: a word per number says unknown, not ours, or which slot; closers make it unknown
//! again before the kernel may hand the number out anew. A slot counts its users, the table being
//! one, and is emptied by the last. No locks. An unknown number is identified once by asking the
//! kernel. Not here: vfork children, which do not exist (see `spawn`).

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terral_client::{File, access, descriptor};

use crate::standing::Standing;
use crate::{connect, settings, streams};

/// Numbers that can be managed; higher ones always go to the kernel.
pub const NUMBERS: usize = 1 << 16;

const UNKNOWN: u32 = 0;
const FOREIGN: u32 = 1;
const FIRST: u32 = 2;

const FREE: u32 = 0;
const CHANGING: u32 = u32::MAX;

/// What is behind a managed number.
#[derive(Clone)]
pub struct Managed {
    /// The open file.
    pub file: File,
    /// The flags it was opened with, if that was in this process: those the kernel's descriptor
    /// does not keep.
    pub flags: Option<c_int>,
    /// How the kernel's descriptor stands for it.
    pub standing: Standing,
}

impl Managed {
    /// A file that only one descriptor of this process stands for.
    pub fn new(file: File, flags: Option<c_int>, standing: Standing) -> Self {
        Managed { file, flags, standing }
    }

    /// Whether the kernel's descriptor `fd` may be one of this file.
    pub fn is_at(&self, fd: c_int) -> bool {
        self.standing.is_at(fd, &self.file)
    }

    /// To be called before anybody else can have the descriptor `fd`, which stands for this file:
    /// from then on the kernel knows whether one is left. Where it can keep no lock, the file ends
    /// with the first who closes it.
    pub fn share(&self, fd: c_int) {
        self.standing.share(fd, &self.file);
    }

    /// Its path below the prefix; ENOENT if it has no name any more.
    pub fn path(&self) -> Result<Vec<u8>, c_int> {
        if let Some(path) = self.file.path() {
            return Ok(path);
        }
        // While a server starts nobody can tell; an answer from it says that it has.
        connect::with(|client| client.stat(b""))?;
        self.file.path().ok_or(libc::ENOENT)
    }

    /// Does something with its path, see [`Managed::path`].
    pub fn with_path<T>(&self, call: impl FnOnce(&[u8]) -> T) -> Result<T, c_int> {
        match self.file.short_path() {
            Some(path) => Ok(call(&path)),
            None => self.path().map(|path| call(&path)),
        }
    }

    /// EBADF for an `O_PATH` descriptor.
    pub fn check_open(&self) -> Result<(), c_int> {
        let rights = access::READ | access::WRITE;
        if self.file.access() & rights == 0 { Err(libc::EBADF) } else { Ok(()) }
    }
}

struct Slot {
    users: AtomicU32,
    value: UnsafeCell<MaybeUninit<Managed>>,
}

// SAFETY: the value is written and dropped only in state CHANGING, which one thread can be in, and
// read only by threads that are counted as users.
unsafe impl Sync for Slot {}

static TABLE: [AtomicU32; NUMBERS] = [const { AtomicU32::new(UNKNOWN) }; NUMBERS];
static SLOTS: [Slot; NUMBERS] =
    [const { Slot { users: AtomicU32::new(FREE), value: UnsafeCell::new(MaybeUninit::uninit()) } };
        NUMBERS];
/// Where to look for a free slot first, modulo their number.
static HINT: AtomicU32 = AtomicU32::new(0);
/// Whether an `O_PATH` descriptor ever was managed.
static PATHS: AtomicBool = AtomicBool::new(false);
/// One more than the highest number that ever was managed.
static END: AtomicU32 = AtomicU32::new(0);
/// As the words of [`TABLE`]: the slot of the working directory, if there is one.
static WORKING: AtomicU32 = AtomicU32::new(FOREIGN);

/// A use of a slot: the file stays while this lives.
pub struct Held(u32);

impl Deref for Held {
    type Target = Managed;

    #[inline]
    fn deref(&self) -> &Managed {
        // SAFETY: this is a counted user, so the value is there and not being changed.
        unsafe { (*SLOTS[self.0 as usize].value.get()).assume_init_ref() }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let slot = &SLOTS[self.0 as usize];
        let mut users = slot.users.load(Ordering::Acquire);
        loop {
            let next = if users == 1 { CHANGING } else { users - 1 };
            match slot.users.compare_exchange_weak(users, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) if next == CHANGING => break,
                Ok(_) => return,
                Err(now) => users = now,
            }
        }
        // SAFETY: nobody else uses the slot, and CHANGING keeps everybody out.
        unsafe { (*slot.value.get()).assume_init_drop() };
        slot.users.store(FREE, Ordering::Release);
        // The one taken last is the next again: open and close stay in the same memory.
        let hint = HINT.load(Ordering::Relaxed);
        let last = hint.wrapping_sub(1);
        if last % NUMBERS as u32 == self.0 {
            let _ = HINT.compare_exchange(hint, last, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn join(index: u32) -> Option<Held> {
    let users = &SLOTS[index as usize].users;
    let mut now = users.load(Ordering::Acquire);
    while now != FREE && now != CHANGING {
        match users.compare_exchange_weak(now, now + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(Held(index)),
            Err(other) => now = other,
        }
    }
    None
}

/// What is behind `fd` if it is managed.
#[inline]
pub fn managed(fd: c_int) -> Option<Held> {
    let word = TABLE.get(fd as usize)?;
    match behind(word) {
        Ok(held) => Some(held),
        Err(FOREIGN) => None,
        Err(_) => identify(fd),
    }
}

/// What is behind `fd` if that is known: for numbers that other threads may be opening just now,
/// and whose files are theirs to put there.
pub fn known(fd: c_int) -> Option<Held> {
    behind(TABLE.get(fd as usize)?).ok()
}

/// What is behind a word, or the word itself if it says that nothing is.
#[inline]
fn behind(word: &AtomicU32) -> Result<Held, u32> {
    loop {
        match word.load(Ordering::Acquire) {
            nothing @ (FOREIGN | UNKNOWN) => return Err(nothing),
            known => {
                let held = join(known - FIRST);
                // The number may have been closed, and its slot used again, meanwhile.
                if word.load(Ordering::Acquire) == known
                    && let Some(held) = held
                {
                    return Ok(held);
                }
            }
        }
    }
}

/// The working directory, if one was put here.
pub fn working() -> Option<Held> {
    behind(&WORKING).ok()
}

/// Puts the working directory here.
pub fn set_working(directory: Managed) -> Result<(), c_int> {
    put(&WORKING, directory).map_err(|(errno, _)| errno)
}

#[cold]
fn identify(fd: c_int) -> Option<Held> {
    if connect::inside() {
        return None;
    }
    if !settings::active() {
        foreign(fd);
        return None;
    }
    let found = match descriptor::identify(fd) {
        Ok(Some(found)) => found,
        Ok(None) => {
            foreign(fd);
            return None;
        }
        Err(_) => return None,
    };
    if !descriptor::belongs(settings::instance(), &found) {
        foreign(fd);
        return None;
    }
    let file = connect::with(|client| client.adopt(found.description(), found.nonce())).ok()?;
    let managed = Managed::new(file, None, Standing::new(false));
    // Who had it before may have been forked in the middle of opening it.
    managed.share(fd);
    install(fd, managed).ok()?;
    join(TABLE[fd as usize].load(Ordering::Acquire).checked_sub(FIRST)?)
}

/// Whether `fd` is one of the instance's descriptors, without connecting.
pub fn is_ours(fd: c_int) -> bool {
    match TABLE.get(fd as usize).map(|word| word.load(Ordering::Acquire)) {
        None | Some(FOREIGN) => false,
        Some(UNKNOWN) => {
            settings::active()
                && matches!(descriptor::identify(fd), Ok(Some(found))
                    if descriptor::belongs(settings::instance(), &found))
        }
        Some(_) => true,
    }
}

/// Notes that an unknown number is the kernel's.
pub fn foreign(fd: c_int) {
    if let Some(word) = TABLE.get(fd as usize) {
        let _ = word.compare_exchange(UNKNOWN, FOREIGN, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Notes that `copy` now stands for the same as `from`, where that is known to be the kernel's.
pub fn foreign_copy(from: c_int, copy: c_int) {
    drop(take(copy));
    let known = TABLE.get(from as usize).map(|word| word.load(Ordering::Acquire));
    if known == Some(FOREIGN) {
        foreign(copy);
    }
}

/// Puts a file behind `fd`. EMFILE, and the file, if the number is beyond the table.
pub fn install(fd: c_int, managed: Managed) -> Result<(), (c_int, Managed)> {
    let Some(word) = TABLE.get(fd as usize) else { return Err((libc::EMFILE, managed)) };
    streams::ready();
    END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    put(word, managed)
}

/// Whether `fd` is an `O_PATH` descriptor of ours. Costs nothing where none has been seen.
#[inline]
pub fn is_path(fd: c_int) -> bool {
    PATHS.load(Ordering::Relaxed) && managed(fd).is_some_and(|held| held.check_open().is_err())
}

fn put(word: &AtomicU32, managed: Managed) -> Result<(), (c_int, Managed)> {
    if managed.check_open().is_err() {
        PATHS.store(true, Ordering::Relaxed);
    }
    let start = HINT.fetch_add(1, Ordering::Relaxed);
    for step in 0..NUMBERS as u32 {
        let index = start.wrapping_add(step) % NUMBERS as u32;
        let slot = &SLOTS[index as usize];
        let free = slot.users.compare_exchange(FREE, CHANGING, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            // SAFETY: CHANGING keeps everybody else out, and a free slot holds no value.
            unsafe { (*slot.value.get()).write(managed) };
            slot.users.store(1, Ordering::Release);
            forget(word.swap(index + FIRST, Ordering::AcqRel));
            return Ok(());
        }
    }
    Err((libc::EMFILE, managed))
}

/// Makes `fd` unknown, and gives what was behind it. Call it before the kernel closes the number.
pub fn take(fd: c_int) -> Option<Held> {
    forget(TABLE.get(fd as usize)?.swap(UNKNOWN, Ordering::AcqRel))
}

/// The table's own use, as a [`Held`].
fn forget(word: u32) -> Option<Held> {
    word.checked_sub(FIRST).map(Held)
}

/// Numbers from `first` to `last` that this process knows to be managed.
pub fn managed_between(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let end = (last as usize).saturating_add(1).min(END.load(Ordering::Relaxed) as usize);
    let start = (first as usize).min(end);
    (start..end).filter(|fd| TABLE[*fd].load(Ordering::Acquire) >= FIRST).map(|fd| fd as c_int)
}

/// Makes every number from `first` to `last` unknown that is not managed.
pub fn reset_between(first: u32, last: u32) {
    let end = (last as usize).saturating_add(1).min(NUMBERS);
    for word in TABLE.iter().take(end).skip(first as usize) {
        let _ = word.compare_exchange(FOREIGN, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }
}
