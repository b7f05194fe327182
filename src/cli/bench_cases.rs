//! The IOR-like cases: the same passes through each face, alternating, round after round.
//!
//! Invariants: what is compared was measured in the same round; a new file is new in each pass and
//! is removed outside the measured time; what was written through Terral is read back and compared.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench_host::{Bed, Face, Host, Team, Took};
use crate::bench_worker::{Pass, Work};

/// What a program does before it writes for the first time, in the cases that say so.
const COMPUTES: Duration = Duration::from_secs(1);

/// What the workers of a case share, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A new file per process and pass.
    New,
    /// The same, by new processes each time.
    Fresh,
    /// A new file per process, as the first thing a server does.
    Cold,
    /// The same, after a second of computing.
    Ready,
    /// A file per process, written over.
    Overwrite,
    /// One new file, a part in one piece per process.
    Segmented,
    /// One new file, transfers dealt out in turn.
    Strided,
    /// A file per process, read again and again by others than its writer.
    Read,
    /// The same, by processes that never saw it.
    First,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What happens.
    pub shape: Shape,
    /// Bytes per call.
    pub transfer: u64,
    /// Processes.
    pub processes: u64,
    /// Least ratio to tmpfs, if one is asked for.
    pub target: Option<f64>,
}

/// What one face did in one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Bytes per second.
    pub rate: f64,
    /// Worker processor time per byte, nanoseconds.
    pub cpu_ns: f64,
    /// Server processor time per byte, nanoseconds.
    pub server_ns: f64,
    /// For a shared file: bytes per second of a file per process, right after.
    pub own_rate: Option<f64>,
}

/// All rounds of one face.
pub struct Series {
    /// Whose.
    pub face: Face,
    /// By round.
    pub samples: Vec<Sample>,
}

/// The cases of the table; with `full`, four processes as well.
pub fn all(full: bool) -> Vec<Case> {
    let (k, m) = (1 << 10, 1 << 20);
    let counts: &[u64] = if full { &[1, 2, 4] } else { &[1, 2] };
    let mut cases = Vec::new();
    let mut add = |shape, transfers: &[(u64, Option<f64>)], counts: &[u64]| {
        for &processes in counts {
            for &(transfer, target) in transfers {
                let target = target.filter(|_| processes <= 2);
                cases.push(Case { shape, transfer, processes, target });
            }
        }
    };
    let new = [(4 * k, Some(1.5)), (64 * k, Some(3.0)), (m, Some(3.0)), (4 * m, None)];
    add(Shape::New, &new, counts);
    add(Shape::Fresh, &[(4 * k, Some(1.5))], &counts[1..]);
    add(Shape::Ready, &[(64 * k, Some(3.0)), (m, Some(3.0))], &[1]);
    add(Shape::Cold, &[(64 * k, Some(0.95)), (m, Some(0.95))], &counts[..counts.len() - 1]);
    add(Shape::Overwrite, &[(4 * k, None), (64 * k, Some(1.2)), (m, Some(1.2))], counts);
    let shared = [(64 * k, Some(4.0)), (m, Some(4.0))];
    add(Shape::Segmented, &shared, &counts[1..]);
    add(Shape::Strided, &shared, &counts[1..]);
    let read = |least| [(64 * k, Some(least)), (m, Some(least)), (4 * m, Some(least))];
    add(Shape::Read, &read(1.5), &[1]);
    add(Shape::Read, &read(1.2), &counts[1..]);
    add(Shape::First, &[(m, None)], &[1]);
    cases
}

fn size_name(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}m", bytes >> 20) } else { format!("{}k", bytes >> 10) }
}

impl Case {
    /// As tables and `--cases` have it.
    pub fn name(&self) -> String {
        let shape = match self.shape {
            Shape::New => "new",
            Shape::Fresh => "fresh",
            Shape::Cold => "cold",
            Shape::Ready => "ready",
            Shape::Overwrite => "overwrite",
            Shape::Segmented => "segmented",
            Shape::Strided => "strided",
            Shape::Read => "read",
            Shape::First => "first-read",
        };
        format!("{shape}-{}-{}p", size_name(self.transfer), self.processes)
    }

