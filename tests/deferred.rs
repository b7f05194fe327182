//! Changes that wait for no server: seen by everybody as soon as the call is over, done once, and
//! there after any death.
#![cfg(not(loom))]

mod files;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use files::WRITE;
use terral_client::{Change, Client, ErrorKind, OpenHow, RenameHow};

const NEW: OpenHow = OpenHow { exclusive: true, ..WRITE };

struct Bench {
    home: tempfile::TempDir,
    target: tempfile::TempDir,
    server: process::Process,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let target = tempfile::tempdir().expect("directory");
        let server = process::start_server(&home.path().join("instance"), Some(target.path()));
        Bench { home, target, server }
    }

    fn instance(&self) -> PathBuf {
        self.home.path().join("instance")
    }

    fn restart(&mut self) {
        self.server.kill();
        self.server = process::start_server(&self.instance(), Some(self.target.path()));
    }
}

fn connect(instance: &Path) -> Client {
    let client = Client::connect(instance).expect("connects");
    // Who has asked for something a few times may defer.
    for name in [b"warm-1", b"warm-2", b"warm-3", b"warm-4"] {
        let _ = client.unlink(name);
    }
    client
}

/// A step of one client, and what another one must find when it is told.
fn step(client: &Client, round: usize, model: &mut BTreeMap<Vec<u8>, (u32, u64)>) {
    let name = format!("d/f{}", round % 23).into_bytes();
    match round % 7 {
        0..=2 if !model.contains_key(&name) => {
            let file = client.open(&name, NEW).expect("creates");
            let bytes = vec![7; round % 300];
            file.write(&bytes).expect("writes");
            if round.is_multiple_of(5) {
                let change = Change { mode: Some(0o600), ..Change::default() };
                file.change(change).expect("changes");
            }
            file.close();
            let mode = if round.is_multiple_of(5) { 0o600 } else { 0o644 };
            model.insert(name, (mode, bytes.len() as u64));
        }
        3 | 4 if model.contains_key(&name) => {
            client.unlink(&name).expect("removes");
            model.remove(&name);
        }
        5 if model.contains_key(&name) => {
            let to = format!("d/f{}", (round + 11) % 23).into_bytes();
            client.rename(&name, &to, RenameHow::Replace).expect("moves");
            if let Some(was) = model.remove(&name) {
                model.insert(to, was);
            }
        }
        _ => {}
    }
}

fn check(client: &Client, round: usize, model: &BTreeMap<Vec<u8>, (u32, u64)>) {
    let name = format!("d/f{}", round % 23).into_bytes();
    let found = client.stat(&name);
    match model.get(&name) {
        Some((mode, size)) => {
            let found = found.expect("is there");
            assert_eq!((found.mode & 0o777, found.size), (*mode, *size), "round {round}");
        }
        None => assert_eq!(found.expect_err("is gone").kind, ErrorKind::NotFound, "round {round}"),
    }
    if round.is_multiple_of(9) {
        let listed: Vec<Vec<u8>> =
            client.list(b"d").expect("lists").into_iter().map(|n| n.name).collect();
        let expected: Vec<Vec<u8>> = model.keys().map(|name| name[2..].to_vec()).collect();
        let sorted = |mut names: Vec<Vec<u8>>| {
            names.sort();
            names
        };
        assert_eq!(listed, sorted(expected), "round {round}");
    }
}

#[test]
fn whoever_is_told_of_a_change_sees_it() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    one.make_directory(b"d", 0o755).expect("makes");
    let (tell, told) = mpsc::sync_channel::<(usize, BTreeMap<Vec<u8>, (u32, u64)>)>(0);
    let (back, turn) = mpsc::sync_channel::<BTreeMap<Vec<u8>, (u32, u64)>>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (round, mut model) in told {
                check(&other, round, &model);
                step(&other, round + 1, &mut model);
                back.send(model).expect("listens");
            }
        });
        let mut model = BTreeMap::new();
        for round in (0..6000).step_by(2) {
            step(&one, round, &mut model);
            tell.send((round, model)).expect("listens");
            model = turn.recv().expect("answers");
            check(&one, round + 1, &model);
        }
        drop(tell);
    });
}

#[test]
fn of_many_who_create_a_name_one_does() {
    let bench = Bench::new();
    let instance = bench.instance();
    connect(&instance).make_directory(b"d", 0o755).expect("makes");
    let (names, racers) = (1500, 3);
    let made: Vec<AtomicUsize> = (0..names).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for racer in 0..racers {
            let (made, instance) = (&made, &instance);
            scope.spawn(move || {
                let client = connect(instance);
                for (at, made) in made.iter().enumerate() {
                    let name = format!("d/n{at}").into_bytes();
                    let done = if at % 4 == racer {
                        client.make_directory(&name, 0o755)
                    } else {
                        client.open(&name, NEW).map(|file| file.close())
                    };
                    match done {
                        Ok(()) => _ = made.fetch_add(1, Ordering::SeqCst),
                        Err(error) => assert_eq!(error.kind, ErrorKind::Exists, "{name:?}"),
                    }
                }
            });
        }
    });
    assert!(made.iter().all(|made| made.load(Ordering::SeqCst) == 1));
    assert_eq!(connect(&instance).list(b"d").expect("lists").len(), names);
}

