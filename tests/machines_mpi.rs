//! Ranks of MPI on three machines that write one file: real servers, real launchers, a real network
//! between namespaces. What is left is, byte by byte, what ranks of one machine leave on tmpfs. Not
//! here: MPI programs on one machine (`mpi`), those that use files of their own
//! (`machines_programs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;
mod ranks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use beside::{made_by, on_path, text_of};
use launched::said;
use namespaces::Machines;
use ranks::{by_mpich, by_open_mpi};

/// Ranks that poll, more of them than processors, are slow; none takes so long.
const LONG: Duration = Duration::from_secs(120);
/// How many calls of programs each machine's server has served.
const CALLS: &str = r#"
for at in h0 h1 h2; do
    $ON $at "$TERRAL status --json --instance machines" | python3 -c '
import json, sys
totals = json.load(sys.stdin)[0]["status"]["totals"]
print("calls", totals["opens"], totals["reads"], totals["writes"])'
done
"#;

/// Who starts the ranks, and compiles them.
#[derive(Clone, Copy)]
enum By {
    Mpich,
    /// With this component for files.
    OpenMpi(&'static str),
}

impl By {
    fn compiler(self) -> &'static str {
        match self {
            By::Mpich => "mpicc.mpich",
            By::OpenMpi(_) => "mpicc.openmpi",
        }
    }

    /// Three ranks, one on each machine.
    fn everywhere(self, machines: &Machines, directory: &Path, command: &str) -> String {
        match self {
            By::Mpich => by_mpich(command),
            By::OpenMpi(io) => {
                let ranks = by_open_mpi(machines, directory, command);
                // On each machine one writes what is written together.
                let all = "OMPI_MCA_io_ompio_num_aggregators=3";
                format!("export OMPI_MCA_io={io} {all}; {ranks}")
            }
        }
    }

    /// Three ranks here.
    fn here(self, command: &str) -> String {
        match self {
            By::Mpich => format!("mpiexec.mpich -n 3 {command}"),
            By::OpenMpi(io) => format!(
                "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; \
                 mpiexec.openmpi --oversubscribe --mca io {io} -n 3 {command}"
            ),
        }
    }
}

/// Servers are killed, first that of the machine on which the files are.
const KILLS: &str = "(for at in h1 h2 h1; do sleep 0.7; kill -9 $(pid_of $at); done) &";

/// What ranks write stays on their machines until they close the file, sync it, or use locks.
const COMMIT: &str = "$TERRAL policy set '**' consistency=commit --instance machines || exit";

/// A program of ranks, machines for them, and what is done to those meanwhile.
struct Job {
    by: By,
    machines: Machines,
    program: PathBuf,
    first: &'static str,
    meanwhile: &'static str,
}

impl Job {
    /// None where something is missing, which is said.
    fn new(by: By, name: &str, options: &[&str]) -> Option<Self> {
        let machines = Machines::new(3)?;
        if !on_path(by.compiler()) {
            return None;
        }
        let program = made_by(by.compiler(), name, machines.home(), options);
        Some(Job { by, machines, program, first: "", meanwhile: "" })
    }

    fn command(&self, directory: &Path, arguments: &str) -> String {
        format!("{} {} {arguments}", self.program.display(), directory.display())
    }

    /// What the ranks say on three machines, whose servers have served their calls.
    fn ran(&self, to: &Path, arguments: &str) -> String {
        let prefix = Path::new("/terral");
        assert!(!prefix.exists(), "nothing but Terral has files there");
        let ranks = self.by.everywhere(&self.machines, prefix, &self.command(prefix, arguments));
        let script = format!("{}\n{}\n{ranks} || exit\nwait\n{CALLS}", self.first, self.meanwhile);
        let mut command = self.machines.begin(&["--to", &to.display().to_string()], &script);
        let run = command.env("PATH", self.machines.path_with_ssh()).spawn().expect("starts");
        let output = descendants::ended_within(run, LONG);
        let text = text_of(&output);
        let kills = self.meanwhile.matches(" h").count();
        assert_eq!(said(&output).matches("was killed").count(), kills, "{}", said(&output));
        let (calls, text): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("calls "));
        for calls in &calls {
            let counts: Vec<u64> =
                calls[6..].split(' ').map(|n| n.parse().expect("count")).collect();
            assert!(counts.iter().all(|count| *count > 0), "{calls}: {}", said(&output));
        }
        assert_eq!(calls.len(), 3, "{}", said(&output));
        text.join("\n") + "\n"
    }

    /// The ranks say the same, with these arguments, on three machines and in one directory, and
    /// leave the same files, but for these, whose bytes depend on who came first.
    fn is_as_in_one_directory(&self, arguments: &str, but: &[&str]) {
        let (to, plain) = (self.machines.home().join("to"), tempfile::tempdir_in("/dev/shm"));
        let plain = plain.expect("directory");
        fs::create_dir(&to).expect("makes");
        let here = format!(
            "cd {} && {}",
            plain.path().display(),
            self.by.here(&self.command(plain.path(), arguments))
        );
        let reference = Command::new("sh").args(["-c", &here]).output().expect("starts");
        let reference = text_of(&reference);
        assert!(
            reference.lines().all(|line| line.contains(" 0 wrong") || line.starts_with("0 wrong")),
            "{reference}"
        );
        assert_eq!(self.ran(&to, arguments), reference);
        assert_eq!(names(&to), names(plain.path()));
        for name in names(&to).iter().filter(|name| !but.contains(&name.as_str())) {
            let [ours, theirs] =
                [&to, plain.path()].map(|at| fs::read(at.join(name)).expect("reads"));
            assert!(ours == theirs, "{name}: {} bytes, {} on tmpfs", ours.len(), theirs.len());
        }
    }
}

