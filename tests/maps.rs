//! Memory maps: programs get what they get on tmpfs, and what processes have mapped stays theirs
//! whatever happens to the file, to the memory tier, to the server and to themselves. Not here: the
//! locks by which the kernel keeps a map's pin (`transport`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod actor;
mod beside;
mod files;
mod process;

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use actor::{Actor, answer};
use files::open;
use process::{Process, start_server};
use terral_client::{Client, MapHow};

/// Of the server.
const MEMORY_MIB: u64 = 192;
const MIB: usize = 1 << 20;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(MEMORY_MIB, &[("mapper", obey)]);
}

// The mapper's side. It reaches what it has mapped through `/proc/self/mem`, which needs no
// `unsafe` and goes by the page tables, as a load and a store do.

fn map(client: &Client, name: &str, bytes: usize, protection: i32) -> Result<u64, String> {
    let how = MapHow { at: 0, length: bytes, protection, flags: MAP_SHARED, offset: 0 };
    let file = open(client, name);
    let mapped = file.map(how);
    file.close();
    mapped.map(|at| at as u64).map_err(|error| format!("errno {}", error.to_errno()))
}

const READ: i32 = 1;
const READ_WRITE: i32 = 3;
const MAP_SHARED: i32 = 1;

/// Writes a file of 16 MiB, not in whole pages, and waits.
fn fill(client: &Client, name: &str) -> ! {
    let (file, bytes) = (open(client, name), vec![7; 2 * MIB - 5000]);
    answer("begins");
    for at in (1000..16 * MIB).step_by(2 * MIB) {
        file.write_at(&bytes, at as u64).expect("writes");
    }
    loop {
        std::thread::park();
    }
}

fn hash(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:x}", hasher.finish())
}

/// Reads orders and answers each: `map NAME BYTES`, `store NAME BYTES` (mapped for writing), then
/// `get AT LENGTH`, `hash AT LENGTH`, `is AT LENGTH BYTE`, `put AT TEXT`; or `fill NAME`.
fn obey(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let memory = File::options().read(true).write(true).open("/proc/self/mem").expect("opens");
    let mut base = 0;
    answer("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().expect("a number");
        let said = match words[0] {
            "map" | "store" => {
                let protection = if words[0] == "map" { READ } else { READ_WRITE };
                match map(&client, words[1], number(2), protection) {
                    Ok(at) => {
                        base = at;
                        "ok".to_owned()
                    }
                    Err(errno) => errno,
                }
            }
            "fill" => fill(&client, words[1]),
            "put" => {
                let done = memory.write_all_at(words[2].as_bytes(), base + number(1) as u64);
                done.map_or_else(|error| error.to_string(), |()| "ok".into())
            }
            order => {
                let mut bytes = vec![0; number(2)];
                memory.read_exact_at(&mut bytes, base + number(1) as u64).expect("is mapped");
                match order {
                    "get" => String::from_utf8_lossy(&bytes).into_owned(),
                    "hash" => hash(&bytes),
                    _ => {
                        let other = bytes.iter().position(|b| usize::from(*b) != number(3));
                        other.map_or("yes".into(), |at| format!("{} at {at}", bytes[at]))
                    }
                }
            }
        };
        answer(&said);
    }
}

// The test's side.

struct Bench {
    home: tempfile::TempDir,
    backing: Option<tempfile::TempDir>,
    server: Process,
    client: Client,
}

impl Bench {
    fn new(backed: bool) -> Self {
        let room = || tempfile::tempdir_in("/dev/shm").expect("room");
        let (home, backing) = (room(), backed.then(room));
        let instance = home.path().join("instance");
        let server = start_server(&instance, backing.as_ref().map(|home| home.path()));
        let client = Client::connect(&instance).expect("connects");
        Bench { home, backing, server, client }
    }

    fn instance(&self) -> PathBuf {
        self.home.path().join("instance")
    }

    fn mapper(&self) -> Actor {
        Actor::start("mapper", &self.instance())
    }

    /// A closed file, all of it this byte.
    fn filled(&self, name: &str, bytes: usize, byte: u8) {
        let file = open(&self.client, name);
        file.write_at(&vec![byte; bytes], 0).expect("writes");
        file.close();
    }

    fn used(&self) -> u64 {
        self.client.status().expect("status").memory_used_bytes
    }

