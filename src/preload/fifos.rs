//! FIFOs under the prefix: opened in the kernel, which has their objects, and known again by the
//! objects' names.
//!
//! Invariants: a descriptor of a FIFO is the kernel's alone; what is asked of it about the inode
//! (attributes, its name) is answered as for the name. An open that waits for the other end does so
//! outside of everything that is served, so handlers run and may use files. Not here: who may
//! open one, which the server has said before; sockets (`sockets`).

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_client::{Change, Ino, Number, kept};

use crate::path::link_of;
use crate::real::{Served, answer, errno, kernel, set_errno};
use crate::{attributes, connect, memory, settings, state};

/// Longest path of an object.
const PATH_BYTES: usize = 512;
/// Flags of `open` that are about the name, which has been dealt with.
const OF_NAME: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW;

/// Opens a FIFO, and waits for its other end if the flags say so; ENOENT if it has no name any
/// more. Not to be called where handlers have to wait.
pub fn open(ino: Ino, flags: c_int) -> Served<c_int> {
    let (directory, name) = connect::with(|client| Ok(client.object(ino)))?;
    let path = [directory.as_os_str().as_bytes(), b"/", name.as_bytes(), b"\0"].concat();
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags & !OF_NAME, 0);
    if fd < 0 {
        return Err(errno());
    }
    state::foreign(fd);
    Ok(fd)
}

/// Device of the instance's directory; 0 if it cannot be reached.
fn device() -> u64 {
    static DEVICE: AtomicU64 = AtomicU64::new(0);
    let known = DEVICE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let device = kept::reach(settings::instance(), |instance| {
        let path = [instance.as_os_str().as_bytes(), b"\0"].concat();
        // SAFETY: stat is plain data, of which all zero is a value.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let found: c_int = kernel!(SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut stat, 0);
        if found == 0 { stat.st_dev } else { 0 }
    });
    DEVICE.store(device, Ordering::Relaxed);
    device
}

/// The FIFO behind a descriptor of the kernel's that is of this type and on this device.
fn behind(fd: c_int, mode: u32, dev: u64) -> Option<Ino> {
    let fifo = mode & libc::S_IFMT == libc::S_IFIFO;
    if !fifo || !settings::active() || connect::inside() || dev != device() {
        return None;
    }
    let mut link = [0; 32];
    let path = link_of(fd, &mut link)?;
    let mut text = [0u8; PATH_BYTES];
    let room = text.len();
    let count: isize = kernel!(SYS_readlinkat, libc::AT_FDCWD, path, text.as_mut_ptr(), room);
    let text = text.get(..usize::try_from(count).ok()?)?;
    connect::with(|client| Ok(client.whose_object(text))).ok()?
}

/// What `st_ino` says of a FIFO, which may have no name any more.
fn number(ino: Ino) -> u64 {
    let number = connect::with(|client| Ok(client.number(ino)));
    number.map_or(ino.0, Number::word)
}

/// Fills in what `fstat` has to say of a FIFO, where it `told` of the kernel's object. One that has
/// no name any more is told of by the object, on our device.
pub fn shown(fd: c_int, to: *mut libc::stat, told: c_int) -> c_int {
    let before = errno();
    if told == 0
        && let Ok(mut stat) = memory::get(to)
        && let Some(ino) = behind(fd, stat.st_mode, stat.st_dev)
    {
        match connect::with(|client| client.node(ino)) {
            Ok(found) => stat = attributes::stat(&found),
            Err(_) => (stat.st_dev, stat.st_ino) = (attributes::device(), number(ino)),
        }
        set_errno(before);
        return answer(memory::put(stat, to).map(|()| 0));
    }
    told
}

/// The same for `statx`.
pub fn shown_extended(fd: c_int, to: *mut libc::statx, told: c_int) -> c_int {
    let before = errno();
    if told == 0
        && let Ok(mut statx) = memory::get(to)
        && let dev = libc::makedev(statx.stx_dev_major, statx.stx_dev_minor)
        && let Some(ino) = behind(fd, statx.stx_mode.into(), dev)
    {
        match connect::with(|client| client.node(ino)) {
            Ok(found) => statx = attributes::statx(&found),
            Err(_) => {
                let dev = attributes::device();
                (statx.stx_dev_major, statx.stx_dev_minor) = (libc::major(dev), libc::minor(dev));
                statx.stx_ino = number(ino);
            }
        }
        set_errno(before);
        return answer(memory::put(statx, to).map(|()| 0));
    }
    told
}

/// Changes attributes by a descriptor: those of the inode if it is of a FIFO with a name, else by
/// the kernel.
pub fn changed(
    fd: c_int,
    change: impl FnOnce() -> Served<Change>,
    by_kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: stat is plain data, of which all zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let found: c_int = if settings::active() { kernel!(SYS_fstat, fd, &raw mut stat) } else { -1 };
    let flags: c_int = if found == 0 { kernel!(SYS_fcntl, fd, libc::F_GETFL) } else { 0 };
    match behind(fd, stat.st_mode, stat.st_dev).filter(|_| flags & libc::O_PATH == 0) {
        Some(ino) => match change()
            .and_then(|change| connect::with(|client| client.change_node(ino, change)))
        {
            Err(libc::EBADF) => by_kernel(),
            done => answer(done.map(|()| 0)),
        },
        None => by_kernel(),
    }
}

/// What the kernel's own link of a descriptor should say, whose `count` bytes are at `text`: the
/// FIFO's path.
pub fn named(text: *const c_char, count: isize) -> Option<Vec<u8>> {
    let count = usize::try_from(count).ok().filter(|_| settings::active())?;
    let mut said = Vec::new();
    memory::append(&mut said, text.cast::<u8>(), count).ok()?;
    if !said.starts_with(settings::instance().as_os_str().as_bytes()) {
        return None;
    }
    let path = connect::with(|client| {
        let ino = client.whose_object(&said);
        Ok(ino.map(|ino| (ino, client.node_path(ino))))
    });
    let (ino, path) = path.ok()??;
    Some(match path {
        Some(path) => settings::below_prefix(&path),
        None => settings::gone(ino.0),
    })
}
