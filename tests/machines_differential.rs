//! The same random operations on tmpfs and by processes that are spread over three machines, which
//! take turns, work apart or race: compared answer by answer, then the tree as it arrived in DIR.
//! The operations are those of `programs/differential.c`.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod answers;
mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use answers::{ABOVE, COMPARED, Case, Mode, compile, lines, operations, seed};
use launched::said;
use namespaces::Machines;

/// A family that is not compared over several machines: files alone have several names there
/// (EOPNOTSUPP); and others by which it comes to be used.
const NOT_OVER_MACHINES: &str = "special_links";
const USING_IT: [&str; 4] = ["links", "symlinks", "nodes", "special_nodes"];

/// Families that are compared only where processes do not take turns: in those, `st_nlink` of an
/// open file may be seen too high once its last name is gone.
const NOT_IN_TURNS: [&str; 2] = ["links", "tmpfile_link"];

/// Operations of one sequence.
const SEQUENCE: u64 = 1000;

/// What runs the program on another machine, in the same process.
fn launcher(machines: &Machines) -> PathBuf {
    let path = machines.home().join("launch");
    let on = machines.shell().display().to_string();
    let text = format!(
        "#!/bin/sh\nhost=h$(($1 % 3)); shift; cd /; exec {on} $host \"exec env \
         LD_PRELOAD=$LD_PRELOAD TERRAL_INSTANCE=$TERRAL_INSTANCE \
         TERRAL_PREFIX=$TERRAL_PREFIX $*\"\n"
    );
    fs::write(&path, text).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("sets");
    path
}

/// What the case says over three machines, then what is wrong with the directory that they bring
/// all to, if they do.
fn served(machines: &Machines, case: &Case<'_>, keep: Option<&Path>, brings: bool) -> Vec<String> {
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    // Their `/dev/shm` is another one.
    let output = machines.home().join("said");
    let kept = keep.map(|keep| {
        let there = machines.home().join("keep");
        fs::copy(keep, &there).expect("copies");
        there
    });
    let arguments = case.arguments(&output, kept.as_deref()).join(" ");
    let (program, launcher) = (case.program.display(), launcher(machines));
    let script = format!(
        "mkdir -p {ABOVE} && cd {ABOVE} && exec {program} --root $PWD/w --launcher {} {arguments}",
        launcher.display()
    );
    let directory = to.display().to_string();
    let options = ["--to", &directory];
    let ran = machines.run_with(if brings { &options } else { &[] }, &script);
    let mut heard = lines(&fs::read(&output).unwrap_or_default());
    if !ran.status.success() {
        heard.push(format!("terral run: {}", said(&ran)));
    } else if brings {
        case.not_arrived(&to, &mut heard);
    }
    fs::remove_dir_all(&to).expect("removes");
    let _ = fs::remove_file(&output);
    heard
}

/// A case without those families that are not compared in turns, but for some.
fn in_turns<'a>(case: Case<'a>, but: &[&str]) -> Case<'a> {
    let mut features = case.features;
    features.retain(|name| !NOT_IN_TURNS.contains(name) || but.contains(name));
    Case { features, ..case }
}

fn hold(machines: &Machines, case: Case<'_>, brings: bool) {
    let mut case = if case.mode == Mode::Sequence { in_turns(case, &[]) } else { case };
    case.features.retain(|name| *name != NOT_OVER_MACHINES);
    case.hold(&|case, keep| served(machines, case, keep, brings));
}

fn at_once(brings: bool) {
    let Some(machines) = Machines::new(3) else { return };
    let program = compile(machines.home());
    let first = seed();
    hold(&machines, Case::new(&program, Mode::Apart, first, operations() / 40, 3), brings);
    hold(&machines, Case::new(&program, Mode::Race, first, 20, 3), brings);
}

#[test]
fn processes_of_three_machines_that_take_turns_get_the_answers_of_tmpfs() {
    let Some(machines) = Machines::new(3) else { return };
    let program = compile(machines.home());
    let first = seed();
    for seed in first..first + operations().div_ceil(25 * SEQUENCE) {
        let processes = 3 + (seed % 2) as u32;
        hold(&machines, Case::new(&program, Mode::Sequence, seed, SEQUENCE, processes), true);
    }
}

#[test]
fn processes_of_three_machines_at_once_get_the_answers_of_tmpfs() {
    at_once(true);
}

#[test]
fn so_they_do_at_once_in_memory_alone() {
    at_once(false);
}

/// Whether one of some cases does not give the answers of tmpfs.
fn differs<'a>(machines: &Machines, mut cases: impl Iterator<Item = Case<'a>>) -> bool {
    cases.any(|case| case.differs(&|case, keep| served(machines, case, keep, false)))
}

/// Else it is to be compared.
#[test]
fn what_is_not_compared_differs() {
    let Some(machines) = Machines::new(3) else { return };
    let program = compile(machines.home());
    let (seeds, case) = (seed().., |mode, seed| Case::new(&program, mode, seed, SEQUENCE, 3));
    assert!(COMPARED.contains(&NOT_OVER_MACHINES), "it is no family");
    let features = [&USING_IT[..], &[NOT_OVER_MACHINES]].concat();
    let cases = seeds.clone().take(5).map(|seed| case(Mode::Apart, seed));
    let cases = cases.map(|case| Case { features: features.clone(), ..case });
    assert!(differs(&machines, cases), "{NOT_OVER_MACHINES} gives the answers of tmpfs");
    for name in NOT_IN_TURNS {
        assert!(COMPARED.contains(&name), "{name} is no family");
        let mut features = COMPARED.to_vec();
        features.retain(|one| *one != NOT_OVER_MACHINES);
        let cases = seeds.clone().take(20).map(|seed| case(Mode::Sequence, seed));
        let cases = cases.map(|case| Case { features: features.clone(), ..case });
        let cases = cases.map(|case| in_turns(case, &[name]));
        assert!(differs(&machines, cases), "{name} gives the answers of tmpfs");
    }
}
