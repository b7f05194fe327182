//! How `terral` speaks and ends: one line per failure on standard error, and documented exit codes.
//!
//! Invariant: a reader that went away (`terral ls | head`) ends the program quietly.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use terral_client::ErrorKind;

use crate::shown::tame;

/// Exit codes, as `terral --help` documents them.
pub mod code {
    /// The verb could not do what was asked.
    pub const FAILED: u8 = 1;
    /// No server is there to ask (`EX_UNAVAILABLE` of sysexits.h).
    pub const NO_SERVER: u8 = 69;
    /// Data is still owed to the permanent directory, and kept in memory (`EX_IOERR`).
    pub const OWED: u8 = 74;
    /// A lock was not to be had in time, or was lost (`EX_TEMPFAIL`).
    pub const NOT_HELD: u8 = 75;
    /// Its partition goes on without it: what a server says to the process that has started it.
    pub const REMOVED: u8 = 76;
    /// `terral run` could not start its server or COMMAND's surroundings.
    pub const NOT_STARTED: u8 = 125;
    /// COMMAND cannot be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// COMMAND is not there.
    pub const NOT_FOUND: u8 = 127;
}

/// The end of `terral --help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the verb could not do what was asked; one line on standard error says why
  2    the command line makes no sense
  69   no server to ask
  74   data is still owed to the permanent directory; it is kept in memory, `terral recover` pays it
  75   `terral lock`: others have the lock, or it was lost
  125  `terral run` could not start; 126, 127: COMMAND cannot be executed, is not there
  `terral run` and `terral lock` end with COMMAND's own status, or 128 + the signal that ended it.";

/// A failure with an exit code of its own.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// An error that ends the program with this code.
pub fn failure(code: u8, what: impl Into<String>) -> anyhow::Error {
    Failure { code, what: what.into() }.into()
}

/// Says one line on standard error, whatever names are in it. Nobody listening is no reason to
/// stop.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "terral: {}", tame(&line.to_string()));
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on only what went wrong, or may, is said.
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether only that is said.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Says one line that is good to know, unless only what went wrong shall be said.
pub fn note(line: impl fmt::Display) {
    if !is_quiet() {
        say(line);
    }
}

/// Writes a line of JSON to standard output.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Says what went wrong and gives the exit code for it.
pub fn conclude(error: &anyhow::Error) -> u8 {
    let broken_pipe = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    let piped = error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(broken_pipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
    });
    if piped {
        return code::FAILED;
    }
    say(format_args!("{error:#}"));
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    let unreachable = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<terral_client::Error>())
        .any(|cause| cause.kind == ErrorKind::Unreachable);
    if unreachable { code::NO_SERVER } else { code::FAILED }
}
