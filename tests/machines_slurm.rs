//! A run inside a job of a batch system is over all machines of the job: Debian's Slurm on machines
//! of namespaces, and the list that PBS gives.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use beside::{built, on_path};
use launched::said;
use namespaces::Machines;

/// Machines of a job.
const MACHINES: usize = 3;
/// Slurm is up within this time, and a run with it ends.
const LONG: Duration = Duration::from_secs(60);

/// Slurm's daemons on some machines.
struct Slurm<'m> {
    machines: &'m Machines,
    daemons: Vec<Child>,
}

impl<'m> Slurm<'m> {
    fn new(machines: &'m Machines) -> Option<Self> {
        if !["slurmctld", "slurmd", "salloc", "srun", "scontrol"].iter().all(|one| on_path(one)) {
            return None;
        }
        let home = machines.home().join("slurm");
        fs::create_dir_all(home.join("state")).expect("makes");
        fs::write(home.join("slurm.conf"), configuration(&home.display().to_string()))
            .expect("writes");
        let mut slurm = Slurm { machines, daemons: Vec::new() };
        slurm.begin(0, &["slurmctld", "-D"]);
        (0..MACHINES).for_each(|at| slurm.begin(at, &["slurmd", "-D", "-N", &format!("h{at}")]));
        let begin = Instant::now();
        while slurm.idle() != MACHINES {
            assert!(begin.elapsed() < LONG, "Slurm does not come up");
            sleep(Duration::from_millis(100));
        }
        Some(slurm)
    }

    fn command(&self, at: usize, words: &[&str]) -> Command {
        let mut command = self.machines.command(at, words[0]);
        command.args(&words[1..]);
        command.env("SLURM_CONF", self.machines.home().join("slurm/slurm.conf"));
        command.stdin(Stdio::null());
        command
    }

    fn begin(&mut self, at: usize, words: &[&str]) {
        let log = self.machines.home().join(format!("slurm/{}-{at}.log", words[0]));
        let log = fs::File::create(log).expect("makes");
        let mut command = self.command(at, words);
        command.stdout(log.try_clone().expect("one more")).stderr(log);
        self.daemons.push(command.spawn().expect("starts"));
    }

    fn idle(&self) -> usize {
        let states = self.command(0, &["sinfo", "-h", "-N", "-o", "%T"]).output().expect("starts");
        String::from_utf8_lossy(&states.stdout).lines().filter(|state| *state == "idle").count()
    }

