//! What a run did, for a person or as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use terral_client::{Status, Totals};

use crate::debt::{causes, debt, is_owed};
use crate::lost::rows as rows_of;
use crate::past::Past;
use crate::takeover::Earlier;
use crate::units::{bytes, count, duration, plural, rate};

/// Where what a run wrote is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whereabouts {
    /// In the permanent directory.
    Arrived,
    /// A server that stays brings it.
    OnItsWay,
    /// In memory; nobody brings it unless told to.
    Owed,
}

/// A run, told at its end.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// Name of the instance.
    pub instance: &'a str,
    /// The permanent directory.
    pub directory: &'a Path,
    /// Exit status as `terral run` gives it on.
    pub command_status: u8,
    /// Seconds COMMAND ran.
    pub command_seconds: f64,
    /// Seconds from COMMAND's end until nothing was owed.
    pub wait_seconds: f64,
    /// How often the server had to be started again.
    pub restarts: u32,
    /// Where everything is.
    pub state: Whereabouts,
    /// What programs did.
    pub totals: Totals,
    /// The server at the end.
    pub server: &'a Status,
    /// Files that programs wrote past Terral, and where they were saved.
    pub strays: &'a [String],
    /// What went past Terral.
    pub past: &'a Past,
    /// What earlier runs had left in memory for the same directory.
    pub earlier: &'a [Earlier],
    /// Hosts of a run over several.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub machines: &'a [String],
    /// Those of them that were lost.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub lost: &'a [String],
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// What became of an earlier run's memory.
fn told(earlier: &Earlier) -> (&'static str, String) {
    let (name, owed) = (&earlier.instance, plural(earlier.owed, "name", "names"));
    match &earlier.why {
        None => ("took over", format!("{name} of an earlier run, with {owed} owed")),
        Some(why) => {
            let brought = bytes(earlier.brought_bytes);
            ("brought", format!("{brought} of {name} of an earlier run first: {why}"))
        }
    }
}

impl Summary<'_> {
    /// Rows of a name and a text.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let (totals, drain) = (&self.totals, &self.server.drain);
        let io_ns = totals.read_ns + totals.write_ns + totals.other_ns;
        let ran = Duration::from_secs_f64(self.command_seconds);
        let mut rows = Vec::new();
        if !self.machines.is_empty() {
            let machines = count(self.machines.len() as u64);
            rows.push(("machines", format!("{machines}: {}", self.machines.join(", "))));
        }
        rows.push((
            "program",
            format!(
                "ran {}, {} of it in I/O calls: {}, {}, {}",
                duration(ran),
                duration(Duration::from_nanos(io_ns)),
                plural(totals.opens, "open", "opens"),
                plural(totals.reads, "read", "reads"),
                plural(totals.writes, "write", "writes"),
            ),
        ));
        let moved =
            |moved: u64, ns: u64| format!("{} at {}", bytes(moved), rate(moved, seconds(ns)));
        if totals.writes > 0 {
            rows.push(("wrote", moved(totals.written_bytes, totals.write_ns)));
        }
        if totals.reads > 0 {
            rows.push(("read", moved(totals.read_bytes, totals.read_ns)));
        }
        if drain.bytes > 0 {
            // Of a moment, or of a copy that is not over, the rate says nothing.
            let mut text = match drain.busy_ms {
                0..5 => bytes(drain.bytes),
                busy_ms => moved(drain.bytes, busy_ms * 1_000_000),
            };
            if drain.peak_bytes > 0 {
                let _ = write!(text, ", at most {} owed", bytes(drain.peak_bytes));
            }
            if self.wait_seconds >= 0.01 {
                let waited = Duration::from_secs_f64(self.wait_seconds);
                let _ = write!(text, ", {} after the program's end", duration(waited));
            }
            rows.push(("drained", text));
        }
        if drain.verified_bytes > 0 {
            let verified = bytes(drain.verified_bytes);
            rows.push(("verified", format!("{verified} read back and compared")));
        }
        if self.restarts > 0 {
            let times = plural(self.restarts.into(), "time", "times");
            rows.push(("server", format!("started again {times}, nothing lost")));
        }
        rows.extend(self.earlier.iter().map(told));
        rows.extend(self.server.partition.iter().flat_map(|partition| rows_of(&partition.losses)));
        rows.extend(drain.conflicts.iter().map(|conflict| ("conflict", conflict.clone())));
        rows.extend(self.server.warnings.iter().map(|warning| ("warning", warning.clone())));
        if self.state != Whereabouts::Arrived {
            rows.extend(causes(drain).into_iter().map(|cause| ("failed", cause)));
        }
        rows
    }

    /// Whether something in it should be seen even by who does not ask.
    pub fn matters(&self) -> bool {
        let (drain, warnings) = (&self.server.drain, &self.server.warnings);
        self.state == Whereabouts::Owed || !drain.conflicts.is_empty() || !warnings.is_empty()
    }

    /// Some aligned lines.
    pub fn text(&self) -> String {
        let drain = &self.server.drain;
        let mut text = String::from("terral: ");
        let directory = self.directory.display();
        let owed = debt(drain);
        match self.state {
            Whereabouts::Owed if !self.lost.is_empty() => {
                let (also, lost) =
                    (is_owed(drain).then(|| format!("{owed}, and ")), self.lost.join(", "));
                let also = also.unwrap_or_default();
                let _ = write!(text, "{also}what only {lost} had is NOT in {directory}");
            }
            Whereabouts::Owed if is_owed(drain) => {
                let _ = write!(text, "{owed} NOT YET in {directory}");
            }
            Whereabouts::Owed => {
                let _ = write!(text, "all in {directory}, which has not made it safe on disk yet");
            }
            Whereabouts::OnItsWay => {
                let _ = write!(text, "{owed} on the way to {directory}");
            }
            Whereabouts::Arrived if drain.files > 0 => {
                let files = plural(drain.files, "file", "files");
                let _ = write!(text, "{files}, {}, all in {directory}", bytes(drain.bytes));
            }
            Whereabouts::Arrived => {
                let _ = write!(text, "no file was new; all is in {directory}");
            }
        }
        for (name, row) in self.rows() {
            let _ = write!(text, "\n  {name:<9} {row}");
        }
        text.push('\n');
        text
    }
}

/// What `after` counts more than `before`.
pub fn difference(after: &Totals, before: &Totals) -> Totals {
    Totals {
        sessions: after.sessions.saturating_sub(before.sessions),
        opens: after.opens.saturating_sub(before.opens),
        reads: after.reads.saturating_sub(before.reads),
        writes: after.writes.saturating_sub(before.writes),
        read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        read_ns: after.read_ns.saturating_sub(before.read_ns),
        write_ns: after.write_ns.saturating_sub(before.write_ns),
        other_ns: after.other_ns.saturating_sub(before.other_ns),
    }
}

/// `12 opens, 3 reads, 40 writes`, or that there was nothing.
pub fn calls(totals: &Totals) -> String {
    let (opens, reads, writes) = (count(totals.opens), count(totals.reads), count(totals.writes));
    format!("{opens} opens, {reads} reads, {writes} writes")
}
