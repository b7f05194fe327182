//! A run after a run that was killed with its server: it finds what that one had acknowledged, and
//! no two are in charge of one permanent directory.
#![allow(clippy::print_stdout)] // Seeds are said.
#![cfg(not(loom))]

mod acknowledged;
mod beside;
mod descendants;
mod launched;
mod left;
mod process;
mod random;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use acknowledged::{Acknowledged, work};
use beside::{built, compiled};
use descendants::ended;
use launched::{said, terral, until};
use left::{Home, directory_of, instance_of, is_left, kill_all};
use random::Random;
use rustix::process::Signal;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    let Some((role, log)) = process::role() else { return };
    match role.as_str() {
        "worker" => work(&log),
        "verifier" => drop(Acknowledged::read(&log).verify(&acknowledged::home())),
        other => panic!("no role {other}"),
    }
}

// Runs.

fn run_to(to: &Path) -> Command {
    launched::run_to(to, &["--json"])
}

fn shell(to: &Path, script: &str) -> Command {
    let mut command = run_to(to);
    command.args(["--", "sh", "-c", script]);
    command
}

fn output(command: &mut Command) -> Output {
    ended(command.spawn().expect("starts"))
}

fn summary(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{:?}: {}", output.status, said(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Several at once bring what is left, and some of them are killed meanwhile.
fn recover_at_once(left: &str, random: &mut Random) {
    until("everything is brought", || {
        let recovers = (0..2).map(|_| terral().args(["recover", left]).spawn().expect("starts"));
        let mut recovers: Vec<Child> = recovers.collect();
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            kill_all(&mut recovers.remove(0), random);
        }
        for output in recovers.into_iter().map(ended) {
            let late = said(&output).contains("no such instance");
            assert!(output.status.success() || late, "{}", said(&output));
        }
        !is_left(left)
    });
}

/// Kills a run with all that is its own after a while, and perhaps its server alone before. The
/// instance, if it had a server.
fn kill_within(run: &mut Child, life_us: u64, random: &mut Random) -> Option<String> {
    std::thread::sleep(Duration::from_micros(random.below(life_us)));
    if random.below(3) == 0
        && let Some(server) = descendants::server(run.id())
    {
        // The program goes on with the next one.
        descendants::send(server, Signal::KILL);
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        let ended = run.try_wait().expect("a child");
        assert!(ended.is_none(), "without its server: {ended:?}");
    }
    let instance = instance_of(run.id());
    kill_all(run, random);
    instance
}

