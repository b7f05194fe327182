//! Objects and checkpoints over several machines: created elsewhere, copied, written by calls that
//! are submitted, and checkpoints with second copies.
//!
//! Invariant: what a round has made is removed before the next one. Not here: other bytes, names.

use anyhow::Result;

use crate::bench_beside::{Asked, Figure};
use crate::bench_cluster::{CALM, Cluster, rate};
use crate::bench_crew::{Peer, Run};
use crate::bench_peer::Duty;
use crate::bench_peer_objects::{FILLED, ObjectDuty};
use crate::bench_report::Bound;

const CASE: &str = "objects";
/// Bytes of a checkpoint, and of an object that is copied.
const BYTES: u64 = 64 << 20;
/// Least bytes of an object that is on all machines, or on one.
const STRIPED_LEAST: u64 = 48 << 20;
/// An object of which small pieces are written.
const SMALL_ONE: u64 = 1 << 20;
/// The id of what is copied or written.
const ID: u64 = 1 << 40;

fn of<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
    rounds.iter().map(value).collect()
}

fn took(peer: &Peer, duty: ObjectDuty) -> Result<u64> {
    peer.does(Duty::Objects(duty)).map(|did| did.ns)
}

/// The number of the server of a machine of the run: as they are told.
fn server(machine: usize) -> u16 {
    machine as u16
}

/// A round of [`objects`], nanoseconds.
struct Round {
    created: f64,
    least: f64,
    opened: f64,
    frames: f64,
    copied: f64,
    read: f64,
    each: f64,
    submitted: f64,
    with_copies: f64,
    without: f64,
    striped: Filled,
    whole: Filled,
}

/// How fast a large object was written, and read by another machine, GB/s.
#[derive(Clone, Copy)]
struct Filled {
    written: f64,
    read: f64,
}

fn filled(run: &Run, cluster: &Cluster<'_>, id: u64, striped: bool) -> Result<Filled> {
    let (peer, on) = (run.on(0), server(0));
    let bytes = cluster.much.bytes().max(STRIPED_LEAST);
    let written = took(peer, ObjectDuty::FillAll { id, bytes, striped })?;
    // What was written elsewhere goes there once it is closed.
    cluster.settle(run)?;
    let read = took(run.on(1), ObjectDuty::Read { on, id, block: FILLED })?;
    took(peer, ObjectDuty::Remove { on, id })?;
    cluster.settle(run)?;
    Ok(Filled { written: rate(bytes, written), read: rate(bytes, read) })
}

fn round_of(run: &Run, cluster: &Cluster<'_>, round: u64) -> Result<Round> {
    let (peer, other) = (run.on(0), run.on(1));
    let (on, count) = (server(1), (cluster.much.names / 10).max(20));
    let first = round * count;
    // What was made just now others are not shown yet.
    std::thread::sleep(CALM);
    let (created, meanwhile) =
        run.meanwhile(|| took(peer, ObjectDuty::Create { on, first, count }))?;
    let opened = took(peer, ObjectDuty::Open { on, first, count })?;
    let least = took(peer, ObjectDuty::CreateLeast { first: ID * 2 + first, count })?;
    took(other, ObjectDuty::Fill { id: ID, bytes: BYTES })?;
    took(other, ObjectDuty::Fill { id: ID + 2, bytes: BYTES })?;
    let read = took(peer, ObjectDuty::Read { on, id: ID + 2, block: 0 })?;
    took(other, ObjectDuty::Remove { on, id: ID + 2 })?;
    let copied = took(peer, ObjectDuty::Copy { of: on, id: ID, to: server(0) })?;
    took(peer, ObjectDuty::Remove { on: server(0), id: ID })?;
    took(other, ObjectDuty::Remove { on, id: ID })?;
    took(other, ObjectDuty::Fill { id: ID + 1, bytes: SMALL_ONE })?;
    let write = |submits| {
        took(peer, ObjectDuty::Write { on, id: ID + 1, count: cluster.much.trips, submits })
    };
    let (each, submitted) = (write(false)?, write(true)?);
    took(other, ObjectDuty::Remove { on, id: ID + 1 })?;
    let save = |copies, step| -> Result<u64> {
        let saved = took(peer, ObjectDuty::Save { step, copies, bytes: BYTES })?;
        took(peer, ObjectDuty::Forget { step })?;
        cluster.settle(run)?;
        Ok(saved)
    };
    let (without, with_copies) = (save(1, 2 * round + 1)?, save(2, 2 * round + 2)?);
    let (striped, whole) =
        (filled(run, cluster, ID * 4 + round, true)?, filled(run, cluster, ID * 5 + round, false)?);
    let (count, trips) = (count as f64, cluster.much.trips as f64);
    Ok(Round {
        created: created as f64 / count,
        least: least as f64 / count,
        opened: opened as f64 / count,
        frames: meanwhile.operations as f64 / count,
        copied: rate(BYTES, copied),
        read: rate(BYTES, read),
        each: each as f64 / trips,
        submitted: submitted as f64 / trips,
        with_copies: with_copies as f64 / 1e6,
        without: without as f64 / 1e6,
        striped,
        whole,
    })
}

/// One process uses objects of another machine's server.
pub fn objects(cluster: &Cluster<'_>, run: &Run, with: &str) -> Result<Vec<Figure>> {
    took(run.on(0), ObjectDuty::Begin)?;
    let rounds = cluster.rounds(|round| round_of(run, cluster, round))?;
    took(run.on(0), ObjectDuty::End)?;
    let own = |value: fn(&Round) -> f64| of(&rounds, value);
    let figure = |name: &str, unit, value: fn(&Round) -> f64| {
        Figure::of(CASE, format!("{name}{with}"), unit, &own(value))
    };
    let micro = |value: fn(&Round) -> f64| -> Vec<f64> {
        own(value).into_iter().map(|ns| ns / 1e3).collect()
    };
    let created = micro(|round| round.created);
    let opened = micro(|round| round.opened);
    let least = micro(|round| round.least);
    let (each, submitted) = (micro(|round| round.each), micro(|round| round.submitted));
    Ok(vec![
        Figure::of(
            CASE,
            format!("an object created elsewhere, open, closed{with}"),
            "µs",
            &created,
        )
        .beside("opened and closed", &created, &opened)
        .asked(Asked::Value(Bound::Below(1000.0))),
        Figure::of(CASE, format!("one created where there is more room{with}"), "µs", &least)
            .beside("where it is said", &least, &created),
        figure("frames of all machines for it", "frames", |round| round.frames)
            .asked(Asked::Value(Bound::Below(9.0))),
        figure("an object copied here, 64 MiB", "GB/s", |round| round.copied).beside(
            "read, 1 MiB at a time",
            &own(|round| round.copied),
            &own(|round| round.read),
        ),
        Figure::of(
            CASE,
            format!("4 KiB written to another machine's, submitted{with}"),
            "µs",
            &submitted,
        )
        .beside("one after the other", &submitted, &each)
        .asked(Asked::Ratio(Bound::Below(0.8))),
        figure("checkpoint with copies, 64 MiB", "ms", |round| round.with_copies).beside(
            "without",
            &own(|round| round.with_copies),
            &own(|round| round.without),
        ),
        figure("a large object written, striped over all", "GB/s", |it| it.striped.written).beside(
            "on one machine, which writes it",
            &own(|round| round.striped.written),
            &own(|round| round.whole.written),
        ),
        figure("the same read by another machine", "GB/s", |it| it.striped.read).beside(
            "on one machine",
            &own(|round| round.striped.read),
            &own(|round| round.whole.read),
        ),
    ])
}
