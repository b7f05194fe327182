//! MPI programs in C whose I/O is asynchronous or bypasses libc's functions: the same bytes as on
//! tmpfs, and Terral served the calls. What is not installed is printed as skipped; `make test`
//! installs it. Not here: the main job (`programs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::path::Path;

use beside::{compiled, compiled_by, on_path, run};

#[test]
fn asynchronous_io_ends_as_on_tmpfs() {
    if !on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled("aio", home.path());
    let outside = home.path().join("outside");
    let beside = run(&format!("{} . {}", made.display(), outside.display()));
    beside.assert_same();
    beside.assert_served(3);
}

#[test]
fn flags_of_single_calls_and_direct_files_are_as_on_tmpfs() {
    if !on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled("flags", home.path());
    let beside = run(&format!("{} .", made.display()));
    beside.assert_same();
    beside.assert_served(4);
}

/// Writes and reads in every way MPI has, and compares what is left with tmpfs.
fn mpi_io(compiler: &str, start: &str, plain: &str) {
    let headers =
        ["/usr/include/x86_64-linux-gnu/mpich", "/usr/lib/x86_64-linux-gnu/openmpi/include"];
    let there = headers.iter().all(|path| Path::new(path).exists());
    if !on_path(compiler) || !there {
        println!("skipped: {compiler} and its headers are not all installed");
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled_by(compiler, "mpi_io", home.path());
    let ompi = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    // Beside it is the file of shared pointers, whose name has a random part.
    let beside = run(&format!(
        "{ompi}; {start} {} $PWD/file {plain} && ls && sha256sum file",
        made.display()
    ));
    beside.assert_same();
    beside.assert_served(2);
}

#[test]
fn mpich_programs_do_nonblocking_and_split_io() {
    mpi_io("mpicc.mpich", "mpiexec.mpich -n 2", "");
}

#[test]
fn open_mpi_programs_do_nonblocking_and_split_io_by_ompio() {
    mpi_io("mpicc.openmpi", "mpiexec.openmpi --oversubscribe -n 4 --mca io ompio", "");
}

#[test]
fn open_mpi_programs_do_nonblocking_and_split_io_by_romio() {
    mpi_io("mpicc.openmpi", "mpiexec.openmpi --oversubscribe -n 4 --mca io romio321", "plain");
}

/// In MPICH programs UCX writes over `mmap` before `main` begins, unless it is told not to: then
/// what it asks libc's `syscall` for is served. Its `reloc` mode does not end, here as elsewhere.
#[test]
fn mpich_programs_map_files_whatever_ucx_was_told() {
    if !on_path("mpicc.mpich") || !Path::new("/usr/include/x86_64-linux-gnu/mpich").exists() {
        println!("skipped: MPICH and its headers are not all installed");
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled_by("mpicc.mpich", "mpi_maps", home.path());
    // What Terral says; what a user says who wants UCX's cache; and UCX's own choice.
    for mode in ["", "export UCX_MEM_MMAP_HOOK_MODE=bistro;", "unset UCX_MEM_MMAP_HOOK_MODE;"] {
        let start = "mpiexec.mpich -n 2";
        let script = format!("{mode} {start} {} $PWD/file && sha256sum file", made.display());
        let beside = run(&script);
        beside.assert_same();
        beside.assert_served(2);
        assert_eq!(beside.summary["past"]["programs"], serde_json::json!([]), "{mode}");
    }
}
