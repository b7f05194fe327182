//! Locks between real processes: each is a client that does what it is told line by line, and can
//! be killed; so can the server.
#![cfg(not(loom))]

mod actor;
mod files;
mod process;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use actor::{Actor, answer};
use files::open;
use process::{Home, Process, start_server};
use rustix::process::{Pid, Signal, kill_process};
use terral_client::{Client, File, LockKind, LockRange, Locker, OpenHow, access, descriptor};

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(128, &[("locker", obey), ("counter", count)]);
}

// The locker's side.

/// What an order's `p0-9x` says: by whom, where, what. `p` process, `d` description, `f` flock;
/// `s` shared, `x` exclusive, `u` unlock.
fn asked(word: &str) -> (Locker, LockRange, LockKind) {
    let locker = match &word[..1] {
        "p" => Locker::Process,
        "d" => Locker::Description,
        _ => Locker::Flock,
    };
    let kind = match &word[word.len() - 1..] {
        "s" => LockKind::Shared,
        "x" => LockKind::Exclusive,
        _ => LockKind::Unlock,
    };
    let range = word[1..word.len() - 1].split_once('-').map_or(LockRange::ALL, |(first, last)| {
        let number = |text: &str| text.parse().expect("a number");
        LockRange { first: number(first), last: number(last) }
    });
    (locker, range, kind)
}

/// Does one order with an open file; says how it ended.
fn carry_out(file: &File, order: &str, word: &str) -> String {
    let done = |result: Result<(), terral_client::Error>| match result {
        Ok(()) => "ok".into(),
        Err(error) => format!("errno {}", error.to_errno()),
    };
    match order {
        "lock" | "wait" => {
            let (locker, range, kind) = asked(word);
            done(file.lock(locker, range, kind, order == "wait"))
        }
        "test" => {
            let (locker, range, kind) = asked(word);
            match file.lock_test(locker, range, kind).expect("a test") {
                None => "free".into(),
                Some(held) => {
                    let LockRange { first, last } = held.range;
                    format!("{} {first}-{last} {:?}", held.pid, held.kind)
                }
            }
        }
        "release" => done(file.release_locks()),
        other => panic!("no order {other}"),
    }
}

/// Locks through a descriptor of the kernel that a child inherits; gives the child's number.
fn inherit(instance: &Path, client: &Client) -> u32 {
    let how = OpenHow { access: files::WRITE.access | access::KERNEL as u8, ..files::WRITE };
    let file = client.open(b"a", how).expect("opens");
    let fd = descriptor::hold(instance, file.description(), file.nonce(), 0);
    descriptor::share(fd.expect("a descriptor"), file.description()).expect("a lock");
    file.set_shared();
    file.lock(Locker::Flock, LockRange::ALL, LockKind::Exclusive, false).expect("locks");
    let mut sleep = Command::new("sleep");
    sleep.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sleep.spawn().expect("sleeps").id()
}

/// Reads orders, `FILE ORDER WORD`, and answers each; `exec` starts this program anew in the same
/// process, `thread` lets a thread do the rest of the line.
fn obey(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let mut files = [open(&client, "a"), open(&client, "a"), open(&client, "b")];
    answer("ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match words[0].as_str() {
            "exec" => panic!("{}", process::command("locker", instance).exec()),
            "close" => {
                files[0].release_locks().expect("releases");
                files[0].close();
                files[0] = open(&client, "a");
                answer("ok");
            }
            "inherit" => {
                answer(&inherit(instance, &client).to_string());
            }
            "thread" => {
                let file = open(&client, "a");
                std::thread::spawn(move || answer(&carry_out(&file, &words[1], &words[2])));
            }
            number => {
                let file = &files[number.parse::<usize>().expect("a number")];
                answer(&carry_out(file, &words[1], &words[2]));
            }
        }
    }
}

const ROUNDS: u64 = 400;

/// Counts in a file, under a lock that excludes all the others, as only a lock makes right.
fn count(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "count");
    for _ in 0..ROUNDS {
        for (locker, first) in [(Locker::Process, 0), (Locker::Description, 8), (Locker::Flock, 16)]
        {
            let range = match locker {
                Locker::Flock => LockRange::ALL,
                _ => LockRange { first, last: first + 7 },
            };
            file.lock(locker, range, LockKind::Exclusive, true).expect("locks");
            let mut bytes = [0; 8];
            assert_eq!(file.read_at(&mut bytes, first).expect("reads"), 8);
            let more = u64::from_le_bytes(bytes) + 1;
            file.write_at(&more.to_le_bytes(), first).expect("writes");
            file.lock(locker, range, LockKind::Unlock, false).expect("unlocks");
        }
    }
}

// The test's side.

fn locker(home: &Home) -> Actor {
    Actor::start("locker", &home.instance())
}

const BLOCKED: &str = "errno 11";

