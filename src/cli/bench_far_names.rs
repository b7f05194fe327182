//! Names over several machines: created in one directory, used below directories of others, and at
//! rest.
//!
//! Invariant: what a round has made is removed before the next one. Not here: bytes.

use anyhow::Result;

use crate::bench_beside::{Asked, Figure};
use crate::bench_cluster::{Alone, CALM, Cluster, directory, path, per_second};
use crate::bench_crew::{Peer, Run, together};
use crate::bench_peer::{Did, Duty};
use crate::bench_report::{Bound, Spread};

/// Frames for each of many calls where all of them need one question or two.
const ONCE: f64 = 0.01;

fn of<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
    rounds.iter().map(value).collect()
}

/// A round of [`creates`].
struct Creates {
    all: f64,
    slowest: f64,
    alone: f64,
    frames: f64,
    longest_ms: f64,
}

fn creates_of((run, alone): (&Run, &Alone), cluster: &Cluster<'_>, round: u64) -> Result<Creates> {
    let count = cluster.much.names;
    let names = |at: usize| cluster.names(&format!("together/{round}-{at}"));
    let all = || run.firsts().enumerate();
    let (did, meanwhile) =
        run.meanwhile(|| together(all().map(|(at, peer)| (peer, Duty::CreateMany(names(at))))))?;
    together(all().map(|(at, peer)| (peer, Duty::RemoveMany(names(at)))))?;
    // Who makes the directory is asked; the others ask.
    let asking: Vec<&Did> = did.iter().skip(1).collect();
    let slowest = asking.iter().map(|did| did.ns).max().unwrap_or(0);
    let kept = cluster.names(&format!("kept/{round}"));
    let its = alone.peer.does(Duty::CreateMany(kept.clone()))?;
    alone.peer.does(Duty::RemoveMany(kept))?;
    let longest = did.iter().map(|did| did.ns).max().unwrap_or(0);
    let call = did.iter().map(|did| did.longest_ns).max().unwrap_or(0);
    Ok(Creates {
        all: per_second(count * did.len() as u64, longest),
        slowest: per_second(count, slowest),
        alone: per_second(count, its.ns),
        frames: meanwhile.operations as f64 / (count * asking.len() as u64) as f64,
        longest_ms: call as f64 / 1e6,
    })
}

/// All machines create files in one directory at once; beside one process on a server that is
/// alone, in a directory that the permanent one had before, where nothing is deferred.
pub fn creates(cluster: &Cluster<'_>, run: &Run, with: &str) -> Result<Vec<Figure>> {
    const CASE: &str = "creates";
    const ALONE: &str = "alone, nothing deferred";
    let to = cluster.host.disk.join(format!("creates{}", with.len()));
    std::fs::create_dir_all(to.join("kept"))?;
    let alone = cluster.alone(Some(to))?;
    directory(run.on(0), "together")?;
    let rounds = cluster.rounds(|round| creates_of((run, &alone), cluster, round))?;
    let own = |value: fn(&Creates) -> f64| of(&rounds, value);
    let (all, slowest, its) =
        (own(|round| round.all), own(|round| round.slowest), own(|round| round.alone));
    let least = Asked::Ratio(Bound::AtLeast(0.3));
    let named = |what: &str| format!("creates in one directory, {what}{with}");
    let longest = Spread::of(rounds.iter().map(|round| round.longest_ms));
    Ok(vec![
        Figure::of(CASE, named("all machines"), "a second", &all)
            .beside(ALONE, &all, &its)
            .asked(least)
            .note(format!("longest call {:.1} ms (to {:.1})", longest.median, longest.max)),
        Figure::of(CASE, named("the slowest that asks"), "a second", &slowest)
            .beside(ALONE, &slowest, &its)
            .asked(least),
        Figure::of(CASE, named("frames for each that asks"), "frames", &own(|round| round.frames))
            .asked(Asked::Value(Bound::AtMost(2.0))),
    ])
}

/// What some calls have cost.
#[derive(Clone, Copy)]
struct Calls {
    rate: f64,
    frames: f64,
}

fn calls(run: &Run, peer: &Peer, count: u64, duty: Duty) -> Result<Calls> {
    let (did, meanwhile) = run.meanwhile(|| peer.does(duty))?;
    let frames = meanwhile.operations as f64 / count as f64;
    Ok(Calls { rate: per_second(count, did.ns), frames })
}

/// A round of [`below_others`]: local, then below another one's directory; stat and open.
struct Below {
    local: [Calls; 2],
    below: [Calls; 2],
}

