//! Waiting for the drain, and showing it: a bar on a terminal, a line every few seconds elsewhere,
//! nothing if it is over soon.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use terral_client::{Client, Drain, ErrorKind, Status};

use crate::debt::{debt, first_cause};
use crate::report::{is_quiet, say};
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
    silent: Vec<String>,
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
            silent: Vec::new(),
        }
    }

    /// Takes in what the server says, and shows it if it is time. `others` are client processes
    /// that are waited for.
    pub fn update(&mut self, status: &Status, others: u32) {
        self.measure(status.drain.bytes, status.drain.owed_bytes);
        let now = Instant::now();
        if now - self.begin < SOON || is_quiet() {
            return;
        }
        if self.terminal {
            self.draw(status, others);
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

    /// What is left, and why if it does not get less; without an estimate then.
    fn text(&self, status: &Status, others: u32) -> String {
        let drain = &status.drain;
        if let Some(cause) = first_cause(drain) {
            return format!("{} left, trying again: {cause}", debt(drain));
        }
        let mut text = String::new();
        if drain.owed_bytes > 0 {
            let (part, goal) = (self.part(drain) * 100.0, bytes(self.goal_bytes));
            let _ = write!(text, "{part:.0} % of {goal} brought, {} left", bytes(drain.owed_bytes));
        } else if drain.owed_files + drain.owed_names > 0 {
            let _ = write!(text, "{} left", debt(drain));
        } else if !drain.settled {
            text.push_str("all brought, being made safe on disk");
        } else {
            text.push_str("all brought");
        }
        if drain.owed_bytes > 0 && self.rate >= 1.0 {
            let left = Duration::from_secs_f64(drain.owed_bytes as f64 / self.rate);
            let _ = write!(text, ", {}/s, about {}", bytes(self.rate as u64), duration(left));
        }
        if drain.owed_bytes + drain.owed_files == 0 && others > 0 {
            let processes = plural(others.into(), "process", "processes");
            let _ = write!(text, "; {processes} still here");
        }
        text
    }

    /// How much of what there was is brought.
    fn part(&self, drain: &Drain) -> f64 {
        1.0 - drain.owed_bytes as f64 / self.goal_bytes.max(1) as f64
    }

    /// The text with a bar, if both fit; the bar goes first, then the end of the text.
    fn line(&self, status: &Status, others: u32, room: usize) -> String {
        let text = self.text(status, others);
        let full = (self.part(&status.drain) * BAR_COLUMNS as f64) as usize;
        let bar = format!("[{}{}]", "#".repeat(full), "·".repeat(BAR_COLUMNS - full));
        let with_bar = format!("terral: {bar} {text}");
        if status.drain.failures.is_empty() && with_bar.chars().count() <= room {
            return with_bar;
        }
        shorten(&format!("terral: {text}"), room)
    }

    fn draw(&mut self, status: &Status, others: u32) {
        let stderr = std::io::stderr();
        let size = rustix::termios::tcgetwinsize(&stderr);
        // Terminals that do not know say 0.
        let columns = size.map_or(80, |size| if size.ws_col < 20 { 80 } else { size.ws_col });
        let shown = self.line(status, others, usize::from(columns) - 1);
        let _ = write!(stderr.lock(), "\r\x1b[K{shown}");
        self.drawn = true;
    }

    /// Says, once, that a server is there and does not answer, and is waited for.
    pub fn is_silent(&mut self, host: Option<&str>) {
        let who = host.map(|host| format!("{host}: ")).unwrap_or_default();
        if !self.silent.contains(&who) {
            self.clear();
            say(format_args!("{who}the server there does not answer (stopped?); waiting for it"));
            self.silent.push(who);
        }
    }

    /// Takes the bar away, so that other words can be said.
    pub fn clear(&mut self) {
        if self.terminal && self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

/// So many characters at most; what is cut off shows.
fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.into();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
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

/// The same; nothing, and the user is told once, if the server is there and does not answer.
///
/// # Errors
/// If the server is gone for good.
pub fn status_if_answered(
    client: &Client,
    wish: impl Fn(&Client) -> terral_client::Result<()>,
    told: &mut Option<u64>,
    progress: &mut Progress,
) -> terral_client::Result<Option<Status>> {
    match status_when_told(client, wish, told) {
        Err(error) if error.kind == ErrorKind::Unanswered => {
            progress.is_silent(None);
            Ok(None)
        }
        status => status.map(Some),
    }
}

/// How long somebody waits for what is owed: until its time is over, or a second signal comes. The
/// first one only says what the next will do: a batch system sends one and then leaves time.
pub struct Patience<'s> {
    begin: Instant,
    limit: Option<Duration>,
    signals: &'s Signals,
    before: u32,
    warned: bool,
}

impl<'s> Patience<'s> {
    /// It begins; signals that have come do not count.
    pub fn new(signals: &'s Signals, limit: Option<Duration>) -> Self {
        Patience { begin: Instant::now(), limit, signals, before: signals.count(), warned: false }
    }

    /// Whether it is over. Says why, and what the next signal will do.
    pub fn is_over(&mut self, progress: &mut Progress) -> bool {
        if let Some(limit) = self.limit.filter(|limit| self.begin.elapsed() >= *limit) {
            progress.clear();
            say(format_args!("not all was brought within {} (--wait-timeout)", duration(limit)));
            return true;
        }
        let signalled = self.signals.count().wrapping_sub(self.before);
        if signalled > 1 {
            progress.clear();
        } else if signalled == 1 && !self.warned {
            progress.clear();
            self.warned = true;
            say(
                "going on until all is in the permanent directory; Ctrl-C or TERM once more keeps \
                 the rest in memory",
            );
        }
        signalled > 1
    }
}

/// How a wait ended.
pub enum Ending {
    /// All is in the permanent directory, which says that it is safe.
    Paid(Box<Status>),
    /// Somebody's patience was over; debt is left.
    Broken(Box<Status>),
}

/// Tells the server to finish and waits until it owes nothing and nobody uses it, so long at most.
///
/// # Errors
/// If the server is gone for good, or does not answer when patience is over.
pub fn pay_off(client: &Client, signals: &Signals, limit: Option<Duration>) -> Result<Ending> {
    let mut patience = Patience::new(signals, limit);
    let mut progress = Progress::new();
    let mut pause = Duration::from_micros(100);
    let mut told = None;
    loop {
        let status = status_if_answered(client, Client::finish, &mut told, &mut progress)?;
        let done = |status: &Status| status.drain.settled && status.sessions == 0;
        let paid = status.as_ref().is_some_and(done);
        if paid || patience.is_over(&mut progress) {
            progress.clear();
            let status = Box::new(status.context("the server does not answer")?);
            return Ok(if paid { Ending::Paid(status) } else { Ending::Broken(status) });
        }
        status.iter().for_each(|status| progress.update(status, status.sessions));
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use terral_client::{Drain, Status, Totals};

    fn status(drain: Drain) -> Status {
        Status {
            pid: 1,
            starts: 1,
            uptime_ms: 0,
            backing: None,
            sessions: 0,
            files: 0,
            open: 0,
            memory_bound_bytes: 0,
            memory_used_bytes: 0,
            memory_warm_bytes: 0,
            totals: Totals::default(),
            drain,
            warnings: Vec::new(),
            spill: None,
            spilled_bytes: 0,
            partition: None,
        }
    }

    #[test]
    fn a_line_fits_the_terminal_and_keeps_the_reason() {
        let why = "/a/very/long/name/of/a/file: write /data/.terral/8eed-8: No space left on \
                   device (os error 28); free some there, then it goes on";
        let failures = vec![why.to_owned()];
        let drain = Drain { owed_bytes: 3 << 30, owed_files: 1, failures, ..Drain::default() };
        let mut progress = Progress::new();
        progress.goal_bytes = 4 << 30;
        progress.rate = 1e8;
        for room in [79, 200] {
            let line = progress.line(&status(drain.clone()), 0, room);
            assert!(line.chars().count() <= room, "{line}");
            let told = "terral: 3.00 GiB in 1 file left, trying again: No space left on device";
            assert!(line.starts_with(told), "{line}");
            assert!(!line.contains("/s,"), "an estimate beside a failure: {line}");
        }
    }

    #[test]
    fn a_bar_is_shown_where_it_fits() {
        let drain = Drain { owed_bytes: 3 << 30, owed_files: 1, ..Drain::default() };
        let mut progress = Progress::new();
        progress.goal_bytes = 4 << 30;
        let wide = progress.line(&status(drain.clone()), 0, 79);
        let bar = "[######··················]";
        assert_eq!(wide, format!("terral: {bar} 25 % of 4.00 GiB brought, 3.00 GiB left"));
        let narrow = progress.line(&status(drain), 0, 30);
        assert_eq!(narrow, "terral: 25 % of 4.00 GiB brou…");
    }
}
