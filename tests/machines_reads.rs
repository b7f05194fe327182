//! Files that programs read on another machine than that where they were made: real servers, real
//! programs, a real network between namespaces. What is kept of them is used, and is never older
//! than what was written. Not here: what arrives in a permanent directory (`machines_to`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// Reads a file again and again, each time whole, which must be of one kind of byte, and says which
/// kinds it has seen, in order.
const READER: &str = r#"
import os, sys, time
path, until = sys.argv[1], float(sys.argv[2])
seen, end = [], time.time() + until
while time.time() < end:
    with open(path, "rb") as f: data = f.read()
    kinds = sorted(set(data))
    assert len(data) == 3000000 and len(kinds) == 1, (len(data), kinds)
    if seen[-1:] != kinds: seen += kinds
os.write(1, f"{seen == sorted(seen)} {len(seen) > 1}\n".encode())
"#;

/// Replaces such a file by one of the next kind of byte, again and again.
const WRITER: &str = r#"
import os, sys, time
path, until = sys.argv[1], float(sys.argv[2])
kind, end = 1, time.time() + until
while time.time() < end and kind < 250:
    kind += 1
    with open(path + ".new", "wb") as f: f.write(bytes([kind]) * 3000000)
    os.rename(path + ".new", path)
    time.sleep(0.05)
"#;

/// Maps a file for writing, closes it, and stores another kind of byte each time it is told to.
const STORER: &str = r#"
import ctypes, os, sys, time
path = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fd = os.open(path, os.O_RDWR)
at = libc.mmap(None, 2000000, 3, 1, fd, 0)
assert at != ctypes.c_void_p(-1).value
os.close(fd)
open(path + ".done.0", "w").close()
for n in range(1, 5):
    while not os.path.exists(path + f".{n}"): time.sleep(0.02)
    ctypes.memset(at, 64 + n, 2000000)
    open(path + f".done.{n}", "w").close()
"#;

/// Replaces a small file as fast as it can, or opens, looks at and reads it, each time whole.
const REPLACER: &str = r#"
import os, sys, time
what, path, end = sys.argv[1], sys.argv[2], time.time() + 3
kind, count = 0, 0
while time.time() < end:
    if what == "write":
        kind = kind % 250 + 1
        with open(path + ".new", "wb") as f: f.write(bytes([kind]) * 600)
        os.rename(path + ".new", path)
    else:
        with open(path, "rb") as f:
            assert os.fstat(f.fileno()).st_size == 600
            data = f.read()
        assert len(data) == 600 and len(set(data)) == 1, (len(data), set(data))
    count += 1
os.write(1, f"{what} {count > 3}\n".encode())
"#;

fn run(machines: &Machines, script: &str) -> String {
    let home = machines.home();
    std::fs::write(home.join("reader.py"), READER).expect("writes");
    std::fs::write(home.join("writer.py"), WRITER).expect("writes");
    std::fs::write(home.join("storer.py"), STORER).expect("writes");
    let output = machines.run(&format!("home={}\n{script}", home.display()));
    assert!(output.status.success(), "{}", said(&output));
    if String::from_utf8_lossy(&output.stderr).contains("Error") {
        panic!("{}", said(&output));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_written_on_one_machine_is_what_all_others_read_next() {
    let Some(machines) = Machines::new(3) else { return };
    // Each writes, closes, and then all read: in place, appended, cut, and replaced.
    let said = run(
        &machines,
        "on h1 'head -c 3000000 /dev/zero > /terral/f'
        for i in 1 2 3 4 5 6 7 8; do
            sum=$(cksum < f)
            [ \"$sum\" = \"$(on h2 'cksum < /terral/f')\" ] || echo h2 at $i
            [ \"$sum\" = \"$(on h1 'cksum < /terral/f')\" ] || echo h1 at $i
            [ \"$sum\" = \"$(cksum < f)\" ] || echo again at $i
            [ \"$sum\" != \"$before\" ] || echo old at $i
            before=$sum
            case $i in
            1) on h1 'echo appended >> /terral/f';;
            2) on h2 'echo far >> /terral/f';;
            3) echo here | dd of=f bs=1 seek=1000000 conv=notrunc 2>/dev/null;;
            4) on h1 'truncate -s 2000000 /terral/f';;
            5) on h2 'head -c 2500000 /dev/urandom > /terral/g; mv /terral/g /terral/f';;
            6) on h1 'echo here | dd of=/terral/f bs=1 seek=70 conv=notrunc 2>/dev/null';;
            7) truncate -s 1999999 f;;
            esac
        done; echo done",
    );
    assert_eq!(said, "done\n");
}

#[test]
fn a_reader_sees_a_file_whole_and_never_goes_back_while_its_server_is_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let said = run(
        &machines,
        "on h1 \"python3 $home/writer.py /terral/f 6\" & until [ -e f ]; do sleep 0.1; done
        on h2 \"python3 $home/reader.py /terral/f 6\" & python3 $home/reader.py f 6 &
        sleep 1.5; kill -9 $(pid_of h2); sleep 1; kill -9 $(pid_of h0)
        sleep 1; kill -9 $(pid_of h2); wait",
    );
    assert_eq!(said, "True True\nTrue True\n");
}

