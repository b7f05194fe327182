//! How much this member has sent to others, since its process began. Counted by the thread that
//! sends, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::wire::status::Sent;

/// The counts, which only grow.
#[derive(Debug, Default)]
pub struct Traffic {
    frames: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// A frame of so many bytes was handed to a session.
    pub fn frame(&self, bytes: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// It is one that asks, answers or tells something.
    pub fn operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// All so far.
    pub fn so_far(&self) -> Sent {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Sent {
            frames: read(&self.frames),
            operations: read(&self.operations),
            bytes: read(&self.bytes),
        }
    }
}
