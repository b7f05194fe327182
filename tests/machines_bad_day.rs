//! What may go on around a run over several machines, and what goes wrong on one of them: other
//! runs and other users on the same machines, a full memory, a killed server, a tree that only DIR
//! has. Real servers, a real network between namespaces. Not here: machines that are lost
//! (`machines`, `machines_fencing`), a DIR that fails (`machines_to`).
#![allow(clippy::print_stdout)] // What is skipped is said, and how long a pause was.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;
mod user;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use beside::{on_path, program};
use launched::{said, until};
use namespaces::Machines;

/// None of these runs takes so long.
const LONG: Duration = Duration::from_secs(100);
/// A server that was killed is started again at once: some hundredths of a second.
const LONGEST_STALL_MS: u64 = 5000;
/// Names that each machine has when a server is killed: a hundred thousand in all.
const NAMES_EACH: usize = 33_334;

fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(output));
    text
}

/// A directory that all machines see.
fn made(machines: &Machines, name: &str) -> PathBuf {
    let path = machines.home().join(name);
    fs::create_dir(&path).expect("makes");
    path
}

/// Adds lines to a file that all runs have by name, and makes files of its own, on all machines.
const ADDS: &str = r#"
on() { host=$1; shift; $ON $host "LD_PRELOAD=$LD_PRELOAD TERRAL_INSTANCE=$TERRAL_INSTANCE \
    TERRAL_PREFIX=$TERRAL_PREFIX sh -c '$*'"; }
touch $TERRAL_DIR/all
for number in 1 2 3 4 5; do
    for at in h0 h1 h2; do
        on $at "echo $MINE >> /terral/all; echo $MINE > /terral/$MINE.$number.$at"
    done
done
for at in h0 h1 h2; do on $at 'ls /terral | wc -l; sort -u /terral/all; wc -l < /terral/all'; done
"#;
/// What that says, and leaves, if nothing of another run is there.
fn added(mine: &str) -> String {
    format!("16\n{mine}\n15\n").repeat(3)
}

/// That a run's directory has its files alone.
fn is_only(to: &Path, mine: &str) {
    let names: Vec<_> = fs::read_dir(to).expect("lists").map(|one| one.expect("is one")).collect();
    let names = names.iter().map(|one| one.file_name().into_string().expect("a name"));
    let (own, others): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(mine));
    assert_eq!((own.len(), others), (15, vec!["all".to_owned()]), "{mine}");
    let all = fs::read_to_string(to.join("all")).expect("it arrived");
    assert_eq!(all, format!("{mine}\n").repeat(15));
}

#[test]
fn two_runs_on_the_same_machines_at_once_see_nothing_of_each_other() {
    let Some(machines) = Machines::new(3) else { return };
    let runs = ["one", "two"].map(|mine| {
        let to = made(&machines, mine);
        let mut command = machines.terral(0);
        command.args(["run", "--hosts", "h0,h1,h2", "--memory", "128M", "--ready", "0", "--to"]);
        command.arg(to).args(["--", "sh", "-c", ADDS]).env("MINE", mine);
        (mine, command.spawn().expect("starts"))
    });
    for (mine, run) in runs {
        assert_eq!(shown(&descendants::ended_within(run, LONG)), added(mine));
        is_only(&machines.home().join(mine), mine);
    }
    (0..3).for_each(|at| assert_eq!(machines.left(at), "", "nothing stays in memory"));
}

/// The doors of machines, by which those come in who are not root. They end with the value.
struct Doors(Vec<Child>);

impl Doors {
    fn open(machines: &Machines, at: &Path) -> Self {
        let serve = |host: usize| {
            let mut command = machines.command(host, "/usr/bin/python3");
            command.arg(program("machines/door.py")).arg("serve").arg(at.join(format!("h{host}")));
            command.spawn().expect("starts")
        };
        let doors = Doors((0..3).map(serve).collect());
        until("the doors are open", || (0..3).all(|host| at.join(format!("h{host}")).exists()));
        doors
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        for door in &mut self.0 {
            let _ = door.kill();
            let _ = door.wait();
        }
    }
}

