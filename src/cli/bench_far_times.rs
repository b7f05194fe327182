//! How long things take over several machines: until a run has begun everywhere, and until what one
//! process has written another one has read.
//!
//! Not here: how much of anything.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench_beside::{Asked, Figure};
use crate::bench_cluster::{Cluster, path};
use crate::bench_crew::{Peer, Run, together};
use crate::bench_far_bytes::Link;
use crate::bench_peer::{Duty, SMALL};
use crate::bench_report::{Bound, Spread};
use crate::remote;

/// A launcher that needs longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// How long the launcher takes to have nothing done on all other machines.
fn launcher_ms(cluster: &Cluster<'_>) -> Result<f64> {
    let begin = Instant::now();
    let mut all = Vec::new();
    for host in cluster.others {
        let mut command = remote::command(host, "true".into())?;
        command.stdin(std::process::Stdio::null());
        all.push((host, command.spawn().with_context(|| format!("{host}: the launcher"))?));
    }
    for (host, child) in &mut all {
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > PATIENCE || cluster.signals.count() > 0 {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{host}: `true` does not end there");
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        ensure!(status.success(), "{host}: `true`: {status}");
    }
    Ok(milliseconds(begin))
}

/// How long it takes from the begin of a run until each machine has opened a file.
fn begun_ms(cluster: &Cluster<'_>) -> Result<f64> {
    let begin = Instant::now();
    let first = |at: usize| vec!["--first".into(), path(&format!("first-{at}")).into()];
    let run = Run::start(&cluster.how(true, None), 1, first, cluster.signals)?;
    let took = milliseconds(begin);
    run.end()?;
    Ok(took)
}

/// The begin of a run.
pub fn start(cluster: &Cluster<'_>) -> Result<Vec<Figure>> {
    let rounds = cluster.rounds(|_| Ok((launcher_ms(cluster)?, begun_ms(cluster)?)))?;
    let own: Vec<f64> = rounds.iter().map(|(launcher, all)| all - 2.0 * launcher).collect();
    let launcher = Spread::of(rounds.iter().map(|(launcher, _)| *launcher));
    let all = Spread::of(rounds.iter().map(|(_, all)| *all));
    let limit = Asked::Value(Bound::Below(150.0));
    Ok(vec![
        Figure::of("start", "start until all have opened a file", "ms", &own).asked(limit).note(
            format!(
                "{:.0} in all, less twice the launcher's {:.0}: servers, then programs",
                all.median, launcher.median
            ),
        ),
    ])
}

fn microseconds(ns: u64, count: u64) -> f64 {
    ns as f64 / 1e3 / count.max(1) as f64
}

/// Small writes and reads of a file that both have open.
pub fn ping(cluster: &Cluster<'_>, run: &Run, plain: &[Peer], how: &str) -> Result<Vec<Figure>> {
    const CASE: &str = "ping";
    const BESIDE: &str = "socket round trip";
    let link = Link::new(run, plain, 0, 1)?;
    let (home, far, count) = (run.on(0), run.on(1), cluster.much.trips);
    let file = path("ping");
    home.does(Duty::Touch(file.clone()))?;
    let rounds = cluster.rounds(|round| {
        let trips = microseconds(link.round_trips(count)?, count);
        let again = format!("{file}-{round}");
        home.does(Duty::Touch(again.clone()))?;
        let pair =
            [(home, Duty::Ping(again.clone(), count)), (far, Duty::Pong(again.clone(), count))];
        let ping = microseconds(together(pair)?[0].ns, count);
        home.does(Duty::Remove(again))?;
        let calls = far.does(Duty::WriteAndRead(file.clone(), count))?;
        Ok((trips, ping, microseconds(calls.ns, count)))
    })?;
    home.does(Duty::Remove(file))?;
    let of = |value: fn(&(f64, f64, f64)) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let (trips, ping, calls) = (of(|all| all.0), of(|all| all.1), of(|all| all.2));
    let kib = SMALL >> 10;
    Ok(vec![
        Figure::of(CASE, format!("{kib} KiB written, seen and answered, {how}"), "µs", &ping)
            .beside(BESIDE, &ping, &trips),
        Figure::of(CASE, format!("{kib} KiB written and read elsewhere, {how}"), "µs", &calls)
            .beside(BESIDE, &calls, &trips)
            .note("two calls, both of the other machine's file"),
    ])
}
