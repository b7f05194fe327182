//! System calls of a running server that fail, or at which it is killed: the kernel's tracing does
//! it, through `strace`.
#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::print_stdout)] // What is skipped is said.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::Process;

/// What becomes of system calls of a server, while this lives.
pub struct Fault(Process);

impl Fault {
    /// Makes `calls` of the server on `path` fail with EIO, as a failing disk would. `None`, and a
    /// line that says so, if there is no strace, or it may not trace.
    pub fn inject(server: &Process, calls: &str, path: &Path) -> Option<Self> {
        let mut command = Command::new("strace");
        command.arg("-P").arg(path).args(["-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:error=EIO")]);
        Fault::trace(server, &mut command)
    }

    /// Kills the server as one of its threads begins its `nth` call of this kind; `None` as above.
    pub fn kill_at(server: &Process, call: &str, nth: u32) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
        Fault::trace(server, &mut command)
    }

    fn trace(server: &Process, strace: &mut Command) -> Option<Self> {
        let pid = server.0.id();
        strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()]);
        let Ok(mut strace) = strace.stderr(Stdio::null()).spawn() else {
            println!("skipped: strace is not installed");
            return None;
        };
        while !is_traced(pid) {
            if strace.try_wait().expect("a child can be waited for").is_some() {
                println!("skipped: strace may not trace here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(Fault(Process(strace)))
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // It lets go of what it traces, and the calls succeed again.
        self.0.signal(Signal::TERM);
        let _ = self.0.0.wait();
    }
}

/// Whether every thread of a process is traced.
fn is_traced(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("lists");
    threads.map(|thread| thread.expect("entry").path().join("status")).all(|status| {
        let text = std::fs::read_to_string(status).unwrap_or_default();
        text.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    })
}