#[test]
fn of_many_who_remove_a_name_one_does() {
    let bench = Bench::new();
    let instance = bench.instance();
    let client = connect(&instance);
    client.make_directory(b"d", 0o755).expect("makes");
    let names = 1000;
    for at in 0..names {
        client.open(format!("d/n{at}").as_bytes(), NEW).expect("creates").close();
    }
    let removed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = connect(&instance);
                for at in 0..names {
                    match client.unlink(format!("d/n{at}").as_bytes()) {
                        Ok(()) => _ = removed.fetch_add(1, Ordering::SeqCst),
                        Err(error) => assert_eq!(error.kind, ErrorKind::NotFound),
                    }
                }
            });
        }
    });
    assert_eq!(removed.load(Ordering::SeqCst), names);
    client.remove_directory(b"d").expect("is empty");
}

#[test]
fn a_directory_is_not_removed_under_a_file_just_made_in_it() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    for round in 0..300 {
        one.make_directory(b"d", 0o755).expect("makes");
        let (created, removed) = std::thread::scope(|scope| {
            let creates = scope.spawn(|| one.open(b"d/f", NEW).map(|file| file.close()));
            let removes = scope.spawn(|| other.remove_directory(b"d"));
            (creates.join().expect("no panic"), removes.join().expect("no panic"))
        });
        assert!(created.is_ok() != removed.is_ok(), "{round}: {created:?} {removed:?}");
        if created.is_ok() {
            one.unlink(b"d/f").expect("removes");
            one.remove_directory(b"d").expect("is empty");
        }
    }
}

#[test]
fn what_was_deferred_survives_the_death_of_the_server() {
    let mut bench = Bench::new();
    let client = connect(&bench.instance());
    client.make_directory(b"d", 0o755).expect("makes");
    let before = client.status().expect("status").files;
    let (stop, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let made = std::thread::scope(|scope| {
        let works = scope.spawn(|| {
            let mut made = Vec::new();
            for at in 0.. {
                if stop.load(Ordering::SeqCst) == 1 {
                    break;
                }
                rounds.store(at, Ordering::SeqCst);
                let name = format!("d/n{at}");
                let file = client.open(name.as_bytes(), NEW).expect("creates");
                file.write(name.as_bytes()).expect("writes");
                file.close();
                if at % 3 == 0 {
                    client.unlink(name.as_bytes()).expect("removes");
                } else {
                    made.push(name);
                }
                if at % 50 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            made
        });
        let enough = |restarts| restarts >= 12 && rounds.load(Ordering::SeqCst) > 1500;
        for _ in (0..500).take_while(|restarts| !enough(*restarts)) {
            std::thread::sleep(Duration::from_millis(40));
            bench.restart();
        }
        stop.store(1, Ordering::SeqCst);
        works.join().expect("no panic")
    });
    assert!(made.len() > 1000, "only {}", made.len());
    let mut listed: Vec<String> = client
        .list(b"d")
        .expect("lists")
        .into_iter()
        .map(|name| format!("d/{}", String::from_utf8(name.name).expect("ascii")))
        .collect();
    listed.sort();
    let mut expected = made.clone();
    expected.sort();
    assert!(listed == expected, "{} listed, {} made", listed.len(), expected.len());
    let status = client.status().expect("status");
    assert_eq!(
        (status.files, status.open),
        (before + made.len() as u64, 0),
        "nothing is left over"
    );
    client.finish().expect("finishes");
    let begin = Instant::now();
    while bench.target.path().join("d").read_dir().map_or(0, Iterator::count) < made.len() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the drain does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    for name in made.iter().step_by(17) {
        let there = std::fs::read(bench.target.path().join(name)).expect("is there");
        assert_eq!(there, name.as_bytes());
    }
}

#[test]
fn files_in_hand_go_with_their_client() {
    let bench = Bench::new();
    let watcher = connect(&bench.instance());
    watcher.make_directory(b"d", 0o755).expect("makes");
    let before = watcher.status().expect("status").files;
    for _ in 0..4 {
        let mut child = process::start("creator", &bench.instance(), None);
        let begin = Instant::now();
        while watcher.stat(b"d/done").is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the creator does not work");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill();
        watcher.unlink(b"d/done").expect("removes");
    }
    let begin = Instant::now();
    loop {
        let status = watcher.status().expect("status");
        if (status.open, status.files) == (0, before + 4 * CREATED) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{status:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watcher.list(b"d").expect("lists").len() as u64, 4 * CREATED);
}

/// Files that a creator makes.
const CREATED: u64 = 200;

fn create_until_killed(instance: &Path) {
    let client = connect(instance);
    for at in 0..CREATED {
        let name = format!("d/p{}-{at}", std::process::id());
        client.open(name.as_bytes(), NEW).expect("creates").close();
    }
    client.open(b"d/done", WRITE).expect("creates");
    std::thread::sleep(Duration::from_secs(60));
}

/// Not a test: what this program does when the tests start it again.
#[test]
fn role() {
    process::play(256, &[("creator", create_until_killed)]);
}
