//! A run that spreads by itself: machines that nobody has named join when the first of their
//! programs uses the files. Real servers and launchers, a real network between namespaces. Not
//! here: what several machines promise (`machines`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;
mod ranks;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use beside::{built, on_path};
use launched::{said, until};
use namespaces::Machines;
use ranks::by_open_mpi;
use rustix::process::Signal;

/// `on HOST WORDS` runs them there with COMMAND's environment; `apart` does so in the background,
/// and says what became of it.
const SHELL: &str = r#"
on() { host=$1; shift; $ON $host "LD_PRELOAD=$LD_PRELOAD TERRAL_INSTANCE=$TERRAL_INSTANCE \
    TERRAL_PREFIX=$TERRAL_PREFIX TERRAL_SPREAD=$TERRAL_SPREAD sh -c '$*'"; }
"#;

/// Machines, and a permanent directory.
struct Spread {
    machines: Machines,
    to: PathBuf,
}

impl Spread {
    fn new(count: usize) -> Option<Self> {
        let machines = Machines::new(count)?;
        let to = machines.home().join("to");
        fs::create_dir(&to).expect("makes");
        Some(Spread { machines, to })
    }

    /// A run on the first machine.
    fn begin(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.machines.terral(0);
        command.args(["run", "--spread", "--memory", "256M", "--ready", "0", "--to"]);
        command.arg(&self.to).args(options).args(["--", "sh", "-c"]);
        command.arg(format!("{SHELL}{script}"));
        command
    }

    fn run(&self, script: &str) -> Output {
        let run = self.begin(&[], script).spawn().expect("starts");
        descendants::ended_within(run, Duration::from_secs(150))
    }

