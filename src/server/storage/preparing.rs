//! Memory that is made ready before anybody writes: which segment is next, and whether more may be
//! made. Not here: who prepares it, and how much (`ready`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::local::tables::segment;

use super::Storage;

/// How long no segment is made after one found no memory.
const STOPPED: Duration = Duration::from_secs(1);

impl Storage {
    /// Bytes that are free in warm segments.
    pub fn warm_bytes(&self) -> u64 {
        self.ram.warm_bytes()
    }

    /// Whether what others keep in its file system leaves the arena less than its bound.
    pub fn is_cramped(&self) -> bool {
        self.ram.is_cramped()
    }

    /// The first segment that exists and is not prepared.
    pub fn first_cold(&self) -> Option<u32> {
        let memory = self.memory();
        let sparse = |at: &u32| memory.segment_state(*at).load(Ordering::SeqCst) == segment::SPARSE;
        (0..self.ram.segments()).find(sparse)
    }

    /// A segment that nobody uses and that is not prepared, if need be a new one.
    pub fn unused_cold(&mut self) -> Option<u32> {
        self.grow_again();
        self.ram.allocator().unused_cold().or_else(|| self.ram.grow().ok())
    }

    /// This segment is just being prepared, or none is any more: nobody is sent there meanwhile.
    pub fn prepares(&mut self, segment: Option<u32>) {
        self.ram.allocator().prepares(segment);
    }

    /// A segment is prepared, as `is` says.
    pub fn prepared(&mut self, index: u32, is: u64) {
        self.memory().segment_state(index).store(is, Ordering::SeqCst);
        self.ram.allocator().warmed(index);
    }

    /// A segment found no memory: none are made for a while.
    pub fn stop_growing(&mut self) {
        self.grows_again = Some(self.world.now() + STOPPED);
        self.ram.allocator().stop_growing(true);
    }

    /// Segments may be made again, if that while is over.
    pub fn grow_again(&mut self) {
        if self.grows_again.is_some_and(|at| at <= self.world.now()) {
            self.grows_again = None;
            self.ram.allocator().stop_growing(false);
        }
    }
}
