//! Which checkpoints stay, and how those that do not go: out of sight in one step, and then away.
//!
//! Invariant: with a permanent directory, none goes before a newer one is there whole. What is
//! removed here is removed there at once, and what is new arrives later: without the rule a machine
//! that dies has taken both.

use terral_format::wire::peers::Failure;
use terral_format::{Error, ErrorKind, Result};

use super::whole::Whole;
use crate::Kind;
use crate::client::Client;
use crate::objects::{ObjectId, RESERVED, all_containers, clear, set_aside, tidy};

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

/// Whether that is how a checkpoint looks of which something is no more, also as it went with a
/// machine that was removed. What only cannot be had now is none: an older one is not the latest.
pub(super) fn is_incomplete(client: &Client, error: &Error) -> Result<bool> {
    let kinds = [ErrorKind::NotFound, ErrorKind::Malformed, ErrorKind::NotDirectory];
    if error.kind != ErrorKind::Backing {
        return Ok(kinds.contains(&error.kind));
    }
    let members = client.status()?.partition.map_or_else(Vec::new, |partition| partition.members);
    Ok(members.iter().any(|other| *error == Failure::Removed(other.seat.member).error()))
}

/// What is asked of the checkpoint of a step; false if it is not whole.
fn is(
    client: &Client,
    (path, step): (&[u8], u64),
    what: impl Fn(&Whole) -> Result<bool>,
) -> Result<bool> {
    match Whole::open(client, &directory(path, step)).and_then(|whole| what(&whole)) {
        Err(error) if is_incomplete(client, &error)? => Ok(false),
        known => known,
    }
}

/// The newest that the permanent directory has; without one none is safer than another. To be asked
/// before names are made: as long as any is owed, nothing is known to be there.
pub(super) fn newest_safe(client: &Client, path: &[u8]) -> Result<Option<u64>> {
    if client.status()?.backing.is_none() {
        return Ok(Some(u64::MAX));
    }
    for step in steps(client, path)?.into_iter().rev() {
        if is(client, (path, step), Whole::is_in_backing)? {
            return Ok(Some(step));
        }
    }
    Ok(None)
}

fn remove(client: &Client, directory: &[u8], prefix: &str) -> Result<()> {
    let aside = format!("{prefix}gone.{:016x}", ObjectId::random()?.0 as u64);
    let aside = set_aside(client, directory, aside.as_bytes())?;
    clear(client, &aside)
}

/// Removes what is older than the last `keep` that are whole, and than the one that was safe.
pub(super) fn keep_last(
    client: &Client,
    path: &[u8],
    (keep, safe): (usize, Option<u64>),
    prefix: &str,
) -> Result<()> {
    let mut whole = 0;
    for step in steps(client, path)?.into_iter().rev() {
        if whole < keep.max(1) {
            whole += usize::from(is(client, (path, step), |_| Ok(true))?);
        } else if safe.is_some_and(|safe| step < safe) {
            // One that went with a machine is in the way of no other.
            let _ = remove(client, &directory(path, step), prefix);
        }
    }
    Ok(())
}

/// Removes what earlier writers of these checkpoints have left behind. What cannot be removed, as
/// it went with a machine, is in nobody's way: no two attempts have one name.
pub(super) fn clear_leftovers(client: &Client, prefix: &str) -> Result<()> {
    for name in all_containers(client)? {
        if name.starts_with(prefix.as_bytes()) {
            let _ = clear(client, &[RESERVED, &name].join(&b'/'));
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
