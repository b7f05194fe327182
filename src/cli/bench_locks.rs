//! Locks per second: taken and given back with nobody in the way, and passed to and fro between two
//! processes; on a quiet machine, and while its cores compute.

use anyhow::{Context, Result};

use crate::bench_busy::Load;
use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_place::Locking;
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Work};

const FACES: [Face; 2] = [Face::Tmpfs, Face::Preload];

/// What is done.
struct Kind {
    how: Locking,
    name: &'static str,
    processes: u64,
    /// Times in a round.
    count: u64,
    /// Least ratio to tmpfs, quiet and busy.
    least: (f64, f64),
}

const KINDS: [Kind; 5] = [
    Kind::taken(Locking::Fcntl, "fcntl lock + unlock, 1 process", 1),
    Kind::taken(Locking::Fcntl, "fcntl lock + unlock, 2 processes", 2),
    Kind::taken(Locking::Flock, "flock lock + unlock, 1 process", 1),
    Kind::taken(Locking::Flock, "flock lock + unlock, 2 processes", 2),
    Kind {
        how: Locking::Pass,
        name: "lock passed to and fro",
        processes: 2,
        count: 3_000,
        least: (0.3, 0.3),
    },
];

impl Kind {
    const fn taken(how: Locking, name: &'static str, processes: u64) -> Kind {
        Kind { how, name, processes, count: 50_000, least: (0.5, 0.4) }
    }

    fn round(&self, team: &mut Team, face: Face) -> Result<f64> {
        let pass = Pass { count: self.count, ..writing(Work::Lock(self.how), 0) };
        let own = |process| if self.how == Locking::Pass { 0 } else { process };
        let took = team.pass(&pass, |process| format!("locks-{}-{}", face.name(), own(process)))?;
        Ok(took.wall_ns as f64 / self.count as f64)
    }

    fn measure(&self, host: &Host, bed: &Bed, effort: &Effort, load: Load) -> Result<Fact> {
        let mut teams = Vec::new();
        for face in FACES {
            teams.push(Team::start(host, face, Some(bed), self.processes)?);
        }
        let mut times: [Vec<f64>; 2] = Default::default();
        let loops = load.begin()?;
        for at in 0..effort.rounds + 1 {
            let order = if at.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for side in order {
                times[side].push(self.round(&mut teams[side], FACES[side])?);
            }
        }
        drop(loops);
        let ns = |times: &[f64]| {
            // The first round is for what exists once.
            let spread = Spread::of(times.iter().skip(1).copied());
            format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
        };
        let [tmpfs, own] = &times;
        let ratio = Spread::of(tmpfs.iter().zip(own).skip(1).map(|(tmpfs, own)| tmpfs / own));
        let least = if load == Load::Busy { self.least.1 } else { self.least.0 };
        let name = format!("{}{}", self.name, load.suffix());
        let fact = Fact::new(&name, ratio.median, "× tmpfs", Some(Bound::AtLeast(least)));
        Ok(fact.note(format!("{} against {} ns each, preload", ns(own), ns(tmpfs))))
    }
}

/// Measures all of it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut facts = Vec::new();
    for load in Load::ALL {
        for kind in &KINDS {
            facts.push(kind.measure(host, &bed, effort, load).context(kind.name)?);
        }
    }
    Ok(facts)
}
