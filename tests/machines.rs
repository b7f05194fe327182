//! One run over several machines: real servers, real programs, a real network between namespaces.
//! What cannot be tried here is printed as skipped. Not here: the protocol alone (`partition`), and
//! servers in the simulation (`server`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod long;
mod namespaces;

use launched::said;
use namespaces::Machines;

fn shown(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One of three, whichever it is its turn to be, makes or removes a name; then another looks at
/// what there is.
const TURNS: &str = r#"
import os, random, sys
me, home = int(sys.argv[1]), sys.argv[2]
pipes = [os.open(f"{home}/pipe{at}", os.O_RDWR) for at in range(3)]
draw, there, wrong = random.Random(7), set(), 0
for step in range(900):
    one = draw.randrange(3); other = (one + 1 + draw.randrange(2)) % 3
    removes = there and draw.random() < 0.4
    name = "/terral/" + (draw.choice(sorted(there)) if removes else f"f{step}")
    if one == me:
        os.unlink(name) if removes else open(name, "w").close()
        os.write(pipes[other], b"x")
    there ^= {name[8:]}
    if other == me:
        os.read(pipes[me], 1); wrong += set(os.listdir("/terral")) != there
        [os.write(pipe, b"x") for pipe in pipes]
    os.read(pipes[me], 1)
os.write(1, f"{wrong}\n".encode())
"#;

#[test]
fn what_has_returned_on_one_machine_is_in_the_next_listing_on_another() {
    let Some(machines) = Machines::new(3) else { return };
    let home = machines.home().display().to_string();
    std::fs::write(machines.home().join("turns.py"), TURNS).expect("writes");
    let output = machines.run(&format!(
        "for i in 0 1 2; do mkfifo {home}/pipe$i; done
        for i in 0 1 2; do on h$i python3 {home}/turns.py $i {home} & done; wait"
    ));
    assert_eq!(shown(&output), "0\n0\n0\n", "{}", said(&output));
}

#[test]
fn programs_on_three_machines_see_one_tree_and_the_same_bytes() {
    let Some(machines) = Machines::new(3) else { return };
    let output = machines.run(
        "mkdir a
        for h in h1 h2; do
            on $h \"cd /terral; hostname > a/\\$(hostname); seq 200000 > a/big.\\$(hostname)\"
        done
        cat a/h1 a/h2
        seq 200000 | cmp - a/big.h1 && echo same
        on h1 'cd /terral; echo more >> a/h2; mv a/big.h2 moved; truncate -s 6 moved; cat moved'
        on h2 'cd /terral; cat a/h2; wc -c < moved; chmod 600 a/h1; ln -s h1 a/link'
        stat -c %a a/h1; readlink a/link; cat a/link
        printf xyz | dd of=moved bs=1 seek=2 conv=notrunc 2> /dev/null
        on h2 'cat /terral/moved'; rm a/h1
        on h1 'ls /terral/a; rm -r /terral/a'
        ls",
    );
    let expected = "h1\nh2\nsame\n1\n2\n3\nh2\nmore\n6\n600\nh1\nh1\n1\nxyz\n\
                    big.h1\nh2\nlink\nmoved\n";
    assert_eq!(shown(&output), expected, "{}", said(&output));
    for at in 0..3 {
        assert_eq!(machines.left(at), "", "nothing stays in memory");
    }
}

/// Makes, moves and removes names for five seconds, and says which of them are not as it was told.
const LOAD: &str = r#"
import os, sys, time
me, begin, n, there = sys.argv[1], time.time(), 0, set()
os.chdir("/terral/shared")
while time.time() - begin < 5 or n < 9:
    os.mkdir(f"{me}.{n}")
    with open(f"{me}.f{n}", "w") as f: f.write(str(n))
    there |= {f"{me}.{n}", f"{me}.f{n}"}
    if n % 3 == 0:
        os.rmdir(f"{me}.{n}"); there.discard(f"{me}.{n}")
        os.rename(f"{me}.f{n}", f"{me}.g{n}")
        there.discard(f"{me}.f{n}"); there.add(f"{me}.g{n}")
    n += 1
have = {name for name in os.listdir(".") if name.startswith(me + ".")}
print(me, len(there - have), len(have - there), flush=True)
"#;

/// The load on all machines, while something happens.
fn under_load(what: &str) {
    if let Some(machines) = Machines::new(3) {
        load_on(&machines, what);
    }
}

fn load_on(machines: &Machines, what: &str) {
    let load = machines.home().join("load.py");
    std::fs::write(&load, LOAD).expect("writes");
    let (load, home) = (load.display(), machines.home().display().to_string());
    let output = machines.run(&format!(
        "mkdir shared
        for h in h1 h2; do on $h \"python3 {load} $h > {home}/$h\" & done
        python3 {load} h0 > {home}/h0 & sleep 1
        {what}
        wait
        cat {home}/h0 {home}/h1 {home}/h2
        for h in h0 h1 h2; do on $h 'ls /terral/shared | cksum'; done | uniq | wc -l
        n=$(ls shared | grep -v '[fg]' | wc -l); [ $n -gt 0 ] && echo some"
    ));
    assert_eq!(shown(&output), "h0 0 0\nh1 0 0\nh2 0 0\n1\nsome\n", "{}", said(&output));
}

#[test]
fn what_was_acknowledged_stays_when_the_controls_server_is_killed() {
    under_load("kill -9 $(pid_of h0)");
}

#[test]
fn what_was_acknowledged_stays_when_another_machines_server_is_killed() {
    under_load("kill -9 $(pid_of h1); sleep 1; kill -9 $(pid_of h2)");
}

#[test]
fn a_server_that_stops_for_a_while_makes_others_wait_and_undoes_nothing() {
    // Longer than a lease lasts; as long as the design says, where there is time for it.
    let long = long::is_time_for("a server that stops for 30 s instead of 7");
    let seconds = if long { 30 } else { 7 };
    under_load(&format!("pid=$(pid_of h1); kill -STOP $pid; sleep {seconds}; kill -CONT $pid"));
}

#[test]
fn a_link_that_is_cut_makes_both_wait_and_undoes_nothing() {
    let Some(machines) = Machines::new(3) else { return };
    let cut = machines.home().join("cut");
    let healed = machines.home().join("healed");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            launched::until("the load runs", || cut.exists());
            machines.link(1, false);
            // Longer than a session lasts without a word.
            std::thread::sleep(std::time::Duration::from_secs(13));
            machines.link(1, true);
            std::fs::write(&healed, "").expect("writes");
        });
        let (cut, healed) = (cut.display(), healed.display());
        load_on(&machines, &format!("touch {cut}; until [ -e {healed} ]; do sleep 0.1; done"));
    });
}