#[test]
fn a_run_after_a_kill_finds_what_the_last_one_had_acknowledged() {
    let kills = std::env::var("TERRAL_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let home = Home::new();
    let log = home.path("log");
    compiled("hand", home.0.path());
    File::create(&log).expect("makes");
    let mut random = Random::new("takeover");
    let (mut taken, mut recovered) = (0, 0);
    let worker = |role: &str| {
        let mut command = run_to(&home.to());
        command.args(["--memory", acknowledged::MEMORY, "--"]);
        command.arg(std::env::current_exe().expect("own path"));
        command.args(["--exact", "role", "--nocapture"]);
        command.env(process::ROLE, role).env("TERRAL_TEST_INSTANCE", &log);
        command
    };
    let verified = || fs::read_to_string(&log).expect("a log").matches("verified").count();
    for round in 0..kills {
        let mut run = worker("worker").spawn().expect("starts");
        until("a run that has verified", || {
            if run.try_wait().expect("a child").is_some() {
                return true;
            }
            verified() > round
        });
        if verified() <= round {
            panic!("round {round}: {}", said(&ended(run)));
        }
        // A file that does not fit into memory takes longer than most rounds last.
        let life_us = if round % 8 == 7 { 3_000_000 } else { 400_000 };
        let instance = kill_within(&mut run, life_us, &mut random);
        taken += usize::from(instance.is_some());
        if let Some(left) = instance.filter(|left| random.below(4) == 0 && is_left(left)) {
            recover_at_once(&left, &mut random);
            Acknowledged::read(&log).verify(&home.to());
            recovered += 1;
        }
    }
    let last = output(&mut worker("verifier"));
    let summary = summary(&last);
    assert!(taken > kills / 2, "servers were alive in {taken} rounds only");
    println!("{kills} kills, {recovered} times recovered; {}", Acknowledged::steps(&log));
    Acknowledged::read(&log).verify(&home.to());
    assert!(!home.to().join(".terral").exists());
    let held: u64 = fs::read_dir(home.to())
        .expect("lists")
        .map(|entry| entry.expect("entry").metadata().expect("is there").len())
        .sum();
    let used = summary["server"]["memory_used_bytes"].as_u64().expect("is said");
    assert!(used <= held + (32 << 20), "{used} bytes used, {held} by files: {summary}");
    assert_eq!(summary["server"]["open"], 0, "descriptions of the dead: {summary}");
}

#[test]
fn a_file_keeps_its_number_and_no_other_gets_it() {
    let home = Home::new();
    let all = "find . ! -name '.terral*' ! -name numbers -printf '%p %i\\n' | sort";
    let work = "cd $TERRAL_DIR; mkdir d; echo a > d/a; ln d/a b; ln -s b s; mkfifo f; \
                echo x > x; stat -c '%i' x > numbers; rm x; echo y > y";
    let left = home.leave(&[], &format!("{work}; {all} >> numbers"));
    let new = "cd $TERRAL_DIR; cat numbers; echo; echo z > z";
    let listed = "for each in . d; do ls -1iU $each; done | sort; echo; stat -c '%i %n' * | sort";
    let output = output(&mut shell(&home.to(), &format!("{new}; {all}; echo; {listed}")));
    assert_eq!(summary(&output)["instance"], *left, "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.split("\n\n").map(|part| part.lines().collect::<Vec<_>>());
    let mut part = || parts.next().expect("a list");
    let (mut before, after, listed, known) = (part(), part(), part(), part());
    let gone = before.remove(0);
    let number = |line: &str| line.rsplit(' ').next().map(str::to_owned);
    assert_eq!(before.len(), 7, "{text}");
    for line in &before {
        assert!(after.contains(line), "{line}: {text}");
    }
    let numbers: Vec<_> = after.iter().filter_map(|line| number(line)).collect();
    assert!(!numbers.iter().any(|number| number == gone), "a number came again: {text}");
    // Two names are of one file.
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    assert_eq!((numbers.len(), distinct.len()), (8, 7), "{text}");
    for line in known.iter().filter(|line| !line.starts_with('{')) {
        let listed = listed.iter().any(|listed| listed.trim_start() == *line);
        assert!(listed, "what a directory says of {line}: {text}");
    }
}

#[test]
fn one_of_two_runs_at_once_takes_over_and_the_other_is_told_what_helps() {
    for _ in 0..5 {
        let home = Home::new();
        let left = home.leave(&[], "echo kept > $TERRAL_DIR/a");
        let script = "cat $TERRAL_DIR/a; echo more >> $TERRAL_DIR/a; sleep 2";
        let both = [(); 2].map(|()| shell(&home.to(), script).spawn().expect("starts"));
        let mut both = both.map(ended);
        both.sort_by_key(|output| output.status.code());
        let [first, second] = both;
        assert_eq!(summary(&first)["instance"], *left, "{}", said(&first));
        assert_eq!(second.status.code(), Some(125), "{}", said(&second));
        assert!(said(&second).contains(&format!("--instance {left}")), "{}", said(&second));
        assert_eq!(home.has("a"), "kept\nmore\n");
        assert!(!is_left(&left));
    }
}

#[test]
fn recovers_at_once_all_end_and_all_is_there() {
    for round in 0..8 {
        let home = Home::new();
        let left = home.leave(&[], "head -c 40000000 /dev/zero > $TERRAL_DIR/a");
        let recover = || {
            let mut command = terral();
            command.args(["recover", &left]).spawn().expect("starts")
        };
        let three = [recover(), recover(), recover()].map(ended);
        for output in three {
            let late = said(&output).contains("no such instance");
            assert!(output.status.success() || late, "round {round}: {}", said(&output));
        }
        assert_eq!(fs::metadata(home.to().join("a")).expect("arrived").len(), 40_000_000);
        assert!(!is_left(&left));
    }
}

#[test]
fn what_another_prefix_or_less_memory_cannot_use_is_brought_first() {
    let others: [&[&str]; 2] = [&["--prefix", "/elsewhere"], &["--memory", "128M"]];
    for other in others {
        let home = Home::new();
        let left = home.leave(&["--memory", "256M"], "echo kept > $TERRAL_DIR/a");
        let mut run = run_to(&home.to());
        let run = run.args(other).args(["--", "sh", "-c", "cat $TERRAL_DIR/a > $TERRAL_DIR/b"]);
        let output = output(run);
        let summary = summary(&output);
        assert_eq!(summary["earlier"][0]["instance"], *left, "{summary}");
        assert_eq!(summary["earlier"][0]["taken_over"], false, "{summary}");
        assert!(said(&output).contains("first: it"), "{}", said(&output));
        assert_eq!(home.has("b"), "kept\n");
        assert!(!is_left(&left));
    }
}

#[test]
fn what_was_changed_in_the_directory_since_the_kill_is_seen() {
    let home = Home::new();
    fs::write(home.to().join("input"), "old").expect("writes");
    let script = "cat $TERRAL_DIR/input; mkdir $TERRAL_DIR/d; echo kept > $TERRAL_DIR/d/a; \
                  terral wait; echo more > $TERRAL_DIR/d/b";
    let script = script.replace("terral wait", &format!("{} wait", built("terral").display()));
    let changes: [&dyn Fn(); 2] =
        [&|| fs::write(home.to().join("input"), "new").expect("writes"), &|| {
            fs::write(home.to().join("d/c"), "theirs").expect("writes")
        }];
    let mut first = true;
    for change in changes {
        let script = if first { script.clone() } else { "echo x > $TERRAL_DIR/x".into() };
        let left = home.leave(&[], &script);
        change();
        let look = "cat $TERRAL_DIR/input $TERRAL_DIR/d/a $TERRAL_DIR/d/b; ls $TERRAL_DIR/d";
        let output = output(&mut shell(&home.to(), look));
        let seen = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = if first { "a\nb\n" } else { "a\nb\nc\n" };
        assert!(seen.starts_with(&format!("newkept\nmore\n{names}")), "{seen}{}", said(&output));
        assert!(!is_left(&left));
        first = false;
    }
}

#[test]
fn what_another_version_left_is_not_passed_over() {
    let home = Home::new();
    let left = home.leave(&[], "echo kept > $TERRAL_DIR/a");
    let log = File::options().write(true).open(directory_of(&left).join("log")).expect("a log");
    log.write_all_at(&[99, 0], 4).expect("writes");
    let output = output(&mut shell(&home.to(), "true"));
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    let advice = format!("terral recover {left}");
    assert!(said(&output).contains(&advice) && said(&output).contains("99"), "{}", said(&output));
    fs::remove_dir_all(directory_of(&left)).expect("removes");
}

#[test]
fn programs_that_outlived_their_launcher_are_waited_for() {
    let home = Home::new();
    let ready = home.path("ready");
    let script = format!(
        "echo one > $TERRAL_DIR/a; : > {}; sleep 1.5; echo two >> $TERRAL_DIR/a",
        ready.display()
    );
    for with_server in [false, true] {
        let _ = fs::remove_file(&ready);
        let mut run = shell(&home.to(), &format!("exec 3>> $TERRAL_DIR/a; {script}"));
        let mut run = run.spawn().expect("starts");
        until("the program's begin", || ready.exists());
        let server = descendants::server(run.id()).expect("a server");
        descendants::send(run.id() as i32, Signal::KILL);
        if with_server {
            descendants::send(server, Signal::KILL);
        }
        run.wait().expect("was killed");
        let mut late = run_to(&home.to());
        let late = output(late.args(["--wait-timeout", "200ms", "--", "true"]));
        assert_eq!(late.status.code(), Some(125), "{}", said(&late));
        assert!(said(&late).contains("still use it"), "{}", said(&late));
        let next = output(&mut shell(&home.to(), "cat $TERRAL_DIR/a"));
        let seen = String::from_utf8_lossy(&next.stdout).into_owned();
        assert!(seen.starts_with("one\ntwo\n"), "{seen}{}", said(&next));
        assert!(next.status.success(), "{}", said(&next));
        fs::remove_file(home.to().join("a")).expect("arrived");
    }
}

#[test]
fn a_second_server_for_a_directory_is_refused_unless_it_is_meant() {
    let home = Home::new();
    let (ready, over) = (home.path("ready"), home.path("over"));
    let script = format!(
        ": > {}; while ! test -e {}; do sleep 0.02; done; cat $TERRAL_DIR/b",
        ready.display(),
        over.display()
    );
    let run = shell(&home.to(), &script).spawn().expect("starts");
    until("the first", || ready.exists());
    let name = instance_of(run.id()).expect("a server");
    for verb in ["run", "serve"] {
        let mut second = terral();
        second.arg(verb).arg("--to").arg(home.to());
        let second =
            output(second.args(["--", "true"].iter().take(if verb == "run" { 2 } else { 0 })));
        assert_eq!(second.status.code(), Some(125), "{}", said(&second));
        assert!(said(&second).contains(&format!("--instance {name}")), "{}", said(&second));
    }
    let joins = ["run", "--instance", &name, "--", "sh", "-c", "echo joined > $TERRAL_DIR/b"];
    let joined = output(terral().args(joins));
    assert!(joined.status.success(), "{}", said(&joined));
    let meant = format!("meant-{}", std::process::id());
    let mut beside = run_to(&home.to());
    let beside =
        output(beside.args(["--instance", &meant, "--", "sh", "-c", "echo c > $TERRAL_DIR/c"]));
    assert_eq!(summary(&beside)["instance"], *meant);
    fs::write(&over, "").expect("writes");
    let first = ended(run);
    assert!(String::from_utf8_lossy(&first.stdout).starts_with("joined\n"), "{}", said(&first));
    assert_eq!((home.has("b"), home.has("c")), ("joined\n".into(), "c\n".into()));
}

/// Two runs that were meant at once, and were killed at once.
fn leave_two(home: &Home, scripts: [&str; 2]) -> [String; 2] {
    let names = ["one", "two"].map(|name| format!("{name}-{}", std::process::id()));
    let mut runs = Vec::new();
    for (name, script) in names.iter().zip(scripts) {
        let done = home.path(name);
        let _ = fs::remove_file(&done);
        let script = format!("{script}; : > {}; exec sleep 100", done.display());
        let mut run = run_to(&home.to());
        run.args(["--instance", name, "--", "sh", "-c", &script]);
        runs.push(run.spawn().expect("starts"));
        until("the script's end", || done.exists());
    }
    runs.iter_mut().for_each(|run| kill_all(run, &mut Random(1)));
    names
}

#[test]
fn several_leftovers_are_brought_and_those_that_disagree_are_listed() {
    let home = Home::new();
    let names = leave_two(&home, ["echo 1 > $TERRAL_DIR/a", "echo 2 > $TERRAL_DIR/b"]);
    let output_of = output(&mut shell(&home.to(), "cat $TERRAL_DIR/a $TERRAL_DIR/b"));
    assert!(
        String::from_utf8_lossy(&output_of.stdout).starts_with("1\n2\n"),
        "{}",
        said(&output_of)
    );
    let told = summary(&output_of);
    let brought =
        ["/earlier/0/instance", "/earlier/1/instance"].map(|at| told.pointer(at).cloned());
    assert_eq!(brought, names.clone().map(|name| Some(name.into())), "{told}");

    // A new file that is open is not published.
    let open = |number: u32| format!("exec 3> $TERRAL_DIR/c; echo {number} >&3");
    let names = leave_two(&home, [&open(1), &open(2)]);
    let refused = output(&mut shell(&home.to(), "true"));
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(names.iter().all(|name| said(&refused).contains(name)), "{}", said(&refused));
    let forgotten = output(terral().args(["recover", "--forget", &names[0]]));
    assert!(forgotten.status.success(), "{}", said(&forgotten));
    let next = output(&mut shell(&home.to(), "cat $TERRAL_DIR/c"));
    assert!(String::from_utf8_lossy(&next.stdout).starts_with("2\n"), "{}", said(&next));
}

#[test]
fn a_fresh_run_is_refused_while_something_is_owed() {
    let home = Home::new();
    let left = home.leave(&[], "echo kept > $TERRAL_DIR/a");
    let fresh = || {
        let mut run = run_to(&home.to());
        output(run.args(["--fresh", "--", "sh", "-c", "ls $TERRAL_DIR"]))
    };
    let refused = fresh();
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    let advice = format!("recover --forget {left}");
    assert!(said(&refused).contains(&advice), "{}", said(&refused));
    assert!(is_left(&left), "what it owes is gone");
    assert!(output(terral().args(["recover", "--forget", &left])).status.success());
    assert!(fresh().status.success());
    assert!(!home.to().join("a").exists());
}

#[test]
fn a_directory_that_was_moved_since_gets_its_data_where_it_is_now() {
    let home = Home::new();
    let left = home.leave(&[], "echo kept > $TERRAL_DIR/a");
    fs::rename(home.to(), home.path("moved")).expect("renames");
    fs::create_dir(home.to()).expect("makes");
    let other = output(&mut shell(&home.to(), "true"));
    assert_eq!(other.status.code(), Some(125), "{}", said(&other));
    assert!(said(&other).contains(&format!("recover {left}")), "{}", said(&other));
    let next = output(&mut shell(&home.path("moved"), "cat $TERRAL_DIR/a"));
    assert_eq!(summary(&next)["instance"], *left);
    assert_eq!(fs::read_to_string(home.path("moved/a")).expect("arrived"), "kept\n");
    assert!(!home.to().join("a").exists());
}
