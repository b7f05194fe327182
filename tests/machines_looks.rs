//! Paths that lead through directories of other machines: what is shown there costs no message, and
//! is never older than what was done.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// Uses files of its own, below a directory that another machine was the last to change, and says
/// how many packets that was.
const USES: &str = r#"
import os, sys, time
own, count = sys.argv[1], int(sys.argv[2])
def packets():
    for line in open("/proc/net/dev"):
        if "eth0:" in line:
            of = line.split(":")[1].split()
            return int(of[1]) + int(of[9])
os.mkdir(own)
open(own + "/f", "x").close()
# Until nobody has changed the directory above for a while.
time.sleep(2.5)
os.stat(own + "/f")
before = packets()
for i in range(count):
    os.stat(own + "/f")
    open(own + "/f").close()
    open(f"{own}/n{i}", "x").close()
    assert not os.path.exists(f"{own}/missing{i}")
assert len(os.listdir(own)) == count + 1
print(packets() - before)
"#;

/// Looks at files that another machine has made, which nobody changes any more, and says how many
/// packets it was the first time and the last one.
const LOOKS: &str = r#"
import os, sys, time
def packets():
    for line in open("/proc/net/dev"):
        if "eth0:" in line:
            of = line.split(":")[1].split()
            return int(of[1]) + int(of[9])
theirs, count = sys.argv[1], int(sys.argv[2])
all = []
for pause in [2.5, 0, 0]:
    time.sleep(pause)
    before = packets()
    for i in range(count):
        assert os.stat(f"{theirs}/n{i}").st_size == 0
    all.append(packets() - before)
print(all[0])
print(all[-1])
"#;

/// What is said beside, if it takes a minute: leases, twice a term, and what the switch itself
/// does. A question for each call would be 2,400 at least.
const IDLE: u64 = 300;

/// Two use their own files, after the first machine has made something beside them; then one looks
/// at the other's.
fn all_use(options: &[&str]) {
    let Some(machines) = Machines::new(3) else { return };
    let home = machines.home().display().to_string();
    std::fs::write(machines.home().join("uses.py"), USES).expect("writes");
    std::fs::write(machines.home().join("looks.py"), LOOKS).expect("writes");
    let count: u64 = 400;
    let output = machines.run_with(
        options,
        &format!(
            "touch last
            on h1 \"python3 {home}/uses.py /terral/own1 {count} > {home}/h1\" &
            on h2 \"python3 {home}/uses.py /terral/own2 {count} > {home}/h2\" &
            wait
            on h2 \"python3 {home}/looks.py /terral/own1 {count} > {home}/looked\"
            cat {home}/h1 {home}/h2 {home}/looked
            mv own1 moved
            for h in h0 h1 h2; do on $h '! test -e /terral/own1 && test -e /terral/moved/n1'; done"
        ),
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text} {}", said(&output));
    let packets: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(packets.len(), 4, "{text} {}", said(&output));
    println!("{packets:?} packets");
    // The first time: others of the directory come with what is asked for.
    assert!(packets[2] < count && packets[3] < IDLE, "{packets:?}");
    assert!(packets[..2].iter().all(|packets| *packets < IDLE), "{packets:?}");
}

#[test]
fn a_machines_own_files_cost_no_message_whoever_has_the_directory_above() {
    all_use(&[]);
}

#[test]
fn so_it_is_with_a_permanent_directory() {
    let target = tempfile::tempdir().expect("directory");
    all_use(&["--to", &target.path().display().to_string()]);
    if rustix::process::geteuid().is_root() {
        assert_eq!(std::fs::read_dir(target.path().join("moved")).expect("lists").count(), 401);
    }
}

/// Changes a tree on one machine after the other; all look at it at once, and again when it is at
/// rest.
const CHANGES: &str = r#"
look() { # what to see
    for h in h0 h1 h2; do
        is=$(on $h 'cd /terral/d; for n in *; do stat -c %n.%a $n; done; test -e only || echo none')
        is=$(echo $is)
        test "$is" = "$1" || { echo "$h: $is, not $1"; exit 1; }
    done
}
mkdir d && on h1 'touch /terral/d/a'
look 'a.644 none' && sleep 1.5 && look 'a.644 none' && look 'a.644 none'
on h2 'chmod 600 /terral/d/a; mkdir /terral/d/b'
look 'a.600 b.755 none' && sleep 1.5 && look 'a.600 b.755 none'
on h0 'mv /terral/d/a /terral/d/c'
look 'b.755 c.600 none' && sleep 1.5 && look 'b.755 c.600 none'
on h1 'rmdir /terral/d/b; echo > /terral/d/b'
look 'b.644 c.600 none' && sleep 1.5 && look 'b.644 c.600 none'
on h2 'rm /terral/d/c; mkdir /terral/d/c; chmod 711 /terral/d'
look 'b.644 c.755 none' && sleep 1.5 && look 'b.644 c.755 none'
on h0 'mkdir /terral/d/only'
for h in h0 h1 h2; do on $h 'test -d /terral/d/only'; done
"#;

#[test]
fn what_was_done_on_one_machine_is_what_all_others_see_also_where_they_look_without_asking() {
    let Some(machines) = Machines::new(3) else { return };
    let target = tempfile::tempdir().expect("directory");
    for options in [&[][..], &["--to", &target.path().display().to_string()]] {
        let output = machines.run_with(options, CHANGES);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{options:?}: {text} {}", said(&output));
    }
}