/// More names than one message holds, and than are borrowed; who decides the directory is killed.
#[test]
fn a_directory_of_many_names_is_used_by_all_machines() {
    let Some(machines) = Machines::new(3) else { return };
    let many = machines.home().join("many.py");
    let text = "import os\nos.chdir('/terral/shared')\n\
                for n in range(27000): os.close(os.open(f'{n:0250}', os.O_CREAT))\n";
    std::fs::write(&many, text).expect("writes");
    let long = |n: u32| format!("{n:0250}");
    let (many, [one, two, three]) = (many.display(), [1, 2, 3].map(long));
    let output = machines.run(&format!(
        "mkdir shared other; on h1 'python3 {many}; ls /terral/shared | wc -l'
        ls shared | wc -l; on h2 'ls /terral/shared | wc -l'
        kill -9 $(pid_of h0)
        touch shared/h0; on h1 'rm /terral/shared/{one}; touch /terral/shared/h1'
        on h2 'mv /terral/shared/{two} /terral/shared/h2; mv /terral/shared/{three} /terral/other'
        for h in h0 h1 h2; do on $h 'ls /terral/shared | cksum'; done | uniq | wc -l
        ls shared | wc -l; ls shared | grep h; ls other | wc -c"
    ));
    let expected = "27000\n27000\n27000\n1\n27000\nh0\nh1\nh2\n251\n";
    assert_eq!(shown(&output), expected, "{}", said(&output));
}

#[test]
fn a_lost_machines_files_are_an_error_that_names_it_and_the_rest_goes_on() {
    let Some(machines) = Machines::new(3) else { return };
    let output = machines.run(
        "on h1 'mkdir /terral/d; echo one > /terral/d/file'
        touch here; on h2 'mkdir /terral/e'; ls
        server=$(pid_of h1); host=$(ps -o ppid= -p $server); kill -9 $host $server
        $TERRAL cat --instance machines d/file 2> said & lost=$!
        echo two > f; on h2 'cat /terral/f; echo three > /terral/e/g'; cat e/g
        wait $lost; echo $?; grep -o 'member 1' said",
    );
    let expected = "d\ne\nhere\ntwo\nthree\n1\nmember 1\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", said(&output));
    assert!(said(&output).contains("h1: gone"), "{}", said(&output));
}

