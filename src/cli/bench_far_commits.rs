//! Commits of transactions over several machines: each sets an attribute of an object of each of
//! two other machines, which are prepared and told; with and without a witness, and beside the
//! same as calls.
//!
//! Invariants: what servers have to say of the directories is said before the first round that
//! counts; frames are all that go between machines, also those that nobody waits for. Not here:
//! transactions in one server (`bench_commits`).

use anyhow::Result;

use crate::bench_beside::{Asked, Figure};
use crate::bench_cluster::Cluster;
use crate::bench_crew::Run;
use crate::bench_peer::Duty;
use crate::bench_peer_objects::ObjectDuty;
use crate::bench_report::Bound;

const CASE: &str = "objects-commits";
/// The object's id on each machine.
const ID: u64 = 1;
/// Most machines whose objects are set.
const HOMES: usize = 2;
/// Of a question and its answer.
const FRAMES: f64 = 2.0;

/// What each of some commits, or as many calls, took.
struct Cost {
    us: f64,
    trips: f64,
}

struct Round {
    plain: Cost,
    copied: Cost,
    calls: Cost,
}

fn cost(run: &Run, count: u64, duty: ObjectDuty) -> Result<Cost> {
    let (did, meanwhile) = run.meanwhile(|| run.on(0).does(Duty::Objects(duty)))?;
    let each = |sum: f64| sum / count.max(1) as f64;
    let trips = each(meanwhile.operations as f64 / FRAMES);
    Ok(Cost { us: each(did.ns as f64 / 1e3), trips })
}

fn round_of(run: &Run, homes: u16, count: u64) -> Result<Round> {
    let commit = |copies| cost(run, count, ObjectDuty::Commit { id: ID, homes, count, copies });
    Ok(Round {
        plain: commit(1)?,
        copied: commit(2)?,
        calls: cost(run, count, ObjectDuty::SetEach { id: ID, homes, count })?,
    })
}

/// See the module.
pub fn commits(cluster: &Cluster<'_>, run: &Run) -> Result<Vec<Figure>> {
    let homes = cluster.others.len().min(HOMES) as u16;
    let does = |duty| run.on(0).does(Duty::Objects(duty)).map(drop);
    does(ObjectDuty::Begin)?;
    for on in 1..=homes {
        does(ObjectDuty::Create { on, first: ID, count: 1 })?;
    }
    let count = cluster.much.trips;
    let rounds = cluster.rounds(|_| round_of(run, homes, count))?;
    does(ObjectDuty::End)?;
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let (plain, calls) = (of(|round| round.plain.us), of(|round| round.calls.us));
    let copied = of(|round| round.copied.us);
    let trips = |name: String, values: Vec<f64>, awaited: u16| {
        Figure::of(CASE, name, "round trips", &values)
            .beside("as calls", &values, &of(|round| round.calls.trips))
            .asked(Asked::Value(Bound::Below(5.0)))
            .note(format!("frames of all machines, by two; the program waits for {awaited}"))
    };
    let what = match homes {
        1 => "a commit that sets another machine's object".to_owned(),
        _ => format!("a commit that sets objects of {homes} other machines"),
    };
    Ok(vec![
        Figure::of(CASE, what.clone(), "µs", &plain).beside("as calls", &plain, &calls),
        trips(format!("{what}, between servers"), of(|round| round.plain.trips), homes),
        Figure::of(CASE, format!("{what}, copies 2"), "µs", &copied)
            .beside("without", &copied, &plain),
        trips(
            format!("{what}, copies 2, between servers"),
            of(|round| round.copied.trips),
            homes + 1,
        ),
    ])
}
