//! `terral bench --hosts`: measures several machines with and without Terral, in one run.
//!
//! Not here: how each figure is taken; see `bench_far_bytes`, `bench_far_commits`,
//! `bench_far_names`, `bench_far_objects`, `bench_far_times`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::bench_beside::{Beside, Figure};
use crate::bench_cluster::{Cluster, Much};
use crate::bench_crew::{Peer, Run};
use crate::bench_host::Host;
use crate::bench_report::Machine;
use crate::hosts;
use crate::report::{json, say};
use crate::server::preload_library;
use crate::signals::Signals;
use crate::{
    bench_far_bytes, bench_far_commits, bench_far_names, bench_far_objects, bench_far_times,
};

/// What there is to measure.
pub const CASES: [&str; 10] = [
    "own-files",
    "read",
    "shared",
    "creates",
    "own-paths",
    "names-at-rest",
    "objects",
    "objects-commits",
    "start",
    "ping",
];
/// What is also measured with a permanent directory.
const LASTING: [&str; 4] = ["own-files", "creates", "own-paths", "names-at-rest"];
/// What a server takes beside the files of a case.
const BESIDE_BYTES: u64 = 256 << 20;

/// What is to be measured, and how it is shown.
pub struct Wanted<'a> {
    /// The machines; this one may be among them.
    pub hosts: &'a [String],
    /// A directory that all of them see.
    pub to: &'a Path,
    /// Which cases.
    pub cases: Vec<&'static str>,
    /// Less of everything.
    pub quick: bool,
    /// Bytes a process.
    pub size_bytes: u64,
    /// Rounds that count.
    pub rounds: usize,
    /// One JSON object instead of a table.
    pub json: bool,
    /// Also a page.
    pub markdown: Option<&'a PathBuf>,
    /// This machine.
    pub machine: Machine,
}

/// The runs, and processes that know nothing of them.
struct Runs {
    plain: Run,
    encrypted: Run,
    /// With a permanent directory.
    lasting: Option<Run>,
    sockets: Vec<Peer>,
}

impl Runs {
    fn start(
        cluster: &Cluster<'_>,
        wanted: &Wanted<'_>,
        missing: &mut Vec<String>,
    ) -> Result<Self> {
        let plain = cluster.run(false)?;
        let encrypted = cluster.run(true)?;
        let to = cluster.host.disk.join("to");
        // A run that nobody uses would say that.
        let lasts = wanted.cases.iter().any(|name| LASTING.contains(name));
        let lasting = lasts.then(|| cluster.run_to(&to)).and_then(|run| {
            let why = |error: &anyhow::Error| {
                say(format_args!("not measured: {error:#}"));
                missing.push(format!("{error:#}"));
            };
            run.inspect_err(why).ok()
        });
        Ok(Runs { plain, encrypted, lasting, sockets: cluster.plain()? })
    }

    fn end(self) -> Result<()> {
        drop(self.sockets);
        self.plain.end()?;
        self.encrypted.end()?;
        self.lasting.map_or(Ok(()), Run::end)
    }

    fn case(&self, name: &str, cluster: &Cluster<'_>) -> Result<Vec<Figure>> {
        let both = [&self.plain, &self.encrypted];
        Ok(match name {
            "own-files" => self.each(|run, with| bench_far_bytes::own_files(cluster, run, with))?,
            "read" => bench_far_bytes::reads(cluster, both, &self.sockets)?,
            "shared" => bench_far_bytes::shared(cluster, both, &self.sockets)?,
            "creates" => self.each(|run, with| bench_far_names::creates(cluster, run, with))?,
            "own-paths" => {
                self.each(|run, with| bench_far_names::below_others(cluster, run, with))?
            }
            "names-at-rest" => {
                self.each(|run, with| bench_far_names::at_rest(cluster, run, with))?
            }
            "objects" => bench_far_objects::objects(cluster, &self.encrypted, "")?,
            "objects-commits" => bench_far_commits::commits(cluster, &self.encrypted)?,
            "start" => bench_far_times::start(cluster)?,
            _ => {
                let ping = |run, how| bench_far_times::ping(cluster, run, &self.sockets, how);
                [ping(&self.plain, "not encrypted")?, ping(&self.encrypted, "TLS")?].concat()
            }
        })
    }

    /// Without and with a permanent directory.
    fn each(&self, what: impl Fn(&Run, &str) -> Result<Vec<Figure>>) -> Result<Vec<Figure>> {
        let mut figures = what(&self.encrypted, "")?;
        if let Some(run) = &self.lasting {
            figures.extend(what(run, ", with --to")?);
        }
        Ok(figures)
    }
}

fn much(wanted: &Wanted<'_>) -> Much {
    let (names, trips) = if wanted.quick { (500, 200) } else { (2500, 2000) };
    Much { rounds: wanted.rounds, blocks: wanted.size_bytes >> 20, names, trips }
}

fn measure(cluster: &Cluster<'_>, wanted: &Wanted<'_>, into: &mut Beside) -> Result<()> {
    let runs = Runs::start(cluster, wanted, &mut into.missing)?;
    let mut failed = None;
    for (at, name) in wanted.cases.iter().enumerate() {
        match runs.case(name, cluster).with_context(|| (*name).to_owned()) {
            Ok(figures) => {
                let (at, of) = (at + 1, wanted.cases.len());
                figures.iter().for_each(|figure| say(format_args!("{at}/{of} {}", figure.line())));
                into.figures.extend(figures);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    match failed {
        None => runs.end(),
        // What it has left is said only once.
        Some(error) => Err(error),
    }
}

/// Measures.
///
/// # Errors
/// If no other machine is named, one does not come, or what was read is not what was written.
pub fn main(wanted: Wanted<'_>) -> Result<u8> {
    let signals = Signals::listen()?;
    let others: Vec<String> = hosts::others(wanted.hosts)?.into_iter().cloned().collect();
    if others.is_empty() {
        bail!(
            "--hosts: names this machine alone: name another one at least, or leave --hosts out to \
             measure one machine"
        );
    }
    // Two files of a process, what others keep of them, and what is just going.
    let memory_bytes = wanted.size_bytes * 6 + BESIDE_BYTES;
    let host = Host::new(wanted.to, preload_library()?, memory_bytes)?;
    let (others, host) = (&others[..], &host);
    let cluster = Cluster { host, others, memory_bytes, much: much(&wanted), signals: &signals };
    let hosts = std::iter::once(crate::members::this()).chain(others.iter().cloned()).collect();
    let mut report = Beside {
        machine: wanted.machine.clone(),
        hosts,
        size_bytes: wanted.size_bytes,
        names: cluster.much.names,
        rounds: wanted.rounds,
        figures: Vec::new(),
        missing: Vec::new(),
    };
    host.touch(memory_bytes)?;
    measure(&cluster, &wanted, &mut report)?;
    if let Some(path) = wanted.markdown {
        std::fs::write(path, report.page()).with_context(|| path.display().to_string())?;
    }
    if wanted.json {
        json(&report)?;
    } else {
        write!(std::io::stdout(), "{}", report.table())?;
    }
    Ok(0)
}
