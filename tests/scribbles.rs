//! Programs that go wild write garbage into the memory they share with the server: the drain comes
//! to its end, the file is named, what is sound of it arrives, and other files are as they were.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod files;
mod process;
mod vandal;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use descendants::ended;
use files::WRITE;
use rustix::process::Signal;
use terral_client::{Client, Drain};
use terral_format::local::geometry::PAGE_BYTES;
use vandal::Vandal;

const MARK_DIRTY: u16 = 1 << 14;

#[test]
fn role() {
    process::play(
        256,
        &[("program", |instance| {
            let client = Client::connect(instance).expect("connects");
            let file = client.open(b"other", WRITE).expect("opens");
            file.write_at(&pattern(1000), 0).expect("writes");
            std::thread::sleep(Duration::from_secs(60));
        })],
    );
}

struct Bench {
    _home: tempfile::TempDir,
    to: tempfile::TempDir,
    instance: PathBuf,
    server: process::Process,
    client: Client,
    vandal: Vandal,
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3] | 1).collect()
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let to = tempfile::tempdir().expect("directory");
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, Some(to.path()));
        let client = Client::connect(&instance).expect("connects");
        let vandal = Vandal::new(&instance);
        Bench { _home: home, to, instance, server, client, vandal }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file = self.client.open(name.as_bytes(), WRITE).expect("opens");
        file.write_at(bytes, 0).expect("writes");
        file.close();
    }

    fn arrived(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.to.path().join(name)).expect("arrived")
    }

    fn drain(&self) -> Drain {
        self.client.status().expect("status").drain
    }

    /// The end of a run.
    fn settles(&self) {
        self.client.finish().expect("finishes");
        let begin = Instant::now();
        while !self.drain().settled {
            assert!(begin.elapsed() < Duration::from_secs(60), "never settles: {:?}", self.drain());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn names(&self, path: &str) {
        let warnings = self.client.status().expect("status").warnings;
        assert!(warnings.iter().any(|warning| warning.contains(path)), "{path}: {warnings:?}");
    }

    fn restart(&mut self) {
        self.server.kill();
        self.server = process::start_server(&self.instance, None);
    }
}

/// The same but for pages, which may be zeros.
fn assert_but(seen: &[u8], bytes: &[u8], pages: &[usize]) {
    assert_eq!(seen.len(), bytes.len());
    for (page, (seen, bytes)) in seen.chunks(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)).enumerate() {
        let zeros = pages.contains(&page) && seen.iter().all(|byte| *byte == 0);
        assert!(seen == bytes || zeros, "page {page}");
    }
}

#[test]
fn garbage_in_the_marks_of_pages_does_not_keep_a_run_from_its_end() {
    for killed in [false, true] {
        let mut bench = Bench::new();
        let bytes = pattern(1_000_000);
        // The second time they are updated in place.
        for round in 0..2 {
            bench.write("hit", &bytes);
            bench.write("other", &bytes);
            let ino = bench.client.stat(b"hit").expect("is there").ino;
            // Owners that nobody is, one that nobody can be, and one that is somewhere else.
            for (page, lane) in [(5, MARK_DIRTY | 9_999), (7, MARK_DIRTY), (9, MARK_DIRTY | 1)] {
                bench.vandal.page(ino, page, |_| lane);
            }
            for (page, lane) in [(20, 9_999), (22, 1), (24, 0x3fff)] {
                bench.vandal.page(ino, page, |_| lane);
            }
            if killed {
                bench.restart();
            }
            if round == 0 {
                bench.client.flush().expect("flushes");
                let begin = Instant::now();
                while bench.drain().owed_files > 0 {
                    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", bench.drain());
                }
            }
        }
        bench.settles();
        assert_but(&bench.arrived("hit"), &bytes, &[20, 22, 24]);
        assert!(bench.arrived("other") == bytes, "another file was harmed");
        bench.names("/hit: ");
    }
}

