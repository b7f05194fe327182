//! glibc's own streams over this library's calls. Inside libc a stream reaches the kernel through
//! a few entries of two tables, which glibc exports: five of those are put to the functions below,
//! once something is managed, so that every stream serves whatever its descriptor is.
//!
//! Invariants: an entry is replaced only where it holds the very function that glibc exports under
//! that name, in all places or in none; the tables' memory is read-only again afterwards. Not here:
//! how streams come to be (`stdio`).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::{FILE, off_t, size_t, ssize_t};

use crate::real::kernel;

/// glibc's flags of a stream that may not be read, may not be written, has failed, or appends.
const NO_READS: c_int = 4;
const NO_WRITES: c_int = 8;
const FAILED: c_int = 0x20;
const APPENDING: c_int = 0x1000;

/// The front of glibc's FILE, which its ABI fixes.
#[repr(C)]
struct Head {
    flags: c_int,
    buffers: [usize; 13],
    fileno: c_int,
    flags2: c_int,
    old_offset: off_t,
    column: u16,
    vtable_offset: i8,
    short: [u8; 1],
    lock: usize,
    offset: off_t,
}
const _: () = assert!(std::mem::offset_of!(Head, fileno) == 112);
const _: () = assert!(std::mem::offset_of!(Head, offset) == 144);

/// Entries of a table, of which glibc uses 21.
const ENTRIES: usize = 21;
const TABLES: [&CStr; 2] = [c"_IO_file_jumps", c"_IO_wfile_jumps"];
const NAMES: [&CStr; 5] =
    [c"_IO_file_read", c"_IO_file_write", c"_IO_file_seek", c"_IO_file_close", c"_IO_file_stat"];

const UNTOUCHED: u32 = 0;
const CHANGING: u32 = 1;
const READY: u32 = 2;
const IMPOSSIBLE: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(UNTOUCHED);

/// A signal handler must not wait for what it interrupted; another thread is done much earlier.
const WAITS_MAX: u32 = 1000;

/// Makes streams serve managed descriptors; false if this libc does not let us.
pub fn ready() -> bool {
    match STATE.load(Ordering::Acquire) {
        READY => return true,
        IMPOSSIBLE => return false,
        _ => {}
    }
    let order = Ordering::AcqRel;
    if STATE.compare_exchange(UNTOUCHED, CHANGING, order, Ordering::Acquire).is_ok() {
        let state = if change() { READY } else { IMPOSSIBLE };
        STATE.store(state, Ordering::Release);
        return state == READY;
    }
    for _ in 0..WAITS_MAX {
        if STATE.load(Ordering::Acquire) != CHANGING {
            break;
        }
        let _: c_int = kernel!(SYS_sched_yield);
    }
    STATE.load(Ordering::Acquire) == READY
}

