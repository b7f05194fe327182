//! Figures that were measured beside a reference, in the same rounds, in turn: as a table, as JSON
//! and as a page.
//!
//! Invariant: a ratio is of what was measured in the same round. Not here: measuring.

use std::fmt::Write;

use serde::Serialize;

use crate::bench_report::{Bound, Machine, Spread, bound, columns, markdown, spread, verdict};

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Of its ratio to the reference.
    Ratio(Bound),
    /// Of the figure itself.
    Value(Bound),
}

/// A figure, its reference, and what is asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// For `--cases`.
    pub case: &'static str,
    /// What it is.
    pub name: String,
    /// How much.
    pub value: Spread,
    /// Of what.
    pub unit: &'static str,
    /// What the reference is.
    pub beside: &'static str,
    /// How much that is.
    pub reference: Option<Spread>,
    /// Of the same round.
    pub ratio: Option<Spread>,
    /// What is asked for.
    pub target: Option<Asked>,
    /// Whether the median is so.
    pub met: Option<bool>,
    /// What else is to be said.
    pub note: String,
}

fn all(values: &[f64]) -> Spread {
    Spread::of(values.iter().copied())
}

impl Figure {
    /// Of some rounds.
    pub fn of(
        case: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        values: &[f64],
    ) -> Self {
        Figure {
            case,
            name: name.into(),
            value: all(values),
            unit,
            beside: "",
            reference: None,
            ratio: None,
            target: None,
            met: None,
            note: String::new(),
        }
    }

    /// With what was measured beside it, round for round.
    pub fn beside(self, what: &'static str, values: &[f64], reference: &[f64]) -> Self {
        let ratios: Vec<f64> = values.iter().zip(reference).map(|(own, its)| own / its).collect();
        let (reference, ratio) = (Some(all(reference)), Some(all(&ratios)));
        Figure { beside: what, reference, ratio, ..self }
    }

    /// With what is asked for.
    pub fn asked(self, target: Asked) -> Self {
        let met = match target {
            Asked::Ratio(bound) => self.ratio.map(|ratio| bound.is_met(ratio.median)),
            Asked::Value(bound) => Some(bound.is_met(self.value.median)),
        };
        Figure { target: Some(target), met, ..self }
    }

    /// With a remark.
    pub fn note(self, note: impl Into<String>) -> Self {
        Figure { note: note.into(), ..self }
    }

    fn target(&self) -> String {
        match self.target {
            None => String::new(),
            Some(Asked::Ratio(of)) => format!("{} ×", bound(Some(of))),
            Some(Asked::Value(of)) => format!("{} {}", bound(Some(of)), self.unit),
        }
    }

    fn cells(&self) -> [String; 9] {
        let shown = |value: &Option<Spread>| value.as_ref().map_or(String::new(), spread);
        [
            self.case.into(),
            self.name.clone(),
            format!("{} {}", spread(&self.value), self.unit),
            self.beside.into(),
            shown(&self.reference),
            shown(&self.ratio),
            self.target(),
            verdict(self.met).into(),
            self.note.clone(),
        ]
    }

    /// For people who wait.
    pub fn line(&self) -> String {
        let mut text = format!("{}: {} {}", self.name, spread(&self.value), self.unit);
        if let Some(ratio) = &self.ratio {
            let _ = write!(text, ", {} × {}", spread(ratio), self.beside);
        }
        text
    }
}

const HEAD: [&str; 9] =
    ["case", "figure", "value", "beside", "its value", "ratio", "target", "met", "note"];

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// This machine.
    pub machine: Machine,
    /// All, this one first.
    pub hosts: Vec<String>,
    /// Bytes per process.
    pub size_bytes: u64,
    /// Names per process.
    pub names: u64,
    /// Rounds that count.
    pub rounds: usize,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What could not be, and why.
    pub missing: Vec<String>,
}

impl Beside {
    fn cells(&self) -> Vec<[String; 9]> {
        self.figures.iter().map(Figure::cells).collect()
    }

    fn verdict(&self) -> String {
        let asked = self.figures.iter().filter_map(|figure| figure.met);
        let (met, missed): (Vec<bool>, Vec<bool>) = asked.partition(|met| *met);
        format!("{} of {} targets met", met.len(), met.len() + missed.len())
    }

    fn not_measured(&self) -> String {
        self.missing.iter().fold(String::new(), |text, why| text + "not measured: " + why + "\n")
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let table = columns(HEAD, &self.cells());
        format!("{table}\n{}{}\n", self.not_measured(), self.verdict())
    }

    /// For Markdown.
    pub fn page(&self) -> String {
        let machine = &self.machine;
        format!(
            "# Benchmarks over {} machines\n\nWritten by `terral bench --hosts {}`. First machine: \
             {}, {} cores, {:.0} GiB, Linux {}; {} UTC; load before: {:.1}. {} rounds, {} MiB and \
             {} names a process.\n\n{READ}\n{}\n{}{}\n",
            self.hosts.len(),
            self.hosts.join(","),
            machine.processor,
            machine.cores,
            machine.memory_bytes as f64 / (1u64 << 30) as f64,
            machine.kernel,
            machine.date,
            machine.load,
            self.rounds,
            self.size_bytes >> 20,
            self.names,
            markdown(HEAD, &self.cells()),
            self.not_measured(),
            self.verdict()
        )
    }
}

const READ: &str = "\
Each figure is the median of the rounds, least and greatest in brackets; a first round is not
counted. GB/s are 10⁹ bytes. What is beside a figure was measured in the same round, in turn; the
ratio is of the same round. Programs are processes under the preload library that were started on
each machine as a launcher does, by real servers of a real run; each says by its own clock how
long it took. `frames` are those between servers that ask, answer or tell something, counted by
the servers; what keeps leases and sessions is not among them. `alone`: a server that is no member
of anything, on the first machine, and one process. `socket copy`: the same bytes from the same
machine to the same other over one plain TCP connection, by 1 MiB; `rustls copy`: the same through
rustls, with the same cipher suite. What was written on several machines is read back and
compared, byte by byte.
";

#[cfg(test)]
mod tests {
    use super::{Asked, Figure};
    use crate::bench_report::Bound;

    #[test]
    fn a_ratio_is_of_the_same_round_and_decides() {
        let (own, its) = ([1.0, 4.0, 9.0], [2.0, 4.0, 6.0]);
        let figure = Figure::of("a", "b", "GB/s", &own).beside("c", &own, &its);
        assert_eq!(figure.ratio.map(|ratio| (ratio.min, ratio.max)), Some((0.5, 1.5)));
        let met = |asked| figure.clone().asked(asked).met;
        assert_eq!(met(Asked::Ratio(Bound::AtLeast(1.0))), Some(true));
        assert_eq!(met(Asked::Ratio(Bound::AtLeast(1.1))), Some(false));
        assert_eq!(met(Asked::Value(Bound::Below(4.0))), Some(false));
    }
}
