//! The atomics of the shared words: the standard ones, or loom's when the protocol is
//! model-checked.

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};
