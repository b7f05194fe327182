//! Real programs, unmodified, under `terral run`: the same files arrive as without Terral, and
//! Terral really served the calls. Needs the release build (`make test` makes it) and, for the main
//! job, LAMMPS and MPI from Debian's packages; what is missing is printed as skipped.
#![allow(clippy::print_stdout)] // What is skipped, and seeds, are said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod melt;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use beside::{built, compiled, on_path};
use rustix::process::{Pid, Signal, kill_process};

fn run_command(to: &Path, script: &str) -> Command {
    let mut command = Command::new(built("terral"));
    command.args(["run", "--json", "--to"]).arg(to).args(["--", "sh", "-c", script]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

fn plain(directory: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("TERRAL_DIR", directory);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.output().expect("sh")
}

/// Output without the summary, and the summary.
fn split(output: &Output) -> (String, serde_json::Value) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{errors}", output.status);
    let at = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let summary = serde_json::from_str(&text[at..]);
    (text[..at].into(), summary.unwrap_or_else(|e| panic!("{e}: {text}")))
}

fn number(summary: &serde_json::Value, path: &str) -> u64 {
    summary.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{path}"))
}

/// Every file below a directory, with its bytes.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("lists") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").to_path_buf();
                found.insert(name, fs::read(path).expect("reads"));
            }
        }
    }
    found
}

fn assert_same(ours: &Path, reference: &Path, except: &str) {
    let (mut ours, mut theirs) = (tree(ours), tree(reference));
    ours.remove(Path::new(except));
    theirs.remove(Path::new(except));
    let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for (name, bytes) in theirs {
        assert!(ours[&name] == bytes, "{} differs", name.display());
    }
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("directory")
}

#[test]
fn shells_and_tools_leave_the_same_files_as_without() {
    let script = "set -e; cd $TERRAL_DIR; seq 1 200000 > numbers; cat numbers numbers > twice
        mkdir d; cp twice d/copy; dd if=d/copy of=block bs=64k 2>/dev/null
        sha256sum numbers twice d/copy block; mv block d/moved; rm twice; ls -l d | wc -l
        dd if=numbers of=part bs=1000 skip=3 count=5 conv=notrunc 2>/dev/null; wc -c part
        head -c 3000000 /dev/zero > zeros; cat zeros >> part; cat part | sha256sum";
    let (ours, reference) = (temporary(), temporary());
    let expected = plain(reference.path(), script);
    assert!(expected.status.success());
    let (text, summary) = split(&run_command(ours.path(), script).output().expect("runs"));
    assert_eq!(text, String::from_utf8_lossy(&expected.stdout));
    assert_same(ours.path(), reference.path(), "");
    assert!(number(&summary, "/totals/opens") >= 12, "{summary}");
    assert!(number(&summary, "/totals/written_bytes") > 6_000_000, "{summary}");
    assert_eq!(summary["state"], "arrived");
}

#[test]
fn c_programs_get_the_answers_of_posix() {
    if !on_path("cc") {
        return;
    }
    let home = temporary();
    for name in ["inherited", "names", "paths", "rw", "stdio", "threads"] {
        let program = compiled(name, home.path());
        let script = format!("mkdir $TERRAL_DIR/w && {} $TERRAL_DIR/w", program.display());
        let (ours, reference) = (temporary(), temporary());
        let expected = plain(reference.path(), &script);
        assert!(expected.status.success(), "{name} fails without Terral: {expected:?}");
        let (_, summary) = split(&run_command(ours.path(), &script).output().expect("runs"));
        assert!(number(&summary, "/totals/opens") >= 1, "{name}: {summary}");
    }
}

#[test]
fn what_an_exec_closes_arrives_while_the_new_program_runs() {
    if !on_path("python3") {
        return;
    }
    let to = temporary();
    // Python's descriptors are closed by an exec, and nobody tells.
    let script = "
import os
file = os.open(os.environ['TERRAL_DIR'] + '/log', os.O_CREAT | os.O_WRONLY)
os.write(file, b'before')
waits = 'for i in \\$(seq 200); do test -s \\$TO/log && exit 0; sleep 0.1; done; exit 1'
os.execv('/bin/sh', ['sh', '-c', waits])
";
    let mut command = run_command(to.path(), &format!("exec python3 -c \"{script}\""));
    let output = command.env("TO", to.path()).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(to.path().join("log")).expect("arrives"), b"before");
}

