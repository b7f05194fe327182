//! What was measured, as a table, as JSON and as a page of the documentation.
//!
//! Not here: measuring.

use std::fmt::Write;

use serde::Serialize;

use crate::bench_cases::{Case, Sample, Series, Shape};
use crate::bench_host::Face;

/// Least share of the rate of a file per process that one shared file must reach.
const SHARED_LEAST: f64 = 0.9;
const GIB: f64 = (1u64 << 30) as f64;

/// Median and extremes of some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        assert!(!sorted.is_empty(), "a case has rounds");
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Spread { median: f64::midpoint(low, high), min, max }
    }
}

/// A case through one face.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case.
    pub case: String,
    /// Its shape.
    pub shape: Shape,
    /// Bytes per call.
    pub transfer_bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Whose files.
    pub face: Face,
    /// GB/s (10⁹) of tmpfs in the same rounds.
    pub tmpfs: Spread,
    /// GB/s of this face.
    pub rate: Spread,
    /// Ratio to tmpfs of the same round.
    pub ratio: Spread,
    /// Least ratio asked for.
    pub target: Option<f64>,
    /// Share of this face's own rate with a file per process, for a shared file.
    pub of_own: Option<f64>,
    /// Whether all that is asked for was reached; `None` if nothing is.
    pub met: Option<bool>,
    /// Processor seconds per GiB of the workers, median.
    pub cpu_s_per_gib: f64,
    /// The same of tmpfs's workers.
    pub tmpfs_cpu_s_per_gib: f64,
    /// The same of the server.
    pub server_s_per_gib: f64,
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    Spread::of(samples.iter().map(of)).median
}

/// The rows of a case: one for each face but tmpfs, which all have beside them.
pub fn rows(case: &Case, series: &[Series]) -> Vec<Row> {
    let Some(tmpfs) = series.iter().find(|series| series.face == Face::Tmpfs) else {
        return Vec::new();
    };
    let row = |other: &Series| {
        let ratios = other.samples.iter().zip(&tmpfs.samples).map(|(own, at)| own.rate / at.rate);
        let ratio = Spread::of(ratios);
        let target = case.target.filter(|_| other.face.is_terral());
        let per_gib = GIB / 1e9;
        let shares = other.samples.iter().filter_map(|own| Some(own.rate / own.own_rate?));
        let shares: Vec<f64> = shares.collect();
        let of_own = (!shares.is_empty()).then(|| Spread::of(shares.into_iter()).median);
        Row {
            case: case.name(),
            shape: case.shape,
            transfer_bytes: case.transfer,
            processes: case.processes,
            face: other.face,
            tmpfs: Spread::of(tmpfs.samples.iter().map(|sample| sample.rate / 1e9)),
            rate: Spread::of(other.samples.iter().map(|sample| sample.rate / 1e9)),
            ratio,
            target,
            of_own,
            met: target.map(|target| {
                ratio.median >= target && of_own.is_none_or(|share| share >= SHARED_LEAST)
            }),
            cpu_s_per_gib: median(&other.samples, |sample| sample.cpu_ns) * per_gib,
            tmpfs_cpu_s_per_gib: median(&tmpfs.samples, |sample| sample.cpu_ns) * per_gib,
            server_s_per_gib: median(&other.samples, |sample| sample.server_ns) * per_gib,
        }
    };
    series.iter().filter(|series| series.face != Face::Tmpfs).map(row).collect()
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Less.
    Below(f64),
}

impl Bound {
    /// Whether a figure is so.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::Below(limit) => value < limit,
        }
    }
}

/// A figure that is not a rate beside tmpfs.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What is asked for.
    pub target: Option<Bound>,
    /// Whether it is reached.
    pub met: Option<bool>,
    /// What it is made of.
    pub note: String,
}

impl Fact {
    /// A figure with what is asked of it.
    pub fn new(name: &str, value: f64, unit: &'static str, target: Option<Bound>) -> Self {
        let met = target.map(|bound| bound.is_met(value));
        Fact { name: name.into(), value, unit, target, met, note: String::new() }
    }

