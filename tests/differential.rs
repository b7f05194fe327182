//! The same random operations on tmpfs and under `terral run`, compared answer by answer, then the
//! whole tree as programs see it and as it arrived in DIR. The operations are those of
//! `programs/differential.c`. A difference is reported as the shortest sequence found that still
//! shows it.
//!
//! The seed is printed and always the same, so that a commit is judged by itself; `make soak` takes
//! others. `TERRAL_TEST_SEED` sets it, `TERRAL_TEST_OPERATIONS` makes it longer.
#![allow(clippy::print_stdout)] // Seeds are said.
#![cfg(not(loom))]

mod descendants;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::Signal;

/// Families of calls that are compared.
const COMPARED: &[&str] = &[
    "all_flags",
    "atime",
    "changes",
    "closed_at_exec",
    "copy_file_range",
    "create_to_read",
    "dotdot",
    "empty_vectors",
    "empty_writes",
    "exchange",
    "exec_directories",
    "fallocate",
    "fallocate_times",
    "fdopen_append",
    "flock",
    "freopen",
    "holes",
    "links",
    "locks",
    "map_directory",
    "mkdir_dot",
    "moved",
    "nodes",
    "noreplace_same",
    "o_path",
    "ofd_locks",
    "path_of_link",
    "poll",
    "poll_path",
    "posix_fallocate",
    "renameat2",
    "sendfile",
    "set_id",
    "shared_maps",
    "special_nodes",
    "symlinks",
    "tmpfile",
    "tmpfile_link",
    "truncate_directory",
    "truncate_empty",
    "walks",
    "xattrs",
];

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
/// Reruns for finding a shorter sequence.
const RERUNS: u32 = 30;
/// What one run may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the root is, so that what leads up from it stays where nothing else is.
const ABOVE: &str = "one/two";

/// How processes take turns; the program's `--mode`.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Sequence,
    Apart,
    Race,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Sequence => "sequence",
            Mode::Apart => "apart",
            Mode::Race => "race",
        }
    }
}

struct Case<'a> {
    program: &'a Path,
    mode: Mode,
    seed: u64,
    count: u64,
    processes: u32,
    /// Each process gets a signal that often; 0: never.
    pester_us: u32,
}

struct Difference {
    /// Lines before it, as Terral gave them.
    before: Vec<String>,
    expected: String,
    got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.before {
            writeln!(f, "      {line}")?;
        }
        writeln!(f, "tmpfs {}\nhere  {}", self.expected, self.got)
    }
}

impl Difference {
    /// What was called: two differences with the same are taken for one.
    fn call(&self) -> String {
        self.expected.split_whitespace().nth(2).unwrap_or_default().to_owned()
    }

    /// The number of the operation, of those a sequence can leave out.
    fn number(&self) -> Option<u64> {
        let at = |line: &String| line.split(' ').next().and_then(|word| word.parse().ok());
        at(&self.expected).or_else(|| self.before.iter().rev().find_map(at))
    }
}

/// A program that was built with this test.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let path = own.parent().and_then(Path::parent).expect("target directory").join(name);
    assert!(path.exists(), "{} is missing: cargo build --release first", path.display());
    path
}

fn on_tmpfs() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("terral-test-").tempdir_in("/dev/shm").expect("directory")
}

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let all = fs::read_dir(folder).expect("lists").map(|entry| entry.expect("entry").path());
    let named = |path: &PathBuf| {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        name.starts_with("differential") && name.ends_with(".c")
    };
    all.filter(named).collect()
}

fn compile(into: &Path) -> PathBuf {
    let program = into.join("differential");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).args(sources());
    assert!(cc.status().expect("cc runs").success(), "differential.c does not compile");
    program
}

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

impl<'a> Case<'a> {
    fn new(program: &'a Path, mode: Mode, seed: u64, count: u64, processes: u32) -> Self {
        Case { program, mode, seed, count, processes, pester_us: 0 }
    }