fn below_of(run: &Run, cluster: &Cluster<'_>, round: u64) -> Result<Below> {
    let (peer, other) = (run.on(1), run.on(0));
    let (top, own) = (format!("top-{round}"), format!("top-{round}/own"));
    directory(peer, &top)?;
    directory(peer, &own)?;
    let names = cluster.names(&format!("{own}/f"));
    peer.does(Duty::CreateMany(names.clone()))?;
    let both = || -> Result<[Calls; 2]> {
        let count = names.count;
        Ok([
            calls(run, peer, count, Duty::StatMany(names.clone()))?,
            calls(run, peer, count, Duty::OpenMany(names.clone()))?,
        ])
    };
    let local = both()?;
    std::thread::sleep(CALM);
    let change = path(&format!("{top}/change"));
    other.does(Duty::Touch(change.clone()))?;
    std::thread::sleep(CALM);
    let below = both()?;
    peer.does(Duty::RemoveMany(names.clone()))?;
    other.does(Duty::Remove(change))?;
    peer.does(Duty::RemoveDirectory(path(&own)))?;
    peer.does(Duty::RemoveDirectory(path(&top)))?;
    Ok(Below { local, below })
}

/// A machine's own files, below a directory that another one was the last to change; beside the
/// same before that.
pub fn below_others(cluster: &Cluster<'_>, run: &Run, with: &str) -> Result<Vec<Figure>> {
    const CASE: &str = "own-paths";
    let rounds = cluster.rounds(|round| below_of(run, cluster, round))?;
    let mut figures = Vec::new();
    for (at, what) in [(0, "stat"), (1, "open + close")] {
        let below = of(&rounds, |round| round.below[at].rate);
        let local = of(&rounds, |round| round.local[at].rate);
        let frames = of(&rounds, |round| round.below[at].frames);
        let name = format!("{what} of own files below another's directory{with}");
        figures.push(Figure::of(CASE, &name, "a second", &below).beside(
            "before it was",
            &below,
            &local,
        ));
        figures.push(
            Figure::of(CASE, format!("{name}, frames each"), "frames", &frames)
                .asked(Asked::Value(Bound::AtMost(ONCE))),
        );
    }
    Ok(figures)
}

/// A round of [`at_rest`].
struct Rest {
    first: Calls,
    second: Calls,
    local: f64,
}

fn rest_of((run, alone): (&Run, &Alone), cluster: &Cluster<'_>, round: u64) -> Result<Rest> {
    let (home, here) = (run.on(1), run.on(0));
    let name = format!("rests-{round}");
    let names = cluster.names(&format!("{name}/f"));
    directory(home, &name)?;
    home.does(Duty::CreateMany(names.clone()))?;
    directory(&alone.peer, &name)?;
    alone.peer.does(Duty::CreateMany(names.clone()))?;
    std::thread::sleep(CALM);
    let stat = || calls(run, here, names.count, Duty::StatMany(names.clone()));
    let (first, second) = (stat()?, stat()?);
    let local = alone.peer.does(Duty::StatMany(names.clone()))?;
    for peer in [home, &alone.peer] {
        peer.does(Duty::RemoveMany(names.clone()))?;
        peer.does(Duty::RemoveDirectory(path(&name)))?;
    }
    Ok(Rest { first, second, local: per_second(names.count, local.ns) })
}

/// Names at rest that another machine has made; beside as many of a machine that is alone.
pub fn at_rest(cluster: &Cluster<'_>, run: &Run, with: &str) -> Result<Vec<Figure>> {
    const CASE: &str = "names-at-rest";
    const LOCAL: &str = "alone";
    let alone = cluster.alone(None)?;
    let rounds = cluster.rounds(|round| rest_of((run, &alone), cluster, round))?;
    let local = of(&rounds, |round| round.local);
    let (first, second) =
        (of(&rounds, |round| round.first.rate), of(&rounds, |round| round.second.rate));
    let frames = |value: fn(&Rest) -> f64| Spread::of(rounds.iter().map(value)).median;
    let named = |what: &str| format!("stat of another's names, {what}{with}");
    Ok(vec![
        Figure::of(CASE, named("first time"), "a second", &first)
            .beside(LOCAL, &first, &local)
            .note(format!("{:.3} frames each", frames(|round| round.first.frames))),
        Figure::of(CASE, named("second time"), "a second", &second)
            .beside(LOCAL, &second, &local)
            .asked(Asked::Ratio(Bound::AtLeast(0.9)))
            .note(format!("{:.3} frames each", frames(|round| round.second.frames))),
    ])
}
