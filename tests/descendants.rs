//! The processes that a process has started, so that tests can find, signal and end exactly those.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process and all it has started, directly or not.
pub fn of(root: u32) -> Vec<i32> {
    let (mut found, mut at) = (vec![root as i32], 0);
    while at < found.len() {
        let threads = fs::read_dir(format!("/proc/{}/task", found[at]));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        at += 1;
    }
    found
}

/// The server that a `terral run` has started.
pub fn server(run: u32) -> Option<i32> {
    of(run).into_iter().find(|pid| is_server(*pid))
}

/// Whether this is a server.
pub fn is_server(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.windows(7).any(|word| word == b"\0serve\0")
}

/// Sends a signal to a process, which may have ended.
pub fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}
