//! What keeps libraries from calling the kernel past the C library: variables of the environment,
//! set where nobody has chosen.
//!
//! UCX writes over `mmap` in every MPICH program, for its cache of what a network card may reach.
//! Its `reloc` mode, which would not, does not come to an end in UCX 1.13. Not here: instructions
//! of libraries' own, which the preload library catches.

use std::ffi::OsString;

const MODE: &str = "UCX_MEM_MMAP_HOOK_MODE";
const NONE: &str = "none";

/// Whether there is a card that needs UCX's cache.
fn has_card() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some())
}

fn chosen() -> Option<OsString> {
    std::env::var_os(MODE)
}

/// What COMMAND gets in its environment.
pub fn variable() -> Option<(&'static str, &'static str)> {
    (!has_card() && chosen().is_none()).then_some((MODE, NONE))
}

/// Why programs with UCX map files past Terral, if they do.
pub fn why_not_kept() -> Option<&'static str> {
    match chosen() {
        Some(mode) if mode == NONE => None,
        Some(_) => Some("fails (EACCES): UCX_MEM_MMAP_HOOK_MODE is set, and not to none"),
        None if has_card() => {
            Some("fails (EACCES): UCX writes over mmap for this machine's InfiniBand card")
        }
        None => None,
    }
}
