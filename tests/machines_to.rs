//! One run over several machines, and the permanent directory that they bring files to: real
//! servers, real programs, a real network between namespaces. Not here: what the machines show each
//! other (`machines`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod mount;
mod namespaces;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use beside::on_path;
use launched::said;
use mount::Mount;
use namespaces::Machines;

fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Machines, and a directory that all see.
struct Job {
    machines: Machines,
    to: PathBuf,
}

impl Job {
    fn new(count: usize) -> Option<Self> {
        let machines = Machines::new(count)?;
        let to = machines.home().join("to");
        std::fs::create_dir(&to).expect("makes");
        Some(Job { machines, to })
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let to = self.to.display().to_string();
        self.machines.run_with(&[&["--to", &to], options].concat(), script)
    }

    /// What a script says of the directory, as anybody sees it.
    fn there(&self, script: &str) -> String {
        let output = Command::new("sh").args(["-c", script]).current_dir(&self.to).output();
        shown(&output.expect("a shell"))
    }

    /// That nothing is left: not in memory, and not in the directory.
    fn is_clean(&self, count: usize) {
        for at in 0..count {
            assert_eq!(self.machines.left(at), "", "in the memory of h{at}");
        }
        assert_eq!(self.there("ls -A | grep terral || true"), "");
    }
}

#[test]
fn what_all_machines_write_arrives_and_what_is_there_all_can_read() {
    let Some(job) = Job::new(3) else { return };
    job.there("mkdir input; seq 300000 > input/big; echo old > input/old");
    let output = job.run(
        &[],
        "for h in h1 h2; do on $h 'cksum < /terral/input/big'; done
        cksum < input/big
        mkdir out
        for h in h1 h2; do
            on $h \"cd /terral/out; seq 100000 > \\$(hostname); mkdir d.\\$(hostname)\"
        done
        seq 100000 > out/h0
        on h1 'cd /terral; echo more >> input/old; mv out/h0 out/moved; rm out/h2'
        on h1 'ln -s h1 /terral/out/link'
        on h2 'cd /terral; rmdir out/d.h1; mv input/old out/d.h2/new; wc -l < out/moved'
        ls out",
    );
    let sum = job.there("cksum < input/big");
    let expected = format!("{sum}{sum}{sum}100000\nd.h2\nh1\nlink\nmoved\n");
    assert_eq!(shown(&output), expected, "{}", said(&output));
    let tree = job.there("find . | sort; cat out/d.h2/new; readlink out/link");
    let expected = ".\n./input\n./input/big\n./out\n./out/d.h2\n./out/d.h2/new\n./out/h1\n\
                    ./out/link\n./out/moved\nold\nmore\nh1\n";
    assert_eq!(tree, expected);
    job.there("seq 100000 | cmp - out/h1; seq 100000 | cmp - out/moved");
    assert!(said(&output).contains(", all in "), "{}", said(&output));
    job.is_clean(3);
}

#[test]
fn a_machine_that_sees_another_directory_there_is_named_and_nothing_begins() {
    let Some(job) = Job::new(3) else { return };
    let mount = format!("mount -t tmpfs tmpfs {}", job.to.display());
    shown(&job.machines.shell_on(2, &mount));
    let output = job.run(&[], "touch begun");
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    let (told, to) = (said(&output), job.to.display().to_string());
    let expected = format!("h2: server: {to} here is not the directory that member 0 brings");
    assert!(told.contains(&expected), "{told}");
    job.is_clean(3);
    assert_eq!(job.there("ls"), "");
}

/// Writes files on a machine until it is told to stop, and says how many it has written.
const WRITER: &str = r#"
import os, sys, zlib
me, stop = sys.argv[1], sys.argv[2]
os.chdir("/terral"); n = 0
os.makedirs(me, exist_ok=True)
while not os.path.exists(stop) and n < 3000:
    data = (f"{me} {n} " * 3000).encode()
    with open(f"{me}/{n}", "wb") as f: f.write(data)
    if n % 5 == 4: os.rename(f"{me}/{n}", f"{me}/moved.{n}")
    if n % 7 == 6 and n % 5 != 4: os.remove(f"{me}/{n}")
    n += 1
