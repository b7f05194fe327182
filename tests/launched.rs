//! Commands of `terral` as a person starts them, and what they say. Not here: runs beside tmpfs
//! (`beside`).
#![allow(dead_code)] // Each test file uses its part.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::beside::built;

/// Nothing takes so long, unless it hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// `terral`, whose output is read.
pub fn terral() -> Command {
    let mut command = Command::new(built("terral"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `terral run`, with these options, to a directory.
pub fn run_to(to: &Path, options: &[&str]) -> Command {
    let mut command = terral();
    command.arg("run").args(options).arg("--to").arg(to);
    command
}

/// What it said to the person.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something is so, but not for ever.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < LONG, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