#[test]
fn runs_of_two_users_on_the_same_machines_at_once_are_each_ones_own() {
    let Some(machines) = Machines::new(3) else { return };
    if !on_path("setpriv") {
        return;
    }
    let home = user::programs();
    let (door, on) = (home.path().join("door.py"), home.path().join("on"));
    fs::copy(program("machines/door.py"), &door).expect("copies");
    let text = format!(
        "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
         exec /usr/bin/python3 {} ask {}/$host \"$*\"\n",
        door.display(),
        home.path().display()
    );
    fs::write(&on, text).expect("writes");
    user::permit(&on, 0o755);
    let _doors = Doors::open(&machines, home.path());
    let runs = [(65533, "one"), (user::NOBODY, "two")].map(|(user, mine)| {
        let to = home.path().join(mine);
        fs::create_dir(&to).expect("makes");
        std::os::unix::fs::chown(&to, Some(user), Some(user)).expect("gives");
        let mut command = machines.command(0, "setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.args(["--clear-groups", "--inh-caps=-all"]).arg(home.path().join("terral"));
        command.args(["run", "--hosts", "h0,h1,h2", "--memory", "128M", "--ready", "0", "--to"]);
        command.arg(&to).args(["--", "sh", "-c", ADDS]).env("MINE", mine).env("HOME", "/tmp");
        command.env("TERRAL_RSH", &on).env("ON", &on).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (user, mine, command.spawn().expect("starts"))
    });
    for (user, mine, run) in runs {
        assert_eq!(shown(&descendants::ended_within(run, LONG)), added(mine));
        let to = home.path().join(mine);
        is_only(&to, mine);
        let owner = Command::new("find").arg(&to).args(["!", "-user", &user.to_string()]).output();
        assert_eq!(shown(&owner.expect("starts")), "", "all is {user}'s");
    }
}

/// More is written on `h1` than its memory holds; then all go on, there too, as far as there is
/// room.
const FILLS: &str = "mkdir others; echo before > others/known; seq 1000 > others/log
    on h1 'mkdir /terral/d; seq 1000 > /terral/d/log'
    on h1 'head -c 300M /dev/zero > /terral/d/big 2> /dev/null; echo $?'
    for at in h0 h2; do on $at \"echo $at > /terral/others/$at; cat /terral/others/$at\"; done
    head -c 30M /dev/zero > others/long; on h2 'wc -c < /terral/others/long'
    on h1 'cat /terral/others/h0 /terral/others/h2 /terral/others/known; ls /terral/others'
    $LOOK
    on h1 'rm /terral/d/big; head -c 9M /dev/zero > /terral/d/again'; wc -c < d/again
    on h2 'seq 99999 > /terral/d/of-h2'; on h1 'seq 99999 | cmp - /terral/d/of-h2'; ls d";
/// What that says after how the writer ended.
const FILLED: &str = "h0\nh2\n31457280\nh0\nh2\nbefore\nh0\nh2\nknown\nlog\nlong\n";
const EMPTIED: &str = "9437184\nagain\nlog\nof-h2\n";

#[test]
fn where_one_machines_memory_is_full_its_writers_are_told_so_and_all_others_go_on() {
    let Some(machines) = Machines::new(3) else { return };
    // What others add to a file of that machine they are told, too; what was there stays.
    let look = "on h1 'echo one more >> /terral/others/known'; cat others/known
        for at in h0 h2; do
            on $at 'head -c 9M /dev/zero >> /terral/d/log 2> /dev/null || echo full'
            on $at 'head -c 3893 /terral/d/log | cmp - /terral/others/log && echo whole'
        done";
    let text = shown(&machines.run(&FILLS.replace("$LOOK", look)));
    let looks = "before\none more\nfull\nwhole\nfull\nwhole\n";
    assert_eq!(text, format!("1\n{FILLED}{looks}{EMPTIED}"));
}

#[test]
fn where_one_machines_memory_is_full_and_there_is_a_directory_its_writers_wait_for_that() {
    let Some(machines) = Machines::new(3) else { return };
    let to = made(&machines, "to");
    let text = shown(
        &machines.run_with(&["--to", &to.display().to_string()], &FILLS.replace("$LOOK", "")),
    );
    assert_eq!(text, format!("0\n{FILLED}{EMPTIED}"));
    let long = fs::metadata(to.join("others/long")).expect("it arrived").len();
    assert_eq!((long, to.join("d/big").exists()), (31_457_280, false));
}

#[test]
fn a_tree_of_a_thousand_files_is_read_by_three_machines_at_once_and_is_the_same_for_all() {
    let Some(machines) = Machines::new(3) else { return };
    let to = made(&machines, "to");
    for number in 0..1000 {
        let directory = to.join(format!("tree/d{}/e{}", number % 10, number % 3));
        fs::create_dir_all(&directory).expect("makes");
        let text = format!("file {number}\n").repeat(number % 400);
        fs::write(directory.join(format!("f{number}")), text).expect("writes");
    }
    let sum = "find . -type f | wc -l; cat $(find . -type f | sort) | cksum; \
               find . -type f -printf \"%p %s %m %T@\\n\" | sort | cksum";
    let plain = Command::new("sh").args(["-c", sum]).current_dir(to.join("tree")).output();
    let plain = shown(&plain.expect("starts"));
    assert!(plain.starts_with("1000\n"), "{plain}");
    let all = machines.home().join("sum.sh");
    fs::write(&all, format!("cd /terral/tree && {sum}")).expect("writes");
    let home = machines.home().display();
    let text = shown(&machines.run_with(
        &["--to", &to.display().to_string()],
        &format!(
            "for at in h0 h1 h2; do on $at \"sh {} > {home}/of.$at\" & done; wait
            cat {home}/of.h0 {home}/of.h1 {home}/of.h2",
            all.display()
        ),
    ));
    assert_eq!(text, plain.repeat(3));
}

#[test]
fn a_server_that_is_killed_under_load_holds_up_its_programs_for_a_moment_and_others_not_at_all() {
    let Some(machines) = Machines::new(3) else { return };
    let home = machines.home().display();
    let text = shown(&machines.run(&format!(
        "begin() {{
            on $1 \"/usr/bin/python3 {} $1 {home}/stop {NAMES_EACH} $2 $3\" & jobs=\"$jobs $!\"
        }}
        begin h0 h1 h2; begin h1 h2 h0; begin h2 h0 h1
        for at in h0 h1 h2; do until [ -e {home}/stop.$at ]; do sleep 0.1; done; done
        sleep 1; kill -9 $(pid_of h2); sleep 3; kill -9 $(pid_of h0); sleep 3; touch {home}/stop
        wait $jobs",
        program("machines/stalls.py").display()
    )));
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [times, own, others] = [1, 2, 3].map(|at| words[at].parse::<u64>().expect("a number"));
        println!(
            "{}: {times} rounds, the longest call {own} ms in its own directory, {others} ms in \
             those of others",
            words[0]
        );
        assert!(times > 100 && own.max(others) < LONGEST_STALL_MS && words[4] == "True", "{text}");
    }
}
