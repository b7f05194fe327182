//! How open files look, and how they are given the looks they shall have.

use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, StatxFlags};
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::Ino;
use terral_format::wire::message::{Attributes, Kind};

use super::{Found, Touched};

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// Bytes of one write. With larger ones Linux keeps a file in huge pages, if its file system can:
/// fresh memory, which a virtual machine may have to get from its host.
const WRITE_BYTES: usize = 256 << 10;
/// Zeros that are written at a time.
const ZEROS: usize = 64 << 10;

/// Writes all of it.
pub(super) fn write_full(file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut pieces = (offset..).step_by(WRITE_BYTES).zip(bytes.chunks(WRITE_BYTES));
    pieces.try_for_each(|(at, piece)| file.write_all_at(piece, at))
}

/// Makes zeros of so many bytes from `offset` on. What is beyond the file's end are zeros.
pub(super) fn clear_full(file: &File, offset: u64, bytes: u64) -> std::io::Result<()> {
    let end = (offset + bytes).min(file.metadata()?.len());
    let zeros = [0; ZEROS];
    let mut pieces = (offset..end).step_by(ZEROS);
    pieces.try_for_each(|at| file.write_all_at(&zeros[..ZEROS.min((end - at) as usize)], at))
}

/// Reads until `buffer` is full or the file ends.
pub(super) fn read_full(file: &File, mut offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// How an open file looks.
pub(super) fn fingerprint(metadata: &Metadata) -> Fingerprint {
    let changed_ns = nanoseconds(metadata.ctime(), metadata.ctime_nsec());
    Fingerprint::new(Object::new(metadata.ino()), metadata.len(), changed_ns)
}

/// The same, asked of whoever has the file: over a network, what this machine knows may be older
/// than the names that are read there.
pub(super) fn fingerprint_now(file: &File) -> std::io::Result<Fingerprint> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let wanted = StatxFlags::INO | StatxFlags::SIZE | StatxFlags::CTIME;
    // What is not there in an old kernel, or not allowed, leaves what any look says.
    let Ok(seen) = rustix::fs::statx(file, "", flags, wanted) else {
        return file.metadata().map(|metadata| fingerprint(&metadata));
    };
    let changed_ns = nanoseconds(seen.stx_ctime.tv_sec, seen.stx_ctime.tv_nsec.into());
    Ok(Fingerprint::new(Object::new(seen.stx_ino), seen.stx_size, changed_ns))
}

/// What changed between these two looks.
pub(super) fn touched(before: &Metadata, after: &Metadata) -> Touched {
    Touched {
        before: fingerprint(before),
        after: fingerprint(after),
        modified_ns: nanoseconds(before.mtime(), before.mtime_nsec()),
    }
}

/// Whether two open files are the same one.
pub(super) fn same_file(one: &File, other: &File) -> std::io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Attributes and look of a file, directory, symbolic link or FIFO; `None` for anything else.
pub(super) fn found(metadata: &Metadata) -> Option<Found> {
    let kind = if metadata.is_file() {
        Kind::File
    } else if metadata.is_dir() {
        Kind::Directory
    } else if metadata.is_symlink() {
        Kind::Symlink
    } else if metadata.file_type().is_fifo() {
        Kind::Fifo
    } else {
        return None;
    };
    let attributes = Attributes {
        ino: Ino(0),
        kind,
        mode: metadata.mode() & 0o7777,
        links: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        accessed_ns: nanoseconds(metadata.atime(), metadata.atime_nsec()),
        modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    };
    Some(Found { attributes, fingerprint: fingerprint(metadata) })
}

/// Times before 1970 are 1970.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let whole = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

/// A point in time.
pub(super) fn time(nanoseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// The same open file by a name, for calls that do not take a descriptor that only looks.
pub(super) fn by_name(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a file owner, mode and times where they differ. What this process may not change, or the
/// file system does not have, stays as it is: the bytes matter more.
pub(super) fn set_attributes(file: &File, want: &Attributes) -> std::io::Result<()> {
    let present = file.metadata()?;
    let mut mode = want.mode & 0o7777;
    if (present.uid(), present.gid()) != (want.uid, want.gid) {
        let both = fchown(file, Some(want.uid), Some(want.gid));
        if both.is_err() {
            mode &= !SET_ID;
            // A user may give a file to another group of his, though not to another user.
            lenient(fchown(file, None, Some(want.gid)))?;
        }
    }
    if file.metadata()?.mode() & 0o7777 != mode {
        lenient(file.set_permissions(Permissions::from_mode(mode)))?;
    }
    let times = FileTimes::new();
    let times = times.set_accessed(time(want.accessed_ns)).set_modified(time(want.modified_ns));
    lenient(file.set_times(times))
}

/// Lets pass what the system would not do, but not what went wrong.
fn lenient(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if may_not(&error) => Ok(()),
        done => done,
    }
}

/// EPERM, EACCES, EINVAL (an owner this user namespace does not know), ENOSYS, EOPNOTSUPP.
fn may_not(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(1 | 13 | 22 | 38 | 95))
}
