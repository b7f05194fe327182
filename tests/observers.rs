//! Who only looks is not a user: asking a server takes no session, counts as no program, holds
//! nobody up and works when nothing else does; and a process that leaks what it takes is refused
//! more, by name.
#![cfg(not(loom))]

mod actor;
mod beside;
mod files;
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use actor::{Actor, answer};
use files::WRITE;
use process::{Home, Process};
use terral_client::{Client, ErrorKind, Kind};

#[test]
fn role() {
    process::play(128, &[("hog", hog), ("silent", silent), ("changeling", changeling)]);
}

/// Takes sessions until it is refused, says how many it got and why no more, and keeps them.
fn hog(instance: &Path) {
    answer("ready");
    let mut sessions = Vec::new();
    loop {
        match Client::connect(instance) {
            Ok(client) => sessions.push(client),
            Err(error) => break answer(&format!("{} {}", sessions.len(), error.context)),
        }
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Connects again and again and never says a word.
fn silent(instance: &Path) {
    answer("ready");
    let connect = || UnixStream::connect(instance.join("socket")).expect("connects");
    let _silent: Vec<UnixStream> = (0..300).map(|_| connect()).collect();
    answer("connected");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Has a session, becomes another program, and so on.
fn changeling(instance: &Path) {
    const LIVES: &str = "TERRAL_TEST_LIVES";
    let lives = std::env::var(LIVES).map_or(100, |lives| lives.parse().expect("a number"));
    let client = Client::connect(instance).expect("has a session in every life");
    client.open(format!("life-{lives}").as_bytes(), WRITE).expect("opens").close();
    if lives > 0 {
        let mut again = process::command("changeling", instance);
        panic!("{}", again.env(LIVES, (lives - 1).to_string()).exec());
    }
}

fn terral(arguments: &[&str], instance: &Path) -> Command {
    let mut command = Command::new(beside::built("terral"));
    command.args(arguments).arg("--instance").arg(instance).env_remove("TERRAL_INSTANCE");
    command
}

fn says(command: &mut Command) -> String {
    let output = command.output().expect("terral");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn who_only_looks_has_no_session_and_is_no_program() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let user = Client::connect(&instance).expect("connects");
    user.make_directory(b"results", 0o755).expect("makes");
    let file = user.open(b"results/a", WRITE).expect("opens");
    file.write(b"hello").expect("writes");
    let before = user.status().expect("status");
    let observer = Client::observe(&instance).expect("looks");
    for _ in 0..50 {
        assert_eq!(observer.status().expect("status").sessions, before.sessions);
    }
    assert_eq!(observer.stat(b"results/a").expect("is there").size, 5);
    let names = observer.list(b"results").expect("lists");
    assert_eq!((names.len(), names[0].kind), (1, Kind::File));
    assert!(!observer.safety(b"results/a").expect("says").in_backing);
    observer.flush().expect("hurries");
    for verb in [&["status"][..], &["status", "--json"], &["ls", "-l"], &["wait", "--timeout=0"]] {
        let _ = terral(verb, &instance).output().expect("terral");
    }
    says(terral(&["stat"], &instance).arg("results/a"));
    let after = user.status().expect("status");
    assert_eq!((after.sessions, after.totals.sessions), (before.sessions, before.totals.sessions));
    assert_eq!(after.totals.opens, before.totals.opens);
    // And it cannot be more than that.
    let kind = |error: terral_client::Error| error.kind;
    assert_eq!(observer.open(b"b", WRITE).map(drop).map_err(kind), Err(ErrorKind::Invalid));
    assert_eq!(observer.unlink(b"results/a").map_err(kind), Err(ErrorKind::Invalid));
}

#[test]
fn a_process_that_leaks_sessions_is_refused_more_by_name() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let hog = Actor::start("hog", &instance);
    let refused = hog.answer();
    let pid = hog.process.0.id();
    assert!(refused.starts_with(&format!("32 process {pid} (")), "{refused}");
    Client::connect(&instance).expect("others have sessions as before").status().expect("status");
    let shown = says(&mut terral(&["status"], &instance));
    assert!(shown.contains(&format!("warning   process {pid} (")), "{shown}");
}

#[test]
fn questions_are_answered_when_all_sessions_are_taken() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let mut hogs: Vec<Actor> = Vec::new();
    let refused = loop {
        hogs.push(Actor::start("hog", &instance));
        let refused = hogs.last().expect("one").answer();
        assert!(hogs.len() < 40, "sessions without end: {refused}");
        if !refused.starts_with("32 ") {
            break refused;
        }
    };
    assert!(refused.contains("all 1023 sessions are taken, 32 of them by process "), "{refused}");
    assert_eq!(Client::connect(&instance).map(drop).unwrap_err().kind, ErrorKind::TooMany);
    let observer = Client::observe(&instance).expect("looks");
    assert!(observer.status().expect("status").sessions >= 1000);
    assert!(observer.list(b"").expect("lists").is_empty());
    says(&mut terral(&["status"], &instance));
    // Whoever ends makes room.
    drop(hogs.pop());
    let begin = Instant::now();
    while Client::connect(&instance).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no session is free again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_that_becomes_another_program_again_and_again_runs_out_of_nothing() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let mut changeling = process::start("changeling", &instance, None);
    assert!(changeling.0.wait().expect("ends").success(), "it had no session in some life");
    let observer = Client::observe(&instance).expect("looks");
    assert_eq!(observer.list(b"").expect("lists").len(), 101);
}

#[test]
fn who_connects_and_says_nothing_holds_nobody_up_and_is_named() {
    let home = Home::new();
    let instance = home.instance();
    let server = process::start_server(&instance, None);
    let silent = Actor::start("silent", &instance);
    assert_eq!(silent.answer(), "connected");
    // Half a message is no message either.
    let mut half = UnixStream::connect(instance.join("socket")).expect("connects");
    half.write_all(&[5, 0, 0]).expect("writes");
    let threads = || {
        let tasks = format!("/proc/{}/task", server.0.id());
        std::fs::read_dir(tasks).expect("lives").count()
    };
    assert!(threads() < 10, "a thread for everybody: {}", threads());
    let begin = Instant::now();
    let status = Client::connect(&instance).expect("connects").status().expect("status");
    assert!(begin.elapsed() < Duration::from_secs(9), "the silent hold others up");
    let pid = silent.process.0.id().to_string();
    let named = |warning: &String| warning.contains(&format!("process {pid} ("));
    assert!(status.warnings.iter().any(named), "{:?}", status.warnings);
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).expect("lives");
    assert!(descriptors.count() < 60, "it keeps the descriptors of the silent");
}