    /// Whether all processes share one file.
    pub fn is_shared(&self) -> bool {
        matches!(self.shape, Shape::Segmented | Shape::Strided)
    }

    fn is_fresh(&self) -> bool {
        self.work() == Work::New || self.is_shared()
    }

    /// Whether each pass has a server of its own.
    fn is_alone(&self) -> bool {
        matches!(self.shape, Shape::Cold | Shape::Ready)
    }

    /// Whether each pass has processes of its own.
    fn is_by_others(&self) -> bool {
        matches!(self.shape, Shape::First | Shape::Fresh)
    }

    fn work(&self) -> Work {
        match self.shape {
            Shape::New | Shape::Fresh | Shape::Cold | Shape::Ready => Work::New,
            Shape::Overwrite => Work::Overwrite,
            Shape::Segmented => Work::Segmented,
            Shape::Strided => Work::Strided,
            Shape::Read | Shape::First => Work::Read,
        }
    }

    fn faces(&self) -> Vec<Face> {
        let mut faces = vec![Face::Tmpfs, Face::Client, Face::Preload];
        // The disk directory is slow and disturbs the others: it is shown where it tells most.
        if self.transfer == 1 << 20 && !self.is_alone() && self.processes <= 2 {
            faces.push(Face::Disk);
        }
        faces
    }
}

/// One case as it is being measured.
struct Measuring<'a> {
    host: &'a Host,
    case: &'a Case,
    pass: Pass,
}

/// A face of a case, with its workers.
struct Side<'a> {
    face: Face,
    bed: Option<&'a Bed>,
    team: Team,
}

impl<'a> Measuring<'a> {
    fn side(&self, face: Face, bed: Option<&'a Bed>) -> Result<Side<'a>> {
        let team = Team::start(self.host, face, bed, self.case.processes)?;
        Ok(Side { face, bed, team })
    }

    fn told(&self, work: Work) -> Pass {
        Pass { work, ..self.pass.clone() }
    }

    fn name(&self, face: Face, process: u64) -> String {
        let name = format!("{}-{}", self.case.name(), face.name());
        if self.case.is_shared() { name } else { format!("{name}.{process}") }
    }

    fn all(&self, side: &mut Side<'_>, work: Work) -> Result<Took> {
        side.team.pass(&self.told(work), |process| self.name(side.face, process))
    }

    fn first(&self, side: &mut Side<'_>, work: Work) -> Result<Took> {
        side.team.alone(&self.told(work), &self.name(side.face, 0))
    }

    fn remove(&self, side: &mut Side<'_>) -> Result<Took> {
        if self.case.is_shared() {
            self.first(side, Work::Remove)
        } else {
            self.all(side, Work::Remove)
        }
    }

    /// Everything before the first round.
    fn set_up(&self, side: &mut Side<'_>) -> Result<()> {
        if matches!(self.case.shape, Shape::Overwrite | Shape::Read | Shape::First) {
            let mut writers = self.side(side.face, side.bed)?;
            self.all(&mut writers, Work::New)?;
        }
        if self.case.shape != Shape::First {
            self.round(side)?;
        }
        side.bed.map_or(Ok(()), Bed::settle)
    }

    /// One measured pass, and what belongs to it.
    fn round(&self, side: &mut Side<'_>) -> Result<Sample> {
        if self.case.is_shared() {
            self.first(side, Work::Touch)?;
        }
        if self.case.is_by_others() {
            side.team = self.side(side.face, side.bed)?.team;
        }
        let server = side.bed.map_or(0, Bed::ran_ns);
        let took = self.all(side, self.case.work())?;
        let server = side.bed.map_or(0, Bed::ran_ns).saturating_sub(server);
        if self.case.is_fresh() {
            self.remove(side)?;
        }
        let bytes = (self.pass.bytes * self.case.processes) as f64;
        let rate = |took: Took| bytes * 1e9 / took.wall_ns.max(1) as f64;
        let own_rate = if self.case.is_shared() && side.face.is_terral() {
            let own = |process| format!("own-{}.{process}", side.face.name());
            let own_took = side.team.pass(&self.told(Work::New), own)?;
            side.team.pass(&self.told(Work::Remove), own)?;
            Some(rate(own_took))
        } else {
            None
        };
        Ok(Sample {
            rate: rate(took),
            cpu_ns: took.cpu_ns as f64 / bytes,
            server_ns: server as f64 / bytes,
            own_rate,
        })
    }

    /// One more pass, whose bytes are compared, and the end of the files.
    fn check(&self, side: &mut Side<'_>) -> Result<()> {
        if self.case.is_shared() {
            self.first(side, Work::Touch)?;
        }
        if self.case.work() != Work::Read {
            self.all(side, self.case.work())?;
        }
        if let Some(bed) = side.bed {
            let name = self.name(side.face, 0);
            bed.client.stat(name.as_bytes()).context("Terral did not serve the workers")?;
        }
        match self.case.shape {
            Shape::Segmented => self.first(side, Work::CheckSegmented)?,
            Shape::Strided => self.first(side, Work::CheckStrided)?,
            _ => self.all(side, Work::CheckOwn)?,
        };
        self.remove(side).map(drop)
    }
}

fn order(faces: usize, round: usize) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..faces).collect() } else { (0..faces).rev().collect() }
}

