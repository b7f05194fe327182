//! Two machines of namespaces with servers for all their users (`terral serve --users --pool`), two
//! real users, one permanent directory, and an etcd on a third machine, for tests of that. Needs
//! root.

#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::beside::built;
use super::descendants;
use super::etcd_server::{self, EtcdServer};
use super::launched::until;
use super::namespaces::Machines;

pub const ALICE: u32 = 41_001;
pub const BOB: u32 = 41_002;
/// Nobody waits longer for what works.
pub const SOON: Duration = Duration::from_secs(90);
/// So long an end takes at most, also of one that waits for who says nothing.
const ENDS: Duration = Duration::from_secs(150);

pub fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Two machines with root's servers for all users, and an etcd on a third one.
pub struct Cluster {
    pub servers: [Option<Child>; 2],
    pub home: tempfile::TempDir,
    pub etcd: EtcdServer,
    pub machines: Machines,
}

impl Cluster {
    /// Without servers; none where that cannot be, which is said.
    pub fn new() -> Option<Cluster> {
        if !etcd_server::is_installed() {
            return None;
        }
        let machines = Machines::new(3)?;
        let home = tempfile::tempdir_in("/var/tmp").expect("directory");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        for program in ["terral", "libterral_preload.so"] {
            let copied = Command::new("install").arg(built(program)).arg(home.path()).status();
            assert!(copied.expect("runs").success(), "{program}");
        }
        let known = fs::read_to_string("/etc/passwd").expect("there");
        let all =
            format!("{known}alice:x:{ALICE}:{ALICE}::/:/bin/sh\nbob:x:{BOB}:{BOB}::/:/bin/sh\n");
        fs::write(home.path().join("passwd"), all).expect("writes");
        fs::create_dir(home.path().join("to")).expect("makes");
        let place = home.path().display();
        for at in 0..2 {
            // What is a machine's own.
            let script = format!(
                "mount --bind {place}/passwd /etc/passwd && mkdir -p /run/terral && \
                 mount -t tmpfs -o mode=755 tmpfs /run/terral"
            );
            let done = machines.shell_on(at, &script);
            assert!(done.status.success(), "{}", text(&done));
        }
        let mut etcd = EtcdServer::at(machines.entering(2, "etcd"), "10.77.0.3:2379".into(), &[]);
        etcd.start();
        Some(Cluster { servers: [None, None], home, etcd, machines })
    }

    /// The same, with a server on each, of which the first is the control.
    pub fn all() -> Option<Cluster> {
        let mut cluster = Cluster::new()?;
        (0..2).for_each(|at| cluster.serve(at));
        Some(cluster)
    }