#[test]
fn a_machine_that_cannot_be_reached_is_named_and_nothing_is_left() {
    let Some(machines) = Machines::new(1) else { return };
    let mut command = machines.terral(0);
    command.args(["run", "--hosts", "h0,nowhere", "--memory", "128M", "--", "true"]);
    let output = descendants::ended(command.spawn().expect("starts"));
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("nowhere: no server came up there"), "{}", said(&output));
    let left = machines.terral(0).args(["status"]).output().expect("starts");
    assert_eq!(left.status.code(), Some(69), "{}", said(&left));
}

/// Ports on which a machine listens, of the partition's.
const LISTENS: &str = "awk '$4 == \"0A\" { print $2 }' /proc/net/tcp";

#[test]
fn servers_reach_each_other_at_the_port_that_was_said() {
    let Some(machines) = Machines::new(2) else { return };
    // 7000; 10.77.0.1.
    for (at, first) in [("7000", "00000000:1B58"), ("10.77.0.1:7000", "01004D0A:1B58")] {
        let script = format!("on h1 'echo x > /terral/a'; cat a; {LISTENS}");
        let script =
            format!("{script}; $ON h1 \"{}\"", LISTENS.replace('"', "\\\"").replace('$', "\\$"));
        let output = machines.run_with(&["--listen", at], &script);
        assert_eq!(shown(&output), format!("x\n{first}\n00000000:1B58\n"), "{}", said(&output));
    }
    let output = machines.run_with(&["--listen", "nowhere"], "true");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn servers_reach_each_other_over_the_interface_that_was_said() {
    let Some(machines) = Machines::new(2) else { return };
    let script = format!(
        "on h1 'echo x > /terral/a'; cat a; {LISTENS}; $ON h1 \"{}\"",
        LISTENS.replace('"', "\\\"").replace('$', "\\$")
    );
    let output = machines.run_with(&["--interface", "eth0", "--listen", "7000"], &script);
    // 10.77.0.1 and 10.77.0.2.
    let each = "01004D0A:1B58\n02004D0A:1B58\n";
    assert_eq!(shown(&output), format!("x\n{each}"), "{}", said(&output));
    let second = "ip link add ib0 type veth peer name far0 && ip addr add 10.78.0.1/24 dev ib0";
    assert!(machines.shell_on(0, second).status.success());
    for (options, whose, why) in [
        (&["--interface", "ib0"][..], "h1: ", "interface ib0: this machine has none"),
        (&["--interface", "ib1"], "", "lo (127.0.0.1), eth0 (10.77.0.1), ib0 (10.78.0.1)"),
        (&["--interface", "ib0", "--listen", "10.77.0.1"], "", "give --listen PORT"),
    ] {
        let output = machines.run_with(options, "echo begun");
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]));
        let said = said(&output);
        let line = said.lines().find(|line| line.contains(why)).unwrap_or_default();
        assert!(line.starts_with(&format!("terral: {whose}")), "{said}");
    }
}

#[test]
fn a_machine_that_is_cut_off_from_the_first_is_named() {
    let Some(machines) = Machines::new(3) else { return };
    // What stands for ssh gets there all the same.
    machines.link(1, false);
    let output = machines.run("echo begun");
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]));
    let said = said(&output);
    assert!(said.contains("terral: h1: no connection between its server"), "{said}");
    assert!((0..3).all(|at| machines.left(at).is_empty()), "nothing is left");
}

#[test]
fn a_machine_with_little_shared_memory_is_named_with_what_to_do() {
    let Some(machines) = Machines::new(2) else { return };
    let mounted = machines.shell_on(1, "mount -t tmpfs -o size=64M,mode=1777 tmpfs /dev/shm");
    assert!(mounted.status.success(), "{}", said(&mounted));
    for options in [&["--memory", "256M"][..], &[]] {
        let mut command = machines.terral(0);
        command.args(["run", "--hosts", "h0,h1"]).args(options).args(["--", "echo", "begun"]);
        let output = descendants::ended(command.spawn().expect("starts"));
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]));
        let (said, begin) = (said(&output), "terral: h1: ");
        let line = said.lines().find(|line| line.starts_with(begin)).unwrap_or(&said);
        let why = ["/dev/shm has only 64.0 MiB free", "--shm-size"];
        assert!(line.starts_with(begin) && why.iter().all(|why| line.contains(why)), "{said}");
    }
}
