//! A machine with a server for all its users (`terral serve --users`), for tests of that: two users
//! by numbers, `terral` where they may run it, and a permanent directory with a directory of each
//! and one of root's that others may write to. Needs root.

#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::beside::built;

pub const ALICE: u32 = 41_001;
pub const BOB: u32 = 41_002;
/// Who has a name on every system.
pub const NOBODY: u32 = 65_534;
/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this test can be.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root, which becomes other users");
    }
    root
}

/// One server for all, `terral` where all users may run it, and a permanent directory with a
/// directory of each, and one of root's that others may write to.
pub struct Machine {
    pub home: tempfile::TempDir,
    pub name: String,
    pub server: Child,
    /// Users beside those of all tests.
    pub more: Vec<u32>,
    /// The system knows some by their names there.
    knows: bool,
}

pub fn set(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).expect("root may");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
}

/// Puts a directory of a user's there, with a file.
pub fn gives(machine: &Machine, (name, owner, mode): (&str, u32, u32)) {
    let path = machine.dir(name);
    fs::create_dir_all(&path).expect("makes");
    fs::write(path.join("data"), format!("of {owner}\n")).expect("writes");
    set(&path.join("data"), owner, 0o644);
    set(&path, owner, mode);
}

pub fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Processes of a user's server of an instance, and of who starts it again.
pub fn processes_of(name: &str, user: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("mounted").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let his = entry.metadata().is_ok_and(|found| found.uid() == user);
        if his && line.contains(name) {
            found.push((pid, line));
        }
    }
    found
}

/// Has `getent` write down what it is asked, in that mount namespace.
fn asks(home: &Path) {
    let found = Command::new("sh").args(["-c", "command -v getent"]).output().expect("runs");
    let real = String::from_utf8(found.stdout).expect("a path");
    fs::copy(real.trim(), home.join("real-getent")).expect("copies");
    let home = home.display();
    let script =
        format!("#!/bin/sh\necho \"$@\" >> {home}/asked\nexec {home}/real-getent \"$@\"\n");
    let path = format!("{home}/getent");
    fs::write(&path, script).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
}

impl Machine {
    pub fn begin(test: &str) -> Machine {
        Machine::begin_known(test, &[])
    }

    /// The same, where the system knows these, by name, number, and shell: in a mount namespace of
    /// the server's own.
    pub fn begin_known(test: &str, users: &[(&str, u32, &str)]) -> Machine {
        Machine::begin_on(test, users, |_| {})
    }

    /// The same, where something is done to the permanent directory before there is a server: it is
    /// `dir` in the one that is given.
    pub fn begin_on(
        test: &str,
        users: &[(&str, u32, &str)],
        prepare: impl FnOnce(&Path),
    ) -> Machine {
        let home = tempfile::tempdir_in("/var/tmp").expect("directory");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        for program in ["terral", "libterral_preload.so"] {
            // By another process: one that a thread begins meanwhile would have the file open.
            let mut copies = Command::new("install");
            let copied = copies.arg(built(program)).arg(home.path()).status();
            assert!(copied.expect("runs").success(), "{program}");
        }
        let dir = home.path().join("dir");
        for (name, owner, mode) in
            [("", 0, 0o755), ("alice", ALICE, 0o700), ("bob", BOB, 0o755), ("all", 0, 0o1777)]
        {
            fs::create_dir(dir.join(name)).expect("makes");
            set(&dir.join(name), owner, mode);
        }
        fs::write(dir.join("alice/before"), "was there").expect("writes");
        set(&dir.join("alice/before"), ALICE, 0o600);
        prepare(home.path());
        let name = format!("users-{test}-{}", std::process::id());
        let knows = !users.is_empty();
        if knows {
            let line = |(name, user, shell): &(&str, u32, &str)| {
                format!("{name}:x:{user}:{user}::/:{shell}\n")
            };
            let known = fs::read_to_string("/etc/passwd").expect("there");
            let all = [known, users.iter().map(line).collect()].concat();
            fs::write(home.path().join("passwd"), all).expect("writes");
            fs::copy("/etc/group", home.path().join("group")).expect("copies");
            asks(home.path());
        }
        let server = Machine::serve(home.path(), &name, knows);
        let more = users.iter().map(|(_, user, _)| *user).collect();
        Machine { home, name, server, more, knows }
    }

