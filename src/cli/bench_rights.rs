//! How long a revocation takes until nobody does any more what was revoked, with a thousand
//! sessions that go by it, beside one such session.
//!
//! Invariant: each of them has read by the capability before, and is refused once the revocation is
//! answered, or the measurement fails. That is tried after the time is taken, as a thousand
//! programs on a few cores would be measured otherwise.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use terral_client::{Client, OpenHow, Revocation, access};

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Work};

/// Processes, and the sessions of each: no process may have more than 32.
const MANY: (u64, u64) = (40, 25);
/// What they read.
const FILE: &str = "revoked";

/// Milliseconds until a revocation is answered, with so many sessions that go by it.
fn revoked(host: &Host, bed: &Bed, (processes, each): (u64, u64)) -> Result<f64> {
    let observer = Client::observe(&bed.instance)?;
    let capability = observer.capability()?;
    let path = host.aside("revoked.cap");
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    let shown = || path.display().to_string();
    let text = capability.text()?;
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(shown)?;
    // Without sessions of their own.
    let mut team = Team::start(host, Face::Tmpfs, None, processes)?;
    let pass = |work| Pass { count: each, ..writing(work, 0) };
    let name = format!("{}:{}:{FILE}", bed.instance.display(), path.display());
    team.pass(&pass(Work::Hold), |_| name.clone())?;
    let begin = std::time::Instant::now();
    observer.revoke(Revocation::Serial(capability.grant.serial))?;
    let took = begin.elapsed();
    team.pass(&pass(Work::Refused), |_| name.clone())?;
    Ok(took.as_secs_f64() * 1e3)
}

/// See the module.
pub fn revoke(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let how = OpenHow { access: access::WRITE as u8, create: true, ..OpenHow::default() };
    let file = bed.client.open(FILE.as_bytes(), how)?;
    file.write(b"read by many")?;
    file.close();
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..=effort.rounds {
        times[0].push(revoked(host, &bed, MANY)?);
        times[1].push(revoked(host, &bed, (1, 1))?);
    }
    let [many, one] = times.map(|times| Spread::of(times.into_iter().skip(1)));
    let name = "revoked with 1,000 sessions, until the last is refused";
    let fact = Fact::new(name, many.median, "ms", Some(Bound::Below(5.0)));
    let note = format!(
        "{:.2}–{:.2}; with one session {:.2} ({:.2}–{:.2})",
        many.min, many.max, one.median, one.min, one.max
    );
    Ok(vec![fact.note(note)])
}
