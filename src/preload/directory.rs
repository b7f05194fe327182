//! Directory streams: `opendir`, `readdir` and their family.
//!
//! Invariants: a stream of ours begins with a mark that glibc's, which begins with a descriptor
//! number and a lock, never has. Names are listed when the stream is opened or rewound, and stay.
//! Not here: `scandir` and `glob` (`scan`).

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;

use libc::{DIR, dirent64, size_t, ssize_t};
use terral_client::{Kind, Name as Listed, Number};

use crate::hook::{Last, by_open_fd, by_path};
use crate::path::Name;
use crate::real::{Served, alias, answer, kernel, libc_call};
use crate::state::Managed;
use crate::{close, connect, open, state};

/// High half where glibc keeps a lock word: 0, 1 or 2.
const MARK: u64 = 0x7e44_a1d1_0000_0000;

/// How often a directory that is being renamed is looked for again.
const ATTEMPTS: u32 = 10;

/// A stream of ours.
#[repr(C)]
struct Stream {
    mark: u64,
    fd: c_int,
    position: usize,
    listing: Listing,
    entry: dirent64,
}

/// What is in a directory.
#[derive(Default)]
struct Listing {
    /// Inode numbers of `.` and `..`; a removed directory has not even those.
    dots: Option<[u64; 2]>,
    names: Vec<Listed>,
}

/// The stream behind `directory` if it is ours.
///
/// # Safety
/// `directory` must be an open stream or null.
unsafe fn ours<'a>(directory: *mut DIR) -> Option<&'a mut Stream> {
    // SAFETY: glibc's streams are larger than a word, and ours begin with the mark.
    unsafe {
        (!directory.is_null() && *directory.cast::<u64>() == MARK)
            .then(|| &mut *directory.cast::<Stream>())
    }
}

