//! Locks of a file by programs on several machines: real servers, real programs, a real network
//! between namespaces. Not here: that each is granted if nothing is in its way, for all kinds and
//! whoever dies (the server's `sim/peers/locks`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// What a program does with locks of a file, in steps.
const LOCKER: &str = r#"
import errno, fcntl, os, signal, sys, time
path, steps = sys.argv[1], sys.argv[2:]
f, others = open(path, "r+b"), []
names = {errno.EINTR: "EINTR", errno.EDEADLK: "EDEADLK"}
kinds = {"read": fcntl.LOCK_SH, "write": fcntl.LOCK_EX, "free": fcntl.LOCK_UN}
def alarm(*_): raise InterruptedError(errno.EINTR, "alarm")
def lock(how, what):
    kind, _, at = what.partition("@")
    if at: fcntl.lockf(f, kinds[kind] | how, 1, int(at))
    else: fcntl.flock(f, kinds[kind] | how)
for step in steps:
    what, _, rest = step.partition(":")
    if what == "try":
        try: lock(fcntl.LOCK_NB, rest); print("yes", flush=True)
        except BlockingIOError: print("no", flush=True)
    elif what == "wait":
        try: lock(0, rest); print("had", flush=True)
        except OSError as error: print(names.get(error.errno, error), flush=True)
    elif what == "file": others.append(f); f = open(rest, "r+b")
    elif what == "say": open(rest, "w").close()
    elif what == "hear":
        while not os.path.exists(rest): time.sleep(0.01)
    elif what == "sleep": time.sleep(float(rest))
    elif what == "die": os.kill(os.getpid(), signal.SIGKILL)
    elif what == "alarm":
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, float(rest))
    elif what == "count":
        for _ in range(int(rest)):
            fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
            number = int(os.pread(f.fileno(), 20, 0) or b"0")
            os.pwrite(f.fileno(), b"%d" % (number + 1), 0)
            fcntl.lockf(f, fcntl.LOCK_UN, 1, 0)
"#;

/// What a script said that has `locker STEP…`, here and on others, and begins with a file of `h1`.
fn ran(machines: &Machines, script: &str) -> Vec<String> {
    let program = machines.home().join("locker.py");
    std::fs::write(&program, LOCKER).expect("writes");
    let (program, home) = (program.display(), machines.home().display());
    let output = machines.run(&format!(
        "home={home}; locker() {{ at=$1; shift; on $at \"python3 {program} /terral/f $*\"; }}
        on h1 'touch /terral/f'\n{script}"
    ));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !said(&output).contains("Error"), "{text}{}", said(&output));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_lock_on_one_machine_is_in_the_way_on_all_others_and_nothing_else_is() {
    let Some(machines) = Machines::new(3) else { return };
    let said = ran(
        &machines,
        "locker h1 try:write@0 say:$home/one hear:$home/end &
        locker h2 try:read@1 say:$home/two hear:$home/end &
        until [ -e $home/one ] && [ -e $home/two ]; do sleep 0.02; done
        steps='try:read@0 try:write@1 try:read@1 try:write@2 try:write'
        for at in h0 h1 h2; do locker $at $steps; done
        touch $home/end; wait; for at in h0 h1 h2; do locker $at try:write@0 try:write@1; done",
    );
    let each = ["no", "no", "yes", "yes", "yes"];
    let expected = [&["yes", "yes"][..], &each, &each, &each, &["yes"; 6]].concat();
    assert_eq!(said, expected);
}

#[test]
fn who_waits_for_a_lock_has_it_when_its_holder_ends_on_another_machine_however_that_ends() {
    let Some(machines) = Machines::new(3) else { return };
    for end in ["free", "closes", "die"] {
        let last = match end {
            "free" => "try:free@0 hear:$home/over",
            "closes" => "",
            _ => "die",
        };
        let said = ran(
            &machines,
            &format!(
                "rm -f $home/held $home/asked
                steps=\"try:write@0 say:$home/held hear:$home/asked sleep:0.2 {last}\"
                locker h2 $steps > $home/ended 2>&1 &
                until [ -e $home/held ]; do sleep 0.02; done
                locker h0 try:write@0 say:$home/asked wait:write@0; touch $home/over; wait"
            ),
        );
        std::fs::remove_file(machines.home().join("over")).expect("removes");
        assert_eq!(said, ["no", "had"], "{end}");
    }
}

#[test]
fn who_waits_for_a_lock_on_another_machine_is_interrupted_by_a_signal() {
    let Some(machines) = Machines::new(2) else { return };
    let said = ran(
        &machines,
        "locker h1 try:write@0 say:$home/held hear:$home/over &
        until [ -e $home/held ]; do sleep 0.02; done
        locker h0 alarm:0.3 wait:write@0; touch $home/over; wait",
    );
    assert_eq!(said, ["yes", "EINTR"]);
}

#[test]
fn two_that_wait_for_each_other_on_two_machines_are_told_so() {
    let Some(machines) = Machines::new(3) else { return };
    let mut said = ran(
        &machines,
        "locker h0 try:write@0 say:$home/one hear:$home/two wait:write@1 &
        locker h2 try:write@1 say:$home/two hear:$home/one wait:write@0 & wait",
    );
    said.sort_unstable();
    assert_eq!(said, ["EDEADLK", "had", "yes", "yes"]);
}

/// Each has what the next one waits for, in a file of another machine; one more machine stands
/// still.
#[test]
fn all_that_wait_for_each_other_over_files_of_several_machines_go_on_once_one_is_told_so() {
    let Some(machines) = Machines::new(4) else { return };
    let mut said = ran(
        &machines,
        "on h2 'touch /terral/g'; on h0 'touch /terral/h'
        others() { echo hear:$home/f hear:$home/g hear:$home/h; }
        locker h0 try:write@0 say:$home/f $(others) file:/terral/g wait:write@5 > $home/0 2>&1 &
        locker h1 file:/terral/g try:write@5 say:$home/g $(others) \
            file:/terral/h wait:write@7 > $home/1 2>&1 &
        locker h2 file:/terral/h try:write@7 say:$home/h $(others) \
            file:/terral/f wait:write@0 > $home/2 2>&1 &
        still=$(pid_of h3); kill -STOP $still; wait; kill -CONT $still
        cat $home/0 $home/1 $home/2",
    );
    said.sort_unstable();
    assert_eq!(said, ["EDEADLK", "had", "had", "yes", "yes", "yes"]);
}

#[test]
fn what_is_counted_under_a_lock_on_three_machines_is_right_while_their_servers_are_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let said = ran(
        &machines,
        "for at in h0 h1 h2; do locker $at count:60 & done
        for at in h1 h0 h2 h1; do sleep 0.4; kill -9 $(pid_of $at); done; wait; cat f; echo",
    );
    assert_eq!(said, ["180"]);
}
