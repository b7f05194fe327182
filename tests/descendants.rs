//! The processes that a process has started, so that tests can find, signal and end exactly those.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing takes so long, unless it hangs.
const LONG: Duration = Duration::from_secs(60);

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

/// What a process says until its end; one that hangs is killed with all it has started.
pub fn ended(child: Child) -> Output {
    ended_within(child, LONG)
}

/// So for one that waits for long.
pub fn ended_within(mut child: Child, bound: Duration) -> Output {
    let begin = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begin.elapsed() > bound {
            of(child.id()).into_iter().for_each(|pid| send(pid, Signal::KILL));
            let output = child.wait_with_output().expect("ends");
            panic!("it hangs: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("ends")
}

/// Milliseconds after which a server has surely lived for a second, however long it took to start.
const LIFE_MS: u64 = 4000;

/// Kills the server of a run again and again while its command runs, when each has lived for what
/// `life_ms` says. But one in three lives for more than a second: `terral run` gives up on a server
/// that five times in a row does not, or cannot be started.
pub fn kill_servers(run: u32, over: &AtomicBool, mut life_ms: impl FnMut() -> u64) {
    for kill in 0.. {
        let lives = kill > 0 && kill % 3 == 0;
        let mut left_ms = if lives { LIFE_MS } else { life_ms() };
        while left_ms > 0 && !over.load(Ordering::SeqCst) {
            let nap_ms = left_ms.min(100);
            std::thread::sleep(Duration::from_millis(nap_ms));
            left_ms -= nap_ms;
        }
        if over.load(Ordering::SeqCst) {
            return;
        }
        let running = of(run);
        let (servers, command): (Vec<i32>, Vec<i32>) =
            running[1..].iter().partition(|pid| is_server(**pid));
        if let (Some(server), false) = (servers.first(), command.is_empty()) {
            send(*server, Signal::KILL);
        }
    }
}
