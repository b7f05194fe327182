//! `terral bench --hosts` over machines of namespaces: each case has a figure and what it stands
//! beside, what was written is what was read, and nothing stays. How fast anything is, is not
//! looked at: machines that tests share say nothing about that.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use launched::{said, until};
use namespaces::Machines;
use rustix::process::Signal;
use serde_json::Value;

/// It takes less, unless it hangs.
const LONG: Duration = Duration::from_secs(300);

/// A directory that all see.
fn shared(machines: &Machines) -> PathBuf {
    let to = machines.home().join("shared");
    std::fs::create_dir(&to).expect("makes");
    to
}

/// `terral bench --hosts` on the first machine, from a directory that all see.
fn bench(machines: &Machines, to: &Path, hosts: &str, options: &[&str]) -> Command {
    let mut command = machines.terral(0);
    command.args(["bench", "--quick", "--size", "4M", "--hosts", hosts]).args(options);
    command.arg("--to").arg(to);
    command
}

fn ran(mut command: Command) -> Output {
    descendants::ended_within(command.spawn().expect("starts"), LONG)
}

fn nothing_is_left(machines: &Machines, count: usize, to: &Path) {
    for at in 0..count {
        assert_eq!(machines.left(at), "", "in the memory of h{at}");
        let there = machines.shell_on(at, "ls /dev/shm");
        let there = String::from_utf8_lossy(&there.stdout).into_owned();
        assert!(!there.contains("bench"), "in the memory of h{at}: {there}");
    }
    assert_eq!(std::fs::read_dir(to).expect("lists").count(), 0, "in the directory");
}

fn numbers(spread: &Value) -> [f64; 3] {
    ["min", "median", "max"].map(|name| spread[name].as_f64().expect("a number"))
}

#[test]
fn each_case_has_a_figure_and_its_reference_and_nothing_is_left() {
    let Some(machines) = Machines::new(3) else { return };
    let to = shared(&machines);
    let page = machines.home().join("page.md");
    let options = ["--json", "--markdown", page.to_str().expect("a path")];
    let listed = ran(bench(&machines, &to, "h1,h2", &["--list"]));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let listed: BTreeSet<&str> = listed.lines().collect();
    let output = ran(bench(&machines, &to, "h0,h1,h2", &options));
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(report["hosts"], serde_json::json!(["h0", "h1", "h2"]));
    assert_eq!(report["missing"], serde_json::json!([]), "{}", said(&output));
    let figures = report["figures"].as_array().expect("figures");
    let measured: BTreeSet<&str> =
        figures.iter().map(|figure| figure["case"].as_str().expect("a case")).collect();
    assert_eq!(measured, listed);
    let text = std::fs::read_to_string(&page).expect("a page");
    for figure in figures {
        let name = figure["name"].as_str().expect("a name");
        let [min, median, max] = numbers(&figure["value"]);
        assert!(min <= median && median <= max && median.is_finite(), "{figure}");
        // What nothing stands beside is asked for by itself.
        if figure["beside"] == "" {
            assert!(
                figure["target"]["value"].is_object() && figure["met"].is_boolean(),
                "{figure}"
            );
        } else {
            assert!(numbers(&figure["reference"])[0] > 0.0, "{figure}");
            assert!(numbers(&figure["ratio"])[0] > 0.0, "{figure}");
        }
        assert!(text.contains(&format!("| {name} |")), "{name} is not on the page");
    }
    let creates = "creates in one directory, frames for each that asks";
    let creates = figures.iter().find(|figure| figure["name"] == creates).expect("a figure");
    assert!(numbers(&creates["value"])[0] >= 1.0, "who creates elsewhere asks: {creates}");
    nothing_is_left(&machines, 3, &to);
}

#[test]
fn own_files_of_all_machines_put_no_bytes_on_the_network() {
    let Some(machines) = Machines::new(3) else { return };
    let to = shared(&machines);
    let output = ran(bench(&machines, &to, "h1,h2", &["--json", "--cases", "own-files"]));
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let figures = report["figures"].as_array().expect("figures");
    let frames = |end: &str| {
        let name = format!("own files, frames meanwhile{end}");
        let figure = figures.iter().find(|figure| figure["name"] == *name).expect("a figure");
        numbers(&figure["value"])
    };
    assert_eq!(frames(""), [0.0; 3], "what is lent needs nobody");
    // Paths may be asked for, and no bytes: those would be some twelve frames for each file.
    assert!(frames(", with --to")[2] <= 24.0, "{:?}", frames(", with --to"));
}

#[test]
fn what_cannot_be_measured_is_said_and_the_rest_is() {
    let Some(machines) = Machines::new(2) else { return };
    let to = shared(&machines);
    let alone = ran(bench(&machines, &to, "h0", &[]));
    assert!(
        !alone.status.success() && said(&alone).contains("name another one"),
        "{}",
        said(&alone)
    );
    let unknown = ran(bench(&machines, &to, "h7", &[]));
    assert!(!unknown.status.success() && said(&unknown).contains("h7"), "{}", said(&unknown));
    // A directory that only this machine has.
    let own = Path::new("/dev/shm/own");
    machines.shell_on(0, "mkdir /dev/shm/own");
    let output = ran(bench(&machines, own, "h1", &["--json", "--cases", "rest"]));
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(report["missing"].as_array().map(Vec::len), Some(1), "{}", said(&output));
    assert_eq!(report["figures"].as_array().map(Vec::len), Some(2), "{}", said(&output));
}

/// Names of the instances on a machine.
fn instances(machines: &Machines, at: usize) -> usize {
    let there = machines.shell_on(at, "ls /dev/shm/terral-0");
    String::from_utf8_lossy(&there.stdout).lines().count()
}

#[test]
fn nothing_is_left_of_a_bench_that_is_broken_off() {
    let Some(machines) = Machines::new(2) else { return };
    let to = shared(&machines);
    // What one that was killed cannot remove, the next one does.
    for signal in [Signal::KILL, Signal::INT] {
        let child = bench(&machines, &to, "h1", &[]).spawn().expect("starts");
        until("all runs have begun", || instances(&machines, 1) >= 3);
        descendants::send(child.id() as i32, signal);
        let output = descendants::ended_within(child, LONG);
        assert!(!output.status.success(), "{}", said(&output));
        until("all have ended", || (0..2).all(|at| instances(&machines, at) == 0));
    }
    nothing_is_left(&machines, 2, &to);
}
