//! What a person meets on the command line: what is said, when, and how much of it.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod launched;
mod mount;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use launched::said;

fn terral(arguments: &[&str]) -> Command {
    let mut command = Command::new(beside::built("terral"));
    command.args(arguments).env_remove("TERRAL_INSTANCE");
    command
}

fn run(to: &Path, options: &[&str], script: &str) -> Command {
    let mut command = terral(&["run", "--memory", "128M", "--to"]);
    command.arg(to).args(options).args(["--", "sh", "-c", script]);
    command
}

/// The instance that a run's last words name is freed.
fn forget(said: &str) {
    let name = said.split("`terral recover ").nth(1).and_then(|rest| rest.split('`').next());
    let done = terral(&["recover", "--forget", name.expect("names the instance")]).output();
    assert!(done.expect("terral").status.success());
}

/// A `terral` whose standard error is read line by line.
struct Told(Child, std::io::Lines<BufReader<ChildStderr>>);

impl Told {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("terral");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        Told(child, lines)
    }

    fn until(&mut self, what: &str) -> String {
        let mut lines = self.1.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("never said: {what}"))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn writers_that_wait_for_a_full_directory_are_told_why() {
    let Some(to) = mount::Mount::tmpfs(40) else { return };
    let script = "head -c 400000000 /dev/zero > $TERRAL_DIR/big";
    let mut run = Told::start(run(to.path(), &[], script));
    let line = run.until("programs wait");
    assert!(line.contains("128 MiB of memory are full"), "{line}");
    assert!(line.contains(&*to.path().to_string_lossy()), "{line}");
    assert!(line.contains("No space left on device"), "{line}");
    to.remount("size=600m");
    let rest: Vec<String> = run.1.by_ref().map_while(Result::ok).collect();
    assert!(run.0.wait().expect("ends").success(), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("programs wait")), "said twice: {rest:?}");
    assert_eq!(fs::metadata(to.path().join("big")).expect("arrived").len(), 400_000_000);
}

#[test]
fn what_is_not_there_yet_is_said_once_for_each_cause() {
    let Some(to) = mount::Mount::tmpfs(4) else { return };
    let script = "for i in 1 2 3 4 5; do head -c 3000000 /dev/zero > $TERRAL_DIR/f$i; done";
    let output = run(to.path(), &["--wait-timeout", "2"], script).output().expect("terral");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains(" files") && said.contains(" NOT YET in "), "{said}");
    assert!(!said.contains("0 B NOT YET"), "{said}");
    assert_eq!(said.matches("\n  failed ").count(), 1, "{said}");
    let failed = said.lines().find(|line| line.starts_with("  failed ")).expect("said");
    assert!(failed.contains("No space left on device; free some there"), "{failed}");
    assert!(failed.contains("(f") && failed.contains(" more)"), "{failed}");
    // Why, and no guess how long it takes.
    let progress = said.lines().find(|line| line.contains("trying again")).expect("shown");
    assert!(progress.contains("No space left on device"), "{progress}");
    assert!(!progress.contains("/s, about"), "{progress}");
    forget(&said);
}

#[test]
fn a_directory_that_is_no_instance_is_neither_used_as_one_nor_removed() {
    let home = tempfile::tempdir().expect("directory");
    let (to, foreign) = (home.path().join("to"), home.path().join("foreign"));
    fs::create_dir_all(foreign.join("log")).expect("makes");
    fs::write(foreign.join("shadow"), "theirs").expect("writes");
    fs::write(foreign.join("log/old"), "theirs").expect("writes");
    let path = foreign.to_str().expect("a path");
    let refused = |mut command: Command, code: i32| {
        let output = command.output().expect("terral");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        let left = |name: &str| fs::read_to_string(foreign.join(name)).expect("is still there");
        assert_eq!((left("shadow"), left("log/old")), ("theirs".into(), "theirs".into()));
        assert_eq!(fs::read_dir(&foreign).expect("lists").count(), 2, "nothing was made there");
    };
    refused(run(&to, &["--instance", path], "true"), 125);
    refused(terral(&["recover", "--forget", path]), 1);
    refused(terral(&["recover", path]), 1);
    refused(run(&to, &["--instance", path, "--keep"], "true"), 125);
}

#[test]
fn a_name_that_would_lead_elsewhere_is_refused() {
    let to = tempfile::tempdir().expect("directory");
    // None of these can be an instance of anybody's, wherever it is looked for.
    for name in ["a/no-instance", "../no-instance", ".no-instance", "/no-instance/..", "a\x1bb"] {
        let named = [
            run(to.path(), &["--instance", name], "echo ran"),
            terral(&["serve", "--memory", "64M", "--name", name]),
            terral(&["recover", "--forget", name]),
            terral(&["status", "--instance", name]),
        ];
        for mut command in named {
            let output = command.output().expect("terral");
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
            let lines = said.lines().filter(|line| line.contains("invalid value")).count();
            assert_eq!((lines, said.contains('\x1b')), (1, false), "{command:?}: {said}");
            assert!(output.stdout.is_empty(), "nothing ran");
        }
    }
    let variable = terral(&["status"]).env("TERRAL_INSTANCE", "..").output().expect("terral");
    assert_eq!(variable.status.code(), Some(2), "{}", said(&variable));
    assert_eq!(fs::read_dir(to.path()).expect("lists").count(), 0);
}