#[test]
fn a_file_that_is_replaced_all_the_time_is_always_there_and_whole() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    std::fs::write(machines.home().join("replacer.py"), REPLACER).expect("writes");
    let script = format!(
        "replacer=\"python3 {}/replacer.py\"; head -c 600 /dev/zero > f
        $replacer write f & for h in h1 h2; do on $h \"$replacer read /terral/f\" & done; wait",
        machines.home().display()
    );
    let directory = to.display().to_string();
    for options in [&["--to", &directory][..], &[]] {
        let output = machines.run_with(options, &script);
        let said = said(&output);
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["read True", "read True", "write True"], "{options:?}: {said}");
    }
}

#[test]
fn a_server_that_was_stopped_shows_nothing_that_was_changed_meanwhile() {
    let Some(machines) = Machines::new(2) else { return };
    // Nobody waits longer than the lease for one that has stopped.
    let said = run(
        &machines,
        "head -c 2000000 /dev/zero > f; on h1 'cksum < /terral/f; cksum < /terral/f'
        server=$(pid_of h1); kill -STOP $server
        head -c 2000000 /dev/zero | tr '\\0' x > f; cksum < f
        kill -CONT $server; on h1 'cksum < /terral/f'",
    );
    let sums: Vec<&str> = said.lines().collect();
    assert!(sums.len() == 4 && sums[0] == sums[1] && sums[2] == sums[3], "{said}");
    assert_ne!(sums[1], sums[2], "{said}");
}

#[test]
fn a_file_open_elsewhere_stays_when_its_server_was_killed_and_another_takes_its_name() {
    let Some(machines) = Machines::new(2) else { return };
    let said = run(
        &machines,
        "head -c 3000000 /dev/urandom > f; cksum < f > $home/one
        on h1 \"exec 3< /terral/f; touch $home/open; until [ -e $home/over ]; do sleep 0.02; done
            cksum <&3\" > $home/two & until [ -e $home/open ]; do sleep 0.02; done
        kill -9 $(pid_of h0); on h1 'ls /terral'; echo other > g; mv g f
        touch $home/over; wait; cmp $home/one $home/two && cat f",
    );
    assert_eq!(said, "f\nother\n");
}

#[test]
fn what_was_read_once_is_read_again_without_the_machine_that_has_it() {
    let Some(machines) = Machines::new(2) else { return };
    // The link is idle but for the lease: less than a tenth of the file goes over it.
    let said = run(
        &machines,
        "on h1 'head -c 20000000 /dev/urandom > /terral/f'; cksum < f > one
        received() { cat /sys/class/net/eth0/statistics/rx_bytes; }
        before=$(received); for i in 1 2 3 4 5; do cksum < f; done | uniq | cmp - one
        echo $(( ($(received) - before) * 10 < 20000000 ))",
    );
    assert_eq!(said, "1\n");
}

#[test]
fn small_files_of_another_machine_are_opened_again_without_a_word() {
    let Some(machines) = Machines::new(2) else { return };
    // 1,000 opens and reads: the link is idle but for the lease.
    let said = run(
        &machines,
        "on h1 'mkdir /terral/d; cd /terral/d; for n in $(seq 100); do echo $n > $n; done'
        cat d/* | sort -n > one; sleep 1.2; cat d/* > /dev/null
        sent() { cat /sys/class/net/eth0/statistics/tx_packets; }
        before=$(sent); for n in 1 2 3 4 5 6 7 8 9 10; do cat $(seq -f d/%g 100); done > all
        echo $(( $(sent) - before < 100 )); wc -l < all; seq 100 | cmp - one",
    );
    assert_eq!(said, "1\n1000\n");
}

/// What nobody was told of that it is open.
#[test]
fn a_file_that_is_removed_while_it_is_open_elsewhere_stays_and_its_memory_is_free_then() {
    let Some(machines) = Machines::new(2) else { return };
    let said = run(
        &machines,
        "on h1 'head -c 50000000 /dev/urandom > /terral/f'; cksum < f > one; exec 3< f
        on h1 'rm /terral/f; sleep 4'; [ -e f ] || cksum <&3 | cmp - one; exec 3<&-
        used() { on h1 'df -B1 --output=used /terral | tail -n 1'; }
        for n in $(seq 100); do [ $(used) -lt 40000000 ] && break; sleep 0.1; done
        echo $(( $(used) < 40000000 ))",
    );
    assert_eq!(said, "1\n");
}

#[test]
fn a_long_write_to_another_machines_file_is_a_question_for_each_mib() {
    let Some(machines) = Machines::new(2) else { return };
    let said = run(
        &machines,
        "on h1 'touch /terral/f'; head -c 16777216 /dev/urandom > one
        asked() { $TERRAL status --json | grep -o 'operations.:[0-9]*' | grep -o '[0-9]*'; }
        before=$(asked); dd if=one of=f bs=5M conv=notrunc status=none
        echo $(( $(asked) - before < 60 )); cmp one f",
    );
    assert_eq!(said, "1\n");
}

#[test]
fn what_is_stored_through_a_map_whose_file_was_closed_is_what_others_read_next() {
    let Some(machines) = Machines::new(2) else { return };
    let said = run(
        &machines,
        "done_() { until [ -e f.done.$1 ]; do sleep 0.02; done; }
        on h1 'head -c 2000000 /dev/zero > /terral/f'; cksum < f > /dev/null
        on h1 \"python3 $home/storer.py /terral/f\" & done_ 0; cksum < f > /dev/null
        for n in 1 2 3 4; do
            touch f.$n; done_ $n; tail -c 1 f; head -c 1000000 f | tail -c 1; cksum < f > /dev/null
        done; wait",
    );
    assert_eq!(said, "AABBCCDD");
}
