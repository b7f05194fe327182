//! The objects that are loaded, and which of them enter the kernel by instructions of their own.
//!
//! What was found in a file is remembered for all programs of the instance, in one word of its
//! file `instructions`, so that a program's start does not read its own code. Invariants: a word
//! is found again only for the same, unchanged file; whatever is in that file, a wrong word is as
//! likely as two files with one hash of 62 bits. Not here: what follows from it (`caught`).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use terral_client::raw_calls;

use crate::real::kernel;
use crate::settings;

/// Words in the file, and those among which one's place may be.
const SLOTS: u64 = 4096;
const NEIGHBOURS: usize = 4;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It calls libc.
    Plain = 1,
    /// It has instructions of its own.
    Raw = 2,
    /// It is Go's.
    Go = 3,
}

/// What was newly loaded.
#[derive(Default)]
pub struct Found {
    /// Paths of objects with instructions of their own.
    pub raw: Vec<Vec<u8>>,
    /// Those of Go's.
    pub go: Vec<Vec<u8>>,
}

/// The linker's counts at the last look: objects that ever came, and that went.
static CAME: AtomicU64 = AtomicU64::new(0);
static WENT: AtomicU64 = AtomicU64::new(0);
/// Objects that were there then.
static LISTED: AtomicU64 = AtomicU64::new(0);

/// The file of words; −1: not open yet.
struct Words(c_int);

impl Words {
    fn open(&mut self) -> c_int {
        if self.0 < 0 {
            let instance = settings::instance().as_os_str().as_encoded_bytes();
            let path = [instance, b"/instructions\0"].concat();
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
            self.0 = kernel!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        }
        self.0
    }

    fn place(fingerprint: u64) -> i64 {
        (fingerprint % SLOTS * 8).cast_signed()
    }

    fn known(&mut self, fingerprint: u64) -> Option<Verdict> {
        let mut slots = [0u64; NEIGHBOURS];
        let (size, at) = (size_of_val(&slots), Words::place(fingerprint));
        let _: isize = kernel!(SYS_pread64, self.open(), slots.as_mut_ptr(), size, at);
        let word = slots.iter().find(|word| **word >> 2 == fingerprint >> 2)?;
        [Verdict::Plain, Verdict::Raw, Verdict::Go].into_iter().find(|one| *one as u64 == word & 3)
    }

    fn remember(&mut self, fingerprint: u64, verdict: Verdict) {
        let mut slots = [0u64; NEIGHBOURS];
        let (size, at) = (size_of_val(&slots), Words::place(fingerprint));
        let _: isize = kernel!(SYS_pread64, self.open(), slots.as_mut_ptr(), size, at);
        let free = slots.iter().position(|word| *word == 0);
        let slot = free.unwrap_or((fingerprint >> 40) as usize % NEIGHBOURS);
        let word = fingerprint & !3 | verdict as u64;
        let at = at + slot as i64 * 8;
        let _: isize = kernel!(SYS_pwrite64, self.0, &raw const word, size_of::<u64>(), at);
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.0 >= 0 {
            let _: c_int = kernel!(SYS_close, self.0);
        }
    }
}

/// A number for a file as it is now.
fn fingerprint(stat: &libc::stat) -> u64 {
    let parts = [
        stat.st_dev,
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec.cast_unsigned(),
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec.cast_unsigned(),
    ];
    // The finalizer of splitmix64, over one after the other.
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |hash: u64, part| {
        let mixed = (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Reads a file's code.
fn read(path: &CStr, size: usize) -> Option<Verdict> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    if fd < 0 {
        return None;
    }
    let none = std::ptr::null::<u8>();
    let (rights, how) = (libc::PROT_READ, libc::MAP_PRIVATE);
    let start: isize = kernel!(SYS_mmap, none, size, rights, how, fd, 0usize);
    let _: c_int = kernel!(SYS_close, fd);
    if start == -1 {
        return None;
    }
    // SAFETY: just mapped. A file that is loaded is not cut off: the linker's own map would be,
    // too.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
    let looked = raw_calls::look(bytes);
    let _: c_int = kernel!(SYS_munmap, start, size);
    Some(match looked {
        Some(own) if own.is_go => Verdict::Go,
        Some(own) if !own.numbers.is_empty() => Verdict::Raw,
        _ => Verdict::Plain,
    })
}

fn judge(path: &CStr, words: &mut Words) -> Option<Verdict> {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let (at, none) = (libc::AT_FDCWD, 0);
    let found: c_int = kernel!(SYS_newfstatat, at, path.as_ptr(), &raw mut stat, none);
    if found != 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_size == 0 {
        return None;
    }
    let fingerprint = fingerprint(&stat);
    if let Some(known) = words.known(fingerprint) {
        return Some(known);
    }
    let verdict = read(path, stat.st_size as usize)?;
    words.remember(fingerprint, verdict);
    Some(verdict)
}

/// What the callback below works on.
struct Look {
    /// Objects that were looked at before.
    old: u64,
    index: u64,
    words: Words,
    found: Found,
}

const PROGRAM: &CStr = c"/proc/self/exe";

unsafe extern "C" fn each(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    look: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes what it knows of an object; `fresh` passes its own.
    let (object, look) = unsafe { (&*object, &mut *look.cast::<Look>()) };
    let (came, went) = (object.dlpi_adds, object.dlpi_subs);
    if look.index == 0 {
        let same = WENT.swap(went, Ordering::Relaxed) == went;
        if CAME.swap(came, Ordering::Relaxed) == came && same {
            return 1;
        }
        // Others came behind those that were there.
        look.old = if same { LISTED.load(Ordering::Relaxed) } else { 0 };
    }
    look.index += 1;
    if look.index <= look.old || object.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the linker's string.
    let name = unsafe { CStr::from_ptr(object.dlpi_name) };
    if raw_calls::is_known(name.to_bytes()) {
        return 0;
    }
    let path = if name.is_empty() { PROGRAM } else { name };
    match judge(path, &mut look.words) {
        Some(Verdict::Raw) => look.found.raw.push(path.to_bytes().to_vec()),
        Some(Verdict::Go) => look.found.go.push(path.to_bytes().to_vec()),
        Some(Verdict::Plain) | None => {}
    }
    0
}

/// Looks at what was loaded since the last look.
pub fn fresh() -> Found {
    let mut look = Look { old: 0, index: 0, words: Words(-1), found: Found::default() };
    // SAFETY: the callback gets what it expects.
    let ended = unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut look).cast()) };
    if ended == 0 {
        LISTED.store(look.index, Ordering::Relaxed);
    }
    look.found
}

/// What a person calls an object.
pub fn shown(path: &[u8]) -> String {
    let mut target = [0u8; 4096];
    let at = libc::AT_FDCWD;
    let (link, room) = (PROGRAM.as_ptr(), target.len());
    let length: isize = match path == PROGRAM.to_bytes() {
        true => kernel!(SYS_readlinkat, at, link, target.as_mut_ptr(), room),
        false => -1,
    };
    let name = usize::try_from(length).ok().and_then(|length| target.get(..length));
    String::from_utf8_lossy(name.unwrap_or(path)).into_owned()
}
