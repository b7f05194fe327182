//! Errors that a program can meet under Terral, each where the page of what is promised says so:
//! real programs, under `terral run`. Not here: what tmpfs refuses as well (`differential`,
//! `linux`), memory that is full (`full_memory`, `maps`), a spill that fails (`spill`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod launched;
mod process;
mod served;

use std::path::Path;
use std::process::Output;

use beside::{compiled, on_path, text_of};
use launched::{run_to, said, terral, until};
use served::Served;

/// Runs one of `tests/programs/refusals.c`'s words under Terral, which must have served it.
fn refused(word: &str) {
    if !on_path("gcc") {
        return;
    }
    let homes = [(); 3].map(|()| tempfile::tempdir().expect("directory"));
    let [home, to, outside] = &homes;
    let program = compiled("refusals", home.path());
    let mut run = run_to(to.path(), &["--json", "--cwd"]);
    let output = run.arg("--").arg(program).arg(word).arg(outside.path()).output();
    let text = text_of(&output.expect("terral"));
    let (said, summary) = text.trim_end().rsplit_once('\n').expect("two lines");
    if said.starts_with("skipped: ") {
        return println!("{said}");
    }
    assert_eq!(said, "as promised");
    assert_served(summary);
}

fn assert_served(summary: &str) {
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    let opens = summary.pointer("/totals/opens").and_then(serde_json::Value::as_u64);
    assert!(opens.is_some_and(|opens| opens > 0), "{summary}");
}

#[test]
fn links_and_renames_between_the_prefix_and_elsewhere_are_exdev_and_mv_copies() {
    refused("elsewhere");
    let (to, outside) = (tempfile::tempdir().expect("is"), tempfile::tempdir().expect("is"));
    std::fs::write(outside.path().join("in"), b"comes").expect("writes");
    let script = format!("echo goes > out && mv out {0}/ && mv {0}/in .", outside.path().display());
    let mut run = run_to(to.path(), &["--cwd"]);
    let output = run.args(["--", "sh", "-c", &script]).output().expect("terral");
    assert!(output.status.success(), "{}", said(&output));
    let read = |path: &Path| std::fs::read(path).expect("is there");
    assert_eq!(read(&outside.path().join("out")), b"goes\n");
    assert_eq!(read(&to.path().join("in")), b"comes");
    assert!(!to.path().join("out").exists() && !outside.path().join("in").exists());
}

#[test]
fn devices_and_links_to_directories_are_eperm() {
    refused("kinds");
}

#[test]
fn terrals_own_names_are_eacces_in_the_root_and_anybodys_below() {
    refused("own");
}

#[test]
fn a_file_has_less_than_256_tib() {
    refused("far");
}

#[test]
fn more_open_files_than_there_may_be_are_enfile_until_one_is_closed() {
    refused("files");
}

#[test]
fn more_processes_than_there_may_be_are_enfile_until_one_has_ended() {
    refused("processes");
}

#[test]
fn the_65th_generation_of_forks_is_enfile() {
    refused("generations");
}

#[test]
fn what_is_not_offered_is_refused_with_the_error_that_is_promised() {
    refused("not-offered");
}

#[test]
fn a_library_under_the_prefix_is_not_found_by_the_dynamic_linker_alone() {
    if !on_path("gcc") {
        return;
    }
    let to = tempfile::tempdir().expect("directory");
    let script = "echo 'int x(void) { return 0; }' > x.c && echo 'int x(void); int main(void) { \
                  return x(); }' > main.c && gcc -shared -fPIC -o libx.so x.c && gcc -o main \
                  main.c -L. -lx && LD_LIBRARY_PATH=$TERRAL_DIR ./main; echo $?";
    let mut run = run_to(to.path(), &["--cwd"]);
    let output = run.args(["--", "sh", "-c", script]).output().expect("terral");
    assert_eq!(text_of(&output), "127\n", "{}", said(&output));
    assert!(said(&output).contains("libx.so"), "{}", said(&output));
    let mut outside = std::process::Command::new(to.path().join("main"));
    assert!(outside.env("LD_LIBRARY_PATH", to.path()).status().expect("runs").success());
}

#[test]
fn a_server_that_is_gone_for_good_is_enotconn_once_after_10_s_and_then_at_once() {
    if !on_path("gcc") {
        return;
    }
    let homes = [(); 3].map(|()| tempfile::tempdir().expect("directory"));
    let [home, to, outside] = &homes;
    let program = compiled("refusals", home.path());
    let name = format!("gone-{}", std::process::id());
    let mut serve = terral();
    serve.args(["serve", "--name", &name, "--memory", "128M", "--to"]).arg(to.path());
    let mut server = process::Process(serve.spawn().expect("terral"));
    let is_up = || terral().args(["ls", "--instance", &name]).output().expect("terral");
    until("the server answers", || is_up().status.success());
    let mut run = terral();
    run.args(["run", "--instance", &name, "--cwd", "--"]).arg(program).arg("gone");
    let run = run.arg(outside.path()).spawn().expect("terral");
    until("the program is there", || outside.path().join("ready").exists());
    server.kill();
    std::fs::write(outside.path().join("killed"), "").expect("writes");
    let output = run.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "as promised\n", "{}", said(&output));
    assert!(said(&output).contains("is gone"), "{}", said(&output));
    let recovered = terral().args(["recover", &name]).output().expect("terral");
    assert!(recovered.status.success(), "{}", said(&recovered));
    assert_eq!(std::fs::read(to.path().join("file")).expect("arrived"), b"x");
}

#[test]
fn what_only_a_broken_directory_has_is_eio_and_the_rest_goes_on() {
    let homes = [(); 3].map(|()| tempfile::tempdir().expect("directory"));
    let [beneath, at, home] = &homes;
    std::fs::write(beneath.path().join("large"), vec![b'l'; 9 << 20]).expect("writes");
    std::fs::create_dir(beneath.path().join("directory")).expect("makes");
    std::fs::write(beneath.path().join("directory/unread"), "x").expect("writes");
    let Some(served) = Served::mount(beneath.path(), at.path(), &[]) else { return };
    let script = format!(
        "head -c 5 large; : > {0}/ready; until [ -e {0}/broken ]; do sleep 0.02; done
        tail -c 5 large; cat directory/unread; ls .; cat new; head -c 5 large; stat -c %s large",
        home.path().display()
    );
    let mut run = run_to(at.path(), &["--json", "--cwd"]);
    let run = run.args(["--", "sh", "-c", &script]).spawn().expect("terral");
    until("the program has read", || home.path().join("ready").exists());
    drop(served);
    std::fs::write(home.path().join("broken"), "").expect("writes");
    let output: Output = run.wait_with_output().expect("ends");
    let text = text_of(&output);
    let (seen, summary) = text.trim_end().rsplit_once('\n').expect("several lines");
    assert_eq!(seen, "llllllllll9437184", "{}", said(&output));
    assert_served(summary);
    let errors = said(&output);
    assert_eq!(errors.matches("Input/output error").count(), 4, "{errors}");
}
