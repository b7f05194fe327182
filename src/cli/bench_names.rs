//! Names per second: files created and closed, asked for and removed, by one process and by two, in
//! directories of their own and in one that they share.

use anyhow::{Context, Result};

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact, Spread};
use crate::bench_worker::{Pass, Work};

const FACES: [Face; 3] = [Face::Tmpfs, Face::Client, Face::Preload];
/// What is done, as the tables name it, and its least ratio to tmpfs.
const WORKS: [(Work, &str, f64); 3] = [
    (Work::CreateMany, "create + close", 0.5),
    (Work::StatMany, "stat", 1.0),
    (Work::RemoveMany, "unlink", 0.5),
];

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

    /// Names per second, by face, work and round.
    fn measure(&self, host: &Host, bed: &Bed, effort: &Effort) -> Result<[[Vec<f64>; 3]; 3]> {
        let mut teams = Vec::new();
        for face in FACES {
            self.make_directories(host, bed, face)?;
            teams.push(Team::start(host, face, Some(bed), self.processes)?);
        }
        let mut rates: [[Vec<f64>; 3]; 3] = Default::default();
        // The first round is for what exists once: connections, tables.
        for round in 0..effort.rounds + 1 {
            let mut order = [0, 1, 2];
            if !round.is_multiple_of(2) {
                order.reverse();
            }
            for at in order {
                for (work, rates) in WORKS.iter().zip(&mut rates[at]) {
                    let pass = Pass { count: effort.names, ..writing(work.0, 0) };
                    let name =
                        |process| format!("{}/n{process}", self.directory(FACES[at], process));
                    let took = teams[at].pass(&pass, name)?;
                    let names = (effort.names * self.processes) as f64;
                    rates.push(names * 1e9 / took.wall_ns.max(1) as f64);
                }
            }
        }
        for face in FACES {
            self.remove_directories(host, bed, face)?;
        }
        Ok(rates.map(|of_face| of_face.map(|rates| rates[1..].to_vec())))
    }
}

/// Measures all of it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let mut facts = Vec::new();
    for layout in LAYOUTS {
        let rates = layout.measure(host, &bed, effort).context(layout.name)?;
        for (at, (_, what, least)) in WORKS.into_iter().enumerate() {
            let tmpfs = &rates[0][at];
            for (face, rates) in FACES.into_iter().zip(&rates).skip(1) {
                let own = &rates[at];
                let ratio = Spread::of(own.iter().zip(tmpfs).map(|(own, tmpfs)| own / tmpfs));
                let name = format!("{what}, {}, {}", layout.name, face.name());
                let target = (face == Face::Preload).then_some(Bound::AtLeast(least));
                let per_second = |rates: &[f64]| {
                    let spread = Spread::of(rates.iter().copied());
                    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
                };
                facts.push(Fact::new(&name, ratio.median, "× tmpfs", target).note(format!(
                    "{} against {} a second, {} names each",
                    per_second(own),
                    per_second(tmpfs),
                    effort.names
                )));
            }
        }
    }
    Ok(facts)
}