    /// The same with a remark.
    pub fn note(self, note: impl Into<String>) -> Self {
        Fact { note: note.into(), ..self }
    }
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Processor.
    pub processor: String,
    /// How many we may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// When, UTC.
    pub date: String,
    /// Average number of running processes before we began.
    pub load: f64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where and when.
    pub machine: Machine,
    /// Bytes per process and pass.
    pub size_bytes: u64,
    /// Rounds.
    pub rounds: usize,
    /// Beside tmpfs.
    pub rows: Vec<Row>,
    /// Everything else.
    pub facts: Vec<Fact>,
}

/// Whether what was asked for was reached, for people.
pub fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    }
}

/// Three digits that matter.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The middle one, and the extremes.
pub fn spread(spread: &Spread) -> String {
    format!("{} ({}–{})", number(spread.median), number(spread.min), number(spread.max))
}

/// What is asked for.
pub fn bound(bound: Option<Bound>) -> String {
    match bound {
        Some(Bound::AtLeast(least)) => format!("≥ {}", number(least)),
        Some(Bound::AtMost(most)) => format!("≤ {}", number(most)),
        Some(Bound::Below(limit)) => format!("< {}", number(limit)),
        None => String::new(),
    }
}

impl Row {
    fn cells(&self) -> [String; 9] {
        let target = self.target.map_or(String::new(), |target| format!("≥ {}", number(target)));
        [
            self.case.clone(),
            self.face.name().into(),
            spread(&self.tmpfs),
            spread(&self.rate),
            spread(&self.ratio),
            target,
            self.of_own.map_or(String::new(), number),
            verdict(self.met).into(),
            format!(
                "{} + {} / {}",
                number(self.cpu_s_per_gib),
                number(self.server_s_per_gib),
                number(self.tmpfs_cpu_s_per_gib)
            ),
        ]
    }
}

const ROW_HEAD: [&str; 9] = [
    "case",
    "face",
    "tmpfs GB/s",
    "GB/s",
    "ratio",
    "target",
    "of own",
    "met",
    "CPU s/GiB (worker + server / tmpfs)",
];
const FACT_HEAD: [&str; 6] = ["figure", "value", "unit", "target", "met", "from"];

impl Fact {
    fn cells(&self) -> [String; 6] {
        [
            self.name.clone(),
            number(self.value),
            self.unit.into(),
            bound(self.target),
            verdict(self.met).into(),
            self.note.clone(),
        ]
    }
}