#[test]
fn ranges_of_two_processes_split_merge_and_convert() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    assert_eq!(one.ask("0 lock p0-99x"), "ok");
    assert_eq!(two.ask("0 lock p99-99s"), BLOCKED);
    assert_eq!(two.ask("0 lock p100-100x"), "ok");
    assert_eq!(two.ask("0 test p0-50s"), format!("{} 0-99 Exclusive", one.pid()));
    assert_eq!(one.ask("0 lock p40-59u"), "ok");
    assert_eq!(two.ask("0 test p0-99s"), format!("{} 0-39 Exclusive", one.pid()));
    assert_eq!(two.ask("0 test p40-99s"), format!("{} 60-99 Exclusive", one.pid()));
    assert_eq!(two.ask("0 lock p40-59x"), "ok");
    assert_eq!(one.ask("0 lock p50-50s"), BLOCKED);
    assert_eq!(two.ask("0 lock p40-59s"), "ok");
    assert_eq!(one.ask("0 lock p40-59s"), "ok");
    assert_eq!(one.ask("0 lock p40-59x"), BLOCKED, "an upgrade that must wait keeps what it has");
    assert_eq!(two.ask("0 lock p40-59x"), BLOCKED);
    // Another descriptor of the same process is the same owner; another file is another matter.
    assert_eq!(one.ask("1 lock p0-39x"), "ok");
    assert_eq!(two.ask("2 lock p0-39x"), "ok");
    assert_eq!(one.ask("0 test p0-99x").split(' ').next(), Some(two.pid().to_string().as_str()));
}

#[test]
fn locks_of_descriptions_are_their_own_and_flock_is_a_world_apart() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    assert_eq!(one.ask("0 lock dx"), "ok");
    assert_eq!(one.ask("1 lock ds"), BLOCKED, "another description of the same process");
    assert_eq!(one.ask("0 lock ps"), BLOCKED, "the process is not its description");
    assert_eq!(two.ask("0 test ps"), format!("0 0-{} Exclusive", i64::MAX));
    assert_eq!(two.ask("0 lock fx"), "ok");
    assert_eq!(one.ask("0 lock fs"), BLOCKED);
    assert_eq!(two.ask("0 lock fs"), "ok");
    assert_eq!(one.ask("0 lock fs"), "ok");
    assert_eq!(one.ask("0 lock fx"), BLOCKED);
    assert_eq!(two.ask("0 lock fx"), "ok", "who failed to convert has lost the old one");
    assert_eq!(one.ask("0 lock du"), "ok");
    assert_eq!(two.ask("1 lock px"), "ok");
}

#[test]
fn a_process_that_closes_or_ends_gives_its_locks_back() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    assert_eq!(one.ask("0 lock p0-9x"), "ok");
    assert_eq!(one.ask("2 release -"), "ok", "of another file");
    assert_eq!(two.ask("0 lock p0-9x"), BLOCKED);
    assert_eq!(one.ask("1 release -"), "ok", "through any descriptor of it");
    assert_eq!(two.ask("0 lock p0-9x"), "ok");
    assert_eq!(two.ask("0 lock fx"), "ok");
    assert_eq!(two.ask("0 lock d50-50x"), "ok");
    assert_eq!(two.ask("close"), "ok");
    assert_eq!(one.ask("0 lock px"), "ok");
    assert_eq!(one.ask("0 lock fx"), "ok");
    for round in 0..20 {
        let mut holder = locker(&home);
        let word = ["p200-200x", "d200-200x", "fx"][round % 3];
        if word == "fx" {
            assert_eq!(one.ask("0 lock fu"), "ok");
        } else {
            assert_eq!(one.ask("0 lock p200-200u"), "ok");
        }
        assert_eq!(holder.ask(&format!("0 lock {word}")), "ok");
        assert_eq!(two.ask(&format!("1 lock {word}")), BLOCKED);
        holder.process.kill();
        // Whoever knows that the holder is dead need not wait until the server has noticed.
        assert_eq!(two.ask(&format!("1 lock {word}")), "ok", "round {round}");
        assert_eq!(two.ask("1 lock p200-200u"), "ok");
        assert_eq!(two.ask("1 lock d200-200u"), "ok");
        assert_eq!(two.ask("1 lock fu"), "ok");
    }
}

#[test]
fn a_child_that_inherited_the_descriptor_keeps_its_lock() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    let child: i32 = one.ask("inherit").parse().expect("a process");
    assert_eq!(two.ask("0 lock fs"), BLOCKED);
    one.process.kill();
    assert_eq!(two.ask("0 lock fs"), BLOCKED, "the child has the description");
    two.tell("0 wait fs");
    two.waits();
    kill_process(Pid::from_raw(child).expect("a process"), Signal::KILL).expect("a child of ours");
    assert_eq!(two.answer(), "ok");
}

/// Who is not woken asks again after a second, of which 0.3 s have passed.
const QUICK: Duration = Duration::from_millis(500);

