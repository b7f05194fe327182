//! Machines, an etcd on the last of them, and servers of a pool on the others.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::descendants;
use crate::etcd_server::{self, EtcdServer};
use crate::launched::{said, until};
use crate::namespaces::Machines;

/// Nobody waits longer for what works.
pub const SOON: Duration = Duration::from_secs(90);

/// Machines, and an etcd on the last of them.
pub struct Pool {
    pub servers: Vec<Option<Child>>,
    pub etcd: EtcdServer,
    pub to: PathBuf,
    pub machines: Machines,
}

/// What it shows.
pub fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Pool {
    /// So many machines, without servers.
    pub fn new(count: usize) -> Option<Self> {
        if !etcd_server::is_installed() {
            return None;
        }
        let machines = Machines::new(count + 1)?;
        let to = machines.home().join("to");
        fs::create_dir(&to).expect("makes");
        let command = machines.entering(count, "etcd");
        let address = format!("10.77.0.{}:2379", count + 1);
        let mut etcd = EtcdServer::at(command, address, &[]);
        etcd.start();
        let servers = (0..count).map(|_| None).collect();
        Some(Pool { servers, etcd, to, machines })
    }

    /// The same, with a server on each, of which the first is the control.
    pub fn all(count: usize) -> Option<Self> {
        let mut pool = Pool::new(count)?;
        (0..count).for_each(|at| pool.serve(at, &[]));
        Some(pool)
    }

    pub fn command(&self, at: usize, options: &[&str]) -> Command {
        let mut command = self.machines.terral(at);
        command.args(["serve", "--memory", "256M", "--ready", "0", "--pool", "p"]);
        command.arg("--control").arg(self.etcd.url()).arg("--to").arg(&self.to).args(options);
        command
    }

    pub fn begin(&mut self, at: usize, options: &[&str]) {
        let mut command = self.command(at, options);
        command.stderr(Stdio::inherit());
        self.servers[at] = Some(command.spawn().expect("starts"));
    }

    pub fn serve(&mut self, at: usize, options: &[&str]) {
        self.begin(at, options);
        self.is_in(at);
    }

    pub fn is_in(&self, at: usize) {
        until("its server serves", || self.run(at, "ls /terral").status.success());
    }

    pub fn terral(&self, at: usize, words: &[&str]) -> Output {
        let mut command = self.machines.terral(at);
        descendants::ended_within(command.args(words).spawn().expect("starts"), SOON)
    }

    pub fn run(&self, at: usize, script: &str) -> Output {
        self.terral(at, &["run", "--instance", "default", "--", "sh", "-c", script])
    }

    pub fn shows(&self, at: usize, script: &str) -> String {
        let output = self.run(at, script);
        assert!(output.status.success(), "{script}: {}", said(&output));
        told(&output)
    }

    pub fn status(&self, at: usize) -> String {
        told(&self.terral(at, &["status"]))
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        let server = self.servers[at].as_ref().expect("it serves");
        kill_process(Pid::from_child(server), signal).expect("a child can be signalled");
    }

    pub fn is_killed(&mut self, at: usize) {
        let mut server = self.servers[at].take().expect("it serves");
        server.kill().expect("kills");
        server.wait().expect("waits");
    }

    /// The machine is lost: its memory with it.
    pub fn is_lost(&mut self, at: usize) {
        self.is_killed(at);
        let gone = self.machines.shell_on(at, "rm -rf /dev/shm/*");
        assert!(gone.status.success(), "{}", said(&gone));
    }

    pub fn ends(&mut self, at: usize) -> Output {
        descendants::ended_within(self.servers[at].take().expect("it serves"), SOON)
    }

    pub fn stops(&mut self, at: usize) {
        let output = self.terral(at, &["stop"]);
        assert!(output.status.success(), "{}", said(&output));
        let ended = self.ends(at);
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(self.machines.left(at), "", "in the memory of h{at}");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            let _ = kill_process(Pid::from_child(server), Signal::CONT);
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
