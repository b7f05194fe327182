//! The bad day: servers and clients are killed and stopped for real, at random moments.
#![allow(clippy::print_stdout)] // What is skipped, and seeds, are said.
#![cfg(not(loom))]

mod files;
mod process;
mod random;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use files::{WRITE, open};
use process::Home;
use random::Random;
use rustix::process::Signal;
use terral_client::{Client, OpenHow, RenameHow};

const MEMORY_MIB: u64 = 1024;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(
        MEMORY_MIB,
        &[
            ("writer", writer),
            ("appender", appender),
            ("visitor", |instance| {
                drop(open(&Client::connect(instance).expect("connects"), "visited"))
            }),
        ],
    );
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..length.div_ceil(8))
        .flat_map(|_| random.below(u64::MAX).to_le_bytes())
        .take(length)
        .collect()
}

/// A writer that knows what it was promised: every completed call is in the model.
fn random_work(
    client: &Client,
    random: &mut Random,
    prefix: &str,
    model: &mut BTreeMap<String, Vec<u8>>,
) {
    let name = format!("{prefix}-{}", random.below(12));
    match random.below(11) {
        0 => {
            let gone = client.unlink(name.as_bytes());
            assert_eq!(gone.is_ok(), model.remove(&name).is_some(), "unlink {name}: {gone:?}");
        }
        1 => {
            let to = format!("{prefix}-{}", random.below(12));
            let moved = client.rename(name.as_bytes(), to.as_bytes(), RenameHow::Replace);
            assert_eq!(moved.is_ok(), model.contains_key(&name), "rename {name} {to}: {moved:?}");
            if let Some(bytes) = model.remove(&name) {
                model.insert(to, bytes);
            }
        }
        2 => {
            let how = OpenHow { exclusive: true, ..WRITE };
            let made = client.open(name.as_bytes(), how);
            assert_eq!(made.is_err(), model.contains_key(&name), "create {name}");
            model.entry(name).or_default();
            if let Ok(file) = made {
                file.close();
            }
        }
        3 => {
            let file = open(client, &name);
            let size = random.below(300_000);
            file.truncate(size).expect("truncates");
            model.entry(name).or_default().resize(size as usize, 0);
            file.close();
        }
        4 | 5 => {
            let file = open(client, &name);
            let bytes = pattern(random.below(100_000) as usize + 1, random.0);
            file.append(&bytes).expect("appends");
            model.entry(name).or_default().extend(bytes);
            file.close();
        }
        6 => {
            let to = format!("{prefix}-{}", random.below(12));
            let done = client.rename(name.as_bytes(), to.as_bytes(), RenameHow::Exchange);
            let both = model.contains_key(&name) && model.contains_key(&to);
            assert_eq!(done.is_ok(), both, "exchange {name} {to}: {done:?}");
            if both && name != to {
                let found = [model.remove(&name), model.remove(&to)];
                model.extend([to, name].into_iter().zip(found.into_iter().flatten()));
            }
        }
        _ => {
            let file = open(client, &name);
            let bytes = pattern(random.below(400_000) as usize + 1, random.0);
            let at = random.below(300_000) as usize;
            file.write_at(&bytes, at as u64).expect("writes");
            let whole = model.entry(name).or_default();
            whole.resize(whole.len().max(at + bytes.len()), 0);
            whole[at..at + bytes.len()].copy_from_slice(&bytes);
            file.close();
        }
    }
}

fn verify(client: &Client, prefix: &str, model: &BTreeMap<String, Vec<u8>>) {
    let names: Vec<String> = client
        .list(b"")
        .expect("lists")
        .into_iter()
        .map(|name| String::from_utf8(name.name).expect("ours"))
        .filter(|name| name.starts_with(prefix))
        .collect();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    for (name, bytes) in model {
        let file = open(client, name);
        let mut seen = vec![0; bytes.len() + 1];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), bytes.len(), "size of {name}");
        let differs = (0..bytes.len()).find(|at| seen[*at] != bytes[*at]);
        assert_eq!(differs, None, "first wrong byte of {name}");
        file.close();
    }
}

#[test]
fn a_server_killed_at_any_moment_loses_nothing_and_does_nothing_twice() {
    let kills = std::env::var("TERRAL_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let home = Home::new();
    let mut server = process::start_server(&home.instance(), None);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for prefix in ["a", "b"] {
            let (instance, over) = (home.instance(), &over);
            scope.spawn(move || {
                let client = Client::connect(&instance).expect("connects");
                let mut random = Random::new(prefix);
                random.0 ^= u64::from(prefix.as_bytes()[0]) << 40;
                let mut model = BTreeMap::new();
                while !over.load(Ordering::SeqCst) {
                    for _ in 0..40 {
                        random_work(&client, &mut random, prefix, &mut model);
                    }
                    verify(&client, prefix, &model);
                }
                verify(&client, prefix, &model);
            });
        }
        let mut random = Random::new("kills");
        for _ in 0..kills {
            std::thread::sleep(Duration::from_micros(random.below(40_000)));
            server.kill();
            server = process::start_server(&home.instance(), None);
        }
        over.store(true, Ordering::SeqCst);
    });
    let client = Client::connect(&home.instance()).expect("connects");
    let status = client.status().expect("status");
    assert_eq!(status.starts, kills + 1);
    let held: u64 = client
        .list(b"")
        .expect("lists")
        .iter()
        .map(|name| client.safety(&name.name).expect("is there").memory_bytes)
        .sum();
    let used = status.memory_used_bytes;
    assert!(
        used <= held + (64 << 20),
        "{used} bytes used, {held} by files: memory has leaked: {status:?}"
    );
}

