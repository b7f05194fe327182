//! What others feel of a permanent directory in which each call takes a second, while the drain is
//! at it: the 99.9th percentile of creates, writes and stats that need nothing of it, beside the
//! same while it answers at once.

use anyhow::{Context, Result, ensure};

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_slow::Slow;
use crate::bench_worker::{Pass, Work};

/// What is timed, in the order of [`crate::bench_worker::Done::late_ns`].
const CALLS: [&str; 3] = ["create", "4 KiB write", "stat"];
/// What the stalled one may take longer.
const MOST: f64 = 3.0;
/// Bytes of a write.
const BYTES: u64 = 4096;

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let slow = Slow::mount(host, &[])?;
    let bed = Bed::start(host, Some(slow.at.clone()))?;
    // In one that DIR had from the first it would be asked for each name.
    bed.client.make_directory(b"calls", 0o755)?;
    let mut team = Team::start(host, Face::Preload, Some(&bed), 1)?;
    let pass = Pass { count: 20 * effort.names, ..writing(Work::Calls, BYTES) };
    let mut round = |name: String| -> Result<[u64; 3]> {
        // The drain does not wait until there is nothing more to come.
        bed.client.flush()?;
        Ok(team.alone(&pass, &format!("calls/{name}"))?.late_ns)
    };
    round("first".into())?;
    let (mut prompt, mut stalled) = (Vec::new(), Vec::new());
    for at in 0..effort.rounds {
        prompt.push(round(format!("prompt{at}"))?);
        stalled.push(slow.stalling(|| round(format!("stalled{at}"))).context("DIR stalls")?);
    }
    let drain = bed.client.status()?.drain;
    ensure!(drain.owed_files > 0 || drain.files > 0, "nothing was brought");
    let facts = CALLS.iter().enumerate().map(|(kind, call)| {
        let of = |rounds: &[[u64; 3]]| Spread::of(rounds.iter().map(|one| one[kind] as f64 / 1e3));
        let (before, beside) = (of(&prompt), of(&stalled));
        let name = format!("{call}, 99.9th percentile, while DIR takes 1 s a call");
        let note = format!(
            "{:.0} ({:.0}–{:.0}) against {:.0} ({:.0}–{:.0}) µs while it answers, of {} calls",
            beside.median,
            beside.min,
            beside.max,
            before.median,
            before.min,
            before.max,
            pass.count
        );
        let ratio = beside.median / before.median;
        Fact::new(&name, ratio, "× the time", Some(Bound::AtMost(MOST))).note(note)
    });
    Ok(facts.collect())
}
