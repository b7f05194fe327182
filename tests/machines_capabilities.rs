//! Capabilities of programs on several machines: what each machine's server has issued counts
//! there, and what servers do for each other goes on. Not here: one machine (`capabilities`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// What a script says, on standard error, too.
fn says(machines: &Machines, script: &str) -> Vec<String> {
    let home = machines.home().display();
    let output = machines.run(&format!(
        "home={home}; cap=\"$TERRAL cap\"
        exec 2>&1; {script}"
    ));
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// Whether lines end so, one after the other.
fn ends(lines: &[String], expected: &[&str]) {
    let both = || lines.iter().zip(expected);
    let same = lines.len() == expected.len() && both().all(|(line, end)| line.ends_with(end));
    assert!(same, "{lines:#?}\n{expected:#?}");
}

#[test]
fn one_is_good_on_the_machine_that_issued_it_and_for_files_of_all() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = says(
        &machines,
        "echo here > here; on h1 'echo there > /terral/there'
        $cap get --allow read,list --instance machines -o $home/cap
        on h1 \"$cap get --allow read,list --instance machines -o $home/cap1\"
        TERRAL_CAPABILITY=$home/cap cat here there
        TERRAL_CAPABILITY=$home/cap sh -c 'echo more >> /terral/there'
        on h1 \"TERRAL_CAPABILITY=$home/cap1 cat /terral/here /terral/there\"
        on h1 \"TERRAL_CAPABILITY=$home/cap1 rm /terral/here\"
        on h1 \"TERRAL_CAPABILITY=$home/cap cat /terral/there\"
        cat here there",
    );
    let (denied, refused) = ("Permission denied", "Operation not permitted");
    let read = ["here", "there", denied, "here", "there", denied];
    ends(&lines, &[&read[..], &[refused, "here", "there"]].concat());
}

#[test]
fn what_one_machine_revokes_ends_there_and_what_it_does_for_others_goes_on() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = says(
        &machines,
        "echo here > here; on h1 'echo there > /terral/there'
        (exec 3>> here; touch $home/open; until [ -e $home/revoked ]; do sleep 0.02; done
            echo one >&3) & waits=$!
        until [ -e $home/open ]; do sleep 0.02; done
        $cap revoke --operations write --instance machines; touch $home/revoked
        wait $waits; on h1 'echo two >> /terral/here; echo two >> /terral/there'
        kill -9 $(pid_of h0); on h1 'echo three >> /terral/here'; cat here there",
    );
    let revoked = lines.iter().filter(|line| line.contains("may do less now")).count();
    assert_eq!(revoked, 1, "{lines:#?}");
    let ending: Vec<String> = lines.iter().rev().take(5).rev().cloned().collect();
    ends(&ending, &["here", "two", "three", "there", "two"]);
    assert!(!lines.iter().any(|line| line == "one"), "{lines:#?}");
}
