//! Transactions of programs on three machines, from C: real servers, a real network between
//! namespaces. Not here: each moment at which somebody may die (`server/sim/peers/transacting`),
//! and one machine (`transactions`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use beside::{built, on_path};
use launched::said;
use namespaces::Machines;

/// So often a program of each machine counts.
const COUNTS: usize = 60;
/// So often names change hands.
const HANDED: usize = 150;
/// The same, where all of it arrives in a permanent directory before the next.
const HANDED_THERE: usize = 20;

/// Compiles the programs; none without a compiler, which is said.
fn compiled(home: &Path) -> Option<PathBuf> {
    if !on_path("cc") {
        println!("skipped: no C compiler");
        return None;
    }
    let library = built("libterral.so");
    let folder = library.parent().expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/c_transactions.c");
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/c");
    let program = home.join("transactions");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I", headers, "-o"]);
    cc.arg(&program).arg(source).arg("-L").arg(folder).arg("-lterral");
    cc.arg(format!("-Wl,-rpath,{}", folder.display()));
    let output = cc.output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Programs on all machines count at once, and one looks, while something happens.
fn all_count(machines: &Machines, options: &[&str], meanwhile: &str) {
    let Some(program) = compiled(machines.home()) else { return };
    let (program, home) = (program.display(), machines.home().display());
    let script = format!(
        "{program} begin
        on h1 {program} look {home}/over {home}/begun & looks=$!
        until [ -e {home}/begun ]; do sleep 0.01; done
        for at in h0 h1 h2; do on $at {program} count $at {COUNTS} & counts=\"$counts $!\"; done
        {meanwhile}
        wait $counts; touch {home}/over; wait $looks
        for at in h0 h1 h2; do on $at 'cd /terral; ls a b; cat latest; echo; ls log | wc -l'; done"
    );
    let mut said = lines(&machines.run_with(options, &script));
    let all = 3 * COUNTS;
    let seen = said.split_off(4);
    said.sort();
    assert_eq!(said, ["h0 counted", "h1 counted", "h2 counted", "looked"]);
    let all = all.to_string();
    assert_eq!(seen, ["a:", &all, "", "b:", &all, &all, &all].repeat(3));
}

#[test]
fn of_three_machines_at_once_each_counts_once_and_nobody_sees_a_part() {
    let Some(machines) = Machines::new(3) else { return };
    all_count(&machines, &[], "");
}

#[test]
fn so_it_is_whichever_server_is_killed_meanwhile() {
    let Some(machines) = Machines::new(3) else { return };
    let kills = "for at in h1 h0 h2 h1; do sleep 0.3; kill -9 $(pid_of $at); done";
    all_count(&machines, &[], kills);
}

#[test]
fn objects_of_three_machines_get_their_names_and_go_at_once() {
    let Some(machines) = Machines::new(3) else { return };
    let Some(program) = compiled(machines.home()) else { return };
    let program = program.display();
    let script = format!(
        "{program} container
        for at in h0 h1 h2; do on $at {program} objects $at; done
        on h1 'cd /terral; ls out/h0 out/h1 out/h2; cat out/h0/field out/h2/field out/moved'
        looks='cd /terral/out; stat -c %h */field */theirs; cat */theirs'
        for at in h0 h1 h2; do on $at \"$looks\"; done"
    );
    let seen = lines(&machines.run(&script)).join("|");
    let names = "out/h0:|field|moved||out/h1:|field|theirs||out/h2:|field|theirs";
    let (well, said) = ("h0: all well|h1: all well|h2: all well", "h0h2h2");
    // Two have lost their address, one has it still.
    let counted = "2|2|2|2|2|h0h1".repeat(3);
    assert_eq!(seen, format!("{well}|{names}|{said}{counted}"));
}

/// Names change hands so often, while servers are killed. Not without a compiler.
fn change_hands(machines: &Machines, options: &[&str], times: usize) -> bool {
    let Some(program) = compiled(machines.home()) else { return false };
    let (program, home) = (program.display(), machines.home().display());
    let script = format!(
        "{program} container
        for at in h0 h1 h2; do on $at {program} place; done
        on h1 {program} hand {times} > {home}/handed 2>&1 & hands=$!
        for at in h0 h2 h1 h0; do sleep 0.3; kill -9 $(pid_of $at); done
        wait $hands; cat {home}/handed
        for at in h0 h1 h2; do on $at 'cd /terral/out/all; ls -d ?-*; stat -c %h ?-*'; done"
    );
    let seen = lines(&machines.run_with(options, &script));
    let last: Vec<String> = (0..3).map(|which| format!("{which}-{times}")).collect();
    let each: Vec<&str> = last.iter().map(String::as_str).chain(["2", "2", "2"]).collect();
    let all: Vec<&str> = std::iter::once("handed").chain(each.repeat(3)).collect();
    assert_eq!(seen, all);
    true
}

#[test]
fn names_of_other_machines_files_change_hands_at_once_though_servers_are_killed() {
    let Some(machines) = Machines::new(3) else { return };
    change_hands(&machines, &[], HANDED);
}

#[test]
fn so_they_do_in_the_permanent_directory() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("made");
    if !change_hands(&machines, &["--to", &to.display().to_string()], HANDED_THERE) {
        return;
    }
    let all = std::fs::read_dir(to.join("out/all")).expect("it arrived");
    let names = all.map(|name| name.expect("read").file_name().into_string().expect("text"));
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("at-")).collect();
    names.sort();
    let last: Vec<String> = (0..3).map(|which| format!("{which}-{HANDED_THERE}")).collect();
    assert_eq!(names, last);
}

