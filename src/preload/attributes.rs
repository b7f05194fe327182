//! Attributes as `struct stat` and `struct statx` show them.
//!
//! Invariants: one made-up device number for everything under the prefix, so that no inode is
//! mistaken for one elsewhere. Not here: the calls (`metadata`).

use terral_client::{Attributes, Kind, Seen};

use crate::connect;

/// Minor number of the made-up device; its major is 0, as that of every file system without disk.
const DEVICE_MINOR: u32 = 0xe44a1;
/// What programs should read and write at a time; cp uses the same.
const BLOCK_BYTES: u32 = 128 << 10;
const PAGE_BYTES: u64 = 4096;
const NS: u64 = 1_000_000_000;

/// Type and permission bits.
pub fn mode(attributes: &Attributes) -> u32 {
    let kind = match attributes.kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
    };
    kind | (attributes.mode & 0o7777)
}

/// In units of 512 bytes; memory is taken by pages that are no holes, and none by directories.
fn blocks(attributes: &Attributes) -> u64 {
    if attributes.kind != Kind::File || attributes.size == 0 {
        return 0;
    }
    let held = connect::with(|client| Ok(client.data_bytes(attributes.ino)));
    let bytes = held.ok().flatten().unwrap_or(attributes.size);
    bytes.div_ceil(PAGE_BYTES) * (PAGE_BYTES / 512)
}

/// The device of everything under the prefix.
pub fn device() -> libc::dev_t {
    libc::makedev(0, DEVICE_MINOR)
}

/// As `stat` shows them.
pub fn stat(seen: &Seen) -> libc::stat {
    let attributes = &seen.attributes;
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device();
    stat.st_ino = seen.number.word();
    stat.st_nlink = attributes.links.into();
    stat.st_mode = mode(attributes);
    stat.st_uid = attributes.uid;
    stat.st_gid = attributes.gid;
    stat.st_size = attributes.size as i64;
    stat.st_blksize = BLOCK_BYTES.into();
    stat.st_blocks = blocks(attributes) as i64;
    stat.st_atime = (attributes.accessed_ns / NS) as i64;
    stat.st_atime_nsec = (attributes.accessed_ns % NS) as i64;
    stat.st_mtime = (attributes.modified_ns / NS) as i64;
    stat.st_mtime_nsec = (attributes.modified_ns % NS) as i64;
    stat.st_ctime = (attributes.changed_ns / NS) as i64;
    stat.st_ctime_nsec = (attributes.changed_ns % NS) as i64;
    stat
}

fn time(ns: u64) -> libc::statx_timestamp {
    // SAFETY: the timestamp is plain data; all zero is a value of it.
    let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
    time.tv_sec = (ns / NS) as i64;
    time.tv_nsec = (ns % NS) as u32;
    time
}

/// As `statx` shows them: the basic ones.
pub fn statx(seen: &Seen) -> libc::statx {
    let attributes = &seen.attributes;
    // SAFETY: statx is plain data; all zero is a value of it.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS;
    statx.stx_blksize = BLOCK_BYTES;
    statx.stx_nlink = attributes.links;
    statx.stx_uid = attributes.uid;
    statx.stx_gid = attributes.gid;
    statx.stx_mode = mode(attributes) as u16;
    statx.stx_ino = seen.number.word();
    statx.stx_size = attributes.size;
    statx.stx_blocks = blocks(attributes);
    statx.stx_atime = time(attributes.accessed_ns);
    statx.stx_mtime = time(attributes.modified_ns);
    statx.stx_ctime = time(attributes.changed_ns);
    statx.stx_dev_major = 0;
    statx.stx_dev_minor = DEVICE_MINOR;
    statx
}
