//! `scandir` and `glob`, which read directories inside libc.
//!
//! Invariants: what they allocate is `malloc`ed, since their callers free it. `glob` itself stays
//! libc's, with this library's functions to read directories. Not here: `ftw` and `nftw` (`walk`),
//! and `fts` (`trees`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libc::{DIR, dirent64};

use crate::directory::{closedir, failed, open_at, opendir, readdir64};
use crate::metadata::{lstat, stat};
use crate::real::{errno, libc_call};
use crate::settings;

type Filter = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>;

/// A name, and its `d_type`.
type Named = (Vec<u8>, u8);

/// Name and type of all entries of a directory, its own two included.
pub fn entries_of(path: &CStr) -> Result<Vec<Named>, c_int> {
    let mut found = Vec::new();
    // SAFETY: the path has its zero; the stream is open until it is closed, its entries whole.
    unsafe {
        let stream = opendir(path.as_ptr());
        if stream.is_null() {
            return Err(errno());
        }
        loop {
            let entry = readdir64(stream);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes();
            found.push((name.to_vec(), (*entry).d_type));
        }
        closedir(stream);
    }
    Ok(found)
}

/// A `malloc`ed copy of an entry.
unsafe fn copied(entry: *const dirent64) -> *mut dirent64 {
    // SAFETY: the entry is whole, its length within the struct.
    unsafe {
        let bytes = usize::from((*entry).d_reclen);
        let copy = libc::malloc(bytes);
        if !copy.is_null() {
            ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), bytes);
        }
        copy.cast()
    }
}

unsafe fn scan(
    directory: *mut DIR,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    compare: Compare,
) -> c_int {
    if directory.is_null() {
        return -1;
    }
    let mut found: Vec<*mut dirent64> = Vec::new();
    // SAFETY: the stream is open until closed below; entries are whole; the caller promises `list`
    // and functions of the types that scandir documents.
    unsafe {
        loop {
            let entry = readdir64(directory);
            if entry.is_null() {
                break;
            }
            if filter.is_none_or(|filter| filter(entry) != 0) {
                found.push(copied(entry));
            }
        }
        closedir(directory);
        let bytes = found.len().max(1) * size_of::<*mut dirent64>();
        let array = libc::malloc(bytes).cast::<*mut dirent64>();
        if array.is_null() || found.iter().any(|entry| entry.is_null()) {
            found.iter().for_each(|entry| libc::free(entry.cast()));
            libc::free(array.cast());
            return failed(libc::ENOMEM);
        }
        ptr::copy_nonoverlapping(found.as_ptr(), array, found.len());
        if let Some(compare) = compare {
            type Plain = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
            type Typed = unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int;
            let compare = std::mem::transmute::<Typed, Plain>(compare);
            libc::qsort(array.cast(), found.len(), size_of::<*mut dirent64>(), Some(compare));
        }
        *list = array;
    }
    found.len() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandirat64(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    compare: Compare,
) -> c_int {
    if !settings::active() {
        type Function = unsafe extern "C" fn(
            c_int,
            *const c_char,
            *mut *mut *mut dirent64,
            Filter,
            Compare,
        ) -> c_int;
        return libc_call!(c"scandirat64" as Function, -1, dirfd, path, list, filter, compare);
    }
    // SAFETY: the caller promises the list and the functions.
    unsafe { scan(open_at(dirfd, path), list, filter, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandir64(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    compare: Compare,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { scandirat64(libc::AT_FDCWD, path, list, filter, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandir(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    compare: Compare,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { scandirat64(libc::AT_FDCWD, path, list, filter, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandirat(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    filter: Filter,
    compare: Compare,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { scandirat64(dirfd, path, list, filter, compare) }
}

/// glibc's `glob_t`, whose function fields the libc crate hides.
#[repr(C)]
struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offsets: usize,
    flags: c_int,
    close: unsafe extern "C" fn(*mut DIR) -> c_int,
    read: unsafe extern "C" fn(*mut DIR) -> *mut dirent64,
    open: unsafe extern "C" fn(*const c_char) -> *mut DIR,
    lstat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int,
}
const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

type GlobError = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn glob(
    pattern: *const c_char,
    flags: c_int,
    error: Option<GlobError>,
    to: *mut Glob,
) -> c_int {
    type Function =
        unsafe extern "C" fn(*const c_char, c_int, Option<GlobError>, *mut Glob) -> c_int;
    let missing = libc::GLOB_ABORTED;
    if !settings::active() || flags & libc::GLOB_ALTDIRFUNC != 0 {
        return libc_call!(c"glob" as Function, missing, pattern, flags, error, to);
    }
    // SAFETY: the caller promises the struct.
    unsafe {
        (*to).close = closedir;
        (*to).read = readdir64;
        (*to).open = opendir;
        (*to).lstat = lstat;
        (*to).stat = stat;
    }
    let flags = flags | libc::GLOB_ALTDIRFUNC;
    let answer = libc_call!(c"glob" as Function, missing, pattern, flags, error, to);
    // SAFETY: as above.
    unsafe { (*to).flags &= !libc::GLOB_ALTDIRFUNC };
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn glob64(
    pattern: *const c_char,
    flags: c_int,
    error: Option<GlobError>,
    to: *mut Glob,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { glob(pattern, flags, error, to) }
}
