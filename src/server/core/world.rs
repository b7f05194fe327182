//! Time and chance, as the server has them: through [`World`], so that a simulation can hold them.
//!
//! Invariant: nothing else in what a server decides reads a clock, draws a number or waits; only
//! its threads do (see `lib.rs`), and what makes this for them.

use std::ops::Add;
use std::time::Duration;

use terral_format::Result;

/// A moment on a clock that is never set: nanoseconds since some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

impl Tick {
    /// How long after `earlier` it is; nothing if it is before.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, later: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// What a server knows of time and chance.
pub trait World: Send + Sync {
    /// Now, on a clock that is never set.
    fn now(&self) -> Tick;

    /// Now, nanoseconds since 1970, by this machine's clock: files are stamped by
    /// [`crate::storage::Storage::time_ns`].
    fn wall_ns(&self) -> u64;

    /// Bits that nobody can guess.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::System`] if the system has none.
    fn random(&self) -> Result<u128>;

    /// Lets others run for a moment: somebody is just copying.
    fn give_way(&self);

    /// A secret.
    ///
    /// # Errors
    /// As [`World::random`].
    fn secret(&self) -> Result<[u8; 32]> {
        let mut bytes = [0; 32];
        for half in bytes.as_chunks_mut().0 {
            *half = self.random()?.to_le_bytes();
        }
        Ok(bytes)
    }

    /// Now, seconds since 1970.
    fn wall_s(&self) -> u64 {
        self.wall_ns() / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::Tick;
    use std::time::Duration;

    #[test]
    fn moments_neither_overflow_nor_lie_before_the_beginning() {
        assert_eq!(Tick(5) + Duration::MAX, Tick(u64::MAX));
        assert_eq!((Tick(5) + Duration::from_nanos(2)).since(Tick(5)), Duration::from_nanos(2));
        assert_eq!(Tick(5).since(Tick(7)), Duration::ZERO);
    }
}