#[test]
fn a_program_with_threads_does_not_wait_for_a_larger_table_of_descriptors() {
    if !on_path("python3") {
        return;
    }
    let to = temporary();
    let script = "
import os, threading
over = threading.Event()
other = threading.Thread(target=over.wait, daemon=True)
other.start()
size = lambda: [line for line in open('/proc/self/status') if line.startswith('FDSize')]
before = size()
file = os.open(os.environ['TERRAL_DIR'] + '/file', os.O_CREAT | os.O_RDWR)
os.write(file, b'x' * 100000)
assert os.pread(file, 9, 99991) == b'x' * 9
assert size() == before, (before, size())
over.set()
";
    let command = &mut run_command(to.path(), &format!("exec python3 -c \"{script}\""));
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    assert!(number(&split(&output).1, "/totals/written_bytes") >= 100_000, "{output:?}");
}

#[test]
fn a_program_whose_name_is_cut_within_a_character_is_served() {
    let (to, home) = (temporary(), temporary());
    // The kernel keeps 15 bytes of the 20.
    let program = home.path().join("ä".repeat(10));
    std::fs::copy("/bin/cat", &program).expect("copies");
    let script = format!("echo x > $TERRAL_DIR/file; {} $TERRAL_DIR/file", program.display());
    let output = run_command(to.path(), &script).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    let (text, summary) = split(&output);
    assert_eq!((text.as_str(), number(&summary, "/totals/reads") >= 1), ("x\n", true));
}

#[test]
fn the_exit_status_is_the_commands() {
    let to = temporary();
    let status = run_command(to.path(), "exit 7").output().expect("runs").status;
    assert_eq!(status.code(), Some(7));
    let status = run_command(to.path(), "kill -9 $$").output().expect("runs").status;
    assert_eq!(status.code(), Some(128 + 9));
}

fn melt(directory: &Path, steps: u32) {
    let rest = format!("thermo 50\nrun {steps}\nwrite_data data.melt\n");
    fs::write(directory.join("in.melt"), melt::input(10) + &rest).expect("writes");
}

fn melt_is_the_same_with(launch: &str) {
    let (ours, reference) = (temporary(), temporary());
    melt(ours.path(), 250);
    melt(reference.path(), 250);
    let script = format!("cd $TERRAL_DIR && {launch} lmp -in in.melt > /dev/null");
    let expected = plain(reference.path(), &script);
    assert!(expected.status.success(), "{expected:?}");
    let (_, summary) = split(&run_command(ours.path(), &script).output().expect("runs"));
    assert_same(ours.path(), reference.path(), "log.lammps");
    assert!(ours.path().join("restart.250").exists() && ours.path().join("data.melt").exists());
    assert!(number(&summary, "/totals/opens") >= 9, "{summary}");
    assert!(number(&summary, "/totals/written_bytes") > 5_000_000, "{summary}");
}

#[test]
fn lammps_serial_leaves_the_same_files_as_without() {
    if on_path("lmp") {
        melt_is_the_same_with("");
    }
}

#[test]
fn lammps_under_mpich_leaves_the_same_files_as_without() {
    if on_path("lmp") && on_path("mpiexec.mpich") {
        melt_is_the_same_with("mpiexec.mpich -n 2");
    }
}

#[test]
fn lammps_under_open_mpi_leaves_the_same_files_as_without() {
    if on_path("lmp") && on_path("mpirun.openmpi") {
        melt_is_the_same_with("mpirun.openmpi --oversubscribe -n 2");
    }
}

/// A process that is killed, with all it has started, when dropped.
struct Job(Child);