open(stop + "." + me, "w").write(str(n))
"#;

/// Whether the directory has what the writer has written on a machine, and nothing else.
const CHECK: &str = r#"
import os, sys
to, stop = sys.argv[1], sys.argv[2]
for me in sys.argv[3:]:
    there = {}
    for n in range(int(open(stop + "." + me).read())):
        if n % 5 == 4: there[f"moved.{n}"] = n
        elif n % 7 != 6: there[str(n)] = n
    names = set(os.listdir(f"{to}/{me}"))
    assert names == set(there), (me, sorted(names ^ set(there))[:5], len(names), len(there))
    for name, n in there.items():
        assert open(f"{to}/{me}/{name}").read() == f"{me} {n} " * 3000, (me, name)
    print(me, "whole", len(there) > 3)
"#;

impl Job {
    /// A script that writes on all machines for so many seconds, and does `what` meanwhile.
    fn writing(&self, what: &str) -> String {
        let home = self.machines.home();
        std::fs::write(home.join("writer.py"), WRITER).expect("writes");
        std::fs::write(home.join("check.py"), CHECK).expect("writes");
        let home = home.display();
        format!(
            "for h in h1 h2; do on $h \"python3 {home}/writer.py $h {home}/stop\" & done
            python3 {home}/writer.py h0 {home}/stop & sleep 0.7
            {what}
            touch {home}/stop; wait"
        )
    }

    /// That all of it is there.
    fn has_written(&self, machines: &[&str]) {
        let home = self.machines.home().display();
        let check = format!(
            "python3 {home}/check.py {} {home}/stop {}",
            self.to.display(),
            machines.join(" ")
        );
        let expected: String = machines.iter().map(|one| format!("{one} whole True\n")).collect();
        assert_eq!(self.there(&check), expected);
    }
}

#[test]
fn what_was_written_while_servers_are_killed_arrives_whole() {
    let Some(job) = Job::new(3) else { return };
    let output = job.run(
        &[],
        &job.writing("kill -9 $(pid_of h1); sleep 0.5; kill -9 $(pid_of h0); kill -9 $(pid_of h2)"),
    );
    assert!(output.status.success(), "{}", said(&output));
    job.has_written(&["h0", "h1", "h2"]);
    job.is_clean(3);
}

#[test]
fn a_directory_that_all_have_written_in_is_moved_as_one() {
    let Some(job) = Job::new(3) else { return };
    let output = job.run(
        &[],
        "mkdir step.tmp done
        for h in h0 h1 h2; do on $h 'cd /terral/step.tmp; seq 50000 > $(hostname)'; done
        on h2 'cd /terral/step.tmp; sleep 1; mv $(hostname) moved; seq 3 > late; ls' &
        sleep 0.4
        on h1 'cd /terral; mv step.tmp step; ls'
        on h2 'mv /terral/step /terral/done/step'
        wait
        for h in h0 h1 h2; do on $h 'cat /terral/done/step/* | wc -l'; done",
    );
    let expected = "done\nstep\nh0\nh1\nlate\nmoved\n150003\n150003\n150003\n";
    assert_eq!(shown(&output), expected, "{}", said(&output));
    let tree = job
        .there("find . | sort; cd done/step; for f in h0 h1 moved; do seq 50000 | cmp - $f; done");
    let step = "./done/step";
    let expected = format!(".\n./done\n{step}\n{step}/h0\n{step}/h1\n{step}/late\n{step}/moved\n");
    assert_eq!(tree, expected);
    job.is_clean(3);
}

