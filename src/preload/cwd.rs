//! The logical working directory while it lies under the prefix. The kernel's own is then the
//! instance's empty `shadow`, so that relative paths of calls nobody hooks fail loudly.
//!
//! Invariants: eight buffers in turn and a generation, so that readers copy without a lock; exec
//! carries the directory as `TERRAL_CWD`, an absolute path. Not here: the chdir hooks.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::real::kernel;
use crate::settings;

const PATH_BYTES: usize = 4096;
const NAME: &[u8] = b"TERRAL_CWD=";
const ENTRY_BYTES: usize = NAME.len() + PATH_BYTES;

struct Turn {
    bytes: UnsafeCell<[u8; PATH_BYTES]>,
    length: UnsafeCell<usize>,
}

// SAFETY: a turn is written while no reader uses it, unless seven more chdirs overtake a reader,
// which that reader notices and reads again; bytes are plain data.
unsafe impl Sync for Turn {}

static TURNS: [Turn; 8] =
    [const { Turn { bytes: UnsafeCell::new([0; PATH_BYTES]), length: UnsafeCell::new(0) } }; 8];
/// Generation of the current directory; 0 while it is the kernel's.
static CURRENT: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicU32 = AtomicU32::new(8);

struct Entry(UnsafeCell<[u8; ENTRY_BYTES]>);

// SAFETY: chdir writes it and exec reads it; a race between those is the program's own.
unsafe impl Sync for Entry {}

/// What `system` and `popen`, which pass `environ` on by themselves, tell their child.
static ENTRY: Entry = Entry(UnsafeCell::new([0; ENTRY_BYTES]));

/// Whether the working directory lies under the prefix.
#[inline]
pub fn is_managed() -> bool {
    CURRENT.load(Ordering::Acquire) != 0
}

/// Copies the absolute path into `space`; `None` if the directory is the kernel's.
pub fn copy(space: &mut [u8; PATH_BYTES]) -> Option<usize> {
    loop {
        let generation = CURRENT.load(Ordering::Acquire);
        if generation == 0 {
            return None;
        }
        let turn = &TURNS[generation as usize % TURNS.len()];
        // SAFETY: see `Turn`; a torn copy is noticed below.
        let length = unsafe {
            let length = (*turn.length.get()).min(PATH_BYTES);
            space[..length].copy_from_slice(&(&(*turn.bytes.get()))[..length]);
            length
        };
        let now = CURRENT.load(Ordering::Acquire);
        if now == generation || (now != 0 && now.wrapping_sub(generation) < 7) {
            return Some(length);
        }
    }
}

/// Sets the logical directory, an absolute path under the prefix; `None` for the kernel's.
pub fn set(path: Option<&[u8]>) {
    let path = path.filter(|path| path.len() < PATH_BYTES);
    if let Some(path) = path {
        let mut generation = NEXT.fetch_add(1, Ordering::AcqRel);
        if generation == 0 {
            generation = NEXT.fetch_add(8, Ordering::AcqRel);
        }
        let turn = &TURNS[generation as usize % TURNS.len()];
        // SAFETY: see `Turn`.
        unsafe {
            (&mut (*turn.bytes.get()))[..path.len()].copy_from_slice(path);
            *turn.length.get() = path.len();
        }
        CURRENT.store(generation, Ordering::Release);
    } else {
        CURRENT.store(0, Ordering::Release);
    }
    write_entry(path.unwrap_or(&[]));
}

fn write_entry(path: &[u8]) {
    // SAFETY: see `Entry`; the path is shorter than PATH_BYTES, so its zero fits.
    unsafe {
        let entry = &mut *ENTRY.0.get();
        entry[..NAME.len()].copy_from_slice(NAME);
        entry[NAME.len()..NAME.len() + path.len()].copy_from_slice(path);
        entry[NAME.len() + path.len()] = 0;
    }
}

/// `TERRAL_CWD=…`, with its zero, for a child.
pub fn entry() -> *const c_char {
    ENTRY.0.get().cast_const().cast()
}

/// Path of the empty directory the kernel stands in meanwhile, with its zero.
pub fn shadow(space: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    let instance = settings::instance().as_os_str().as_bytes();
    let mut end = 0;
    for part in [instance, b"/shadow\0"] {
        space.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    Some(space.as_ptr().cast())
}

/// Takes over what the parent process says, if the kernel stands in the shadow as it should.
///
/// # Safety
/// `list` must be the environment array, null-terminated, of strings that stay.
pub unsafe fn inherit(list: *mut *const c_char) {
    // SAFETY: the caller's promise.
    let Some(said) = (unsafe { settings::find(list.cast_const(), b"TERRAL_CWD") }) else {
        return set(None);
    };
    let path = said.to_bytes();
    let under = path.strip_prefix(settings::prefix());
    let under = under.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    set(Some(path).filter(|_| under && in_shadow()));
    let mut at = list;
    // SAFETY: the array ends with a null, and its entries may be replaced by other strings.
    unsafe {
        while !(*at).is_null() {
            if std::ffi::CStr::from_ptr(*at).to_bytes().starts_with(NAME) {
                *at = entry();
            }
            at = at.add(1);
        }
    }
}

fn in_shadow() -> bool {
    let mut shadow_path = [0u8; PATH_BYTES];
    let Some(path) = shadow(&mut shadow_path) else { return false };
    let here = device_and_inode(c".".as_ptr());
    here.is_some() && here == device_and_inode(path)
}

fn device_and_inode(path: *const c_char) -> Option<(u64, u64)> {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let done: c_int = kernel!(SYS_newfstatat, libc::AT_FDCWD, path, &raw mut stat, 0);
    (done == 0).then_some((stat.st_dev, stat.st_ino))
}
