//! Scientific programs over several machines, as their users start them: real servers, real
//! programs, a real network between namespaces. Not here: what they do on one machine (`programs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod melt;
mod namespaces;
mod ranks;

use std::fs;
use std::path::Path;

use beside::on_path;
use launched::said;
use namespaces::Machines;
use ranks::by_open_mpi;

/// Makes a file with a data set, adds one to it, or says what is in it.
const HDF5: &str = r#"
import h5py, numpy, sys
what, path = sys.argv[1:3]
with h5py.File(path, {"make": "w", "add": "r+", "say": "r"}[what]) as f:
    if what == "say": print({name: float(f[name][...].sum()) for name in sorted(f)})
    else: f[what] = numpy.arange(100000.)
"#;

/// Puts ten numbers into a table, in ten transactions.
const PUT: &str = r#"
for i in 1 2 3 4 5 6 7 8 9 10; do
    sqlite3 -cmd ".timeout 60000" /terral/b.db "insert into t values ($1 * 100 + $i)" || echo failed
done
"#;

/// Each rank writes files of its own, and the first one those of all.
const OF_EACH: &str = "dump 2 all custom 10 dump.%.part id x y z
restart 50 parts.*.%
run 100
write_data data.melt
";

fn ran(machines: &Machines, options: &[&str], script: &str) -> String {
    let output = machines.run_with(options, script);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn hdf5_files_that_another_machine_has_written_are_read_and_changed() {
    let Some(machines) = Machines::new(3) else { return };
    let program = machines.home().join("hdf5.py");
    fs::write(&program, HDF5).expect("writes");
    let python = format!("/usr/bin/python3 {}", program.display());
    let said = ran(
        &machines,
        &[],
        &format!(
            "on h1 '{python} make /terral/a.h5'
            {python} say a.h5; on h2 '{python} say /terral/a.h5'; {python} add a.h5
            on h2 '{python} say /terral/a.h5'; on h1 '{python} say /terral/a.h5'"
        ),
    );
    let (one, both) = ("{'make': 4999950000.0}", "{'add': 4999950000.0, 'make': 4999950000.0}");
    assert_eq!(said.lines().collect::<Vec<_>>(), [one, one, both, both]);
}

#[test]
fn a_database_of_sqlite_that_three_machines_write_at_once_has_all_and_is_whole() {
    let Some(machines) = Machines::new(3) else { return };
    if !on_path("sqlite3") {
        return;
    }
    let put = machines.home().join("put.sh");
    fs::write(&put, PUT).expect("writes");
    // Each waits for its turn, by the locks of the file.
    let said = ran(
        &machines,
        &[],
        &format!(
            "put={}
        on h1 'sqlite3 /terral/b.db \"create table t(x integer primary key)\"'
        for at in 0 1 2; do on h$at \"sh $put $at\" & done; wait
        check='select count(*) from t; pragma integrity_check'
        sqlite3 b.db \"$check\"; on h2 \"sqlite3 /terral/b.db \\\"$check\\\"\"",
            put.display()
        ),
    );
    assert_eq!(said, "30\nok\n30\nok\n");
}

/// LAMMPS on all machines.
fn ranks(machines: &Machines, directory: &Path) -> String {
    let each = "sh -c 'exec lmp -in in.melt -log none -screen none'";
    by_open_mpi(machines, directory, each)
}

/// None ends at once: of such ones MPICH's `mpiexec` loses now and then what they print, as it dies
/// of SIGPIPE, whatever they are (docs/launchers.md).
#[test]
fn mpich_starts_programs_of_the_run_in_its_directories_on_all_machines() {
    let Some(machines) = Machines::new(3) else { return };
    if !on_path("mpiexec.mpich") {
        return;
    }
    let each = "mpiexec.mpich -hosts 10.77.0.1,10.77.0.2,10.77.0.3 -n 3";
    let script = format!(
        "cp $(which sh) shell; mkdir sub; cd sub
        {each} sh -c 'hostname > rank$PMI_RANK; sleep 0.2' || echo first: $?
        {each} ../shell -c 'hostname; sleep 0.2' > ../second || echo second: $?
        cd ..; {each} ./shell -c 'hostname; sleep 0.2' > third || echo third: $?
        cat sub/rank0 sub/rank1 sub/rank2; echo; sort second; echo; sort third"
    );
    let mut command = machines.begin(&["--cwd"], &script);
    let run = command.env("PATH", machines.path_with_ssh()).spawn().expect("starts");
    let output = descendants::ended(run);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        ["h0\nh1\nh2\n"; 3].join("\n"),
        "{}",
        said(&output)
    );
    assert_eq!(machines.left(0), "", "nothing stays in memory");
}

#[test]
fn lammps_over_three_machines_leaves_the_same_files_as_in_one_directory() {
    let Some(machines) = Machines::new(3) else { return };
    if !on_path("lmp") || !on_path("mpiexec.openmpi") {
        return;
    }
    let (to, plain) = (machines.home().join("to"), machines.home().join("plain"));
    for directory in [&to, &plain] {
        fs::create_dir(directory).expect("makes");
        fs::write(directory.join("in.melt"), melt::input(8) + OF_EACH).expect("writes");
    }
    let reference = machines.shell_on(0, &ranks(&machines, &plain));
    assert!(reference.status.success(), "{}", said(&reference));
    // On each machine all are to be seen, too.
    let here = "for at in 0 1 2; do on h$at 'wc -c < /terral/dump.'$at'.part'; done";
    let script = format!("{}; {here}", ranks(&machines, Path::new("/terral")));
    let sizes = ran(&machines, &["--to", &to.display().to_string()], &script);
    let names = |directory: &Path| {
        let names = fs::read_dir(directory).expect("lists").map(|entry| {
            entry.expect("an entry").file_name().into_string().expect("a name of LAMMPS")
        });
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&to), names(&plain));
    assert!(names(&plain).iter().any(|name| name == "parts.100.2"), "{:?}", names(&plain));
    for name in names(&plain) {
        let [ours, theirs] = [&to, &plain].map(|at| fs::read(at.join(&name)).expect("reads"));
        assert!(ours == theirs, "{name}: {} bytes, {} without", ours.len(), theirs.len());
    }
    assert_eq!(sizes.lines().count(), 3, "{sizes}");
}
