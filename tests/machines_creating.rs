//! Programs on several machines that create files in one directory at once: each name is one
//! machine's, and what it wrote is there for all, whoever's server is killed meanwhile.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::collections::BTreeMap;

use launched::said;
use namespaces::Machines;

/// Names that each program creates for itself, and that all try to create.
const NAMES: usize = 600;

/// Says how many of the names that all try were its own.
const CREATES: &str = r#"
import sys
me, directory, names = sys.argv[1], sys.argv[2], int(sys.argv[3])
won = 0
for i in range(names):
    with open(f"{directory}/{me}.{i}", "x") as file:
        file.write(f"{me} {i}\n")
    try:
        with open(f"{directory}/all.{i}", "x") as file:
            file.write(f"{me} {i}\n")
        won += 1
    except FileExistsError:
        pass
print(won)
"#;

/// What there is to be, by name; of what all tried, whose it may be.
fn check(there: &BTreeMap<String, String>) {
    assert_eq!(there.len(), 4 * NAMES);
    for (name, says) in there {
        let (who, number) = name.split_once('.').expect("a name");
        let (whose, is) = says.trim_end().split_once(' ').expect("what was written");
        assert!((who == "all" || who == whose) && number == is, "{name} says {says}");
    }
}

/// All create at once, while something happens.
fn all_create(options: &[&str], machines: &Machines, meanwhile: &str) {
    let home = machines.home().display().to_string();
    std::fs::write(machines.home().join("creates.py"), CREATES).expect("writes");
    let output = machines.run_with(
        options,
        &format!(
            "mkdir shared
            for h in h0 h1 h2; do
                on $h \"python3 {home}/creates.py $h /terral/shared {NAMES} > {home}/$h\" &
            done
            {meanwhile}
            wait
            cat {home}/h0 {home}/h1 {home}/h2
            for h in h0 h1 h2; do on $h 'cd /terral/shared; cat * | cksum'; done | uniq | wc -l
            cp -r shared {home}/seen"
        ),
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = said(&output);
    assert!(output.status.success(), "{text} {said}");
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(numbers.len(), 4, "{text} {said}");
    assert_eq!(numbers[..3].iter().sum::<usize>(), NAMES, "each name is one's: {text} {said}");
    assert_eq!(numbers[3], 1, "all see the same: {text} {said}");
    check(&files(machines, "seen"));
}

fn files(machines: &Machines, directory: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(machines.home().join(directory)).expect("lists");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("lists");
        let text = std::fs::read_to_string(entry.path()).expect("reads");
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    entries.map(read).collect()
}

#[test]
fn each_of_many_names_that_all_create_at_once_is_one_machines() {
    let Some(machines) = Machines::new(3) else { return };
    all_create(&[], &machines, "");
}

#[test]
fn so_it_is_and_all_arrives_though_servers_are_killed_meanwhile() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let options = ["--to", to.to_str().expect("a path")];
    let kills = "sleep 0.3; for h in h0 h1 h0 h2; do kill -9 $(pid_of $h); sleep 0.2; done";
    all_create(&options, &machines, kills);
    check(&files(&machines, "to/shared"));
}
