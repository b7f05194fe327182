//! Objects and checkpoints of programs on three machines: real servers, real ranks of MPI, a real
//! network between namespaces. Not here: one machine (`objects`, `checkpoints`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod heat;
mod launched;
mod namespaces;
mod ranks;

use beside::by_python;
use launched::said;
use namespaces::{Machines, SLOW};
use ranks::by_mpich;

/// Kills each machine's server while they compute.
const KILLS: &str = "(for at in h1 h2 h0; do sleep 0.6; kill -9 $(pid_of $at); done) &";

/// Ranks on three machines write checkpoints, while something happens; then what the last one has
/// is compared on each machine, and what it consists of is said.
fn checkpoints(copies: u32, meanwhile: &str) {
    let Some(machines) = Machines::new(3) else { return };
    let Some(program) = heat::compiled(machines.home()) else { return };
    let program = program.display();
    let ranks = by_mpich(&format!("{program} heat 90 20000"));
    let path = machines.path_with_ssh();
    let script = format!(
        "export PATH={} HEAT_COPIES={copies}; {meanwhile}
        {ranks}
        wait
        for at in h0 h1 h2; do on $at {program} heat; done
        ls -A; ls heat; ls heat/step-000000000090
        cd heat/step-000000000090; for at in 0 1 2; do ls $at | grep -v ffff | wc -l; done
        wc -l < manifest",
        path.display()
    );
    let output = machines.run_with(&[], &script);
    let expected = "from 0\nstep 90 is right\nstep 90 is right\nstep 90 is right\nheat\n\
                    step-000000000087\nstep-000000000090\n0\n1\n2\nmanifest\n";
    let expected = format!("{expected}{0}{0}{0}7\n", format!("{copies}\n"));
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out == expected, "{}", said(&output));
    let kills = meanwhile.matches(" h").count();
    assert_eq!(said(&output).matches("was killed").count(), kills, "{}", said(&output));
    (0..3).for_each(|at| assert_eq!(machines.left(at), "", "nothing stays in memory"));
}

#[test]
fn ranks_on_three_machines_write_objects_of_their_own_and_end_as_one_checkpoint() {
    checkpoints(1, "");
}

#[test]
fn ranks_on_three_machines_go_on_with_their_checkpoint_though_servers_are_killed() {
    checkpoints(1, KILLS);
}

#[test]
fn checkpoints_have_their_copies_though_servers_are_killed() {
    checkpoints(2, KILLS);
}

/// Who begins right after a kill finds nobody connected yet, and waits.
#[test]
fn a_checkpoint_with_copies_begins_though_this_machines_server_was_killed_just_now() {
    let Some(machines) = Machines::new(2) else { return };
    let Some(program) = heat::compiled(machines.home()) else { return };
    let script = format!(
        "export HEAT_COPIES=2; for step in 3 6; do
            kill -9 $(pid_of h0); {} heat $step || exit 1
        done",
        program.display()
    );
    let output = machines.run_with(&[], &script);
    let out = String::from_utf8_lossy(&output.stdout);
    let all = "from 0\nfrom 3\n";
    assert!(output.status.success() && out == all, "{}", said(&output));
    assert_eq!(said(&output).matches("was killed").count(), 2, "{}", said(&output));
}

/// A checkpoint of which a machine had a part is not whole when that machine is lost; one before it
/// of which it had nothing is.
#[test]
fn the_latest_is_one_of_which_a_lost_machine_had_nothing() {
    let Some(machines) = Machines::new(3) else { return };
    let Some(program) = heat::compiled(machines.home()) else { return };
    let program = program.display();
    let ranks = by_mpich(&format!("{program} heat 6"));
    let path = machines.path_with_ssh();
    let script = format!(
        "export PATH={}
        {program} heat 3; {ranks}
        for at in h0 h2; do on $at {program} heat; done
        server=$(pid_of h1); kill -9 $(ps -o ppid= -p $server) $server
        $TERRAL fence h1 --dead
        for at in h0 h2; do on $at {program} heat; done
        {program} heat 9; on h2 {program} heat; ls heat; {program} heat 15; ls heat",
        path.display()
    );
    let output = machines.run_with(&[], &script);
    let right = |step| format!("step {step} is right\n");
    let names = "step-000000000006\nstep-000000000009\n";
    let later = "step-000000000012\nstep-000000000015\n";
    let expected = format!(
        "from 0\nfrom 3\n{0}{0}{1}{1}from 3\n{2}{names}from 9\n{later}",
        right(6),
        right(3),
        right(9)
    );

    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out == expected, "{}\n{}", out, said(&output));
}

/// Each checkpoint is on two machines, so the computation goes on when one is lost, be it that on
/// which rank 0 was, but for the one on which the run began.
#[test]
fn a_checkpoint_with_copies_is_whole_though_a_machine_is_lost() {
    without("h1", "h2");
    without("h2", "h1");
}

