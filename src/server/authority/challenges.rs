//! Challenges that were given out and are to come back signed: each once, and soon.
//!
//! In memory only: who is answered by a server that was started again asks anew.

use std::collections::VecDeque;
use std::time::Duration;

use terral_format::Result;
use terral_format::wire::login::CHALLENGE_BYTES;

use crate::core::world::{Tick, World};

/// So long one is good for.
const LASTS: Duration = Duration::from_secs(60);
/// Most at a time; the oldest goes first.
const MOST: usize = 1024;

/// Bytes that nobody can guess.
pub type Challenge = [u8; CHALLENGE_BYTES];

/// Those that have not come back.
#[derive(Default)]
pub struct Challenges(VecDeque<(Tick, Challenge)>);

impl Challenges {
    /// A new one.
    ///
    /// # Errors
    /// As [`World::secret`].
    pub fn give(&mut self, world: &dyn World) -> Result<Challenge> {
        let challenge = world.secret()?;
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((world.now(), challenge));
        Ok(challenge)
    }

    /// Whether one was given out, not long ago, and has not come back before.
    pub fn take(&mut self, world: &dyn World, challenge: &Challenge) -> bool {
        let now = world.now();
        self.0.retain(|(given, _)| now.since(*given) < LASTS);
        let at = self.0.iter().position(|(_, known)| known == challenge);
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}
