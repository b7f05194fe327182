//! Writes on condition of an update id by programs on several machines: real servers, a real
//! network between namespaces. Not here: one machine (`updates`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use beside::by_python;
use launched::said;
use namespaces::Machines;

/// Counts in an object that all machines have, for all and for itself, so many times.
const COUNT: &str = r#"
import sys, time, terral
me = terral.connect()
if sys.argv[1] == "make":
    with terral.Container.make("run", connection=me) as run, run.create(1) as it:
        it.write(bytes(4096))
else:
    place, often = int(sys.argv[1]), int(sys.argv[2])
    run = terral.Container.named("run", connection=me)
    again, last = 0, 0
    with run.open(next(iter(run)), writes=True) as it:
        number = lambda at: int.from_bytes(it.read(8, at=8 * at), "little")
        for own in range(often):
            while True:
                seen = it.update_id()
                assert seen >= last and number(place) == own
                data = (number(0) + 1).to_bytes(8, "little") + (own + 1).to_bytes(8, "little")
                try:
                    last = it.write_if(seen, [(0, 8), (8 * place, 8)], data)
                    break
                except BlockingIOError:
                    again += 1
        if sys.argv[3:]:
            # What is written plainly, here or there, is seen to be another one.
            seen = it.update_id()
            it.write(b"plain", at=2000)
            try:
                it.write_if(seen, [(0, 1)], b"x")
                print("written")
            except BlockingIOError:
                print("changed")
    print(own + 1)
"#;

fn counted(machines: usize, often: u32, meanwhile: &str) {
    let Some(machines) = Machines::new(machines) else { return };
    let program = machines.home().join("count.py");
    std::fs::write(&program, COUNT).expect("writes");
    let program = by_python(&program);
    let script = format!(
        "on h1 {program} make
        {meanwhile}
        place=1
        for at in h0 h1 h1; do
            on $at {program} $place {often} & all=\"$all $!\"; place=$((place + 1))
        done
        for one in $all; do wait $one || echo failed; done; wait
        {program} 4 1 plain; on h1 {program} 5 1 plain
        od -A n -t u8 -N 48 .terral-objects/run/1/*1"
    );
    let output = machines.run_with(&[], &format!("cd $TERRAL_DIR; {script}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut said_each: Vec<&str> = text.split_whitespace().collect();
    let sum = (3 * often + 2).to_string();
    let each = often.to_string();
    let numbers: Vec<&str> = said_each.split_off(said_each.len().saturating_sub(6));
    assert_eq!(numbers, [&sum, &each, &each, &each, "1", "1"], "{}", said(&output));
    assert_eq!(said_each, [&each, &each, &each, "changed", "1", "changed", "1"]);
}

#[test]
fn each_count_of_programs_on_two_machines_counts_once() {
    counted(2, 200, "");
}

#[test]
fn each_count_of_programs_on_two_machines_counts_once_though_servers_are_killed() {
    let kills = "(for at in h1 h0 h1 h0 h1; do sleep 0.4; kill -9 $(pid_of $at); done) &";
    counted(2, 1500, kills);
}
