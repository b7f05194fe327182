//! What runs of two builds in turn say: for each figure how many times as good one build is as the
//! other, by round, with a 95 % interval; and whether it got worse.
//!
//! A ratio above 1 is better, whatever the figure's unit. Intervals are Student's t on the
//! logarithms of the rounds' ratios. Not here: the runs.

use std::fmt::Write;

use serde::Serialize;

use crate::bench_report::columns;

/// A figure got worse where all of its interval is below this.
const WORSE: f64 = 0.97;
/// All of them did where their geometric mean is below this.
const ALL_WORSE: f64 = 0.98;

/// Half of a 95 % interval in standard errors, by degrees of freedom from 1 on (Student's t).
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A ratio, and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Geometric mean of the rounds.
    pub mean: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Of the ratios of at least two rounds, all above 0. `None`: there are fewer, or others.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let sound = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
        if ratios.len() < 2 || !ratios.iter().all(sound) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| libm::log(*ratio)).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = T_95[(logs.len() - 2).min(T_95.len() - 1)] * error;
        Some(Interval {
            mean: libm::exp(mean),
            low: libm::exp(mean - half),
            high: libm::exp(mean + half),
        })
    }

    fn shown(&self) -> String {
        format!("{:.3} ({:.3}–{:.3})", self.mean, self.low, self.high)
    }
}

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name: a case and its face, or what a fact is called.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Whether more is better.
    pub more_is_better: bool,
}

/// A figure in all runs: by round, of this build, of this build once more, and of the other one.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    name: String,
    more_is_better: bool,
    values: [Vec<f64>; 3],
}

/// Whose run it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This build's.
    Own,
    /// This build's once more.
    Again,
    /// The other build's.
    Other,
}

impl Side {
    /// All.
    pub const ALL: [Side; 3] = [Side::Own, Side::Again, Side::Other];
}

/// All figures of all runs.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Rounds>);

impl Runs {
    /// A run had this figure.
    pub fn add(&mut self, side: Side, figure: Figure) {
        let known = self.0.iter().position(|rounds| rounds.name == figure.name);
        let at = known.unwrap_or_else(|| {
            let Figure { name, more_is_better, .. } = figure;
            self.0.push(Rounds { name, more_is_better, ..Rounds::default() });
            self.0.len() - 1
        });
        self.0[at].values[side as usize].push(figure.value);
    }

    /// What they say. What was 0 or below somewhere, or not there in each run, has no ratio.
    pub fn compare(&self, against: &str, rounds: usize) -> Comparison {
        let mut comparison = Comparison { against: against.into(), rounds, ..Default::default() };
        let mut means = (Vec::new(), Vec::new());
        for figure in &self.0 {
            let (pair, same) = (figure.ratios(Side::Other), figure.ratios(Side::Again));
            let whole = pair.len() == rounds && same.len() == rounds;
            let intervals = Interval::of(&pair).zip(Interval::of(&same)).filter(|_| whole);
            let Some((ratio, same)) = intervals else {
                comparison.without.push(figure.name.clone());
                continue;
            };
            means.0.push(ratio.mean);
            means.1.push(same.mean);
            let (name, worse) = (figure.name.clone(), ratio.high < WORSE);
            comparison.figures.push(Compared { name, ratio, same, worse });
        }
        comparison.mean = geometric_mean(&means.0);
        comparison.mean_of_same = geometric_mean(&means.1);
        comparison
    }
}

impl Rounds {
    /// How many times as good this build was as that run, by round.
    fn ratios(&self, than: Side) -> Vec<f64> {
        let (own, other) = (&self.values[Side::Own as usize], &self.values[than as usize]);
        let ratio = |(own, other): (&f64, &f64)| {
            if self.more_is_better { own / other } else { other / own }
        };
        if own.len() == other.len() { own.iter().zip(other).map(ratio).collect() } else { vec![] }
    }
}

/// 1 for none.
fn geometric_mean(ratios: &[f64]) -> f64 {
    let logs: f64 = ratios.iter().map(|ratio| libm::log(*ratio)).sum();
    libm::exp(logs / ratios.len().max(1) as f64)
}

/// A figure of both builds.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// This build beside the other.
    pub ratio: Interval,
    /// This build beside itself: what chance does.
    pub same: Interval,
    /// All of the interval is below what is let pass.
    pub worse: bool,
}

