//! What files are stamped with here, the partition's time; and the machine's.

use std::time::{SystemTime, UNIX_EPOCH};

use terral_format::local::clock;

use crate::session::Connection;

impl Connection {
    /// Now, nanoseconds since 1970.
    #[inline]
    pub(crate) fn time_ns(&self) -> u64 {
        clock::time_ns(&self.memory.superblock().clock_offset, real_ns())
    }
}

/// Now, by this machine's clock, nanoseconds since 1970.
#[inline]
pub(crate) fn real_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
