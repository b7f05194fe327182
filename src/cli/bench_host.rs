//! What a benchmark runs on: its directories, servers of its own, teams of worker processes.
//!
//! Invariants: everything made here is removed when it is dropped; a worker that does not answer is
//! an error, not a hang. Not here: what is measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use terral_client::Client;

use crate::bench_worker::{Done, Pass, now_ns, ran_ns};
use crate::instances::PREFIX;
use crate::machine::SHARED_MEMORY;
use crate::server::{Server, Start, preload_list};

/// A pass that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Workers are told to begin this much ahead.
const AHEAD_NS: u64 = 3_000_000;

/// Begin of our directories' names, where others may have theirs too; our process id follows.
fn own() -> String {
    format!("terral-bench-{}-", rustix::system::uname().nodename().to_string_lossy())
}

/// Whose files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Face {
    /// `/dev/shm`, POSIX calls.
    Tmpfs,
    /// Terral, through the client library.
    Client,
    /// Terral, POSIX calls under the preload library.
    Preload,
    /// The disk directory, POSIX calls.
    Disk,
}

impl Face {
    /// Whether Terral serves it.
    pub fn is_terral(self) -> bool {
        matches!(self, Face::Client | Face::Preload)
    }

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Face::Tmpfs => "tmpfs",
            Face::Client => "client",
            Face::Preload => "preload",
            Face::Disk => "disk",
        }
    }
}

/// Directories of one benchmark.
pub struct Host {
    memory: PathBuf,
    /// Where the permanent files go.
    pub disk: PathBuf,
    /// The preload library.
    pub library: PathBuf,
    /// Bound of the memory tier.
    pub arena_bytes: u64,
}

/// Removes what benchmarks that were killed have left.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let own = own();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(&own)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // It may be somebody else's.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Host {
    /// Makes them.
    pub fn new(disk: &Path, library: PathBuf, arena_bytes: u64) -> Result<Self> {
        sweep(Path::new(SHARED_MEMORY));
        sweep(disk);
        let own = format!("{}{}", own(), std::process::id());
        let host = Host {
            memory: Path::new(SHARED_MEMORY).join(&own),
            disk: disk.join(own),
            library,
            arena_bytes,
        };
        for path in [&host.memory, &host.disk, &host.tmpfs()] {
            std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        }
        Ok(host)
    }

    /// The directory that stands for tmpfs.
    pub fn tmpfs(&self) -> PathBuf {
        self.memory.join("tmpfs")
    }

    /// A path for what a benchmark needs beside what it measures.
    pub fn aside(&self, name: &str) -> PathBuf {
        self.memory.join(name)
    }

    /// Where POSIX calls find the files of a face.
    pub fn root(&self, face: Face) -> PathBuf {
        match face {
            Face::Tmpfs => self.tmpfs(),
            Face::Disk => self.disk.clone(),
            Face::Client | Face::Preload => PathBuf::from(PREFIX),
        }
    }

    /// `program`, as it is started to use the files of a face with POSIX calls.
    pub fn command(&self, program: &Path, face: Face, bed: Option<&Bed>) -> Result<Command> {
        let mut command = Command::new(program);
        command.env_remove("TERRAL_INSTANCE").env_remove("TERRAL_PREFIX").env_remove("TERRAL_CWD");
        if face == Face::Preload {
            let bed = bed.context("no server for this face")?;
            let list = preload_list(&self.library, std::env::var_os("LD_PRELOAD"));
            command.env("LD_PRELOAD", list).env("TERRAL_PREFIX", PREFIX);
            command.env("TERRAL_INSTANCE", &bed.instance);
        }
        Ok(command)
    }

    /// Takes memory and gives it back, so that the next to take it does not have to get it from the
    /// host of a virtual machine.
    pub fn touch(&self, bytes: u64) -> Result<()> {
        let path = self.memory.join("touch");
        let failed = || path.display().to_string();
        let mut file = std::fs::File::create(&path).with_context(failed)?;
        let zeros = vec![0u8; 1 << 20];
        let written = (0..bytes >> 20).try_for_each(|_| file.write_all(&zeros));
        std::fs::remove_file(&path).with_context(failed)?;
        written.with_context(failed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.memory);
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

/// A server of our own.
pub struct Bed {
    server: Option<Server>,
    /// Connected to it.
    pub client: Client,
    /// Its directory.
    pub instance: PathBuf,
    pid: u32,
}

impl Bed {
    /// Starts it.
    pub fn start(host: &Host, target: Option<PathBuf>) -> Result<Self> {
        Bed::with_memory(host, target, host.arena_bytes, None)
    }

    /// The same with another bound of the memory tier, and a directory for what does not fit.
    pub fn with_memory(
        host: &Host,
        target: Option<PathBuf>,
        memory_bytes: u64,
        spill: Option<PathBuf>,
    ) -> Result<Self> {
        let instance = host.memory.join(format!("instance-{}", now_ns()));
        std::fs::create_dir(&instance).with_context(|| instance.display().to_string())?;
        let server = Server::start(Start {
            instance: instance.clone(),
            target,
            memory_bytes,
            spill,
            ready_bytes: None,
            principals: None,
            part: None,
            ends_with_us: true,
            among_users: false,
        })?;
        let client = Client::connect(&instance)?;
        let pid = client.status()?.pid;
        Ok(Bed { server: Some(server), client, instance, pid })
    }

    /// Nanoseconds its threads have run.
    pub fn ran_ns(&self) -> u64 {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return 0 };
        threads.flatten().map(|at| ran_ns(&format!("{}/schedstat", at.path().display()))).sum()
    }

    /// A file of its directory in `/proc`.
    pub fn about(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        std::fs::read_to_string(&path).context(path)
    }

    /// A field of the server's `/proc/PID/status`, bytes.
    pub fn status_bytes(&self, field: &str) -> Result<u64> {
        let text = self.about("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        let kilobytes: u64 = number.context(field.to_owned())?.parse()?;
        Ok(kilobytes * 1024)
    }

    /// Bytes that the instance's files take, those of the arena left out.
    pub fn tables_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let mut total = 0;
        for entry in std::fs::read_dir(&self.instance)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with("seg-") {
                total += entry.metadata()?.blocks() * 512;
            }
        }
        Ok(total)
    }

    /// Returns when no more memory is being prepared.
    pub fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        let mut warm = (self.client.status()?.memory_warm_bytes, Instant::now());
        while warm.1.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(30));
            let now = self.client.status()?.memory_warm_bytes;
            if now != warm.0 {
                warm = (now, Instant::now());
            }
            if begin.elapsed() > Duration::from_secs(30) {
                bail!("memory is still being prepared after 30 s");
            }
        }
        Ok(())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        // What it owes goes, too.
        let _ = server.dismiss(&self.client);
        let _ = terral_server::end(&self.instance);
    }
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Worker {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting a worker")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("a worker's output")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, input, answers })
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("a worker's input")?;
        writeln!(input, "{line}").context("telling a worker")
    }

    fn hear(&self) -> Result<String> {
        self.answers.recv_timeout(PATIENCE).context("a worker does not answer")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        if self.answers.recv_timeout(Duration::from_secs(2)).is_ok() {
            // It speaks out of turn or hangs: either way its work is void.
            let _ = self.child.kill();
        }
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(50));
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Processes that begin their passes together.
pub struct Team(Vec<Worker>);

