//! The logical working directory while it lies under the prefix. The kernel's own is then the
//! instance's empty `shadow`, so that relative paths of calls nobody hooks fail loudly.
//!
//! Invariants: the directory is known as what it is, not by its name, so that it may be renamed;
//! exec carries its path as `TERRAL_CWD`, which is opened when it is first needed. Not here: the
//! chdir hooks.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use terral_client::{File, OpenHow, kept};

use crate::real::kernel;
use crate::standing::Standing;
use crate::{connect, settings, state};

const PATH_BYTES: usize = 4096;
const NAME: &[u8] = b"TERRAL_CWD=";
const ENTRY_BYTES: usize = NAME.len() + PATH_BYTES;

/// It is the kernel's.
const OUTSIDE: u32 = 0;
/// It is what [`ENTRY`] says, and was not opened yet.
const SAID: u32 = 1;
/// It is open.
const OPEN: u32 = 2;
static WHICH: AtomicU32 = AtomicU32::new(OUTSIDE);

struct Entry(UnsafeCell<[u8; ENTRY_BYTES]>);

// SAFETY: chdir writes it, and exec and the first relative path read it; a race between those is
// the program's own.
unsafe impl Sync for Entry {}

/// What `system` and `popen`, which pass `environ` on by themselves, tell their child.
static ENTRY: Entry = Entry(UnsafeCell::new([0; ENTRY_BYTES]));

/// Whether the working directory lies under the prefix.
#[inline]
pub fn is_managed() -> bool {
    WHICH.load(Ordering::Acquire) != OUTSIDE
}

/// Opens a directory below the prefix to stand in: nothing more than knowing which it is.
pub fn open(path: &[u8]) -> Result<File, c_int> {
    let how = OpenHow {
        access: 0,
        create: false,
        exclusive: false,
        truncate: false,
        directory: true,
        unnamed: false,
        mode: 0,
        token: 0,
        on: None,
    };
    connect::with(|client| {
        let directory = client.open(path, how)?;
        directory.close();
        Ok(directory)
    })
}

/// Does something with its path below the prefix, ENOENT if it was removed; `None` if it is the
/// kernel's.
pub fn with_path<T>(call: impl FnOnce(&[u8]) -> T) -> Option<Result<T, c_int>> {
    match WHICH.load(Ordering::Acquire) {
        OUTSIDE => return None,
        SAID => {
            if let Err(errno) = open(said()).and_then(keep) {
                return Some(Err(errno));
            }
        }
        _ => {}
    }
    let directory = state::working()?;
    Some(directory.with_path(call))
}

fn keep(directory: File) -> Result<(), c_int> {
    state::set_working(state::Managed::new(directory, None, Standing::new(false)))?;
    WHICH.store(OPEN, Ordering::Release);
    Ok(())
}

/// The working directory is now this one, called so.
pub fn enter(directory: File, path: &[u8]) -> Result<(), c_int> {
    keep(directory)?;
    write_entry(&settings::below_prefix(path));
    Ok(())
}

/// The working directory is now the kernel's.
pub fn leave() {
    WHICH.store(OUTSIDE, Ordering::Release);
    write_entry(&[]);
}

/// Has the entry say where the directory is by now, before a child gets it.
pub fn refresh() {
    if let Some(Ok(path)) = with_path(<[u8]>::to_vec) {
        write_entry(&settings::below_prefix(&path));
    }
}

fn write_entry(path: &[u8]) {
    let path = if path.len() < PATH_BYTES { path } else { &[] };
    // SAFETY: see `Entry`; the path is shorter than PATH_BYTES, so its zero fits.
    unsafe {
        let entry = &mut *ENTRY.0.get();
        entry[..NAME.len()].copy_from_slice(NAME);
        entry[NAME.len()..NAME.len() + path.len()].copy_from_slice(path);
        entry[NAME.len() + path.len()] = 0;
    }
}

/// The path below the prefix that the entry says.
fn said() -> &'static [u8] {
    let top = settings::prefix().len() + 1;
    text().get(top..).unwrap_or(&[])
}

/// The absolute path that the entry says; empty if the directory is the kernel's.
pub fn text() -> &'static [u8] {
    // SAFETY: see `Entry`; its zero lies within it.
    let entry = unsafe { &*ENTRY.0.get() };
    let text = &entry[NAME.len()..];
    &text[..text.iter().position(|byte| *byte == 0).unwrap_or(0)]
}

/// `TERRAL_CWD=…`, with its zero, for a child.
pub fn entry() -> *const c_char {
    ENTRY.0.get().cast_const().cast()
}
/// Path of the empty directory the kernel stands in meanwhile, with its zero.
pub fn shadow(space: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    kept::reach(settings::instance(), |instance| {
        let mut end = 0;
        for part in [instance.as_os_str().as_bytes(), b"/shadow\0"] {
            space.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(())
    })?;
    Some(space.as_ptr().cast())
}

/// Takes over what the parent process says, if the kernel stands in the shadow as it should.
///
/// # Safety
/// `list` must be the environment array, null-terminated, of strings that stay.
pub unsafe fn inherit(list: *mut *const c_char) {
    // SAFETY: the caller's promise.
    let Some(said) = (unsafe { settings::find(list.cast_const(), b"TERRAL_CWD") }) else {
        return leave();
    };
    let path = said.to_bytes();
    let under = path.strip_prefix(settings::prefix());
    let under = under.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    if under && path.len() < PATH_BYTES && in_shadow() {
        write_entry(path);
        WHICH.store(SAID, Ordering::Release);
    } else {
        leave();
    }
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
