//! Objects created per second beside files, a checkpoint of four processes: an object for each
//! beside a file for each and one file for all, and a transaction beside requests.
//!
//! Invariant: what an object needs that a file does not (to begin and end the checkpoint, its one
//! name) is in the measured time; what is removed between rounds is not.

use std::time::Instant;

use anyhow::{Result, ensure};
use terral_client::checkpoints::{Checkpoint, Checkpoints, Part};
use terral_client::objects::{Address, Container, ObjectId};
use terral_client::transactions::Transaction;
use terral_client::{OpenHow, RenameHow, access};

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Work};

/// Processes of a checkpoint.
const PROCESSES: u64 = 4;
/// What each of them has.
const BYTES: u64 = 64 << 20;
/// Where checkpoints are.
const SERIES: &str = "points";
/// The container of objects that are created only.
const CONTAINER: &[u8] = b"bench";

/// Nanoseconds for each of `count` that are made and closed.
fn created(team: &mut Team, bed: &Bed, face: Face, count: u64) -> Result<f64> {
    let pass = |work| Pass { count, ..writing(work, 0) };
    let took = if face == Face::Client {
        let container = Container::create(&bed.client, CONTAINER, 0o755)?;
        let took = team.alone(&pass(Work::CreateObjects), &String::from_utf8_lossy(CONTAINER))?;
        container.remove()?;
        took
    } else {
        let took = team.alone(&pass(Work::CreateMany), "created")?;
        team.alone(&pass(Work::RemoveMany), "created")?;
        took
    };
    Ok(took.wall_ns as f64 / count as f64)
}

fn spread(times: &[f64], unit: f64) -> String {
    let of = Spread::of(times.iter().skip(1).map(|time| time / unit));
    format!("{:.2} ({:.2}–{:.2})", of.median, of.min, of.max)
}

/// How many times as long the other took, by rounds, the first left out.
fn ratio(own: &[f64], other: &[f64]) -> f64 {
    Spread::of(other.iter().zip(own).skip(1).map(|(other, own)| other / own)).median
}

/// One process creates objects.
pub fn create(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    const FACES: [Face; 3] = [Face::Client, Face::Tmpfs, Face::Disk];
    let bed = Bed::start(host, None)?;
    let mut teams = Vec::new();
    for face in FACES {
        teams.push(Team::start(host, face, Some(&bed), 1)?);
    }
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=effort.rounds {
        for turn in 0..FACES.len() {
            let at = (round + turn) % FACES.len();
            times[at].push(created(&mut teams[at], &bed, FACES[at], effort.names)?);
        }
    }
    let [own, tmpfs, disk] = &times;
    let of = |other: &[f64], name, unit, least| {
        let fact = Fact::new(name, ratio(own, other), unit, Some(Bound::AtLeast(least)));
        fact.note(format!("{} against {} µs each", spread(own, 1e3), spread(other, 1e3)))
    };
    Ok(vec![
        of(tmpfs, "objects created, 1 process", "× tmpfs", 1.0),
        of(disk, "objects created, 1 process, and the disk", "× disk", 10.0),
    ])
}

/// Names that change places in a round.
const RENAMES: u64 = 2000;

/// Nanoseconds of each of so many times that two names are moved, and moved back, by `moves`.
fn moved(moves: impl Fn([&[u8]; 4]) -> terral_client::Result<()>) -> Result<f64> {
    let [a, b, c, d] = [&b"moved/a"[..], b"moved/b", b"moved/c", b"moved/d"];
    let begin = Instant::now();
    for round in 0..RENAMES {
        moves(if round % 2 == 0 { [a, b, c, d] } else { [b, a, d, c] })?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / RENAMES as f64)
}

/// A transaction of two operations beside two requests, one after the other.
pub fn transaction(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let client = &bed.client;
    client.make_directory(b"moved", 0o755)?;
    // What has several names is moved by the server, without a transaction, too.
    for name in ["moved/a", "moved/c"] {
        let how = OpenHow { access: access::WRITE as u8, create: true, ..OpenHow::default() };
        client.open(name.as_bytes(), how)?.close();
        client.link(name.as_bytes(), format!("{name}-too").as_bytes())?;
    }
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..=effort.rounds {
        times[0].push(moved(|[a, b, c, d]| {
            let mut transaction = Transaction::begin(client);
            transaction.rename(a, b, RenameHow::Replace).rename(c, d, RenameHow::Replace);
            transaction.commit()
        })?);
        times[1].push(moved(|[a, b, c, d]| {
            client.rename(a, b, RenameHow::Replace)?;
            client.rename(c, d, RenameHow::Replace)
        })?);
    }
    let [own, other] = &times;
    let median = Spread::of(own.iter().skip(1).map(|time| time / 1e3)).median;
    let fact = Fact::new("commit of two operations", median, "µs", Some(Bound::Below(100.0)));
    let note = format!("{} against {} µs for two renames", spread(own, 1e3), spread(other, 1e3));
    Ok(vec![fact.note(note)])
}