impl Job {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Job(command.spawn().expect("starts"))
    }

    fn descendants(&self) -> Vec<i32> {
        descendants::of(self.0.id())
    }

    fn kill_all(&mut self) {
        for pid in self.descendants() {
            descendants::send(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }

    /// The instance `terral run` made.
    fn instance(&self) -> Option<PathBuf> {
        let uid = rustix::process::getuid().as_raw();
        let prefix = format!("run-{}-", self.0.id());
        let instances = fs::read_dir(format!("/dev/shm/terral-{uid}")).ok()?;
        instances
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn terral(instance: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(built("terral"));
    command.args(arguments).env("TERRAL_INSTANCE", instance).output().expect("terral")
}

/// Waits until a melt run has written its restart file of `step`.
fn wait_for_step(job: &Job, step: u32) -> PathBuf {
    let begin = Instant::now();
    loop {
        if let Some(instance) = job.instance() {
            let there = terral(&instance, &["stat", &format!("restart.{step}")]);
            if there.status.success() {
                return instance;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the melt run does not get to {step}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_lammps_restarts_from_its_last_restart_file_through_terral() {
    if !on_path("lmp") {
        return;
    }
    let to = temporary();
    melt(to.path(), 1_000_000);
    let script = "cd $TERRAL_DIR; lmp -in in.melt > /dev/null; echo killed > killed";
    let mut job = Job::start(run_command(to.path(), script));
    wait_for_step(&job, 150);
    let lmp = job.descendants().into_iter().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "lmp")
    });
    kill_process(Pid::from_raw(lmp.expect("lmp runs")).expect("pid"), Signal::KILL).expect("kills");
    assert!(job.0.wait().expect("ends").success());
    assert_eq!(fs::read(to.path().join("killed")).expect("arrives"), b"killed\n");

    let go_on = "read_restart restart.100\npair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\n\
        fix 1 all nve\nneigh_modify every 20 delay 0 check no\nrun 100\nwrite_data data.end\n";
    fs::write(to.path().join("in.restart"), go_on).expect("writes");
    let reference = temporary();
    for name in ["in.restart", "restart.100"] {
        fs::copy(to.path().join(name), reference.path().join(name)).expect("copies");
    }
    let script = "cd $TERRAL_DIR && lmp -in in.restart > /dev/null";
    assert!(plain(reference.path(), script).status.success());
    let (_, summary) = split(&run_command(to.path(), script).output().expect("runs"));
    assert!(number(&summary, "/totals/read_bytes") > 100_000, "{summary}");
    let end = |directory: &Path| fs::read(directory.join("data.end")).expect("is there");
    assert!(end(to.path()) == end(reference.path()));
}

#[test]
fn when_program_server_and_launcher_die_together_recover_pays_the_debt() {
    if !on_path("lmp") {
        return;
    }
    let (to, reference) = (temporary(), temporary());
    melt(to.path(), 1_000_000);
    melt(reference.path(), 200);
    let script = "cd $TERRAL_DIR && lmp -in in.melt > /dev/null";
    assert!(plain(reference.path(), script).status.success());
    let mut job = Job::start(run_command(to.path(), script));
    let instance = wait_for_step(&job, 150);
    job.kill_all();
    let name = instance.file_name().expect("name").to_string_lossy().into_owned();
    let recovered = Command::new(built("terral")).args(["recover", &name]).output().expect("runs");
    let words = String::from_utf8_lossy(&recovered.stderr).into_owned();
    assert!(recovered.status.success(), "{words}");
    assert!(!instance.exists(), "the memory is free again");
    for step in [50, 100] {
        let file = format!("restart.{step}");
        let read = |directory: &Path| fs::read(directory.join(&file)).expect("is there");
        assert!(read(to.path()) == read(reference.path()), "{file} differs");
    }
    let dump = fs::read(to.path().join("dump.melt")).expect("is there");
    let whole = fs::read(reference.path().join("dump.melt")).expect("is there");
    let common = dump.len().min(whole.len());
    assert!(common > 1_000_000 && dump[..common] == whole[..common]);
}

#[test]
fn a_server_killed_under_a_job_comes_back_and_the_job_goes_on() {
    let to = temporary();
    let (home, mut killed) = (temporary(), 0);
    let script = format!(
        "cd $TERRAL_DIR; i=0; until [ $i -ge 30 -a -e {0}/over ]; do i=$((i + 1));
        head -c 3000000 /dev/zero | tr '\\0' $((i % 10)) > f$((i % 30)) || exit 1; sleep 0.1; done",
        home.path().display()
    );
    let mut job = Job::start(run_command(to.path(), &script));
    launched::until("the server was killed twice", || {
        std::thread::sleep(Duration::from_millis(1100));
        let server = descendants::server(job.0.id());
        server.inspect(|server| descendants::send(*server, Signal::KILL));
        killed += u32::from(server.is_some());
        killed == 2
    });
    fs::write(home.path().join("over"), "").expect("writes");
    assert!(job.0.wait().expect("ends").success());
    for i in 0..30u8 {
        let bytes = fs::read(to.path().join(format!("f{i}"))).expect("arrives");
        assert_eq!(bytes.len(), 3_000_000);
        assert!(bytes.iter().all(|byte| *byte == b'0' + i % 10), "f{i}");
    }
}
