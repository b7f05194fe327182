//! `--spill`: what does not fit in memory and is not in the permanent directory yet goes to a disk
//! of this machine. It is there to be read, changed and cut, survives the server, arrives in the
//! directory, and leaves nothing behind. The directory is a `bindfs` that is stopped, or slow.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod mount;
mod process;
mod random;
mod served;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use beside::{built, program};
use descendants::{ended, send};
use launched::{run_to, said, terral, until};
use random::Random;
use rustix::process::Signal;
use served::Served;

/// As little as a server takes.
const MEMORY: &str = "128M";
/// No shim that looks for files of its own in the working directory.
const PYTHON: &str = "/usr/bin/python3";
/// Nearly twice as much, and no two chunks of it are alike.
const LINES: &str = "32000000";

/// A permanent directory that somebody serves, and a disk.
struct Bench {
    served: Option<Served>,
    beneath: tempfile::TempDir,
    disk: tempfile::TempDir,
    at: tempfile::TempDir,
}

fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a disk")
}

impl Bench {
    fn new(options: &[&str]) -> Option<Self> {
        let (beneath, at) = (tempfile::tempdir().expect("is"), tempfile::tempdir().expect("is"));
        let served = Some(Served::mount(beneath.path(), at.path(), options)?);
        Some(Bench { served, beneath, disk: disk(), at })
    }

    fn served(&self) -> &Served {
        self.served.as_ref().expect("is mounted")
    }

    /// `terral run` with little memory and the disk; the script may stop the directory's server,
    /// and let it go on.
    fn run(&self, options: &[&str], script: &str) -> Child {
        self.run_on(self.disk.path(), options, script)
    }

    fn run_on(&self, disk: &Path, options: &[&str], script: &str) -> Child {
        let mut command = run_to(self.served().at(), &["--json", "--memory", MEMORY]);
        command.args(options).arg("--spill").arg(disk).arg("--");
        let stop = "stop() { kill -STOP $SERVED; trap 'kill -CONT $SERVED' EXIT; }";
        let script = format!("{stop}; cd $TERRAL_DIR || exit 1; {script}");
        command.args(["timeout", "50", "sh", "-c", &script]);
        command.env("SERVED", self.served().pid().to_string()).env("TERRAL", built("terral"));
        command.spawn().expect("starts")
    }

    /// What is in the directory, as lines that `seq` gives.
    fn assert_arrived(&self, name: &str, lines: &[&str]) {
        let expected: Vec<u8> = lines.iter().flat_map(|count| seq(count)).collect();
        let found = fs::read(self.beneath.path().join(name)).expect("arrived");
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!((found.len(), differs), (expected.len(), None), "{name}");
    }

    fn assert_nothing_left(&self) {
        assert_eq!(files(self.disk.path()), Vec::<PathBuf>::new());
    }
}

fn seq(count: &str) -> Vec<u8> {
    Command::new("seq").arg(count).output().expect("seq").stdout
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("lists");
    entries.map(|entry| entry.expect("entry").path()).collect()
}

/// The summary of a run whose command ended well.
fn summary(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", said(output)));
    assert_eq!(summary["command_status"], 0, "{text}{}", said(output));
    summary
}

/// The line of JSON that a script printed: what `terral status` said of its own server.
fn status(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with('[')).expect("a status");
    serde_json::from_str::<serde_json::Value>(line).expect("JSON")[0]["status"].clone()
}

/// Shell: what the server of this script says, on one line.
const STATUS: &str = "$TERRAL status --json --instance $(basename $TERRAL_INSTANCE) | tr -d '\\n'; \
                      echo;";

