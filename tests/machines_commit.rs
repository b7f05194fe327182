//! One file that several machines write under `consistency=commit`: what each writes stays in its
//! memory until it is committed, and is merged by bytes; each machine sees its own; whoever is
//! killed. Not here: MPI's programs (`machines_mpi`), and files without it (`machines_parts`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// `write PATH RANK RANKS BLOCK COUNT [FLAG]`: of so many blocks every RANKS-th, from RANK on, and
/// keeps the file open until there is a file FLAG; says what closing comes to. `check PATH BYTES`:
/// whether they are as all write them. `count PATH TIMES`: counts the number in it, under a lock.
const COMMIT: &str = r#"
import fcntl, os, sys, time
what, path = sys.argv[1:3]
period = bytes(range(1, 252))
def pattern(at, length):
    skip = at % 251
    return (period * ((skip + length) // 251 + 1))[skip:skip + length]
def write(rank, ranks, block, count, flag=None):
    fd = os.open(path, os.O_WRONLY)
    for at in range(int(rank), int(count), int(ranks)):
        assert os.pwrite(fd, pattern(at * int(block), int(block)), at * int(block)) == int(block)
    if flag:
        open(f"{flag}.{rank}", "w").close()
        while not os.path.exists(flag): time.sleep(0.02)
    try: os.close(fd); print("closed", flush=True)
    except OSError as error: print(os.strerror(error.errno), flush=True)
def check(size):
    with open(path, "rb") as f: found = f.read()
    wanted = pattern(0, int(size))
    wrong = [at for at in range(min(len(found), len(wanted))) if found[at] != wanted[at]]
    print("all" if found == wanted else f"{len(found)}, wrong from {wrong[:1]} on", flush=True)
def count(times):
    fd = os.open(path, os.O_RDWR)
    for _ in range(int(times)):
        fcntl.lockf(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 9, 0) or b"0")
        os.pwrite(fd, b"%09d" % (number + 1), 0)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)
{"write": write, "check": check, "count": count}[what](*sys.argv[3:])
"#;

