//! Machines made of namespaces: each has a network, a `/dev/shm` and a name of its own; all are on
//! one switch. They end with the value that made them. Needs root, and says so otherwise.
#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::print_stdout)] // What is skipped is said.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::beside::{built, on_path};

/// No run takes so long, be it that it waits twice for a machine that is lost.
const LONG: Duration = Duration::from_secs(200);

/// Some machines, `h0` the first.
pub struct Machines {
    home: TempDir,
    switch: Child,
    hosts: Vec<Child>,
    /// What makes links slow.
    slow: Vec<Child>,
}

fn holder(options: &[&str], begin: &str) -> Child {
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", &format!("{begin} && echo ready && exec sleep 3600")]);
    begun(&mut command)
}

/// Something that goes on, once it says that it does.
fn begun(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let stdout = child.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut said).expect("reads");
    assert_eq!(said, "ready\n");
    child
}

/// How slow a link is that is.
pub const SLOW: Duration = Duration::from_millis(20);
const SLOW_LINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/machines/slow_link.py");

fn done(command: &mut Command) {
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A command in a machine's, or the switch's, namespaces.
fn within(holder: &Child, all: bool) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.id().to_string(), "-n"]);
    command.args(if all { &["-m", "-u"][..] } else { &[] }).arg("--");
    command
}

