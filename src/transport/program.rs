//! Programs that run from a copy in memory, as there is nothing else that the kernel could run:
//! what a copy is called says which file it is of, so that the kernel can tell who runs it.
//!
//! Invariants: a copy's name says instance and inode; `/proc/PID/exe` says it for as long as `PID`
//! runs the copy, and `/proc/PID/fd/N` from when it is made until then. A process of another user,
//! or one that may not be looked at, is not seen. Not here: what follows from it.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use terral_format::ids::{Ino, InstanceId};

/// What `memfd_create` puts before a name, and `/proc` after it.
const LINK: (&[u8], &[u8]) = (b"/memfd:", b" (deleted)");

/// The name of a copy of the file `ino`.
pub fn name_of_copy(instance: InstanceId, ino: Ino) -> CString {
    CString::new(format!("terral-{:032x}-{:x}", instance.0, ino.0)).unwrap_or_default()
}

/// The file that a link of `/proc` leads to a copy of, if it is one of this instance.
pub fn copied(instance: InstanceId, link: &[u8]) -> Option<Ino> {
    let name = link.strip_prefix(LINK.0)?;
    let name = std::str::from_utf8(name.strip_suffix(LINK.1).unwrap_or(name)).ok()?;
    let (of, ino) = name.strip_prefix("terral-")?.split_once('-')?;
    let same = u128::from_str_radix(of, 16) == Ok(instance.0);
    same.then(|| u64::from_str_radix(ino, 16).ok()).flatten().map(Ino)
}

fn read(instance: InstanceId, link: &str) -> Option<Ino> {
    copied(instance, fs::read_link(link).ok()?.as_os_str().as_bytes())
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
    use super::{Ino, InstanceId, copied, name_of_copy};

    #[test]
    fn a_copy_says_of_which_file_it_is() {
        let (instance, ino) = (InstanceId(0xabc << 100), Ino(1 << 40 | 77));
        let name = name_of_copy(instance, ino);
        let link = [b"/memfd:", name.as_bytes(), b" (deleted)"].concat();
        assert_eq!(copied(instance, &link), Some(ino));
        assert_eq!(copied(InstanceId(1), &link), None);
        for other in [&b"/usr/bin/true"[..], b"/memfd:terral- (deleted)", b"/memfd:terral-0-"] {
            assert_eq!(copied(InstanceId(0), other), None);
        }
    }
}
