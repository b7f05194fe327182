//! `preadv2` and `pwritev2`: vectors with flags that hold for one call.
//!
//! Invariants: a flag that tmpfs does not know is refused as there, after all else that is wrong
//! with the call. Not here: what is done without flags (`vectors`).

use std::ffi::c_int;

use libc::{iovec, off_t, ssize_t};
use terral_client::access;

use crate::hook::by_fd;
use crate::real::{Served, alias, kernel};
use crate::state::Managed;
use crate::{connect, data, vectors};

/// Writes where the offset says although the file is open for appending.
const RWF_NOAPPEND: c_int = 0x20;
/// No SIGPIPE, which files do not send.
const RWF_NOSIGNAL: c_int = 0x100;
/// Flags by which nothing is done that is not done anyway.
const PLAIN: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | RWF_NOSIGNAL;

/// A vector, and where it goes: at the shared offset, or at this one.
struct Asked {
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
    flags: c_int,
}

impl Asked {
    fn new(vector: *const iovec, count: c_int, at: off_t, flags: c_int) -> Served<Asked> {
        if at < -1 {
            return Err(libc::EINVAL);
        }
        Ok(Asked { vector, count, at: (at != -1).then_some(at), flags })
    }

    /// Whether there is anything to do, and the flags are known.
    fn check(&self, managed: &Managed, right: u64) -> Served<bool> {
        vectors::allow(managed, right, self.count)?;
        let entries = vectors::entries(self.vector, self.count)?;
        if entries.iter().all(|entry| entry.iov_len == 0) {
            return Ok(false);
        }
        let placing = libc::RWF_APPEND | RWF_NOAPPEND;
        match self.flags {
            flags if flags & !(PLAIN | placing | libc::RWF_NOWAIT) != 0 => Err(libc::EOPNOTSUPP),
            flags if flags & placing == placing => Err(libc::EINVAL),
            flags if flags & libc::RWF_NOWAIT != 0 => Err(libc::EOPNOTSUPP),
            _ => Ok(true),
        }
    }
}

/// Writes all in one piece: at the end, or not although the file is open for that.
unsafe fn write_placed(managed: &Managed, asked: &Asked, append: bool) -> Served<isize> {
    let entries = vectors::entries(asked.vector, asked.count)?;
    // SAFETY: the caller promises each buffer.
    let pieces = entries.iter().map(|entry| unsafe { data::bytes(entry.iov_base, entry.iov_len) });
    let whole = pieces.clone().map(<[u8]>::len).sum();
    let bytes = vectors::gather(pieces, whole)?;
    let file = &managed.file;
    let start = asked.at.map_or_else(|| file.offset(), |at| at as u64);
    let end = connect::serve(|| match append {
        true => file.append(&bytes),
        false => file.write_at(&bytes, start).map(|count| start + count as u64),
    })?;
    if asked.at.is_none() {
        file.set_offset(end);
    }
    Ok(bytes.len() as isize)
}

unsafe fn write(managed: &Managed, asked: &Asked) -> Served<isize> {
    if !asked.check(managed, access::WRITE)? {
        return Ok(0);
    }
    let usual = managed.file.access() & access::APPEND != 0;
    let append = match asked.flags {
        flags if flags & libc::RWF_APPEND != 0 => true,
        flags => usual && flags & RWF_NOAPPEND == 0,
    };
    // SAFETY: the caller promises the vector.
    unsafe {
        if append == usual {
            vectors::write_all(managed, asked.vector, asked.count, asked.at)
        } else {
            write_placed(managed, asked, append)
        }
    }
}

unsafe fn read(managed: &Managed, asked: &Asked) -> Served<isize> {
    if !asked.check(managed, access::READ)? {
        return Ok(0);
    }
    // SAFETY: the caller promises the vector.
    unsafe { vectors::read_all(managed, asked.vector, asked.count, asked.at) }
}

/// Calls of these names that are served so.
macro_rules! flagged {
    ($($name:ident by $number:ident as $serve:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            fd: c_int,
            vector: *const iovec,
            count: c_int,
            at: off_t,
            flags: c_int,
        ) -> ssize_t {
            by_fd!(fd, kernel!($number, fd, vector, count, at, 0usize, flags), |held| {
                let asked = Asked::new(vector, count, at, flags);
                // SAFETY: the caller promises the vector.
                asked.and_then(|asked| unsafe { $serve(&held, &asked) })
            })
        }
    )*};
}

flagged! {
    preadv2 by SYS_preadv2 as read;
    pwritev2 by SYS_pwritev2 as write;
}

alias! {
    preadv64v2 = preadv2 as (fd: c_int, vector: *const iovec, count: c_int, at: off_t, flags: c_int)
        -> ssize_t;
    pwritev64v2 = pwritev2 as (
        fd: c_int, vector: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t;
}