fn run(machines: &Machines, options: &[&str], script: &str) -> std::process::Output {
    let home = machines.home();
    std::fs::write(home.join("commit.py"), COMMIT).expect("writes");
    let words = format!(
        "home={}; commit=\"python3 $home/commit.py\"
        until_there() {{ until [ -e $1 ]; do sleep 0.02; done; }}
        ask() {{ $ON $1 \"$TERRAL $2 --json --instance machines $3\" | python3 -c \
'import json,sys; it=json.load(sys.stdin); print(it'$4')'; }}
        sent() {{ ask $1 status '' '[0][\"status\"][\"partition\"][\"sent\"][\"bytes\"]'; }}
        kept() {{ ask $1 stat $2 '[\"safety\"][\"uncommitted_bytes\"]'; }}
        policy() {{ $TERRAL policy $1 --instance machines \"$2\" $3; }}
        policy set '*' consistency=commit\n",
        home.display()
    );
    machines.run_with(options, &format!("{words}{script}"))
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Of 7 bytes, 333, and 47,008 (IO500), so that most pages have bytes of several machines.
#[test]
fn blocks_of_any_size_that_machines_write_in_turn_are_merged_byte_for_byte() {
    let Some(machines) = Machines::new(3) else { return };
    let mut script = String::new();
    for (block, count) in [(7, 3000), (333, 3000), (47_008, 300)] {
        let size = block * count;
        script += &format!(
            "touch f{block}; before=$(sent h1); over=$home/over{block}
            for n in 1 2; do
                on h$n \"$commit write /terral/f{block} $n 3 {block} {count} $over\" & done
            for n in 1 2; do until_there $over.$n; done
            [ $(($(sent h1) - before)) -lt 100000 ] && echo nothing travelled
            [ $(kept h1 f{block}) -ge $(({size} / 3)) ] && echo kept
            $commit write f{block} 0 3 {block} {count}; touch $over; wait
            $commit check f{block} {size}; for n in 1 2; do
                on h$n \"$commit check /terral/f{block} {size}\"; kept h$n f{block}; done\n"
        );
    }
    let output = run(&machines, &[], &script);
    let each = "nothing travelled\nkept\nclosed\nclosed\nclosed\nall\nall\n0\nall\n0\n";
    assert_eq!(told(&output), each.repeat(3), "{}", said(&output));
}

#[test]
fn a_machine_sees_what_it_has_written_itself_whoever_reads_there() {
    let Some(machines) = Machines::new(2) else { return };
    let output = run(
        &machines,
        &[],
        "touch f; on h1 \"$commit write /terral/f 0 1 333 100 $home/over\" &
        until_there $home/over.0; [ $(kept h1 f) -ge 33300 ] && echo kept
        on h1 'stat -c %s /terral/f'; on h1 \"$commit check /terral/f 33300\"; kept h1 f
        on h1 'echo more >> /terral/f; tail -c 5 /terral/f; truncate -s 5 /terral/f'
        on h1 'wc -c < /terral/f'
        on h1 'dd if=/dev/zero of=/terral/f bs=2 count=1 conv=notrunc,fsync 2> /dev/null'
        cat f | tr '\\0' z; touch $home/over; wait; cat f | tr '\\0' z",
    );
    let text = told(&output);
    let expected = format!("kept\n33300\nall\n0\nmore\n5\nzz{0}closed\nzz{0}", "\u{3}\u{4}\u{5}");
    assert_eq!(text, expected, "{}", said(&output));
}

#[test]
fn what_a_killed_program_has_written_arrives_and_what_it_was_asked_to_sync_at_once() {
    let Some(machines) = Machines::new(2) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let directory = to.display().to_string();
    let output = run(
        &machines,
        &["--to", &directory],
        "touch f g
        on h1 \"echo \\$\\$ > $home/pid; exec $commit write /terral/f 0 1 333 1000 $home/over\" &
        until_there $home/over.0; [ $(kept h1 f) -ge 333000 ] && echo kept
        on h1 \"echo \\$\\$ > $home/g; exec $commit write /terral/g 0 1 333 100 $home/no\" &
        until_there $home/no.0
        kill -9 $(cat $home/pid); until [ $(stat -c %s f) = 333000 ]; do sleep 0.1; done
        $commit check f 333000; on h1 'sync /terral/g'; $commit check g 33300
        kill -9 $(cat $home/g); wait",
    );
    let text = told(&output);
    assert_eq!(text, "kept\nall\nall\n", "{}", said(&output));
    for (name, size) in [("f", 333_000), ("g", 33_300)] {
        let home = machines.home().display();
        let script = format!("python3 {home}/commit.py check {directory}/{name} {size}");
        let there = machines.shell_on(0, &script);
        assert_eq!(told(&there), "all\n", "{name}: {}", said(&there));
    }
}

#[test]
fn what_a_program_has_written_that_ends_without_closing_is_there_then() {
    let Some(machines) = Machines::new(2) else { return };
    let output = run(
        &machines,
        &[],
        "touch f g; on h1 'seq 5 > /terral/f'; cat f
        echo \"import os, sys; os.write(os.open('/terral/g', os.O_WRONLY), b'g')\" > $home/g.py
        echo \"sys.stdout.write('h')\" >> $home/g.py; touch h
        on h1 \"python3 $home/g.py > /terral/h\"; cat g h; echo",
    );
    assert_eq!(told(&output), "1\n2\n3\n4\n5\ngh\n", "{}", said(&output));
}

#[test]
fn nothing_is_lost_or_done_twice_though_every_server_is_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "touch f; for n in 1 2; do
            on h$n \"$commit write /terral/f $n 3 4999 6000 $home/over\" & done
        $commit write f 0 3 4999 6000 $home/over &
        sleep 0.3; kill -9 $(pid_of h1); sleep 0.3; kill -9 $(pid_of h0); sleep 0.3
        kill -9 $(pid_of h2); for n in 0 1 2; do until_there $home/over.$n; done
        touch $home/over; sleep 0.1; kill -9 $(pid_of h2); kill -9 $(pid_of h1)
        sleep 0.1; kill -9 $(pid_of h0); wait
        for h in h0 h1 h2; do on $h \"$commit check /terral/f 29994000\"; done",
    );
    let expected = "closed\nclosed\nclosed\nall\nall\nall\n";
    assert_eq!(told(&output), expected, "{}", said(&output));
}

#[test]
fn what_is_counted_under_a_lock_is_right() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "touch f; for n in 1 2; do on h$n \"$commit count /terral/f 60\" & done
        on h1 \"$commit count /terral/f 60\" & $commit count f 60; wait; cat f; echo",
    );
    assert_eq!(told(&output), "000000240\n", "{}", said(&output));
}

#[test]
fn bytes_that_cannot_be_committed_are_an_error_and_arrive_once_they_can() {
    let Some(machines) = Machines::new(2) else { return };
    let (cut, healed) = (machines.home().join("cut"), machines.home().join("over.closed"));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            launched::until("it is written", || cut.exists());
            machines.link(1, false);
            std::fs::write(machines.home().join("over"), "").expect("writes");
            let begin = std::time::Instant::now();
            while !healed.exists() && begin.elapsed().as_secs() < 300 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            machines.link(1, true);
        });
        let output = run(
            &machines,
            &[],
            "touch f; on h1 \"$commit write /terral/f 0 1 333 1000 $home/over\" > $home/said &
            writer=$!; until_there $home/over.0; touch $home/cut; wait $writer
            cat $home/said; touch $home/over.closed
            until [ $(stat -c %s f) = 333000 ]; do sleep 0.2; done; $commit check f 333000",
        );
        // So that the other one ends, whatever was said.
        std::fs::write(&cut, "").and_then(|()| std::fs::write(&healed, "")).expect("writes");
        assert_eq!(told(&output), "Input/output error\nall\n", "{}", said(&output));
    });
}