impl Machines {
    /// So many; none where that cannot be, which is said.
    pub fn new(count: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: machines of namespaces need root");
            return None;
        }
        if !["ip", "unshare", "nsenter", "python3"].iter().all(|one| on_path(one)) {
            return None;
        }
        let home = tempfile::tempdir().expect("directory");
        let bridge = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up";
        let switch = holder(&["-n"], bridge);
        let hosts = (0..count).map(|at| {
            let begin = format!(
                "hostname h{at} && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && \
                 ip link set lo up"
            );
            holder(&["-n", "-m", "-u"], &begin)
        });
        let machines = Machines { home, switch, hosts: hosts.collect(), slow: Vec::new() };
        (0..count).for_each(|at| machines.plug(at));
        machines.write_shell();
        Some(machines)
    }

    fn plug(&self, at: usize) {
        let host = &self.hosts[at];
        let (link, pid) = (format!("v{at}"), host.id().to_string());
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", &pid];
        done(within(&self.switch, false).args(["ip", "link", "add", &link]).args(pair));
        let plugged = format!("ip link set {link} master br0 && ip link set {link} up");
        done(within(&self.switch, false).args(["sh", "-c", &plugged]));
        let up = format!("ip addr add 10.77.0.{}/24 dev eth0 && ip link set eth0 up", at + 1);
        done(within(host, false).args(["sh", "-c", &up]));
    }

    /// What a machine sends comes [so much](SLOW) later from now on, and what is sent to it.
    pub fn slow_down(&mut self, at: usize) {
        let (host, link) = (&self.hosts[at], format!("v{at}"));
        done(within(&self.switch, false).args(["ip", "link", "del", &link]));
        let mut command = within(&self.switch, false);
        command.args(["python3", SLOW_LINK, &host.id().to_string(), "eth0", "br0"]);
        command.args([SLOW.as_secs_f64().to_string(), format!("10.77.0.{}/24", at + 1)]);
        self.slow.push(begun(&mut command));
    }

    /// What stands for ssh: `TERRAL_RSH`, and `on` for scripts. It passes nothing of the
    /// environment on; without an instance, the library does not put that back either.
    fn write_shell(&self) {
        let cases = self.hosts.iter().enumerate();
        let cases =
            cases.map(|(at, host)| format!("h{at} | 10.77.0.{}) pid={};;\n", at + 1, host.id()));
        let text = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             case $1 in\n{}*) echo \"no route to $1\" >&2; exit 255;;\nesac\nshift\n\
             exec env -i TERRAL_INSTANCE= PATH=\"$PATH\" HOME=\"$HOME\" \
             nsenter -t $pid -n -m -u -- sh -c \"$*\"\n",
            cases.collect::<String>()
        );
        std::fs::write(self.shell(), text).expect("writes");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.shell(), mode).expect("sets");
    }

    /// The program that reaches a machine.
    pub fn shell(&self) -> PathBuf {
        self.home.path().join("on")
    }

    /// A `PATH` on which it is found as `ssh`, for programs that look for that.
    pub fn path_with_ssh(&self) -> OsString {
        let bin = self.home.path().join("bin");
        std::fs::create_dir(&bin).expect("makes");
        std::os::unix::fs::symlink(self.shell(), bin.join("ssh")).expect("links");
        let path = std::env::var_os("PATH").unwrap_or_default();
        [bin.as_os_str(), &path].join(OsStr::new(":"))
    }

    /// A directory that all see.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A program on a machine.
    pub fn command(&self, at: usize, program: &str) -> Command {
        let mut command = within(&self.hosts[at], true);
        command.arg(program);
        command
    }

    /// How a program is started on a machine, again and again.
    pub fn entering(&self, at: usize, program: &'static str) -> Box<dyn Fn() -> Command> {
        let holder = self.hosts[at].id().to_string();
        Box::new(move || {
            let mut command = Command::new("nsenter");
            command.args(["-t", &holder, "-n", "-m", "-u", "--", program]);
            command
        })
    }

    /// `terral` on a machine, whose output is read.
    pub fn terral(&self, at: usize) -> Command {
        let mut command = within(&self.hosts[at], true);
        command.arg(built("terral")).env("TERRAL_RSH", self.shell()).env("ON", self.shell());
        command.env("TERRAL", built("terral"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a script on the first, over all of them, in a shell with `on HOST WORDS`, which runs
    /// them there as a program of the run.
    pub fn run(&self, script: &str) -> Output {
        self.run_with(&[], script)
    }

    /// The same, with more options.
    pub fn run_with(&self, options: &[&str], script: &str) -> Output {
        crate::descendants::ended_within(self.begin(options, script).spawn().expect("starts"), LONG)
    }

    /// The command that does so.
    pub fn begin(&self, options: &[&str], script: &str) -> Command {
        let hosts: Vec<String> = (0..self.hosts.len()).map(|at| format!("h{at}")).collect();
        let on = "on() { host=$1; shift; $ON $host \"LD_PRELOAD=$LD_PRELOAD \
                  TERRAL_INSTANCE=$TERRAL_INSTANCE TERRAL_PREFIX=$TERRAL_PREFIX \
                  TERRAL_DIR=$TERRAL_DIR sh -c '$*'\"; }\n\
                  pid_of() { $ON $1 \"$TERRAL status --json --instance machines\" | python3 -c \
                  'import json,sys; print(json.load(sys.stdin)[0][\"status\"][\"pid\"])'; }\n\
                  cd $TERRAL_DIR\n";
        let mut command = self.terral(0);
        command.args(["run", "--hosts", &hosts.join(","), "--instance", "machines"]);
        command.args(["--memory", "256M", "--ready", "0"]).args(options).args(["--", "sh", "-c"]);
        command.arg(format!("{on}{script}"));
        command
    }

    /// What a script does on a machine, outside of any run.
    pub fn shell_on(&self, at: usize, script: &str) -> Output {
        let mut command = within(&self.hosts[at], true);
        command.args(["sh", "-c", script]).output().expect("starts")
    }

    /// What lies in a machine's shared memory, but for its directory of instances.
    pub fn left(&self, at: usize) -> String {
        let mut command = within(&self.hosts[at], true);
        command.args(["find", "/dev/shm", "-mindepth", "2", "-not", "-name", ".lock"]);
        String::from_utf8_lossy(&command.output().expect("starts").stdout).into_owned()
    }

    /// The link of a machine is cut, or is not.
    pub fn link(&self, at: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        done(within(&self.switch, false).args(["ip", "link", "set", &format!("v{at}"), state]));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let all = self.slow.iter_mut().chain(&mut self.hosts);
        for holder in all.chain([&mut self.switch]) {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
