//! The package for Python, `src/python/terral`: every call, whoever is killed when, with torch and
//! with ranks of MPI; and installed as people install it. Not here: what checkpoints and objects
//! are (`checkpoints`, `objects`).
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod beside;
mod process;
mod random;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use beside::{built, program};
use process::{Bench, Process};
use random::Random;
use terral_client::Client;

const PYTHON: &str = "/usr/bin/python3";

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(256, &[]);
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the checkout")
}

fn source() -> PathBuf {
    checkout().join("src/python")
}

/// Whether all of Debian's modules, or packages of PyPI, are there.
fn has(modules: &[&str]) -> bool {
    let packages =
        ["/usr/lib/python3/dist-packages".into(), checkout().join("target/test-packages")];
    let there = |module: &str| packages.iter().any(|at: &PathBuf| at.join(module).exists());
    let missing = modules.iter().find(|module| !there(module));
    if let Some(missing) = missing {
        println!("skipped: {missing} is not installed");
    }
    missing.is_none()
}

/// A program of Python that finds the package in `at`, and talks to the server of an instance.
fn python(at: &Path, instance: &Path) -> Command {
    let mut command = Command::new(PYTHON);
    let packages = checkout().join("target/test-packages");
    command.env("PYTHONPATH", format!("{}:{}", at.display(), packages.display()));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("TERRAL_LIBRARY", built("libterral.so"));
    command.env("TERRAL_INSTANCE", instance).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

fn ours(name: &str) -> PathBuf {
    program("python").join(name)
}

fn well(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", output.status, text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

#[test]
fn every_call_does_what_it_says_and_what_fails_is_an_error_of_python() {
    if !has(&["numpy"]) {
        return;
    }
    let bench = Bench::new();
    let output = python(&source(), &bench.instance()).arg(ours("calls.py")).output();
    assert_eq!(well(&output.expect("runs")), "python: all well\n");
    let totals = Client::connect(&bench.instance()).expect("connects").status();
    let totals = totals.expect("status").totals;
    assert!(totals.written_bytes > 3_000_000, "{totals:?}");
}

#[test]
fn a_training_that_is_killed_again_and_again_learns_what_it_learns_undisturbed() {
    if !has(&["torch"]) {
        return;
    }
    let learned =
        |said: &str| said.lines().find(|line| line.starts_with("learned")).map(str::to_owned);
    let undisturbed = Bench::new();
    let trains = |bench: &Bench| {
        let mut command = python(&source(), &bench.instance());
        command.arg(ours("tensors.py")).args(["60", "0.02"]);
        command
    };
    let must = learned(&well(&trains(&undisturbed).output().expect("runs"))).expect("it says so");

    let (bench, mut random) = (Bench::new(), Random::new("python"));
    let mut done = 0;
    for _ in 0..4 {
        let child = trains(&bench).stdout(Stdio::piped()).spawn().expect("starts");
        let mut child = Process(child);
        let lines = BufReader::new(child.0.stdout.take().expect("is read")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        let from = lines.next().expect("a line");
        assert!(number(&from, "from ") >= done, "{from}, and {done} was done");
        // It is killed somewhere in the steps after one of the next ten, unless it is done.
        let which = random.below(10) as usize;
        let Some(saved) = lines.nth(which).filter(|line| line.starts_with("saved ")) else { break };
        done = number(&saved, "saved ");
        std::thread::sleep(Duration::from_micros(random.below(4_000)));
        child.kill();
    }
    let said = well(&trains(&bench).output().expect("runs"));
    assert_eq!(learned(&said), Some(must), "{said}");
    assert!(number(said.lines().next().expect("a line"), "from ") >= done, "{said}");
}

fn number(line: &str, after: &str) -> u64 {
    let said = line.strip_prefix(after).and_then(|number| number.parse().ok());
    said.unwrap_or_else(|| panic!("{line:?} is not {after:?} and a number"))
}

#[test]
fn ranks_save_as_one_and_any_number_of_them_reads_it() {
    if !has(&["mpi4py", "numpy"]) || !beside::on_path("mpiexec.openmpi") {
        return;
    }
    let bench = Bench::new();
    let ranks = |count: u32, words: [&str; 3]| {
        let mut command = Command::new("mpiexec.openmpi");
        let like = python(&source(), &bench.instance());
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("MPI4PY_MPIABI", "openmpi").args(["--oversubscribe", "-n"]);
        command.arg(count.to_string()).arg(PYTHON).arg(ours("ranks.py")).args(words);
        well(&command.output().expect("runs"))
    };
    assert_eq!(ranks(4, ["save", "7", "1"]), "save well\n");
    assert_eq!(ranks(3, ["check", "7", "1"]), "check well\n");
    assert_eq!(ranks(1, ["save", "8", "2"]), "save well\n");
    // One fails: all are told, and the latest stays.
    let said = ranks(3, ["fail", "9", "3"]);
    let told = said.lines().filter(|line| line.starts_with("rank ")).count();
    assert!(
        told == 3 && said.contains("rank 0: checkpoint of step 9: rank 2 has failed"),
        "{said}"
    );
    assert_eq!(ranks(2, ["check", "8", "2"]), "check well\n");
}

#[test]
fn it_is_installed_by_pip_and_says_where_it_looks_for_the_library() {
    if !has(&["pip", "setuptools"]) {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    // What is built is built there, not in the checkout.
    let (copy, to) = (home.path().join("copy"), home.path().join("below/to"));
    let copied = Command::new("cp").arg("-r").arg(source()).arg(&copy).status().expect("runs");
    assert!(copied.success());
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation"]);
    pip.args(["--root-user-action=ignore", "--target"]).arg(&to).arg(&copy);
    well(&pip.output().expect("runs"));

    let bench = Bench::new();
    let asks = |change: &dyn Fn(&mut Command)| {
        let mut command = python(&to, &bench.instance());
        command.args([
            "-c",
            "import terral; terral.Checkpoints('points').save(1, b'x'); print('saved')",
        ]);
        change(&mut command);
        command.output().expect("runs")
    };
    assert_eq!(well(&asks(&|_| ())), "saved\n");
    // Beside the program that is in the path.
    let beside = asks(&|command: &mut Command| {
        let folder = built("terral").parent().expect("a folder").to_owned();
        command.env_remove("TERRAL_LIBRARY").env("PATH", folder);
    });
    assert_eq!(well(&beside), "saved\n");
    // What lies some folders above is not taken for it.
    std::fs::copy(built("libterral.so"), home.path().join("libterral.so")).expect("copied");
    let nowhere = asks(&|command: &mut Command| {
        command.env_remove("TERRAL_LIBRARY").env("PATH", home.path());
    });
    assert!(
        text(&nowhere).contains("set TERRAL_LIBRARY to the path of libterral.so"),
        "{nowhere:?}"
    );
}

#[test]
fn its_version_is_that_of_all() {
    let read = |name: &str| std::fs::read_to_string(checkout().join(name)).expect("is there");
    let version = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("version = ")).expect("a version");
        line.to_owned()
    };
    assert_eq!(version(&read("src/python/pyproject.toml")), version(&read("Cargo.toml")));
}
