//! Checkpoints: whoever is killed when, the latest is whole, and nothing else is seen. Through the
//! client library, and by ranks of MPI through `src/c/heat.c`.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped, and seeds, are said.

mod beside;
mod brought;
mod heat;
mod mount;
mod process;
mod random;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brought::{names, settle};
use mount::Mount;
use process::{Bench, Home, start_server};
use random::Random;
use rustix::process::Signal;
use terral_client::checkpoints::{Checkpoint, Checkpoints, Part};
use terral_client::objects::RESERVED;
use terral_client::{Client, ErrorKind, Result};

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(256, &[("writer", write_for_ever)]);
}

const SERIES: &[u8] = b"points";
/// Bytes of each of the processes that the writer stands for.
const PIECE: usize = 40_000;
/// How many those are.
const RANKS: u32 = 5;

fn checkpoints(client: &Client, keep: usize) -> Checkpoints {
    Checkpoints::open(client, SERIES, keep, 0o755).expect("opens")
}

fn series(instance: &Path, keep: usize) -> Checkpoints {
    checkpoints(&Client::connect(instance).expect("connects"), keep)
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

/// What the checkpoint of a step has at a byte.
fn byte(step: u64, at: usize) -> u8 {
    (step as usize * 31 + at / 7 + at * 3) as u8
}

fn bytes(step: u64, from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| byte(step, at)).collect()
}

fn dumped(checkpoint: &Checkpoint) -> Vec<Part> {
    let dump = |rank: u32| {
        let at = rank as usize * PIECE;
        let of_rank = bytes(checkpoint.step(), at, PIECE);
        checkpoint.dump(rank, at as u64, &of_rank).expect("dumps")
    };
    (0..RANKS).rev().map(dump).collect()
}

fn save(checkpoints: &Checkpoints, step: u64) {
    let checkpoint = checkpoints.begin(step).expect("begins");
    let parts = dumped(&checkpoint);
    checkpoint.end(&parts).expect("ends");
}

/// The step of the latest, after a look at all of its bytes; 0 if there is none.
fn latest(checkpoints: &Checkpoints) -> u64 {
    let Some(whole) = checkpoints.latest().expect("looks") else { return 0 };
    let mut all = vec![0; RANKS as usize * PIECE + 1];
    assert_eq!(whole.read(&mut all, 0).expect("reads"), all.len() - 1);
    all.pop();
    assert!(all == bytes(whole.step(), 0, all.len()), "step {}", whole.step());
    whole.step()
}

/// One checkpoint after the other; after each it says so.
fn write_for_ever(instance: &Path) {
    let checkpoints = series(instance, 2);
    loop {
        let step = latest(&checkpoints) + 1;
        save(&checkpoints, step);
        println!("ended {step}");
    }
}

fn writer(instance: &Path) -> Child {
    let mut command = process::command("writer", instance);
    command.stdout(Stdio::piped()).spawn().expect("starts")
}

/// Lets the writer run until it has ended some, kills it, and gives the last that it has ended.
fn killed_after(mut writer: Child, pause: Duration) -> u64 {
    let mut lines = BufReader::new(writer.stdout.take().expect("output")).lines();
    let ended = |line: String| line.split_once("ended ")?.1.parse::<u64>().ok();
    let mut next = || lines.by_ref().map_while(|line| line.ok()).find_map(ended);
    let first = next().expect("it ends one");
    std::thread::sleep(pause);
    writer.kill().expect("kills");
    writer.wait().expect("waits");
    std::iter::from_fn(next).last().unwrap_or(first)
}

