//! What `terral run` says in the environment: `TERRAL_INSTANCE` and `TERRAL_PREFIX`. Without both
//! the library is inert. And what the program may do, if that is less than its user: the file that
//! `TERRAL_CAPABILITY`, or `TERRAL_CREDENTIAL`, names.
//!
//! Invariants: read once, straight from `environ` (shells bring a `getenv` of their own), and
//! copied, since programs overwrite their environment. Not here: the working directory.

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const UNREAD: u32 = 0;
const READING: u32 = 1;
const INERT: u32 = 2;
const ACTIVE: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNREAD);

/// A string of at most `N` bytes in static memory.
struct Text<const N: usize> {
    bytes: UnsafeCell<[u8; N]>,
    length: UnsafeCell<usize>,
}

// SAFETY: written only in state READING by the one thread that got there, read only in ACTIVE.
unsafe impl<const N: usize> Sync for Text<N> {}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Text { bytes: UnsafeCell::new([0; N]), length: UnsafeCell::new(0) }
    }

    fn get(&self) -> &[u8] {
        // SAFETY: only called in state ACTIVE, after which nobody writes.
        unsafe { (&(*self.bytes.get())).get(..*self.length.get()).unwrap_or(&[]) }
    }

    /// Takes a copy; false if it does not fit.
    fn set(&self, value: &[u8]) -> bool {
        // SAFETY: only called in state READING, by one thread.
        unsafe {
            let Some(room) = (&mut (*self.bytes.get())).get_mut(..value.len()) else {
                return false;
            };
            room.copy_from_slice(value);
            *self.length.get() = value.len();
        }
        true
    }
}

static PREFIX: Text<1024> = Text::new();
/// What says what a program may do, if that is less than its user.
pub const HELD: [&[u8]; 2] = [b"TERRAL_CAPABILITY", b"TERRAL_CREDENTIAL"];

static INSTANCE: Text<3072> = Text::new();
static LIBRARY: Text<4096> = Text::new();
static SPREAD: Text<8192> = Text::new();
static CAPABILITY: Text<4096> = Text::new();
static CREDENTIAL: Text<4096> = Text::new();
static TOKEN: Text<32> = Text::new();

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The program's environment array.
pub fn environment() -> *const *const c_char {
    // SAFETY: a plain read of a pointer that libc keeps.
    unsafe { environ }
}

/// Value of `name` in an environment array, which may be null.
///
/// # Safety
/// `list` must be null or a null-terminated array of strings, alive as long as the answer is used.
pub unsafe fn find<'a>(list: *const *const c_char, name: &[u8]) -> Option<&'a CStr> {
    if list.is_null() {
        return None;
    }
    let mut at = list;
    loop {
        // SAFETY: `at` has not passed the terminating null, and entries are strings.
        let entry = unsafe {
            if (*at).is_null() {
                return None;
            }
            CStr::from_ptr(*at)
        };
        let bytes = entry.to_bytes();
        if bytes.starts_with(name) && bytes.get(name.len()) == Some(&b'=') {
            // SAFETY: the name and '=' lie within the string, so the rest is a string as well.
            return Some(unsafe { CStr::from_ptr(entry.as_ptr().add(name.len() + 1)) });
        }
        // SAFETY: the entry just seen was not the terminating null.
        at = unsafe { at.add(1) };
    }
}

/// Whether there is anything to serve.
#[inline]
pub fn active() -> bool {
    match STATE.load(Ordering::Acquire) {
        ACTIVE => true,
        INERT => false,
        _ => read(environment()),
    }
}

/// Reads the environment if nobody has. Harmless to repeat.
#[cold]
pub fn read(list: *const *const c_char) -> bool {
    if list.is_null() {
        return false;
    }
    match STATE.compare_exchange(UNREAD, READING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let state = if take(list) { ACTIVE } else { INERT };
            STATE.store(state, Ordering::Release);
            state == ACTIVE
        }
        // Only possible before main or in a signal that hits this very moment: not ours then.
        Err(state) => state == ACTIVE,
    }
}

