//! Names per second: files made, opened, asked for, renamed and removed, directories made and
//! removed, by one process and by two, in directories of their own and in one that they share; on a
//! quiet machine, and while its cores compute.

use anyhow::{Context, Result};

use crate::bench_busy::Load;
use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Work, renamed};

const FACES: [Face; 3] = [Face::Tmpfs, Face::Client, Face::Preload];

/// What is done.
struct Kind {
    work: Work,
    /// As the tables name it.
    name: &'static str,
    /// Least ratio to tmpfs, quiet and busy.
    least: (f64, f64),
    /// Whether to the names that a rename gave.
    after_rename: bool,
}

const fn kind(work: Work, name: &'static str, least: (f64, f64)) -> Kind {
    Kind { work, name, least, after_rename: false }
}

const KINDS: [Kind; 7] = [
    kind(Work::CreateMany, "create + close", (0.5, 0.4)),
    kind(Work::OpenMany, "open + close", (0.6, 0.4)),
    kind(Work::StatMany, "stat", (1.0, 0.4)),
    kind(Work::RenameMany, "rename", (0.6, 0.3)),
    Kind { after_rename: true, ..kind(Work::RemoveMany, "unlink", (0.5, 0.4)) },
    kind(Work::MakeDirectories, "mkdir", (0.6, 0.3)),
    kind(Work::RemoveDirectories, "rmdir", (0.6, 0.3)),
];

/// Names a second, by kind and round.
type Rates = [Vec<f64>; KINDS.len()];

/// Who works where.
#[derive(Clone, Copy)]
struct Layout {
    processes: u64,
    shared: bool,
    name: &'static str,
}

const LAYOUTS: [Layout; 3] = [
    Layout { processes: 1, shared: false, name: "1 process" },
    Layout { processes: 2, shared: false, name: "2 processes, own directories" },
    Layout { processes: 2, shared: true, name: "2 processes, one directory" },
];

impl Layout {
    fn directory(&self, face: Face, process: u64) -> String {
        let process = if self.shared { 0 } else { process };
        format!("names-{}-{}{process}", face.name(), u8::from(self.shared))
    }

    fn make_directories(&self, host: &Host, bed: &Bed, face: Face) -> Result<()> {
        for process in 0..if self.shared { 1 } else { self.processes } {
            let name = self.directory(face, process);
            if face.is_terral() {
                bed.client.make_directory(name.as_bytes(), 0o755)?;
            } else {
                let path = host.root(face).join(name);
                std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn remove_directories(&self, host: &Host, bed: &Bed, face: Face) -> Result<()> {
        for process in 0..if self.shared { 1 } else { self.processes } {
            let name = self.directory(face, process);
            if face.is_terral() {
                bed.client.remove_directory(name.as_bytes())?;
            } else {
                let path = host.root(face).join(name);
                std::fs::remove_dir(&path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn pass(&self, team: &mut Team, face: Face, kind: &Kind, count: u64) -> Result<f64> {
        let pass = Pass { count, ..writing(kind.work, 0) };
        let name = |process| {
            let name = format!("{}/n{process}", self.directory(face, process));
            if kind.after_rename { renamed(&name) } else { name }
        };
        let took = team.pass(&pass, name)?;
        Ok((count * self.processes) as f64 * 1e9 / took.wall_ns.max(1) as f64)
    }

    /// By face.
    fn measure(&self, host: &Host, bed: &Bed, effort: &Effort) -> Result<[Rates; 3]> {
        let mut teams = Vec::new();
        for face in FACES {
            self.make_directories(host, bed, face)?;
            teams.push(Team::start(host, face, Some(bed), self.processes)?);
        }
        let mut rates: [Rates; 3] = Default::default();
        // The first round is for what exists once: connections, tables.
        for round in 0..effort.rounds + 1 {
            let mut order = [0, 1, 2];
            if !round.is_multiple_of(2) {
                order.reverse();
            }
            for at in order {
                for (kind, rates) in KINDS.iter().zip(&mut rates[at]) {
                    let rate = self.pass(&mut teams[at], FACES[at], kind, effort.names);
                    rates.push(rate.with_context(|| kind.name)?);
                }
            }
        }
        for face in FACES {
            self.remove_directories(host, bed, face)?;
        }
        Ok(rates.map(|of_face| of_face.map(|rates| rates[1..].to_vec())))
    }

    fn facts(&self, rates: &[Rates; 3], load: Load, effort: &Effort) -> Vec<Fact> {
        let per_second = |rates: &[f64]| {
            let spread = Spread::of(rates.iter().copied());
            format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
        };
        let mut facts = Vec::new();
        for (at, kind) in KINDS.iter().enumerate() {
            let tmpfs = &rates[0][at];
            for (face, rates) in FACES.into_iter().zip(rates).skip(1) {
                let own = &rates[at];
                let ratio = Spread::of(own.iter().zip(tmpfs).map(|(own, tmpfs)| own / tmpfs));
                let name =
                    format!("{}, {}, {}{}", kind.name, self.name, face.name(), load.suffix());
                let least = if load == Load::Busy { kind.least.1 } else { kind.least.0 };
                let target = (face == Face::Preload).then_some(Bound::AtLeast(least));
                facts.push(Fact::new(&name, ratio.median, "× tmpfs", target).note(format!(
                    "{} against {} a second, {} names each",
                    per_second(own),
                    per_second(tmpfs),
                    effort.names
                )));
            }
        }
        facts
    }
}

/// Measures all of it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut facts = Vec::new();
    for load in Load::ALL {
        // What waits for a time slice is slow enough to be seen with fewer.
        let names = if load == Load::Busy { effort.names / 4 } else { effort.names };
        let effort = Effort { names, ..*effort };
        for layout in LAYOUTS {
            let loops = load.begin()?;
            let rates = layout.measure(host, &bed, &effort).context(layout.name)?;
            drop(loops);
            facts.extend(layout.facts(&rates, load, &effort));
        }
    }
    Ok(facts)
}