    fn sessions(&self) -> u32 {
        self.client.status().expect("status").sessions
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            let status = self.client.status();
            assert!(begin.elapsed() < Duration::from_secs(60), "never {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn arrives(&self, name: &str, bytes: &[u8]) {
        let path = self.backing.as_ref().expect("has a directory").path().join(name);
        self.until("arrives", || std::fs::read(&path).is_ok_and(|found| found == bytes));
    }

    fn kill_and_restart(&mut self) {
        self.server.kill();
        let backing = self.backing.as_ref().map(|home| home.path());
        self.server = start_server(&self.instance(), backing);
    }
}

#[test]
fn programs_get_the_maps_of_tmpfs() {
    if !beside::on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let program = beside::compiled("maps", home.path());
    let beside = beside::run(&format!("{} .", program.display()));
    assert_eq!(beside.text, "maps as they should be\n");
    beside.assert_same();
    beside.assert_served(10);
}

#[test]
fn sqlite_keeps_its_index_of_the_log_in_a_shared_map() {
    if !beside::on_path("sqlite3") {
        return;
    }
    let insert = "sqlite3 -cmd '.timeout 60000' a.db \"insert into t values($i)\"";
    let beside = beside::run(&format!(
        "sqlite3 a.db 'pragma journal_mode=wal; create table t(x)'
         for p in 1 2 3; do
             (for i in 1 2 3 4 5 6 7 8 9 10; do {insert}; done) &
         done
         wait
         sqlite3 a.db 'select count(*), sum(x) from t; pragma integrity_check'"
    ));
    assert_eq!(beside.text, "wal\n30|165\nok\n");
    beside.assert_served(100);
    let arrived = beside.ours.path().join("a.db");
    let count = Command::new("sqlite3").arg(arrived).arg("select count(*) from t").output();
    assert_eq!(count.expect("sqlite3").stdout, b"30\n");
}

/// Six files of up to 24 MiB, and one that needs their memory; the copies lie elsewhere.
#[test]
fn maps_writes_and_truncates_agree_with_a_model_in_a_small_memory() {
    if !beside::on_path("python3") {
        return;
    }
    let (to, copies) = (tempfile::tempdir(), tempfile::tempdir());
    let (to, copies) = (to.expect("directory"), copies.expect("directory"));
    let seed = std::process::id();
    println!("seed {seed}");
    let script = format!(
        "for i in 1 2 3 4 5 6; do
             python3 {} $TERRAL_DIR/$i $(({seed} + i)) 6 {}/$i || echo failed &
         done
         for i in 1 2 3 4 5 6 7 8; do head -c 60000000 /dev/zero > $TERRAL_DIR/other; done
         wait",
        beside::program("maps.py").display(),
        copies.path().display()
    );
    let mut command = Command::new(beside::built("terral"));
    command.args(["run", "--json", "--memory", "192M", "--to"]).arg(to.path());
    let output = command.args(["--", "sh", "-c", &script]).output().expect("terral");
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !said.contains("failed"), "{said}{errors}");
    let last = said.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).expect("summary");
    assert_eq!(summary["state"], "arrived", "{summary}");
    assert!(summary["totals"]["opens"].as_u64() >= Some(6), "{summary}");
    for name in ["1", "2", "3", "4", "5", "6"] {
        let [ours, copy] = [to.path(), copies.path()].map(|home| std::fs::read(home.join(name)));
        assert!(ours.expect("arrived") == copy.expect("copy"), "{name} differs");
    }
}

#[test]
fn a_map_outlives_the_server_and_shows_what_is_written_to_the_next_one() {
    let mut bench = Bench::new(true);
    bench.filled("a", 9 * MIB, b'a');
    bench.filled("b", 3 * MIB, b'b');
    let (mut reader, mut storer) = (bench.mapper(), bench.mapper());
    assert_eq!(reader.ask("map a 9437184"), "ok");
    assert_eq!(storer.ask("store b 3145728"), "ok");
    for round in 0..5u8 {
        bench.kill_and_restart();
        let text = format!("round {round}");
        let file = open(&bench.client, "a");
        file.write_at(text.as_bytes(), 5 << 20).expect("writes");
        file.close();
        assert_eq!(reader.ask("get 5242880 7"), text);
        assert_eq!(storer.ask(&format!("put 2097150 round-{round}")), "ok");
        let mut found = [0; 7];
        let file = open(&bench.client, "b");
        file.read_at(&mut found, 2_097_150).expect("reads");
        file.close();
        assert_eq!(&found, format!("round-{round}").as_bytes());
    }
    let mut expected = vec![b'b'; 3 * MIB];
    expected[2_097_150..2_097_157].copy_from_slice(b"round-4");
    drop(storer);
    bench.arrives("b", &expected);
}

