//! Named locks through the client library: real processes that hold one, write what it protects,
//! and are killed or stopped in the middle. Not here: `terral lock` (`lock_command`), the C face
//! (`c_api`), and several machines (`machines_named_locks`).
#![cfg(not(loom))]

mod beside;
mod descendants;
mod files;
mod launched;
mod process;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use files::open;
use launched::until;
use process::{Bench, Process, command};
use rustix::process::Signal;
use terral_client::transactions::Transaction;
use terral_client::{Client, ErrorKind, File, LockHow, NamedLock, News, Result, TOKEN};

/// Memory of a server here, MiB.
const MEMORY_MIB: u64 = 128;
/// What a holder writes at once.
const BLOCK: usize = 256 << 10;
/// A lease that is over soon.
const SHORT: Duration = Duration::from_millis(300);

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(
        MEMORY_MIB,
        &[("holder", holder), ("writer", writer), ("waiter", waiter), ("counter", counter)],
    );
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn acquire(client: &Client, name: &[u8], how: LockHow) -> NamedLock {
    NamedLock::acquire(client, name, how).expect("it is to be had")
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

const NOW: LockHow =
    LockHow { shared: false, timeout: Some(Duration::ZERO), lease: Duration::from_secs(30) };

/// Whether the lock can be had just now; it is given back.
fn is_free(client: &Client, name: &[u8]) -> bool {
    match NamedLock::acquire(client, name, NOW) {
        Ok(lock) => lock.release().is_ok(),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::WouldBlock, "{error}");
            false
        }
    }
}

// What other processes do, and say in files beside the instance.

fn beside(instance: &Path, name: &str) -> PathBuf {
    instance.with_file_name(name)
}

fn say(instance: &Path, name: &str, what: &str) {
    let path = beside(instance, name);
    let new = path.with_extension("new");
    std::fs::write(&new, what).expect("writes");
    std::fs::rename(new, path).expect("renames");
}

fn said(instance: &Path, name: &str) -> String {
    let path = beside(instance, name);
    until(name, || path.exists());
    let text = std::fs::read_to_string(&path).expect("reads");
    std::fs::remove_file(path).expect("removes");
    text
}

fn start(role: &str, instance: &Path) -> Process {
    Process(command(role, instance).stdout(std::process::Stdio::null()).spawn().expect("starts"))
}

/// Has a lock until it is killed.
fn holder(instance: &Path) {
    let client = connect(instance);
    let _lock = acquire(&client, b"a", LockHow::default());
    say(instance, "has", "");
    std::thread::sleep(Duration::from_secs(600));
}

/// Has a lock with a short lease and writes what it protects, until that is refused.
fn writer(instance: &Path) {
    let client = connect(instance);
    let lock = acquire(&client, b"a", LockHow { lease: SHORT, ..LockHow::default() });
    let file = open(&client, "f");
    lock.fence(&file).expect("fenced");
    say(instance, "has", "");
    let refused = loop {
        match file.write_at(&[1; BLOCK], 0).and_then(|_| file.append(&[1; 100])) {
            Ok(end) if end > 64 << 20 => file.truncate(BLOCK as u64).expect("it may"),
            Ok(_) => {}
            Err(error) => break error.kind,
        }
    };
    let other = file.truncate(0).err().map(|error| error.kind);
    let fenced = file.fence(lock.token()).err().map(|error| error.kind);
    let end = lock.release().err().map(|error| error.kind);
    say(instance, "refused", &format!("{refused:?} {other:?} {fenced:?} {end:?}"));
}

/// Has one lock, and wants another.
fn waiter(instance: &Path) {
    let client = connect(instance);
    let lock = acquire(&client, b"b", LockHow::default());
    say(instance, "has", "");
    let other = NamedLock::acquire(&client, b"a", LockHow::default());
    say(instance, "waited", &format!("{:?}", kind(other)));
    lock.release().expect("it has it");
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.size() as usize];
    let count = file.read_at(&mut bytes, 0).expect("reads");
    bytes.truncate(count);
    bytes
}

#[test]
fn a_dead_holders_lock_is_free_at_once() {
    let bench = Bench::new();
    let (instance, client) = (bench.instance(), connect(&bench.instance()));
    for _ in 0..3 {
        let mut holder = start("holder", &instance);
        said(&instance, "has");
        assert!(!is_free(&client, b"a") && is_free(&client, b"other"));
        holder.kill();
        let begin = Instant::now();
        acquire(&client, b"a", LockHow::default()).release().expect("it has it");
        assert!(begin.elapsed() < Duration::from_secs(5), "not only when its lease is over");
    }
}