fn symbol(name: &CStr) -> usize {
    // SAFETY: the name has its zero, and RTLD_DEFAULT is a valid handle.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

#[cold]
fn change() -> bool {
    let ours = [
        stream_read as *const () as usize,
        stream_write as *const () as usize,
        stream_seek as *const () as usize,
        stream_close as *const () as usize,
        stream_stat as *const () as usize,
    ];
    let theirs = NAMES.map(symbol);
    let tables = TABLES.map(|name| symbol(name) as *const AtomicUsize);
    if theirs.contains(&0) || tables.iter().any(|table| table.is_null()) {
        return false;
    }
    // SAFETY: glibc's tables have that many entries, each a pointer.
    let tables = tables.map(|table| unsafe { std::slice::from_raw_parts(table, ENTRIES) });
    let holds = |table: &[AtomicUsize], function: &usize| {
        table.iter().any(|entry| entry.load(Ordering::Relaxed) == *function)
    };
    if !tables.iter().all(|table| theirs.iter().all(|function| holds(table, function))) {
        return false;
    }
    tables.iter().all(|table| {
        with_writable(table, |entry| {
            let at = theirs.iter().position(|function| *function == entry.load(Ordering::Relaxed));
            if let Some(at) = at {
                entry.store(ours[at], Ordering::Release);
            }
        })
    })
}

/// Applies `change` to every entry, which the loader has made read-only after relocation.
fn with_writable(table: &[AtomicUsize], change: impl Fn(&AtomicUsize)) -> bool {
    const PAGE: usize = 4096;
    let range = table.as_ptr_range();
    let first = range.start.addr() & !(PAGE - 1);
    let bytes = range.end.addr().next_multiple_of(PAGE) - first;
    let locked = is_read_only(range.start.addr());
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let opened: c_int = if locked { kernel!(SYS_mprotect, first, bytes, writable) } else { 0 };
    if opened != 0 {
        return false;
    }
    table.iter().for_each(change);
    if locked {
        let _: c_int = kernel!(SYS_mprotect, first, bytes, libc::PROT_READ);
    }
    true
}

/// Whether the loader has made the memory at `address` read-only after relocation.
fn is_read_only(address: usize) -> bool {
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _size: size_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a whole object, and `data` is the address below.
        unsafe {
            let address = *data.cast::<usize>();
            let count = usize::from((*object).dlpi_phnum);
            let headers = std::slice::from_raw_parts((*object).dlpi_phdr, count);
            let covers = headers.iter().any(|header| {
                let start = (*object).dlpi_addr as usize + header.p_vaddr as usize;
                header.p_type == libc::PT_GNU_RELRO
                    && (start..start + header.p_memsz as usize).contains(&address)
            });
            c_int::from(covers)
        }
    }
    let mut address = address;
    // SAFETY: the function matches what the loader calls, and the address outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut address).cast()) != 0 }
}

fn head(stream: *mut FILE) -> *mut Head {
    stream.cast()
}

/// The descriptor's number, negative if the stream has none.
pub fn number(stream: *mut FILE) -> c_int {
    // SAFETY: every stream of glibc's has the field.
    unsafe { (*head(stream)).fileno }
}

/// Lets the stream do what `flags` of `open` say, whatever it could before.
pub fn set_rights(stream: *mut FILE, flags: c_int) {
    let rights = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let append = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
    // SAFETY: every stream of glibc's has the field.
    unsafe {
        let word = &mut (*head(stream)).flags;
        *word = (*word & !(NO_READS | NO_WRITES | APPENDING)) | rights | append;
    }
}

// In the functions below, what is called through `libc` is this library's own hook.

unsafe extern "C" fn stream_read(stream: *mut FILE, room: *mut c_void, count: ssize_t) -> ssize_t {
    // SAFETY: stdio passes its own buffer.
    unsafe { libc::read(number(stream), room, count as size_t) }
}

unsafe extern "C" fn stream_write(
    stream: *mut FILE,
    bytes: *const c_void,
    count: ssize_t,
) -> ssize_t {
    let fd = number(stream);
    let mut done = 0;
    // SAFETY: stdio passes its own buffer, and the fields are those of every stream.
    unsafe {
        while done < count {
            let rest = bytes.byte_add(done as usize);
            let part = libc::write(fd, rest, (count - done) as size_t);
            if part < 0 {
                (*head(stream)).flags |= FAILED;
                break;
            }
            done += part;
        }
        if (*head(stream)).offset >= 0 {
            (*head(stream)).offset += done as off_t;
        }
    }
    done
}

unsafe extern "C" fn stream_seek(stream: *mut FILE, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: lseek takes any numbers.
    unsafe { libc::lseek(number(stream), offset, whence) }
}

unsafe extern "C" fn stream_close(stream: *mut FILE) -> c_int {
    // SAFETY: the stream gives its descriptor up.
    unsafe { libc::close(number(stream)) }
}

unsafe extern "C" fn stream_stat(stream: *mut FILE, to: *mut c_void) -> c_int {
    // SAFETY: stdio passes room for a `struct stat`.
    unsafe { libc::fstat(number(stream), to.cast()) }
}
