//! The machines that a batch system has given this job: `terral run` inside one spreads over all of
//! them by itself.
//!
//! Not here: how they are reached (`remote`), and what is done with them (`hosts`).

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What the batch system has given.
pub struct Allocation {
    /// What it is called.
    pub system: &'static str,
    /// The machines, each once, as it calls them.
    pub hosts: Vec<String>,
}

/// The name of a host.
///
/// # Errors
/// If one is none.
pub fn parse_host(text: &str) -> Result<String, String> {
    let strange = |letter: char| letter.is_whitespace() || letter.is_control();
    if text.is_empty() || text.starts_with('-') || text.contains(strange) {
        return Err("no name of a host".into());
    }
    Ok(text.to_owned())
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether this process is a job of Slurm, and not one of the tasks of a step of it, which are on
/// all machines already.
pub fn is_slurm() -> bool {
    set("SLURM_JOB_ID").is_some() && set("SLURM_STEP_ID").is_none()
}

/// What this machine is called there, if it is one of them.
pub fn here() -> Option<String> {
    if is_slurm() { set("SLURMD_NODENAME") } else { None }
}

/// What this job has, if it has more than one machine.
///
/// # Errors
/// If the batch system cannot say which they are.
pub fn allocation() -> Result<Option<Allocation>> {
    let found = match (set("SLURM_JOB_NODELIST").filter(|_| is_slurm()), set("PBS_NODEFILE")) {
        (Some(list), _) => Allocation { system: "Slurm", hosts: named(&slurm_names(&list)?)? },
        (None, Some(file)) => Allocation { system: "PBS", hosts: named(&pbs_names(&file)?)? },
        (None, None) => return Ok(None),
    };
    Ok(Some(found).filter(|found| found.hosts.len() > 1))
}

/// The names in a list like `h[0-2,7]`: only Slurm knows how it is read.
fn slurm_names(list: &str) -> Result<String> {
    let mut scontrol = Command::new("scontrol");
    let said = scontrol.args(["show", "hostnames", list]).output();
    let said = said.context("scontrol, which says what machines this job of Slurm has")?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        bail!("scontrol show hostnames {list}: {}", why.trim());
    }
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// A line for each place of a process.
fn pbs_names(file: &str) -> Result<String> {
    fs::read_to_string(Path::new(file)).with_context(|| format!("PBS_NODEFILE: {file}"))
}

/// Each once, in their order.
fn named(lines: &str) -> Result<Vec<String>> {
    let mut hosts: Vec<String> = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let host = parse_host(line).map_err(|why| anyhow::anyhow!("{line}: {why}"))?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::{named, parse_host};

    #[test]
    fn hosts_are_names() {
        assert!(parse_host("node-7.cluster").is_ok() && parse_host("10.0.0.1").is_ok());
        assert!(["", "-oProxyCommand=x", "a b"].iter().all(|bad| parse_host(bad).is_err()));
    }

    #[test]
    fn a_machine_with_many_places_is_one() {
        let hosts = named("n1\nn1\n n2 \n\nn1\nn3.cluster\n").expect("names");
        assert_eq!(hosts, ["n1", "n2", "n3.cluster"]);
        assert!(named("n1\n-oProxyCommand=x\n").is_err());
    }
}