#[test]
fn programs_go_on_though_the_directory_stands_still() {
    let Some(bench) = Bench::new(&[]) else { return };
    let script = format!(
        ": > a; sleep 2; stop
         seq {LINES} | dd of=a bs=1M iflag=fullblock conv=notrunc status=none || exit 1
         {STATUS}
         seq {LINES} | cmp - a || exit 2"
    );
    let output = ended(bench.run(&[], &script));
    let (summary, status) = (summary(&output), status(&output));
    assert_eq!(summary["state"], "arrived", "{summary}");
    let spilled = status["spilled_bytes"].as_u64().expect("a number");
    assert!(spilled > 64 << 20, "{status}");
    let place = status["spill"].as_str().expect("a path");
    assert!(Path::new(place).starts_with(bench.disk.path()), "{status}");
    assert!(status["memory_used_bytes"].as_u64() <= Some(128 << 20), "{status}");
    bench.assert_arrived("a", &[LINES]);
    bench.assert_nothing_left();
}

#[test]
fn what_is_spilled_is_changed_cut_and_appended_to_as_anything_is() {
    let Some(bench) = Bench::new(&[]).filter(|_| Path::new(PYTHON).exists()) else { return };
    let reference = tempfile::tempdir_in("/dev/shm").expect("room");
    let changes = program("spilled.py");
    let shown = (changes.display(), reference.path().display());
    let script = format!(
        ": > a; sleep 2; stop
         {PYTHON} {} a {}/a || exit 1
         cmp a {}/a || exit 2",
        shown.0, shown.1, shown.1
    );
    let output = ended(bench.run(&[], &script));
    let (summary, status) = (summary(&output), status(&output));
    assert_eq!(summary["state"], "arrived", "{summary}");
    assert!(status["spilled_bytes"].as_u64() > Some(32 << 20), "{status}");
    let of = |directory: &Path| fs::read(directory.join("a")).expect("is there");
    assert!(of(bench.beneath.path()) == of(reference.path()), "they differ");
    bench.assert_nothing_left();
}

#[test]
fn what_is_removed_or_cut_gives_the_disk_its_room_back() {
    let Some(bench) = Bench::new(&[]) else { return };
    let script = format!(
        ": > a; : > b; sleep 2; stop
         seq {LINES} | dd of=a bs=1M iflag=fullblock conv=notrunc status=none || exit 1
         seq {LINES} | dd of=b bs=1M iflag=fullblock conv=notrunc status=none || exit 1
         test $(du -sm {disk} | cut -f1) -gt 200 || exit 2
         rm a; truncate -s 1000 b
         for i in $(seq 100); do
             test $(du -sm {disk} | cut -f1) -lt 8 && exit 0
             sleep 0.1
         done
         du -sm {disk}; {STATUS} exit 3",
        disk = bench.disk.path().display()
    );
    let output = ended(bench.run(&[], &script));
    assert_eq!(summary(&output)["state"], "arrived");
    let kept = fs::read(bench.beneath.path().join("b")).expect("arrived");
    assert!(kept == seq(LINES)[..1000]);
    assert!(!bench.beneath.path().join("a").exists());
    bench.assert_nothing_left();
}

#[test]
fn nothing_is_lost_though_the_server_is_killed_again_and_again() {
    let Some(bench) = Bench::new(&["--write-rate=30M"]) else { return };
    let mut random = Random::new("spill");
    let script = format!(
        "seq {LINES} | dd of=a bs=700001 iflag=fullblock status=none || exit 1
         seq {LINES} | cmp - a || exit 2
         truncate -s 100000 a; seq 1000000 >> a; seq {LINES} | head -c 100000 | cat - a | wc -c"
    );
    let run = bench.run(&[], &script);
    let (pid, over) = (run.id(), AtomicBool::new(false));
    let output = std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            descendants::kill_servers(pid, over, || 20 + random.below(300));
        });
        let output = ended(run);
        over.store(true, Ordering::SeqCst);
        output
    });
    let summary = summary(&output);
    assert_eq!(summary["state"], "arrived", "{summary}");
    assert!(summary["restarts"].as_u64() >= Some(1), "{summary}");
    let expected: Vec<u8> = [&seq(LINES)[..100_000], &seq("1000000")].concat();
    assert!(fs::read(bench.beneath.path().join("a")).expect("arrived") == expected);
    bench.assert_nothing_left();
}