#[test]
fn what_lies_in_an_instance_and_is_none_of_its_parts_stays_and_is_named() {
    let home = tempfile::tempdir_in("/dev/shm").expect("room");
    let (to, instance) = (home.path().join("to"), home.path().join("instance"));
    let path = instance.to_str().expect("a path");
    let script = format!("echo a > $TERRAL_DIR/a; mkdir {path}/mine; echo b > {path}/mine/b");
    let ran = run(&to, &["--instance", path], &script).output().expect("terral");
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    let named = format!("{path} stays: it has mine in it, which is not Terral's");
    assert!(said(&ran).contains(&named), "{}", said(&ran));
    assert_eq!(fs::read_to_string(to.join("a")).expect("arrived"), "a\n");
    assert_eq!(fs::read_to_string(instance.join("mine/b")).expect("is there"), "b\n");
    assert_eq!(fs::read_dir(&instance).expect("lists").count(), 1, "its memory is free");
    fs::remove_dir_all(instance.join("mine")).expect("removes");
    let ran = run(&to, &["--instance", path], "cat $TERRAL_DIR/a").output().expect("terral");
    assert!(ran.status.success() && !instance.exists(), "{}", said(&ran));
}

#[test]
fn a_quiet_run_that_goes_well_says_nothing() {
    let to = tempfile::tempdir().expect("directory");
    let new = to.path().join("new");
    let output = run(&new, &["--quiet"], "echo x > $TERRAL_DIR/x").output().expect("terral");
    assert!(output.status.success());
    assert_eq!(said(&output), "");
    let Some(full) = mount::Mount::tmpfs(1) else { return };
    let script = "head -c 3000000 /dev/zero > $TERRAL_DIR/f";
    let options = ["--quiet", "--wait-timeout", "1"];
    let said = said(&run(full.path(), &options, script).output().expect("terral"));
    assert!(said.contains("NOT YET in"), "{said}");
    forget(&said);
}

/// A server that stays, of a name nobody else has.
struct Serve {
    told: Told,
    home: tempfile::TempDir,
}

impl Serve {
    fn start(to: &Path) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let mut command = terral(&["serve", "--memory", "128M", "--to"]);
        command.arg(to).arg("--name").arg(home.path().join("instance"));
        let mut told = Told::start(command);
        told.until("use it: ");
        let serve = Serve { told, home };
        let begin = Instant::now();
        while !serve.terral(&["status"]).output().expect("terral").status.success() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not come up");
        }
        serve
    }

    fn instance(&self) -> PathBuf {
        self.home.path().join("instance")
    }

    fn terral(&self, arguments: &[&str]) -> Command {
        let mut command = terral(arguments);
        command.env("TERRAL_INSTANCE", self.instance());
        command
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.terral(arguments).output().expect("terral");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }
}

#[test]
fn stop_brings_all_and_ends_the_server() {
    let to = tempfile::tempdir().expect("directory");
    let mut serve = Serve::start(to.path());
    let local = to.path().join("local");
    fs::write(&local, "words").expect("writes");
    serve.says(&["put", local.to_str().expect("text"), "a"]);
    let stopped = serve.terral(&["stop"]).output().expect("terral");
    assert!(stopped.status.success(), "{}", said(&stopped));
    assert!(said(&stopped).contains("ended; all is in "), "{}", said(&stopped));
    assert!(serve.told.0.wait().expect("ends").success());
    assert!(!serve.instance().exists(), "its memory is not free");
    assert_eq!(fs::read(to.path().join("a")).expect("arrived"), b"words");
    assert_eq!(serve.terral(&["stop"]).output().expect("terral").status.code(), Some(69));
}

#[test]
fn stop_now_says_what_it_leaves_in_memory() {
    let Some(to) = mount::Mount::tmpfs(1) else { return };
    let serve = Serve::start(to.path());
    let home = tempfile::tempdir().expect("directory");
    let local = home.path().join("local");
    fs::write(&local, vec![7; 3_000_000]).expect("writes");
    serve.says(&["put", local.to_str().expect("text"), "a"]);
    let stopped = serve.terral(&["stop", "--now"]).output().expect("terral");
    assert_eq!(stopped.status.code(), Some(74), "{}", said(&stopped));
    assert!(said(&stopped).contains(" in 1 file"), "{}", said(&stopped));
    assert!(serve.instance().join("log").exists());
}