#[test]
fn the_latest_is_whole_whenever_its_writer_is_killed_and_nothing_else_is_seen() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    let client = Client::connect(&bench.instance()).expect("connects");
    let mut draw = Random::new("writers");
    let mut before = 0;
    for round in 0..30 {
        let pause = Duration::from_micros(draw.below(20_000));
        let ended = killed_after(writer(&bench.instance()), pause);
        let now = latest(&checkpoints);
        assert!(now > before && (ended..=ended + 1).contains(&now), "{round}: {now}, {ended}");
        let steps = checkpoints.steps().expect("lists");
        assert!(steps.len() <= 3, "{round}: the old ones go");
        for step in steps.into_iter().filter(|step| *step > before) {
            checkpoints.of_step(step).expect("what has its name is whole");
        }
        assert!(client.list(b"").expect("lists").iter().all(|name| name.name == SERIES));
        before = now;
    }
    save(&checkpoints, before + 1);
    assert_eq!(kind(client.stat(RESERVED)), Some(ErrorKind::NotFound), "no leftovers stay");
}

#[test]
fn the_latest_is_whole_whenever_the_server_is_killed() {
    let mut bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    let mut writing = process::Process(writer(&bench.instance()));
    let mut output = BufReader::new(writing.0.stdout.take().expect("output")).lines();
    let mut draw = Random::new("servers");
    for _ in 0..10 {
        let said = output.by_ref().map_while(|line| line.ok()).find(|line| line.contains("ended "));
        assert!(said.is_some(), "it goes on");
        std::thread::sleep(Duration::from_micros(draw.below(20_000)));
        bench.restart();
    }
    writing.signal(Signal::STOP);
    assert!(latest(&checkpoints) > 9);
}

#[test]
fn any_number_of_processes_reads_back_its_part() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    save(&checkpoints, 4);
    let whole = checkpoints.of_step(4).expect("is whole");
    let all = RANKS as usize * PIECE;
    assert_eq!((whole.bytes(), whole.parts(), whole.step()), (all as u64, RANKS as usize, 4));
    for readers in [1, 2, 3, 7, 64] {
        for reader in 0..readers {
            let (from, to) = (all * reader / readers, all * (reader + 1) / readers);
            let mut part = vec![0; to - from];
            assert_eq!(whole.read(&mut part, from as u64).expect("reads"), part.len());
            assert!(part == bytes(4, from, part.len()), "{reader} of {readers}");
        }
    }
    assert_eq!(whole.read(&mut [0; 9], u64::MAX).expect("reads"), 0);
}

#[test]
fn a_checkpoint_of_a_step_that_is_there_takes_its_place_and_the_oldest_go() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 3);
    for step in [5, 6, 6, 7, 9] {
        save(&checkpoints, step);
    }
    assert_eq!(checkpoints.steps().expect("lists"), [6, 7, 9]);
    assert_eq!(latest(&checkpoints), 9);
    save(&checkpoints, 7);
    assert_eq!(checkpoints.steps().expect("lists"), [6, 7, 9]);
}

#[test]
fn what_is_not_whole_is_not_ended_and_the_latest_stays() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    save(&checkpoints, 1);
    let try_with = |spoil: &dyn Fn(&mut Vec<Part>)| {
        let checkpoint = checkpoints.begin(2).expect("begins");
        let mut parts = dumped(&checkpoint);
        spoil(&mut parts);
        let ended = kind(checkpoint.end(&parts));
        assert_eq!(latest(&checkpoints), 1);
        ended
    };
    let invalid = Some(ErrorKind::Invalid);
    assert_eq!(try_with(&|parts| parts.clear()), invalid);
    assert_eq!(try_with(&|parts| parts.truncate(3)), invalid);
    assert_eq!(try_with(&|parts| parts.push(parts[2])), invalid);
    assert_eq!(try_with(&|parts| parts[1].bytes = u64::MAX), invalid);
    assert_eq!(try_with(&|parts| parts[0].bytes -= 1), Some(ErrorKind::Malformed));
    assert_eq!(try_with(&|parts| parts[1].address.id.0 += 1), Some(ErrorKind::NotFound));
    assert_eq!(try_with(&|parts| parts[1].address.server = u16::MAX), invalid);
    save(&checkpoints, 2);
    assert_eq!(latest(&checkpoints), 2);
}