#[test]
fn directories_are_moved_while_servers_are_killed_and_nothing_stays_behind() {
    let Some(job) = Job::new(3) else { return };
    let output = job.run(
        &[],
        "mkdir d0
        for i in 0 1 2 3 4 5; do
            for h in h0 h1 h2; do on $h \"seq 20000 > /terral/d$i/\\$(hostname).$i\"; done
            (sleep 0.0$i; kill -9 $(pid_of h$(((i + i / 3) % 3)))) &
            on h$((i % 3)) mv /terral/d$i /terral/d$((i + 1)) || exit 9
            wait
            sleep 1
        done
        ls d6 | wc -l",
    );
    assert_eq!(shown(&output), "18\n", "{}", said(&output));
    job.there("cd d6; for f in *; do seq 20000 | cmp - $f || exit 1; done");
    assert_eq!(job.there("ls; ls d6 | wc -l"), "d6\n18\n");
    job.is_clean(3);
}

#[test]
fn what_an_earlier_run_left_on_a_machine_is_brought_before_the_next_begins() {
    let Some(job) = Job::new(2) else { return };
    // All processes of one machine are killed, with the launcher, as by a batch system.
    let output = job.run(
        &[],
        "on h1 'cd /terral; mkdir d; seq 100000 > d/new; echo two > d/other'
        mkdir e; echo three > e/file
        for h in h1 h0; do
            server=$(pid_of $h); host=$(ps -o ppid= -p $server); kill -9 $host $server
        done",
    );
    assert!(!output.status.success());
    let output = job.run(&[], "cat d/other e/file; on h1 'wc -l < /terral/d/new'");
    assert_eq!(shown(&output), "two\nthree\n100000\n", "{}", said(&output));
    job.is_clean(2);
}

#[test]
fn programs_of_another_memory_with_an_instance_of_the_same_name_are_not_waited_for() {
    let Some(job) = Job::new(2) else { return };
    let (to, dir) = (job.to.display().to_string(), ["run", "--instance", "machines", "--to"]);
    let elsewhere = tempfile::tempdir().expect("directory");
    let mut other = job.machines.terral(1);
    other.args(dir).arg(elsewhere.path()).args(["--memory", "256M", "--", "sleep", "100"]);
    let mut other = other.spawn().expect("starts");
    let killed = "seq 100000 > $TERRAL_DIR/f
        kill -9 $PPID $($TERRAL status --json --instance machines | python3 -c \
        'import json,sys; print(json.load(sys.stdin)[0][\"status\"][\"pid\"])')";
    let mut run = job.machines.terral(0);
    run.args(dir).args([&to, "--memory", "256M", "--", "sh", "-c", killed]);
    assert!(!run.output().expect("starts").status.success());
    let mut recover = job.machines.terral(0);
    let recover = recover.args(["recover", "machines"]).spawn().expect("starts");
    let output = descendants::ended_within(recover, std::time::Duration::from_secs(40));
    assert!(output.status.success(), "{}", said(&output));
    job.there("seq 100000 | cmp - f");
    assert!(other.try_wait().expect("a child").is_none(), "the other one sleeps");
    let pid = rustix::process::Pid::from_child(&other);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is there");
    other.wait().expect("ends");
}

#[test]
fn what_a_machine_owes_that_was_lost_its_recover_brings() {
    let Some(job) = Job::new(3) else { return };
    let output = job.run(
        &[],
        "mkdir e; on h2 'seq 100 > /terral/e/f'
        server=$(pid_of h1); host=$(ps -o ppid= -p $server)
        on h1 \"mkdir /terral/d; exec 3>/terral/d/new; seq 100000 >&3; kill -9 $host $server\"",
    );
    assert_eq!(output.status.code(), Some(74), "{}", said(&output));
    let told = said(&output);
    assert!(told.contains("h1: gone") && told.contains("what only h1 had is NOT in"), "{told}");
    assert!(told.contains("`terral recover machines` there brings what is left"), "{told}");
    job.there("seq 100 | cmp - e/f && ! seq 100000 | cmp -s - d/new");
    let recovered = job.machines.terral(1).args(["recover", "machines"]).output();
    shown(&recovered.expect("starts"));
    job.there("seq 100000 | cmp - d/new");
    job.is_clean(3);
}

