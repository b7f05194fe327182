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
    drain.owed_bytes + drain.owed_files + drain.owed_names > 0
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
    use super::{causes, first_cause};
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
    fn a_failure_of_another_form_is_said_as_it_is() {
        assert_eq!(causes(&failing(&["the store is away"])), ["the store is away"]);
        assert!(causes(&failing(&[])).is_empty());
    }
}
