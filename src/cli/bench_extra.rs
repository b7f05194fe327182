//! What is not a rate beside tmpfs: plain copies, the drain, an idle server, the start of a job.
//!
//! Invariant: the drain and `cp` get the same bytes and the same directory, in turn, each beginning
//! with nothing left to write there, and with memory for both copies that the machine has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use terral_client::Drain;

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{CHECKPOINTS, Pass, Work, now_ns};

const IDLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(180);
/// What a server may take beside a file and its copy.
const AHEAD_BYTES: u64 = 512 << 20;
const TICKS_NOTE: &str = "utime + stime of /proc/PID/stat, 10 ms each";

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What a copy costs without any file system.
pub fn memcpy(_: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let mut target = vec![1u8; 256 << 20];
    let mut facts = Vec::new();
    for (length, name) in [(4 << 10, "4k"), (64 << 10, "64k"), (1 << 20, "1m"), (4 << 20, "4m")] {
        let source = vec![2u8; length];
        let rates: Vec<f64> = (0..effort.rounds + 1)
            .map(|_| {
                let begin = now_ns();
                target.chunks_exact_mut(length).for_each(|piece| piece.copy_from_slice(&source));
                target.len() as f64 / now_ns().saturating_sub(begin).max(1) as f64
            })
            .collect();
        let rate = Spread::of(rates.into_iter().skip(1));
        let name = format!("memcpy, {name}");
        facts.push(Fact::new(&name, rate.median, "GB/s", None).note(format!(
            "{:.1}–{:.1}; into 256 MiB that exist, 4 KiB pages",
            rate.min, rate.max
        )));
    }
    std::hint::black_box(&target);
    Ok(facts)
}

// Drain.

/// A directory of its own on the disk, removed afterwards.
struct Place(PathBuf);

impl Place {
    fn new(host: &Host) -> Result<Self> {
        let path = host.disk.join(format!("drain-{}", now_ns()));
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(program: &str, arguments: &[&Path]) -> Result<()> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).status();
    let done = done.with_context(|| program.to_owned())?;
    ensure!(done.success(), "{program} {arguments:?}: {done}");
    Ok(())
}

fn sync(directory: &Path) -> Result<()> {
    command("sync", &[Path::new("-f"), directory])
}

/// Seconds until everything was copied, and until the disk said that it has it.
#[derive(Clone, Copy)]
struct Paid {
    copied_s: f64,
    safe_s: f64,
}

fn copy_with_cp(host: &Host, bytes: u64) -> Result<Paid> {
    let place = Place::new(host)?;
    host.touch(2 * bytes + AHEAD_BYTES)?;
    let mut team = Team::start(host, Face::Tmpfs, None, 1)?;
    team.alone(&writing(Work::New, bytes), "drained")?;
    let source = host.tmpfs().join("drained");
    sync(&place.0)?;
    let begin = Instant::now();
    command("cp", &[&source, &place.0])?;
    let copied_s = begin.elapsed().as_secs_f64();
    sync(&place.0)?;
    let safe_s = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&source).with_context(|| source.display().to_string())?;
    Ok(Paid { copied_s, safe_s })
}

