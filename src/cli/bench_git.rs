//! `git status` in a repository of tens of thousands of files, all committed, none changed.

use std::process::Command;

use anyhow::Result;

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::Session;
use crate::bench_tar::archive;
use crate::units::count;

const MOST: f64 = 1.5;
/// A user, and nothing in the background.
const SETTINGS: [&str; 4] =
    ["user.name=bench", "user.email=bench", "gc.auto=0", "maintenance.auto=false"];

fn git(session: &Session<'_>, face: Face, arguments: &[&str]) -> Result<Command> {
    let repository = session.path(face, "repository").display().to_string();
    let mut command = session.command(face, "git", &["-C", &repository])?;
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.args(arguments);
    // What the user has set is not what is measured.
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    Ok(command)
}

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let session = Session::new(host, &["git", "tar", "rm", "mkdir"])?;
    let archive = archive(&session, host, effort.git_files)?;
    session.each(|face| {
        let target = session.path(face, "repository").display().to_string();
        session.run_in(face, "mkdir", &[&target])?;
        session.run_in(face, "tar", &["-xf", &archive, "-C", &target])?;
        for step in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "all"]] {
            session.run(git(&session, face, step)?)?;
        }
        // The first one notes in the index what the next ones need not look at.
        session.run(git(&session, face, &["status", "--porcelain"])?).map(drop)
    })?;
    session.check("repository/.git/index")?;
    let times = session
        .rounds(effort, |face| session.run(git(&session, face, &["status", "--porcelain"])?))?;
    session.each(|face| {
        let target = session.path(face, "repository").display().to_string();
        session.run_in(face, "rm", &["-r", "-f", &target]).map(drop)
    })?;
    let name = format!("git status, {} files", count(effort.git_files));
    Ok(vec![times.longer(&name, MOST)])
}
