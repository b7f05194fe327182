//! How the kernel's descriptor of a managed number stands for its file: as a plain one, which says
//! nothing; as one that says which file it is; or locked, too, since others may have it.
//!
//! Invariants: only a plain one is replaced under its number, by one thread, and a thread that is
//! about to close the number waits for that; signals are blocked meanwhile, so that no handler
//! waits for the thread that it interrupted. Not here: when which is needed (`sharing`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use terral_client::{File, descriptor, plain};

use crate::real::kernel;
use crate::settings;

const PLAIN: u32 = 0;
const NAMED: u32 = u32::MAX;
const SHARED: u32 = u32::MAX - 1;
/// A plain one whose number is being closed.
const LEFT: u32 = u32::MAX - 2;
/// A plain one that was to say more, and could not.
const MUTE: u32 = u32::MAX - 3;
// Any other value: the process of which a thread is just naming it.

/// See above.
pub struct Standing(AtomicU32);

impl Clone for Standing {
    fn clone(&self) -> Self {
        let now = self.0.load(Ordering::Acquire);
        Standing(AtomicU32::new(if matches!(now, NAMED | SHARED | MUTE) { now } else { PLAIN }))
    }
}

impl Standing {
    /// Of a descriptor that was just opened.
    pub fn new(plain: bool) -> Self {
        Standing(AtomicU32::new(if plain { PLAIN } else { NAMED }))
    }

    /// Whether the kernel's descriptor `fd` is one of `file`.
    pub fn is_at(&self, fd: c_int, file: &File) -> bool {
        let named = matches!(self.0.load(Ordering::Acquire), NAMED | SHARED);
        says(fd, file) || (!named && plain::is_plain(fd))
    }

    /// Whether it says nothing.
    pub fn is_plain(&self) -> bool {
        !matches!(self.0.load(Ordering::Acquire), NAMED | SHARED)
    }

    /// Whether it says nothing, and nobody wanted it to.
    pub fn is_new(&self) -> bool {
        self.is_plain() && self.0.load(Ordering::Acquire) != MUTE
    }

    /// Has `fd` say that it stands for `file`, if it can.
    pub fn name(&self, fd: c_int, file: &File) {
        let (own, order) = (std::process::id(), (Ordering::AcqRel, Ordering::Relaxed));
        loop {
            let now = self.0.load(Ordering::Acquire);
            match now {
                NAMED | SHARED | LEFT => return,
                other if other == own => rest(),
                // Also what a process was about that this one was forked from.
                _ => {
                    let signals = Blocked::new();
                    if self.0.compare_exchange(now, own, order.0, order.1).is_ok() {
                        let named = says(fd, file) || named(fd, file);
                        self.0.store(if named { NAMED } else { MUTE }, Ordering::Release);
                        drop(signals);
                        return;
                    }
                }
            }
        }
    }

    /// Locks `fd`: from then on the kernel knows whether one is left. Whether it does.
    pub fn share(&self, fd: c_int, file: &File) {
        if self.0.load(Ordering::Acquire) == SHARED {
            return;
        }
        self.name(fd, file);
        // Another thread may have closed it, and the number be another file's.
        if says(fd, file) && descriptor::share(fd, file.description()).is_ok() {
            file.set_shared();
            self.0.store(SHARED, Ordering::Release);
        }
    }

    /// To be called before the number is closed, by whoever has made it unknown.
    pub fn leave(&self) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        loop {
            match self.0.load(Ordering::Acquire) {
                NAMED | SHARED | LEFT => return,
                namer if !matches!(namer, PLAIN | MUTE) && namer == std::process::id() => rest(),
                now => {
                    if self.0.compare_exchange(now, LEFT, order.0, order.1).is_ok() {
                        return;
                    }
                }
            }
        }
    }
}

/// Whether `fd` says that it stands for `file`.
fn says(fd: c_int, file: &File) -> bool {
    matches!(descriptor::identify(fd), Ok(Some(found))
        if (found.description(), found.nonce()) == (file.description(), file.nonce()))
}

fn named(fd: c_int, file: &File) -> bool {
    let (description, nonce) = (file.description(), file.nonce());
    plain::is_plain(fd) && plain::name(fd, settings::instance(), description, nonce).is_ok()
}

fn rest() {
    let _: c_int = kernel!(SYS_sched_yield);
}

/// All signals of this thread are blocked while it lives.
struct Blocked(u64);

impl Blocked {
    fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0u64);
        let (set, bytes) = (libc::SIG_SETMASK, size_of::<u64>());
        let _: c_int = kernel!(SYS_rt_sigprocmask, set, &raw const all, &raw mut before, bytes);
        Blocked(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let (set, none, bytes) = (libc::SIG_SETMASK, std::ptr::null_mut::<u64>(), size_of::<u64>());
        let _: c_int = kernel!(SYS_rt_sigprocmask, set, &raw const self.0, none, bytes);
    }
}