#[test]
fn what_was_stored_arrives_when_storer_and_server_die_together() {
    let mut bench = Bench::new(true);
    bench.filled("a", 5 * MIB, b'a');
    bench.arrives("a", &vec![b'a'; 5 * MIB]);
    let mut expected = vec![b'a'; 5 * MIB];
    for (round, at) in [7, 2_097_149, 5_242_870].into_iter().enumerate() {
        // Who stores while a chunk is on its way may see it arrive with what was stored.
        let owed = || bench.client.status().expect("status").drain.owed_files;
        bench.until("settled", || owed() == 0);
        let mut storer = bench.mapper();
        assert_eq!(storer.ask("store a 5242880"), "ok");
        let text = format!("store{round}");
        assert_eq!(storer.ask(&format!("put {at} {text}")), "ok");
        // DIR gets it when nobody can store any more, and only then.
        std::thread::sleep(Duration::from_millis(700));
        let path = bench.backing.as_ref().expect("has one").path().join("a");
        let there = std::fs::read(path).expect("is there");
        let other = (0..5 * MIB).find(|at| there.get(*at) != Some(&expected[*at]));
        assert_eq!((there.len(), other), (5 * MIB, None), "round {round}");
        expected[at..at + 6].copy_from_slice(text.as_bytes());
        bench.server.kill();
        storer.process.kill();
        bench.kill_and_restart();
        bench.arrives("a", &expected);
    }
}

#[test]
fn what_was_stored_and_left_memory_before_it_arrived_arrives() {
    let bench = Bench::new(true);
    let file = open(&bench.client, "a");
    file.write_at(b"written", 0).expect("writes");
    let copied = || {
        let owed = || bench.client.status().expect("status").drain.owed_bytes;
        bench.until("copied", || owed() == 0);
    };
    copied();
    let mut storer = bench.mapper();
    assert_eq!(storer.ask("store a 5000"), "ok");
    assert_eq!(storer.ask("put 0 stored-"), "ok");
    drop(storer);
    copied();
    for round in 0..4u8 {
        bench.filled(&format!("other{round}"), 60 * MIB, round);
    }
    file.close();
    bench.arrives("a", b"stored-");
}

#[test]
fn a_full_memory_takes_no_mapped_chunk() {
    let bench = Bench::new(true);
    bench.filled("kept", 32 * MIB, b'k');
    let mut mapper = bench.mapper();
    assert_eq!(mapper.ask("map kept 33554432"), "ok");
    for round in 0..8u8 {
        bench.filled(&format!("other{round}"), 64 * MIB, round);
        assert_eq!(mapper.ask(&format!("is 0 33554432 {}", b'k')), "yes");
    }
    // Nothing of it was read again from DIR: a map shows what is written now.
    let file = open(&bench.client, "kept");
    for at in (0..32).map(|chunk| chunk * MIB) {
        file.write_at(b"now", at as u64).expect("writes");
        assert_eq!(mapper.ask(&format!("get {at} 3")), "now");
    }
    let mut first = [9; 3];
    open(&bench.client, "other0").read_at(&mut first, 0).expect("reads");
    assert_eq!(first, [0; 3]);
}

#[test]
fn a_map_that_does_not_fit_is_refused_and_leaves_nothing() {
    let bench = Bench::new(false);
    bench.filled("a", 8 * MIB, b'a');
    let before = bench.used();
    let mut mapper = bench.mapper();
    let begin = Instant::now();
    assert_eq!(mapper.ask(&format!("map a {}", 1000 * MIB)), "errno 28");
    // What others may give back is waited for ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(9), "it waits for what can never be");
    assert_eq!(bench.used(), before);
    assert_eq!(mapper.ask(&format!("map a {}", 8 * MIB)), "ok");
    assert_eq!(mapper.ask(&format!("is 0 {} {}", 8 * MIB, b'a')), "yes");
}

#[test]
fn a_memory_full_of_maps_refuses_writers_until_one_goes() {
    let bench = Bench::new(true);
    let bytes = MEMORY_MIB as usize * MIB;
    bench.filled("a", bytes, b'a');
    let mut mapper = bench.mapper();
    assert_eq!(mapper.ask(&format!("map a {bytes}")), "ok");
    let file = open(&bench.client, "b");
    let refused = file.write_at(b"b", 0).expect_err("nothing can go");
    assert_eq!(refused.to_errno(), 28);
    mapper.process.kill();
    file.write_at(b"b", 0).expect("the memory of the map can go");
}

#[test]
fn the_memory_of_a_dead_mapper_is_not_lost() {
    let bench = Bench::new(false);
    let before = bench.used();
    for round in 0..10u8 {
        bench.filled("a", 40 * MIB, round);
        let (mut reader, mut storer) = (bench.mapper(), bench.mapper());
        assert_eq!(reader.ask("map a 41943040"), "ok");
        assert_eq!(storer.ask("store a 41943040"), "ok");
        bench.client.unlink(b"a").expect("unlinks");
        // Both still have it, and see each other; nobody else gets its memory.
        assert!(bench.used() >= before + 40 * MIB as u64);
        bench.filled("b", 40 * MIB, 99);
        assert_eq!(reader.ask(&format!("is 0 41943040 {round}")), "yes");
        assert_eq!(storer.ask("put 33333333 stored"), "ok");
        assert_eq!(reader.ask("get 33333333 6"), "stored");
        reader.process.kill();
        assert_eq!(storer.ask("get 33333333 6"), "stored");
        storer.process.kill();
        bench.client.unlink(b"b").expect("unlinks");
        bench.until("freed", || bench.used() == before);
    }
}

