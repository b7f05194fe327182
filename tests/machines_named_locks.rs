//! Named locks of programs on three machines: real servers, a real network between namespaces. Not
//! here: one machine (`named_locks`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

fn ran(machines: &Machines, script: &str) -> String {
    let home = machines.home().display();
    let output = machines.run(&format!("home={home}; cd $TERRAL_DIR\n{script}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    text
}

/// Counts up in a file, under the lock, so many times.
const COUNT: &str = r#"
for i in $(seq $1); do
    $2 lock --fence /terral/n n -- sh -c 'read n < /terral/n; echo $((n + 1)) > /terral/n' || exit 1
done
"#;

fn counted(meanwhile: &str) {
    let Some(machines) = Machines::new(3) else { return };
    std::fs::write(machines.home().join("count.sh"), COUNT).expect("writes");
    let text = ran(
        &machines,
        &format!(
            "echo 0 > n
            {meanwhile}
            for at in h0 h1 h2; do on $at sh $home/count.sh 15 $TERRAL & all=\"$all $!\"; done
            for one in $all; do wait $one || echo failed; done; wait
            for at in h0 h1 h2; do on $at cat /terral/n; done"
        ),
    );
    assert_eq!(text, "45\n45\n45\n");
}

#[test]
fn who_has_a_lock_has_it_alone_on_all_machines() {
    counted("");
}

#[test]
fn who_has_a_lock_has_it_alone_on_all_machines_though_servers_are_killed() {
    counted("(for at in h1 h0 h2; do sleep 0.7; kill -9 $(pid_of $at); done) &");
}

/// The holder on one machine is stopped, one on another gets the lock when its lease is over, and
/// the first goes on: nothing of it comes later, wherever the file was born.
#[test]
fn a_frozen_holder_that_comes_back_cannot_write_after_another_machine_has_the_lock() {
    let Some(machines) = Machines::new(3) else { return };
    let writes = "trap \"echo told; exit 0\" TERM
        echo x > $1; while echo 1 > /terral/f; do :; done 2>/dev/null
        while :; do sleep 0.05; done";
    std::fs::write(machines.home().join("writes.sh"), writes).expect("writes");
    for born in ["h0", "h1", "h2"] {
        let text = ran(
            &machines,
            &format!(
                "on {born} touch /terral/f
                on h1 \"setsid $TERRAL lock --lease 500ms --fence /terral/f a -- \
                    sh $home/writes.sh $home/has & echo \\$! > $home/pid; wait \\$!; \
                    echo \\$? > $home/code\" > $home/told &
                until [ -e $home/has ]; do sleep 0.05; done; sleep 0.3
                kill -STOP -$(cat $home/pid)
                on h2 \"$TERRAL lock --fence /terral/f a -- sh -c \\\"echo 2 > /terral/f\\\"\"
                kill -CONT -$(cat $home/pid); wait
                cat $home/told $home/code; rm $home/told $home/code $home/has $home/pid
                for at in h0 h1 h2; do on $at cat /terral/f; done; rm f"
            ),
        );
        assert_eq!(text, "told\n75\n2\n2\n2\n", "born on {born}");
    }
}

/// Has one lock, and wants the next one's, by the C library.
const CIRCLE: &str = r#"
import ctypes, os, sys, time
terral, at, home = ctypes.CDLL(sys.argv[1], use_errno=True), int(sys.argv[2]), sys.argv[3]
acquire, release = terral.terral_lock_acquire, terral.terral_lock_release
terral.terral_connect.restype = acquire.restype = ctypes.c_void_p
acquire.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
release.argtypes = [ctypes.c_void_p]
server = terral.terral_connect(None)
own = acquire(server, b"l%d" % at, 0, -1, 0)
open(f"{home}/has{at}", "w").close()
while not all(os.path.exists(f"{home}/has{n}") for n in range(3)): time.sleep(0.02)
other = acquire(server, b"l%d" % ((at + 1) % 3), 0, -1, 0)
print("had" if other else os.strerror(ctypes.get_errno()))
if other: release(other)
release(own)
"#;

#[test]
fn who_wait_for_each_other_over_three_machines_are_told_so() {
    let Some(machines) = Machines::new(3) else { return };
    std::fs::write(machines.home().join("circle.py"), CIRCLE).expect("writes");
    let library = beside::built("libterral.so");
    let text = ran(
        &machines,
        &format!(
            "for at in 0 1 2; do on h$at python3 $home/circle.py {} $at $home & done; wait",
            library.display()
        ),
    );
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["Resource deadlock avoided", "had", "had"]);
}

/// A machine that stands still keeps nobody from a lock for longer than its lease.
#[test]
fn the_lock_of_a_machine_that_stands_still_is_free_after_its_lease() {
    let Some(machines) = Machines::new(3) else { return };
    let text = ran(
        &machines,
        "$TERRAL lock a -- true
        on h1 \"setsid $TERRAL lock --lease 1s a -- sh -c \\\"touch $home/has; sleep 600\\\" & \
            echo \\$! > $home/pid; wait\" &
        until [ -e $home/has ]; do sleep 0.05; done
        server=$(pid_of h1); all=\"-$(cat $home/pid) $server $(ps -o ppid= -p $server)\"
        kill -STOP $all
        on h2 $TERRAL lock --timeout 30s a -- echo had
        kill -CONT $all; kill -9 -$(cat $home/pid); wait; echo end",
    );
    assert_eq!(text, "had\nend\n");
}