    pub fn terral(&self, at: usize, user: u32) -> Command {
        let program = self.home.path().join("terral");
        let mut command = self.machines.command(at, "setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.arg("--clear-groups").arg(program);
        command.env_remove("TERRAL_INSTANCE").stdin(Stdio::null()).current_dir("/");
        command
    }

    /// A server of the pool on this machine; what it says goes where `said` finds it.
    pub fn begins(&self, at: usize, more: &[&str]) -> Command {
        let mut command = self.terral(at, 0);
        command.args(["serve", "--memory", "256M", "--ready", "0", "--pool", "p", "--control"]);
        command.arg(self.etcd.url()).arg("--to").arg(self.to()).args(more);
        let says = fs::File::options().create(true).append(true).open(self.says(at));
        command.stdout(Stdio::null()).stderr(says.expect("opens"));
        command
    }

    fn says(&self, at: usize) -> PathBuf {
        self.home.path().join(format!("says-{at}"))
    }

    /// What the servers that a person has started on this machine have said.
    pub fn said(&self, at: usize) -> String {
        fs::read_to_string(self.says(at)).unwrap_or_default()
    }

    /// Starts one for all users.
    pub fn start(&mut self, at: usize) {
        let mut command = self.begins(at, &["--users", "--user-memory", "128M"]);
        self.servers[at] = Some(command.spawn().expect("starts"));
    }

    /// The same, and waits until users are let in.
    pub fn serve(&mut self, at: usize) {
        self.start(at);
        until("users are let in", || self.sh(at, ALICE, "true").status.success());
    }

    /// How that ends, by itself or as it was told to.
    pub fn ended(&mut self, at: usize) -> ExitStatus {
        let mut server = self.servers[at].take().expect("it serves");
        let begin = Instant::now();
        loop {
            if let Some(ended) = server.try_wait().expect("a child") {
                return ended;
            }
            if begin.elapsed() > ENDS {
                let all = descendants::of(server.id());
                all.into_iter().for_each(|pid| descendants::send(pid, Signal::KILL));
                panic!("it hangs: {}", self.said(at));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn to(&self) -> PathBuf {
        self.home.path().join("to")
    }

    /// What a user's shell says to this.
    pub fn sh(&self, at: usize, user: u32, script: &str) -> Output {
        let mut command = self.terral(at, user);
        command.args(["run", "-q", "--instance", "default", "--", "sh", "-c", script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        descendants::ended_within(child.expect("starts"), SOON)
    }

    /// The same, which must be done.
    pub fn done(&self, at: usize, user: u32, script: &str) -> String {
        let output = self.sh(at, user, script);
        assert!(output.status.success(), "h{at} {user}: {script}: {}", text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, which is refused.
    pub fn denied(&self, at: usize, user: u32, script: &str) {
        let (output, words) = (self.sh(at, user, script), ["denied", "not permitted"]);
        let said = text(&output);
        let refused = words.iter().any(|word| said.contains(word));
        assert!(!output.status.success() && refused, "h{at} {user}: {script}: {said}");
    }

    /// Which members of the partition are a user's, as far as they are in.
    pub fn members_of(&self, at: usize, user: u32) -> Vec<u64> {
        let mut command = self.terral(at, 0);
        let output = command.args(["status", "--json", "--instance", "default"]).output();
        let output = output.expect("runs");
        let all: Value = serde_json::from_slice(&output.stdout).expect("json");
        let partition = &all[0]["status"]["partition"];
        let all = |name: &str| partition[name].as_array().expect("a list").iter();
        let is_in = |member: &Value| {
            let mut seats = all("members").map(|one| &one["seat"]);
            seats.any(|seat| seat["member"] == *member && seat["standing"]["In"] != Value::Null)
        };
        let his = all("users").filter(|one| one[1] == user && is_in(&one[0]));
        his.map(|one| one[0].as_u64().expect("a number")).collect()
    }

    /// Processes of a machine of which this is said on their command line; a user's.
    pub fn processes(&self, at: usize, user: u32, what: &str) -> Vec<i32> {
        let server = self.servers[at].as_ref().expect("it serves").id();
        let is = |pid: &i32| {
            let path = Path::new("/proc").join(pid.to_string());
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let his = fs::metadata(&path).is_ok_and(|found| found.uid() == user);
            his && line.contains(what)
        };
        descendants::of(server).into_iter().filter(is).collect()
    }

    pub fn kill(&self, at: usize, user: u32, what: &str) {
        let all = self.processes(at, user, what);
        assert!(!all.is_empty(), "{what} of {user} on h{at}");
        all.into_iter().for_each(|pid| descendants::send(pid, Signal::KILL));
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        let server = self.servers[at].as_ref().expect("it serves");
        kill_process(Pid::from_child(server), signal).expect("it runs");
    }

    /// All that serves a machine is killed; its memory is left.
    pub fn crash(&mut self, at: usize) {
        let mut server = self.servers[at].take().expect("it serves");
        for pid in descendants::of(server.id()) {
            descendants::send(pid, Signal::KILL);
        }
        server.wait().expect("ends");
    }

    /// Another machine is a member no more, as root says on the first one; what that says.
    pub fn fence(&self, host: &str, words: &[&str]) -> String {
        let fence = || {
            let mut fences = self.terral(0, 0);
            fences.args(["fence", host, "--instance", "default"]).args(words);
            fences.output().expect("runs")
        };
        let mut fenced = fence();
        // Which machine it is, is known a moment after it has come.
        until("it is fenced", || {
            let is = fenced.status.success();
            if !is {
                fenced = fence();
            }
            is
        });
        text(&fenced)
    }

    /// A machine's servers end in order.
    pub fn ends(&mut self, at: usize) {
        self.signal(at, Signal::TERM);
        let ended = self.ended(at);
        assert!(ended.success(), "h{at}: {ended}: {}", self.said(at));
        assert_eq!(self.machines.left(at), "", "in the memory of h{at}");
    }

    pub fn owner(&self, path: &str) -> (u32, u32) {
        let found = fs::metadata(self.to().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        (found.uid(), found.mode() & 0o7777)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            for pid in descendants::of(server.id()) {
                descendants::send(pid, Signal::KILL);
            }
            let _ = server.wait();
        }
    }
}