/// Waits until the drain has copied; gives when that was, `CLOCK_MONOTONIC`, and how it is.
fn wait_for(bed: &Bed, ready: impl Fn(&Drain) -> bool) -> Result<(u64, Drain)> {
    let begin = Instant::now();
    loop {
        let drain = bed.client.status()?.drain;
        if let Some(failure) = drain.failures.first() {
            bail!("drain: {failure}");
        }
        if ready(&drain) {
            return Ok((now_ns(), drain));
        }
        ensure!(begin.elapsed() < PATIENCE, "the drain stands still: {drain:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `asked`: as at the end of a job, somebody waits for the drain.
fn copy_with_drain(host: &Host, bytes: u64, asked: bool) -> Result<(Paid, f64)> {
    let place = Place::new(host)?;
    host.touch(2 * bytes + AHEAD_BYTES)?;
    let bed = Bed::start(host, Some(place.0.clone()))?;
    let mut team = Team::start(host, Face::Client, Some(&bed), 1)?;
    sync(&place.0)?;
    let took = team.alone(&writing(Work::New, bytes), "drained")?;
    if asked {
        bed.client.finish()?;
    }
    let whole = |drain: &Drain| drain.bytes >= bytes && drain.owed_files == 0;
    let (copied, _) = wait_for(&bed, whole)?;
    if !asked {
        bed.client.finish()?;
    }
    let (safe, drain) = wait_for(&bed, |drain| drain.settled)?;
    let found = std::fs::metadata(place.0.join("drained")).context("what was drained")?;
    ensure!(found.len() == bytes, "drained file has {} bytes", found.len());
    let since = |at: u64| seconds(at.saturating_sub(took.end_ns));
    let busy = drain.bytes as f64 / (drain.busy_ms.max(1) as f64 / 1e3);
    Ok((Paid { copied_s: since(copied), safe_s: since(safe) }, busy))
}

/// Bringing files to the disk, beside `cp`.
pub fn drain(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bytes = effort.drain_bytes;
    let (mut cp, mut own) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        if round.is_multiple_of(2) {
            cp.push(copy_with_cp(host, bytes)?);
            own.push(copy_with_drain(host, bytes, true)?);
        } else {
            own.push(copy_with_drain(host, bytes, true)?);
            cp.push(copy_with_cp(host, bytes)?);
        }
    }
    let (unasked, _) = copy_with_drain(host, effort.checkpoint_bytes, false)?;
    let gb = bytes as f64 / 1e9;
    let of_cp = |of: fn(&Paid) -> f64| Spread::of(cp.iter().map(|paid| gb / of(paid)));
    let of_own = |of: fn(&Paid) -> f64| Spread::of(own.iter().map(|(paid, _)| gb / of(paid)));
    let ratio = |of: fn(&Paid) -> f64| {
        Spread::of(own.iter().zip(&cp).map(|((own, _), cp)| of(cp) / of(own)))
    };
    let (safe, copied) = (ratio(|paid| paid.safe_s), ratio(|paid| paid.copied_s));
    let busy = Spread::of(own.iter().map(|(_, busy)| busy / 1e9));
    let note = |own: Spread, cp: Spread, what: &str| {
        format!(
            "{what}: {:.2} ({:.2}–{:.2}) against {:.2} ({:.2}–{:.2}) GB/s",
            own.median, own.min, own.max, cp.median, cp.min, cp.max
        )
    };
    let (own_safe, cp_safe) = (of_own(|paid| paid.safe_s), of_cp(|paid| paid.safe_s));
    let (own_copied, cp_copied) = (of_own(|paid| paid.copied_s), of_cp(|paid| paid.copied_s));
    Ok(vec![
        Fact::new("drain beside cp + sync", safe.median, "×", Some(Bound::AtLeast(0.8)))
            .note(note(own_safe, cp_safe, "close to settled, as a job ends")),
        Fact::new("drain beside cp, no sync", copied.median, "×", None).note(note(
            own_copied,
            cp_copied,
            "close to published",
        )),
        Fact::new("drain while busy", busy.median, "GB/s", None)
            .note("bytes over the time it was copying, verification included"),
        Fact::new("close to published, nobody waiting", unasked.copied_s, "s", None)
            .note(format!("{} MiB", effort.checkpoint_bytes >> 20)),
    ])
}

/// Seconds a program takes that writes checkpoints and computes.
fn program(host: &Host, effort: &Effort, steps: u64, target: Option<PathBuf>) -> Result<f64> {
    host.touch(CHECKPOINTS * effort.checkpoint_bytes)?;
    let bed = Bed::start(host, target)?;
    let mut team = Team::start(host, Face::Client, Some(&bed), 1)?;
    let pass = Pass { count: steps, ..writing(Work::Checkpoints, effort.checkpoint_bytes) };
    Ok(seconds(team.alone(&pass, "checkpoint")?.wall_ns))
}

/// A program that computes while its files are brought.
pub fn slowdown(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let mut team = Team::start(host, Face::Tmpfs, None, 1)?;
    let probe = Pass { count: 200_000_000, ..writing(Work::Compute, 0) };
    team.alone(&probe, "")?;
    let took = seconds(team.alone(&probe, "")?.wall_ns);
    let steps = (probe.count as f64 * effort.compute_s / took) as u64;
    let mut slower = Vec::new();
    let mut walls = Vec::new();
    for round in 0..effort.rounds.div_ceil(2) {
        let place = Place::new(host)?;
        sync(&place.0)?;
        let mut with = 0.0;
        let mut without = 0.0;
        for turn in 0..2 {
            if (round + turn).is_multiple_of(2) {
                without = program(host, effort, steps, None)?;
            } else {
                with = program(host, effort, steps, Some(place.0.clone()))?;
            }
        }
        slower.push((with / without - 1.0) * 100.0);
        walls.push(format!("{with:.2} against {without:.2} s"));
    }
    let slower = Spread::of(slower.into_iter());
    let name = format!("slow-down by the drain, {CHECKPOINTS} checkpoints");
    Ok(vec![Fact::new(&name, slower.median, "%", Some(Bound::Below(10.0))).note(format!(
        "{} MiB, then {} s of computing: {}",
        effort.checkpoint_bytes >> 20,
        effort.compute_s,
        walls.join(", ")
    ))])
}

// Rest.

/// `utime + stime` in clock ticks.
fn ticks(bed: &Bed) -> Result<u64> {
    let text = bed.about("stat")?;
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let mut fields = after.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let mut next = || fields.next().context("/proc/PID/stat")?.context("/proc/PID/stat");
    Ok(next()? + next()?)
}

/// A server that nobody asks.
pub fn idle(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut team = Team::start(host, Face::Client, Some(&bed), 1)?;
    team.alone(&writing(Work::New, effort.checkpoint_bytes), "idle")?;
    bed.settle()?;
    std::thread::sleep(Duration::from_secs(1));
    let before = ticks(&bed)?;
    std::thread::sleep(IDLE);
    let spent = ticks(&bed)? - before;
    let resident = bed.status_bytes("RssAnon")? + bed.status_bytes("RssFile")?;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let tables = bed.tables_bytes()?;
    Ok(vec![
        Fact::new("idle server, 10 s", spent as f64, "ticks", Some(Bound::AtMost(0.0)))
            .note(TICKS_NOTE),
        Fact::new(
            "server beside its arena",
            mib(resident + tables),
            "MiB",
            Some(Bound::Below(20.0)),
        )
        .note(format!(
            "RssAnon + RssFile {:.1} MiB, tables, headers, page states and log {:.1} MiB",
            mib(resident),
            mib(tables)
        )),
    ])
}

/// The shortest job.
pub fn start(host: &Host, _: &Effort) -> Result<Vec<Fact>> {
    let program = std::env::current_exe().context("terral: own path")?;
    let mut walls = Vec::new();
    for _ in 0..9 {
        let place = Place::new(host)?;
        let mut run = Command::new(&program);
        run.arg("run").arg("--to").arg(&place.0).args(["--", "true"]);
        run.env("TERRAL_PRELOAD", &host.library).env_remove("TERRAL_INSTANCE");
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begin = Instant::now();
        let status = run.status().context("terral run")?;
        walls.push(begin.elapsed().as_secs_f64() * 1e3);
        ensure!(status.success(), "terral run -- true: {status}");
    }
    let wall = Spread::of(walls.into_iter());
    Ok(vec![
        Fact::new("terral run --to DIR -- true", wall.median, "ms", Some(Bound::Below(50.0)))
            .note(format!("{:.1}–{:.1}, 9 times", wall.min, wall.max)),
    ])
}
