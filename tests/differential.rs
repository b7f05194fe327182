//! The same random operations on tmpfs and under `terral run`, compared answer by answer, then the
//! whole tree as programs see it and as it arrived in DIR. The operations are those of
//! `programs/differential.c`. A difference is reported as the shortest sequence found that still
//! shows it.
//!
//! The seed is printed and always the same, so that a commit is judged by itself; `make soak` takes
//! others. `TERRAL_TEST_SEED` sets it, `TERRAL_TEST_OPERATIONS` makes it longer.
#![allow(clippy::print_stdout)] // Seeds are said.
#![cfg(not(loom))]

mod answers;
mod beside;
mod descendants;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use answers::{ABOVE, COMPARED, Case, Mode, compile, lines, on_tmpfs, operations, seed, sources};
use beside::built;
use rustix::process::Signal;

/// Differences on purpose, each with its reason.
const ON_PURPOSE: &[(&str, &str)] = &[
    ("empty_reads", "reading nothing does nothing, as POSIX has it: tmpfs notes an access"),
    ("errno_order", "of several things to object to, POSIX leaves open which one is told"),
    ("exact_holes", "what only DIR has counts as data, and so do zeros where a hole was punched"),
    ("link_reads", "to follow a symbolic link is no access of it"),
    ("keep_size", "memory is not reserved beyond the end of a file: EOPNOTSUPP"),
    ("seek_reads", "a stream that is sent to its end reads nothing before it is asked to"),
    ("removed_directory", "relative paths from a directory that was removed are ENOENT"),
];

/// Operations of one sequence.
const SEQUENCE: u64 = 2500;
/// What one run may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run that is ended, with all it has started, when dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        for pid in descendants::of(self.0.id()) {
            descendants::send(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// What it says under Terral, then what is wrong with the run itself or with DIR.
fn served(case: &Case<'_>, keep: Option<&Path>) -> Vec<String> {
    let (home, to) = (on_tmpfs(), on_tmpfs());
    let [output, json, words] = ["said", "json", "words"].map(|name| home.path().join(name));
    let mut command = Command::new(built("terral"));
    command.args(["run", "--json", "--to"]).arg(to.path());
    let enter = format!("mkdir -p $TERRAL_DIR/{ABOVE} && cd $TERRAL_DIR/{ABOVE}");
    let script = format!("{enter} && exec \"$0\" --root $PWD/w \"$@\"");
    command.args(["--", "sh", "-c", &script]).arg(case.program).args(case.arguments(&output, keep));
    command.stdout(fs::File::create(&json).expect("file"));
    command.stderr(fs::File::create(&words).expect("file"));
    let mut run = Run(command.spawn().expect("starts"));
    let begin = Instant::now();
    let status = loop {
        match run.0.try_wait().expect("waits") {
            Some(status) => break status.to_string(),
            None if begin.elapsed() > PATIENCE => break "it does not end".into(),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    drop(run);
    let mut said = lines(&fs::read(&output).unwrap_or_default());
    if status != "exit status: 0" {
        let words = fs::read_to_string(&words).unwrap_or_default();
        said.push(format!("terral run: {status}: {words}"));
        return said;
    }
    let summary = fs::read_to_string(&json).expect("summary");
    said.extend(not_served(case, summary.lines().last().unwrap_or_default()));
    case.not_arrived(to.path(), &mut said);
    said
}

/// A line if Terral cannot have served what was said.
fn not_served(case: &Case<'_>, summary: &str) -> Option<String> {
    let summary: serde_json::Value = serde_json::from_str(summary).expect("summary");
    let total = |name| summary["totals"][name].as_u64().unwrap_or(0);
    let few = if case.mode == Mode::Race { 10 } else { case.count / 50 };
    let served = total("opens") >= few && (few < 10 || total("written_bytes") > 0);
    let whole = summary["state"] == "arrived" && summary["restarts"] == 0;
    (!served || !whole).then(|| format!("terral run: {summary}"))
}

#[test]
fn processes_that_take_turns_get_the_answers_of_tmpfs() {
    let home = on_tmpfs();
    let program = compile(home.path());
    let first = seed();
    let sequences = (operations() * 7 / 10).div_ceil(SEQUENCE);
    for seed in first..first + sequences {
        let processes = 1 + (seed % 4) as u32;
        Case::new(&program, Mode::Sequence, seed, SEQUENCE, processes).hold(&served);
    }
}

#[test]
fn processes_at_once_in_directories_of_their_own_get_the_answers_of_tmpfs() {
    let home = on_tmpfs();
    let program = compile(home.path());
    let first = seed();
    for seed in first..first + 3 {
        let count = operations() / 10;
        Case::new(&program, Mode::Apart, seed, count, 4).hold(&served);
    }
}

#[test]
fn signals_at_any_moment_change_no_answer() {
    let home = on_tmpfs();
    let program = compile(home.path());
    let first = seed();
    for seed in first..first + 4 {
        let mode = if seed % 2 == 0 { Mode::Sequence } else { Mode::Apart };
        let case = Case::new(&program, mode, seed, SEQUENCE * 2, 3);
        Case { pester_us: 600, ..case }.hold(&served);
    }
}

#[test]
fn races_for_one_name_have_one_winner_and_no_record_is_lost() {
    let home = on_tmpfs();
    let program = compile(home.path());
    for processes in [2, 4] {
        Case::new(&program, Mode::Race, 0, 20, processes).hold(&served);
    }
}

#[test]
fn every_family_is_compared_or_named() {
    let mut known = BTreeSet::new();
    for source in sources() {
        let text = fs::read_to_string(source).expect("reads");
        known.extend(text.split("feature(\"").skip(1).filter_map(quoted));
        let table = text.lines().filter(|line| line.trim_start().starts_with("{\""));
        known.extend(table.filter_map(|line| quoted(line.split(", \"").nth(1)?)));
        let flags = text.split("\", \"").skip(1).filter_map(quoted);
        known.extend(flags.filter(|name| name == "o_path"));
    }
    let purpose = ON_PURPOSE.iter().map(|(name, reason)| {
        assert!(!reason.is_empty());
        *name
    });
    let named: Vec<&str> = COMPARED.iter().copied().chain(purpose).collect();
    let unique: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(unique.len(), named.len(), "a family is named twice");
    assert_eq!(unique, known);
}

fn quoted(text: &str) -> Option<String> {
    text.split('"').next().map(str::to_owned)
}
