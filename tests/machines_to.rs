//! One run over several machines, and the permanent directory that they bring files to: real
//! servers, real programs, a real network between namespaces. Not here: what the machines show each
//! other (`machines`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::path::PathBuf;
use std::process::{Command, Output};

use launched::said;
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
        on h1 'cd /terral; echo more >> input/old; mv out/h0 out/moved; rm out/h2; ln -s h1 out/link'
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
