//! Files whose parts lie over several machines: who writes them, who reads them, and who is lost.
//! Not here: which machine creates a file (`machines_placement`), and striped objects (there).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::process::Output;

use launched::said;
use namespaces::Machines;

/// `write PATH FIRST MIB`: writes so many MiB from one on; `turns PATH FIRST MIB`: the same, in
/// calls of 3.5 MiB, each of which opens and closes the file; `check PATH FIRST MIB [page]`: says
/// whether they are as all write them, and what could not be read. Each page says which one it is.
const PARTS: &str = r#"
import errno, os, sys
what, path, first, mib = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20, int(sys.argv[4]) << 20
page = lambda at: (b"%016d" % at) * 256
step = 1 << 20
whole = lambda at: b"".join(page(at + n) for n in range(0, step, 4096))
if what == "write":
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for at in range(first, first + mib, step):
        os.pwrite(fd, whole(at), at)
elif what == "turns":
    for at in range(first, first + mib, 7 << 19):
        fd, end = os.open(path, os.O_RDWR | os.O_CREAT), min(at + (7 << 19), first + mib)
        os.pwrite(fd, b"".join(page(n) for n in range(at, end, 4096)), at)
        os.close(fd)
else:
    fd, wrong, lost = os.open(path, os.O_RDONLY), [], []
    for at in range(first, first + mib, step):
        try:
            if os.pread(fd, step, at) != whole(at): wrong.append(at >> 20)
        except OSError as error:
            assert error.errno == errno.EIO, error
            lost.append(at >> 20)
    print(f"wrong: {wrong}, lost: {lost}" if wrong or lost else "all", flush=True)
"#;

/// `used HOST`: its memory in use. `sent HOST`: bytes that it has sent. `settled HOST PATH MIB`:
/// waits until so many MiB of a file are kept by other machines than its home, and nobody may write
/// to it.
const WORDS: &str = r#"
settled() { $ON $1 "until $TERRAL stat --json --instance machines $2 | python3 -c '
import json, sys
safety = json.load(sys.stdin)[\"safety\"]
sys.exit(safety[\"open_for_writing\"] or sum(part[1] for part in safety[\"parts\"]) != $3 << 20)'
do sleep 0.05; done"; }
sent() { $ON $1 "$TERRAL status --json --instance machines" | python3 -c 'import json,sys
print(json.load(sys.stdin)[0]["status"]["partition"]["sent"]["bytes"])'; }
used() { $ON $1 "$TERRAL status --json --instance machines" | python3 -c 'import json,sys
print(json.load(sys.stdin)[0]["status"]["memory_used_bytes"])'; }
mib() { echo $((($2 - $1) >> 20)); }
"#;

fn run(machines: &Machines, options: &[&str], script: &str) -> Output {
    let home = machines.home();
    std::fs::write(home.join("parts.py"), PARTS).expect("writes");
    let words = format!("home={}; parts=\"python3 $home/parts.py\"\n{WORDS}", home.display());
    machines.run_with(options, &format!("{words}{script}"))
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn each_part_of_a_striped_file_is_read_from_the_machine_where_it_lies() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe; $TERRAL policy list
        on h1 \"$parts write /terral/f 0 24\"; settled h1 /terral/f 16
        on h1 \"$TERRAL stat --instance machines /terral/f\" | grep -E '^  (parts|layout)'
        one=$(sent h1); two=$(sent h2); $parts check f 0 24
        echo $(mib $one $(sent h1)) $(mib $two $(sent h2))
        on h2 \"$parts check /terral/f 0 24\"; on h1 \"$parts check /terral/f 0 24\"
        settled h1 /terral/f 16; mv f g; $parts check g 0 24; rm g
        until [ $(used h2) -lt 1000000 ]; do sleep 0.05; done; echo nothing is left",
    );
    let expected = "f*  layout=stripe:0:2MiB\n  \
        parts     8.00 MiB at most with member 0, 8.00 MiB at most with member 2: lost with it\n  \
        layout    striped over member 1, member 2, member 0, in parts of 2.00 MiB\n\
        all\n8 8\nall\nall\nall\nnothing is left\n";
    assert_eq!(told(&output), expected, "{}", said(&output));
}

#[test]
fn a_machine_that_keeps_no_files_sends_each_part_straight_to_its_place() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &["--storage-hosts", "h0,h1"],
        "$TERRAL policy set '/terral/f*' layout=stripe
        on h2 \"$parts write /terral/f 0 24\"; settled h0 f 12
        [ $(used h2) -lt 1000000 ] && echo nothing is left
        $parts check f 0 24; settled h0 f 12
        server=$(pid_of h2); kill -9 $(ps -o ppid= -p $server) $server; $TERRAL fence h2 --dead
        on h1 \"$parts check /terral/f 0 24\"",
    );
    assert_eq!(told(&output), "nothing is left\nall\nall\n", "{}", said(&output));
}

#[test]
fn of_a_machine_that_is_lost_the_parts_of_striped_files_are_errors_and_the_rest_is_read() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe:0:4MiB
        $parts write f 0 24; settled h0 f 16
        server=$(pid_of h2); kill -9 $(ps -o ppid= -p $server) $server; $TERRAL fence h2 --dead
        on h1 \"$parts check /terral/f 0 24\"; $parts check f 0 24
        on h1 'dd if=/terral/f of=/dev/null bs=1M skip=8 count=1' 2>&1 | grep -o 'error' | head -1
        $TERRAL stat --instance machines f | grep -c 'member 2'; rm f; $parts write f2 0 4
        $parts check f2 0 4",
    );
    let lost = "wrong: [], lost: [8, 9, 10, 11, 20, 21, 22, 23]\n".repeat(2);
    assert_eq!(told(&output), format!("{lost}error\n2\nall\n"), "{}", said(&output));
}

#[test]
fn every_server_is_killed_while_parts_of_striped_files_are_on_their_way() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe
        for round in 1 2 3; do
            for at in h0 h1 h2; do on $at \"$parts write /terral/f.$round.$at 0 24\" & it=$!
                kill -9 $(pid_of $at); wait $it; done
            for at in h2 h1 h0; do kill -9 $(pid_of $at); done
            for at in h0 h1 h2; do for of in h0 h1 h2; do
                on $at \"$parts check /terral/f.$round.$of 0 24\"; done; done
        done | sort | uniq -c | tr -s ' '
        for round in 1 2 3; do for of in h0 h1 h2; do settled h0 /terral/f.$round.$of 16; done; done
        on h1 \"$parts check /terral/f.2.h2 0 24\"",
    );
    assert_eq!(told(&output), " 27 all\nall\n", "{}", said(&output));
}