fn take(list: *const *const c_char) -> bool {
    // SAFETY: the environment is a null-terminated array of strings.
    let ([instance, prefix], [preloaded, spread, capability, credential, token]) = unsafe {
        let first = [&b"TERRAL_INSTANCE"[..], b"TERRAL_PREFIX"].map(|n| find(list, n));
        let more = [&b"LD_PRELOAD"[..], b"TERRAL_SPREAD", b"TERRAL_LOCK_TOKEN"];
        let held = HELD.map(|n| find(list, n));
        let more = more.map(|n| find(list, n));
        (first, [more[0], more[1], held[0], held[1], more[2]])
    };
    let (Some(instance), Some(prefix)) = (instance, prefix) else { return false };
    let mut prefix = prefix.to_bytes();
    while let Some(shorter) = prefix.strip_suffix(b"/") {
        prefix = shorter;
    }
    let plain = prefix.len() > 1
        && prefix.starts_with(b"/")
        && prefix[1..].split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    // What is too long is as none.
    let _ = SPREAD.set(spread.map_or(b"", CStr::to_bytes));
    // With a token that is none, what is fenced is not written.
    let _ = TOKEN.set(token.map_or(b"", CStr::to_bytes));
    for (place, said) in [(&CAPABILITY, capability), (&CREDENTIAL, credential)] {
        if !place.set(said.map_or(b"", CStr::to_bytes)) {
            // Whoever was given less must not have all: there is no such file.
            let _ = place.set(b"/dev/null");
        }
    }
    plain
        && instance.to_bytes().starts_with(b"/")
        && PREFIX.set(prefix)
        && INSTANCE.set(instance.to_bytes())
        && LIBRARY.set(library(preloaded))
}

/// Path of this library, as LD_PRELOAD should say it; empty if it cannot be told.
fn library(preloaded: Option<&CStr>) -> &[u8] {
    let listed = preloaded.map(CStr::to_bytes).unwrap_or(&[]);
    let mut entries = listed.split(|byte| matches!(byte, b':' | b' '));
    if let Some(entry) = entries.find(|entry| contains(entry, b"libterral_preload")) {
        return entry;
    }
    // SAFETY: dladdr fills the struct, and its name lives as long as this library is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here = read as fn(*const *const c_char) -> bool as *const c_void;
        if libc::dladdr(here, &raw mut info) as c_int != 0 && !info.dli_fname.is_null() {
            return CStr::from_ptr(info.dli_fname).to_bytes();
        }
    }
    &[]
}

/// Whether `needle` lies somewhere in `bytes`.
pub fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// The virtual prefix, without a slash at its end. Only if [`active`].
pub fn prefix() -> &'static [u8] {
    PREFIX.get()
}

/// The last component of the prefix. Only if [`active`].
pub fn prefix_name() -> &'static [u8] {
    let prefix = prefix();
    let slash = prefix.iter().rposition(|byte| *byte == b'/');
    &prefix[slash.map_or(0, |slash| slash + 1)..]
}

/// The absolute path of a name below the prefix. Only if [`active`].
pub fn below_prefix(path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    [prefix(), slash, path].concat()
}

/// What the kernel's own link of a descriptor says whose file has no name any more, by its number.
/// Only if [`active`].
pub fn gone(ino: u64) -> Vec<u8> {
    [prefix(), format!("/#{ino} (deleted)").as_bytes()].concat()
}

/// The instance directory. Only if [`active`].
pub fn instance() -> &'static Path {
    Path::new(OsStr::from_bytes(INSTANCE.get()))
}

/// How a server is started where there is none: path of `terral`, and that of the ticket to join.
/// Nothing where that is not to be. Only if [`active`].
pub fn spread() -> Option<(&'static [u8], &'static [u8])> {
    let both = SPREAD.get();
    let colon = both.iter().position(|byte| *byte == b':')?;
    Some((&both[..colon], &both[colon + 1..]))
}

/// The token of a named lock with which the program writes; 0: it has none. Only if [`active`].
pub fn token() -> u64 {
    let said = std::str::from_utf8(TOKEN.get()).ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(0)
}

/// The file with the capability that is presented; empty: the user's own is. Only if [`active`].
pub fn capability() -> &'static [u8] {
    CAPABILITY.get()
}

/// The file with the credential for which the server gives a capability; empty: there is none. Only
/// if [`active`].
pub fn credential() -> &'static [u8] {
    CREDENTIAL.get()
}

/// Path of this library. Only if [`active`].
pub fn library_path() -> &'static [u8] {
    LIBRARY.get()
}
