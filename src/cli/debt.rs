//! What the permanent directory is still owed, in words, and why: one line for each cause, the
//! first cause first.

use std::fmt::Write as _;
use std::time::Duration;

use terral_client::Drain;

use crate::units::{bytes, duration, plural};

/// Most failures the server names; there may be more.
const NAMED_MAX: usize = 16;

/// The debt in words.
pub fn owed(drain: &Drain) -> String {
    if !is_owed(drain) {
        let settled = drain.settled || drain.files == 0;
        return if settled { "nothing" } else { "nothing; not yet made safe on disk" }.into();
    }
    let oldest = duration(Duration::from_millis(drain.oldest_ms));
    let mut text = format!("{}, oldest {oldest}", debt(drain));
    if let Some(left) = time_left(drain) {
        let _ = write!(text, ", about {} to go", duration(left));
    }
    text
}

/// What the permanent directory lacks, of those three that it does: `37.8 MiB in 5 files, 2 name
/// operations`.
pub fn debt(drain: &Drain) -> String {
    let files = plural(drain.owed_files, "file", "files");
    let names = plural(drain.owed_names, "name operation", "name operations");
    let files = match (drain.owed_bytes, drain.owed_files) {
        (0, 0) => None,
        (0, _) => Some(files),
        (owed, 0) => Some(bytes(owed)),
        (owed, _) => Some(format!("{} in {files}", bytes(owed))),
    };
    let parts = [files, (drain.owed_names > 0).then_some(names)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
}

/// Whether the permanent directory lacks anything.
pub fn is_owed(drain: &Drain) -> bool {
    [drain.owed_bytes, drain.owed_files, drain.owed_names].iter().any(|owed| *owed > 0)
}

/// Whether all is in the permanent directory, and safe there.
pub fn is_safe(drain: &Drain) -> bool {
    !is_owed(drain) && (drain.settled || drain.files == 0)
}

/// To each sum what others say, who may say anything.
pub fn add_all<const N: usize>(sums: [(&mut u64, u64); N]) {
    sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
}

/// Each was busy beside the others, so that the time of all is that of the busiest.
pub fn add_drain(all: &mut Drain, one: &Drain, host: &str) {
    add_all([
        (&mut all.owed_files, one.owed_files),
        (&mut all.owed_bytes, one.owed_bytes),
        (&mut all.owed_names, one.owed_names),
        (&mut all.files, one.files),
        (&mut all.bytes, one.bytes),
        (&mut all.verified_bytes, one.verified_bytes),
        (&mut all.peak_bytes, one.peak_bytes),
    ]);
    all.oldest_ms = all.oldest_ms.max(one.oldest_ms);
    all.busy_ms = all.busy_ms.max(one.busy_ms);
    all.settled &= one.settled;
    all.failures.extend(one.failures.iter().cloned());
    all.conflicts.extend(one.conflicts.iter().map(|conflict| format!("{host}: {conflict}")));
}

/// How long the debt takes at the rate seen so far; nobody can tell while something fails.
pub fn time_left(drain: &Drain) -> Option<Duration> {
    let goes_on = drain.failures.is_empty();
    let known = goes_on && drain.bytes > 0 && drain.busy_ms > 0 && drain.owed_bytes > 0;
    let left_ms = || drain.owed_bytes as f64 * drain.busy_ms as f64 / drain.bytes as f64;
    known.then(|| Duration::from_millis(left_ms() as u64))
}

/// A failure as the server says it: `results/a: write /data/…: No space left; free some there`.
struct Parts<'a> {
    /// Of what.
    what: &'a str,
    /// Why, and what to do.
    why: String,
}

fn parts(failure: &str) -> Parts<'_> {
    let (said, advice) = failure.split_once("; ").unwrap_or((failure, ""));
    let (before, reason) = said.rsplit_once(": ").unwrap_or(("", said));
    let reason = reason.split(" (os error").next().unwrap_or(reason);
    let what = before.split(": ").next().unwrap_or(before).trim_start_matches('/');
    let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
    Parts { what, why: format!("{reason}{advice}") }
}

/// One line for each cause; the reason stands first, so that a short line keeps it.
pub fn causes(drain: &Drain) -> Vec<String> {
    let mut found: Vec<(String, &str, usize)> = Vec::new();
    for Parts { what, why } in drain.failures.iter().map(|failure| parts(failure)) {
        match found.iter_mut().find(|(known, ..)| *known == why) {
            Some((.., more)) => *more += 1,
            None => found.push((why, what, 0)),
        }
    }
    let cut = drain.failures.len() >= NAMED_MAX;
    let line = |(why, what, more): (String, &str, usize)| {
        let mut line = why;
        if !what.is_empty() {
            let _ = write!(line, " ({what}");
            match more {
                0 => {}
                _ if cut => line.push_str(" and others"),
                _ => drop(write!(line, " and {more} more")),
            }
            line.push(')');
        }
        line
    };
    found.into_iter().map(line).collect()
}

/// The first cause, if there is one.
pub fn first_cause(drain: &Drain) -> Option<String> {
    causes(drain).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::{add_drain, causes, first_cause};
    use terral_client::Drain;

    fn failing(failures: &[&str]) -> Drain {
        let failures = failures.iter().map(|failure| (*failure).to_owned()).collect();
        Drain { failures, ..Drain::default() }
    }

    #[test]
    fn files_that_fail_for_one_cause_take_one_line() {
        let full = "write /d/.terral/1: No space left on device (os error 28); free some there";
        let (a, b) = (format!("/results/a: {full}"), format!("/b: {full}"));
        let denied = "rename /d/x: Permission denied (os error 13)";
        let drain = failing(&[&a, denied, &b]);
        let expected = [
            "No space left on device; free some there (results/a and 1 more)",
            "Permission denied (rename /d/x)",
        ];
        assert_eq!(causes(&drain), expected);
        assert_eq!(first_cause(&drain).as_deref(), Some(expected[0]));
    }

    #[test]
    fn all_is_safe_only_if_all_of_it_is_and_what_failed_is_not_forgotten() {
        let mut all = Drain { settled: true, busy_ms: 7, bytes: 3, ..Drain::default() };
        let safe = Drain { settled: true, busy_ms: 9, bytes: 4, ..Drain::default() };
        add_drain(&mut all, &safe, "h1");
        assert!(all.settled && (all.busy_ms, all.bytes) == (9, 7));
        let (failures, conflicts) = (vec!["/a: full".into()], vec!["b".into()]);
        let owes = Drain { owed_bytes: 5, failures, conflicts, ..Drain::default() };
        add_drain(&mut all, &owes, "h2");
        assert!(!all.settled && all.owed_bytes == 5);
        assert_eq!((&*all.failures[0], &*all.conflicts[0]), ("/a: full", "h2: b"));
    }

    #[test]
    fn a_failure_of_another_form_is_said_as_it_is() {
        assert_eq!(causes(&failing(&["the store is away"])), ["the store is away"]);
        assert!(causes(&failing(&[])).is_empty());
    }
}
