//! `terral bench`: measures this machine with and without Terral, in one run.
//!
//! Not here: how each figure is taken; see `bench_cases` and the files that `EXTRAS` names.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::Args;
use terral_server::available;

use crate::batch;
use crate::bench_against::Against;
use crate::bench_cases::{self, Case};
use crate::bench_figure::{Effort, Extra};
use crate::bench_host::{Bed, Host};
use crate::bench_report::{Machine, Report, rows};
use crate::machine::{self, SHARED_MEMORY};
use crate::report::{json, say};
use crate::server::preload_library;
use crate::units::{parse_bytes, time};
use crate::{
    bench_commits, bench_extra, bench_git, bench_hosts, bench_locks, bench_make, bench_memory,
    bench_mpi, bench_names, bench_objects, bench_preload, bench_rights, bench_spill, bench_sqlite,
    bench_stalls, bench_tar, bench_tree,
};

/// What is measured beside the IOR-like cases. What is for names begins so.
const EXTRAS: [Extra; 23] = [
    Extra { name: "memcpy", measure: bench_extra::memcpy },
    Extra { name: "drain", measure: bench_extra::drain },
    Extra { name: "spill", measure: bench_spill::measure },
    Extra { name: "slowdown", measure: bench_extra::slowdown },
    Extra { name: "stalls", measure: bench_stalls::measure },
    Extra { name: "idle", measure: bench_extra::idle },
    Extra { name: "start", measure: bench_extra::start },
    Extra { name: "names-rates", measure: bench_names::measure },
    Extra { name: "names-tree", measure: bench_tree::measure },
    Extra { name: "locks", measure: bench_locks::measure },
    Extra { name: "objects-create", measure: bench_objects::create },
    Extra { name: "objects-checkpoint", measure: bench_objects::checkpoint },
    Extra { name: "objects-transaction", measure: bench_objects::transaction },
    Extra { name: "objects-commits", measure: bench_commits::one_server },
    Extra { name: "rights-revoke", measure: bench_rights::revoke },
    Extra { name: "names-tar", measure: bench_tar::measure },
    Extra { name: "names-git", measure: bench_git::measure },
    Extra { name: "names-make", measure: bench_make::measure },
    Extra { name: "names-preload", measure: bench_preload::measure },
    Extra { name: "sqlite-wal", measure: bench_sqlite::measure },
    Extra { name: "mpi-collective", measure: bench_mpi::measure },
    Extra { name: "mpi-hdf5", measure: bench_mpi::measure_hdf5 },
    Extra { name: "names-memory", measure: bench_memory::measure },
];

/// Measures Terral beside tmpfs and a disk directory, in turn
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral bench --quick
  terral bench --to /scratch --markdown benchmarks.md
  terral bench --cases new-64k,strided,drain --json
  terral bench --cases names    (files a second, tar, git, make, memory per file)
  terral bench --cases commits    (transactions; with --hosts those of several machines)
  terral bench --hosts a,b,c --to ~/shared    (machines together, and the network between them)
  terral bench --against ~/terral-0.4/bin/terral --quick    (is this build as fast as that one?)

With --against, exit status 1 says that this build is slower: all of a figure's 95 % interval lies
below 0.97 of the other's, or the geometric mean of all figures below 0.98.")]
pub struct Arguments {
    /// Other machines to measure together with this one, as `terral run --hosts` has them: the same
    /// things done by programs on all of them, beside one machine, local files and a plain socket
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = batch::parse_host)]
    #[arg(conflicts_with_all = ["full", "against"])]
    hosts: Vec<String>,
    /// Disk directory to compare with and to drain into; with --hosts, one that all of them see
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Three rounds instead of five, and less of everything
    #[arg(long)]
    quick: bool,
    /// Four processes as well
    #[arg(long)]
    full: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Also write the result to this page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Only what has one of these in its name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cases: Vec<String>,
    /// Say what there is to measure
    #[arg(long)]
    list: bool,
    /// Bytes per process and pass [default: 256M, 64M with --quick]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Compare with another build of terral: runs of both in turn, and of this one with itself
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["markdown", "list"])]
    against: Option<PathBuf>,
    /// Runs of each build, with --against
    #[arg(long, value_name = "N", default_value_t = 5, requires = "against",
        value_parser = clap::value_parser!(u16).range(2..))]
    runs: u16,
}

impl Arguments {
    /// What another run is told that is to measure the same.
    fn told(&self, disk: &Path) -> Vec<String> {
        let mut told = vec!["--to".into(), disk.display().to_string()];
        told.extend(self.quick.then(|| "--quick".into()));
        told.extend(self.full.then(|| "--full".into()));
        told.extend(self.size.into_iter().flat_map(|size| ["--size".into(), size.to_string()]));
        told
    }

    /// Over several machines.
    fn over_hosts(&self) -> Result<u8> {
        let cases = bench_hosts::CASES.into_iter().filter(|name| self.wants(name));
        let cases: Vec<&'static str> = cases.collect();
        if self.list || cases.is_empty() {
            return self.listed(&bench_hosts::CASES.map(str::to_owned));
        }
        let to = self.to.canonicalize().with_context(|| self.to.display().to_string())?;
        bench_hosts::main(bench_hosts::Wanted {
            hosts: &self.hosts,
            to: &to,
            cases,
            quick: self.quick,
            size_bytes: self.size_bytes(),
            rounds: self.rounds(),
            json: self.json,
            markdown: self.markdown.as_ref(),
            machine: machine(),
        })
    }

    /// Says what there is, if that is asked for.
    fn listed(&self, names: &[String]) -> Result<u8> {
        if !self.list {
            bail!("--cases: nothing is called so; there are {}", names.join(", "));
        }
        writeln!(std::io::stdout(), "{}", names.join("\n"))?;
        Ok(0)
    }

