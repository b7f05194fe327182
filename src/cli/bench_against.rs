//! `terral bench --against PROGRAM`: this build and another one measure the same cases in turn,
//! case by case and round after round, and this build once more beside itself.
//!
//! Each run is a `bench --json` of its own, of one case, so that builds need agree about nothing
//! but names. Invariant: a run that fails is said, and its case not compared. Not here: what the
//! runs say (`bench_pairs`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench_pairs::{Figure, Runs, Side};
use crate::report::{json, say};

/// What is run, and how.
pub struct Against<'a> {
    /// The other build.
    pub program: &'a Path,
    /// Runs of each.
    pub rounds: usize,
    /// What both are told beside the case.
    pub arguments: Vec<String>,
    /// What this build would measure.
    pub cases: Vec<String>,
    /// One JSON object instead of a table.
    pub json: bool,
}

/// Runs a build's `bench`; what it says on standard output.
fn bench(program: &Path, ours: bool, arguments: &[String]) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("bench").args(arguments).stdin(Stdio::null());
    if !ours {
        // Each has its own libraries.
        command.env_remove("TERRAL_PRELOAD");
    }
    let output = command.output().with_context(|| program.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().next_back().unwrap_or_default();
    let shown = format!("{} bench {}", program.display(), arguments.join(" "));
    ensure!(output.status.success(), "{shown}: {}: {last}", output.status);
    String::from_utf8(output.stdout).context(shown)
}

/// Whether more of a fact is better: by what is asked of it, or else by its unit.
fn more_is_better(fact: &Value) -> bool {
    let asked = |bound: &str| fact["target"].get(bound).is_some();
    let unit = fact["unit"].as_str().unwrap_or_default();
    asked("at_least") || (!asked("at_most") && !asked("below") && is_rate(unit))
}

fn is_rate(unit: &str) -> bool {
    matches!(unit, "GB/s" | "×" | "× tmpfs")
}

/// The figures of a case in the JSON object of a run: ratios to tmpfs, and facts.
fn figures(case: &str, said: &str) -> Result<Vec<Figure>> {
    let report: Value = serde_json::from_str(said)?;
    let list = |name: &str| report[name].as_array().context(name.to_owned());
    let mut figures = Vec::new();
    // A filter finds more than what is called just so.
    for row in list("rows")?.iter().filter(|row| row["case"] == *case) {
        let face = row["face"].as_str().context("face")?;
        let value = row["ratio"]["median"].as_f64().context("ratio")?;
        let own = face == "client" || face == "preload";
        if own {
            let name = format!("{case} {face}");
            figures.push(Figure { name, value, more_is_better: true });
        }
    }
    for fact in list("facts")? {
        let name = fact["name"].as_str().context("name")?.to_owned();
        let value = fact["value"].as_f64().context("value")?;
        // Longer by so many per cent: times as long.
        let value = if fact["unit"] == "%" { 1.0 + value / 100.0 } else { value };
        figures.push(Figure { name, value, more_is_better: more_is_better(fact) });
    }
    Ok(figures)
}

/// The sides in the order of a round: none is always first.
fn order(round: usize) -> [Side; 3] {
    let mut order = Side::ALL;
    order.rotate_left(round % 3);
    order
}

impl Against<'_> {
    /// Measures and says what came of it; 1 where this build is worse.
    pub fn measure(&self) -> Result<u8> {
        let own = std::env::current_exe().context("terral: own path")?;
        let other = self.program.canonicalize();
        let other = other.with_context(|| self.program.display().to_string())?;
        let there = bench(&other, false, &["--list".into()])?;
        let both = |case: &&String| there.lines().any(|line| line == **case);
        let (cases, alone): (Vec<_>, Vec<_>) = self.cases.iter().partition(both);
        for case in alone {
            say(format_args!("{case}: not in {}", other.display()));
        }
        if cases.is_empty() {
            bail!("{} has none of these cases", other.display());
        }
        let mut runs = Runs::default();
        for (at, case) in cases.iter().enumerate() {
            say(format_args!("{}/{} {case}", at + 1, cases.len()));
            if let Err(error) = self.case(case, (&own, &other), &mut runs) {
                say(format_args!("{case}: not compared: {error:#}"));
            }
        }
        let comparison = runs.compare(&other.display().to_string(), self.rounds);
        ensure!(!comparison.figures.is_empty(), "nothing could be compared");
        if self.json {
            json(&comparison)?;
        } else {
            write!(std::io::stdout(), "{}", comparison.table())?;
        }
        Ok(u8::from(comparison.is_worse()))
    }

    fn case(&self, case: &str, (own, other): (&PathBuf, &PathBuf), runs: &mut Runs) -> Result<()> {
        let told = ["--json".into(), "--cases".into(), case.to_owned()];
        let told = [&told[..], &self.arguments].concat();
        for round in 0..self.rounds {
            for side in order(round) {
                let program = if side == Side::Other { other } else { own };
                let said = bench(program, side != Side::Other, &told)?;
                figures(case, &said)?.into_iter().for_each(|figure| runs.add(side, figure));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{figures, order};
    use crate::bench_pairs::{Figure, Side};

    #[test]
    fn figures_are_those_of_the_case_and_know_what_is_better() {
        let row = |case: &str, face: &str, median: f64| {
            format!(r#"{{"case":"{case}","face":"{face}","ratio":{{"median":{median}}}}}"#)
        };
        let fact = |name: &str, unit: &str, target: &str| {
            format!(r#"{{"name":"{name}","value":2.0,"unit":"{unit}","target":{target}}}"#)
        };
        let rows =
            [row("a", "preload", 1.5), row("first-a", "preload", 3.0), row("a", "disk", 1.0)];
        let facts = [
            fact("make", "× the time", r#"{"at_most":1.15}"#),
            fact("create", "× tmpfs", r#"{"at_least":0.5}"#),
            fact("create, client", "× tmpfs", "null"),
            fact("closed", "s", "null"),
        ];
        let said = format!(r#"{{"rows":[{}],"facts":[{}]}}"#, rows.join(","), facts.join(","));
        let figure = |name: &str, value, more_is_better| {
            let name = name.to_owned();
            Figure { name, value, more_is_better }
        };
        let expected = [
            figure("a preload", 1.5, true),
            figure("make", 2.0, false),
            figure("create", 2.0, true),
            figure("create, client", 2.0, true),
            figure("closed", 2.0, false),
        ];
        assert_eq!(figures("a", &said).expect("sound"), expected);
        assert!(figures("a", "{}").is_err() && figures("a", "").is_err());
    }

    #[test]
    fn each_side_is_first_in_turn() {
        let firsts = [0, 1, 2].map(|round| order(round)[0]);
        assert_eq!(firsts, Side::ALL);
    }
}
