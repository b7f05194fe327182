//! Who of this process has a named lock, or waits until another thread of it gives it back: the
//! table of locks knows processes only.
//!
//! Invariant: a place is left once. A forked child has none of its parent's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use terral_format::{Error, ErrorKind, Result};

/// A lock of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) instance: u128,
    pub(super) name: Vec<u8>,
}

/// How many threads have it: one, or several that share it.
enum Users {
    One,
    Several(u32),
}

static ALL: Mutex<BTreeMap<(u32, Name), Users>> = Mutex::new(BTreeMap::new());
static LEFT: Condvar = Condvar::new();

fn all() -> MutexGuard<'static, BTreeMap<(u32, Name), Users>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of them.
pub(super) struct Place {
    key: (u32, Name),
    left: AtomicBool,
}

impl Place {
    /// Waits until no other of this process has it, or all share it.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it is not to be waited any longer.
    pub(super) fn take(name: Name, shared: bool, until: Option<Instant>) -> Result<Self> {
        let key = (std::process::id(), name);
        let mut users = all();
        loop {
            match users.get_mut(&key) {
                None => {
                    users.insert(key.clone(), if shared { Users::Several(1) } else { Users::One });
                    break;
                }
                // It is had shared: the table need not be asked, but the lease is.
                Some(Users::Several(count)) if shared => {
                    *count += 1;
                    break;
                }
                Some(_) => {}
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Error::new(ErrorKind::WouldBlock, "named lock"));
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            let waited = LEFT.wait_timeout(users, left);
            users = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Place { key, left: AtomicBool::new(false) })
    }

    /// Of which lock.
    pub(super) fn name(&self) -> &Name {
        &self.key.1
    }

    /// Whether no other of this process has it. None gets it then before this one has left; else
    /// it has left.
    pub(super) fn is_last(&self) -> bool {
        match all().get_mut(&self.key) {
            Some(Users::Several(count)) if *count > 1 => {
                *count -= 1;
                self.left.store(true, Ordering::SeqCst);
                false
            }
            Some(users) => {
                *users = Users::One;
                true
            }
            None => true,
        }
    }

    /// It is free for others.
    pub(super) fn leave(&self) {
        if self.left.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut users = all();
        match users.get_mut(&self.key) {
            Some(Users::Several(count)) if *count > 1 => *count -= 1,
            _ => drop(users.remove(&self.key)),
        }
        LEFT.notify_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
