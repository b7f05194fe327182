//! An ordinary user: `nobody` if the tests are root's, otherwise oneself.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::beside::built;

/// `nobody` on Debian.
pub const NOBODY: u32 = 65534;

/// Whether the tests are root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program as the ordinary user.
pub fn ordinary(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    command.args(["--clear-groups", "--inh-caps=-all"]).arg(program);
    command
}

/// Gives a file or directory these permissions.
pub fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changes its mode");
}

/// Terral, where the ordinary user can reach it.
pub fn programs() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("directory");
    permit(home.path(), 0o755);
    for name in ["terral", "libterral_preload.so"] {
        fs::copy(built(name), home.path().join(name)).expect("copies");
    }
    home
}
