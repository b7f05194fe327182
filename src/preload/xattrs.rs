//! Extended attributes, by path, by path without following, and by descriptor.
//!
//! Invariants: the caller's memory is filled only on success; any name but `user.*` fails with
//! EOPNOTSUPP and without a message, as programs ask for ACLs and labels of every file they list.
//! Not here: limits and rights (`terral-client` and the server).

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use terral_client::{Client, Error, ErrorKind, Result, XattrHow};

use crate::hook::{Last, by_fd, by_path};
use crate::metadata::of_name;
use crate::path::Name;
use crate::real::{Served, answer, kernel};
use crate::state::Managed;
use crate::{connect, memory, settings};

/// The one namespace of names that is kept.
const OFFERED: &[u8] = b"user.";
const NAME_MAX: usize = 255;
/// Longest value of the operating system; ours is shorter, which the client knows.
const VALUE_MAX: usize = 64 << 10;

/// Whose attributes.
enum Of<'a> {
    /// What a path leads to.
    Target(&'a Name<'a>),
    /// What a path names, though it be a link.
    Itself(&'a Name<'a>),
    /// An open file.
    File(&'a Managed),
}

fn check_offered(name: &[u8]) -> Result<()> {
    match name.starts_with(OFFERED) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unsupported, String::new())),
    }
}

/// Calls with where a name leads, if that is there.
fn by_name<T>(
    name: &Name<'_>,
    last: Last,
    call: impl Fn(&Client, &[u8]) -> Result<T>,
) -> Served<T> {
    of_name(name, last)?;
    connect::with(|client| call(client, name.path))
}

impl Of<'_> {
    /// Calls for the one or the other.
    fn call<T>(
        &self,
        with_name: impl Fn(&Client, &[u8]) -> Result<T>,
        with_file: impl FnOnce(&terral_client::File) -> Result<T>,
    ) -> Served<T> {
        match self {
            Of::Target(name) => by_name(name, Last::Followed, with_name),
            Of::Itself(name) => by_name(name, Last::Itself, with_name),
            Of::File(managed) => {
                managed.check_open()?;
                connect::serve(|| with_file(&managed.file))
            }
        }
    }

    fn get(&self, name: &[u8]) -> Served<Vec<u8>> {
        self.call(
            |client, path| check_offered(name).and_then(|()| client.xattr(path, name)),
            |file| check_offered(name).and_then(|()| file.xattr(name)),
        )
    }

    fn change(&self, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Served<c_int> {
        let changed = self.call(
            |client, path| {
                check_offered(name).and_then(|()| client.set_xattr(path, name, value, how))
            },
            |file| check_offered(name).and_then(|()| file.set_xattr(name, value, how)),
        );
        changed.map(|()| 0)
    }
}

/// The name of an attribute, as the kernel reads it.
unsafe fn name_at<'a>(name: *const c_char) -> Served<&'a [u8]> {
    match memory::check_string(name, NAME_MAX + 1) {
        Err(libc::ENAMETOOLONG) => return Err(libc::ERANGE),
        checked => checked?,
    }
    // SAFETY: just seen to be a string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.is_empty() { Err(libc::ERANGE) } else { Ok(name) }
}

/// Hands out `bytes`, or how many they are if there is no room at all.
fn give(bytes: &[u8], to: *mut c_void, room: usize) -> Served<ssize_t> {
    if room != 0 {
        if room < bytes.len() {
            return Err(libc::ERANGE);
        }
        memory::give(bytes, to.cast())?;
    }
    Ok(bytes.len() as ssize_t)
}

unsafe fn get(of: &Of<'_>, name: *const c_char, to: *mut c_void, room: size_t) -> Served<ssize_t> {
    // SAFETY: the callers promise the string.
    let name = unsafe { name_at(name) }?;
    give(&of.get(name)?, to, room)
}

unsafe fn list(of: &Of<'_>, to: *mut c_char, room: size_t) -> Served<ssize_t> {
    let names = of.call(|client, path| client.xattrs(path), terral_client::File::xattrs)?;
    let mut listed = Vec::new();
    for name in names {
        listed.extend_from_slice(&name);
        listed.push(0);
    }
    give(&listed, to.cast(), room)
}