    fn serve(home: &Path, name: &str, knows: bool) -> Child {
        let mut command = Command::new(home.join("terral"));
        if knows {
            // Root may have more than others: what its server has none gets by a stranger's look.
            let script = "for most in core=unlimited memlock=unlimited rtprio=9 nice=30; do \
                          prlimit --pid $$ --$most 2>/dev/null; done; \
                          mount --bind \"$0/passwd\" /etc/passwd && \
                          mount --bind \"$0/group\" /etc/group && \
                          mount --bind \"$0/getent\" \"$(command -v getent)\" && exec \"$@\"";
            command = Command::new("unshare");
            command.args(["-m", "sh", "-c", script]).arg(home);
            command.arg(home.join("terral"));
        }
        command.args([
            "serve",
            "--users",
            "--name",
            name,
            "--memory",
            "256M",
            "--user-memory",
            "128M",
            "--to",
        ]);
        command.arg(home.join("dir")).current_dir("/");
        let server = command.spawn().expect("starts");
        let (door, begin) = (Path::new("/run/terral").join(name), Instant::now());
        while !door.exists() {
            assert!(begin.elapsed() < PATIENCE, "no door");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Another process of root's begins on what the one before has left.
    pub fn begin_again(&mut self) {
        // Where it was there is none now.
        let _ = fs::remove_file(Path::new("/run/terral").join(&self.name));
        self.server = Machine::serve(self.home.path(), &self.name, self.knows);
    }

    /// All processes are killed, and their memory is left.
    pub fn crash(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let begin = Instant::now();
        // One starts another one again until it is gone itself.
        while self.users().into_iter().any(|user| !self.processes(user).is_empty()) {
            assert!(begin.elapsed() < PATIENCE, "they do not end");
            for (pid, _) in self.users().into_iter().flat_map(|user| self.processes(user)) {
                let _ = kill_process(Pid::from_raw(pid as i32).expect("one"), Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Root's server, without what starts it.
    pub fn roots_server(&self) -> Option<u32> {
        let all = processes_of(&self.name, 0).into_iter();
        all.filter(|(_, line)| line.contains("--instance-directory")).map(|(pid, _)| pid).next()
    }

    pub fn dir(&self, path: &str) -> PathBuf {
        self.home.path().join("dir").join(path)
    }

    pub fn terral(&self, user: u32) -> Command {
        let mut command = Command::new(self.home.path().join("terral"));
        command.current_dir("/").env_remove("TERRAL_INSTANCE").stdin(Stdio::null());
        if user != 0 {
            command.uid(user).gid(user);
        }
        command
    }

    /// What a user's shell says to this.
    pub fn sh(&self, user: u32, script: &str) -> Output {
        let mut command = self.terral(user);
        command.args(["run", "-q", "--instance", &self.name, "--", "sh", "-c", script]);
        command.output().expect("runs")
    }

    /// The same, which must be done.
    pub fn done(&self, user: u32, script: &str) -> String {
        let output = self.sh(user, script);
        assert!(output.status.success(), "{user}: {script}: {}", text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, which Linux refuses.
    pub fn denied(&self, user: u32, script: &str) {
        let output = self.sh(user, script);
        let said = text(&output);
        let refused = ["denied", "not permitted"].iter().any(|word| said.contains(word));
        assert!(!output.status.success() && refused, "{user}: {script}: {said}");
    }

    /// How often the system was asked who this is.
    pub fn asked_of(&self, user: u32) -> usize {
        let asked = fs::read_to_string(self.home.path().join("asked")).unwrap_or_default();
        asked.lines().filter(|line| **line == format!("passwd {user}")).count()
    }

    /// Sends something to processes of a user's server.
    pub fn signal(&self, user: u32, what: &str, signal: Signal) {
        let all = self.processes(user);
        let mut some = all.iter().filter(|(_, line)| line.contains(what)).peekable();
        assert!(some.peek().is_some(), "{what} of {user}");
        for (pid, _) in some {
            let _ = kill_process(Pid::from_raw(*pid as i32).expect("one"), signal);
        }
    }

    fn users(&self) -> Vec<u32> {
        [&[0, ALICE, BOB, NOBODY][..], &self.more].concat()
    }

    pub fn instance(&self, user: u32) -> PathBuf {
        Path::new("/dev/shm").join(format!("terral-{user}")).join(&self.name)
    }

    /// Processes of a user's server, and of who starts it again.
    pub fn processes(&self, user: u32) -> Vec<(u32, String)> {
        processes_of(&self.name, user)
    }

    pub fn kill(&self, user: u32, what: &str) {
        self.signal(user, what, Signal::KILL);
    }

    /// How all end that are told to.
    pub fn ended(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.server), Signal::TERM).expect("it runs");
        self.server.wait().expect("ends")
    }

    /// Ends all, and has all in the permanent directory.
    pub fn end(mut self) -> tempfile::TempDir {
        let ended = self.ended();
        assert!(ended.success(), "{ended}");
        for user in self.users() {
            assert!(!self.instance(user).exists(), "{user}'s memory is left");
            let begin = Instant::now();
            while !self.processes(user).is_empty() {
                assert!(begin.elapsed() < PATIENCE, "{user}: {:?}", self.processes(user));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(!Path::new("/run/terral").join(&self.name).exists());
        std::mem::replace(&mut self.home, tempfile::tempdir().expect("directory"))
    }
}

impl Drop for Machine {
    /// After a failure all is taken away.
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        for user in self.users() {
            for (pid, _) in self.processes(user) {
                let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = fs::remove_dir_all(self.instance(user));
        }
        let _ = fs::remove_file(Path::new("/run/terral").join(&self.name));
    }
}
