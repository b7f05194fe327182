//! Which directory the spill may be in, and what its file is called there.
//!
//! Invariants: nobody else can take the file away, or put another there; it is not in memory, and
//! not where the permanent store has its files. Its name says whose it is: the boot of the machine,
//! after which nothing knows any more what is in it, and the instance.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use terral_format::ids::InstanceId;
use terral_format::{Error, ErrorKind, Result};

/// What the name of a spill's file begins with.
const PREFIX: &str = "terral-spill-";
/// Digits of a boot's id, without the dashes, and of an instance's.
const DIGITS: usize = 32;
/// As much room a directory must have for it to be of use.
const ROOM_BYTES: u64 = 64 << 20;
/// Kinds of file systems that keep what they have in memory (statfs(2)): tmpfs, ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// Kinds that only this machine has mounted: ext4, XFS, Btrfs, overlayfs, ZFS, F2FS.
const OF_THIS_MACHINE: [i64; 6] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010];

/// The path of a spill's file.
pub fn path_of(directory: &Path, boot: &str, instance: InstanceId) -> PathBuf {
    directory.join(format!("{PREFIX}{}-{:0DIGITS$x}", plain(boot), instance.0))
}

fn plain(boot: &str) -> String {
    boot.chars().filter(char::is_ascii_hexdigit).collect()
}

/// The boot that a file's name says, if it is that of a spill.
fn boot_of(name: &OsStr) -> Option<&str> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?;
    let (boot, instance) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_id = |text: &str| text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    (is_id(boot) && is_id(instance)).then_some(boot)
}

/// Whether a path may be that of a spill's file.
pub fn is_spill(path: &Path) -> bool {
    path.is_absolute() && path.file_name().and_then(boot_of).is_some()
}

/// The directory as an absolute path, if a spill may be there; `store` is the permanent one.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is none, in memory, or in the permanent store,
/// [`ErrorKind::Denied`] if others can take away or replace what is in it, [`ErrorKind::NoSpace`]
/// if it has no room.
pub fn check(directory: &Path, store: Option<&Path>) -> Result<PathBuf> {
    let shown = directory.display();
    let refuse = |kind, why: &str| Err(Error::new(kind, format!("--spill {shown}: {why}")));
    let failed = |error: &std::io::Error| Error::system(error, format!("--spill {shown}"));
    let path = directory.canonicalize().map_err(|error| failed(&error))?;
    let found = path.metadata().map_err(|error| failed(&error))?;
    if !found.is_dir() {
        return refuse(ErrorKind::Invalid, "not a directory");
    }
    if store.is_some_and(|store| path.starts_with(store)) {
        let why = "lies in the permanent directory, and would be among its files";
        return refuse(ErrorKind::Invalid, why);
    }
    let user = rustix::process::geteuid().as_raw();
    let mode = found.permissions().mode();
    let others = mode & 0o022 != 0 && mode & 0o1000 == 0;
    if ![user, 0].contains(&found.uid()) || others {
        let why = "others can remove or replace what is in it: give one that is yours alone";
        return refuse(ErrorKind::Denied, why);
    }
    let kind = rustix::fs::statfs(&path).map_err(|error| failed(&error.into()))?.f_type;
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    if IN_MEMORY.contains(&(kind as i64)) {
        let why = "is in memory itself: give a directory on a disk of this machine";
        return refuse(ErrorKind::Invalid, why);
    }
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(&path, wanted).map_err(|error| failed(&error.into()))?;
    let room = rustix::fs::statvfs(&path).map_err(|error| failed(&error.into()))?;
    if room.f_bavail.saturating_mul(room.f_frsize) < ROOM_BYTES {
        return refuse(ErrorKind::NoSpace, "has no room: free some there");
    }
    Ok(path)
}

/// Removes what instances have left in a directory that ended with the machine: of earlier boots,
/// where no other machine can have it mounted.
pub fn tidy(directory: &Path, boot: &str) {
    let kind = rustix::fs::statfs(directory).map(|found| found.f_type);
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    if !kind.is_ok_and(|kind| OF_THIS_MACHINE.contains(&(kind as i64))) {
        return;
    }
    let (boot, user) = (plain(boot), rustix::process::geteuid().as_raw());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let old = boot_of(&entry.file_name()).is_some_and(|of| of != boot);
        let ours = || entry.metadata().is_ok_and(|found| found.is_file() && found.uid() == user);
        if old && ours() {
            // Somebody else may be doing the same.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{check, is_spill, path_of, tidy};
    use terral_format::ErrorKind;
    use terral_format::ids::InstanceId;

    const BOOT: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const BEFORE: &str = "01234567-89ab-cdef-0123-456789abcdee";

    #[test]
    fn a_directory_that_cannot_serve_is_refused_with_the_reason() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let kind = |path: &Path, store| check(path, store).err().map(|error| error.kind);
        assert_eq!(kind(home.path(), None), None);
        assert_eq!(kind(home.path(), Some(Path::new("/nowhere"))), None);
        assert_eq!(kind(&home.path().join("none"), None), Some(ErrorKind::NotFound));
        let file = home.path().join("file");
        fs::write(&file, "").expect("writes");
        assert_eq!(kind(&file, None), Some(ErrorKind::Invalid));
        let inner = home.path().join("inner");
        fs::create_dir(&inner).expect("makes");
        assert_eq!(kind(&inner, Some(home.path())), Some(ErrorKind::Invalid));
        for (mode, refused) in [(0o777, true), (0o720, true), (0o1777, false), (0o755, false)] {
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).expect("sets");
            let expected = refused.then_some(ErrorKind::Denied);
            assert_eq!(kind(&inner, None), expected, "{mode:o}");
        }
        let memory = tempfile::tempdir_in("/dev/shm").expect("directory");
        let error = check(memory.path(), None).expect_err("is in memory").to_string();
        assert!(error.contains("is in memory itself"), "{error}");
    }

    #[test]
    fn only_what_earlier_boots_left_is_tidied_up() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let of = |boot| path_of(home.path(), boot, InstanceId(7));
        let theirs = [of(BOOT), home.path().join("terral-spill-x"), home.path().join("data")];
        for path in theirs.iter().chain([&of(BEFORE)]) {
            fs::write(path, "").expect("writes");
        }
        tidy(home.path(), BOOT);
        assert!(theirs.iter().all(|path| path.exists()) && !of(BEFORE).exists());
        assert!(is_spill(&of(BOOT)) && theirs[1..].iter().all(|path| !is_spill(path)));
        assert!(!is_spill(Path::new(of(BOOT).file_name().expect("has one"))));
    }
}
