//! What a user of a machine may do to root's server, and to those of others, who has a shell there:
//! he puts things in the place of what is his, comes thousands of times, and from elsewhere. Needs
//! root.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use all_users::{ALICE, BOB, Machine, PATIENCE, is_root, set, text};

/// As a user, and for so long at most.
fn as_user(user: u32, script: &str) -> std::process::Output {
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", script]).uid(user).gid(user).current_dir("/");
    command.stdin(Stdio::null()).output().expect("runs")
}

/// Ends all that is his of this machine's.
fn end_all(machine: &Machine) {
    let begin = Instant::now();
    loop {
        let all = machine.processes(BOB);
        if all.is_empty() {
            return;
        }
        for (pid, _) in all {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_he_puts_in_the_place_of_his_memory_keeps_nobody_else_waiting() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("fifo");
    machine.done(BOB, "echo one > /terral/bob/f");
    let instance = machine.instance(BOB);
    let shown = instance.display();
    for what in ["mkfifo lock", "ln -s /dev/zero lock", "mkdir lock", "mkfifo tables"] {
        end_all(&machine);
        let name = what.rsplit_once(' ').expect("two words").1;
        let done = as_user(BOB, &format!("cd {shown} && rm -rf {name} && {what}"));
        assert!(done.status.success(), "{what}: {}", text(&done));
        let mut his = machine.terral(BOB);
        his.args(["run", "-q", "--instance", &machine.name, "--", "true"]);
        his.stdout(Stdio::null()).stderr(Stdio::null());
        let mut his = his.spawn().expect("starts");
        let begin = Instant::now();
        machine.done(ALICE, "echo hers > /terral/alice/f && cat /terral/alice/f");
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
        let _ = his.kill();
        let _ = his.wait();
    }
    // With nothing left of it he has another one.
    end_all(&machine);
    fs::remove_dir_all(&instance).expect("root may");
    machine.done(BOB, "ls /terral/bob; echo two > /terral/bob/g");
    assert_eq!(machine.done(0, "cat /terral/bob/g"), "two\n");
    machine.end();
}

#[test]
fn a_directory_of_roots_where_his_staging_is_looked_for_stays_roots() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("staging");
    let place = machine.dir(&format!(".terral-{BOB}"));
    fs::create_dir(&place).expect("makes");
    fs::write(place.join("key"), "root's").expect("writes");
    set(&place, 0, 0o700);
    let said = machine.sh(BOB, "true");
    assert!(!said.status.success() && text(&said).contains("somebody else's"), "{}", text(&said));
    let found = fs::metadata(&place).expect("there");
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o700));
    assert_eq!(fs::metadata(place.join("key")).expect("there").uid(), 0);
    fs::remove_dir_all(&place).expect("root may");
    machine.done(BOB, "echo one > /terral/bob/f");
    machine.end();
}

#[test]
fn his_server_has_his_limits_and_nothing_of_roots_terminal() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("limits");
    let program = machine.home.path().join("terral");
    let run = format!(
        "prlimit --nproc=4000 --core=0 --nofile=900 {} run -q --instance {} -- true",
        program.display(),
        machine.name
    );
    let done = as_user(BOB, &run);
    assert!(done.status.success(), "{}", text(&done));
    let own = rustix::process::getsid(None).expect("has one").as_raw_nonzero().get();
    let all = machine.processes(BOB);
    assert!(!all.is_empty());
    for (pid, line) in all {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("runs");
        let hard = |name: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).expect("there");
            line[name.len()..].split_whitespace().nth(1).expect("two").to_owned()
        };
        let all = ["Max processes", "Max core file size", "Max open files"].map(hard);
        assert_eq!(all, ["4000", "0", "900"], "{line}");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("runs");
        let session = stat.rsplit_once(')').expect("one").1.split_whitespace().nth(3);
        assert_ne!(session, Some(own.to_string().as_str()), "{line}");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("runs");
        assert!(status.contains("NoNewPrivs:\t1"), "{line}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{line}: {status}");
        }
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).expect("root may").flatten() {
            let at = fs::read_link(fd.path()).unwrap_or_default();
            assert!(!at.starts_with("/dev/pts") && !at.starts_with("/dev/tty"), "{at:?}");
        }
    }
    machine.end();
}