/// A run that has written more than fits, and was killed with its server. Its directory is slow.
/// Gives the name of its instance.
fn killed(bench: &Bench) -> String {
    let marker = bench.disk.path().join("written");
    let script = format!(
        "seq {LINES} | dd of=a bs=1M iflag=fullblock status=none
         basename $TERRAL_INSTANCE > {at}.new; mv {at}.new {at}; sleep 60",
        at = marker.display()
    );
    let mut run = bench.run(&[], &script);
    until("it has written", || marker.exists());
    let mut all = descendants::of(run.id());
    // The launcher first: it would start another server.
    all.iter().for_each(|pid| send(*pid, Signal::STOP));
    all.extend(descendants::of(run.id()));
    all.iter().for_each(|pid| send(*pid, Signal::KILL));
    run.wait().expect("ends");
    let name = fs::read_to_string(&marker).expect("is there");
    fs::remove_file(marker).expect("is there");
    assert_eq!(files(bench.disk.path()).len(), 1, "what it has spilled");
    name.trim_end().to_owned()
}

#[test]
fn what_a_killed_run_has_spilled_is_recovered() {
    let Some(mut bench) = Bench::new(&["--write-rate=10M"]) else { return };
    let name = killed(&bench);
    serve_fast(&mut bench);
    let recovered = ended(terral().args(["recover", &name]).spawn().expect("starts"));
    assert!(recovered.status.success(), "{}", said(&recovered));
    bench.assert_arrived("a", &[LINES]);
    bench.assert_nothing_left();
}

/// The same directory, as fast as it is.
fn serve_fast(bench: &mut Bench) {
    bench.served = None;
    bench.served = Served::mount(bench.beneath.path(), bench.at.path(), &[]);
    assert!(bench.served.is_some(), "it was mounted before");
}

#[test]
fn the_next_run_reads_what_a_killed_one_has_spilled() {
    let Some(bench) = Bench::new(&["--write-rate=10M"]) else { return };
    killed(&bench);
    let script = format!("seq {LINES} | cmp - a || exit 2; : > a; seq 1000000 > a");
    let output = ended(bench.run(&[], &script));
    assert_eq!(summary(&output)["state"], "arrived", "{}", said(&output));
    bench.assert_arrived("a", &["1000000"]);
    bench.assert_nothing_left();
}