    /// What was written has arrived, and no machine has anything in memory.
    fn is_over(&self, files: &[(&str, &str)]) {
        for (name, text) in files {
            let found = fs::read_to_string(self.to.join(name)).unwrap_or_default();
            assert_eq!(found, *text, "{name}");
        }
        let names = fs::read_dir(&self.to).expect("lists").map(|entry| entry.expect("one"));
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names.len(), files.len(), "{names:?}");
    }

    fn nothing_is_left(&self, count: usize) {
        (0..count).for_each(|at| assert_eq!(self.machines.left(at), "", "h{at}"));
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How often a machine has joined.
fn joins(output: &Output, host: &str) -> usize {
    said(output).matches(&format!("terral: {host}: has joined, in ")).count()
}

#[test]
fn programs_on_machines_that_nobody_named_see_the_files_and_what_they_write_arrives() {
    let Some(spread) = Spread::new(3) else { return };
    let output = spread.run(
        "echo zero > /terral/a; on h1 'cat /terral/a; echo one > /terral/b'
        on h2 'cat /terral/a /terral/b; echo two > /terral/c'; on h1 'cat /terral/c'
        cat /terral/b /terral/c",
    );
    assert_eq!(text(&output), "zero\nzero\none\ntwo\none\ntwo\n", "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(["h1", "h2"].map(|host| joins(&output, host)), [1, 1], "{}", said(&output));
    spread.is_over(&[("a", "zero\n"), ("b", "one\n"), ("c", "two\n")]);
    spread.nothing_is_left(3);
}

#[test]
fn of_many_that_begin_at_once_on_a_machine_one_starts_its_server() {
    let Some(spread) = Spread::new(3) else { return };
    let output = spread.run(
        "for i in 1 2 3 4 5 6 7 8; do for h in h1 h2; do
            on $h \"echo $i > /terral/$h-$i\" & done; done; wait; ls /terral | wc -l",
    );
    assert_eq!(text(&output), "16\n", "{}", said(&output));
    assert_eq!(["h1", "h2"].map(|host| joins(&output, host)), [1, 1], "{}", said(&output));
    spread.nothing_is_left(3);
}

#[test]
fn ranks_of_mpich_bring_their_machines_in() {
    let Some(spread) = Spread::new(3) else { return };
    if !on_path("mpiexec.mpich") {
        return;
    }
    let each = "mpiexec.mpich -hosts 10.77.0.1,10.77.0.2,10.77.0.3 -n 6";
    // None ends at once (docs/launchers.md).
    let rank = "sh -c 'hostname > rank$PMI_RANK; sleep 0.2'";
    let script = format!("{each} {rank}; cat rank[0-5] | sort | uniq -c");
    let mut command = spread.begin(&["--cwd"], &script);
    let run = command.env("PATH", spread.machines.path_with_ssh()).spawn().expect("starts");
    let output = descendants::ended(run);
    let found: Vec<String> = text(&output).lines().map(|line| line.trim().to_owned()).collect();
    assert_eq!(found, ["2 h0", "2 h1", "2 h2"], "{}", said(&output));
    assert_eq!(["h1", "h2"].map(|host| joins(&output, host)), [1, 1], "{}", said(&output));
    // Started as somebody says, they have the environment all the same, but not the directory.
    let each = "mpiexec.mpich -launcher ssh -hosts 10.77.0.1,10.77.0.2,10.77.0.3 -n 6";
    let rank = "sh -c 'hostname > /terral/by$PMI_RANK; sleep 0.2'";
    let script = format!("{each} {rank}; cat /terral/by* | sort -u");
    let path = spread.machines.home().join("bin").display().to_string();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let run = spread.begin(&[], &script).env("PATH", path).spawn().expect("starts");
    let output = descendants::ended(run);
    assert_eq!(text(&output), "h0\nh1\nh2\n", "{}", said(&output));
    spread.nothing_is_left(3);
}

#[test]
fn ranks_of_open_mpi_bring_their_machines_in() {
    let Some(spread) = Spread::new(3) else { return };
    if !on_path("mpiexec.openmpi") {
        return;
    }
    let rank = "sh -c 'hostname > /terral/rank$OMPI_COMM_WORLD_RANK'";
    let ranks = by_open_mpi(&spread.machines, Path::new("/terral"), rank);
    let output = spread.run(&format!("{ranks}; cat /terral/rank[012] | sort"));
    assert_eq!(text(&output), "h0\nh1\nh2\n", "{}", said(&output));
    assert_eq!(["h1", "h2"].map(|host| joins(&output, host)), [1, 1], "{}", said(&output));
    spread.nothing_is_left(3);
}

/// Programs on `h1` that cannot have a server, and say why in a line each.
fn fails(spread: &Spread, before: &str, why: &str) {
    let begin = Instant::now();
    let output = spread.run(&format!(
        "{before}
        for i in 1 2 3; do on h1 'cat /terral/a || echo failed' & done; wait; echo b > /terral/b"
    ));
    let said = said(&output);
    assert_eq!(text(&output), "failed\n".repeat(3), "{said}");
    let lines = said.lines().filter(|line| line.contains("no server of the run"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 3, "one each: {said}");
    for line in lines {
        assert!(line.contains(why) && line.contains("terral run --hosts h1,"), "{line}");
    }
    assert_eq!(said.matches("not connected").count(), 3, "{said}");
    // They fail together.
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    assert_eq!(fs::read_to_string(spread.to.join("b")).expect("is there"), "b\n");
    fs::remove_file(spread.to.join("b")).expect("removes");
    spread.is_over(&[]);
    let found = spread.machines.left(1);
    assert!(found.lines().all(|line| line.contains("/.joining-")), "{found}");
}

#[test]
fn a_machine_that_cannot_join_says_why_and_its_programs_fail_and_the_run_goes_on() {
    let Some(spread) = Spread::new(2) else { return };
    let ticket = "t=${TERRAL_SPREAD#*:}";
    fails(&spread, &format!("{ticket}; echo nonsense > $t"), "it is no ticket");
    fails(&spread, &format!("{ticket}; chmod 644 $t"), "not yours alone");
    fails(&spread, &format!("{ticket}; rm $t"), "is not there: the run is over, or this machine");
    let other = r#"import json, os; t = os.environ["TERRAL_SPREAD"].split(":")[1]
f = json.load(open(t)); f["secret"][7] ^= 1; json.dump(f, open(t, "w"))"#;
    let script = spread.machines.home().join("other.py");
    fs::write(&script, other).expect("writes");
    let python = format!("/usr/bin/python3 {}", script.display());
    fails(&spread, &python, "the run's terral is not reached (10.77.0.1:");
    spread.machines.link(1, false);
    fails(&spread, "true", "is a firewall between");
}

#[test]
fn a_machine_without_this_terral_says_so() {
    let Some(spread) = Spread::new(2) else { return };
    let output = spread.run(
        "TERRAL_SPREAD=/nowhere/terral:${TERRAL_SPREAD#*:}; on h1 'cat /terral/a || echo failed'",
    );
    assert_eq!(text(&output), "failed\n", "{}", said(&output));
    let wanted = "/nowhere/terral is not there to start one";
    assert!(said(&output).contains(wanted), "{}", said(&output));
    // Another build of it, with a library.
    let other = spread.machines.home().join("other");
    fs::create_dir(&other).expect("makes");
    fs::copy(built("terral"), other.join("terral")).expect("copies");
    fs::copy(built("libterral_preload.so"), other.join("libterral_preload.so")).expect("copies");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(other.join("terral"), mode).expect("sets");
    let none = "objcopy --remove-section .note.gnu.build-id";
    let changed = format!("{none} {0} {0}", other.join("libterral_preload.so").display());
    if !on_path("objcopy") {
        return;
    }
    assert!(spread.machines.shell_on(0, &changed).status.success());
    let output = spread.run(&format!(
        "TERRAL_SPREAD={}/terral:${{TERRAL_SPREAD#*:}}; on h1 'cat /terral/a || echo failed'",
        other.display()
    ));
    assert_eq!(text(&output), "failed\n", "{}", said(&output));
    assert!(said(&output).contains("there is another build than here"), "{}", said(&output));
    assert_eq!(spread.machines.left(0), "");
}

#[test]
fn a_machine_with_little_shared_memory_says_so_and_may_join_later() {
    let Some(spread) = Spread::new(2) else { return };
    let mounted =
        spread.machines.shell_on(1, "mount -t tmpfs -o size=64M,mode=1777 tmpfs /dev/shm");
    assert!(mounted.status.success(), "{}", said(&mounted));
    let output = spread.run(
        "mkdir /terral/d; on h1 'cat /terral/a || echo failed'
        $ON h1 'mount -o remount,size=1G /dev/shm'
        on h1 'echo b > /terral/d/b'; mv /terral/d /terral/e; cat /terral/e/b",
    );
    let said = said(&output);
    assert_eq!((text(&output), output.status.success()), ("failed\nb\n".into(), true), "{said}");
    let why = "/dev/shm has only 64.0 MiB free";
    let wanted = |begin: &str| said.lines().any(|one| one.starts_with(begin) && one.contains(why));
    assert!(wanted("terral: h1: cannot join: "), "{said}");
    assert!(wanted("terral: h1: no server of the run"), "{said}");
    assert_eq!(joins(&output, "h1"), 1, "{said}");
    spread.nothing_is_left(2);
}

/// The door is open, and between servers there is a firewall.
#[test]
fn a_machine_whose_server_cannot_reach_the_first_is_told_so_and_the_run_goes_on() {
    let Some(spread) = Spread::new(3) else { return };
    let wall = "ip rule add ipproto tcp dport 7000 blackhole";
    let walls = [0, 1].map(|at| spread.machines.shell_on(at, wall));
    if walls.iter().any(|wall| !wall.status.success()) {
        println!("skipped: no rules by port here");
        return;
    }
    let script = "on h1 'cat /terral/a || echo failed'; on h2 'echo c > /terral/c'; cat /terral/c
        mkdir /terral/d; mv /terral/c /terral/d/c; mv /terral/d /terral/e";
    let run = spread.begin(&["--listen", "7000"], script).spawn().expect("starts");
    let output = descendants::ended_within(run, Duration::from_secs(150));
    let said = said(&output);
    assert_eq!((text(&output), output.status.success()), ("failed\nc\n".into(), true), "{said}");
    let wanted = |begin: &str| said.lines().any(|one| one.starts_with(begin) && one.contains(WALL));
    assert!(wanted("terral: h1: cannot join: ") && wanted("terral: h1: no server of"), "{said}");
    spread.nothing_is_left(1);
    // Why it has failed stays for a while.
    let left = spread.machines.left(1);
    assert!(left.lines().all(|line| line.contains("/.joining-")), "{left}");
}

const WALL: &str = "no connection between its server and that of";

#[test]
fn two_runs_at_once_have_a_server_each_on_a_machine() {
    let Some(spread) = Spread::new(2) else { return };
    let other = spread.machines.home().join("other");
    fs::create_dir(&other).expect("makes");
    let script =
        "for i in 1 2 3; do on h1 'hostname > /terral/$$' & done; wait; ls /terral | wc -l";
    let one = spread.begin(&[], script).spawn().expect("starts");
    let mut second = spread.machines.terral(0);
    second.args(["run", "--spread", "--memory", "256M", "--to"]).arg(&other);
    let two = second.args(["--", "sh", "-c", &format!("{SHELL}{script}")]).spawn();
    for run in [one, two.expect("starts")] {
        let output = descendants::ended(run);
        assert_eq!((text(&output), joins(&output, "h1")), ("3\n".into(), 1), "{}", said(&output));
    }
    spread.nothing_is_left(2);
}

#[test]
fn a_machine_that_joined_and_is_lost_is_named_at_the_end() {
    let Some(spread) = Spread::new(3) else { return };
    // All of Terral there at once, and what it has not brought.
    let output = spread.run(
        "on h2 'echo two > /terral/b'; on h1 'echo one > /terral/a'
        for p in $($ON h1 'cd /proc; for p in [0-9]*; do
                [ \"$(readlink $p/ns/uts)\" = \"$(readlink self/ns/uts)\" ] || continue
                tr \"\\0\" \" \" < $p/cmdline 2>/dev/null |
                    grep -q \"terral \\(serve\\|host\\|join\\)\" && echo $p; done'); do
            kill -9 $p
        done",
    );
    let said = said(&output);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("h1: its `terral host` was lost, or the way there"), "{said}");
    assert!(said.contains("terral: h1: gone"), "{said}");
    assert_eq!(fs::read_to_string(spread.to.join("b")).expect("has arrived"), "two\n");
    // As a person would: there.
    let recover = spread.machines.terral(1).arg("recover").output().expect("starts");
    assert!(recover.status.success(), "{}", launched::said(&recover));
    assert_eq!(fs::read_to_string(spread.to.join("a")).expect("has arrived"), "one\n");
}

#[test]
fn threads_at_once_and_programs_without_an_environment_bring_their_machine_in() {
    let Some(spread) = Spread::new(3) else { return };
    let threads = r#"
import os, signal, threading
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
def write(at): open(f"/terral/t{at}", "w").close()
all = [threading.Thread(target=write, args=(at,)) for at in range(16)]
[one.start() for one in all]; [one.join() for one in all]
try: print(os.waitpid(-1, 0))
except ChildProcessError: print("none")
"#;
    let script = spread.machines.home().join("threads.py");
    fs::write(&script, threads).expect("writes");
    let output = spread.run(&format!(
        "on h1 '/usr/bin/python3 {}'; on h2 'exec env -i /bin/touch /terral/bare'
        ls /terral | wc -l",
        script.display()
    ));
    assert_eq!(text(&output), "none\n17\n", "{}", said(&output));
    assert_eq!(["h1", "h2"].map(|host| joins(&output, host)), [1, 1], "{}", said(&output));
    spread.nothing_is_left(3);
}

#[test]
fn who_starts_a_server_may_be_killed_meanwhile() {
    let Some(spread) = Spread::new(2) else { return };
    // The program and `terral join`, which wait; what stays goes on, or the next begins anew.
    let output = spread.run(
        "pids() { for p in /proc/[0-9]*; do
            tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q \"$1\" && echo ${p#/proc/}; done; }
        for delay in 0.01 0.03 0.06 0.1 0.2; do
            on h1 'cat /terral/none' & sleep $delay
            for p in $(pids \"join $TERRAL_INSTANCE \"); do kill -9 $p; done; wait
        done 2> /dev/null
        on h1 'echo one > /terral/a'; cat /terral/a",
    );
    assert_eq!(text(&output), "one\n", "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    spread.is_over(&[("a", "one\n")]);
    spread.nothing_is_left(2);
}

#[test]
fn servers_that_are_killed_are_started_again_and_nothing_is_lost() {
    let Some(spread) = Spread::new(3) else { return };
    let output = spread.run(
        "pid_of() { $ON $1 \"$TERRAL status --json\" | python3 -c \
            'import json,sys; print(json.load(sys.stdin)[0][\"status\"][\"pid\"])'; }
        on h1 'echo one > /terral/a'; kill -9 $(pid_of h1); on h1 'echo more >> /terral/a'
        kill -9 $(pid_of h0); on h2 'cat /terral/a; echo two > /terral/b'
        kill -9 $(pid_of h2) $(pid_of h0); cat /terral/b",
    );
    assert_eq!(text(&output), "one\nmore\ntwo\n", "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    spread.is_over(&[("a", "one\nmore\n"), ("b", "two\n")]);
    spread.nothing_is_left(3);
}

#[test]
fn servers_and_the_door_listen_where_it_was_said() {
    let Some(spread) = Spread::new(2) else { return };
    let listens = "awk '$4 == \"0A\" { print $2 }' /proc/net/tcp | sort";
    let quoted = listens.replace('"', "\\\"").replace('$', "\\$");
    let script = format!("on h1 'echo x > /terral/a'; {listens}; $ON h1 \"{quoted}\"");
    for (options, first, second) in [
        (&["--listen", "7000"][..], "00000000", "00000000"),
        (&["--listen", "7000", "--interface", "eth0"], "01004D0A", "02004D0A"),
    ] {
        let output = descendants::ended(spread.begin(options, &script).spawn().expect("starts"));
        // 7000 and, on the first machine, 7001.
        let wanted = format!("{first}:1B58\n{first}:1B59\n{second}:1B58\n");
        assert_eq!(text(&output), wanted, "{}", said(&output));
    }
}

/// A script that says what the doctor says of the run.
fn doctor(machines: &Machines) -> String {
    let script = machines.home().join("doctor.sh");
    let text = format!("{} doctor | grep -A1 ' run  '\n", built("terral").display());
    fs::write(&script, text).expect("writes");
    format!("sh {}", script.display())
}

/// A run on the first machine alone.
fn plain(spread: &Spread, script: &str) -> Output {
    let mut command = spread.machines.terral(0);
    command.args(["run", "--memory", "128M", "--to"]).arg(&spread.to).args(["--", "sh", "-c"]);
    descendants::ended(command.arg(format!("{SHELL}{script}")).spawn().expect("starts"))
}

#[test]
fn the_doctor_says_on_a_machine_of_a_run_whether_it_is_served_and_why_not() {
    let Some(spread) = Spread::new(3) else { return };
    let doctor = doctor(&spread.machines);
    let asks = |output: &Output, wanted: &[&str]| {
        let found = text(output);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), wanted.len(), "{found}\n{}", said(output));
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(line.contains(wanted), "{line}: {wanted}\n{}", said(output));
        }
    };
    let output = spread.run(&format!("on h1 '{doctor}'; on h1 'ls /terral'; on h1 '{doctor}'"));
    asks(&output, &["starts one (--spread)", "which is served here"]);
    let script = format!("on h1 '{doctor}'; $ON h1 'export SLURM_STEP_ID=0; {doctor}'");
    let output = plain(&spread, &script);
    let lost = ["a task of Slurm, without the environment", "without --export=NONE"];
    asks(&output, &["no server of the run", "terral run --hosts h1", lost[0], lost[1]]);
    if !on_path("mpiexec.openmpi") {
        return;
    }
    // Its daemons are started without the environment.
    let output = plain(&spread, &by_open_mpi(&spread.machines, Path::new("/tmp"), &doctor));
    let found = text(&output);
    let times = |what: &str| found.matches(what).count();
    assert_eq!(times("which is served here"), 1, "{found}{}", said(&output));
    assert_eq!(times("a rank of Open MPI, without the environment"), 2, "{found}");
    assert_eq!(times("mpiexec -x LD_PRELOAD -x TERRAL_INSTANCE"), 2, "{found}");
}

#[test]
fn without_the_launcher_machines_that_joined_bring_what_they_have_and_go() {
    let Some(spread) = Spread::new(2) else { return };
    let mark = spread.machines.home().join("mark");
    let program = format!("on h1 'echo one > /terral/a; echo > {}'", mark.display());
    let script = format!("sleep 300 & {program}; wait");
    let mut run = spread.begin(&[], &script).spawn().expect("starts");
    until("the program", || mark.exists());
    let all = descendants::of(run.id());
    let command: Vec<i32> =
        all[1..].iter().copied().filter(|pid| !descendants::is_server(*pid)).collect();
    descendants::send(run.id() as i32, Signal::KILL);
    run.wait().expect("was killed");
    command.into_iter().for_each(|pid| descendants::send(pid, Signal::KILL));
    // A minute without a program.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(110)
        && (0..2).any(|at| !spread.machines.left(at).is_empty())
    {
        std::thread::sleep(Duration::from_millis(200));
    }
    spread.nothing_is_left(2);
    spread.is_over(&[("a", "one\n")]);
}

#[test]
fn a_run_that_does_not_spread_listens_nowhere_and_says_how_it_would() {
    let Some(spread) = Spread::new(2) else { return };
    let listens = "awk '$4 == \"0A\"' /proc/net/tcp";
    let output = plain(
        &spread,
        &format!("{listens}; echo ${{TERRAL_SPREAD-none}}; on h1 'cat /terral/a || echo failed'"),
    );
    assert_eq!(text(&output), "none\nfailed\n", "{}", said(&output));
    assert!(said(&output).contains("with --hosts or --spread"), "{}", said(&output));
    assert_eq!(spread.machines.left(1), "");
}