/// Writes blocks of one byte value at random places, for ever.
fn writer(instance: &std::path::Path) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "shared");
    let mut random = Random(u64::from(std::process::id()) | 1 << 32);
    loop {
        let value = b'a' + random.below(20) as u8;
        let length = random.below(200_000) as usize + 1;
        file.write_at(&vec![value; length], random.below(6 << 20)).expect("writes");
    }
}

/// Appends records of one byte value, at most 200 MB of them.
fn appender(instance: &std::path::Path) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "log");
    let mut random = Random(u64::from(std::process::id()) | 1 << 32);
    for _ in 0..200_000 {
        let value = b'a' + random.below(20) as u8;
        file.append(&[value; 1000]).expect("appends");
    }
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn clients_killed_in_the_middle_of_a_write_leave_no_trace_but_their_bytes() {
    let home = Home::new();
    let _server = process::start_server(&home.instance(), None);
    let client = Client::connect(&home.instance()).expect("connects");
    let mut random = Random::new("client kills");
    let guard = open(&client, "guard");
    guard.write(&pattern(4 << 20, 9)).expect("writes");
    for _ in 0..15 {
        let mut writers = [
            process::start("writer", &home.instance(), None),
            process::start("appender", &home.instance(), None),
        ];
        while client.status().expect("status").sessions < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        writers.iter_mut().for_each(process::Process::kill);
        let begin = Instant::now();
        while client.status().expect("status").sessions > 2 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the dead are not reaped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut seen = vec![0; 4 << 20];
    guard.read_at(&mut seen, 0).expect("reads");
    assert!(seen == pattern(4 << 20, 9), "a file nobody wrote to has changed");
    let shared = open(&client, "shared");
    let mut seen = vec![0; shared.size() as usize];
    shared.read_at(&mut seen, 0).expect("reads");
    assert!(seen.iter().all(|byte| matches!(byte, 0 | b'a'..=b't')), "bytes nobody wrote");
    let log = open(&client, "log");
    let mut seen = vec![0; log.size() as usize];
    log.read_at(&mut seen, 0).expect("reads");
    assert_eq!(seen.len() % 1000, 0, "an append is torn");
    assert!(seen.chunks(1000).all(|record| record.iter().all(|byte| *byte == record[0])));
}

#[test]
fn a_stopped_client_holds_up_nobody_and_harms_nothing_when_it_goes_on() {
    let home = Home::new();
    let _server = process::start_server(&home.instance(), None);
    let client = Client::connect(&home.instance()).expect("connects");
    let stopped = [
        process::start("writer", &home.instance(), None),
        process::start("appender", &home.instance(), None),
    ];
    while client.status().expect("status").sessions < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut random = Random::new("stops");
    for round in 0..15u64 {
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
        stopped.iter().for_each(|process| process.signal(Signal::STOP));
        let begin = Instant::now();
        let file = open(&client, "shared");
        file.truncate(0).expect("truncates");
        client.unlink(b"shared").expect("unlinks");
        file.close();
        let log = open(&client, "log");
        log.append(&[b'z'; 1000]).expect("appends");
        log.close();
        let other = open(&client, &format!("other-{round}"));
        other.write(&pattern(8 << 20, round)).expect("writes");
        assert!(begin.elapsed() < Duration::from_secs(60), "held up for {:?}", begin.elapsed());
        stopped.iter().for_each(|process| process.signal(Signal::CONT));
        std::thread::sleep(Duration::from_millis(5));
        let mut seen = vec![0; 8 << 20];
        other.read_at(&mut seen, 0).expect("reads");
        assert!(seen == pattern(8 << 20, round), "a file nobody else wrote to has changed");
        other.close();
        open(&client, "shared");
    }
    drop(stopped);
    let log = open(&client, "log");
    let mut seen = vec![0; log.size() as usize];
    log.read_at(&mut seen, 0).expect("reads");
    assert!(seen.chunks(1000).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert_eq!(seen.chunks(1000).filter(|record| record[0] == b'z').count(), 15);
}

#[test]
fn more_clients_come_and_go_than_there_are_sessions() {
    let home = Home::new();
    let _server = process::start_server(&home.instance(), None);
    let client = Client::connect(&home.instance()).expect("connects");
    for _ in 0..110 {
        let mut visitors: Vec<_> =
            (0..10).map(|_| process::start("visitor", &home.instance(), None)).collect();
        for visitor in &mut visitors {
            assert!(visitor.0.wait().expect("ends").success(), "a visitor was turned away");
        }
    }
    let status = client.status().expect("status");
    assert!(status.totals.sessions > 1_100 && status.totals.opens >= 1_100, "{status:?}");
}