#[test]
fn a_wild_size_is_made_good_and_said() {
    type Wild = fn(u64) -> u64;
    let wild: [Wild; 6] = [
        |_| 1 << 62,
        |_| u64::MAX,
        |_| 0,
        |word| word | 1 << 47,
        |word| word & !0xffff_ffff_ffff | 5_000_000,
        |word| word ^ 0x1234_5678_9abc_def0,
    ];
    for (round, wild) in wild.into_iter().enumerate() {
        for killed in [false, true] {
            let mut bench = Bench::new();
            let bytes = pattern(1_000_000);
            for name in ["hit", "other", "open"] {
                bench.write(name, &bytes);
            }
            let open = bench.client.open(b"open", WRITE).expect("opens");
            for name in ["hit", "open"] {
                let ino = bench.client.stat(name.as_bytes()).expect("is there").ino;
                bench.vandal.size(ino, wild);
            }
            if killed {
                bench.restart();
            }
            bench.settles();
            for name in ["hit", "open"] {
                let seen = bench.arrived(name);
                let rest = seen.get(bytes.len()..).expect("no shorter");
                assert!(rest.len() < PAGE_BYTES && rest.iter().all(|byte| *byte == 0), "{round}");
                assert!(seen.starts_with(&bytes), "round {round}");
                bench.names(&format!("/{name}: "));
            }
            assert!(bench.arrived("other") == bytes, "another file was harmed");
            drop(open);
        }
    }
}

#[test]
fn sizes_that_programs_set_are_believed() {
    let bench = Bench::new();
    let how = WRITE;
    for (name, size) in [("long", 1u64 << 33), ("short", 10), ("empty", 0), ("same", 1_000_000)] {
        let file = bench.client.open(name.as_bytes(), how).expect("opens");
        file.write_at(&pattern(1_000_000), 0).expect("writes");
        file.truncate(size).expect("truncates");
        file.close();
    }
    let file = bench.client.open(b"holes", how).expect("opens");
    file.write_at(b"x", 1 << 32).expect("writes");
    file.close();
    bench.settles();
    let size = |name: &str| bench.to.path().join(name).metadata().expect("arrived").len();
    let sizes = ["long", "short", "empty", "same", "holes"].map(size);
    assert_eq!(sizes, [1 << 33, 10, 0, 1_000_000, (1 << 32) + 1]);
    let warnings = bench.client.status().expect("status").warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_ticket_that_nobody_can_have_holds_up_no_append() {
    let bench = Bench::new();
    for ticket in [u64::MAX, 1 << 32 | 5, 0xffff, 3] {
        let file = bench.client.open(b"log", WRITE).expect("opens");
        bench.vandal.ticket(bench.client.stat(b"log").expect("is there").ino, ticket);
        let begin = Instant::now();
        file.append(b"line\n").expect("appends");
        assert!(begin.elapsed() < Duration::from_secs(60));
        file.close();
    }
    bench.settles();
    assert_eq!(bench.arrived("log"), b"line\n".repeat(4));
}

/// Names of the sessions' pages.
fn sessions(instance: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(instance).expect("lists").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("session-")).collect()
}

#[test]
fn counters_that_cannot_be_are_left_out_and_said() {
    for dies in [false, true] {
        let bench = Bench::new();
        bench.write("sound", &pattern(1000));
        let before = sessions(&bench.instance);
        let mut other = process::start("program", &bench.instance, None);
        let begin = Instant::now();
        let written = || bench.client.status().expect("status").totals.written_bytes;
        while written() < 2000 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not write");
        }
        let both = sessions(&bench.instance);
        let its = both.difference(&before).next().expect("has a session");
        vandal::spoil_counters(&bench.instance.join(its), u64::MAX / 3);
        if dies {
            other.kill();
        }
        let begin = Instant::now();
        let after = loop {
            let after = bench.client.status().expect("status");
            if !after.warnings.is_empty() {
                break after;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "never said");
        };
        assert_eq!(after.totals.written_bytes, 1000, "{:?}", after.totals);
        assert!(after.warnings[0].contains("are not to be trusted"), "{:?}", after.warnings);
    }
}