/// Columns under their heads, for a terminal.
pub fn columns<const N: usize>(head: [&str; N], cells: &[[String; N]]) -> String {
    let width = |at: usize| {
        let longest = cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        longest.max(head[at].chars().count())
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(head.map(str::to_owned)).chain(cells.iter().cloned()) {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let missing = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(missing))
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The same, for Markdown.
pub fn markdown<const N: usize>(head: [&str; N], cells: &[[String; N]]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in cells {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

impl Report {
    /// Names of what is below its target, and by how much.
    pub fn missed(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.met == Some(false)).map(|row| {
            let target = row.target.unwrap_or_default();
            let ratio = number(row.ratio.median);
            let mut line =
                format!("{} {}: {ratio} of {}", row.case, row.face.name(), number(target));
            if let Some(share) = row.of_own.filter(|share| *share < SHARED_LEAST) {
                let _ = write!(line, ", {} of its own file per process", number(share));
            }
            line
        });
        let facts = self.facts.iter().filter(|fact| fact.met == Some(false)).map(|fact| {
            let (value, target) = (number(fact.value), bound(fact.target));
            format!("{}: {value} {}, asked for {target}", fact.name, fact.unit)
        });
        rows.chain(facts).collect()
    }

    fn cells(&self) -> (Vec<[String; 9]>, Vec<[String; 6]>) {
        let rows = self.rows.iter().map(Row::cells).collect();
        (rows, self.facts.iter().map(Fact::cells).collect())
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let (rows, facts) = self.cells();
        let mut text = String::new();
        if !rows.is_empty() {
            let _ = writeln!(text, "{}", columns(ROW_HEAD, &rows));
        }
        if !facts.is_empty() {
            let _ = writeln!(text, "{}", columns(FACT_HEAD, &facts));
        }
        let asked = self.rows.iter().map(|row| row.met).chain(self.facts.iter().map(|f| f.met));
        let asked = asked.flatten().count();
        let _ = writeln!(text, "{} of {asked} targets met", asked - self.missed().len());
        text
    }

    /// All of it as a page.
    pub fn page(&self) -> String {
        let (rows, facts) = self.cells();
        let machine = &self.machine;
        let mut text = String::from("# Benchmarks\n\n");
        let _ = writeln!(
            text,
            "Written by `make bench` (`bench --markdown`). Machine: {}, {} cores, {:.0} GiB, \
             Linux {}; {} UTC; load before: {:.1}. {} rounds, {} MiB each.\n",
            machine.processor,
            machine.cores,
            machine.memory_bytes as f64 / GIB,
            machine.kernel,
            machine.date,
            machine.load,
            self.rounds,
            self.size_bytes >> 20
        );
        if machine.load > machine.cores as f64 / 4.0 {
            text.push_str("The machine had other work to do: these figures are noisy.\n\n");
        }
        text.push_str(HOW_TO_READ);
        let missed = self.missed();
        text.push_str("\n## Targets missed\n\n");
        if missed.is_empty() {
            text.push_str("None of those measured.\n");
        }
        for line in missed {
            let _ = writeln!(text, "* {line}");
        }
        let _ = write!(text, "\n## Beside tmpfs\n\n{}", markdown(ROW_HEAD, &rows));
        let _ = write!(text, "\n## Everything else\n\n{}", markdown(FACT_HEAD, &facts));
        text
    }
}

const HOW_TO_READ: &str = "\
## How to read it

Each figure is the median of the rounds, least and greatest in brackets; GB/s are 10⁹ bytes. All
faces of a case are measured in the same rounds, in turn, forwards and backwards: `tmpfs` is
`/dev/shm` with POSIX calls, `client` Terral through its library, `preload` the same POSIX
program as for tmpfs under `libterral_preload.so`, `disk` the directory given by `--to`, page
cache included. The ratio is that to tmpfs *of the same round*. Memory is taken and given back
before each round, since a virtual machine may have returned freed pages to its host. Processes
begin together; a rate is all bytes over the time from the first begin to the last end, opening
and closing included. What Terral stored is read back and compared after the last round.

`new`: a new file per process and pass, removed outside the measured time. `fresh`: the same by
new processes each time. `cold`: a new file as the first bytes of a new server; `ready`: the same
after a core has computed for a second. `overwrite`: an existing file, whole. `segmented`,
`strided`: one new file shared by all. `read`: by processes other than the writer, which have read
it before; `first-read`: which have not. `of own`: beside a new file per process of the same face
and transfer, in the same rounds; at least 0.9 is asked for.

Among everything else, names a second, `tar`, `git status` and `make` are measured beside tmpfs in
turn too, with unchanged programs under the preload library; a first round fills caches and is not
counted. `1 process` and `own directories`: no two processes create names in one directory.
`busy`: with an endless loop on each core beside it, at normal priority.

Whether one build is as fast as another `bench --against PROGRAM` says: both measure the same cases,
case by case in turn, several times, and this build once more beside itself. Each figure of a run,
ratio to tmpfs or else as it is printed, has a ratio to that of the other build's run in the same
round, above 1 where this build is better; their geometric mean has a 95 % interval (Student's t on
the logarithms). A figure got worse if all of it lies below 0.97, all of them if their geometric
mean is below 0.98. What `this build to itself` shows is chance.
";

#[cfg(test)]
mod tests {
    use super::{Bound, Fact, Spread, columns, number};

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0].into_iter());
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 10.0));
        assert_eq!(Spread::of([7.0].into_iter()).median, 7.0);
    }

    #[test]
    fn bounds_decide() {
        assert_eq!(Fact::new("a", 0.8, "×", Some(Bound::AtLeast(0.8))).met, Some(true));
        assert_eq!(Fact::new("a", 50.0, "ms", Some(Bound::Below(50.0))).met, Some(false));
        assert_eq!(Fact::new("a", 1.0, "ticks", Some(Bound::AtMost(0.0))).met, Some(false));
        assert_eq!(Fact::new("a", 1.0, "s", None).met, None);
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let text = columns(["a", "long"], &[["xxx".into(), "1".into()]]);
        assert_eq!(text, "a    long\nxxx  1\n");
        assert_eq!(
            [0.0, 1234.5, 12.34, 0.1234, 0.01234].map(number),
            ["0", "1234", "12.3", "0.12", "0.012"]
        );
    }
}
