//! An etcd of a test: Debian's, a process of the test's own with its ports and its directory, which
//! is ended with it.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![allow(dead_code)] // Each test file uses its part.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// It comes up within this time.
const LONG: Duration = Duration::from_secs(60);

/// See the module.
pub struct EtcdServer {
    home: tempfile::TempDir,
    command: Box<dyn Fn() -> Command>,
    address: String,
    words: Vec<String>,
    child: Option<Child>,
}

/// Whether there is one on this machine.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is = std::env::split_paths(&path).any(|place| place.join("etcd").exists());
    if !is {
        println!("skipped: etcd: not installed");
    }
    is
}

/// A port of the loopback interface that nobody has.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

impl EtcdServer {
    /// One on the loopback interface; none where it is not installed.
    pub fn here() -> Option<Self> {
        EtcdServer::with(&[])
    }

    /// The same, with more options.
    pub fn with(words: &[String]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let address = format!("127.0.0.1:{}", free_port());
        let mut server = EtcdServer::at(Box::new(|| Command::new("etcd")), address, words);
        server.start();
        server.comes_up();
        Some(server)
    }

    /// One that a command starts, at this address, which may be another machine's.
    pub fn at(command: Box<dyn Fn() -> Command>, address: String, words: &[String]) -> Self {
        let home = tempfile::tempdir().expect("directory");
        EtcdServer { home, command, address, words: words.to_vec(), child: None }
    }

    /// Starts it, also again.
    pub fn start(&mut self) {
        let encrypted = self.words.iter().any(|word| word == "--cert-file");
        let client = format!("{}://{}", if encrypted { "https" } else { "http" }, self.address);
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut command = (self.command)();
        command.arg("--data-dir").arg(self.data());
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "fatal"]);
        command.args(&self.words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("etcd starts"));
    }

    /// Where its files are.
    pub fn data(&self) -> std::path::PathBuf {
        self.home.path().join("data")
    }

    /// A directory that goes with it.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn comes_up(&self) {
        let begin = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            assert!(begin.elapsed() < LONG, "etcd does not come up");
            sleep(Duration::from_millis(10));
        }
    }

    /// What `terral serve --control` is given.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address)
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// It is killed as if by the system.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Stops it, and lets it go on.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("a child can be signalled");
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}