/// A pass of a whole team.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From the first begin to the last end.
    pub wall_ns: u64,
    /// When the last ended, `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Processor time of all.
    pub cpu_ns: u64,
    /// See [`Done::late_ns`]: the greatest of each.
    pub late_ns: [u64; 3],
}

impl Team {
    /// Starts `processes` workers; `bed` is needed for Terral's faces.
    pub fn start(host: &Host, face: Face, bed: Option<&Bed>, processes: u64) -> Result<Self> {
        let program = std::env::current_exe().context("terral: own path")?;
        let workers = (0..processes).map(|_| {
            let mut command = host.command(&program, face, bed)?;
            command.arg("bench-worker");
            if face == Face::Client {
                let bed = bed.context("no server for this face")?;
                command.arg("--client-of").arg(&bed.instance);
            } else {
                command.arg("--directory").arg(host.root(face));
            }
            Worker::start(command)
        });
        Ok(Team(workers.collect::<Result<_>>()?))
    }

    /// Has each worker do `pass`; `name` gives the file of each.
    pub fn pass(&mut self, pass: &Pass, name: impl Fn(u64) -> String) -> Result<Took> {
        let processes = self.0.len() as u64;
        for (process, worker) in (0..).zip(&mut self.0) {
            let pass = Pass { name: name(process), process, processes, ..pass.clone() };
            worker.tell(&serde_json::to_string(&pass)?)?;
        }
        for worker in &self.0 {
            let answer = worker.hear()?;
            if answer != "ready" {
                bail!("a worker says {answer}");
            }
        }
        let at = (now_ns() + AHEAD_NS).to_string();
        self.0.iter_mut().try_for_each(|worker| worker.tell(&at))?;
        let (mut begin, mut end, mut cpu_ns, mut late_ns) = (u64::MAX, 0, 0, [0; 3]);
        for worker in &self.0 {
            let done: Done = serde_json::from_str(&worker.hear()?)?;
            if let Some(failure) = done.failure {
                bail!("{:?}: {failure}", pass.work);
            }
            begin = begin.min(done.begin_ns);
            end = end.max(done.end_ns);
            cpu_ns += done.cpu_ns;
            late_ns = std::array::from_fn(|at| done.late_ns[at].max(late_ns[at]));
        }
        Ok(Took { wall_ns: end.saturating_sub(begin), end_ns: end, cpu_ns, late_ns })
    }

    /// Only the first worker does `pass`; the number of processes stays.
    pub fn alone(&mut self, pass: &Pass, name: &str) -> Result<Took> {
        let processes = self.0.len() as u64;
        let worker = self.0.first_mut().context("an empty team")?;
        let pass = Pass { name: name.into(), process: 0, processes, ..pass.clone() };
        worker.tell(&serde_json::to_string(&pass)?)?;
        let ready = worker.hear()?;
        worker.tell("0")?;
        let done: Done = serde_json::from_str(&worker.hear()?)
            .with_context(|| format!("a worker that said {ready}"))?;
        if let Some(failure) = done.failure {
            bail!("{:?}: {failure}", pass.work);
        }
        let wall_ns = done.end_ns.saturating_sub(done.begin_ns);
        let Done { end_ns, cpu_ns, late_ns, .. } = done;
        Ok(Took { wall_ns, end_ns, cpu_ns, late_ns })
    }
}
