//! Bytes over several machines: files of their own, files of another one, and one file that two
//! write.
//!
//! Invariants: what one machine has written another compares, byte by byte, after the last round; a
//! file is removed before the next round makes another. Not here: names, and how long a run takes
//! to begin.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::bench_beside::{Asked, Figure};
use crate::bench_cluster::{Alone, CALM, Cluster, directory, path, rate, seconds_per_gib};
use crate::bench_crew::{Peer, Run, together};
use crate::bench_peer::{Blocks, Did, Duty};
use crate::bench_report::Bound;

/// Where one process of each side works that knows nothing of Terral.
pub struct Link<'p> {
    sends: &'p Peer,
    receives: &'p Peer,
    addresses: Vec<SocketAddr>,
}

impl<'p> Link<'p> {
    /// From one machine to another. A run knows where they can be reached.
    pub fn new(run: &Run, plain: &'p [Peer], from: usize, to: usize) -> Result<Self> {
        let seen = run.on(from).does(Duty::Look)?.seen;
        let (sends, receives) = (&plain[from], &plain[to]);
        let port = sends.does(Duty::Listen)?.port;
        let at = |address: SocketAddr| SocketAddr::new(address.ip(), port);
        let addresses = seen.addresses.into_iter().map(at).collect();
        Ok(Link { sends, receives, addresses })
    }

    /// Copies bytes; who receives them says how long that took. Both sides' processor time.
    pub fn copy(&self, bytes: u64, sealed: bool) -> Result<(u64, u64)> {
        let receive = Duty::Receive(self.addresses.clone(), bytes, sealed);
        let did = together([(self.sends, Duty::Send(bytes, sealed)), (self.receives, receive)])?;
        Ok((did[1].ns, did.iter().map(|did| did.cpu_ns).sum()))
    }

    /// So many round trips.
    pub fn round_trips(&self, count: u64) -> Result<u64> {
        let trips = Duty::RoundTrips(self.addresses.clone(), count);
        Ok(together([(self.sends, Duty::Echo(count)), (self.receives, trips)])?[1].ns)
    }
}

fn longest(did: &[Did]) -> u64 {
    did.iter().map(|did| did.ns).max().unwrap_or(0)
}

fn processor(did: &[Did]) -> u64 {
    did.iter().map(|did| did.cpu_ns).sum()
}

fn of<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
    rounds.iter().map(value).collect()
}

fn median(values: &[f64]) -> f64 {
    crate::bench_report::Spread::of(values.iter().copied()).median
}

// Own files.

/// A round of [`own_files`].
struct Own {
    rate: f64,
    cpu: f64,
    operations: f64,
    bytes: f64,
}

fn own_of(run: &Run, cluster: &Cluster<'_>, round: u64) -> Result<Own> {
    let file = |at: usize| cluster.whole(&format!("own-{at}/f{round}"), round << 8 | at as u64);
    let all = || run.firsts().enumerate();
    let (did, meanwhile) =
        run.meanwhile(|| together(all().map(|(at, peer)| (peer, Duty::New(file(at))))))?;
    let bytes = cluster.much.bytes() * did.len() as u64;
    if round == cluster.much.rounds as u64 {
        let machines = cluster.machines();
        let next = |at: usize| Duty::Check(file((at + 1) % machines));
        together(all().map(|(at, peer)| (peer, next(at)))).context("read on another machine")?;
    }
    together(all().map(|(at, peer)| (peer, Duty::Remove(file(at).path))))?;
    Ok(Own {
        rate: rate(bytes, longest(&did)),
        cpu: seconds_per_gib(processor(&did) + meanwhile.ran_ns, bytes),
        operations: meanwhile.operations as f64,
        bytes: meanwhile.bytes as f64,
    })
}

fn own_alone(alone: &Alone, cluster: &Cluster<'_>, round: u64) -> Result<Own> {
    let file = cluster.whole(&format!("f{round}"), round);
    let before = alone.ran_ns();
    let did = alone.peer.does(Duty::New(file.clone()))?;
    let server = alone.ran_ns().saturating_sub(before);
    alone.peer.does(Duty::Remove(file.path))?;
    let bytes = cluster.much.bytes();
    let cpu = seconds_per_gib(did.cpu_ns + server, bytes);
    Ok(Own { rate: rate(bytes, did.ns), cpu, operations: 0.0, bytes: 0.0 })
}