    fn arguments(&self, output: &Path, keep: Option<&Path>) -> Vec<String> {
        let mut arguments: Vec<String> = vec!["--mode".into(), self.mode.name().into()];
        arguments.extend(["--features".into(), COMPARED.join(",")]);
        arguments.extend(["--seed".into(), self.seed.to_string()]);
        arguments.extend(["--count".into(), self.count.to_string()]);
        arguments.extend(["--processes".into(), self.processes.to_string()]);
        arguments.extend(["--pester".into(), self.pester_us.to_string()]);
        arguments.extend(["--output".into(), output.display().to_string()]);
        if let Some(keep) = keep {
            arguments.extend(["--keep".into(), keep.display().to_string()]);
        }
        arguments
    }

    /// What the program says on tmpfs.
    fn reference(&self, keep: Option<&Path>) -> Vec<String> {
        let home = on_tmpfs();
        let output = home.path().join("said");
        let mut command = Command::new(self.program);
        // Alone in a directory, as it is under the prefix: `..` may be listed.
        let root = home.path().join("root");
        fs::DirBuilder::new().mode(0o700).create(&root).expect("directory");
        fs::DirBuilder::new().mode(0o700).recursive(true).create(root.join(ABOVE)).expect("them");
        command.args(self.arguments(&output, keep)).arg("--root").arg(root.join(ABOVE).join("w"));
        let status = command.status().expect("runs");
        assert!(status.success(), "without Terral: {status:?}");
        lines(&fs::read(&output).expect("output"))
    }

    /// What it says under Terral, then what is wrong with the run itself or with DIR.
    fn served(&self, keep: Option<&Path>) -> Vec<String> {
        let (home, to) = (on_tmpfs(), on_tmpfs());
        let [output, json, words] = ["said", "json", "words"].map(|name| home.path().join(name));
        let mut command = Command::new(built("terral"));
        command.args(["run", "--json", "--to"]).arg(to.path());
        let enter = format!("mkdir -p $TERRAL_DIR/{ABOVE} && cd $TERRAL_DIR/{ABOVE}");
        let script = format!("{enter} && exec \"$0\" --root $PWD/w \"$@\"");
        command
            .args(["--", "sh", "-c", &script])
            .arg(self.program)
            .args(self.arguments(&output, keep));
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
        said.extend(self.not_served(summary.lines().last().unwrap_or_default()));
        self.not_arrived(to.path(), &mut said);
        said
    }

    /// A line if Terral cannot have served what was said.
    fn not_served(&self, summary: &str) -> Option<String> {
        let summary: serde_json::Value = serde_json::from_str(summary).expect("summary");
        let total = |name| summary["totals"][name].as_u64().unwrap_or(0);
        let few = if self.mode == Mode::Race { 10 } else { self.count / 50 };
        let served = total("opens") >= few && (few < 10 || total("written_bytes") > 0);
        let whole = summary["state"] == "arrived" && summary["restarts"] == 0;
        (!served || !whole).then(|| format!("terral run: {summary}"))
    }

    /// A line if the tree in DIR is not the one that programs saw at the end.
    fn not_arrived(&self, to: &Path, said: &mut Vec<String>) {
        let mut command = Command::new(self.program);
        command.args(["--mode", "tree", "--features", &COMPARED.join(","), "--root"]);
        let listed = command.arg(to.join(ABOVE).join("w")).output().expect("runs");
        // What a link says is the same in both places, also where programs saw the root.
        let root = format!(" -> /terral/{ABOVE}/w");
        let here = |line: String| line.replace(&root, " -> @");
        let arrived: Vec<String> = lines(&listed.stdout).into_iter().map(here).collect();
        let is_tree = |line: &&String| line.starts_with("tree ");
        let seen: Vec<&String> = said.iter().filter(is_tree).collect();
        let (seen, arrived) = (seen.into_iter(), arrived.iter().filter(is_tree));
        if let Some((seen, arrived)) = first_difference(seen, arrived) {
            said.push(format!("DIR has <{arrived}>, programs saw <{seen}>"));
        }
    }

