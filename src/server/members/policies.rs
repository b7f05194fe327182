//! What holds for files by their paths. The control keeps it, and all members go by what it says.
//!
//! Not here: what it means for a file (`far/committing`).

use glob::{MatchOptions, Pattern};
use terral_format::ids::Ino;
use terral_format::wire::roster::{Consistency, PATTERN_MAX, POLICIES_MAX, Policy};
use terral_format::{Error, ErrorKind, Result};

use super::control;
use crate::core::state::State;

const HOW: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Files whose paths a pattern matches are written so by who opens them from now on; `None`:
/// nothing is said of them any more.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, or that is no pattern,
/// [`ErrorKind::NotFound`] if nothing was said of it, [`ErrorKind::TooMany`].
pub fn set(state: &mut State, pattern: &str, consistency: Option<Consistency>) -> Result<()> {
    let mut roster = control::own_roster(state)?;
    let before = roster.policies.len();
    roster.policies.retain(|policy| policy.pattern != pattern);
    if let Some(consistency) = consistency {
        check(pattern)?;
        if roster.policies.len() >= POLICIES_MAX {
            let context = format!("policies, more than {POLICIES_MAX}");
            return Err(Error::new(ErrorKind::TooMany, context));
        }
        roster.policies.push(Policy { pattern: pattern.to_owned(), consistency });
    } else if roster.policies.len() == before {
        let context = format!("{pattern}: no such policy");
        return Err(Error::new(ErrorKind::NotFound, context));
    }
    roster.version += 1;
    control::seat(state, roster);
    Ok(())
}

/// Refuses what is no pattern.
///
/// # Errors
/// [`ErrorKind::Invalid`], with the reason.
pub(super) fn check(pattern: &str) -> Result<()> {
    let invalid = |why: &str| Error::new(ErrorKind::Invalid, format!("{pattern}: {why}"));
    if pattern.is_empty() || pattern.starts_with('/') {
        return Err(invalid("patterns are relative to the root, and not empty"));
    }
    if pattern.len() > PATTERN_MAX {
        return Err(invalid("too long"));
    }
    Pattern::new(pattern).map(drop).map_err(|error| invalid(error.msg))
}

/// Whether a pattern that was checked matches a path.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(path, HOW))
}

/// When others see what is written to a file, which was named so.
pub fn of(state: &State, ino: Ino, named: &[u8]) -> Consistency {
    let policies = state.members.iter().flat_map(|members| &members.roster().policies);
    let mut policies = policies.rev().peekable();
    if policies.peek().is_none() {
        return Consistency::Strict;
    }
    let path = state.names.path(ino).unwrap_or_else(|| named.to_vec());
    let path = String::from_utf8_lossy(&path);
    let matches = |policy: &&Policy| matches(&policy.pattern, &path);
    policies.find(matches).map(|policy| policy.consistency).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{HOW, Pattern, check};

    #[test]
    fn a_star_ends_at_a_slash_and_two_do_not() {
        let matches = |pattern: &str, path: &str| {
            Pattern::new(pattern).expect("a pattern").matches_with(path, HOW)
        };
        assert!(matches("out/*.dat", "out/a.dat") && !matches("out/*.dat", "out/b/a.dat"));
        assert!(matches("out/**/*.dat", "out/b/c/a.dat") && matches("**/a", "a"));
        assert!(!matches("Out/*", "out/a") && matches("*", ".a") && !matches("*", "a/b"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        for (pattern, why) in [("", "empty"), ("/a", "relative"), ("a***", "wildcards"), ("[", "[")]
        {
            let error = check(pattern).expect_err("it is none").to_string();
            assert!(error.contains(why), "{pattern}: {error}");
        }
        assert!(check("a/**/*.h5").is_ok());
    }
}
