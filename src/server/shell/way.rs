//! The way to the others, and who has it: its own thread, but while that waits for the network.
//! Then whoever has something short to say does so himself: to wake another thread for it takes
//! longer.
//!
//! Invariant: nobody waits for it who has the state; who finds it taken wakes who has it, who says
//! all before he waits again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terral_format::Result;
use terral_network::tcp::{Found, Watch};

use crate::far::desk::Relay;
use crate::shared::Shared;
use crate::shell::links::Links;
use crate::shell::parking::Parking;

/// See the module.
pub struct Way<'s> {
    shared: &'s Shared,
    links: Mutex<Links<'s>>,
    watch: Watch,
}

impl<'s> Way<'s> {
    /// Opens it, if this server is a member.
    ///
    /// # Errors
    /// As those of [`Links::open`].
    pub fn open_if(
        is_member: bool,
        (shared, parking): (&'s Shared, &'s Parking<'s>),
        at: SocketAddr,
        relay: Option<Arc<dyn Relay>>,
    ) -> Result<Option<Self>> {
        if !is_member {
            return Ok(None);
        }
        let links = Links::open((shared, parking), at, relay)?;
        let watch = links.watch();
        Ok(Some(Way { shared, links: Mutex::new(links), watch }))
    }

    fn lock(&self) -> MutexGuard<'_, Links<'s>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries frames until the server leaves.
    pub fn run(&self) {
        self.lock().begin();
        let mut found = Found::default();
        loop {
            let Some(wait) = self.lock().turn(std::mem::take(&mut found)) else { return };
            if !wait.is_zero() {
                found = self.watch.wait(wait);
            }
        }
    }

    /// Has said what is to be said: at once, if nobody else is at it and it is short.
    pub fn say(&self) {
        let said = self.links.try_lock().is_ok_and(|mut links| links.say_what_is_short());
        if !said {
            self.shared.wake_links();
        }
    }
}
