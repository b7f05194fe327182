//! Locks in shared memory, between real processes and without the server: that it is not asked,
//! that nothing stays of who is killed, and that rubbish in the words harms nobody else.
#![cfg(not(loom))]

mod actor;
mod files;
mod process;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use actor::{Actor, answer};
use files::open;
use process::{Home, Process, start_server};
use rustix::process::Signal;
use terral_client::{Client, File, LockKind, LockRange, Locker};
use terral_format::local::geometry::Geometry;

#[test]
fn role() {
    process::play(64, &[("locker", obey), ("restless", lock_for_ever)]);
}

fn byte(at: u64) -> LockRange {
    LockRange { first: at, last: at }
}

fn take(file: &File, at: u64, wait: bool) -> Result<(), terral_client::Error> {
    file.lock(Locker::Process, byte(at), LockKind::Exclusive, wait)
}

fn give_back(file: &File, at: u64) {
    file.lock(Locker::Process, byte(at), LockKind::Unlock, false).expect("gives back");
}

/// Takes bytes of a file and gives them back as it is told: `take`, `wait`, `back` and a number.
fn obey(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "f");
    answer("ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let (order, at) = line.split_once(' ').expect("an order and a number");
        let at = at.parse().expect("a number");
        let done = match order {
            "back" => {
                give_back(&file, at);
                Ok(())
            }
            order => take(&file, at, order == "wait"),
        };
        answer(&done.map_or_else(|error| format!("errno {}", error.to_errno()), |()| "ok".into()));
    }
}

/// Changes locks of many ranges until it is killed.
fn lock_for_ever(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "f");
    let mut state = u64::from(std::process::id());
    loop {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (first, kind) = (state >> 40 & 63, state >> 33 & 3);
        let range = LockRange { first, last: first + (state >> 50 & 7) };
        let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock][kind as usize % 3];
        let by = if state >> 60 & 1 == 0 { Locker::Process } else { Locker::Description };
        let _ = file.lock(by, range, kind, false);
    }
}

impl Home {
    fn locker(&self) -> Actor {
        let mut locker = Actor::start("locker", &self.instance());
        // From here on it has what it needs to lock.
        assert_eq!(locker.ask("take 1000"), "ok");
        assert_eq!(locker.ask("back 1000"), "ok");
        locker
    }
}

#[test]
fn locks_are_taken_passed_and_given_back_while_the_server_is_stopped() {
    let home = Home::new();
    let server = start_server(&home.instance(), None);
    let (mut one, mut two) = (home.locker(), home.locker());
    server.signal(Signal::STOP);
    assert_eq!(one.ask("take 7"), "ok");
    assert_eq!(two.ask("take 8"), "ok");
    assert_eq!(two.ask("take 7"), "errno 11", "its holder is seen to live");
    assert_eq!(one.ask("back 7"), "ok");
    for _ in 0..100 {
        // Each waits for what the other has, and is woken by it.
        assert_eq!(two.ask("take 7"), "ok");
        one.tell("wait 7");
        assert_eq!(two.ask("back 7"), "ok");
        assert_eq!(one.answer(), "ok");
        assert_eq!(one.ask("back 7"), "ok");
    }
    server.signal(Signal::CONT);
}

#[test]
fn locks_are_taken_passed_and_given_back_while_there_is_no_server() {
    let home = Home::new();
    let mut server = start_server(&home.instance(), None);
    let (mut one, mut two) = (home.locker(), home.locker());
    assert_eq!(one.ask("take 7"), "ok");
    server.kill();
    two.tell("wait 7");
    two.waits();
    assert_eq!(one.ask("back 7"), "ok");
    assert_eq!(two.answer(), "ok");
    assert_eq!(one.ask("take 8"), "ok");
    let _server = start_server(&home.instance(), None);
    assert_eq!(one.ask("take 7"), "errno 11", "the new server knows no other truth");
    two.process.kill();
    assert_eq!(one.ask("take 7"), "ok");
}

#[test]
fn who_is_killed_as_it_changes_locks_leaves_none_and_is_in_nobodys_way() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let client = Client::connect(&home.instance()).expect("connects");
    let file = open(&client, "f");
    file.lock(Locker::Description, byte(5000), LockKind::Exclusive, false).expect("locks");
    let mut restless: Vec<Process> =
        (0..3).map(|_| process::start("restless", &home.instance(), None)).collect();
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(15));
        restless[round % 3].kill();
        restless[round % 3] = process::start("restless", &home.instance(), None);
    }
    restless.iter_mut().for_each(Process::kill);
    let whole = LockRange { first: 0, last: 999 };
    file.lock(Locker::Process, whole, LockKind::Exclusive, false).expect("all others are dead");
    let mine = file.lock_test(Locker::Process, byte(5000), LockKind::Shared).expect("asks");
    assert_eq!(mine.map(|held| held.range), Some(byte(5000)), "what was held all the time");
}

#[test]
fn thousands_of_locks_on_a_file_and_locks_on_hundreds_of_files_are_kept_apart() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let client = Client::connect(&home.instance()).expect("connects");
    let files: Vec<File> = (0..300).map(|at| open(&client, &format!("f{at}"))).collect();
    for file in &files {
        take(file, 1, false).expect("locks");
    }
    let mut one = home.locker();
    let other = |at: u64| {
        let by = Locker::Description;
        let test = files[0].lock_test(by, byte(at), LockKind::Shared).expect("asks");
        test.map(|held| held.range.first)
    };
    for at in 1..1500 {
        take(&files[0], at * 2, false).expect("locks");
    }
    assert_eq!((other(2 * 700), other(2 * 700 + 1)), (Some(2 * 700), None));
    let mut refused = None;
    for at in 1500..5000 {
        if let Err(error) = take(&files[0], at * 2, false) {
            refused = Some(error.to_errno());
            break;
        }
    }
    assert_eq!(refused, Some(37), "ENOLCK");
    files[0].release_locks().expect("all at once");
    assert_eq!(other(2 * 700), None);
    for file in &files[1..] {
        let test = file.lock_test(Locker::Description, byte(1), LockKind::Shared).expect("asks");
        assert!(test.is_some(), "still locked");
    }
    assert_eq!(one.ask("take 1"), "ok", "of another file");
}

#[test]
fn rubbish_in_the_words_of_locks_harms_neither_the_server_nor_other_files() {
    let home = Home::new();
    let _server = start_server(&home.instance(), None);
    let (mut one, mut two) = (home.locker(), home.locker());
    assert_eq!(one.ask("take 7"), "ok");
    let at = Geometry::for_memory(64 << 20).locks_at() as u64;
    let headers = home.instance().join("headers");
    let headers = std::fs::File::options().write(true).open(headers).expect("opens");
    let mut state = 1u64;
    for round in 0..40 {
        // All heads, and the blocks of the first groups.
        for (from, words) in [(0, 4096), (4096 + 1536, 4096)] {
            let mut rubbish = Vec::new();
            for _ in 0..words {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                rubbish.extend((state ^ state >> 33).to_ne_bytes());
            }
            headers.write_all_at(&rubbish, at + from * 8).expect("writes");
        }
        let _ = two.ask("take 7");
        let _ = one.ask("back 7");
    }
    two.process.kill();
    headers.write_all_at(&[0; 4096 * 8], at).expect("writes");
    let client = Client::connect(&home.instance()).expect("the server is well");
    let file = open(&client, "other");
    take(&file, 1, false).expect("locks");
    assert_eq!(client.status().expect("answers").starts, 1);
}