#[test]
fn a_frozen_holder_that_comes_back_cannot_write_after_another_has_the_lock() {
    let bench = Bench::new();
    let (instance, client) = (bench.instance(), connect(&bench.instance()));
    let file = open(&client, "f");
    for round in 0..12u64 {
        let holder = start("writer", &instance);
        said(&instance, "has");
        std::thread::sleep(Duration::from_micros(20_000 + round * 777));
        holder.signal(Signal::STOP);
        let lock = acquire(&client, b"a", LockHow::default());
        lock.fence(&file).expect("fenced");
        let seen = content(&file);
        holder.signal(Signal::CONT);
        let refused = said(&instance, "refused");
        assert_eq!(refused, "Stale Some(Stale) Some(Stale) Some(Stale)");
        assert!(content(&file) == seen, "nothing of an earlier holder comes later, in {round}");
        file.write_at(&[2; 100], 0).expect("it is ours");
        assert_eq!(content(&file)[..100], [2; 100]);
        assert!(lock.is_held());
        lock.release().expect("it has it");
    }
}

#[test]
fn tokens_only_grow_also_when_the_server_is_killed() {
    let mut bench = Bench::new();
    let client = connect(&bench.instance());
    let mut last = 0;
    for round in 0..6 {
        let lock = acquire(&client, b"a", LockHow::default());
        assert!(lock.token() > last, "{} after {last}", lock.token());
        last = lock.token();
        if round % 2 == 0 {
            bench.restart();
            assert!(!lock.is_wanted().expect("it has it yet"));
        }
        lock.release().expect("it has it");
        let shared = acquire(&client, b"a", LockHow { shared: true, ..LockHow::default() });
        assert_eq!(shared.token(), last, "no new one for who shares it");
        assert_eq!(kind(shared.fence(&open(&client, "f"))), Some(ErrorKind::Invalid));
    }
}

#[test]
fn a_lock_is_had_while_the_server_is_killed_and_its_holder_is_found_dead_after_it() {
    let mut bench = Bench::new();
    let instance = bench.instance();
    let mut holder = start("holder", &instance);
    said(&instance, "has");
    bench.restart();
    let client = connect(&instance);
    assert!(!is_free(&client, b"a"));
    bench.server.kill();
    holder.kill();
    bench.restart();
    assert!(is_free(&connect(&instance), b"a"));
}

#[test]
fn who_wait_for_each_other_are_told_so() {
    let bench = Bench::new();
    let (instance, client) = (bench.instance(), connect(&bench.instance()));
    let lock = acquire(&client, b"a", LockHow::default());
    let _other = start("waiter", &instance);
    said(&instance, "has");
    let ours = NamedLock::acquire(&client, b"b", LockHow::default());
    let deadlocked = kind(ours.as_ref().map(drop).map_err(Clone::clone));
    if deadlocked.is_some() {
        assert_eq!(deadlocked, Some(ErrorKind::Deadlock));
        lock.release().expect("it has it");
        assert_eq!(said(&instance, "waited"), "None", "the other one has both");
    } else {
        assert_eq!(said(&instance, "waited"), "Some(Deadlock)");
    }
}

#[test]
fn several_share_it_and_one_has_it_alone_also_among_threads() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let shared = LockHow { shared: true, ..NOW };
    let first = acquire(&client, b"a", shared);
    let second = acquire(&client, b"a", shared);
    assert!(!is_free(&client, b"a"));
    first.release().expect("it has it");
    let mut other = start("holder", &bench.instance());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!beside(&bench.instance(), "has").exists(), "one that shares it has it yet");
    second.release().expect("it has it");
    said(&bench.instance(), "has");
    other.kill();
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let lock = acquire(&client, b"a", LockHow::default());
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lock.release().expect("it has it");
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
}

#[test]
fn a_holder_is_told_that_others_wait_and_that_it_has_lost_the_lock() {
    let bench = Bench::new();
    let (instance, client) = (bench.instance(), connect(&bench.instance()));
    let lock = acquire(&client, b"a", LockHow { lease: SHORT, ..LockHow::default() });
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    lock.tell(move |news| hears.lock().expect("no panic").push(news));
    let mut holder = start("holder", &instance);
    until("it is said", || heard.lock().expect("no panic").contains(&News::Wanted));
    assert!(lock.is_wanted().expect("it has it yet"));
    // It is renewed: no lease ends.
    std::thread::sleep(SHORT * 4);
    assert!(lock.is_held() && !beside(&instance, "has").exists());
    lock.release().expect("it has it");
    said(&instance, "has");
    holder.kill();
    assert_eq!(*heard.lock().expect("no panic"), [News::Wanted]);
}

