//! `terral serve --users`: a user who never came has a server started as others look at what the
//! bits let them use of his; few of them, and for nobody who is no user. Needs root, and a mount
//! namespace, in which the users have names.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use all_users::{ALICE, BOB, Machine, gives, is_root, set, text};
use rustix::process::Signal;

/// The first of many users, who have names.
const MANY: u32 = 42_000;

/// What root's server has written down of starts.
fn starts(machine: &Machine) -> String {
    let audit = fs::read_to_string(machine.instance(0).join("audit")).unwrap_or_default();
    audit
        .lines()
        .filter(|line| line.contains("\"started\""))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The same, once there is something: it is written a moment after.
fn first_starts(machine: &Machine) -> String {
    let begin = Instant::now();
    loop {
        let written = starts(machine);
        if !written.is_empty() || begin.elapsed() > all_users::PATIENCE {
            return written;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many processes there are of servers of these users.
fn servers(machine: &Machine, users: std::ops::Range<u32>) -> usize {
    users.filter(|user| !machine.processes(*user).is_empty()).count()
}

#[test]
fn what_a_user_has_is_read_though_he_never_came() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("never", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    assert!(machine.processes(ALICE).is_empty());
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    assert!(!machine.processes(ALICE).is_empty());
    let written = first_starts(&machine);
    let line = format!("\"owner\":{ALICE},\"for\":{BOB}}}");
    assert!(written.lines().count() == 1 && written.contains(&line), "{written}");
    // It is hers, and she goes on with it.
    machine.done(ALICE, "echo new > /terral/alice/new && chmod 644 /terral/alice/new");
    assert_eq!(machine.done(BOB, "cat /terral/alice/new"), "new\n");
    // Root, for a backup, by the same door.
    assert_eq!(machine.done(0, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    machine.end();
}

#[test]
fn nobodys_server_is_started_for_what_the_bits_do_not_let_one_use() {
    if !is_root() {
        return;
    }
    let users = [("alice", ALICE, "/bin/sh"), ("carol", MANY, "/usr/sbin/nologin")];
    let machine = Machine::begin_known("bitless", &users);
    gives(&machine, ("alice", ALICE, 0o700));
    gives(&machine, ("shut/alice", ALICE, 0o755));
    set(&machine.dir("shut"), 0, 0o700);
    // The bits of a link let everybody do everything, and say nothing.
    let link = machine.dir("all/link");
    std::os::unix::fs::symlink("../bob", &link).expect("makes");
    std::os::unix::fs::lchown(&link, Some(ALICE), Some(ALICE)).expect("root may");
    for script in [
        "cat /terral/alice/data",
        "ls /terral/alice",
        "ls -l /terral/shut/alice",
        "ls -ld /terral/all/link",
    ] {
        machine.denied(BOB, script);
    }
    assert!(machine.done(BOB, "ls /terral/all").contains("link"), "who lists needs nobody");
    assert!(machine.processes(ALICE).is_empty() && starts(&machine).is_empty());
    // Nor for who is no user, or the system's, or may not log in: it is said why.
    gives(&machine, ("carol", MANY, 0o755));
    gives(&machine, ("daemon", 1, 0o755));
    gives(&machine, ("stranger", MANY + 1, 0o755));
    for (name, why) in [("carol", "may not log in"), ("daemon", "UID_MIN"), ("stranger", "no user")]
    {
        machine.denied(BOB, &format!("cat /terral/{name}/data"));
        let line = format!("\"for\":{BOB},\"refused\":");
        assert_eq!(machine.sh(BOB, &format!("cat /terral/{name}/data")).status.code(), Some(1));
        // It is written once a minute, however often he looks.
        let told: Vec<String> = starts(&machine).lines().map(str::to_owned).collect();
        let is = |told: &&String| told.contains(why) && told.contains(&line);
        assert_eq!(told.iter().filter(is).count(), 1, "{name}: {told:?}");
    }
    for user in [ALICE, MANY, MANY + 1] {
        assert!(machine.processes(user).is_empty(), "{user}");
    }
    machine.end();
}

#[test]
fn a_thousand_looks_of_one_user_start_few_servers_and_keep_nobody_waiting() {
    if !is_root() {
        return;
    }
    let names: Vec<String> = (0..40).map(|at| format!("user{at}")).collect();
    let mut users: Vec<(&str, u32, &str)> =
        names.iter().enumerate().map(|(at, name)| (&**name, MANY + at as u32, "/bin/sh")).collect();
    users.push(("alice", ALICE, "/bin/sh"));
    let mut machine = Machine::begin_known("many", &users);
    for (name, user, _) in &users {
        gives(&machine, (name, *user, 0o755));
    }
    let eve = MANY + 100;
    machine.more.push(eve);
    let all = "for n in $(seq 25); do ls -ld /terral/user* & done; wait";
    let said = std::thread::scope(|threads| {
        let looks = threads.spawn(|| machine.sh(eve, all));
        // Others have theirs meanwhile.
        let begin = Instant::now();
        assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
        machine.done(BOB, "echo mine > /terral/bob/f");
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        text(&looks.join().expect("runs"))
    });
    assert!(said.contains("Too many users"), "{said}");
    let count = servers(&machine, MANY..MANY + 40);
    assert!((1..=16).contains(&count), "{count}");
    machine.end();
}

#[test]
fn two_who_look_at_once_have_one_server_started() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("twice", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(BOB, "true");
    std::thread::scope(|threads| {
        for user in [BOB, 0, BOB] {
            let machine = &machine;
            threads.spawn(move || {
                assert_eq!(machine.done(user, "cat /terral/alice/data"), format!("of {ALICE}\n"));
            });
        }
    });
    let told = first_starts(&machine);
    assert_eq!(told.lines().count(), 1, "{told}");
    machine.end();
}

/// Waits until a user's server is there, with who starts it, and gives what is said of it.
fn comes(machine: &Machine, user: u32, file: &str) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let all = machine.processes(user);
        let is_there = all.iter().any(|(_, line)| line.contains("--instance-directory"));
        let said = all.iter().map(|(pid, _)| fs::read_to_string(format!("/proc/{pid}/{file}")));
        if let (true, Ok(said)) = (is_there, said.collect()) {
            return said;
        }
        assert!(begin.elapsed() < all_users::PATIENCE, "{all:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_group_that_was_taken_from_an_account_no_start_for_others_brings_back() {
    if !is_root() {
        return;
    }
    const TEAM: u32 = 43_000;
    let machine = Machine::begin_known("groups", &[("alice", ALICE, "/bin/sh")]);
    let known = machine.home.path().join("group");
    let without = fs::read_to_string(&known).expect("there");
    fs::write(&known, format!("{without}team:x:{TEAM}:alice\n")).expect("writes");
    gives(&machine, ("alice", ALICE, 0o755));
    fs::write(machine.dir("teams"), "theirs").expect("writes");
    std::os::unix::fs::chown(machine.dir("teams"), None, Some(TEAM)).expect("root may");
    fs::set_permissions(machine.dir("teams"), fs::Permissions::from_mode(0o640)).expect("may");
    let reads = |groups: &str| {
        let mut comes = Command::new("setpriv");
        let ids = [format!("--reuid={ALICE}"), format!("--regid={ALICE}"), groups.to_owned()];
        comes.args(ids).arg(machine.home.path().join("terral")).current_dir("/");
        comes.args(["run", "-q", "--instance", &machine.name, "--", "cat", "/terral/teams"]);
        comes.stdin(Stdio::null()).output().expect("runs")
    };
    let is_in = |team: bool| {
        let all = comes(&machine, ALICE, "status");
        let groups = all.iter().filter_map(|text| text.lines().find(|it| it.starts_with("Groups")));
        groups.for_each(|groups| assert_eq!(groups.contains("43000"), team, "{groups}"));
    };
    let dies = || {
        let of_server = machine.processes(ALICE);
        machine.kill(ALICE, "host");
        machine.kill(ALICE, "--instance-directory");
        for (pid, _) in of_server {
            let (begin, it) = (Instant::now(), format!("/proc/{pid}/cmdline"));
            while fs::read(&it).is_ok_and(|line| !line.is_empty()) {
                assert!(begin.elapsed() < all_users::PATIENCE, "{pid}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let team = format!("--groups={TEAM}");
    assert_eq!(text(&reads(&team)), "theirs");
    is_in(true);
    // Her programs stay in it, as the kernel has it; she is in it no more.
    fs::write(&known, &without).expect("writes");
    dies();
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    is_in(false);
    // Others go by that, too, though her programs are in it still, and say so.
    assert!(text(&reads(&team)).contains("denied"));
    // Nor is she in one that she came without, as she came last.
    fs::write(&known, format!("{without}team:x:{TEAM}:alice\n")).expect("writes");
    assert!(text(&reads("--clear-groups")).contains("denied"));
    dies();
    machine.done(BOB, "cat /terral/alice/data");
    is_in(false);
    machine.end();
}

/// What is said of limits, in a line.
fn limit(said: &str, name: &str) -> String {
    let line = said.lines().find(|line| line.starts_with(name)).expect("a limit");
    let words = line.strip_prefix(name).expect("it begins so").split_whitespace();
    words.take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn roots_limits_are_not_whose_server_was_started_for_others() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("clamped", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    let pid = machine.server.id();
    let roots = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    assert_eq!(limit(&roots, "Max core file size"), "unlimited unlimited", "root has more");
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    for said in comes(&machine, ALICE, "limits") {
        for none in ["Max core file size", "Max realtime priority", "Max nice priority"] {
            assert_eq!(limit(&said, none), "0 0", "{none}");
        }
        for some in ["Max locked memory", "Max processes", "Max open files"] {
            assert!(!limit(&said, some).contains("unlimited"), "{said}");
        }
    }
    machine.end();
}

#[test]
fn who_comes_after_others_have_looked_has_a_home_and_a_server_with_his_groups_and_limits() {
    if !is_root() {
        return;
    }
    const TEAM: u32 = 43_000;
    let machine = Machine::begin_known("comes", &[("dora", MANY, "/bin/sh")]);
    let known = machine.home.path().join("group");
    let without = fs::read_to_string(&known).expect("there");
    fs::write(&known, format!("{without}old:x:43001:dora\n")).expect("writes");
    let hers = machine.dir("all/doras");
    fs::write(&hers, "hers").expect("writes");
    set(&hers, MANY, 0o644);
    assert_eq!(machine.done(BOB, "cat /terral/all/doras"), "hers");
    assert!(!machine.dir("dora").exists(), "nobody makes one for others");
    let is = |file: &str, name: &str| -> Vec<String> {
        let own = comes(&machine, MANY, file);
        let line = |said: &String| said.lines().find(|line| line.starts_with(name)).map(words);
        own.iter().filter_map(line).collect()
    };
    assert!(is("limits", "Max processes").iter().all(|is| !is.contains("777 777")));
    assert!(is("status", "Groups").iter().all(|is| is.ends_with(" 43001")));
    // As she comes she is in another group, and not in that one.
    let run = "exec prlimit --nproc=777:777 \"$0\" run -q --instance \"$1\" -- \
               sh -c 'echo new > /terral/dora/f'";
    let mut comes = Command::new("setpriv");
    comes.args([format!("--reuid={MANY}"), format!("--regid={MANY}"), format!("--groups={TEAM}")]);
    comes.args(["sh", "-c", run]).arg(machine.home.path().join("terral")).arg(&machine.name);
    let done = comes.current_dir("/").stdin(Stdio::null()).output().expect("runs");
    assert!(done.status.success(), "{}", text(&done));
    // What prepared memory for the one before goes a moment after it.
    let begin = Instant::now();
    loop {
        let (limits, groups) = (is("limits", "Max processes"), is("status", "Groups"));
        let are_hers = limits.len() >= 2 && limits.iter().all(|is| is.contains("777 777"));
        if are_hers && groups.iter().all(|is| is == "Groups: 43000") {
            break;
        }
        assert!(begin.elapsed() < all_users::PATIENCE, "{limits:?} {groups:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(machine.done(BOB, "cat /terral/all/doras"), "hers");
    let home = machine.end();
    let made = fs::metadata(home.path().join("dir/dora")).expect("it was made");
    assert_eq!((made.uid(), made.mode() & 0o7777), (MANY, 0o700));
    assert_eq!(fs::read_to_string(home.path().join("dir/dora/f")).expect("there"), "new\n");
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn who_comes_to_one_that_ran_for_others_for_long_keeps_what_they_have_open() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("long", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    let come = machine.home.path().join("come");
    let waits = "exec 3< /terral/alice/data; while [ ! -e \"$0\" ]; do sleep 1; done; cat <&3";
    let waits = waits.replace("$0", &come.to_string_lossy());
    let (stays, said, read) = std::thread::scope(|threads| {
        let reads = threads.spawn(|| machine.sh(BOB, &waits));
        comes(&machine, ALICE, "status");
        // Nobody has asked it for anything for so long that it would end with nobody above it.
        std::thread::sleep(Duration::from_secs(63));
        // Who begins the next one is held up.
        let begins = rustix::process::Pid::from_child(&machine.server);
        rustix::process::kill_process(begins, Signal::STOP).expect("it runs");
        machine.kill(ALICE, " host ");
        std::thread::sleep(Duration::from_secs(3));
        let runs = machine.processes(ALICE);
        rustix::process::kill_process(begins, Signal::CONT).expect("it stands still");
        let wrote = machine.sh(ALICE, "echo new > /terral/alice/new");
        let said = machine.terral(0).args(["status", "--instance", &machine.name]).output();
        fs::write(&come, "").expect("writes");
        let read = text(&reads.join().expect("runs"));
        let stays = runs.iter().any(|(_, line)| line.contains("--instance-directory"));
        (stays && wrote.status.success(), text(&said.expect("runs")), read)
    });
    assert!(stays, "it waits for who goes on with what it has: {said}");
    let is_hers = |line: &&str| line.contains(&format!("user-{ALICE}:"));
    assert_eq!(said.lines().filter(is_hers).count(), 1, "{said}");
    assert_eq!(read, format!("of {ALICE}\n"));
    machine.end();
}

#[test]
fn of_whom_a_server_runs_that_is_not_there_the_accounts_are_not_asked_again_and_again() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("asked", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    // Who starts it again does nothing.
    machine.signal(ALICE, " host ", Signal::STOP);
    machine.kill(ALICE, "--instance-directory");
    let before = machine.asked_of(ALICE);
    assert!(before > 0, "it is seen who asks");
    fs::write(machine.dir("all/hers"), "hers").expect("writes");
    set(&machine.dir("all/hers"), ALICE, 0o644);
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| machine.done(BOB, "cat /terral/all/hers"));
        std::thread::sleep(Duration::from_secs(5));
        let asked = machine.asked_of(ALICE) - before;
        assert!(!waits.is_finished() && asked == 0, "{asked}");
        machine.signal(ALICE, " host ", Signal::CONT);
        assert_eq!(waits.join().expect("runs"), "hers");
    });
    machine.end();
}