#[test]
fn what_was_written_to_a_file_of_a_lost_machine_is_an_error_that_names_it() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let output = run(
        &machines,
        &["--to", &to.display().to_string()],
        "on h1 'touch /terral/f'
        on h2 \"$commit write /terral/f 0 1 333 1000 $home/over\" & until_there $home/over.0
        server=$(pid_of h1); kill -9 $(ps -o ppid= -p $server) $server
        sleep 1; $TERRAL fence h1 --dead; touch $home/over; wait $!",
    );
    let (text, complained) = (told(&output), said(&output));
    assert_eq!(text, "Input/output error\n", "{complained}");
    let lost = "f: what was written here and not committed is lost";
    assert!(complained.contains(lost), "{complained}");
}

#[test]
fn policies_are_set_where_the_run_began_and_hold_for_what_is_opened_then() {
    let Some(machines) = Machines::new(2) else { return };
    let output = run(
        &machines,
        &[],
        "policy unset '*'; policy set '/terral/d/**/*.h5' consistency=commit
        policy set 'd/no*' consistency=commit; policy set 'd/no*' consistency=strict
        $TERRAL policy list --instance machines
        mkdir d d/e; for f in a.h5 e/a.h5 nob.h5 b; do touch d/$f
            on h1 \"$commit write /terral/d/$f 0 1 333 10 $home/over\" & done; wait_for=4
        until [ $(ls $home | grep -c 'over[.]0') = 1 ]; do sleep 0.1; done; sleep 1
        for f in a.h5 e/a.h5 nob.h5 b; do
            $TERRAL stat --json --instance machines d/$f | grep -o '\"commit\"\\|\"strict\"'; done
        touch $home/over; wait
        policy set '[' consistency=commit; echo $?; policy set x consistency=some; echo $?
        policy unset nothing; echo $?
        on h1 \"$TERRAL policy set x consistency=commit\"; echo $?
        $TERRAL policy list --json --instance machines | head -c 1",
    );
    let (text, complained) = (told(&output), said(&output));
    let expected = "d/**/*.h5  consistency=commit\nd/no*  consistency=strict\n\
        \"commit\"\n\"commit\"\n\"strict\"\n\"strict\"\nclosed\nclosed\nclosed\nclosed\n\
        1\n2\n1\n1\n[";
    assert_eq!(text, expected, "{complained}");
    for part in ["nothing: no such policy", "sets policies: ask there, where the run began"] {
        assert!(complained.contains(part), "{complained}");
    }
}