#[test]
fn thousands_at_the_door_keep_nobody_out_and_use_up_nothing() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("door");
    let door = Path::new("/run/terral").join(&machine.name);
    let threads =
        || fs::read_dir(format!("/proc/{}/task", machine.server.id())).expect("runs").count();
    let before = threads();
    // Root's own: it is told that it needs none.
    let mut waiting: Vec<UnixStream> = Vec::new();
    for _ in 0..2000 {
        let Ok(stream) = UnixStream::connect(&door) else { continue };
        waiting.push(stream);
        if waiting.len() > 500 {
            waiting.clear();
        }
    }
    machine.done(ALICE, "echo hers > /terral/alice/f");
    drop(waiting);
    let begin = Instant::now();
    while threads() > before + 40 {
        assert!(begin.elapsed() < PATIENCE, "{} threads", threads());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Starts that fail are of one member.
    let members = || {
        let mut status = machine.terral(0);
        let said =
            status.args(["status", "--json", "--instance", &machine.name]).output().expect("runs");
        text(&said).matches("\"standing\"").count()
    };
    let own = members();
    assert!(own > 0, "root is one");
    let place = machine.dir(&format!(".terral-{BOB}"));
    fs::create_dir(&place).expect("makes");
    for _ in 0..3 {
        let said = machine.sh(BOB, "true");
        assert!(!said.status.success(), "{}", text(&said));
    }
    assert!(members() <= own + 1, "{} of {own}", members());
    fs::remove_dir(&place).expect("root may");
    machine.denied(BOB, "ls /terral/alice");
    machine.end();
}

#[test]
fn who_comes_from_a_user_namespace_of_his_own_is_not_let_in() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("namespace");
    let door = Path::new("/run/terral").join(&machine.name);
    let knock = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                 print(s.recv(4096))";
    let line = format!("python3 -c '{knock}' {}", door.display());
    assert!(text(&as_user(BOB, &line)).contains("serves"), "from outside of one");
    let said = as_user(BOB, &format!("unshare -U --map-current-user {line}"));
    if text(&said).contains("unshare failed") {
        println!("skipped: no user namespaces here");
    } else {
        assert!(text(&said).contains("user namespace"), "{}", text(&said));
    }
    machine.done(BOB, "true");
    machine.end();
}

#[test]
fn a_memory_that_he_throws_away_again_and_again_is_not_made_for_ever() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("lives");
    let mut refused = String::new();
    for life in 0..8 {
        let said = machine.sh(BOB, "true");
        if !said.status.success() {
            refused = text(&said);
            assert!(life >= 5, "{life}: {refused}");
            break;
        }
        end_all(&machine);
        fs::remove_dir_all(machine.instance(BOB)).expect("root may");
    }
    assert!(refused.contains("lost their memory"), "{refused}");
    machine.done(ALICE, "echo hers > /terral/alice/f");
    machine.end();
}

#[test]
fn who_had_looked_at_what_he_threw_away_goes_on() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("looked");
    machine.done(BOB, "chmod 755 /terral/bob; mkdir /terral/bob/d; echo his > /terral/bob/d/f");
    machine.done(ALICE, "ls -lR /terral/bob && test \"$(cat /terral/bob/d/f)\" = his");
    end_all(&machine);
    fs::remove_dir_all(machine.instance(BOB)).expect("root may");
    machine.done(BOB, "echo again > /terral/bob/again");
    // What only root's server can say, and what only bob's can.
    machine.done(0, "mkdir /terral/all/new");
    machine.done(ALICE, "ls -ld /terral/all/new && test \"$(cat /terral/bob/again)\" = again");
    machine.end();
}

#[test]
fn what_is_asked_at_the_door_in_rubbish_is_passed_over() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("rubbish");
    let door = Path::new("/run/terral").join(&machine.name);
    let mut stream = UnixStream::connect(&door).expect("open");
    stream.set_read_timeout(Some(PATIENCE)).expect("ours");
    let _ = std::io::Write::write_all(&mut stream, &vec![0xff; 1 << 20]);
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert!(said.contains("refused"), "{said}");
    let mode = fs::metadata("/run/terral").expect("there").permissions().mode();
    assert_eq!(mode & 0o022, 0, "only root puts doors there");
    machine.done(ALICE, "true");
    machine.end();
}
