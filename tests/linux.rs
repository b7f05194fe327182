//! What programs expect of a file system of Linux, answered as tmpfs answers it: each of
//! `programs/linux` prints what calls say, and prints the same on both. Not here: random mixtures
//! of calls (`differential`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beside::{Beside, built, compiled, on_path, run};
use rustix::process::Signal;

/// Runs a program of `programs/linux` on tmpfs and under `terral run`, and asserts that it prints
/// the same; `None` if it cannot be compiled.
fn same(name: &str) -> Option<Beside> {
    same_by(name, "$0")
}

/// As [`same`], by this script, in which `$0` is the program.
fn same_by(name: &str, script: &str) -> Option<Beside> {
    if !on_path("gcc") {
        return None;
    }
    let home = tempfile::tempdir().expect("directory");
    let program = compiled(&format!("linux/{name}"), home.path());
    let beside = run(&script.replace("$0", &program.display().to_string()));
    beside.assert_served(1);
    Some(beside)
}

#[test]
fn a_bad_address_is_an_errno_and_what_is_in_front_of_it_is_done() {
    if let Some(beside) = same("bad_addresses") {
        assert!(beside.text.contains("EFAULT"));
        beside.assert_same();
    }
}

#[test]
fn the_time_of_change_moves_with_writes_truncates_and_fallocate() {
    if let Some(beside) = same("change_times") {
        assert!(beside.text.contains("later"));
    }
}

#[test]
fn far_offsets_copies_to_itself_and_exchanges_are_answered_as_on_tmpfs() {
    if let Some(beside) = same("ends") {
        assert!(beside.text.contains("sendfile(fd, fd, NULL, count): 9"));
        beside.assert_same();
    }
}

#[test]
fn libc_writes_where_a_program_is_into_files() {
    if let Some(beside) = same("symbols") {
        let told = beside.text.lines().filter(|line| line.ends_with(": 1 ")).count();
        assert_eq!(told, 7, "{}", beside.text);
        beside.assert_same();
    }
}

#[test]
fn names_that_nothing_has_are_looked_for_where_they_shall_be() {
    if let Some(beside) = same("unused_names") {
        assert!(beside.text.contains("file/in-XXXXXX: 0"), "{}", beside.text);
        assert!(beside.text.contains("ENOTDIR"), "{}", beside.text);
        beside.assert_same();
    }
}

#[test]
fn private_pages_that_are_given_away_show_the_file_again() {
    same("maps");
}

#[test]
fn a_map_is_not_turned_to_another_part_or_another_file() {
    if !on_path("gcc") {
        return;
    }
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let program = compiled("linux/remapped", home.path());
    let mut terral = Command::new(built("terral"));
    terral.args(["run", "--to"]).arg(to.path()).args(["--", "sh", "-c"]);
    let script = format!("cd \"$TERRAL_DIR\" && {}", program.display());
    let output = terral.arg(script).output().expect("terral");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.starts_with("refused\n"), "{text}{errors}");
}

#[test]
fn the_limit_on_the_size_of_files_is_that_of_the_programs_file() {
    if let Some(beside) = same("file_limits") {
        assert!(beside.text.contains("EFBIG"));
        beside.assert_same();
    }
}

#[test]
fn a_program_that_runs_is_not_written_and_what_is_written_does_not_run() {
    if let Some(beside) = same("executed") {
        assert!(beside.text.contains("ETXTBSY"));
        beside.assert_same();
    }
}

#[test]
fn a_program_that_runs_is_not_written_after_the_servers_death_either() {
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let said = |name: &str| home.path().join(name);
    let script = format!(
        "cd \"$TERRAL_DIR\"; cp \"$(command -v sh)\" program; H={}
        ./program -c ': > $0/runs; until [ -e $0/tried ]; do sleep 0.02; done' $H &
        until [ -e $H/killed ]; do sleep 0.02; done
        echo x >> program; echo \"then $?\"; : > $H/tried; wait; echo >> program; echo \"then $?\"",
        home.path().display()
    );
    let mut terral = Command::new(built("terral"));
    terral.args(["run", "--to"]).arg(to.path()).args(["--", "sh", "-c", &script]);
    let run = terral.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terral");
    let begin = Instant::now();
    while !said("runs").exists() && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    descendants::send(descendants::server(run.id()).expect("a server"), Signal::KILL);
    fs::write(said("killed"), "").expect("writes");
    let output = run.wait_with_output().expect("ends");
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success() && errors.contains("Text file busy"), "{text}{errors}");
    assert!(text.starts_with("then 2\nthen 0\n") || text.starts_with("then 1\nthen 0\n"), "{text}");
}

#[test]
fn descriptors_are_controlled_and_names_have_limits() {
    if let Some(beside) = same("controls") {
        assert!(beside.text.contains("F_SETLEASE") && beside.text.contains("ftok"));
    }
}

#[test]
fn bytes_go_through_pipes_as_far_as_they_can() {
    if let Some(beside) = same("pipes") {
        beside.assert_same();
    }
}

#[test]
fn holes_take_no_blocks() {
    if let Some(beside) = same("holes") {
        assert!(beside.text.contains("a tebibyte: 1099511627776 bytes"));
    }
}

#[test]
fn files_have_as_many_names_as_they_are_given() {
    same("links");
}

#[test]
fn a_descriptor_of_a_path_and_flags_of_open_are_what_they_are() {
    if let Some(beside) = same("paths") {
        beside.assert_same();
    }
}

#[test]
fn arguments_without_sense_are_refused_as_they_are_there() {
    if let Some(beside) = same("arguments") {
        assert!(beside.text.contains("openat2"));
    }
}

#[test]
fn a_program_is_called_as_if_it_ran_from_there() {
    if let Some(beside) = same("itself") {
        assert!(beside.text.contains("my program: /program"));
    }
}

#[test]
fn names_in_odd_places_are_found_or_refused_as_they_are_there() {
    if let Some(beside) = same("places") {
        assert!(beside.text.contains("EINVAL"));
        beside.assert_same();
    }
}

#[test]
fn files_are_read_and_written_without_a_descriptor_left() {
    if let Some(beside) = same("descriptors") {
        assert!(beside.text.contains("EMFILE"));
        beside.assert_same();
    }
}

#[test]
fn another_user_reads_and_writes_without_a_descriptor_left() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: acting as another user needs root");
        return;
    }
    if let Some(beside) = same_by("descriptors", "$0 65534") {
        assert!(beside.text.contains("EMFILE"));
        beside.assert_same();
    }
}

#[test]
fn a_program_goes_on_when_its_first_thread_has_ended() {
    if let Some(beside) = same_by("leaderless", "umask 077; HERE=$PWD $0") {
        assert!(beside.text.contains("of-the-child: mode 600"), "{}", beside.text);
        beside.assert_same();
    }
}

#[test]
fn a_server_has_limits_of_its_own() {
    let to = tempfile::tempdir().expect("to");
    let script = "cd \"$TERRAL_DIR\" && head -c 900000 /dev/zero > whole";
    let terral = built("terral");
    let command = format!(
        "ulimit -Sf 1000; exec {} run --to {} -- sh -c '{script}'",
        terral.display(),
        to.path().display()
    );
    // Units of 1,024 bytes, as bash has them.
    let output = Command::new("bash").args(["-c", &command]).output().expect("bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let arrived = std::fs::metadata(to.path().join("whole")).expect("arrived").len();
    assert_eq!(arrived, 900_000);
}