#[test]
fn who_has_no_token_or_too_low_a_one_does_not_write_what_is_fenced() {
    let bench = Bench::new();
    let (instance, client) = (bench.instance(), connect(&bench.instance()));
    let (file, plain) = (open(&client, "f"), open(&client, "f"));
    plain.write_at(b"plain", 0).expect("it is not fenced");
    let lock = acquire(&client, b"a", LockHow::default());
    lock.fence(&file).expect("fenced");
    let refused = Some(ErrorKind::Stale);
    assert_eq!(kind(plain.write_at(b"x", 0)), refused);
    assert_eq!(kind(plain.write(b"x")), refused);
    assert_eq!(kind(plain.append(b"x")), refused);
    assert_eq!(kind(plain.truncate(1)), refused);
    assert_eq!(kind(client.truncate(b"f", 1)), refused);
    let empty = terral_client::OpenHow { truncate: true, ..files::WRITE };
    assert_eq!(kind(client.open(b"f", empty).map(drop)), refused);
    assert_eq!(content(&plain), b"plain", "who reads needs none");
    file.write_at(b"token", 0).expect("it has one");
    // A program that is given it in its environment.
    let script = |token: u64| {
        let mut child = command("counter", &instance);
        child.env(TOKEN, token.to_string()).env("TERRAL_TEST_TURNS", "0");
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("runs").success()
    };
    assert!(script(lock.token()) && !script(lock.token() - 1));
    assert_eq!(content(&file), b"child");
    lock.release().expect("it has it");
}

#[test]
fn a_transaction_of_an_earlier_holder_fails_and_changes_nothing() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let made = |name: &str| client.stat(name.as_bytes()).is_ok();
    let lock = acquire(&client, b"a", LockHow::default());
    let begin = |lock: &NamedLock, path: &[u8]| {
        let mut transaction = Transaction::begin(&client);
        transaction.make_directory(path, 0o755).must_hold(lock);
        transaction
    };
    begin(&lock, b"one").commit().expect("it has it");
    let late = begin(&lock, b"two");
    lock.release().expect("it has it");
    let lock = acquire(&client, b"a", LockHow::default());
    assert_eq!(kind(late.commit()), Some(ErrorKind::Stale));
    assert!(made("one") && !made("two"));
    begin(&lock, b"three").commit().expect("it has it");
    assert!(made("three"));
}

/// Counts up in a file under the lock, as often as that is not refused, and says how often; or, for
/// no turns, just writes.
fn counter(instance: &Path) {
    let turns: u64 = std::env::var("TERRAL_TEST_TURNS").map_or(60, |n| n.parse().expect("number"));
    let client = connect(instance);
    if turns == 0 {
        open(&client, "f").write_at(b"child", 0).expect("it has the token");
        return;
    }
    let (mut done, file) = (0, open(&client, "n"));
    for _ in 0..turns {
        let lock = acquire(&client, b"n", LockHow { lease: SHORT, ..LockHow::default() });
        if lock.fence(&file).is_err() {
            continue;
        }
        let mut number = [0; 8];
        file.read_at(&mut number, 0).expect("reads");
        let next = u64::from_le_bytes(number) + 1;
        done += u64::from(file.write_at(&next.to_le_bytes(), 0).is_ok());
        drop(lock);
    }
    say(instance, &format!("counted-{}", std::process::id()), &done.to_string());
}

/// Counters that are stopped for longer than their leases, and servers that are killed: each that
/// was told to have counted is counted once, and nobody else.
#[test]
fn success_is_never_reported_for_a_lock_not_held() {
    let mut bench = Bench::new();
    let instance = bench.instance();
    let client = connect(&instance);
    open(&client, "n").write_at(&0u64.to_le_bytes(), 0).expect("writes");
    let counters: Vec<Process> = (0..4).map(|_| start("counter", &instance)).collect();
    let names: Vec<String> =
        counters.iter().map(|counter| format!("counted-{}", counter.0.id())).collect();
    for round in 0..12 {
        let one = &counters[round % 4];
        if beside(&instance, &names[round % 4]).exists() {
            continue;
        }
        one.signal(Signal::STOP);
        std::thread::sleep(SHORT * 2);
        one.signal(Signal::CONT);
        if round % 4 == 3 {
            bench.restart();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let told: Vec<u64> =
        names.iter().map(|name| said(&instance, name).parse().expect("a number")).collect();
    let mut number = [0; 8];
    open(&client, "n").read_at(&mut number, 0).expect("reads");
    assert_eq!(u64::from_le_bytes(number), told.iter().sum::<u64>(), "{told:?}");
    assert!(told.iter().sum::<u64>() > 100, "{told:?}");
}
