//! What the doctor looks at in a permanent directory that each user could have a server on
//! (`terral serve --users`): one of root's, asked by root.
//!
//! Invariant: leaves nothing behind.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use terral_server::Lacks;

use crate::checks::{Check, Verdict, bad, good};

/// Others may make names there.
const OTHERS_WRITE: u32 = 0o022;

/// Whether its file system does what that takes; `None` where it is not root's alone.
pub fn users(directory: &Path) -> Option<Check> {
    let is = std::fs::metadata(directory).ok()?;
    let is_roots = is.uid() == 0 && is.mode() & OTHERS_WRITE == 0;
    if !rustix::process::geteuid().is_root() || !is_roots {
        return None;
    }
    let staging = directory.join(".terral");
    let was_there = staging.exists();
    let fresh = RandomState::new().build_hasher().finish();
    let lacks = terral_server::check_for_users(directory, fresh);
    if !was_there {
        // A server that has begun meanwhile has something in it, or makes it again.
        let _ = std::fs::remove_dir(staging);
    }
    Some(match lacks {
        Ok(lacks) if lacks == Lacks::default() => good("users", lacks.to_string()),
        Ok(lacks) => {
            let advice = "for `terral serve --users`: take others' right to write in root's \
                          directories away, or move there by `mv`";
            bad("users", Verdict::Warn, lacks.to_string(), advice)
        }
        Err(error) => {
            let advice = "for `terral serve --users`: export it with no_root_squash, or take \
                          another directory";
            bad("users", Verdict::Warn, error.to_string(), advice)
        }
    })
}
