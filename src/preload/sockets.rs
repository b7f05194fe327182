//! Sockets with a name under the prefix, on the way out: an address there is translated to that of
//! the kernel's object, for `bind`, `connect` and what is sent.
//!
//! Invariants: an address elsewhere goes to the kernel as it came, unless a link leads there from
//! the prefix. What may wait (for room at the other end) waits outside of everything that is
//! served. The kernel bounds the object's address, not the program's: that may have all of the 108
//! bytes. Not here: addresses on the way back (`peers`), and descriptors that are passed over,
//! which are the kernel's.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;

use libc::{mmsghdr, msghdr, size_t, sockaddr, sockaddr_un, socklen_t, ssize_t};
use terral_client::{Ino, Kind, Seen};

use crate::hook::{Last, by_path};
use crate::links::check_new;
use crate::metadata::{may, of_file, of_name};
use crate::path::{Name, standing_for};
use crate::real::{Answer, Served, answer, errno, kernel, libc_call, set_errno};
use crate::{connect, memory, open, settings, sharing};

const PATH_AT: usize = offset_of!(sockaddr_un, sun_path);
/// A path in an address may do without its zero.
const PATH_BYTES: usize = size_of::<sockaddr_un>() - PATH_AT + 1;
/// The object's own bits let in whoever the inode's let in.
const ALL: libc::mode_t = 0o666;
/// Most messages that one call sends, as in Linux.
const MESSAGES_MAX: usize = 1024;

/// An address as a call is given it.
type Given = (*const sockaddr, socklen_t);
/// The path of an address, with its zero.
type Path = [c_char; PATH_BYTES];

/// The path of an address, unless it is of another kind, or not there.
fn path_of((address, length): Given) -> Option<Path> {
    let length = length as usize;
    if !settings::active() || address.is_null() || length <= PATH_AT {
        return None;
    }
    let family = memory::get(address.cast::<libc::sa_family_t>()).ok()?;
    if c_int::from(family) != libc::AF_UNIX || length > size_of::<sockaddr_un>() {
        return None;
    }
    let (mut bytes, mut path) = (Vec::new(), [0; PATH_BYTES]);
    memory::append(&mut bytes, address.cast::<u8>(), length).ok()?;
    for (to, from) in path.iter_mut().zip(&bytes[PATH_AT..]) {
        *to = *from as c_char;
    }
    (path[0] != 0).then_some(path)
}

/// An address that the kernel takes, and the directory it is relative to, if that is kept open.
struct Address {
    name: sockaddr_un,
    length: socklen_t,
    directory: c_int,
}

impl Drop for Address {
    fn drop(&mut self) {
        if self.directory >= 0 {
            let before = errno();
            let _: c_int = kernel!(SYS_close, self.directory);
            set_errno(before);
        }
    }
}

impl Address {
    /// The address with this path; ENAMETOOLONG if it is none.
    fn of(path: &[u8]) -> Served<Address> {
        // SAFETY: the struct is plain data, of which all zero is a value.
        let mut name: sockaddr_un = unsafe { std::mem::zeroed() };
        name.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if path.len() >= name.sun_path.len() {
            return Err(libc::ENAMETOOLONG);
        }
        for (to, from) in name.sun_path.iter_mut().zip(path) {
            *to = *from as c_char;
        }
        let length = (PATH_AT + path.len() + 1) as socklen_t;
        Ok(Address { name, length, directory: -1 })
    }

    /// That of an object: by its path, or by a descriptor of its directory if that is too long.
    fn of_object(ino: Ino) -> Served<Address> {
        let (directory, name) = connect::with(|client| Ok(client.object(ino)))?;
        let directory = directory.as_os_str().as_bytes();
        let path = [directory, b"/", name.as_bytes()].concat();
        Address::of(&path).or_else(|_| {
            let (whole, flags) = ([directory, b"\0"].concat(), libc::O_PATH | libc::O_CLOEXEC);
            let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, whole.as_ptr(), flags, 0);
            if fd < 0 {
                return Err(errno());
            }
            let address = Address::of(format!("/proc/self/fd/{fd}/{name}").as_bytes())?;
            Ok(Address { directory: fd, ..address })
        })
    }

    fn path(&self) -> *const c_char {
        self.name.sun_path.as_ptr()
    }

    fn given(&self) -> Given {
        ((&raw const self.name).cast(), self.length)
    }
}

/// The given address, or that of the path where links have led to from it.
fn with_kernels<T: Answer>(
    (given, asked): (Given, &Path),
    path: *const c_char,
    call: impl FnOnce(Given) -> T,
) -> T {
    if path == asked.as_ptr() {
        return call(given);
    }
    // SAFETY: a resolved path has its zero.
    match Address::of(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        Ok(address) => call(address.given()),
        Err(errno) => answer(Err(errno)),
    }
}

// Binding.

