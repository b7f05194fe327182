//! Calls on objects that are submitted: they return at once, whatever they wait for; errors,
//! closing, and whoever is killed. Not here: the C face, with forks (`c_api`), and Python's
//! (`python`).
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod process;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use launched::until;
use process::{Bench, Process, command};
use rustix::process::Signal;
use terral_client::objects::{Address, Container, Extent, Object, ObjectId};
use terral_client::{Client, ErrorKind, Result};

/// Memory of a server here, MiB.
const MEMORY_MIB: u64 = 256;
const MIB: u64 = 1 << 20;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(MEMORY_MIB, &[("small", small), ("writer", writer)]);
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

fn one(client: &Client) -> (Container, Object) {
    let made = Container::create(client, b"run", 0o755).expect("makes a container");
    let object = made.create_object(ObjectId(1)).expect("creates");
    (made, object)
}

fn extent(at: u64, bytes: u64) -> Extent {
    Extent { at, bytes }
}

fn read(object: &Object, at: u64, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    let count = object.read(&mut all, at).expect("reads");
    all.truncate(count);
    all
}

/// How many threads of the library there are.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("terral-submit")).count()
}

/// What few bytes of this machine come to, which nobody is waited for; and what more do.
fn small(instance: &Path) {
    let client = connect(instance);
    let (_, object) = one(&client);
    object.write(b"0123456789", 0).expect("writes");
    let two = [extent(8, 2), extent(0, 2)];
    let written = object.submit_write(&two, b"abcd".to_vec()).expect("submits");
    assert!(written.is_done(), "it was done at once");
    written.wait().expect("written");
    let (count, packed) =
        object.submit_read(&two, vec![0; 4]).expect("submits").wait().expect("read");
    assert_eq!((count, &packed[..], threads()), (4, &b"abcd"[..], 0), "nobody was needed");
    let many: Vec<_> = (0..8u64)
        .map(|at| {
            let bytes = vec![at as u8; MIB as usize];
            object.submit_write(&[extent(at * MIB, MIB)], bytes).expect("submits")
        })
        .collect();
    many.into_iter().for_each(|one| drop(one.wait().expect("written")));
    assert!((1..=3).contains(&threads()), "{} threads", threads());
    for at in 0..8 {
        assert_eq!(read(&object, at * MIB, MIB), vec![at as u8; MIB as usize]);
    }
    object.close().expect("closes");
}

#[test]
fn few_bytes_of_this_machine_need_no_thread_and_more_need_three_at_most() {
    let bench = Bench::new();
    let mut plays = command("small", &bench.instance());
    let ended = plays.stdout(Stdio::null()).status().expect("starts");
    assert!(ended.success(), "{ended}");
}

#[test]
fn who_submits_goes_on_though_the_server_is_stopped_and_close_waits() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let (container, object) = one(&client);
    let address = object.address();
    object.write(b"begin", 0).expect("writes");
    bench.server.signal(Signal::STOP);
    // Each needs memory, which the server gives.
    let submitted: Vec<_> = (1..9u64)
        .map(|at| {
            let extents = [extent(at * 2 * MIB, 2 * MIB)];
            object.submit_write(&extents, vec![at as u8; 2 << 20]).expect("submits")
        })
        .collect();
    assert!(!submitted[7].wait_for(Duration::from_millis(100)), "the server is stopped");
    assert!(!submitted[7].is_done());
    let closes = object.clone();
    let closer = std::thread::spawn(move || closes.close());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!closer.is_finished(), "something is under way");
    bench.server.signal(Signal::CONT);
    closer.join().expect("ends").expect("closes");
    assert!(submitted.iter().all(|one| one.is_done()), "it was closed once all were done");
    submitted.into_iter().for_each(|one| drop(one.wait().expect("written")));
    let again = container.open_object(address, false).expect("opens");
    for at in 1..9 {
        assert_eq!(read(&again, at * 2 * MIB, 2 * MIB), vec![at as u8; 2 << 20], "{at}");
    }
    assert_eq!(read(&again, 0, 5), b"begin");
}

#[test]
fn what_makes_no_sense_is_refused_at_once_and_what_fails_is_said_to_who_waits() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let (container, object) = one(&client);
    let large = || vec![1; MIB as usize];
    object.write(&large(), 0).expect("writes");
    let refused = |extents: &[Extent], bytes| kind(object.submit_write(extents, bytes));
    assert_eq!(refused(&[extent(0, 5)], vec![1; 4]), Some(ErrorKind::Invalid));
    assert_eq!(refused(&[extent(u64::MAX, 1)], vec![1; 1]), Some(ErrorKind::TooLarge));
    let reads = container.open_object(object.address(), false).expect("opens");
    let failed = reads.submit_write(&[extent(0, MIB)], large()).expect("submits");
    assert_eq!(kind(failed.wait()), Some(ErrorKind::BadHandle));
    let end = object.submit_read(&[extent(MIB - 3, 9)], vec![0; 9]).expect("submits");
    let (count, _) = end.wait().expect("read");
    assert_eq!(count, 3, "the rest is beyond its end");
    // There is less memory than that, and nobody frees any.
    let many: Vec<_> = (0..400)
        .map(|at| object.submit_write(&[extent(at * 2 * MIB, MIB)], large()).expect("submits"))
        .collect();
    let failed = many.into_iter().filter_map(|one| kind(one.wait())).collect::<Vec<_>>();
    assert!(!failed.is_empty() && failed.iter().all(|kind| *kind == ErrorKind::NoSpace));
    object.close().expect("closes");
}

/// Submits until it is killed.
fn writer(instance: &Path) {
    let client = connect(instance);
    let container = Container::open(&client, b"run").expect("is there");
    let address = container.list().expect("lists")[0];
    let object = container.open_object(address, true).expect("opens");
    std::fs::write(instance.with_file_name("begun"), "").expect("writes");
    loop {
        let submitted: Vec<_> = (0..6u64)
            .map(|at| {
                let extents = [extent(at * MIB, MIB)];
                object.submit_write(&extents, vec![at as u8 + 1; 1 << 20]).expect("submits")
            })
            .collect();
        submitted.into_iter().for_each(|one| drop(one.wait().expect("written")));
    }
}

#[test]
fn who_is_killed_with_calls_under_way_leaves_what_others_can_use() {
    let bench = Bench::new();
    let instance = bench.instance();
    let client = connect(&instance);
    let (container, object) = one(&client);
    let Address { server, id } = object.address();
    object.write(&vec![9; 6 << 20], 0).expect("writes");
    for round in 0..6 {
        let mut command = command("writer", &instance);
        let mut writer = Process(command.stdout(Stdio::null()).spawn().expect("starts"));
        until("a writer", || instance.with_file_name("begun").exists());
        std::thread::sleep(Duration::from_micros(3000 + round * 777));
        writer.kill();
        std::fs::remove_file(instance.with_file_name("begun")).expect("removes");
        for at in 0..6 {
            let piece = read(&object, at * MIB, MIB);
            let ours = |byte: &u8| *byte == at as u8 + 1 || *byte == 9;
            assert!(piece.len() == MIB as usize && piece.iter().all(ours), "{round}, {at}");
        }
        object.write(&vec![9; 6 << 20], 0).expect("writes");
    }
    let again = container.open_object(Address { server, id }, true).expect("opens");
    assert_eq!(read(&again, 0, 6 * MIB), vec![9; 6 << 20]);
}