#[test]
fn a_file_of_more_than_one_machines_memory_is_written_and_read() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe
        much=384; $parts write f 0 $much; on h1 \"$parts check /terral/f 0 $much\"
        : > f; $parts write f 0 6; settled h0 f 4; on h2 \"$parts check /terral/f 0 6\"",
    );
    assert_eq!(told(&output), "all\nall\n", "{}", said(&output));
}

#[test]
fn a_machine_that_keeps_no_files_writes_more_than_the_memory_of_the_home() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &["--storage-hosts", "h0,h1"],
        "$TERRAL policy set '/terral/f*' layout=stripe
        much=384; on h2 \"$parts write /terral/f 0 $much\"; $parts check f 0 $much
        on h2 \"$parts check /terral/f 0 $much\"",
    );
    assert_eq!(told(&output), "all\nall\n", "{}", said(&output));
}

#[test]
fn a_machine_that_leaves_gives_its_parts_to_the_next_where_the_home_is_full() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe
        $parts write f 0 96; settled h0 f 64; $parts write g 0 150; $parts check g 0 150
        on h1 \"$TERRAL stop --instance machines\" > /dev/null; echo $?
        $parts check f 0 96; on h2 \"$parts check /terral/f 0 96\"; settled h0 f 64
        $TERRAL stat --instance machines f | grep -c 'member 1:'",
    );
    assert_eq!(told(&output), "all\n0\nall\nall\n0\n", "{}", said(&output));
}

#[test]
fn what_is_written_as_the_part_before_goes_on_its_way_is_all_there() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe; : > f; : > f2
        on h1 \"$parts turns /terral/f 0 84\" & on h2 \"$parts turns /terral/f2 0 84\"; wait
        for at in h0 h1 h2; do
            on $at \"$parts check /terral/f 0 84; $parts check /terral/f2 0 84\"; done",
    );
    assert_eq!(told(&output), "all\n".repeat(6), "{}", said(&output));
}

#[test]
fn many_who_wait_for_memory_of_one_home_all_get_it() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &["--storage-hosts", "h0,h1"],
        "$TERRAL policy set '/terral/f*' layout=stripe; for n in 1 2 3 4 5 6; do : > f$n; done
        for n in 1 2 3 4 5 6; do on h2 \"$parts write /terral/f$n 0 64\" & done; wait
        for n in 1 2 3 4 5 6; do on h1 \"$parts check /terral/f$n 0 64\"; done",
    );
    assert_eq!(told(&output), "all\n".repeat(6), "{}", said(&output));
}

#[test]
fn what_was_needed_by_who_was_refused_goes_where_it_was() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$TERRAL policy set '/terral/f*' layout=stripe; much=384; $parts write f 0 $much
        settled h0 f 256; python3 -c 'import os
try: os.ftruncate(os.open(\"f\", os.O_RDWR), 385 << 20)
except OSError as error: print(error.strerror)'
        $parts write f2 0 96; on h1 \"$parts check /terral/f2 0 96\"
        on h2 \"$parts check /terral/f 0 $much\"; settled h0 f2 64",
    );
    assert_eq!(told(&output), "No space left on device\nall\nall\n", "{}", said(&output));
}