/// Each machine writes a file of its own, all at once; beside one machine alone.
pub fn own_files(cluster: &Cluster<'_>, run: &Run, with: &str) -> Result<Vec<Figure>> {
    const CASE: &str = "own-files";
    for (at, peer) in run.firsts().enumerate() {
        directory(peer, &format!("own-{at}"))?;
    }
    // What is not changed any more goes to who changes it next.
    std::thread::sleep(CALM);
    let alone = cluster.alone(None)?;
    let rounds = cluster
        .rounds(|round| Ok((own_of(run, cluster, round)?, own_alone(&alone, cluster, round)?)))?;
    let own = |value: fn(&Own) -> f64| of(&rounds, |(own, _)| value(own));
    let its = |value: fn(&Own) -> f64| of(&rounds, |(_, alone)| value(alone));
    let named = |what: &str| format!("own files, {what}{with}");
    let bytes = median(&own(|own| own.bytes));
    let rates = own(|own| own.rate);
    let costs = own(|own| own.cpu);
    let cost = Figure::of(CASE, named("CPU of programs and servers"), "s/GiB", &costs);
    let cost = cost.beside("alone", &costs, &its(|own| own.cpu));
    Ok(vec![
        Figure::of(CASE, named("written by all"), "GB/s", &rates).beside(
            "alone",
            &rates,
            &its(|own| own.rate),
        ),
        if with.is_empty() { cost.asked(Asked::Ratio(Bound::AtMost(1.1))) } else { cost },
        Figure::of(CASE, named("frames meanwhile"), "frames", &own(|own| own.operations))
            .asked(Asked::Value(Bound::AtMost(0.0)))
            .note(format!("{bytes:.0} bytes of all frames, leases included")),
    ])
}

// Files of another machine.

/// A round of [`reads`].
struct Reads {
    first: f64,
    second: f64,
    at_home: f64,
    scattered: f64,
    copy: f64,
    cpu: f64,
    copy_cpu: f64,
}

fn reads_of(
    (run, sealed): (&Run, bool),
    link: &Link<'_>,
    cluster: &Cluster<'_>,
    round: u64,
) -> Result<Reads> {
    cluster.settle(run)?;
    let bytes = cluster.much.bytes();
    let file = cluster.whole(&format!("read-{round}"), round);
    let other = Blocks { path: path(&format!("scattered-{round}")), ..file.clone() };
    let (home, here) = (run.on(1), run.on(0));
    home.does(Duty::New(file.clone()))?;
    home.does(Duty::New(other.clone()))?;
    let (first, meanwhile) = run.meanwhile(|| here.does(Duty::Read(file.clone())))?;
    let (copied_ns, copied_cpu) = link.copy(bytes, sealed)?;
    let second = run.peers[0][1].does(Duty::Read(file.clone()))?;
    let at_home = run.peers[1][1].does(Duty::Read(file.clone()))?;
    if round == cluster.much.rounds as u64 {
        here.does(Duty::Check(file.clone()))?;
    }
    home.does(Duty::Remove(file.path))?;
    let scattered = here.does(Duty::ReadAtRandom(other.clone()))?;
    home.does(Duty::Remove(other.path))?;
    Ok(Reads {
        first: rate(bytes, first.ns),
        second: rate(bytes, second.ns),
        at_home: rate(bytes, at_home.ns),
        scattered: rate(bytes, scattered.ns),
        copy: rate(bytes, copied_ns),
        cpu: seconds_per_gib(first.cpu_ns + meanwhile.ran_ns, bytes),
        copy_cpu: seconds_per_gib(copied_cpu, bytes),
    })
}

/// One machine reads what another has written.
pub fn reads(cluster: &Cluster<'_>, runs: [&Run; 2], plain: &[Peer]) -> Result<Vec<Figure>> {
    const CASE: &str = "read";
    let link = Link::new(runs[0], plain, 1, 0)?;
    let rounds = cluster.rounds(|round| {
        let mut both = [0, 1].map(|at| (at, runs[at]));
        if !round.is_multiple_of(2) {
            both.reverse();
        }
        let mut all = Vec::new();
        for (at, run) in both {
            all.push((at, reads_of((run, at == 1), &link, cluster, round)?));
        }
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, reads)| reads).collect::<Vec<_>>())
    })?;
    let mut figures = Vec::new();
    for (at, how, alone) in [(0, "not encrypted", "socket copy"), (1, "TLS", "rustls copy")] {
        let its = |value: fn(&Reads) -> f64| of(&rounds, |both| value(&both[at]));
        let (copy, cpu) = (its(|reads| reads.copy), median(&its(|reads| reads.cpu)));
        let copy_cpu = median(&its(|reads| reads.copy_cpu));
        let figure = |what: &str, rates: &[f64], beside, reference: &[f64], least: Option<f64>| {
            let figure = Figure::of(CASE, format!("{what}, {how}"), "GB/s", rates);
            let figure = figure.beside(beside, rates, reference);
            least.map_or(figure.clone(), |least| figure.asked(Asked::Ratio(Bound::AtLeast(least))))
        };
        let first = its(|reads| reads.first);
        figures.push(
            figure("first read of another machine's", &first, alone, &copy, Some(0.8))
                .note(format!("CPU {cpu:.2} s/GiB, {alone} {copy_cpu:.2}")),
        );
        let scattered = its(|reads| reads.scattered);
        let what = "cold 1 MiB reads at random";
        figures.push(figure(what, &scattered, alone, &copy, Some(0.5)));
        let (second, home) = (its(|reads| reads.second), its(|reads| reads.at_home));
        let what = "read again, another process";
        figures.push(figure(what, &second, "read where it was written", &home, Some(0.9)));
    }
    Ok(figures)
}

