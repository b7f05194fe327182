//! The example of checkpoints for MPI, `src/c/heat.c`, compiled against the library as built.
#![allow(clippy::print_stdout)] // What is skipped is said.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::beside::{built, on_path};

/// Compiles the example for MPI; none where that is not installed, which is said.
pub fn compiled(home: &Path) -> Option<PathBuf> {
    if !on_path("mpicc.mpich") || !Path::new("/usr/include/x86_64-linux-gnu/mpich").exists() {
        println!("skipped: MPICH and its headers are not all installed");
        return None;
    }
    let library = built("libterral.so");
    let folder = library.parent().expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/c");
    let program = home.join("heat");
    let mut cc = Command::new("mpicc.mpich");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-I", source, "-o"]).arg(&program);
    cc.arg(format!("{source}/heat.c")).arg("-L").arg(folder).arg("-lterral");
    cc.arg(format!("-Wl,-rpath,{}", folder.display()));
    let output = cc.output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