    fn difference(&self, keep: Option<&[u64]>) -> Option<Difference> {
        let home = on_tmpfs();
        let file = keep.map(|numbers| {
            let file = home.path().join("keep");
            let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
            fs::write(&file, text.join("\n")).expect("writes");
            file
        });
        let (theirs, ours) = (self.reference(file.as_deref()), self.served(file.as_deref()));
        let (expected, got) = first_difference(theirs.iter(), ours.iter())?;
        let same = theirs.iter().zip(&ours).take_while(|(one, other)| one == other).count();
        Some(Difference { before: ours[..same].to_vec(), expected, got })
    }

    /// The shortest sequence found that differs in the same call.
    fn shrink(&self, mut found: Difference) -> Difference {
        let last = found.number().unwrap_or(self.count - 1).min(self.count - 1);
        let mut kept: Vec<u64> = (0..=last).collect();
        let (mut reruns, mut part) = (RERUNS, kept.len().div_ceil(2));
        while reruns > 0 && part > 0 {
            let mut at = 0;
            while at < kept.len() && reruns > 0 {
                let end = (at + part).min(kept.len());
                let trial: Vec<u64> = kept[..at].iter().chain(&kept[end..]).copied().collect();
                reruns -= 1;
                match self.difference(Some(&trial)) {
                    Some(other) if other.call() == found.call() => {
                        (kept, found) = (trial, other);
                    }
                    _ => at = end,
                }
            }
            part /= 2;
        }
        found
    }

    /// Fails with the shortest sequence that shows a difference.
    fn hold(&self) {
        let Some(found) = self.difference(None) else { return };
        let found = if self.mode == Mode::Sequence { self.shrink(found) } else { found };
        let (mode, seed) = (self.mode.name(), self.seed);
        let many = found.before.len().saturating_sub(60);
        let found = Difference { before: found.before[many..].to_vec(), ..found };
        panic!("{mode} of seed {seed}: not the answers of tmpfs\n{found}");
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

fn first_difference<'a>(
    mut one: impl Iterator<Item = &'a String>,
    mut other: impl Iterator<Item = &'a String>,
) -> Option<(String, String)> {
    let text = |line: Option<&String>| line.map_or("<nothing more>", |line| line).to_owned();
    loop {
        match (one.next(), other.next()) {
            (None, None) => return None,
            (left, right) if left == right => {}
            (left, right) => return Some((text(left), text(right))),
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = number_from("TERRAL_TEST_SEED").unwrap_or(561_713_566);
    println!("TERRAL_TEST_SEED={seed}");
    seed
}

fn operations() -> u64 {
    number_from("TERRAL_TEST_OPERATIONS").unwrap_or(100_000)
}

#[test]
fn processes_that_take_turns_get_the_answers_of_tmpfs() {
    let home = on_tmpfs();
    let program = compile(home.path());
    let first = seed();
    let sequences = (operations() * 7 / 10).div_ceil(SEQUENCE);
    for seed in first..first + sequences {
        let processes = 1 + (seed % 4) as u32;
        Case::new(&program, Mode::Sequence, seed, SEQUENCE, processes).hold();
    }
}

#[test]
fn processes_at_once_in_directories_of_their_own_get_the_answers_of_tmpfs() {
    let home = on_tmpfs();
    let program = compile(home.path());
    let first = seed();
    for seed in first..first + 3 {
        let count = operations() / 10;
        Case::new(&program, Mode::Apart, seed, count, 4).hold();
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
        Case { pester_us: 600, ..case }.hold();
    }
}

#[test]
fn races_for_one_name_have_one_winner_and_no_record_is_lost() {
    let home = on_tmpfs();
    let program = compile(home.path());
    for processes in [2, 4] {
        Case::new(&program, Mode::Race, 0, 20, processes).hold();
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
