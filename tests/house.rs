//! A place for a server that lists principals, and `terral` beside it: for tests of who may do
//! what. Not here: who that is, and how he proves it.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use terral_client::Client;

use crate::beside::built;
use crate::process::{self, Home, PRINCIPALS, Process};

/// A server's instance, and a directory for files that nobody else reads.
pub struct House {
    at: Home,
    home: tempfile::TempDir,
    server: Option<Process>,
}

/// All that a program has said.
pub fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Starts a server, and waits until it answers.
pub fn begin(mut command: Command, instance: &Path) -> Process {
    let server = Process(command.stdout(Stdio::null()).spawn().expect("starts"));
    let begin = Instant::now();
    while Client::connect(instance).is_err() {
        assert!(begin.elapsed().as_secs() < 60, "the server does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

impl House {
    /// Without a server.
    pub fn empty() -> Self {
        House { at: Home::new(), home: tempfile::tempdir().expect("directory"), server: None }
    }

    /// With a server, in the place of one that there is, which is killed.
    pub fn started(self) -> Self {
        let command = process::command("server", &self.instance());
        self.started_by(command)
    }

    /// The same by a command.
    pub fn started_by(mut self, mut command: Command) -> Self {
        // The one before has ended when this returns.
        self.server = None;
        command.env(PRINCIPALS, self.file("principals"));
        self.server = Some(begin(command, &self.instance()));
        self
    }

    pub fn instance(&self) -> PathBuf {
        self.at.instance()
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file that nobody else reads.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, bytes).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changes");
        path
    }

    /// The server's user.
    pub fn owner(&self) -> Client {
        Client::connect_with(&self.instance(), None).expect("connects")
    }

    pub fn terral(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built("terral"));
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command.env("TERRAL_INSTANCE", self.instance()).env_remove("TERRAL_CREDENTIAL");
        command
    }

    /// What `terral` answers.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.terral(arguments).output().expect("terral");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// A shell script of a program that was given this credential, or none.
    pub fn run(&self, credential: Option<&Path>, script: &str) -> Output {
        let instance = self.instance();
        let instance = instance.to_str().expect("text");
        let mut command =
            self.terral(&["-q", "run", "--instance", instance, "--", "sh", "-c", script]);
        command.env_remove("TERRAL_INSTANCE");
        command.envs(credential.map(|credential| ("TERRAL_CREDENTIAL", credential)));
        command.output().expect("runs")
    }

    /// The lines that were written down.
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.instance().join("audit")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("one object")).collect()
    }
}