/// The names of an open directory; none if it was removed.
fn list(held: &Managed) -> Served<Listing> {
    for _ in 0..ATTEMPTS {
        let path = match held.path() {
            Err(libc::ENOENT) => return Ok(Listing::default()),
            path => path?,
        };
        let above = path.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or(b"");
        let listed = connect::with(|client| {
            let above = client.stat(above)?.number;
            let dots = Some([client.number(held.file.ino()), above].map(Number::word));
            Ok(Listing { dots, names: client.list(&path)? })
        });
        match listed {
            // Renamed between the two.
            Err(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => {}
            listed => return listed,
        }
    }
    Err(libc::ENOENT)
}

fn stream(fd: c_int, held: &Managed) -> Served<*mut DIR> {
    let listing = list(held)?;
    // SAFETY: dirent64 is plain data; all zero is a value of it.
    let entry = unsafe { std::mem::zeroed() };
    let stream = Stream { mark: MARK, fd, position: 0, listing, entry };
    Ok(Box::into_raw(Box::new(stream)).cast())
}

fn open_stream(name: &Name<'_>) -> Served<*mut DIR> {
    let fd = open::open_name(name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
    let held = state::managed(fd).ok_or(libc::EBADF);
    held.and_then(|held| stream(fd, &held)).inspect_err(|_| {
        close::close_fd(fd);
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    type Function = unsafe extern "C" fn(*const c_char) -> *mut DIR;
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| libc_call!(c"opendir" as Function, ptr::null_mut(), path),
        |name| open_stream(&name)
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    type Function = unsafe extern "C" fn(c_int) -> *mut DIR;
    let Some(held) = state::managed(fd) else {
        return libc_call!(c"fdopendir" as Function, ptr::null_mut(), fd);
    };
    if !held.file.is_directory() {
        return answer(Err(libc::ENOTDIR));
    }
    answer(held.check_open().and_then(|()| stream(fd, &held)))
}

impl Stream {
    /// Name, inode number and type of the entry at the position.
    fn here(&self) -> Option<(&[u8], u64, u8)> {
        let [itself, above] = self.listing.dots?;
        let at = match self.position {
            0 => return Some((b".", itself, libc::DT_DIR)),
            1 => return Some((b"..", above, libc::DT_DIR)),
            after => after - 2,
        };
        let listed = self.listing.names.get(at)?;
        let kind = match listed.kind {
            Kind::File => libc::DT_REG,
            Kind::Directory => libc::DT_DIR,
            Kind::Symlink => libc::DT_LNK,
            Kind::Fifo => libc::DT_FIFO,
            Kind::Socket => libc::DT_SOCK,
        };
        // Names that only the backing knows so far have no number, and 0 would hide them.
        let ino = listed.number.map_or(u64::MAX - at as u64, Number::word);
        Some((&listed.name, ino, kind))
    }

    fn next(&mut self) -> *mut dirent64 {
        // SAFETY: dirent64 is plain data; all zero is a value of it.
        let mut entry: dirent64 = unsafe { std::mem::zeroed() };
        let Some((name, ino, kind)) = self.here() else { return ptr::null_mut() };
        let length = name.len().min(entry.d_name.len() - 1);
        for (to, from) in entry.d_name.iter_mut().zip(&name[..length]) {
            *to = *from as c_char;
        }
        entry.d_ino = ino;
        entry.d_type = kind;
        self.position += 1;
        entry.d_off = self.position as i64;
        let used = std::mem::offset_of!(dirent64, d_name) + length + 1;
        entry.d_reclen = used.next_multiple_of(8) as u16;
        self.entry = entry;
        &raw mut self.entry
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(directory: *mut DIR) -> *mut dirent64 {
    type Function = unsafe extern "C" fn(*mut DIR) -> *mut dirent64;
    // SAFETY: the caller promises a stream.
    match unsafe { ours(directory) } {
        Some(stream) => stream.next(),
        None => libc_call!(c"readdir64" as Function, ptr::null_mut(), directory),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readdir64_r(
    directory: *mut DIR,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    type Function = unsafe extern "C" fn(*mut DIR, *mut dirent64, *mut *mut dirent64) -> c_int;
    // SAFETY: the caller promises a stream.
    let Some(stream) = (unsafe { ours(directory) }) else {
        return libc_call!(c"readdir64_r" as Function, libc::ENOSYS, directory, entry, result);
    };
    let next = stream.next();
    // SAFETY: the caller promises both structs, and `next` is null or points into the stream.
    unsafe {
        if next.is_null() {
            *result = ptr::null_mut();
        } else {
            *entry = *next;
            *result = entry;
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(directory: *mut DIR) -> c_int {
    type Function = unsafe extern "C" fn(*mut DIR) -> c_int;
    // SAFETY: the caller promises a stream, which it gives up here.
    unsafe {
        if let Some(stream) = ours(directory) {
            let mut owned = Box::from_raw(ptr::from_mut(stream));
            owned.mark = 0;
            return close::close_fd(owned.fd);
        }
        if !directory.is_null() {
            drop(state::take(libc::dirfd(directory)));
        }
    }
    libc_call!(c"closedir" as Function, -1, directory)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dirfd(directory: *mut DIR) -> c_int {
    type Function = unsafe extern "C" fn(*mut DIR) -> c_int;
    // SAFETY: the caller promises a stream.
    match unsafe { ours(directory) } {
        Some(stream) => stream.fd,
        None => libc_call!(c"dirfd" as Function, -1, directory),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rewinddir(directory: *mut DIR) {
    type Function = unsafe extern "C" fn(*mut DIR);
    // SAFETY: the caller promises a stream.
    match unsafe { ours(directory) } {
        Some(stream) => {
            stream.position = 0;
            if let Some(Ok(listing)) = state::managed(stream.fd).map(|held| list(&held)) {
                stream.listing = listing;
            }
        }
        None => libc_call!(c"rewinddir" as Function, (), directory),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn telldir(directory: *mut DIR) -> c_long {
    type Function = unsafe extern "C" fn(*mut DIR) -> c_long;
    // SAFETY: the caller promises a stream.
    match unsafe { ours(directory) } {
        Some(stream) => stream.position as c_long,
        None => libc_call!(c"telldir" as Function, -1, directory),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn seekdir(directory: *mut DIR, position: c_long) {
    type Function = unsafe extern "C" fn(*mut DIR, c_long);
    // SAFETY: the caller promises a stream.
    match unsafe { ours(directory) } {
        Some(stream) => stream.position = position.max(0) as usize,
        None => libc_call!(c"seekdir" as Function, (), directory, position),
    }
}

/// Entries from the descriptor's offset on, which counts them.
fn fill(held: &Managed, room: &mut [u8]) -> Served<isize> {
    if !held.file.is_directory() {
        return Err(libc::ENOTDIR);
    }
    let mut stream = Stream {
        mark: 0,
        fd: -1,
        position: held.file.offset() as usize,
        listing: list(held)?,
        // SAFETY: dirent64 is plain data; all zero is a value of it.
        entry: unsafe { std::mem::zeroed() },
    };
    let mut end = 0;
    loop {
        let before = stream.position;
        let entry = stream.next();
        if entry.is_null() {
            break;
        }
        // SAFETY: the stream's entry is whole, its length within the struct.
        let bytes = unsafe {
            let length = usize::from((*entry).d_reclen);
            std::slice::from_raw_parts(entry.cast::<u8>(), length)
        };
        let Some(to) = room.get_mut(end..end + bytes.len()) else {
            if end == 0 {
                return Err(libc::EINVAL);
            }
            stream.position = before;
            break;
        };
        to.copy_from_slice(bytes);
        end += bytes.len();
    }
    held.file.set_offset(stream.position as u64);
    Ok(end as isize)
}

// In the kernel it would move the very offset that says what the descriptor is.
#[unsafe(no_mangle)]
unsafe extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    by_open_fd!(fd, kernel!(SYS_getdents64, fd, buffer, count), |held| {
        // SAFETY: the caller promises the buffer.
        fill(&held, unsafe { crate::data::room(buffer, count) })
    })
}

/// Opens a directory given relative to another, for `scan`.
pub fn open_at(dirfd: c_int, path: *const c_char) -> *mut DIR {
    by_path!(
        dirfd,
        path,
        Last::Followed,
        |at, path| {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let fd: c_int = kernel!(SYS_openat, at, path, flags, 0);
            // SAFETY: the descriptor is fresh.
            if fd < 0 { ptr::null_mut() } else { unsafe { fdopendir(fd) } }
        },
        |name| open_stream(&name)
    )
}

/// −1 and `errno`.
pub fn failed(errno: c_int) -> c_int {
    answer(Err(errno))
}

alias! {
    readdir = readdir64 as (directory: *mut DIR) -> *mut dirent64;
    readdir_r = readdir64_r as (
        directory: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64
    ) -> c_int;
}

const _: () = assert!(size_of::<*mut c_void>() == 8);