/// What is in a directory.
fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).expect("lists").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        names.map(|entry| entry.file_name().into_string().expect("a name of ours")).collect();
    names.sort_unstable();
    names
}

/// Each way that programs share a file, but atomically: OMPIO does not keep that, on tmpfs either.
const WAYS: &str = "sieved collective ordered shared";

#[test]
fn ranks_on_three_machines_that_share_a_file_by_romio_lose_no_byte_of_each_other() {
    if let Some(job) = Job::new(By::Mpich, "mpi_shared", &[]) {
        job.is_as_in_one_directory(&format!("{WAYS} atomic"), &["shared", "atomic"]);
    }
}

#[test]
fn nor_do_they_while_servers_are_killed() {
    if let Some(mut job) = Job::new(By::Mpich, "mpi_shared", &[]) {
        job.meanwhile = KILLS;
        job.is_as_in_one_directory(&format!("{WAYS} atomic ior"), &["shared", "atomic"]);
    }
}

#[test]
fn nor_do_those_that_share_it_by_ompio() {
    if let Some(job) = Job::new(By::OpenMpi("ompio"), "mpi_shared", &[]) {
        job.is_as_in_one_directory(WAYS, &["shared"]);
    }
}

#[test]
fn nor_do_those_that_share_it_by_the_romio_of_open_mpi() {
    if let Some(job) = Job::new(By::OpenMpi("romio321"), "mpi_shared", &[]) {
        job.is_as_in_one_directory(WAYS, &["shared"]);
    }
}

#[test]
fn nor_do_those_that_commit_what_they_write_by_romio() {
    if let Some(mut job) = Job::new(By::Mpich, "mpi_shared", &[]) {
        job.first = COMMIT;
        job.is_as_in_one_directory(&format!("{WAYS} atomic ior"), &["shared", "atomic"]);
    }
}

#[test]
fn nor_do_those_that_commit_it_by_ompio() {
    if let Some(mut job) = Job::new(By::OpenMpi("ompio"), "mpi_shared", &[]) {
        job.first = COMMIT;
        job.is_as_in_one_directory(WAYS, &["shared"]);
    }
}

#[test]
fn what_iors_shared_patterns_write_on_three_machines_the_next_machine_reads_byte_for_byte() {
    if let Some(job) = Job::new(By::Mpich, "mpi_shared", &[]) {
        job.is_as_in_one_directory("ior", &[]);
    }
}

/// Two dimensions, chunks, collectively and not.
fn parallel_hdf5(first: &'static str) {
    let options = ["-I/usr/include/hdf5/mpich", "-L/usr/lib/x86_64-linux-gnu/hdf5/mpich", "-lhdf5"];
    if !Path::new("/usr/include/hdf5/mpich/hdf5.h").exists() {
        println!("skipped: parallel HDF5 for MPICH is not installed");
    } else if let Some(mut job) = Job::new(By::Mpich, "hdf5_parallel", &options) {
        job.first = first;
        job.is_as_in_one_directory("", &[]);
    }
}

#[test]
fn a_file_of_parallel_hdf5_that_three_machines_write_is_that_of_one() {
    parallel_hdf5("");
}

#[test]
fn so_is_one_that_they_commit() {
    parallel_hdf5(COMMIT);
}

#[test]
fn a_file_of_pnetcdf_that_three_machines_write_is_that_of_one() {
    if !Path::new("/usr/include/pnetcdf.h").exists() {
        println!("skipped: PnetCDF is not installed");
    } else if let Some(job) = Job::new(By::OpenMpi("romio321"), "science/pnetcdf", &["-lpnetcdf"]) {
        job.is_as_in_one_directory("", &[]);
    }
}