/// What runs of two builds in turn say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// The other build.
    pub against: String,
    /// Runs of each.
    pub rounds: usize,
    /// What both have.
    pub figures: Vec<Compared>,
    /// What has no ratio: not in each run, 0 or less.
    pub without: Vec<String>,
    /// Geometric mean of all ratios.
    pub mean: f64,
    /// The same of this build beside itself.
    pub mean_of_same: f64,
}

impl Comparison {
    /// Whether this build is worse than the other.
    pub fn is_worse(&self) -> bool {
        self.mean < ALL_WORSE || self.figures.iter().any(|figure| figure.worse)
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let cells: Vec<[String; 4]> = self.figures.iter().map(Compared::cells).collect();
        let mut text = columns(["figure", "ratio", "this build to itself", ""], &cells);
        let worse = self.figures.iter().filter(|figure| figure.worse).count();
        let _ = writeln!(
            text,
            "\n{} rounds against {}; above 1 is better; 95 % intervals\n\
             geometric mean {:.3}, of this build to itself {:.3}; {worse} of {} figures worse",
            self.rounds,
            self.against,
            self.mean,
            self.mean_of_same,
            self.figures.len()
        );
        if !self.without.is_empty() {
            let _ = writeln!(text, "not compared: {}", self.without.join("; "));
        }
        text
    }
}

impl Compared {
    fn cells(&self) -> [String; 4] {
        let verdict = if self.worse { "WORSE" } else { "" };
        [self.name.clone(), self.ratio.shown(), self.same.shown(), verdict.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Interval, Runs, Side};

    fn runs(rounds: &[[f64; 3]], more_is_better: bool) -> Runs {
        let mut runs = Runs::default();
        for round in rounds {
            for (side, value) in Side::ALL.into_iter().zip(round) {
                let figure = Figure { name: "a".into(), value: *value, more_is_better };
                runs.add(side, figure);
            }
        }
        runs
    }

    #[test]
    fn an_interval_is_students() {
        // ln 1, ln 2, ln 4: mean ln 2, standard error ln 2 / √3, t of 2 degrees 4.303.
        let found = Interval::of(&[1.0, 2.0, 4.0]).expect("three rounds");
        let half = 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((found.mean - 2.0).abs() < 1e-9, "{found:?}");
        assert!((found.high.ln() - 2f64.ln() - half).abs() < 1e-9, "{found:?}");
        assert!((found.low.ln() - 2f64.ln() + half).abs() < 1e-9, "{found:?}");
        let same = Interval::of(&[1.5; 40]).expect("forty rounds");
        assert!((same.high - same.low).abs() < 1e-9 && (same.mean - 1.5).abs() < 1e-9);
        assert_eq!(Interval::of(&[1.0]), None);
        assert_eq!(Interval::of(&[1.0, 0.0]), None);
        assert_eq!(Interval::of(&[1.0, -2.0]), None);
        assert_eq!(Interval::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn worse_is_what_lies_below_with_all_of_its_interval() {
        let below = [[0.90, 0.91, 1.0], [0.91, 0.90, 1.0], [0.90, 0.90, 1.0]];
        let found = runs(&below, true).compare("b", 3);
        assert!(found.figures[0].worse && found.is_worse(), "{found:?}");
        // The same where less is better: it is better then.
        let found = runs(&below, false).compare("b", 3);
        assert!(!found.is_worse() && found.mean > 1.1, "{found:?}");
        // As low, but it may be chance: only the mean of all says so.
        let noisy = [[0.6, 1.0, 1.0], [1.2, 1.0, 1.0], [1.0, 1.0, 1.0]];
        let found = runs(&noisy, true).compare("b", 3);
        assert!(!found.figures[0].worse && found.mean < 0.98 && found.is_worse(), "{found:?}");
    }

    #[test]
    fn what_a_run_lacks_is_said_and_not_compared() {
        let mut found = runs(&[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], true);
        let figure = |name: &str, value| Figure { name: name.into(), value, more_is_better: true };
        found.add(Side::Own, figure("new here", 1.0));
        for side in Side::ALL.into_iter().chain(Side::ALL) {
            found.add(side, figure("nothing", 0.0));
        }
        let found = found.compare("b", 2);
        assert_eq!(found.without, ["new here", "nothing"]);
        assert_eq!((found.figures.len(), found.mean, found.is_worse()), (1, 1.0, false));
    }
}
