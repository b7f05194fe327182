//! What has `mpiexec` give what it starts on other machines the environment of this run: Slurm's
//! `srun` does so by itself, and MPICH's `mpiexec` too, but not to its own proxy (`rsh`).
//!
//! Open MPI refuses its own way, `mca_base_env_list`, to who uses `-x` as well. So its daemons are
//! started with what is needed, and their programs have it from them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::rsh::{self, is_plain};

/// How Open MPI 4 names its daemon, and where it looks for how to start it.
const AGENT: &str = "OMPI_MCA_orte_launch_agent";
const DAEMON: &str = "orted";

/// Where MPICH looks for the remote shell.
const MPICH_SHELL: &str = "HYDRA_LAUNCHER_EXEC";
/// Where it is said that it is to use another way, or batch systems say that they have one.
const MPICH_OTHERWISE: [&str; 11] = [
    MPICH_SHELL,
    "HYDRA_LAUNCHER",
    "HYDRA_BOOTSTRAP",
    "HYDRA_BOOTSTRAP_EXEC",
    "SLURM_JOB_ID",
    "PE_HOSTFILE",
    "LSB_HOSTS",
    "LSB_MCPU_HOSTS",
    "LSB_DJOB_HOSTFILE",
    "LOADL_HOSTFILE",
    "COBALT_NODEFILE",
];

/// The variable that starts the daemons with this environment; `None`: somebody has said how they
/// are started, or a value would not survive the shells on the way there.
pub fn open_mpi<'e>(
    environment: impl Iterator<Item = (&'e OsStr, &'e OsStr)>,
) -> Option<(&'static str, OsString)> {
    agent(std::env::var_os(AGENT).as_deref(), environment).map(|agent| (AGENT, agent))
}

fn agent<'e>(
    said: Option<&OsStr>,
    environment: impl Iterator<Item = (&'e OsStr, &'e OsStr)>,
) -> Option<OsString> {
    if said.is_some() {
        return None;
    }
    let mut agent = OsString::from("env");
    for (name, value) in environment {
        if !value.as_bytes().iter().all(|byte| is_plain(*byte)) {
            return None;
        }
        for part in [OsStr::new(" "), name, OsStr::new("="), value] {
            agent.push(part);
        }
    }
    agent.push(" ");
    agent.push(DAEMON);
    Some(agent)
}

/// The variable that has MPICH start its proxies by `rsh`, of which a link is made in this
/// instance; `None`: somebody has said how they are started, or a batch system does it.
pub fn mpich(instance: &Path) -> Option<(&'static str, PathBuf)> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if MPICH_OTHERWISE.iter().any(is_set) {
        return None;
    }
    let link = instance.join(rsh::NAME);
    // An earlier run's, of this name.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(std::env::current_exe().ok()?, &link).ok()?;
    Some((MPICH_SHELL, link))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::agent;

    fn of(said: Option<&str>, values: &[(&str, &str)]) -> Option<String> {
        let values = values.iter().map(|(name, value)| (OsStr::new(*name), OsStr::new(*value)));
        agent(said.map(OsStr::new), values).map(|agent| agent.into_string().expect("text"))
    }

    #[test]
    fn daemons_are_started_with_what_programs_need_if_shells_leave_it_as_it_is() {
        let (a, b) = (("A", "/x:/y-1.so"), ("B", ""));
        assert_eq!(of(None, &[a, b]).as_deref(), Some("env A=/x:/y-1.so B= orted"));
        for strange in ["/a b", "$x", "a;b", "'", "`", "\n", "*"] {
            assert_eq!(of(None, &[a, ("C", strange)]), None, "{strange}");
        }
        assert_eq!(of(Some("mine"), &[a]), None);
    }
}
