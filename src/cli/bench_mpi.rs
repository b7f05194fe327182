//! Collective writes of two ranks, 4 KiB of each a call, through MPI-IO and through HDF5: what
//! ROMIO makes of them are small writes under locks, and reads of what lies between.
//!
//! What is timed is what the programs time themselves, from the opening to the end of closing; the
//! start of such a job is a figure of its own. Needs MPICH, and for HDF5 its library for MPICH.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::Session;
use crate::bypass;

const LEAST: f64 = 1.0;
/// Milliseconds that two ranks, and what starts them, may take longer to begin and to end.
const START_MS: f64 = 10.0;
const COLLECTIVE: &str = include_str!("bench_collective.c");
const HDF5: &str = include_str!("bench_hdf5.c");
const PIECES: &str = include_str!("bench_pieces.h");
/// Says where Debian has HDF5 for MPICH.
const PACKAGE: &str = "hdf5-mpich";

/// A program for MPI that says how long it took.
struct Job<'a> {
    host: &'a Host,
    session: Session<'a>,
    made: String,
}

impl<'a> Job<'a> {
    /// Compiles it, and starts a server.
    fn new(host: &'a Host, name: &str, program: &str, flags: &[&str]) -> Result<Self> {
        let needs = "needs MPICH (Debian: mpich, libmpich-dev)";
        let session = Session::new(host, &["mpicc.mpich", "mpiexec.mpich", "rm"]).context(needs)?;
        let (source, made) = (host.aside(&format!("{name}.c")), host.aside(name));
        for (path, text) in [(&source, program), (&host.aside("bench_pieces.h"), PIECES)] {
            std::fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        let (source, made) = (source.display().to_string(), made.display().to_string());
        let arguments =
            [&["-O1", "-Wall", "-Wextra", "-Werror", "-o", &made, &source], flags].concat();
        session.run_in(Face::Tmpfs, "mpicc.mpich", &arguments)?;
        Ok(Job { host, session, made })
    }

    /// Runs it once; how long all took, and what the program says.
    fn run(&self, face: Face, calls: u64, how: &str) -> Result<(f64, f64)> {
        let path = self.session.path(face, "collective.out").display().to_string();
        let says = self.host.aside("seconds");
        let (calls, shown) = (calls.to_string(), says.display().to_string());
        let arguments = ["-n", "2", &self.made, &path, &shown, &calls, how];
        let mut command = self.session.command(face, "mpiexec.mpich", &arguments)?;
        command.envs(bypass::variable());
        let whole = self.session.run(command)?;
        if face.is_terral() {
            self.session.check("collective.out")?;
        }
        self.session.run_in(face, "rm", &[&path])?;
        let said = std::fs::read_to_string(&says).with_context(|| shown.clone())?;
        Ok((whole, said.trim().parse().with_context(|| format!("{shown}: {said}"))?))
    }

    fn rate(&self, effort: &Effort, calls: u64, how: &str, name: &str) -> Result<Fact> {
        let times = self.session.rounds(effort, |face| Ok(self.run(face, calls, how)?.1))?;
        Ok(times.quicker(&format!("{name}, 2 ranks, {calls} calls"), LEAST))
    }
}

/// Measures MPI-IO's.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let job = Job::new(host, "collective", COLLECTIVE, &[])?;
    let calls = effort.names / 2;
    let begun = job.session.rounds(effort, |face| Ok(job.run(face, 0, "together")?.0))?;
    let name = "MPI-IO writes of 4 KiB with holes";
    Ok(vec![
        job.rate(effort, calls, "together", &format!("{name}, collective"))?,
        job.rate(effort, calls, "apart", &format!("{name}, each rank under locks"))?,
        begun.extra_ms("start and end of an MPI job that opens a file, 2 ranks", START_MS),
    ])
}

/// What the compiler needs for HDF5.
fn flags() -> Result<String> {
    let needs = "needs HDF5 for MPICH (Debian: libhdf5-mpich-dev, pkg-config)";
    let output = Command::new("pkg-config").args(["--cflags", "--libs", PACKAGE]).output();
    let output = output.context(needs)?;
    ensure!(output.status.success(), needs);
    String::from_utf8(output.stdout).context(needs)
}

/// Measures HDF5's.
pub fn measure_hdf5(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let flags = flags()?;
    let job = Job::new(host, "hdf5", HDF5, &flags.split_whitespace().collect::<Vec<_>>())?;
    let rate = |how: &str| {
        job.rate(effort, effort.names / 2, how, &format!("HDF5 collective writes of 4 KiB, {how}"))
    };
    Ok(vec![rate("strided")?, rate("segmented")?])
}
