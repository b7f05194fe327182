//! How another thread breaks off the wait of the one that has the endpoint.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Breaks off a wait in [`Endpoint::next`](crate::endpoint::Endpoint::next): that gives nothing
/// then. To be used from any thread; so often before the wait as it likes, it counts once.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Waker(Arc::new(eventfd(0, flags)?)))
    }

    /// Breaks it off, or the next one.
    pub fn wake(&self) {
        // It cannot be full before 2^64 wakes, and is woken then.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Nobody has woken it since.
    pub(super) fn rest(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}
