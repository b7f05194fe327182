//! What the doctor says about a program: the verdict first, then the calls by family.
//!
//! Not here: finding out (`coverage`).

use std::fmt::Write;

use crate::coverage::{Coverage, Group};
use crate::units::{count, plural};

/// Exit code: every call on files it can make by name is served.
pub const SERVED: u8 = 0;
/// Some fall through, none can be seen, or it would not start.
pub const FALLS_THROUGH: u8 = 1;

/// Calls that the verdict names; the table has them all.
const NAMED: usize = 6;
const WIDTH: usize = 96;

const LIMITS: &str = "\
Not visible from outside: code that a program writes as it runs (`terral run --catch all`),
libraries that it opens later (a Python program's modules among them) and programs that it starts;
ask for each of these by itself. A call that is served may be refused: docs/semantics.md says which,
and with which errno.
";

/// The exit code.
pub fn code(found: &Coverage) -> u8 {
    let works = found.cannot_be_seen.is_none()
        && found.falls_through.is_empty()
        && found.missing.is_empty()
        && found.raw.iter().all(|raw| raw.caught);
    if works { SERVED } else { FALLS_THROUGH }
}

/// One line.
pub fn verdict(found: &Coverage) -> String {
    let name = found.name();
    if let Some(why) = &found.cannot_be_seen {
        return format!("{name}: nothing can be served: {why}");
    }
    if let Some(missing) = found.missing.first() {
        return format!("{name}: would not start: {} needs {}", missing.by, missing.name);
    }
    let calls: Vec<&str> = names(&found.falls_through);
    if !calls.is_empty() {
        let fall = if calls.len() == 1 { "call falls" } else { "calls fall" };
        let more = if calls.len() > NAMED { ", …" } else { "" };
        let shown = calls[..calls.len().min(NAMED)].join(", ");
        let own = found.falls_through.iter().flat_map(|group| &group.calls);
        let own = own.flat_map(|call| &call.by).any(|by| *by == found.executed_name());
        let place = if own { "" } else { ", none its own" };
        let calls = count(calls.len() as u64);
        return format!("{name}: {calls} {fall} through{place}: {shown}{more}");
    }
    let past: Vec<&str> =
        found.raw.iter().filter(|raw| !raw.caught).map(|raw| &*raw.name).collect();
    if !past.is_empty() {
        let past = past.join(", ");
        return format!(
            "{name}: system calls that are made past the C library fall through: {past}"
        );
    }
    let unseen = names(&found.unseen).join(", ");
    if unseen.is_empty() {
        format!("{name}: everything it can call on files is served")
    } else {
        format!("{name}: everything it can call on files by name is served; not seen: {unseen}")
    }
}

fn names(groups: &[Group]) -> Vec<&str> {
    groups.iter().flat_map(|group| &group.calls).map(|call| &*call.name).collect()
}

/// The verdict and what it rests on.
pub fn text(found: &Coverage) -> String {
    let mut text = format!("{}\n", verdict(found));
    if let Some(program) = &found.run_by {
        let _ = writeln!(
            text,
            "  {} is what runs; the programs it starts are not looked at",
            program.display()
        );
    }
    if found.cannot_be_seen.is_some() {
        text.push_str("  its files under the prefix are not there for it\n");
        return text;
    }
    let libraries = plural(found.libraries.len() as u64, "library", "libraries");
    let _ = writeln!(text, "  looked at {} and {libraries}", found.executed().display());
    for missing in &found.missing {
        let _ = writeln!(text, "  not found: {}, which {} needs", missing.name, missing.by);
    }
    for (head, groups) in
        [("Falls through", &found.falls_through), ("Cannot be seen", &found.unseen)]
    {
        if !groups.is_empty() {
            let _ = writeln!(text, "\n{head}:");
        }
        for group in groups {
            let _ = writeln!(text, "  {}: {}", group.family, group.meaning.unwrap_or_default());
            for call in &group.calls {
                list(&mut text, &format!("    {} in ", call.name), &call.by);
            }
        }
    }
    if !found.raw.is_empty() {
        text.push_str("\nSystem calls by instructions of their own:\n");
    }
    for raw in &found.raw {
        let places = plural(raw.places as u64, "place", "places");
        let caught = if raw.caught { "caught, and served" } else { "cannot be caught" };
        let _ = writeln!(text, "  {}: {places}, {caught}", raw.name);
    }
    if !found.served.is_empty() {
        text.push_str("\nServed:\n");
    }
    for group in &found.served {
        let calls: Vec<String> = group.calls.iter().map(|call| call.name.clone()).collect();
        list(&mut text, &format!("  {}: ", group.family), &calls);
    }
    let _ = write!(text, "\n{LIMITS}");
    text
}

/// Words after a head, broken into lines.
fn list(text: &mut String, head: &str, words: &[String]) {
    let mut line = head.to_owned();
    for (at, word) in words.iter().enumerate() {
        let end = if at + 1 == words.len() { "" } else { ", " };
        if line.chars().count() + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(6);
        }
        let _ = write!(line, "{word}{end}");
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::{code, text, verdict};
    use crate::coverage::{Call, Coverage, Group, Missing, Raw};

    fn group(names: &[&str]) -> Group {
        let call = |name: &&str| Call { name: (*name).to_owned(), by: vec!["libx.so.1".into()] };
        Group { family: "read", meaning: Some("fails"), calls: names.iter().map(call).collect() }
    }

    #[test]
    fn the_verdict_comes_first_and_decides_the_exit_code() {
        let mut found = Coverage { program: "/bin/lmp".into(), ..Coverage::default() };
        found.served.push(group(&["read"]));
        assert_eq!(verdict(&found), "lmp: everything it can call on files is served");
        assert_eq!(code(&found), 0);
        found.unseen.push(group(&["syscall"]));
        assert!(verdict(&found).ends_with("by name is served; not seen: syscall"));
        assert_eq!(code(&found), 0);
        found.falls_through.push(group(&["aio_read", "fts_open"]));
        assert_eq!(verdict(&found), "lmp: 2 calls fall through, none its own: aio_read, fts_open");
        found.falls_through[0].calls[0].by.push("lmp".into());
        assert_eq!(verdict(&found), "lmp: 2 calls fall through: aio_read, fts_open");
        assert_eq!(code(&found), 1);
        let mut by_itself = Coverage { program: "/bin/ruff".into(), ..Coverage::default() };
        by_itself.raw.push(Raw { name: "ruff".into(), places: 2, caught: true });
        assert_eq!(code(&by_itself), 0);
        assert!(text(&by_itself).contains("\n  ruff: 2 places, caught"));
        by_itself.raw[0].caught = false;
        assert_eq!(code(&by_itself), 1);
        assert!(verdict(&by_itself).ends_with("fall through: ruff"));
        let whole = text(&found);
        assert!(
            whole.contains("\nFalls through:\n  read: fails\n    aio_read in libx.so.1, lmp\n")
        );
        assert!(whole.lines().all(|line| line.chars().count() <= 100), "{whole}");
        let by = "lmp".to_owned();
        found.missing.push(Missing { name: "liby.so".into(), by });
        assert_eq!(verdict(&found), "lmp: would not start: lmp needs liby.so");
        assert_eq!(code(&found), 1);
        found.cannot_be_seen = Some("static".into());
        assert_eq!(verdict(&found), "lmp: nothing can be served: static");
        assert_eq!(code(&found), 1);
    }
}
