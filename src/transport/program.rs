//! Programs that run from a copy in memory, as there is nothing else that the kernel could run:
//! what a copy is called says which file it is of, so that the kernel can tell who runs it.
//!
//! Invariants: a copy's name says instance, inode, and what the program is called; `/proc/PID/exe`
//! says it for as long as `PID`
//! runs the copy, and `/proc/PID/fd/N` from when it is made until then. A process of another user,
//! or one that may not be looked at, is not seen. Not here: what follows from it.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use terral_format::ids::{Ino, InstanceId};

/// What `memfd_create` puts before a name, and `/proc` after it.
const LINK: (&[u8], &[u8]) = (b"/memfd:", b" (deleted)");

/// As much of a program's name as the kernel shows (`TASK_COMM_LEN`, without the zero).
const CALLED_BYTES: usize = 15;

/// A copy of a program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Where the file is.
    pub instance: InstanceId,
    /// Which it is.
    pub ino: Ino,
    /// The last part of the path by which it was executed, or the beginning of that.
    pub called: &'a [u8],
}

/// The name of a copy of the file `ino`, which is executed by this path.
pub fn name_of_copy(instance: InstanceId, ino: Ino, path: &[u8]) -> CString {
    let called = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let start = format!("terral-{:032x}-{:x}-", instance.0, ino.0);
    let name = [start.as_bytes(), &called[..called.len().min(CALLED_BYTES)]].concat();
    CString::new(name).unwrap_or_default()
}

/// What a link of `/proc` leads to, if that is a copy.
pub fn copied(link: &[u8]) -> Option<Copied<'_>> {
    let name = link.strip_prefix(LINK.0)?;
    let name = name.strip_suffix(LINK.1).unwrap_or(name).strip_prefix(b"terral-")?;
    let mut parts = name.splitn(3, |byte| *byte == b'-');
    let mut number = || std::str::from_utf8(parts.next()?).ok();
    let instance = InstanceId(u128::from_str_radix(number()?, 16).ok()?);
    let ino = Ino(u64::from_str_radix(number()?, 16).ok()?);
    Some(Copied { instance, ino, called: parts.next()? })
}

fn read(instance: InstanceId, link: &str) -> Option<Ino> {
    let link = fs::read_link(link).ok()?;
    let copied = copied(link.as_os_str().as_bytes())?;
    (copied.instance == instance).then_some(copied.ino)
}

/// The file of which the process `pid` has a copy open as descriptor `fd`.
pub fn has_copy(instance: InstanceId, pid: u32, fd: u32) -> Option<Ino> {
    read(instance, &format!("/proc/{pid}/fd/{fd}"))
}

/// The files of this instance that processes run now, once for each process.
pub fn running(instance: InstanceId) -> impl Iterator<Item = Ino> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|name| name.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(move |pid| read(instance, &format!("/proc/{pid}/exe")))
}

#[cfg(test)]
mod tests {
    use super::{Copied, Ino, InstanceId, copied, name_of_copy};

    #[test]
    fn a_copy_says_of_which_file_it_is() {
        let (instance, ino) = (InstanceId(0xabc << 100), Ino(1 << 40 | 77));
        let name = name_of_copy(instance, ino, b"/a/b-c");
        let link = [b"/memfd:", name.as_bytes(), b" (deleted)"].concat();
        assert_eq!(copied(&link), Some(Copied { instance, ino, called: b"b-c" }));
        let long = name_of_copy(instance, ino, b"longer-than-the-kernel-shows");
        let link = [b"/memfd:", long.as_bytes()].concat();
        assert_eq!(copied(&link).map(|copied| copied.called), Some(&b"longer-than-the"[..]));
        for other in [&b"/usr/bin/true"[..], b"/memfd:terral- (deleted)", b"/memfd:terral-0-1"] {
            assert_eq!(copied(other), None);
        }
    }
}
