//! Ranks of MPI over machines of namespaces, one on each of three. Not here: what they do.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::namespaces::Machines;

/// Where all machines are.
const HOSTS: &str = "10.77.0.1,10.77.0.2,10.77.0.3";
/// The first rank is not where the run began, so what it makes is another machine's.
const HOSTS_TURNED: &str = "10.77.0.2,10.77.0.3,10.77.0.1";

/// What starts ranks by MPICH, the first one on `h1`; it looks for an `ssh`.
pub fn by_mpich(command: &str) -> String {
    format!("mpiexec.mpich -hosts {HOSTS_TURNED} -n 3 {command}")
}

/// What starts ranks by Open MPI in a directory, over ssh that passes nothing of the environment
/// on.
pub fn by_open_mpi(machines: &Machines, directory: &Path, command: &str) -> String {
    let launch = machines.home().join("launch");
    let root = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    let text = format!(
        "#!/bin/sh\nhost=$1; shift; exec {} $host \"{root}; $*\"\n",
        machines.shell().display()
    );
    fs::write(&launch, text).expect("writes");
    fs::set_permissions(&launch, fs::Permissions::from_mode(0o755)).expect("sets");
    format!(
        "{root}
        mpiexec.openmpi --mca plm_rsh_agent {} --mca btl tcp,self --mca btl_tcp_if_include eth0 \
        --mca oob_tcp_if_include eth0 --host {HOSTS} -n 3 -x PATH --wdir {} {command}",
        launch.display(),
        directory.display()
    )
}
