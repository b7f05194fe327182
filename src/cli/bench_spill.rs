//! A program that writes twice as much as fits in memory, to a permanent directory that takes 20
//! MB/s, with a disk to spill to: beside what `dd` writes to that disk past the page cache.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_slow::Slow;
use crate::bench_worker::{Work, now_ns};

/// What the permanent directory takes a second, as `bindfs` has it.
const SLOW: &str = "--write-rate=20000000";
/// GB/s of `dd`, past the page cache, in pieces as large as a chunk.
fn disk(host: &Host, bytes: u64) -> Result<f64> {
    let path = host.disk.join(format!("dd-{}", now_ns()));
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=2M", "oflag=direct", "status=none"]);
    dd.arg(format!("of={}", path.display())).arg(format!("count={}", bytes >> 21));
    let begin = Instant::now();
    let done = dd.status().context("dd")?;
    let took = begin.elapsed();
    std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    ensure!(done.success(), "dd: {done}");
    Ok(bytes as f64 / 1e9 / took.as_secs_f64())
}

/// GB/s of a program, and bytes that the permanent directory took meanwhile.
fn program(host: &Host, bytes: u64) -> Result<(f64, u64)> {
    let slow = Slow::mount(host, &[SLOW])?;
    host.touch(bytes / 2)?;
    let target = Some(slow.at.clone());
    let bed = Bed::with_memory(host, target, bytes / 2, Some(host.disk.clone()))?;
    let mut team = Team::start(host, Face::Preload, Some(&bed), 1)?;
    let took = team.alone(&writing(Work::New, bytes), "spilled")?;
    let status = bed.client.status()?;
    ensure!(status.spilled_bytes > 0, "nothing was spilled");
    Ok((bytes as f64 / took.wall_ns.max(1) as f64, status.drain.bytes))
}

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bytes = 2 * effort.drain_bytes;
    let (mut own, mut other, mut drained) = (Vec::new(), Vec::new(), 0);
    for _ in 0..effort.rounds {
        other.push(disk(host, bytes)?);
        let (rate, meanwhile) = program(host, bytes)?;
        own.push(rate);
        drained = drained.max(meanwhile);
    }
    let ratio = Spread::of(own.iter().zip(&other).map(|(own, other)| own / other));
    let (own, other) = (Spread::of(own.into_iter()), Spread::of(other.into_iter()));
    let name = "written with --spill, twice --memory, beside the disk";
    let note = format!(
        "{:.2} ({:.2}–{:.2}) against {:.2} ({:.2}–{:.2}) GB/s of dd with O_DIRECT; {} MiB, of \
         which DIR, at 20 MB/s, took {} MiB at most meanwhile",
        own.median,
        own.min,
        own.max,
        other.median,
        other.min,
        other.max,
        bytes >> 20,
        drained >> 20
    );
    Ok(vec![Fact::new(name, ratio.median, "×", Some(Bound::AtLeast(0.8))).note(note)])
}
