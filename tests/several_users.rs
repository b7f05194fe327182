//! `terral serve --users`: real users of this machine, each with a server that is his own process,
//! see one `/terral` as permission bits let them, and the permanent directory has what is whose.
//! Needs root, which makes the users: numbers are enough.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod beside;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use beside::built;

const ALICE: u32 = 41_001;
const BOB: u32 = 41_002;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this test can be.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root, which becomes other users");
    }
    root
}

/// One server for all, `terral` where all users may run it, and a permanent directory with a
/// directory of each and one for all.
struct Machine {
    home: tempfile::TempDir,
    name: String,
    server: Child,
}

fn set(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).expect("root may");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

impl Machine {
    fn begin(test: &str) -> Machine {
        let home = tempfile::tempdir_in("/var/tmp").expect("directory");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        for program in ["terral", "libterral_preload.so"] {
            let to = home.path().join(program);
            fs::copy(built(program), &to).expect("copies");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("ours");
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
        let name = format!("users-{test}-{}", std::process::id());
        let server = Machine::serve(home.path(), &name);
        Machine { home, name, server }
    }

    fn serve(home: &Path, name: &str) -> Child {
        let mut command = Command::new(home.join("terral"));
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

    fn dir(&self, path: &str) -> PathBuf {
        self.home.path().join("dir").join(path)
    }

    fn terral(&self, user: u32) -> Command {
        let mut command = Command::new(self.home.path().join("terral"));
        command.current_dir("/").env_remove("TERRAL_INSTANCE").stdin(Stdio::null());
        if user != 0 {
            command.uid(user).gid(user);
        }
        command
    }

    /// What a user's shell says to this.
    fn sh(&self, user: u32, script: &str) -> Output {
        let mut command = self.terral(user);
        command.args(["run", "-q", "--instance", &self.name, "--", "sh", "-c", script]);
        command.output().expect("runs")
    }

    /// The same, which must be done.
    fn done(&self, user: u32, script: &str) -> String {
        let output = self.sh(user, script);
        assert!(output.status.success(), "{user}: {script}: {}", text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, which Linux refuses.
    fn denied(&self, user: u32, script: &str) {
        let output = self.sh(user, script);
        let said = text(&output);
        let refused = ["denied", "not permitted"].iter().any(|word| said.contains(word));
        assert!(!output.status.success() && refused, "{user}: {script}: {said}");
    }

    fn instance(&self, user: u32) -> PathBuf {
        Path::new("/dev/shm").join(format!("terral-{user}")).join(&self.name)
    }

    /// Processes of a user's server, and of who starts it again.
    fn processes(&self, user: u32) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("mounted").flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let his = entry.metadata().is_ok_and(|found| found.uid() == user);
            if his && line.contains(&self.name) {
                found.push((pid, line));
            }
        }
        found
    }

    fn kill(&self, user: u32, what: &str) {
        let all = self.processes(user);
        let mut some = all.iter().filter(|(_, line)| line.contains(what)).peekable();
        assert!(some.peek().is_some(), "{what} of {user}");
        for (pid, _) in some {
            let pid = rustix::process::Pid::from_raw(*pid as i32).expect("one");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Ends all, and has all in the permanent directory.
    fn end(mut self) -> tempfile::TempDir {
        let pid = rustix::process::Pid::from_child(&self.server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let ended = self.server.wait().expect("ends");
        assert!(ended.success(), "{ended}");
        for user in [0, ALICE, BOB] {
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
        for user in [ALICE, BOB, 0] {
            for (pid, _) in self.processes(user) {
                let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = fs::remove_dir_all(self.instance(user));
        }
        let _ = fs::remove_file(Path::new("/run/terral").join(&self.name));
    }
}

/// Who owns it, with which mode, and what is in it.
fn is(path: &Path) -> (u32, u32, String) {
    let found = fs::symlink_metadata(path).expect("there");
    let bytes = fs::read_to_string(path).unwrap_or_default();
    (found.uid(), found.mode() & 0o7777, bytes)
}

#[test]
fn users_see_one_namespace_as_bits_let_them_and_the_directory_has_what_is_whose() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("bits");
    // Alice.
    machine.done(ALICE, "umask 022; cd /terral/alice && echo secret > f && mkdir d && mv f d/g");
    assert_eq!(
        machine.done(ALICE, "cat /terral/alice/before /terral/alice/d/g"),
        "was theresecret\n"
    );
    machine.done(ALICE, "echo hello > /terral/all/a && chmod 644 /terral/all/a");
    // Bob, at once.
    assert_eq!(
        machine.done(BOB, "cat /terral/all/a; stat -c '%u %a' /terral/all/a"),
        format!("hello\n{ALICE} 644\n")
    );
    for script in [
        "cat /terral/alice/d/g",
        "ls /terral/alice",
        "echo x > /terral/alice/x",
        "echo x >> /terral/all/a",
        "rm -f /terral/all/a",
        "mv /terral/all/a /terral/all/b",
        "chmod 666 /terral/all/a",
        "mkdir /terral/mine",
        "rmdir /terral/alice",
        "ln /terral/all/a /terral/bob/a",
    ] {
        machine.denied(BOB, script);
    }
    machine.done(
        BOB,
        "echo bob > /terral/all/b; cp /terral/all/a /terral/bob/copy; mkdir /terral/all/d",
    );
    machine.done(BOB, "echo more >> /terral/all/b; mv /terral/all/b /terral/all/c");
    assert_eq!(machine.done(ALICE, "cat /terral/all/c"), "bob\nmore\n");
    machine.denied(ALICE, "rm -f /terral/all/c");
    // Root may all.
    assert_eq!(machine.done(0, "cat /terral/alice/d/g"), "secret\n");
    assert_eq!(
        machine.done(0, "stat -c %u /terral/all/d /terral/bob/copy"),
        format!("{BOB}\n{BOB}\n")
    );
    let home = machine.end();
    let dir = home.path().join("dir");
    assert_eq!(is(&dir.join("alice/d/g")), (ALICE, 0o644, "secret\n".into()));
    assert_eq!(is(&dir.join("alice/d")), (ALICE, 0o755, String::new()));
    assert_eq!(is(&dir.join("alice")), (ALICE, 0o700, String::new()));
    assert_eq!(is(&dir.join("all/a")), (ALICE, 0o644, "hello\n".into()));
    assert_eq!(is(&dir.join("all/c")), (BOB, 0o644, "bob\nmore\n".into()));
    assert_eq!(is(&dir.join("all/d")).0, BOB);
    assert_eq!(is(&dir.join("bob/copy")), (BOB, 0o644, "hello\n".into()));
    assert!(!dir.join("all/b").exists() && !dir.join("alice/f").exists());
    let left: Vec<_> =
        fs::read_dir(&dir).expect("there").flatten().map(|one| one.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn what_is_in_a_users_memory_the_kernel_keeps_from_others() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("walls");
    machine.done(ALICE, "echo secret > /terral/alice/f");
    machine.done(BOB, "true");
    let instance = machine.instance(ALICE);
    for path in [instance.clone(), instance.join("socket"), machine.instance(0)] {
        let mut look = Command::new("ls");
        look.arg(&path).uid(BOB).gid(BOB);
        let said = look.output().expect("runs");
        assert!(!said.status.success() && text(&said).contains("denied"), "{}", text(&said));
    }
    // Her processes are hers, and keep nothing of root's.
    for user in [ALICE, BOB] {
        let all = machine.processes(user);
        assert!(all.len() >= 2, "{all:?}");
        for (pid, _) in all {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("runs");
            let ids = format!("Uid:\t{user}\t{user}\t{user}\t{user}");
            assert!(status.contains(&ids) && status.contains("CapEff:\t0000000000000000"));
        }
    }
    machine.end();
}

#[test]
fn a_users_server_that_is_killed_loses_nothing_and_keeps_nobody_waiting() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("kills");
    machine.done(ALICE, "echo one > /terral/alice/f; echo one > /terral/all/a");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(BOB, "cat /terral/all/a; echo two > /terral/all/b"), "one\n");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/all/b"), "one\ntwo\n");
    // And so is who starts it again.
    machine.kill(ALICE, "host");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/all/b"), "one\ntwo\n");
    machine.done(ALICE, "echo three >> /terral/alice/f");
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/alice/f")).2, "one\nthree\n");
    assert_eq!(is(&home.path().join("dir/all/a")).2, "one\n");
}

#[test]
fn who_may_not_have_a_server_is_told_why() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("refused");
    // Not root: one serves oneself alone.
    let mut serve = machine.terral(BOB);
    serve.args(["serve", "--users", "--to"]).arg(machine.dir("bob"));
    let said = serve.output().expect("runs");
    assert!(!said.status.success() && text(&said).contains("needs root"), "{}", text(&said));
    // No door of that name.
    let mut run = machine.terral(BOB);
    let said = run.args(["run", "--instance", "users-none", "--", "true"]).output().expect("runs");
    assert!(text(&said).contains("no server there"), "{}", text(&said));
    machine.end();
}