/// Whether a descriptor is one of a socket that can get a name, or why not.
fn check_unbound(fd: c_int) -> Served<()> {
    // SAFETY: the struct is plain data, of which all zero is a value.
    let mut name: sockaddr_un = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_un>() as socklen_t;
    let told: c_int = kernel!(SYS_getsockname, fd, &raw mut name, &raw mut length);
    match c_int::from(name.sun_family) {
        _ if told < 0 => Err(errno()),
        libc::AF_UNIX if length as usize <= PATH_AT => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// Permission bits of a name that a socket gets: those of the socket, as Linux has it.
fn mode_of(fd: c_int) -> u32 {
    // SAFETY: stat is plain data, of which all zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let found: c_int = kernel!(SYS_fstat, fd, &raw mut stat);
    open::masked(if found == 0 { stat.st_mode & 0o777 } else { 0o777 })
}

/// Binds a socket to a name, which is made for that, and is gone again if it cannot be bound.
fn bind_name(fd: c_int, name: &Name<'_>, address: &[u8]) -> Served<c_int> {
    let taken = |errno| if errno == libc::EEXIST { libc::EADDRINUSE } else { errno };
    check_new(name).map_err(taken)?;
    match of_name(name, Last::Name) {
        Err(libc::ENOENT) => {}
        found => return found.and(Err(libc::EADDRINUSE)),
    }
    check_unbound(fd)?;
    let (kind, mode) = (Kind::Socket, mode_of(fd));
    let made = connect::with(|client| client.make_node(name.path, kind, mode, address));
    let object = Address::of_object(made.map_err(taken)?);
    let bound = object.and_then(|object| {
        let (address, length) = object.given();
        let bound: c_int = kernel!(SYS_bind, fd, address, length);
        if bound < 0 {
            return Err(errno());
        }
        let _: c_int = kernel!(SYS_fchmodat, libc::AT_FDCWD, object.path(), ALL);
        Ok(bound)
    });
    bound.inspect_err(|_| {
        let _ = connect::with(|client| client.unlink(name.path));
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let given = (address, length);
    let Some(path) = path_of(given) else { return kernel!(SYS_bind, fd, address, length) };
    // SAFETY: the path has its zero.
    let said = unsafe { CStr::from_ptr(path.as_ptr()) }.to_bytes();
    by_path!(
        libc::AT_FDCWD,
        path.as_ptr(),
        Last::Name,
        |_at, found| with_kernels((given, &path), found, |(address, length)| kernel!(
            SYS_bind, fd, address, length
        )),
        |name| bind_name(fd, &name, said)
    )
}

// Reaching others.

/// The address of a socket's object, if this thread may send to it.
fn reachable(found: Served<Seen>) -> Served<Address> {
    let found = found?;
    may(&found, libc::W_OK)?;
    if found.kind == Kind::Socket { Address::of_object(found.ino) } else { Err(libc::ECONNREFUSED) }
}

/// The address of the object that a path leads to, or what a call gave that was the kernel's.
fn object_at<T: Answer>(
    given: Given,
    path: &Path,
    call: &impl Fn(Given) -> T,
) -> Result<Address, T> {
    // SAFETY: the path has its zero.
    if let Some((_, held)) = unsafe { standing_for(path.as_ptr()) } {
        return reachable(of_file(&held)).map_err(|errno| answer(Err(errno)));
    }
    let mut object = None;
    let told = by_path!(
        libc::AT_FDCWD,
        path.as_ptr(),
        Last::Followed,
        |_at, found| with_kernels((given, path), found, call),
        |name| {
            object = Some(reachable(of_name(&name, Last::Followed))?);
            Ok(T::failure())
        }
    );
    object.ok_or(told)
}

/// Does a call with an address that the kernel takes: the given one, or that of an object.
fn reach<T: Answer>(given: Given, call: impl Fn(Given) -> T) -> T {
    let Some(path) = path_of(given) else { return call(given) };
    let object = match object_at(given, &path, &call) {
        Ok(object) => object,
        Err(told) => return told,
    };
    let told = call(object.given());
    if told.is_failure() && errno() == libc::ENOENT {
        // Nobody was ever bound to it, or its name went just now.
        set_errno(libc::ECONNREFUSED);
    }
    told
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    reach((address, length), |(address, length)| {
        libc_call!(c"connect" as Function, -1, fd, address, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    type Function = unsafe extern "C" fn(
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t;
    reach((address, length), |(address, length)| {
        libc_call!(c"sendto" as Function, -1, fd, bytes, count, flags, address, length)
    })
}

/// The address of a message.
fn given_in(message: &msghdr) -> Given {
    (message.msg_name.cast_const().cast(), message.msg_namelen)
}

fn addressed(message: &msghdr, (address, length): Given) -> msghdr {
    msghdr { msg_name: address.cast_mut().cast(), msg_namelen: length, ..*message }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
    let as_given = || libc_call!(c"sendmsg" as Function, -1, fd, message, flags);
    let asked = settings::active().then(|| memory::get(message).ok()).flatten();
    let Some(asked) = asked else { return as_given() };
    if asked.msg_controllen > 0 {
        sharing::all();
    }
    if path_of(given_in(&asked)).is_none() {
        return as_given();
    }
    reach(given_in(&asked), |given| {
        let message = addressed(&asked, given);
        libc_call!(c"sendmsg" as Function, -1, fd, &raw const message, flags)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    let mut asked = Vec::new();
    if settings::active() {
        sharing::all();
        let _ = memory::append(&mut asked, messages, (count as usize).min(MESSAGES_MAX));
    }
    if asked.iter().all(|message| path_of(given_in(&message.msg_hdr)).is_none()) {
        return libc_call!(c"sendmmsg" as Function, -1, fd, messages, count, flags);
    }
    // One by one, each to where it goes: as far as it goes.
    for (at, message) in asked.iter().enumerate() {
        let sent = reach(given_in(&message.msg_hdr), |given| {
            let one = addressed(&message.msg_hdr, given);
            // SAFETY: the caller promises what the message points to.
            unsafe { sendmsg(fd, &raw const one, flags) }
        });
        let told = match u32::try_from(sent) {
            // SAFETY: one of the messages that were just read there.
            Ok(sent) => memory::put(sent, unsafe { &raw mut (*messages.add(at)).msg_len }),
            Err(_) => Err(errno()),
        };
        if let Err(errno) = told {
            return if at == 0 { answer(Err(errno)) } else { at as c_int };
        }
    }
    asked.len() as c_int
}