/// Measures a case on a server that is warm.
fn measure_warm(
    host: &Host,
    bed: &Bed,
    case: &Case,
    rounds: usize,
    bytes: u64,
) -> Result<Vec<Series>> {
    let measuring = Measuring { host, case, pass: pass(case, bytes) };
    let mut sides = Vec::new();
    for face in case.faces() {
        sides.push(measuring.side(face, face.is_terral().then_some(bed))?);
    }
    host.touch(bytes * case.processes)?;
    for side in &mut sides {
        measuring.set_up(side).with_context(|| side.face.name())?;
    }
    let mut series: Vec<Series> =
        sides.iter().map(|side| Series { face: side.face, samples: Vec::new() }).collect();
    for round in 0..rounds {
        if case.is_fresh() {
            host.touch(bytes * case.processes)?;
        }
        for at in order(sides.len(), round) {
            let sample = measuring.round(&mut sides[at]);
            series[at].samples.push(sample.with_context(|| sides[at].face.name())?);
        }
    }
    for side in &mut sides {
        measuring.check(side).with_context(|| side.face.name())?;
    }
    Ok(series)
}

/// Measures a case on a new server each time.
fn measure_cold(host: &Host, case: &Case, rounds: usize, bytes: u64) -> Result<Vec<Series>> {
    let faces = case.faces();
    let mut series: Vec<Series> =
        faces.iter().map(|face| Series { face: *face, samples: Vec::new() }).collect();
    for round in 0..rounds {
        for at in order(faces.len(), round) {
            host.touch(bytes * case.processes + (512 << 20))?;
            let face = faces[at];
            let bed = if face.is_terral() { Some(Bed::start(host, None)?) } else { None };
            let measuring = Measuring { host, case, pass: pass(case, bytes) };
            let mut side = measuring.side(face, bed.as_ref())?;
            if case.shape == Shape::Ready {
                let begin = Instant::now();
                while begin.elapsed() < COMPUTES {
                    std::hint::spin_loop();
                }
            }
            series[at].samples.push(measuring.round(&mut side).with_context(|| face.name())?);
        }
    }
    Ok(series)
}

fn pass(case: &Case, bytes: u64) -> Pass {
    let name = String::new();
    let transfer = case.transfer;
    Pass { work: case.work(), name, bytes, transfer, process: 0, processes: 1, count: 0 }
}

/// Measures a case: `bytes` per process and pass.
pub fn measure(
    host: &Host,
    bed: &Bed,
    case: &Case,
    rounds: usize,
    bytes: u64,
) -> Result<Vec<Series>> {
    let measured = if case.is_alone() {
        measure_cold(host, case, rounds, bytes)
    } else {
        measure_warm(host, bed, case, rounds, bytes)
    };
    measured.with_context(|| case.name())
}