    fn wants(&self, name: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|case| name.contains(case.as_str()))
    }

    fn size_bytes(&self) -> u64 {
        let usual = if self.quick { 64 << 20 } else { 256 << 20 };
        // Whole transfers of every size.
        (self.size.unwrap_or(usual) >> 22).max(1) << 22
    }

    fn rounds(&self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    fn effort(&self) -> Effort {
        if self.quick {
            return Effort {
                rounds: 2,
                drain_bytes: 256 << 20,
                checkpoint_bytes: 256 << 20,
                compute_s: 2.0,
                names: 2000,
                kept_names: 100_000,
                git_files: 5000,
            };
        }
        Effort {
            rounds: 4,
            drain_bytes: 1 << 30,
            checkpoint_bytes: 256 << 20,
            compute_s: 2.0,
            names: 10_000,
            kept_names: 1_000_000,
            git_files: 50_000,
        }
    }

    /// What the arena must hold, and what is touched before.
    fn arena_bytes(&self, only_cases: bool) -> Result<u64> {
        let processes = if self.full { 4 } else { 2 };
        // Two faces keep their files at once, and what is recycled stays warm beside them.
        let least = if only_cases && self.size.is_some() { 512 << 20 } else { 3 << 30 };
        let needed = (self.size_bytes() * processes * 4).max(least);
        let free = machine::room(Path::new(SHARED_MEMORY))?.free_bytes;
        let free = free.min(available::available_bytes());
        if free / 3 < needed / 2 {
            bail!(
                "{} MiB of memory are needed and {} MiB free: say a smaller --size",
                (needed / 2 * 3) >> 20,
                free >> 20
            );
        }
        Ok(needed)
    }
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let name =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let load = read("/proc/loadavg");
    Machine {
        processor: name.unwrap_or("unknown processor").to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        memory_bytes: available::memory_field("MemTotal").unwrap_or(0),
        date: time(since.as_nanos() as u64),
        load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0),
    }
}

fn measure_cases(
    host: &Host,
    arguments: &Arguments,
    cases: &[Case],
    into: &mut Report,
) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    let bed = Bed::start(host, None)?;
    for (at, case) in cases.iter().enumerate() {
        let (rounds, bytes) = (arguments.rounds(), arguments.size_bytes());
        let series = bench_cases::measure(host, &bed, case, rounds, bytes)?;
        let measured = rows(case, &series);
        let said: Vec<String> = measured
            .iter()
            .map(|row| format!("{} {:.2}", row.face.name(), row.ratio.median))
            .collect();
        let (name, of) = (case.name(), cases.len());
        say(format_args!("{}/{of} {name}: × tmpfs: {}", at + 1, said.join(", ")));
        into.rows.extend(measured);
    }
    Ok(())
}

fn measure_extras(host: &Host, arguments: &Arguments, extras: &[&Extra], into: &mut Report) {
    for extra in extras {
        match (extra.measure)(host, &arguments.effort()) {
            Ok(facts) => {
                for fact in &facts {
                    say(format_args!(
                        "{}: {:.2} {} ({})",
                        fact.name, fact.value, fact.unit, fact.note
                    ));
                }
                into.facts.extend(facts);
            }
            // The other figures are worth having all the same.
            Err(error) => say(format_args!("{}: not measured: {error:#}", extra.name)),
        }
    }
}

/// Measures.
pub fn main(arguments: &Arguments) -> Result<u8> {
    if !arguments.hosts.is_empty() {
        return arguments.over_hosts();
    }
    let cases: Vec<Case> = bench_cases::all(arguments.full)
        .into_iter()
        .filter(|case| arguments.wants(&case.name()))
        .collect();
    let extras: Vec<&Extra> = EXTRAS.iter().filter(|extra| arguments.wants(extra.name)).collect();
    if arguments.list || (cases.is_empty() && extras.is_empty()) {
        let names = bench_cases::all(arguments.full).into_iter().map(|case| case.name());
        let names: Vec<String> = names.chain(EXTRAS.iter().map(|e| e.name.to_owned())).collect();
        return arguments.listed(&names);
    }
    let disk = arguments.to.canonicalize().with_context(|| arguments.to.display().to_string())?;
    if let Some(program) = &arguments.against {
        // What a copy costs is the machine's.
        let extras = extras.iter().map(|extra| extra.name).filter(|name| *name != "memcpy");
        let cases = cases.iter().map(Case::name).chain(extras.map(str::to_owned)).collect();
        let (rounds, json) = (arguments.runs.into(), arguments.json);
        let arguments = arguments.told(&disk);
        return Against { program, rounds, arguments, cases, json }.measure();
    }
    let mut report = Report {
        machine: machine(),
        size_bytes: arguments.size_bytes(),
        rounds: arguments.rounds(),
        rows: Vec::new(),
        facts: Vec::new(),
    };
    let arena_bytes = arguments.arena_bytes(extras.is_empty())?;
    let host = Host::new(&disk, preload_library()?, arena_bytes)?;
    say(format_args!("touching {} MiB of memory", (arena_bytes / 2 * 3) >> 20));
    host.touch(arena_bytes / 2 * 3)?;
    measure_cases(&host, arguments, &cases, &mut report)?;
    measure_extras(&host, arguments, &extras, &mut report);
    drop(host);
    if let Some(path) = &arguments.markdown {
        std::fs::write(path, report.page()).with_context(|| path.display().to_string())?;
    }
    if arguments.json {
        json(&report)?;
    } else {
        write!(std::io::stdout(), "{}", report.table())?;
    }
    Ok(0)
}
