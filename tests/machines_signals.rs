//! One run over several machines that is interrupted: Ctrl-C and SIGTERM while its command runs,
//! and while what was written is brought. Not here: one machine alone (`manners`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;
mod process;
mod served;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output};
use std::time::Duration;

use launched::{said, until};
use namespaces::Machines;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use served::Served;

/// The processes of a machine, but for what holds it and who looks.
const PROCESSES: &str = r#"
import os
def uts(pid):
    try: return os.readlink(f"/proc/{pid}/ns/uts")
    except OSError: return None
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid() or uts(pid) != uts("self"): continue
    try: line = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
    except OSError: continue
    if line and line != "sleep 3600 ": print(line)
"#;

/// Programs of the run on all machines; a shell has those that it does not wait for ignore Ctrl-C.
const COMMAND: &str = "seq 50000 > here
    for h in h1 h2; do on $h 'seq 50000 > /terral/$(hostname)'; done
    for h in h1 h2; do on $h 'exec env --default-signal=INT sleep 101' & done";

fn running(machines: &Machines, at: usize) -> String {
    let output = machines.command(at, "python3").args(["-c", PROCESSES]).output();
    String::from_utf8_lossy(&output.expect("starts").stdout).into_owned()
}

/// That nothing of the run is left on any machine.
fn is_over(machines: &Machines, count: usize) {
    for at in 0..count {
        // Who was started far away hears of the end over its pipe.
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_secs(20) && !running(machines, at).is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(running(machines, at), "", "runs on h{at}");
        assert_eq!(machines.left(at), "", "in the memory of h{at}");
    }
}

/// A run in a process group of its own, as a shell starts it, whose command has come to its end, or
/// to where it waits to be interrupted.
fn begun(machines: &Machines, options: &[&str], script: &str) -> Child {
    let ready = machines.home().join("ready");
    let mut command = machines.begin(options, &script.replace("READY", &ready.to_string_lossy()));
    let run = command.process_group(0).spawn().expect("starts");
    until("the command has begun", || ready.exists());
    run
}

/// What a run comes to that is interrupted while its command runs.
fn interrupted(machines: &Machines, interrupt: impl Fn(&Child)) -> Output {
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let options = ["--to", &to.display().to_string()];
    let run =
        begun(machines, &options, &format!("{COMMAND}\n sleep 1; touch READY; exec sleep 100"));
    interrupt(&run);
    let output = descendants::ended(run);
    for name in ["here", "h1", "h2"] {
        let lines = fs::read_to_string(to.join(name)).expect("it arrived").lines().count();
        assert_eq!(lines, 50000, "{name}: what was written before is brought");
    }
    output
}

#[test]
fn ctrl_c_ends_the_command_on_all_machines_and_what_was_written_is_brought() {
    let Some(machines) = Machines::new(3) else { return };
    // As a terminal does: to all in the foreground.
    let output = interrupted(&machines, |run| {
        kill_process_group(Pid::from_child(run), Signal::INT).expect("it runs");
    });
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    is_over(&machines, 3);
}

#[test]
fn sigterm_ends_the_command_and_what_was_written_is_brought() {
    let Some(machines) = Machines::new(3) else { return };
    // As a batch system may: to the launcher alone, which passes it on to the command; what that
    // has started elsewhere is ended as by ssh, which hangs up.
    let output = interrupted(&machines, |run| {
        let others: Vec<i32> = descendants::of(run.id()).into_iter().filter(sleeps).collect();
        kill_process(Pid::from_child(run), Signal::TERM).expect("it runs");
        others.into_iter().for_each(|pid| descendants::send(pid, Signal::HUP));
    });
    assert_eq!(output.status.code(), Some(143), "{}", said(&output));
    is_over(&machines, 3);
}

fn sleeps(pid: &i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00101\0")
}

/// How fast the directory takes what is brought, and how much each of two machines has for it: some
/// seconds' worth.
const SLOW: &str = "--write-rate=3M";
const MUCH: u64 = 16 << 20;

#[test]
fn while_all_is_brought_one_signal_says_what_the_next_will_do_and_recover_brings_the_rest() {
    let homes = [(); 2].map(|()| tempfile::tempdir().expect("directory"));
    let [beneath, at] = homes.each_ref().map(tempfile::TempDir::path);
    // Mounted before there are machines, so that all of them see it.
    let Some(slow) = Served::mount(beneath, at, &[SLOW]) else { return };
    let Some(machines) = Machines::new(2) else { return };
    let options = ["--to", &slow.at().display().to_string()];
    let script = format!(
        "on h1 'head -c {MUCH} /dev/zero | tr \"\\\\0\" 1 > /terral/one'
        head -c {MUCH} /dev/zero | tr '\\0' 0 > zero; touch READY"
    );
    let mut run = begun(&machines, &options, &script);
    // Its command has ended then, and the drain has begun to be shown.
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_child(&run), Signal::INT).expect("it brings");
    std::thread::sleep(Duration::from_secs(1));
    assert!(run.try_wait().expect("a child").is_none(), "one changes nothing");
    kill_process(Pid::from_child(&run), Signal::TERM).expect("it brings");
    let output = descendants::ended(run);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(74), "{told}");
    // One line for all of them.
    let goal = told.split("% of ").nth(1).and_then(|line| line.split(" MiB brought, ").next());
    let goal: f64 = goal.and_then(|goal| goal.parse().ok()).expect(&told);
    assert!(goal > (MUCH >> 20) as f64, "{told}");
    let left = told
        .split(" MiB in 2 files NOT YET in ")
        .next()
        .and_then(|line| line.split(' ').next_back());
    let left: f64 = left.and_then(|left| left.parse().ok()).expect(&told);
    assert!(left > (MUCH >> 20) as f64, "{told}");
    assert_eq!(told.matches("Ctrl-C or TERM once more keeps the rest in memory").count(), 1);
    assert!(told.contains("`terral recover machines` on each of them brings it"), "{told}");
    let brings = |at| {
        let recover = machines.terral(at).args(["recover", "machines"]).spawn().expect("starts");
        descendants::ended_within(recover, Duration::from_secs(120))
    };
    for recovered in [brings(1), brings(0)] {
        assert!(recovered.status.success(), "{}", said(&recovered));
    }
    for (name, byte) in [("zero", b'0'), ("one", b'1')] {
        let bytes = fs::read(beneath.join(name)).expect("it arrived");
        let whole = bytes.len() as u64 == MUCH && bytes.iter().all(|is| *is == byte);
        assert!(whole, "{name}: {} bytes", bytes.len());
    }
    is_over(&machines, 2);
}