/// Words of the scripts: `begin N` has h1 set the steps of what h0 and h2 have to 1, 2, ..., each
/// time by a transaction of which N servers know; `lose` has it die for good, and `fence` be
/// removed; `stuck HOST` has a host stand still until h1 gets no further, and then lose that.
const WORDS: &str = r#"
exec 2>&1
begin() { $PROGRAM container; for at in h0 h2; do on $at "$PROGRAM place"; done; first=$(pid_of h1)
    on h1 "exec $PROGRAM advance $1 1000000" > $WHERE/said 2>&1 & sets=$!
    until [ $(lines) -ge 100 ]; do sleep 0.1; done; }
lines() { grep -c '^[0-9]*$' $WHERE/said; }
last() { grep '^[0-9]*$' $WHERE/said | tail -1; }
lose() { kill -9 $(ps -o ppid= -p $first) $first; }
stuck() { other=$(pid_of $1); kill -STOP $other; before=0
    until [ $(lines) = $before ]; do before=$(lines); sleep 1; done
    lose; kill -CONT $other; wait $sets; }
fence() { $TERRAL fence h1 --dead > $WHERE/out 2>&1 || cat $WHERE/out; }
json() { $TERRAL txn list --json; }
steps() { $PROGRAM steps 0 2; }
"#;

/// What a script over so many machines says, with these words; none without a compiler.
fn scripted(count: usize, script: &str) -> Option<(String, Vec<String>)> {
    let machines = Machines::new(count)?;
    let program = compiled(machines.home())?;
    let (program, home) = (program.display(), machines.home().display());
    let output = machines.run(&format!("PROGRAM={program}; WHERE={home}\n{WORDS}{script}"));
    let told = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    Some((said(&output), told))
}

#[test]
fn what_a_lost_machine_leaves_in_doubt_is_listed_is_an_error_and_is_resolved() {
    for (how, is) in [("--commit", 1), ("--abort", 0)] {
        let script = format!(
            "begin 1; stuck h2; fence; id=$(json | grep -o '1-[0-9a-f]*' | head -1)
            json | grep -o '\"trouble\":\"lost\"' | wc -l
            $TERRAL txn list | grep -c 'removed was h1'
            steps | grep -c \"txn resolve $id\"
            $TERRAL txn resolve $id {how} --yes > $WHERE/out 2>&1; json | grep -c $id; steps; last"
        );
        let Some((complained, told)) = scripted(3, &script) else { return };
        let said: Vec<u64> = told.iter().filter_map(|line| line.parse().ok()).collect();
        let [lost, listed, errors, left, one, other, last] = said[..] else {
            panic!("{told:?}: {complained}");
        };
        assert_eq!((left, one), (0, last + is), "{told:?}: {complained}");
        // The second home has heard of it, which was on its way as that stood still; or has not.
        let prepared = u64::from(lost == 2) * is;
        assert!((1..=2).contains(&lost), "{told:?}: {complained}");
        assert_eq!((listed, errors, other), (lost, lost, last + prepared), "{told:?}");
    }
}

/// What `steps` and `last` say, in which nothing is in doubt.
fn agree((complained, told): &(String, Vec<String>)) {
    let said: Vec<u64> = told.iter().filter_map(|line| line.parse().ok()).collect();
    let [one, other, last] = said[..] else { panic!("{told:?}: {complained}") };
    let is_so = one == other && (last..=last + 1).contains(&one) && last >= 100;
    assert!(is_so && told.len() == said.len(), "{told:?}: {complained}");
}

#[test]
fn where_two_know_of_it_homes_agree_and_nobody_has_to_say_as_its_machine_is_lost() {
    let script = "begin 2; stuck h3; fence; steps; last; $TERRAL txn list";
    scripted(4, script).iter().for_each(agree);
}

#[test]
fn what_a_machine_has_said_before_it_was_lost_is_so_and_all_of_it() {
    // Of three, a home is the witness.
    for count in [3, 4, 4] {
        let script = "begin 2; lose; wait $sets; fence; steps; last; $TERRAL txn list";
        scripted(count, script).iter().for_each(agree);
    }
}

/// What is in doubt is in the simulation (`server/sim/peers/preparing`).
#[test]
fn what_is_not_in_doubt_is_said_not_to_be_and_nobody_says_for_a_machine_that_is_in() {
    let Some(machines) = Machines::new(2) else { return };
    let seen = lines(&machines.run(
        "exec 2>&1; $TERRAL txn list; echo $?; on h1 \"$TERRAL txn list --json\"
        $TERRAL txn show 1-00c0ffee00c0ffee; echo $?
        $TERRAL txn resolve 1-00c0ffee00c0ffee --abort < /dev/null; echo $?
        $TERRAL txn resolve 1-00c0ffee00c0ffee --abort --yes; echo $?
        $TERRAL txn resolve 7-00c0ffee00c0ffee --commit --yes; echo $?",
    ));
    let none = "no such transaction is in doubt (terral txn list)";
    let expected = [
        "0",
        "{\"instance\":\"machines\",\"silent\":[],\"transactions\":[]}",
        none,
        "1",
        "it cannot be asked here whether that is meant: say --yes",
        "1",
        "(if its machine is lost: terral fence 1): invalid argument",
        "1",
        none,
        "1",
    ];
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    let ends = seen.iter().zip(expected).all(|(line, end)| line.ends_with(end));
    assert!(ends, "{seen:#?}");
}