#[test]
fn what_a_full_directory_does_not_take_stays_and_recover_brings_it() {
    // Mounted before there are machines, so that all of them see it.
    let Some(to) = Mount::tmpfs(40) else { return };
    let Some(machines) = Machines::new(2) else { return };
    let job = Job { machines, to: to.path().into() };
    let output = job.run(
        &["--wait-timeout", "3s"],
        "on h1 'mkdir /terral/d; head -c 60000000 /dev/zero > /terral/d/one'
        head -c 60000000 /dev/zero > two",
    );
    let told = said(&output);
    assert_eq!(output.status.code(), Some(74), "{told}");
    assert!(told.contains("No space left on device") && told.contains("--wait-timeout"), "{told}");
    assert!(told.contains("stays in the memory of h0, h1 until they go down"), "{told}");
    assert!(told.contains("`terral recover machines` on each of them brings it"), "{told}");
    to.remount("size=200m");
    for at in 0..2 {
        let recovered = job.machines.terral(at).args(["recover"]).output().expect("starts");
        assert!(recovered.status.success(), "{}", said(&recovered));
    }
    job.there("head -c 60000000 /dev/zero | cmp - d/one && cmp d/one two");
    job.is_clean(2);
}

#[test]
fn a_machine_that_stands_still_at_the_end_is_named_and_waited_for() {
    let Some(job) = Job::new(2) else { return };
    let script = "on h1 'mkdir /terral/d; seq 100000 > /terral/d/one; seq 9 > /terral/d/two'
        server=$(pid_of h1); kill -STOP $server; (sleep 14; kill -CONT $server) &";
    let output = job.run(&[], script);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("h1: the server there does not answer"), "{}", said(&output));
    job.there("seq 100000 | cmp - d/one && seq 9 | cmp - d/two");
    job.is_clean(2);
}

#[test]
fn machines_whose_launcher_is_killed_bring_what_they_have() {
    let Some(job) = Job::new(3) else { return };
    let script = "on h1 'mkdir /terral/d; seq 100000 > /terral/d/one'
        on h2 'seq 100000 > /terral/d/two'; kill -9 $PPID";
    assert!(!job.run(&[], script).status.success());
    let since = std::time::Instant::now();
    while job.there("cat d/one d/two 2>/dev/null | wc -l") != "200000\n" {
        assert!(since.elapsed().as_secs() < 180, "{}", job.there("ls -lR"));
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let recovered = job.machines.terral(0).args(["recover"]).output().expect("starts");
    assert!(recovered.status.success(), "{}", said(&recovered));
}

#[test]
fn mpich_starts_its_ranks_on_all_machines_where_the_command_stands() {
    let Some(machines) = Machines::new(3) else { return };
    if !on_path("mpiexec.mpich") {
        return;
    }
    let to = machines.home().join("to");
    let script = "mpiexec.mpich -hosts 10.77.0.1,10.77.0.2,10.77.0.3 -n 3 \
                  sh -c 'echo $(uname -n) in $(pwd) > by-$(uname -n); sleep 0.2' \
                  && cat by-h0 by-h1 by-h2";
    let mut command = machines.begin(&["--to", &to.display().to_string(), "--cwd"], script);
    let run = command.env("PATH", machines.path_with_ssh()).spawn().expect("starts");
    let ran = descendants::ended(run);
    assert!(ran.status.success(), "{}", said(&ran));
    let expected = ["h0 in /terral\n", "h1 in /terral\n", "h2 in /terral\n"];
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected.concat());
    for (at, expected) in expected.iter().enumerate() {
        let arrived = fs::read_to_string(to.join(format!("by-h{at}"))).expect("it arrived");
        assert_eq!(arrived, *expected);
    }
}