#[test]
fn who_waits_gets_the_lock_when_its_holder_is_killed_or_lets_go() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let mut fastest = Duration::MAX;
    for (round, word) in ["p10-19x", "d10-19x", "fx"].iter().cycle().take(30).enumerate() {
        if round >= 3 && fastest < QUICK {
            break;
        }
        let (mut holder, mut waiter) = (locker(&home), locker(&home));
        assert_eq!(holder.ask(&format!("0 lock {word}")), "ok");
        waiter.tell(&format!("0 wait {word}"));
        waiter.waits();
        let begin = Instant::now();
        assert_eq!(holder.ask(&format!("0 lock {}u", &word[..word.len() - 1])), "ok");
        assert_eq!(waiter.answer(), "ok");
        let after_unlock = begin.elapsed();
        holder.tell(&format!("0 wait {}s", &word[..word.len() - 1]));
        holder.waits();
        let begin = Instant::now();
        waiter.process.kill();
        assert_eq!(holder.answer(), "ok");
        fastest = fastest.min(after_unlock.max(begin.elapsed()));
    }
    assert!(fastest < QUICK, "not woken: {fastest:?}");
}

#[test]
fn more_threads_may_wait_than_there_are_request_slots() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let mut one = locker(&home);
    assert_eq!(one.ask("0 lock fx"), "ok");
    for _ in 0..12 {
        one.tell("thread wait fs");
    }
    one.waits();
    one.tell("0 lock fu");
    for _ in 0..13 {
        assert_eq!(one.answer(), "ok");
    }
}

#[test]
fn a_deadlock_is_refused_and_the_other_goes_on() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let mut actors: Vec<Actor> = (0..3).map(|_| locker(&home)).collect();
    for (at, actor) in actors.iter_mut().enumerate() {
        assert_eq!(actor.ask(&format!("0 lock p{at}-{at}x")), "ok");
    }
    actors[0].tell("0 wait p1-1x");
    actors[0].waits();
    actors[1].tell("0 wait p2-2s");
    actors[1].waits();
    assert_eq!(actors[2].ask("0 wait p0-0s"), "errno 35");
    assert_eq!(actors[2].ask("0 lock p0-0s"), BLOCKED, "without waiting there is no deadlock");
    assert_eq!(actors[2].ask("0 lock p2-2u"), "ok");
    assert_eq!(actors[1].answer(), "ok");
    assert_eq!(actors[1].ask("1 release -"), "ok");
    assert_eq!(actors[0].answer(), "ok");
}

#[test]
fn locks_and_those_who_wait_outlive_the_server() {
    let home = Home::new();
    let mut server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    assert_eq!(one.ask("0 lock p0-9x"), "ok");
    assert_eq!(one.ask("0 lock d20-29s"), "ok");
    assert_eq!(one.ask("0 lock fx"), "ok");
    assert_eq!(one.ask("0 lock p4-5u"), "ok");
    let mut third = locker(&home);
    assert_eq!(third.ask("2 lock px"), "ok");
    two.tell("0 wait fx");
    two.waits();
    server.kill();
    third.process.kill();
    let mut server = start_server(&home.instance(), None);
    let mut late = locker(&home);
    assert_eq!(late.ask("0 test p0-5s"), format!("{} 0-3 Exclusive", one.pid()));
    assert_eq!(late.ask("0 lock p4-5x"), "ok");
    assert_eq!(late.ask("0 lock d20-29x"), BLOCKED);
    assert_eq!(late.ask("0 lock fs"), BLOCKED);
    assert_eq!(late.ask("2 lock px"), "ok", "its holder died while there was no server");
    assert_eq!(one.ask("0 lock fu"), "ok");
    assert_eq!(two.answer(), "ok");
    server.kill();
    let _server = start_server(&home.instance(), None);
    assert_eq!(one.ask("0 lock fs"), BLOCKED);
    one.process.kill();
    assert_eq!(late.ask("0 lock p0-3x"), "ok");
    assert_eq!(late.ask("0 lock d20-29x"), "ok");
}

#[test]
fn exec_keeps_the_locks_of_the_process_and_a_close_still_gives_them_back() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (locker(&home), locker(&home));
    assert_eq!(one.ask("0 lock p0-9x"), "ok");
    assert_eq!(one.ask("exec"), "ready");
    assert_eq!(two.ask("0 lock p0-9x"), BLOCKED);
    assert_eq!(one.ask("0 lock p0-9s"), "ok", "it is the same owner");
    assert_eq!(one.ask("exec"), "ready");
    assert_eq!(two.ask("0 lock p0-9x"), BLOCKED);
    assert_eq!(one.ask("close"), "ok");
    assert_eq!(two.ask("0 lock p0-9x"), "ok");
}

#[test]
fn locks_exclude_through_deaths_of_the_server() {
    let home = Home::new();
    let instance = home.instance();
    let mut server = start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let file = open(&client, "count");
    file.write(&[0; 24]).expect("writes");
    let mut counters: Vec<Process> =
        (0..4).map(|_| process::start("counter", &instance, None)).collect();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(60));
        server.kill();
        server = start_server(&instance, None);
    }
    for counter in &mut counters {
        assert!(counter.0.wait().expect("ends").success());
    }
    let mut counts = [0; 24];
    file.read_at(&mut counts, 0).expect("reads");
    for count in counts.chunks(8) {
        assert_eq!(count, (4 * ROUNDS).to_le_bytes(), "an increment was lost");
    }
}