unsafe fn set(
    of: &Of<'_>,
    name: *const c_char,
    value: *const c_void,
    length: size_t,
    flags: c_int,
) -> Served<c_int> {
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the callers promise a string.
    let name = unsafe { name_at(name) }?;
    let mut copy = Vec::new();
    match length {
        0 => {}
        _ if length > VALUE_MAX => return Err(libc::E2BIG),
        _ => memory::append(&mut copy, value.cast::<u8>(), length)?,
    }
    let value = &copy[..];
    let how = match flags {
        0 => XattrHow::Any,
        libc::XATTR_CREATE => XattrHow::Create,
        libc::XATTR_REPLACE => XattrHow::Replace,
        // Both: it can neither be there nor be missing.
        _ => return of.get(name).and(Err(libc::EEXIST)),
    };
    of.change(name, Some(value), how)
}

unsafe fn remove(of: &Of<'_>, name: *const c_char) -> Served<c_int> {
    // SAFETY: the callers promise a string.
    let name = unsafe { name_at(name) }?;
    of.change(name, None, XattrHow::Any)
}

/// What is wrong with a name that a call by path is given, if there is one.
unsafe fn check_first(name: *const c_char) -> Served<()> {
    if name.is_null() || !settings::active() {
        return Ok(());
    }
    // SAFETY: the callers promise a string.
    unsafe { name_at(name) }.map(|_| ())
}

/// Hooks of one kind: by path, by path without following, by descriptor; each `name = SYS_call`.
/// As in the kernel, what is wrong with the attribute's name is told before the path is looked at.
macro_rules! hooks {
    ($(
        $serve:ident($($argument:ident: $type:ty),*) -> $answer:ty, $named:expr;
        $target:ident = $target_call:ident, $itself:ident = $itself_call:ident,
        $file:ident = $file_call:ident;
    )*) => {$(
        hooks! {
            Target $target = $target_call,
            $serve($($argument: $type),*) -> $answer, $named
        }
        hooks! {
            Itself $itself = $itself_call,
            $serve($($argument: $type),*) -> $answer, $named
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $file(fd: c_int, $($argument: $type),*) -> $answer {
            by_fd!(fd, kernel!($file_call, fd, $($argument),*), |held| {
                // SAFETY: the same contract.
                unsafe { $serve(&Of::File(&held), $($argument),*) }
            })
        }
    )*};
    ($of:ident $hook:ident = $call:ident,
        $serve:ident($($argument:ident: $type:ty),*) -> $answer:ty, $named:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $hook(path: *const c_char, $($argument: $type),*) -> $answer {
            // SAFETY: the same contract.
            if let Err(errno) = unsafe { check_first(($named)($($argument),*)) } {
                return answer(Err(errno));
            }
            by_path!(
                libc::AT_FDCWD,
                path,
                last!($of),
                |_at, path| kernel!($call, path, $($argument),*),
                // SAFETY: the same contract.
                |name| unsafe { $serve(&Of::$of(&name), $($argument),*) }
            )
        }
    };
}

/// Whether a link at the end is followed.
macro_rules! last {
    (Target) => {
        Last::Followed
    };
    (Itself) => {
        Last::Itself
    };
}

hooks! {
    get(name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t, |name, _, _| name;
        getxattr = SYS_getxattr, lgetxattr = SYS_lgetxattr, fgetxattr = SYS_fgetxattr;
    list(names: *mut c_char, room: size_t) -> ssize_t, |_, _| std::ptr::null();
        listxattr = SYS_listxattr, llistxattr = SYS_llistxattr, flistxattr = SYS_flistxattr;
    set(name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int,
        |name, _, _, _| name;
        setxattr = SYS_setxattr, lsetxattr = SYS_lsetxattr, fsetxattr = SYS_fsetxattr;
    remove(name: *const c_char) -> c_int, |name| name;
        removexattr = SYS_removexattr, lremovexattr = SYS_lremovexattr,
        fremovexattr = SYS_fremovexattr;
}