#[test]
fn what_does_not_fit_into_memory_makes_no_checkpoint_and_the_latest_stays() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    save(&checkpoints, 1);
    let checkpoint = checkpoints.begin(2).expect("begins");
    let piece = vec![1; 8 << 20];
    let dump = |rank: u32| checkpoint.dump(rank, u64::from(rank) << 23, &piece).err();
    assert_eq!((0..64).find_map(dump).expect("it does not all fit").kind, ErrorKind::NoSpace);
    assert_eq!(latest(&checkpoints), 1);
    checkpoint.abandon().expect("removes");
    save(&checkpoints, 2);
    assert_eq!(latest(&checkpoints), 2);
}

#[test]
fn who_was_left_behind_by_a_new_beginning_changes_nothing() {
    let bench = Bench::new();
    let checkpoints = series(&bench.instance(), 2);
    let left = checkpoints.begin(1).expect("begins");
    let parts = dumped(&left);
    let late = checkpoints.join(1, left.attempt()).expect("takes part");
    let checkpoint = checkpoints.begin(1).expect("begins");
    assert_eq!(kind(late.dump(9, 1 << 30, b"late")), Some(ErrorKind::NotFound));
    assert_eq!(kind(left.end(&parts)), Some(ErrorKind::NotFound));
    assert_eq!(kind(checkpoints.join(1, late.attempt())), Some(ErrorKind::NotFound));
    let parts = dumped(&checkpoint);
    checkpoint.end(&parts).expect("ends");
    assert_eq!(latest(&checkpoints), 1);
    let given_up = checkpoints.begin(2).expect("begins");
    dumped(&given_up);
    given_up.abandon().expect("removes");
    assert_eq!(latest(&checkpoints), 1);
}

/// What can be cut short in a permanent directory is not taken for whole.
#[test]
fn a_checkpoint_of_which_something_is_missing_is_passed_over() {
    let bench = Bench::new();
    let client = Client::connect(&bench.instance()).expect("connects");
    let checkpoints = checkpoints(&client, 9);
    (1..=5).for_each(|step| save(&checkpoints, step));
    let path = |step: u64, name: &str| format!("points/step-{step:012}/{name}").into_bytes();
    client.unlink(&path(5, "manifest")).expect("removes");
    client.truncate(&path(4, "manifest"), 50).expect("cuts");
    client.unlink(&path(3, "0/00000000000000020000000000013880")).expect("removes");
    client.truncate(&path(2, "0/00000000000000020000000000013880"), 39_999).expect("cuts");
    assert_eq!(checkpoints.steps().expect("lists"), [1, 2, 3, 4, 5]);
    assert_eq!(latest(&checkpoints), 1);
}

#[test]
fn those_that_are_not_whole_do_not_count_among_those_that_are_kept() {
    let bench = Bench::new();
    let client = Client::connect(&bench.instance()).expect("connects");
    let all = checkpoints(&client, 9);
    [1, 2, 9].into_iter().for_each(|step| save(&all, step));
    client.unlink(b"points/step-000000000009/manifest").expect("removes");
    save(&checkpoints(&client, 1), 3);
    assert_eq!(latest(&all), 3);
    assert_eq!(all.steps().expect("lists"), [3, 9]);
    save(&checkpoints(&client, 1), 10);
    assert_eq!(all.steps().expect("lists"), [10]);
}

/// Another server, on another machine or after this one was lost, has only what has arrived.
#[test]
fn the_next_run_goes_on_from_what_the_permanent_directory_has_whole() {
    let directory = tempfile::tempdir().expect("directory");
    let run = |goes_on_from: u64, saves: u64| {
        let home = Home::new();
        let _server = start_server(&home.instance(), Some(directory.path()));
        let client = Client::connect(&home.instance()).expect("connects");
        let checkpoints = checkpoints(&client, 9);
        assert_eq!(latest(&checkpoints), goes_on_from);
        (goes_on_from + 1..=saves).for_each(|step| save(&checkpoints, step));
        settle(&client);
        assert_eq!(latest(&checkpoints), saves);
    };
    run(0, 3);
    // Of the last one, a part did not arrive.
    let points = directory.path().join("points");
    let lost = "step-000000000003/0/00000000000000020000000000013880";
    std::fs::remove_file(points.join(lost)).expect("was there");
    run(2, 5);
    run(5, 6);
    assert_eq!(names(directory.path()), ["points"]);
    assert_eq!(names(&points).len(), 6);
}