    /// A script in a job of all machines.
    fn run(&self, script: &str) -> Output {
        let nodes = format!("-N{MACHINES}");
        // Who enters a machine is at its root.
        let script = format!("cd {} && {script}", self.machines.home().display());
        let mut command = self.command(0, &["salloc", "--quiet", &nodes, "sh", "-c", &script]);
        command.env("TERRAL", built("terral"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        descendants::ended_within(command.spawn().expect("starts"), LONG)
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let pid = rustix::process::Pid::from_child(daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(10);
        for daemon in &mut self.daemons {
            while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < until {
                sleep(Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn configuration(home: &str) -> String {
    let nodes =
        (0..MACHINES).map(|at| format!("NodeName=h{at} NodeAddr=10.77.0.{} CPUs=2\n", at + 1));
    format!(
        "ClusterName=machines\nSlurmctldHost=h0(10.77.0.1)\nAuthType=auth/none\n\
         CredType=cred/none\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={home}/state\n\
         SlurmdSpoolDir={home}/spool-%n\nSlurmctldPidFile={home}/slurmctld.pid\n\
         SlurmdPidFile={home}/slurmd-%n.pid\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/affinity\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
         SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n{}\
         PartitionName=all Nodes=ALL Default=YES State=UP\n",
        nodes.collect::<String>()
    )
}

#[test]
fn a_run_in_a_job_of_slurm_is_over_all_its_machines() {
    let Some(machines) = Machines::new(MACHINES) else { return };
    let Some(slurm) = Slurm::new(&machines) else { return };
    let each = "srun -N3 sh -c 'printf from-%s $(hostname) > $(hostname)'";
    let killed = "srun -N3 sh -c 'kill -9 $$' 2>/dev/null";
    let all = "srun -N3 sh -c 'cat h0 h1 h2; echo'";
    fs::write(machines.home().join("job"), format!("{each}; {killed}; {all}\n")).expect("writes");
    let ran = slurm.run("$TERRAL run --to to --memory 128M --ready 0 --cwd -- sh $PWD/job");
    assert!(ran.status.success() && said(&ran).contains("3 machines in"), "{}", said(&ran));
    let seen = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(seen.lines().filter(|line| *line == "from-h0from-h1from-h2").count(), 3, "{seen}");
    for at in 0..MACHINES {
        let arrived = fs::read_to_string(machines.home().join(format!("to/h{at}")));
        assert_eq!(arrived.expect("it arrived"), format!("from-h{at}"));
        assert_eq!(machines.left(at), "", "nothing stays on h{at}");
    }
}

/// `terral` in a directory that only the first machine sees, and one to which it is sent.
fn only_on_the_first(machines: &Machines) -> [PathBuf; 2] {
    let places = ["opt", "ahead"].map(|name| machines.home().join(name));
    places.iter().for_each(|place| fs::create_dir(place).expect("makes"));
    for name in ["terral", "libterral_preload.so"] {
        fs::copy(built(name), places[0].join(name)).expect("copies");
    }
    for (at, place) in (0..MACHINES).flat_map(|at| places.iter().map(move |place| (at, place))) {
        let mount = format!("mount -t tmpfs -o mode=1777 tmpfs {}", place.display());
        if at > 0 || *place == places[1] {
            assert!(machines.shell_on(at, &mount).status.success(), "{mount}");
        }
    }
    places
}

#[test]
fn machines_of_a_job_of_slurm_that_lack_terral_are_sent_it_by_srun() {
    let Some(machines) = Machines::new(MACHINES) else { return };
    let [opt, ahead] = only_on_the_first(&machines);
    let Some(slurm) = Slurm::new(&machines) else { return };
    let each = "srun -N3 sh -c 'printf from-%s $(hostname) > $(hostname)'";
    fs::write(machines.home().join("job"), each).expect("writes");
    for is_sent in [true, false] {
        let ran = slurm.run(&format!(
            "export TERRAL_AHEAD={}; {}/terral run --to to --memory 128M --ready 0 --cwd -- sh \
             $PWD/job",
            ahead.display(),
            opt.display()
        ));
        let sent = said(&ran).contains("h1, h2: terral is not there: sending it");
        assert!(ran.status.success() && sent == is_sent, "{}", said(&ran));
        for at in 0..MACHINES {
            let arrived = fs::read_to_string(machines.home().join(format!("to/h{at}")));
            assert_eq!(arrived.expect("it arrived"), format!("from-h{at}"));
        }
    }
}

#[test]
fn in_a_job_of_slurm_what_is_for_one_machine_is_said_to_be() {
    let Some(machines) = Machines::new(MACHINES) else { return };
    let Some(slurm) = Slurm::new(&machines) else { return };
    let ran = slurm.run("$TERRAL run --to to --fresh --memory 128M --cwd -- touch here");
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(said(&ran).contains("--fresh is for one machine: of the 3"), "{}", said(&ran));
    // A task of a step is on each machine already: it has a server of its own.
    let ran = slurm.run("srun -N1 $TERRAL run --to to2 --memory 128M --cwd -- touch here");
    assert!(ran.status.success() && !said(&ran).contains("machines in"), "{}", said(&ran));
}

#[test]
fn a_run_in_a_job_of_pbs_is_over_all_its_machines() {
    let Some(machines) = Machines::new(MACHINES) else { return };
    let list = machines.home().join("nodes");
    fs::write(&list, "h0\nh0\nh1\nh1\nh2\nh2\n").expect("writes");
    let script = machines.home().join("job");
    fs::write(&script, "#!/bin/sh\nuname -n > made-by-h0\n").expect("writes");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("sets");
    let to = machines.home().join("to");
    let mut command = machines.terral(0);
    command.env("PBS_NODEFILE", &list).args(["run", "--memory", "128M", "--ready", "0", "--cwd"]);
    command.arg("--to").arg(&to).arg("--").arg(&script);
    let ran = descendants::ended_within(command.spawn().expect("starts"), LONG);
    assert!(ran.status.success() && said(&ran).contains("3 machines in"), "{}", said(&ran));
    assert_eq!(fs::read_to_string(to.join("made-by-h0")).expect("it arrived"), "h0\n");
    let mut command = machines.terral(0);
    command.env("PBS_NODEFILE", "/nowhere").args(["run", "--to"]).arg(&to).args(["--", "true"]);
    let ran = descendants::ended_within(command.spawn().expect("starts"), LONG);
    assert!(
        ran.status.code() == Some(125) && said(&ran).contains("PBS_NODEFILE"),
        "{}",
        said(&ran)
    );
}
