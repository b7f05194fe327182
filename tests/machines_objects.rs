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

use launched::said;
use namespaces::Machines;
use ranks::by_mpich;

/// Ranks on three machines write checkpoints, while something happens; then what the last one has
/// is compared on each machine, and what it consists of is said.
fn checkpoints(options: &[&str], meanwhile: &str) {
    let Some(machines) = Machines::new(3) else { return };
    let Some(program) = heat::compiled(machines.home()) else { return };
    let program = program.display();
    let ranks = by_mpich(&format!("{program} heat 90 20000"));
    let path = machines.path_with_ssh();
    let script = format!(
        "export PATH={}; {meanwhile}
        {ranks}
        wait
        for at in h0 h1 h2; do on $at {program} heat; done
        ls -A; ls heat; ls heat/step-000000000090
        cd heat/step-000000000090; for at in 0 1 2; do ls $at | wc -l; done; wc -l < manifest",
        path.display()
    );
    let output = machines.run_with(options, &script);
    let expected = "from 0\nstep 90 is right\nstep 90 is right\nstep 90 is right\nheat\n\
                    step-000000000087\nstep-000000000090\n0\n1\n2\nmanifest\n1\n1\n1\n7\n";
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out == expected, "{}", said(&output));
    let kills = meanwhile.matches(" h").count();
    assert_eq!(said(&output).matches("was killed").count(), kills, "{}", said(&output));
    (0..3).for_each(|at| assert_eq!(machines.left(at), "", "nothing stays in memory"));
}

#[test]
fn ranks_on_three_machines_write_objects_of_their_own_and_end_as_one_checkpoint() {
    checkpoints(&[], "");
}

#[test]
fn ranks_on_three_machines_go_on_with_their_checkpoint_though_servers_are_killed() {
    let kills = "(for at in h1 h2 h0; do sleep 0.6; kill -9 $(pid_of $at); done) &";
    checkpoints(&[], kills);
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