#[test]
fn a_disk_that_gives_back_something_else_gives_an_error_and_no_wrong_bytes() {
    let Some(bench) = Bench::new(&[]) else { return };
    // All that is on the disk is written over, once nothing moves any more.
    let script = format!(
        ": > a; sleep 2; stop
         seq {LINES} | dd of=a bs=1M iflag=fullblock conv=notrunc status=none || exit 1
         sleep 1
         bytes=$(stat -c %s {disk}/*)
         head -c $bytes /dev/zero | tr '\\0' x | dd of=$(echo {disk}/*) bs=1M conv=notrunc
         seq {LINES} | LC_ALL=C cmp - a 2>&1 | tee /dev/stderr | grep -q differ && exit 3
         kill -CONT $SERVED; sleep 2; {STATUS}",
        disk = bench.disk.path().display()
    );
    let output = ended(bench.run(&["--wait-timeout", "1"], &script));
    let (summary, status) = (summary(&output), status(&output));
    assert!(said(&output).contains("Input/output error"), "{}", said(&output));
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("a: chunk ") && warnings.contains("terral-spill-"), "{status}");
    assert_eq!(summary["state"], "owed", "{summary}");
    assert!(!bench.beneath.path().join("a").metadata().is_ok_and(|found| found.len() > 0));
    let name = summary["instance"].as_str().expect("a name").to_owned();
    let forgotten = ended(terral().args(["recover", "--forget", &name]).spawn().expect("starts"));
    assert!(forgotten.status.success(), "{}", said(&forgotten));
    bench.assert_nothing_left();
}

#[test]
fn where_the_disk_is_full_programs_wait_for_the_directory_and_it_is_said() {
    let Some(bench) = Bench::new(&["--write-rate=60M"]) else { return };
    let Some(small) = mount::Mount::tmpfs(72) else { return };
    let at = tempfile::tempdir().expect("directory");
    // Not in memory, as far as can be seen.
    let Some(disk) = Served::mount(small.path(), at.path(), &[]) else { return };
    let script = format!("seq {LINES} > a && {STATUS} seq {LINES} | cmp - a");
    let output = ended(bench.run_on(disk.at(), &[], &script));
    let (summary, status) = (summary(&output), status(&output));
    assert_eq!(summary["state"], "arrived", "{summary}");
    let warnings: Vec<&str> =
        status["warnings"].as_array().expect("a list").iter().filter_map(|w| w.as_str()).collect();
    let full = |warning: &&&str| warning.contains("is full: where memory is full, programs wait");
    assert_eq!(warnings.iter().filter(full).count(), 1, "{status}");
    bench.assert_arrived("a", &[LINES]);
    assert_eq!(files(small.path()), Vec::<PathBuf>::new());
}

#[test]
fn two_runs_spill_to_one_directory() {
    let benches = [Bench::new(&["--write-rate=100M"]), Bench::new(&["--write-rate=100M"])];
    let [Some(one), Some(other)] = benches else { return };
    let script = format!("seq {LINES} > a; seq {LINES} | cmp - a");
    let runs = [one.run(&[], &script), other.run_on(one.disk.path(), &[], &script)];
    for (run, bench) in runs.into_iter().zip([&one, &other]) {
        assert_eq!(summary(&ended(run))["state"], "arrived");
        bench.assert_arrived("a", &[LINES]);
    }
    one.assert_nothing_left();
}

#[test]
fn a_directory_that_cannot_serve_is_refused_before_anything_begins() {
    let (to, disk) = (tempfile::tempdir().expect("is"), disk());
    let memory = tempfile::tempdir_in("/dev/shm").expect("room");
    let (file, open) = (disk.path().join("file"), disk.path().join("open"));
    fs::write(&file, "").expect("writes");
    fs::create_dir(&open).expect("makes");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("sets");
    let cases = [
        (file, "not a directory"),
        (disk.path().join("none"), "No such file"),
        (memory.path().to_path_buf(), "is in memory itself"),
        (open, "others can remove or replace"),
        (to.path().to_path_buf(), "lies in the permanent directory"),
    ];
    for (directory, why) in cases {
        for verb in ["run", "serve"] {
            let mut command = terral();
            command.arg(verb).arg("--to").arg(to.path()).arg("--spill").arg(&directory);
            if verb == "run" {
                command.args(["--", "touch", "never"]).current_dir(disk.path());
            }
            let output = ended(command.spawn().expect("starts"));
            let text = said(&output);
            assert_eq!(output.status.code(), Some(125), "{text}");
            assert!(text.contains(why) && text.contains("--spill"), "{why}: {text}");
        }
    }
    assert!(!disk.path().join("never").exists() && files(to.path()).is_empty());
}

#[test]
fn what_was_left_by_an_earlier_boot_goes_and_nothing_else() {
    let (to, disk) = (tempfile::tempdir().expect("is"), disk());
    let name = |boot: &str| format!("terral-spill-{boot}-{}", "0b".repeat(16));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let (old, new) = (disk.path().join(name(&"0c".repeat(16))), disk.path().join(name(&boot)));
    let other = disk.path().join("data");
    [&old, &new, &other].into_iter().for_each(|path| fs::write(path, "x").expect("writes"));
    let before = new.metadata().expect("is").ino();
    let mut command = run_to(to.path(), &[]);
    command.arg("--spill").arg(disk.path()).args(["--", "true"]);
    let output = ended(command.spawn().expect("starts"));
    assert!(output.status.success(), "{}", said(&output));
    assert!(!old.exists() && other.exists(), "{}", said(&output));
    assert_eq!(new.metadata().expect("another instance's").ino(), before);
    let mut byte = [0];
    fs::File::open(&new).and_then(|file| file.read_exact_at(&mut byte, 0)).expect("reads");
    assert_eq!(&byte, b"x");
}
