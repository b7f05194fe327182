//! Which checkpoints stay, and how those that do not go: out of sight in one step, and then away.
//!
//! Invariant: with a permanent directory, none goes before a newer one is there whole. What is
//! removed here is removed there at once, and what is new arrives later: without the rule a machine
//! that dies has taken both.

use terral_format::{ErrorKind, Result};

use super::whole::Whole;
use crate::Kind;
use crate::client::Client;
use crate::objects::{ObjectId, all_containers, clear, set_aside, tidy};

/// What the directory of a step is called.
const STEP: &str = "step-";

/// The name of a step's directory.
pub(super) fn name_of(step: u64) -> String {
    format!("{STEP}{step:012}")
}

fn step_of(name: &[u8]) -> Option<u64> {
    let step = std::str::from_utf8(name).ok()?.strip_prefix(STEP)?.parse().ok()?;
    (name_of(step).as_bytes() == name).then_some(step)
}

/// Steps that have a directory here, the oldest first.
pub(super) fn steps(client: &Client, path: &[u8]) -> Result<Vec<u64>> {
    let names = client.list(path)?;
    let directories = names.iter().filter(|name| name.kind == Kind::Directory);
    let mut steps: Vec<u64> = directories.filter_map(|name| step_of(&name.name)).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// The directory of a step.
pub(super) fn directory(path: &[u8], step: u64) -> Vec<u8> {
    [path, name_of(step).as_bytes()].join(&b'/')
}

/// Whether that is how a checkpoint looks that is not whole.
pub(super) fn is_incomplete(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Malformed | ErrorKind::NotDirectory)
}

fn is_safe(client: &Client, path: &[u8], step: u64) -> Result<bool> {
    match Whole::open(client, &directory(path, step)).and_then(|whole| whole.is_in_backing()) {
        Err(error) if is_incomplete(error.kind) => Ok(false),
        known => known,
    }
}

/// Removes all but the last `keep`. What is not safe to be removed yet stays until the next time.
pub(super) fn keep_last(client: &Client, path: &[u8], keep: usize, prefix: &str) -> Result<()> {
    let steps = steps(client, path)?;
    let (old, kept) = steps.split_at(steps.len().saturating_sub(keep.max(1)));
    if old.is_empty() {
        return Ok(());
    }
    if client.status()?.backing.is_some() {
        let mut safe = false;
        for step in kept {
            safe = safe || is_safe(client, path, *step)?;
        }
        if !safe {
            return Ok(());
        }
    }
    for step in old {
        let aside = format!("{prefix}gone.{:016x}", ObjectId::random()?.0 as u64);
        match set_aside(client, &directory(path, *step), aside.as_bytes()) {
            Ok(aside) => clear(client, &aside)?,
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes what earlier writers of these checkpoints have left behind.
pub(super) fn clear_leftovers(client: &Client, prefix: &str) -> Result<()> {
    for name in all_containers(client)? {
        if name.starts_with(prefix.as_bytes()) {
            clear(client, &[crate::objects::RESERVED, &name].join(&b'/'))?;
        }
    }
    tidy(client);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{name_of, step_of};

    #[test]
    fn directories_of_steps_sort_by_step_and_others_are_none() {
        assert_eq!(name_of(7), "step-000000000007");
        assert!(name_of(9) < name_of(10));
        for step in [0, 7, u64::MAX] {
            assert_eq!(step_of(name_of(step).as_bytes()), Some(step));
        }
        for wrong in [&b"step-7"[..], b"step-", b"step-00000000000x", b"latest", b"\xff"] {
            assert_eq!(step_of(wrong), None, "{wrong:?}");
        }
    }
}
