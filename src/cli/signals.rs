//! Signals that would end `terral`: counted, and passed on to COMMAND while it runs.
//!
//! Invariant: after [`Signals::listen`] none of them ends this process. COMMAND is held by a pid
//! descriptor, so that a signal never reaches a stranger.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// What came so far.
#[derive(Default)]
struct Seen {
    count: AtomicU32,
    command: Mutex<Option<OwnedFd>>,
}

/// Counts signals.
#[derive(Clone)]
pub struct Signals(Arc<Seen>);

/// Whether the terminal has sent this signal to COMMAND as well: both are in its foreground group.
fn terminal_tells_command(signal: i32) -> bool {
    if !matches!(signal, SIGINT | SIGQUIT) {
        return false;
    }
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

impl Signals {
    /// Begins to count.
    pub fn listen() -> Result<Self> {
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
        let mut incoming = signal_hook::iterator::Signals::new(wanted).context("signals")?;
        let signals = Signals(Arc::default());
        let seen = signals.0.clone();
        std::thread::spawn(move || {
            for signal in incoming.forever() {
                seen.count.fetch_add(u32::from(signal != SIGHUP), Ordering::SeqCst);
                if !terminal_tells_command(signal) {
                    seen.pass_on(signal);
                }
            }
        });
        Ok(signals)
    }

    /// From now on signals go to this process too.
    pub fn pass_to(&self, pid: u32) {
        let pid = Pid::from_raw(pid as i32);
        let held = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        *self.0.command.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// No longer.
    pub fn keep(&self) {
        *self.0.command.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How many came that asked to end. That the terminal is gone does not.
    pub fn count(&self) -> u32 {
        self.0.count.load(Ordering::SeqCst)
    }
}

impl Seen {
    fn pass_on(&self, signal: i32) {
        let command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(command), Some(signal)) = (command.as_ref(), Signal::from_named_raw(signal)) {
            // A command that has just ended needs it no more.
            let _ = rustix::process::pidfd_send_signal(command, signal);
        }
    }
}
