//! The threads that carry out what other members ask of files that were born here. They wait for
//! the server, which leaves without waiting for them.

use std::sync::Arc;
use std::thread::Builder;

use terral_format::{Error, Result};
use terral_network::tcp::Waker;

use super::{Relaying, THREADS};
use crate::core::world::World;
use crate::far::desk::Relay;
use crate::shell::host::Clock;

/// Begins to do it; whoever sends answers is woken for each.
///
/// # Errors
/// [`terral_format::ErrorKind::System`] if there is no thread, or no random bits.
pub fn begin(relay: Arc<dyn Relay>, waker: Waker) -> Result<Arc<Relaying>> {
    let life = Clock.random()? as u64;
    let relaying = Relaying::new(relay, Arc::new(Clock), life, move || waker.wake());
    let relaying = Arc::new(relaying);
    for number in 0..=THREADS {
        let relaying = relaying.clone();
        let run = move || if number < THREADS { relaying.run() } else { relaying.run_urgent() };
        begin_one(run)?;
    }
    Ok(relaying)
}

/// One more, which does this.
///
/// # Errors
/// [`terral_format::ErrorKind::System`] if there is none.
pub fn begin_one(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = Builder::new().name("relay".into()).spawn(run);
    thread.map(drop).map_err(|error| Error::system(&error, "a thread that relays"))
}