fn without(lost: &str, other: &str) {
    let Some(machines) = Machines::new(3) else { return };
    let Some(program) = heat::compiled(machines.home()) else { return };
    let program = program.display();
    let (ranks, later) = (by_mpich(&format!("{program} heat 6")), format!("{program} heat 9"));
    let path = machines.path_with_ssh();
    let script = format!(
        "export PATH={} HEAT_COPIES=2
        {ranks}
        ls heat/step-000000000006; cat heat/step-000000000006/manifest | grep -c object
        for at in 0 1 2; do ls heat/step-000000000006/$at | wc -l; done
        server=$(pid_of {lost}); kill -9 $(ps -o ppid= -p $server) $server
        $TERRAL fence {lost} --dead
        for at in h0 {other}; do on $at {program} heat; done
        {later}; on {other} {program} heat; {program} heat 12; {program} heat 15; ls heat
        ls -A .terral-objects 2>&1 | head -3",
        path.display()
    );
    let output = machines.run_with(&[], &script);
    let right = |step| format!("step {step} is right\n");
    let expected = format!(
        "from 0\n0\n1\n2\nmanifest\n3\n2\n3\n3\n{0}{0}from 6\n{1}from 9\nfrom 12\n\
         step-000000000012\nstep-000000000015\n",
        right(6),
        right(9)
    );
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.starts_with(&expected), "{}\n{}", out, said(&output));
}

/// Makes a container; creates objects in it, where that is said; compares what is there.
const PLACED: &str = r#"
import sys, time, terral
me, data = terral.connect(), bytes(range(256)) * 40000
if sys.argv[1] == "make":
    servers = me.servers()
    print([(one.number, one.host) for one in servers], all(one.memory_bytes for one in servers))
    made = terral.Container.make("parts", connection=me)
    made.create(1).close()
elif sys.argv[1] == "fill":
    made = terral.Container.named("parts", connection=me)
    for on in range(3):
        with made.create(7, on=on) as it:
            it.write(data)
            print(on == it.address.server, end=" ")
    with made.create(8) as it:
        it.write(data)
        mine = it.address
    print(tuple(made.copy(mine, 1)), made.copy(mine, 1) == (8, 1))
    for number, on, error in (7, 1, FileExistsError), (9, 9, FileNotFoundError):
        try:
            made.create(number, on=on)
        except error:
            print("refused", end=" ")
    # What was written here goes where the object is once it is closed.
    until = time.monotonic() + 20
    while any(made.stat((7, on)).memory_bytes < len(data) for on in (0, 1)):
        assert time.monotonic() < until
        time.sleep(0.05)
    print([tuple(address) for address in sorted(made)])
else:
    made = terral.Container.named("parts", connection=me)
    for address in ((7, 0), (7, 1), (8, 1), (7, 2), (8, 2)):
        try:
            with made.open(address) as it:
                print(tuple(address), it.read(len(data) + 1) == data)
        except OSError as error:
            print(address, "lost")
"#;

#[test]
fn an_object_is_on_the_machine_that_its_creator_chooses_and_stays_when_his_is_lost() {
    let Some(machines) = Machines::new(3) else { return };
    let program = machines.home().join("placed.py");
    std::fs::write(&program, PLACED).expect("writes");
    let program = by_python(&program);
    let script = format!(
        "{program} make; on h2 {program} fill
        server=$(pid_of h2); kill -9 $(ps -o ppid= -p $server) $server
        $TERRAL fence h2 --dead
        {program} compare; on h1 {program} compare"
    );
    let output = machines.run_with(&[], &script);
    let there = "(7, 0) True\n(7, 1) True\n(8, 1) True\n(7, 2) lost\n(8, 2) lost\n";
    let expected = "[(0, 'h0'), (1, 'h1'), (2, 'h2')] True\n\
                    True True True (8, 1) True\nrefused refused \
                    [(1, 0), (7, 0), (7, 1), (7, 2), (8, 1), (8, 2)]\n";
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, [expected, there, there].concat(), "{}", said(&output));
}

/// Writes to an object of another machine, one after the other, and then so that some are under
/// way; says whether each took so many round trips.
const OVERLAPS: &str = r#"
import sys, time, terral
me, trip, often = terral.connect(), float(sys.argv[2]), 12
if sys.argv[1] == "make":
    with terral.Container.make("run", connection=me) as run, run.create(1) as it:
        it.write(bytes(1 << 20))
else:
    run = terral.Container.named("run", connection=me)
    with run.open(next(iter(run)), writes=True) as it:
        it.write(b"x")
        begin = time.monotonic()
        for at in range(often):
            it.write(b"each", at=at * 5000)
        each = time.monotonic() - begin
        begin = time.monotonic()
        all = [it.submit_write([(at * 5000, 4)], b"some") for at in range(often)]
        assert not all[-1].done() and [one.wait() for one in all] == [4] * often
        some = time.monotonic() - begin
        assert [it.read(4, at=at * 5000) for at in range(often)] == [b"some"] * often
    print(each >= often * trip, some < often * trip)
"#;

#[test]
fn what_is_submitted_to_another_machine_waits_for_its_link_together() {
    let Some(mut machines) = Machines::new(2) else { return };
    machines.slow_down(1);
    let program = machines.home().join("overlaps.py");
    std::fs::write(&program, OVERLAPS).expect("writes");
    let (program, trip) = (by_python(&program), 2.0 * SLOW.as_secs_f64());
    let script = format!("on h1 {program} make {trip}; {program} use {trip}");
    let output = machines.run_with(&[], &script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True True\n", "{}", said(&output));
}
