//! A server of our own that dies is started again, unless it was told to end.
//!
//! Invariants: one that dies each time it starts is given up; one of a pool that says why it cannot
//! start is not, as nothing but its pool may be missing; one that its partition goes on without is
//! not started again, and why is kept. Not here: how it is started and ended (`server`).

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Ended, SAYS, Start, last_word};
use crate::report::{code, say};

/// One that waits for its pool is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Deaths within a second after a start that are one too many.
const QUICK_DEATHS: u32 = 5;

/// What is known of it.
#[derive(Default)]
pub(super) struct Watched {
    /// Its process; 0 while there is none.
    pub pid: AtomicU32,
    pub expected_to_end: AtomicBool,
    pub given_up: AtomicBool,
    pub restarts: AtomicU32,
    pub removed: OnceLock<String>,
}

impl Watched {
    fn is_expected_to_end(&self) -> bool {
        self.expected_to_end.load(Ordering::SeqCst)
    }

    /// It is not started again.
    fn give_up(&self, (pid, status): (u32, ExitStatus)) {
        self.given_up.store(true, Ordering::SeqCst);
        say(format_args!("server {pid} {}; not starting it again", end(status)));
    }
}

/// Starts it again until it ends as it was told to, or is given up.
pub(super) fn watch(start: &Start, mut child: Child, watched: &Watched) {
    let mut quick_deaths = 0;
    loop {
        let (pid, begin) = (child.id(), Instant::now());
        let Ok(status) = child.wait() else { return };
        watched.pid.store(0, Ordering::SeqCst);
        let told_to = [0, code::OWED].map(|code| Some(i32::from(code))).contains(&status.code());
        if told_to || watched.is_expected_to_end() {
            return;
        }
        if start.is_of_pool() && status.code() == Some(code::REMOVED.into()) {
            let said = File::open(start.instance.join(SAYS)).map(|said| last_word(&said));
            let _ =
                watched.removed.set(said.unwrap_or_else(|_| "was removed from its pool".into()));
            return;
        }
        if !start.instance.join("log").exists() {
            return;
        }
        quick_deaths = if begin.elapsed() < Duration::from_secs(1) { quick_deaths + 1 } else { 0 };
        if quick_deaths >= QUICK_DEATHS {
            return watched.give_up((pid, status));
        }
        let Some(again) = begin_again(start, watched, (pid, status), &mut quick_deaths) else {
            return;
        };
        watched.restarts.fetch_add(1, Ordering::SeqCst);
        watched.pid.store(again.id(), Ordering::SeqCst);
        let (end, pid_now) = (end(status), again.id());
        say(format_args!(
            "server {pid} {end}; process {pid_now} took over its memory, nothing is lost"
        ));
        child = again;
    }
}

/// Another process, once one comes up; `None` if there is to be none.
fn begin_again(
    start: &Start,
    watched: &Watched,
    (pid, status): (u32, ExitStatus),
    quick_deaths: &mut u32,
) -> Option<Child> {
    let mut said = String::new();
    loop {
        let error = match start.start(|| watched.is_expected_to_end()) {
            Ok(again) => return Some(again),
            Err(error) => error,
        };
        if watched.is_expected_to_end() {
            return None;
        }
        let ended = error.downcast_ref::<Ended>();
        if let Some(Ended::Removed(why)) = ended.filter(|_| start.is_of_pool()) {
            let _ = watched.removed.set(why.clone());
            return None;
        }
        let waits = start.is_of_pool() && !matches!(ended, Some(Ended::Died(..)));
        let why = format!("{error:#}");
        if why != said {
            say(format_args!("server {pid} {}; starting it again: {why}", end(status)));
        }
        said = why;
        // It may have been killed before it could be reached, too; or waits for its pool.
        match waits {
            true => std::thread::sleep(AGAIN),
            false => *quick_deaths += 1,
        }
        if *quick_deaths >= QUICK_DEATHS {
            watched.give_up((pid, status));
            return None;
        }
    }
}

fn end(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (_, Some(code)) => format!("ended with code {code}"),
        _ => "ended".into(),
    }
}
