//! Unpacking 10,000 small files with tar.

use anyhow::Result;

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::{Session, small_files};

const FILES: u64 = 10_000;
const LEAST: f64 = 0.6;

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let session = Session::new(host, &["tar", "rm", "mkdir"])?;
    let archive = archive(&session, host, FILES)?;
    let times = session.rounds(effort, |face| {
        let target = session.path(face, "unpacked").display().to_string();
        session.run_in(face, "mkdir", &[&target])?;
        let took = session.run_in(face, "tar", &["-xf", &archive, "-C", &target])?;
        if face.is_terral() {
            session.check(&format!("unpacked/d0/f{}", 99))?;
            session.check(&format!("unpacked/d{}/f{}", (FILES - 1) / 100, FILES - 1))?;
        }
        session.run_in(face, "rm", &["-r", &target])?;
        Ok(took)
    })?;
    Ok(vec![times.quicker("tar x of 10,000 small files", LEAST)])
}

/// An archive of small files, made on tmpfs; its path.
///
/// # Errors
/// If tar cannot make it.
pub fn archive(session: &Session<'_>, host: &Host, files: u64) -> Result<String> {
    let (source, archive) = (host.aside("small-files"), host.aside("small-files.tar"));
    small_files(&source, files)?;
    let (source, archive) = (source.display().to_string(), archive.display().to_string());
    session.run_in(Face::Tmpfs, "tar", &["-cf", &archive, "-C", &source, "."])?;
    session.run_in(Face::Tmpfs, "rm", &["-r", &source])?;
    Ok(archive)
}
