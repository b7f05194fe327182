//! Programs of scientists and of those who serve them, unmodified: the same output and files as on
//! tmpfs, and Terral served the calls. `make test` as root installs all of them: there, one that is
//! missing is a failure; elsewhere it is printed as skipped. Not here: MPI-IO calls by themselves
//! (`mpi`), node (`bypass`), simulations (`programs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod user;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beside::{assert_lines, built, program, run, text_of};
use user::{ordinary, permit};

const OPEN_MPI: &str = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    MPI4PY_MPIABI=openmpi; mpiexec.openmpi --oversubscribe -n 4";
/// Programs from PyPI, by version and hash (`tests/programs/science/packages.txt`).
const PACKAGES: &str = "target/test-packages";

/// Whether all of these paths are there; where they can be installed they must be.
fn there(what: &str, paths: &[&str]) -> bool {
    let missing = paths.iter().find(|path| !Path::new(path).exists());
    let Some(missing) = missing else { return true };
    assert!(!user::is_root(), "{what}: {missing} is missing: make deps");
    println!("skipped: {what}: {missing} is not installed");
    false
}

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the checkout").join(PACKAGES)
}

/// Whether what PyPI has is there.
fn python_is_there(what: &str, modules: &[&str]) -> bool {
    let packages = packages();
    let paths: Vec<String> = modules
        .iter()
        .map(|module| match module.strip_prefix("pypi:") {
            Some(own) => packages.join(own).display().to_string(),
            None => format!("/usr/lib/python3/dist-packages/{module}"),
        })
        .collect();
    there(what, &paths.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The environment of programs that use the packages.
fn python() -> String {
    let path = packages();
    format!("PYTHONPATH={} PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3", path.display())
}

/// A path of what these tests run.
fn ours(name: &str) -> String {
    program("science").join(name).display().to_string()
}

// MPI.

/// Debian's MPICH under the name that mpi4py's wheel asks for.
fn mpich(home: &Path) -> String {
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    std::os::unix::fs::symlink(library, home.join("libmpi.so.12")).expect("links");
    format!("export LD_LIBRARY_PATH={} MPI4PY_MPIABI=mpich; mpiexec.mpich -n 2", home.display())
}

fn has_mpi4py() -> bool {
    python_is_there("mpi4py", &["pypi:mpi4py", "pypi:mpi4py-source/test/main.py", "numpy"])
        && there("mpi4py", &["/usr/bin/mpiexec.mpich", "/usr/bin/mpiexec.openmpi"])
}

/// mpi4py's own tests of files, as its source has them, under Terral alone: they know what is
/// right.
fn mpi4py(start: &str, but: &str) {
    let main = packages().join("mpi4py-source/test/main.py");
    let to = tempfile::tempdir().expect("directory");
    let script = format!(
        "cd $TERRAL_DIR && export TMPDIR=$PWD && {start} env {} {} {but} test_io test_file",
        python(),
        main.display()
    );
    let mut command = Command::new(built("terral"));
    command.args(["run", "--json", "--to"]).arg(to.path()).args(["--", "sh", "-c", &script]);
    let output = command.output().expect("runs");
    let text = text_of(&output);
    let summary = text.trim_end().lines().next_back().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    let opens = summary.pointer("/totals/opens").and_then(serde_json::Value::as_u64);
    assert!(opens.is_some_and(|opens| opens > 100), "{summary}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn the_tests_of_mpi4py_pass_under_mpich() {
    if has_mpi4py() {
        let home = tempfile::tempdir().expect("directory");
        mpi4py(&mpich(home.path()), "");
    }
}

#[test]
fn the_tests_of_mpi4py_pass_under_open_mpi_by_ompio() {
    if has_mpi4py() {
        mpi4py(&format!("{OPEN_MPI} --mca io ompio"), "");
    }
}

#[test]
fn the_tests_of_mpi4py_pass_under_open_mpi_by_romio() {
    if has_mpi4py() {
        // Nonblocking calls by Debian's ROMIO end in a segmentation fault on tmpfs, too.
        mpi4py(&format!("{OPEN_MPI} --mca io romio321"), "-x testIReadIWrite");
    }
}

#[test]
fn ranks_share_a_numpy_map() {
    if has_mpi4py() {
        let home = tempfile::tempdir().expect("directory");
        let script = format!("{} env {} {}", mpich(home.path()), python(), ours("memmap.py"));
        let beside = run(&script);
        beside.assert_same();
        beside.assert_served(3);
    }
}

#[test]
fn pnetcdf_programs_read_what_they_wrote() {
    let parts = ["/usr/bin/mpicc.openmpi", "/usr/include/pnetcdf.h"];
    if !there("PnetCDF", &parts) {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = home.path().join("pnetcdf");
    let mut compiler = Command::new("mpicc.openmpi");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&made);
    let status = compiler.args([&ours("pnetcdf.c"), "-lpnetcdf"]).status().expect("compiler");
    assert!(status.success(), "pnetcdf.c does not compile");
    let beside = run(&format!("{OPEN_MPI} {}", made.display()));
    beside.assert_same();
    beside.assert_served(4);
}

// Others.

#[test]
fn safetensors_reads_what_it_saved() {
    if python_is_there("safetensors", &["pypi:safetensors", "numpy"]) {
        let beside = run(&format!("{} {}", python(), ours("tensors.py")));
        beside.assert_same();
        beside.assert_served(150);
        assert_eq!(beside.summary["past"]["programs"], serde_json::json!([]));
    }
}

#[test]
fn ruff_checks_and_formats_a_package() {
    if python_is_there("ruff", &["pypi:bin/ruff"]) {
        let ruff = packages().join("bin/ruff");
        let beside = run(&format!("sh {} {}", ours("lint.sh"), ruff.display()));
        beside.assert_same();
        beside.assert_served(50);
        assert_eq!(beside.summary["past"]["programs"], serde_json::json!([]));
    }
}

#[test]
fn hdf5_netcdf_and_torch_read_what_they_wrote() {
    let modules = ["h5py", "netCDF4", "torch", "numpy"];
    if python_is_there("arrays", &modules) {
        let beside = run(&format!("{} {}", python(), ours("arrays.py")));
        beside.assert_same();
        beside.assert_served(8);
    }
}

#[test]
fn two_writers_share_a_database_of_sqlite_with_a_write_ahead_log() {
    let beside = run(&format!("/usr/bin/python3 {}; rm wal.db", ours("wal.py")));
    beside.assert_same();
    beside.assert_served(3);
}

#[test]
fn java_uses_channels_maps_and_locks() {
    if there("java", &["/usr/bin/java", "/usr/bin/javac"]) {
        let beside = run(&format!(
            "javac -d . {} && java -XX:-UsePerfData FilesOfJava && rm *.class",
            ours("Files.java")
        ));
        beside.assert_same();
        beside.assert_served(5);
    }
}

#[test]
fn r_reads_what_it_wrote() {
    if there("R", &["/usr/bin/Rscript"]) {
        let beside = run(&format!("Rscript --vanilla {}", ours("files.R")));
        beside.assert_same();
        beside.assert_served(30);
    }
}

#[test]
fn an_ordinary_user_makes_starts_and_stops_postgresql() {
    let setpriv = ["/usr/bin/setpriv", "/usr/lib/postgresql"];
    if !there("PostgreSQL", &setpriv) {
        return;
    }
    let programs = user::programs();
    let script = programs.path().join("postgres.sh");
    fs::copy(ours("postgres.sh"), &script).expect("copies");
    let (to, plain) =
        (tempfile::tempdir().expect("room"), tempfile::tempdir_in("/dev/shm").expect("room"));
    permit(to.path(), 0o777);
    permit(plain.path(), 0o777);
    let shell = format!("cd $TERRAL_DIR && sh -e {}", script.display());
    let mut expected = ordinary(Path::new("/bin/sh"));
    let expected = expected.args(["-c", &shell]).env("TERRAL_DIR", plain.path()).output();
    let expected = text_of(&expected.expect("runs"));
    let mut command = ordinary(&programs.path().join("terral"));
    command.args(["run", "--json", "--to"]).arg(to.path()).args(["--", "sh", "-c", &shell]);
    let said = text_of(&command.output().expect("runs"));
    let at = said.trim_end().rfind('\n').map_or(0, |at| at + 1);
    assert_lines(&said[..at], &expected);
    let summary: serde_json::Value = serde_json::from_str(&said[at..]).expect("JSON");
    assert_eq!(summary["state"], "arrived", "{summary}");
    assert!(to.path().join("data/PG_VERSION").exists(), "the cluster arrived");
}
