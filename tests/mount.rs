//! A small file system in memory, mounted for a test and unmounted after it. Needs root.
#![allow(clippy::print_stdout)] // What is skipped, and seeds, are said.
#![allow(dead_code)] // Each test file uses its part.

use std::path::Path;
use std::process::Command;

/// A mounted directory.
pub struct Mount(tempfile::TempDir);

impl Mount {
    /// A tmpfs of `mib` MiB; `None`, and a line that says so, if this user may not mount.
    pub fn tmpfs(mib: u32) -> Option<Self> {
        Mount::of("tmpfs", &format!("size={mib}m"))
    }

    /// A ramfs, which takes no extended attributes; `None` as for [`Mount::tmpfs`].
    pub fn ramfs() -> Option<Self> {
        Mount::of("ramfs", "mode=755")
    }

    fn of(kind: &str, options: &str) -> Option<Self> {
        let home = tempfile::tempdir().expect("directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "terral-test"]).arg(home.path());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Mount(home));
        }
        println!("skipped: mounting a {kind} needs root");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes its options, `ro` or `size=64m`.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.path()).status();
        assert!(status.expect("mount").success(), "cannot remount");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