#[test]
fn a_truncated_map_reads_as_zeros_and_grows_again_with_the_file() {
    let bench = Bench::new(true);
    bench.filled("a", 7 * MIB, b'a');
    let (mut reader, mut storer) = (bench.mapper(), bench.mapper());
    assert_eq!(reader.ask("map a 7340032"), "ok");
    for stores in [false, true] {
        if stores {
            assert_eq!(storer.ask("store a 7340032"), "ok");
        }
        let size = 3 * MIB + 100;
        bench.client.truncate(b"a", size as u64).expect("truncates");
        assert_eq!(reader.ask(&format!("is 0 {size} {}", b'a')), "yes");
        assert_eq!(reader.ask(&format!("is {size} {} 0", 7 * MIB - size)), "yes");
        bench.client.truncate(b"a", 7 << 20).expect("grows");
        assert_eq!(reader.ask(&format!("is {size} {} 0", 7 * MIB - size)), "yes");
        let file = open(&bench.client, "a");
        let mut found = vec![1; 4 * MIB];
        file.read_at(&mut found, 3 << 20).expect("reads");
        assert!(found[..100].iter().all(|b| *b == b'a') && found[100..].iter().all(|b| *b == 0));
        file.write_at(&vec![b'a'; 7 * MIB], 0).expect("writes");
        assert_eq!(reader.ask(&format!("is 0 {} {}", 7 * MIB, b'a')), "yes");
        file.close();
    }
    // Written anew from nothing, as `>` does.
    bench.client.truncate(b"a", 0).expect("truncates");
    bench.filled("a", 5 * MIB, b'n');
    assert_eq!(storer.ask("put 5242879 E"), "ok");
    assert_eq!(reader.ask(&format!("is 0 {} {}", 5 * MIB - 1, b'n')), "yes");
    drop(storer);
    let mut expected = vec![b'n'; 5 * MIB];
    expected[5 * MIB - 1] = b'E';
    bench.arrives("a", &expected);
}

#[test]
fn what_is_stored_where_a_file_was_cut_before_is_read() {
    let bench = Bench::new(false);
    bench.filled("a", 2 * MIB, b'a');
    let mut storer = bench.mapper();
    assert_eq!(storer.ask("store a 2097152"), "ok");
    let alive = bench.sessions();
    storer.process.kill();
    bench.until("unmapped", || bench.sessions() < alive);
    // Nobody has it mapped when it is cut, and the first map after that is one for reading.
    for size in [100, 2 << 20] {
        bench.client.truncate(b"a", size).expect("truncates");
    }
    let (mut reader, mut storer) = (bench.mapper(), bench.mapper());
    assert_eq!(reader.ask("map a 2097152"), "ok");
    assert_eq!(storer.ask("store a 2097152"), "ok");
    assert_eq!(storer.ask("put 1000000 stored"), "ok");
    let mut found = [1; 6];
    open(&bench.client, "a").read_at(&mut found, 1_000_000).expect("reads");
    assert_eq!((&found, &*reader.ask("get 1000000 6")), (b"stored", "stored"));
}

#[test]
fn a_writer_that_dies_in_a_hole_leaves_no_trace_in_a_map() {
    let bench = Bench::new(false);
    let mut died_within = 0;
    for round in 0..400u64 {
        if round >= 40 && died_within > 0 {
            break;
        }
        let name = format!("a{round}");
        let file = open(&bench.client, &name);
        file.truncate(16 << 20).expect("grows");
        let (mut reader, mut writer) = (bench.mapper(), bench.mapper());
        assert_eq!(reader.ask(&format!("map {name} {}", 16 * MIB)), "ok");
        let alive = bench.sessions();
        writer.tell(&format!("fill {name}"));
        assert_eq!(writer.answer(), "begins");
        std::thread::sleep(Duration::from_micros(100 * (round % 20)));
        writer.process.kill();
        bench.until("reaped", || bench.sessions() < alive);
        let mut found = vec![1; 16 * MIB];
        file.read_at(&mut found, 0).expect("reads");
        assert_eq!(reader.ask(&format!("hash 0 {}", 16 * MIB)), hash(&found));
        died_within += u32::from(found.contains(&7) && found.contains(&0));
        file.close();
        bench.client.unlink(name.as_bytes()).expect("unlinks");
    }
    assert!(died_within > 0, "no writer was killed while it wrote");
}