// One file of two machines.

/// How two machines share a file.
#[derive(Clone, Copy)]
struct Layout {
    name: &'static str,
    /// It is as long as it will be before anybody writes to it.
    sized: bool,
    /// Others see it once it is committed.
    commits: bool,
    /// The first block of the second machine, and how far its next one is, if there are so many.
    of: fn(u64, u64) -> (u64, u64),
}

const SEGMENTED: Layout = Layout {
    name: "segmented",
    sized: false,
    commits: false,
    of: |machine, blocks| (machine * blocks, 1),
};
const STRIDED: Layout = Layout { name: "strided", of: |machine, _| (machine, 2), ..SEGMENTED };

const LAYOUTS: [Layout; 4] = [
    SEGMENTED,
    Layout { name: "segmented, sized", sized: true, ..SEGMENTED },
    STRIDED,
    Layout { name: "strided, commit", commits: true, ..STRIDED },
];

/// A round of [`shared`].
struct Shared {
    /// Of the machine that has not created it.
    far: f64,
    all: f64,
    /// Its write calls alone, and those to a file of its own.
    calls: f64,
    own_calls: f64,
    own: f64,
    copy: f64,
}

fn shared_of(
    (run, sealed, layout): (&Run, bool, Layout),
    link: &Link<'_>,
    cluster: &Cluster<'_>,
    round: u64,
) -> Result<Shared> {
    cluster.settle(run)?;
    let bytes = cluster.much.bytes();
    let file = cluster.whole(&format!("shared-{}-{round}", layout.name), round);
    let part = |machine: u64| {
        let (first, step) = (layout.of)(machine, cluster.much.blocks);
        Duty::Write(Blocks { first, step, ..file.clone() })
    };
    if layout.commits {
        run.on(0).does(Duty::Commit(file.path.clone(), true))?;
    }
    run.on(0).does(match layout.sized {
        true => Duty::Size(file.path.clone(), 2 * bytes),
        false => Duty::Touch(file.path.clone()),
    })?;
    let did = together([(run.on(0), part(0)), (run.on(1), part(1))])?;
    let whole = Duty::Check(Blocks { count: 2 * file.count, ..file.clone() });
    if round == cluster.much.rounds as u64 {
        run.firsts().try_for_each(|peer| peer.does(whole.clone()).map(drop))?;
    }
    if layout.commits {
        run.on(0).does(Duty::Commit(file.path.clone(), false))?;
    }
    run.on(0).does(Duty::Remove(file.path))?;
    let own = |at: u64| cluster.whole(&format!("beside-{at}-{round}"), round << 8 | at);
    let wrote = together([(run.on(0), Duty::New(own(0))), (run.on(1), Duty::New(own(1)))])?;
    run.on(0).does(Duty::Remove(own(0).path))?;
    run.on(1).does(Duty::Remove(own(1).path))?;
    Ok(Shared {
        far: rate(bytes, did[1].ns),
        all: rate(2 * bytes, longest(&did)),
        calls: rate(bytes, did[1].calls_ns),
        own_calls: rate(bytes, wrote[1].calls_ns),
        own: rate(2 * bytes, longest(&wrote)),
        copy: rate(bytes, link.copy(bytes, sealed)?.0),
    })
}

/// Two machines write one file, which the first has created; each its parts.
pub fn shared(cluster: &Cluster<'_>, runs: [&Run; 2], plain: &[Peer]) -> Result<Vec<Figure>> {
    const CASE: &str = "shared";
    let link = Link::new(runs[0], plain, 1, 0)?;
    let mut figures = Vec::new();
    for layout in LAYOUTS {
        let ways = [(false, "not encrypted", "socket copy"), (true, "TLS", "rustls copy")];
        for (sealed, how, alone) in ways {
            let what = (runs[usize::from(sealed)], sealed, layout);
            let rounds = cluster.rounds(|round| shared_of(what, &link, cluster, round))?;
            let its = |value: fn(&Shared) -> f64| of(&rounds, value);
            let named = |what: &str| format!("one file, {}, {what}, {how}", layout.name);
            let (far, all) = (its(|shared| shared.far), its(|shared| shared.all));
            if layout.commits {
                let calls = its(|shared| shared.calls);
                figures.push(
                    Figure::of(CASE, named("the other machine's write calls"), "GB/s", &calls)
                        .beside("own file", &calls, &its(|shared| shared.own_calls))
                        .asked(Asked::Ratio(Bound::AtLeast(0.8))),
                );
            }
            figures.push(
                Figure::of(CASE, named("the other machine's"), "GB/s", &far)
                    .beside(alone, &far, &its(|shared| shared.copy))
                    .asked(Asked::Ratio(Bound::AtLeast(0.7))),
            );
            figures.push(Figure::of(CASE, named("both machines"), "GB/s", &all).beside(
                "own files of both",
                &all,
                &its(|shared| shared.own),
            ));
        }
    }
    Ok(figures)
}