#[test]
fn an_older_one_stays_until_a_newer_one_is_in_the_permanent_directory() {
    let Some(directory) = Mount::tmpfs(64) else { return };
    let home = Home::new();
    let _server = start_server(&home.instance(), Some(directory.path()));
    let client = Client::connect(&home.instance()).expect("connects");
    let checkpoints = checkpoints(&client, 1);
    let steps = || checkpoints.steps().expect("lists");
    let points = directory.path().join("points");
    save(&checkpoints, 1);
    settle(&client);
    directory.remount("ro");
    (2..=4).for_each(|step| save(&checkpoints, step));
    assert_eq!(steps(), [1, 2, 3, 4], "of the newer ones none is there");
    assert_eq!(names(&points), ["step-000000000001"]);
    directory.remount("rw");
    settle(&client);
    // Each goes with the end of one that was begun when its successor was there.
    for step in 5..=6 {
        save(&checkpoints, step);
        assert_eq!(steps(), [step - 1, step]);
        settle(&client);
        assert_eq!(names(&points).len(), 2);
    }
    assert_eq!(names(directory.path()), ["points"], "and no rubbish");
    let last = points.join("step-000000000006");
    assert_eq!(names(&last), ["0", "manifest"]);
    let first = std::fs::read(last.join("0/00000000000000000000000000000000")).expect("arrived");
    assert!(first == bytes(6, 0, PIECE));
}

/// So many ranks of the example on an instance.
fn ranks(program: &Path, count: u64, instance: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpiexec.mpich");
    command.args(["-n", &count.to_string()]).arg(program).arg("heat").args(arguments);
    command.env("TERRAL_INSTANCE", instance).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Processes that run a program.
fn who_runs(program: &Path) -> Vec<i32> {
    let is_it = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program)
    };
    let entries = std::fs::read_dir("/proc").expect("processes");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_it).collect()
}

#[test]
fn ranks_of_mpi_that_are_killed_twenty_times_go_on_from_a_whole_checkpoint() {
    let bench = Bench::new();
    let instance = bench.instance();
    let home = tempfile::tempdir().expect("directory");
    let Some(program) = heat::compiled(home.path()) else { return };
    let mut draw = Random::new("ranks");
    let mut before = 0;
    for round in 0..20 {
        let mut started = ranks(&program, 1 + (round + 1) % 3, &instance, &["1000000", "1000"])
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(started.stdout.take().expect("output")).lines();
        let said = lines.next().expect("it says from where").expect("a line");
        let from: u64 = said.strip_prefix("from ").expect("from").parse().expect("a step");
        assert!(from >= before, "{round}: it goes on from {from} after {before}");
        before = from;
        std::thread::sleep(Duration::from_micros(100_000 + draw.below(150_000)));
        let all = who_runs(&program);
        assert!(!all.is_empty(), "{round}: it has ended by itself");
        let victim = all[draw.below(all.len() as u64) as usize];
        let pid = rustix::process::Pid::from_raw(victim).expect("a process");
        rustix::process::kill_process(pid, Signal::KILL).expect("kills");
        started.wait().expect("ends");
        let begin = Instant::now();
        while !who_runs(&program).is_empty() {
            assert!(begin.elapsed().as_secs() < 60, "{round}: the others do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = ranks(&program, 1, &instance, &[]).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.ends_with(" is right\n"), "{round}: {said}");
    }
    assert!(before > 20, "it got on: {before}");
}

#[test]
fn copies_are_refused_where_no_other_server_is() {
    let bench = Bench::new();
    let all = series(&bench.instance(), 1);
    assert_eq!(kind(all.clone().with_copies(3)), Some(ErrorKind::Invalid));
    let copied = all.clone().with_copies(2).expect("a number");
    assert_eq!(kind(copied.begin(1)), Some(ErrorKind::Unsupported));
    save(&all, 1);
    assert_eq!(latest(&copied), 1, "what has none is read all the same");
}