/// `terral`, its output line by line.
struct Shown(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Shown {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("terral");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Shown(child, lines)
    }

    fn until(&mut self, what: &str) {
        let found =
            self.1.by_ref().map_while(Result::ok).take(200).find(|line| line.contains(what));
        assert!(found.is_some(), "never shown: {what}");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn status_watch_waits_for_a_server_and_outlives_it() {
    let home = Home::new();
    let instance = home.instance();
    let mut watch = Shown::start(terral(&["status", "--watch"], &instance));
    watch.until("waiting for a server");
    let mut server: Process = process::start_server(&instance, None);
    watch.until("no permanent directory, process");
    server.kill();
    watch.until("waiting for a server");
    let _again = process::start_server(&instance, None);
    watch.until("start 2 on this memory");
}

#[test]
fn those_who_watch_a_run_do_not_hold_back_its_end() {
    let to = tempfile::tempdir().expect("directory");
    let script = "echo $TERRAL_INSTANCE; echo done > $TERRAL_DIR/result; sleep 1";
    let mut run = Command::new(beside::built("terral"));
    run.args(["run", "--json", "--memory", "128M", "--to"]).arg(to.path());
    run.args(["--", "sh", "-c", script]).env_remove("TERRAL_INSTANCE");
    let mut run = Shown::start(run);
    let instance: PathBuf = run.1.next().expect("says where").expect("text").into();
    let _watches: Vec<Shown> =
        (0..3).map(|_| Shown::start(terral(&["status", "--watch"], &instance))).collect();
    let observer = Client::observe(&instance).expect("looks");
    let summary = run.1.next().expect("a summary").expect("text");
    assert!(run.0.wait().expect("ends").success());
    drop(observer);
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["state"], "arrived");
    // The shell, and nobody else, opened a file; `sleep` did nothing.
    assert_eq!(summary["totals"]["sessions"], 1, "{summary}");
    assert_eq!(std::fs::read(to.path().join("result")).expect("arrived"), b"done\n");
}
