//! What keeps UCX from writing over `mmap` in every MPICH program, for its cache of what a network
//! card may reach: a variable of the environment, set where nobody has chosen.
//!
//! Files can be mapped whatever is chosen (UCX asks libc's `syscall` for what was there, and that
//! is served), but each map and unmap then goes through UCX. Its `reloc` mode does not come to an
//! end in UCX 1.13. Not here: instructions of libraries' own, which the preload library catches.

const MODE: &str = "UCX_MEM_MMAP_HOOK_MODE";
const NONE: &str = "none";

/// Whether there is a card that needs UCX's cache.
fn has_card() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some())
}

/// What COMMAND gets in its environment.
pub fn variable() -> Option<(&'static str, &'static str)> {
    (!has_card() && std::env::var_os(MODE).is_none()).then_some((MODE, NONE))
}