// Whole runs.

fn start(to: &Path, command: &[&str]) -> Child {
    let mut run = Command::new(beside::built("terral"));
    run.args(["run", "--json", "--wait-timeout", "40s", "--to"]).arg(to).arg("--").args(command);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run.spawn().expect("terral")
}

fn warnings(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let summary: serde_json::Value =
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}{said}"));
    assert_eq!(summary["state"], "arrived", "{summary}");
    summary["server"]["warnings"].to_string()
}

#[test]
fn a_program_that_writes_over_all_it_shares_ends_and_harms_only_what_is_in_work() {
    let home = tempfile::tempdir().expect("directory");
    let wild = beside::compiled("wild", home.path());
    let wild = wild.to_str().expect("a path");
    let others = "cd $TERRAL_DIR; for i in 1 2 3 4 5 6 7 8; do seq 20000 > n-$i; mkdir -p d/$i; \
                  mv n-$i d/$i/m; rm -f d/$i/m; done";
    for seed in 1..7 {
        let to = tempfile::tempdir().expect("directory");
        std::fs::write(to.path().join("earlier"), "earlier").expect("writes");
        let script = format!(
            "echo good > $TERRAL_DIR/before; sleep 1.3; ({others}) 2> /dev/null & \
             {wild} {seed} $(({seed} * 9000)); wait"
        );
        let output = ended(start(to.path(), &["sh", "-c", &script]));
        let warnings = warnings(&output);
        assert!(warnings.contains("/wild-"), "seed {seed}: {warnings}");
        for (name, bytes) in [("before", "good\n"), ("earlier", "earlier")] {
            let seen = std::fs::read_to_string(to.path().join(name)).expect("is there");
            assert_eq!(seen, bytes, "seed {seed}");
        }
        for name in ["wild-1", "wild-2"] {
            let length = to.path().join(name).metadata().expect("arrived").len();
            assert!(length <= 2 << 20, "seed {seed}: {name} has {length} bytes");
        }
    }
}

#[test]
fn what_it_left_is_brought_by_the_next_run_and_by_recover_also_if_all_were_killed() {
    let home = tempfile::tempdir().expect("directory");
    let wild = beside::compiled("wild", home.path());
    let done = home.path().join("done");
    for (seed, recover) in [(11, true), (12, false), (13, true), (14, false)] {
        let to = tempfile::tempdir().expect("directory");
        let script =
            format!("{} {seed} 20000; : > {}; exec sleep 100", wild.display(), done.display());
        let mut run = start(to.path(), &["sh", "-c", &script]);
        let begin = Instant::now();
        while !done.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "seed {seed}");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::remove_file(&done).expect("removes");
        let server = descendants::server(run.id()).expect("a server");
        let line = std::fs::read_to_string(format!("/proc/{server}/cmdline")).expect("is there");
        let mut words = line.split('\0').skip_while(|word| *word != "--instance-directory");
        let instance = words.nth(1).expect("an instance").to_owned();
        for signal in [Signal::STOP, Signal::KILL] {
            descendants::of(run.id()).into_iter().for_each(|pid| descendants::send(pid, signal));
        }
        run.wait().expect("was killed");
        let said = if recover {
            let mut recover = Command::new(beside::built("terral"));
            let output = recover.args(["recover", &instance]).output().expect("terral");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "seed {seed}: {said}");
            said
        } else {
            warnings(&ended(start(to.path(), &["true"])))
        };
        assert!(said.contains("/wild-"), "seed {seed}: {said}");
        assert!(!Path::new(&instance).exists(), "seed {seed}: something is left");
    }
}
