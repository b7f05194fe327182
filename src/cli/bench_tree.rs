//! A tree of directories and small files, as mdtest works on one: made, asked for, read, renamed
//! and removed; on a quiet machine, and while its cores compute.

use anyhow::{Context, Result};

use crate::bench_busy::Load;
use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Step, Work};

const FACES: [Face; 2] = [Face::Tmpfs, Face::Preload];
/// Directories and files of each process.
const NAMES: u64 = 2000;
/// Bytes of each file: as in IO500's mdtest-hard.
const BYTES: u64 = 3901;
const LEAST: f64 = 0.4;
const STEPS: [(Step, &str); 5] = [
    (Step::Make, "make"),
    (Step::Stat, "stat"),
    (Step::Read, "read"),
    (Step::Rename, "rename"),
    (Step::Remove, "remove"),
];

/// Seconds, by step and round.
type Times = [Vec<f64>; STEPS.len()];

fn round(team: &mut Team, face: Face, times: &mut Times) -> Result<()> {
    for ((step, name), times) in STEPS.iter().zip(times) {
        let pass = Pass { count: NAMES, ..writing(Work::Tree(*step), BYTES) };
        let took = team.pass(&pass, |process| format!("tree-{}-{process}", face.name()));
        times.push(took.with_context(|| *name)?.wall_ns as f64 / 1e9);
    }
    Ok(())
}

fn one(host: &Host, bed: &Bed, effort: &Effort, processes: u64, load: Load) -> Result<Vec<Fact>> {
    let mut teams = Vec::new();
    for face in FACES {
        teams.push(Team::start(host, face, Some(bed), processes)?);
    }
    let mut times: [Times; 2] = Default::default();
    let loops = load.begin()?;
    for at in 0..effort.rounds + 1 {
        let order = if at.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for side in order {
            round(&mut teams[side], FACES[side], &mut times[side])?;
        }
    }
    drop(loops);
    let ms = |times: &[f64]| {
        let spread = Spread::of(times.iter().skip(1).map(|seconds| seconds * 1e3));
        format!("{:.1} ({:.1}–{:.1})", spread.median, spread.min, spread.max)
    };
    let [tmpfs, own] = &times;
    let facts = STEPS.iter().zip(tmpfs).zip(own).map(|(((_, step), tmpfs), own)| {
        // The first round is for what exists once.
        let ratio = Spread::of(tmpfs.iter().zip(own).skip(1).map(|(tmpfs, own)| tmpfs / own));
        let plural = if processes == 1 { "" } else { "es" };
        let name = format!("tree, {step}, {processes} process{plural}{}", load.suffix());
        Fact::new(&name, ratio.median, "× tmpfs", Some(Bound::AtLeast(LEAST))).note(format!(
            "{} against {} ms, {NAMES} directories and files each, preload",
            ms(own),
            ms(tmpfs)
        ))
    });
    Ok(facts.collect())
}

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut facts = Vec::new();
    for load in Load::ALL {
        for processes in [1, 2] {
            facts.extend(one(host, &bed, effort, processes, load)?);
        }
    }
    Ok(facts)
}