#[test]
fn trees_are_copied_in_listed_and_copied_out() {
    let to = tempfile::tempdir().expect("directory");
    let serve = Serve::start(to.path());
    let home = tempfile::tempdir().expect("directory");
    let make = "mkdir -p case/sub/deep empty && cd case && printf one > a && printf two > sub/b \
                && : > sub/deep/c && ln -s ../a sub/link && chmod 700 a && mkfifo -m 600 pipe";
    let made = Command::new("sh").args(["-c", make]).current_dir(home.path()).status();
    assert!(made.expect("sh").success());
    let refused = serve.terral(&["put", "case", "case"]).current_dir(home.path()).output();
    assert!(said(&refused.expect("terral")).contains("-r copies it"));
    let socket = home.path().join("case/socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
    let put = serve.terral(&["put", "-r", "case", "case"]).current_dir(home.path()).output();
    let put = put.expect("terral");
    assert!(said(&put).contains("case/socket: a device or a socket: left out"), "{}", said(&put));
    assert_eq!(put.status.code(), Some(1), "one was left out");
    fs::remove_file(socket).expect("removes");
    let listed = serve.says(&["ls", "-R", "case"]);
    assert_eq!(listed, "a\npipe\nsub/\nsub/b\nsub/deep/\nsub/deep/c\nsub/link\n");
    let long = serve.says(&["ls", "-l", "case"]);
    assert!(long.lines().any(|line| line.starts_with("prw-------") && line.ends_with(" pipe")));
    serve.says(&["wait", "case/pipe"]);
    let stat = serve.says(&["stat", "case/pipe"]);
    assert!(stat.contains("FIFO, mode 0600") && stat.contains("as it is now"), "{stat}");
    serve.says(&["mkdir", "-p", "new/below"]);
    assert!(!serve.terral(&["mkdir", "new"]).output().expect("terral").status.success());
    assert_eq!(serve.says(&["ls"]), "case/\nnew/\n");
    let copy = home.path().join("copy");
    serve.says(&["get", "-r", "case", copy.to_str().expect("text")]);
    for (name, kept) in [("copy/pipe", true), ("case/pipe", false)] {
        let pipe = home.path().join(name);
        let found = fs::symlink_metadata(&pipe).expect("is there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions());
        assert_eq!(mode, 0o10600, "{name}, copied: {kept}");
        fs::remove_file(pipe).expect("removes");
    }
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference", "case", "copy"]).current_dir(home.path());
    let same = diff.output().expect("diff");
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
    let mode = |name: &str| {
        let found = fs::metadata(home.path().join(name)).expect("is there");
        std::os::unix::fs::PermissionsExt::mode(&found.permissions())
    };
    assert_eq!(mode("copy/a"), mode("case/a"));
    serve.says(&["stop"]);
}

#[test]
fn names_do_nothing_to_a_terminal_and_are_whole_in_json() {
    let to = tempfile::tempdir().expect("directory");
    let serve = Serve::start(to.path());
    let home = tempfile::tempdir().expect("directory");
    let name = OsStr::from_bytes(b"a\x1b[2J\n%\xe9");
    fs::write(home.path().join("local"), "words").expect("writes");
    let told = |arguments: &[&str]| {
        let mut command = serve.terral(arguments);
        let output = command.arg(name).current_dir(home.path()).output().expect("terral");
        (output.status.code(), String::from_utf8(output.stdout.clone()).expect("text"), output)
    };
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let is_tame = |text: &str| !text.chars().any(|one| one.is_control() && one != '\n');
    let (text, bytes) = ("a\u{1b}[2J\n%\u{fffd}", "a%1B[2J%0A%25%E9");
    let put = json(&told(&["put", "--json", "local"]).1);
    assert_eq!((&put["path"], &put["path_bytes"]), (&text.into(), &bytes.into()));
    let stat = told(&["stat"]).1;
    assert!(stat.starts_with("a?[2J?%\u{fffd}\n  size") && is_tame(&stat), "{stat:?}");
    serve.says(&["wait"]);
    let safe = told(&["stat"]).1;
    assert!(safe.contains("/a?[2J?%\u{fffd}, as it is now") && is_tame(&safe), "{safe:?}");
    let stat = json(&told(&["stat", "--json"]).1);
    assert_eq!((&stat["path"], &stat["path_bytes"]), (&text.into(), &bytes.into()));
    let list = json(&serve.says(&["ls", "--json"]));
    assert_eq!((&list[0]["name"], &list[0]["name_bytes"]), (&text.into(), &bytes.into()));
    // A name that is text is there once.
    serve.says(&["mkdir", "plain"]);
    let list = json(&serve.says(&["ls", "--json"]));
    assert_eq!((&list[1]["name"], list[1].get("name_bytes")), (&"plain".into(), None));
    assert_eq!(told(&["rm"]).0, Some(0));
    let (code, _, missing) = told(&["stat"]);
    let missing = said(&missing);
    assert_eq!((code, missing.lines().count()), (Some(1), 1), "{missing:?}");
    assert!(missing.contains("a?[2J?%") && is_tame(&missing), "{missing:?}");
    serve.says(&["stop"]);
}
