//! Waiting for the drain, and showing it: a bar on a terminal, a line every few seconds elsewhere,
//! nothing if it is over soon.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use terral_client::{Client, Status};

use crate::report::say;
use crate::signals::Signals;
use crate::units::{bytes, duration, plural};

/// A wait shorter than this is not shown.
const SOON: Duration = Duration::from_millis(300);
/// The server is asked this often at most.
const POLL: Duration = Duration::from_millis(100);
/// Without a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);
const BAR_COLUMNS: usize = 24;

/// What is shown of a wait.
pub struct Progress {
    begin: Instant,
    terminal: bool,
    drawn: bool,
    line_at: Instant,
    at_start: Option<u64>,
    goal_bytes: u64,
    rate: f64,
    last: Option<(Instant, u64)>,
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        let now = Instant::now();
        Progress {
            begin: now,
            terminal: std::io::stderr().is_terminal(),
            drawn: false,
            line_at: now,
            at_start: None,
            goal_bytes: 0,
            rate: 0.0,
            last: None,
        }
    }

    /// Takes in what the server says, and shows it if it is time. `others` are client processes
    /// beside this one, if they are waited for.
    pub fn update(&mut self, status: &Status, others: u32) {
        self.measure(status.drain.bytes, status.drain.owed_bytes);
        let now = Instant::now();
        if now - self.begin < SOON {
            return;
        }
        if self.terminal {
            let text = self.text(status, others);
            self.draw(&text);
        } else if !self.drawn || now - self.line_at >= LINE_EVERY {
            (self.line_at, self.drawn) = (now, true);
            say(self.text(status, others));
        }
    }

    fn measure(&mut self, done_bytes: u64, owed_bytes: u64) {
        let now = Instant::now();
        let start = *self.at_start.get_or_insert(done_bytes);
        let done = done_bytes.saturating_sub(start);
        self.goal_bytes = self.goal_bytes.max(done + owed_bytes);
        let (then, before) = *self.last.get_or_insert((now, done_bytes));
        let seconds = (now - then).as_secs_f64();
        if seconds >= 0.25 {
            let rate = done_bytes.saturating_sub(before) as f64 / seconds;
            self.rate = if self.rate == 0.0 { rate } else { 0.7 * self.rate + 0.3 * rate };
            self.last = Some((now, done_bytes));
        }
    }

    fn text(&self, status: &Status, others: u32) -> String {
        let drain = &status.drain;
        let mut text = String::new();
        let part = 1.0 - drain.owed_bytes as f64 / self.goal_bytes.max(1) as f64;
        if self.terminal {
            let full = (part * BAR_COLUMNS as f64) as usize;
            let _ = write!(text, "[{}{}] ", "#".repeat(full), "·".repeat(BAR_COLUMNS - full));
        }
        if drain.owed_bytes > 0 {
            let (owed, goal) = (bytes(drain.owed_bytes), bytes(self.goal_bytes));
            let _ = write!(text, "{:.0} %, {owed} of {goal} to bring", part * 100.0);
        } else if drain.owed_files + drain.owed_names > 0 {
            let names = plural(drain.owed_files + drain.owed_names, "name", "names");
            let _ = write!(text, "{names} to bring");
        } else if !drain.settled {
            text.push_str("making it safe on disk");
        } else {
            text.push_str("all brought");
        }
        if drain.owed_bytes > 0 && self.rate >= 1.0 {
            let left = Duration::from_secs_f64(drain.owed_bytes as f64 / self.rate);
            let _ = write!(text, ", {}/s, {} left", bytes(self.rate as u64), duration(left));
        }
        if let Some(newest) = drain.failures.last() {
            let _ = write!(text, "; trying again: {newest}");
        } else if drain.owed_bytes + drain.owed_files == 0 && others > 0 {
            let processes = plural(others.into(), "process", "processes");
            let _ = write!(text, "; {processes} still here");
        }
        text
    }

    fn draw(&mut self, text: &str) {
        let stderr = std::io::stderr();
        let size = rustix::termios::tcgetwinsize(&stderr);
        // Terminals that do not know say 0.
        let columns = size.map_or(80, |size| if size.ws_col < 20 { 80 } else { size.ws_col });
        let room = usize::from(columns) - 1;
        let shown: String = format!("terral: {text}").chars().take(room).collect();
        let _ = write!(stderr.lock(), "\r\x1b[K{shown}");
        self.drawn = true;
    }

    /// Takes the bar away, so that other words can be said.
    pub fn clear(&mut self) {
        if self.terminal && self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

/// The status of a server that knows a wish: one that was started again does not, and is told.
/// `told` is for the next call.
///
/// # Errors
/// If the server is gone for good.
pub fn status_when_told(
    client: &Client,
    wish: impl Fn(&Client) -> terral_client::Result<()>,
    told: &mut Option<u64>,
) -> terral_client::Result<Status> {
    loop {
        let status = client.status()?;
        if *told == Some(status.starts) {
            return Ok(status);
        }
        wish(client)?;
        *told = Some(status.starts);
    }
}

/// How a wait ended.
pub enum Ending {
    /// All is in the permanent directory, which says that it is safe.
    Paid(Box<Status>),
    /// A signal ended it; debt is left.
    Broken(Box<Status>),
}

/// Tells the server to finish and waits until it owes nothing and nobody else uses it.
///
/// # Errors
/// If the server is gone for good.
pub fn pay_off(client: &Client, signals: &Signals) -> Result<Ending> {
    let before = signals.count();
    let mut hinted = before;
    let mut progress = Progress::new();
    let mut pause = Duration::from_millis(1);
    let mut told = None;
    loop {
        let status = status_when_told(client, Client::finish, &mut told)?;
        let others = status.sessions.saturating_sub(1);
        if status.drain.settled && others == 0 {
            progress.clear();
            return Ok(Ending::Paid(Box::new(status)));
        }
        let count = signals.count();
        if count > hinted && !signals.hung_up() {
            progress.clear();
            if count > 1 || signals.asked_to_end() {
                return Ok(Ending::Broken(Box::new(status)));
            }
            hinted = count;
            say("not all is in the permanent directory yet: Ctrl-C again keeps the rest in memory");
        }
        progress.update(&status, others);
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}