/// How a checkpoint is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Objects,
    FileEach(Face),
    OneFile(Face),
}

const WAYS: [Way; 5] = [
    Way::Objects,
    Way::FileEach(Face::Tmpfs),
    Way::OneFile(Face::Tmpfs),
    Way::FileEach(Face::Preload),
    Way::OneFile(Face::Preload),
];

impl Way {
    fn face(self) -> Face {
        match self {
            Way::Objects => Face::Client,
            Way::FileEach(face) | Way::OneFile(face) => face,
        }
    }

    fn name(self) -> String {
        match self {
            Way::Objects => "objects".into(),
            Way::FileEach(face) => format!("a file each, {}", face.name()),
            Way::OneFile(face) => format!("one file, {}", face.name()),
        }
    }
}

/// What the processes have written.
fn end(checkpoint: Checkpoint, server: u16) -> Result<()> {
    let part = |process: u64| {
        let at = process * BYTES;
        let id = ObjectId(u128::from(process) << 64 | u128::from(at));
        Part { address: Address { server, id }, at, bytes: BYTES }
    };
    Ok(checkpoint.end(&(0..PROCESSES).map(part).collect::<Vec<_>>())?)
}

/// Nanoseconds from the begin to the end of one.
fn by_objects(team: &mut Team, bed: &Bed, step: u64) -> Result<f64> {
    let all = Checkpoints::open(&bed.client, SERIES.as_bytes(), usize::MAX, 0o755)?;
    let begin = Instant::now();
    let checkpoint = all.begin(step)?;
    let begun = begin.elapsed();
    let pass = Pass { count: step, ..writing(Work::Dump, BYTES) };
    let attempt = checkpoint.attempt();
    let took = team.pass(&pass, |_| format!("{SERIES}:{attempt}"))?;
    let begin = Instant::now();
    end(checkpoint, bed.client.member().number())?;
    let ended = begin.elapsed();
    let whole = all.of_step(step)?;
    ensure!(whole.bytes() == PROCESSES * BYTES, "a checkpoint of {} bytes", whole.bytes());
    Container::at(&bed.client, format!("{SERIES}/step-{step:012}").as_bytes())?.remove()?;
    Ok((begun + ended).as_nanos() as f64 + took.wall_ns as f64)
}

/// Nanoseconds from the first call to the last.
fn by_files(team: &mut Team, way: Way) -> Result<f64> {
    let shared = matches!(way, Way::OneFile(_));
    let face = way.face().name();
    let name = |process| {
        if shared { format!("shared-{face}") } else { format!("own-{face}-{process}") }
    };
    if !shared {
        let took = team.pass(&writing(Work::New, BYTES), name)?;
        team.pass(&writing(Work::Remove, 0), name)?;
        return Ok(took.wall_ns as f64);
    }
    team.alone(&writing(Work::Touch, 0), &name(0))?;
    let took = team.pass(&writing(Work::Segmented, BYTES), name)?;
    team.alone(&writing(Work::Remove, 0), &name(0))?;
    Ok(took.wall_ns as f64)
}

/// Four processes write a checkpoint.
pub fn checkpoint(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut teams = Vec::new();
    for way in WAYS {
        teams.push(Team::start(host, way.face(), Some(&bed), PROCESSES)?);
    }
    host.touch(PROCESSES * BYTES)?;
    let mut times: [Vec<f64>; WAYS.len()] = Default::default();
    for round in 0..=effort.rounds {
        for turn in 0..WAYS.len() {
            let at = (round + turn) % WAYS.len();
            bed.settle()?;
            times[at].push(match WAYS[at] {
                Way::Objects => by_objects(&mut teams[at], &bed, round as u64 + 1)?,
                way => by_files(&mut teams[at], way)?,
            });
        }
    }
    let [own, others @ ..] = &times;
    let facts = WAYS[1..].iter().zip(others).map(|(way, times)| {
        let least = (*way == Way::OneFile(Face::Tmpfs)).then_some(Bound::AtLeast(3.0));
        let name = format!("checkpoint, 4 × 64 MiB, objects beside {}", way.name());
        let note = format!("{} against {} ms", spread(own, 1e6), spread(times, 1e6));
        Fact::new(&name, ratio(own, times), "×", least).note(note)
    });
    Ok(facts.collect())
}
