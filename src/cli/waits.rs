//! While COMMAND runs: says so if programs wait for memory that the permanent directory does not
//! let become free. Nobody is asked for that: the server notes it in shared memory.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use terral_client::Client;

use crate::debt::first_cause;
use crate::report::say;
use crate::units::bytes;

/// It is looked so often, and what lasts for less is not said.
const LOOK: Duration = Duration::from_secs(1);
/// It is said again after this, if it goes on or comes back.
const AGAIN: Duration = Duration::from_secs(600);

type Over = Arc<(Mutex<bool>, Condvar)>;

/// Looks until it is dropped.
pub struct Waits {
    over: Over,
    thread: Option<JoinHandle<()>>,
}

impl Waits {
    /// Begins to look.
    pub fn watch(instance: &Path) -> Self {
        let (over, instance) = (Over::default(), instance.to_path_buf());
        let of_thread = over.clone();
        let thread = std::thread::spawn(move || look(&instance, &of_thread));
        Waits { over, thread: Some(thread) }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_all();
        // It does not panic; and if it did, nothing is lost.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Whether it is over, within so much time.
fn is_over(over: &Over, within: Duration) -> bool {
    let guard = over.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = over.1.wait_timeout_while(guard, within, |over| !*over);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn look(instance: &Path, over: &Over) {
    let (mut client, mut waited, mut said) = (None, false, None::<Instant>);
    while !is_over(over, LOOK) {
        if client.is_none() {
            client = Client::observe(instance).ok();
        }
        let Some(client) = &client else { continue };
        let waits = client.programs_wait();
        let long = std::mem::replace(&mut waited, waits) && waits;
        if long && said.is_none_or(|at| at.elapsed() > AGAIN) && tell(client) {
            said = Some(Instant::now());
        }
    }
}

/// Says why programs wait, unless they only wait for their turn.
fn tell(client: &Client) -> bool {
    let Ok(status) = client.status() else { return false };
    let Some(cause) = first_cause(&status.drain) else { return false };
    let directory = status.backing.as_deref().unwrap_or("the permanent directory");
    let memory = bytes(status.memory_bound_bytes);
    say(format_args!(
        "programs wait: the {memory} of memory are full, and {directory} takes no more: {cause}"
    ));
    true
}
