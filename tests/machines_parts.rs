//! One file of which several machines write parts, each its own: they stay in the memory of who
//! wrote them, all machines see them, and all arrive, whoever is killed. Not here: parts that
//! several machines write (`machines_mpi`), and reads of what nobody writes (`machines_reads`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// `parts write PATH FIRST MIB BLOCK [FLAG]`: writes so many MiB from one on, in blocks of KiB, and
/// keeps the file open until there is a file FLAG. `parts check PATH FIRST MIB`: says whether they
/// are as all of them write them. Each page says which one it is.
const PARTS: &str = r#"
import os, sys, time
what, path, first, mib = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20, int(sys.argv[4]) << 20
page = lambda at: (b"%016d" % at) * 256
if what == "write":
    block = int(sys.argv[5]) << 10
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for at in range(first, first + mib, block):
        os.pwrite(fd, b"".join(page(at + n) for n in range(0, block, 4096)), at)
    flag = sys.argv[6] if len(sys.argv) > 6 else None
    if flag: open(f"{flag}.{first}", "w").close()
    while flag and not os.path.exists(flag): time.sleep(0.02)
    print(os.fstat(fd).st_size >= first + mib, flush=True)
else:
    with open(path, "rb") as f:
        f.seek(first)
        wrong = [at for at in range(first, first + mib, 4096) if f.read(4096) != page(at)]
    print("all" if not wrong else f"wrong from {wrong[0]} on", flush=True)
"#;

fn run(machines: &Machines, options: &[&str], script: &str) -> std::process::Output {
    let home = machines.home();
    std::fs::write(home.join("parts.py"), PARTS).expect("writes");
    let words = format!(
        "home={}; parts=\"python3 $home/parts.py\"
        until_there() {{ until [ -e $1 ]; do sleep 0.02; done; }}
        sent() {{ $ON $1 \"$TERRAL status --json --instance machines\" | python3 -c 'import json,sys
print(json.load(sys.stdin)[0][\"status\"][\"partition\"][\"sent\"][\"bytes\"])'; }}\n",
        home.display()
    );
    machines.run_with(options, &format!("{words}{script}"))
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn parts_that_a_machine_alone_writes_do_not_travel_until_somebody_looks() {
    let Some(machines) = Machines::new(3) else { return };
    // The file is as long as it will be, as programs make it that know. Who goes straight on asks
    // ahead, also for what another one is about to begin: so the last part is written first.
    let output = run(
        &machines,
        &[],
        "truncate -s 72M f; before=$(sent h1)
        on h2 \"$parts write /terral/f 48 24 1024 $home/over\" &
        until_there $home/over.50331648
        on h1 \"$parts write /terral/f 24 24 1024 $home/over\" &
        $parts write f 0 24 1024 $home/over &
        for first in 0 25165824; do until_there $home/over.$first; done
        [ $(($(sent h1) - before)) -lt 2000000 ] && echo nothing travelled
        $TERRAL stat --instance machines f | grep -o 'with h[12] (member [12])'
        $parts check f 0 72; on h1 \"$parts check /terral/f 0 72\"
        touch $home/over; wait
        on h2 \"$parts check /terral/f 0 72\"; stat -c %s f",
    );
    let text = told(&output);
    let expected = "nothing travelled\nwith h1 (member 1)\nwith h2 (member 2)\nall\nall\n\
        True\nTrue\nTrue\nall\n75497472\n";
    assert_eq!(text, expected, "{}", said(&output));
}

#[test]
fn a_file_that_grows_at_several_machines_is_as_long_as_what_was_answered() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "on h1 \"$parts write /terral/f 8 8 256 $home/over\" & until_there $home/over.8388608
        stat -c %s f; on h2 'stat -c %s /terral/f'
        on h2 \"$parts write /terral/f 20 8 64 $home/over\" & until_there $home/over.20971520
        on h1 'stat -c %s /terral/f'; tail -c 16 f; echo; echo end >> f; tail -c 4 f
        on h1 'tail -c 4 /terral/f'; on h1 'truncate -s 10M /terral/f'; stat -c %s f
        touch $home/over; wait; $parts check f 8 2; tr -d '\\0' < f | head -c 8; echo",
    );
    let text = told(&output);
    let lines: Vec<&str> = text.lines().collect();
    let last = format!("{:016}", (28 << 20) - 4096);
    let expected = [
        "16777216", "16777216", "29360128", &last, "end", "end", "10485760", "False", "False",
        "all", "00000000",
    ];
    assert_eq!(lines, expected, "{}", said(&output));
}

#[test]
fn parts_arrive_whole_and_keep_the_time_at_which_they_were_written() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let directory = to.display().to_string();
    let output = run(
        &machines,
        &["--to", &directory],
        "touch f; for n in 1 2; do on h$n \"$parts write /terral/f $((n * 20)) 20 512\" & done
        $parts write f 0 20 512; wait; seen=$(stat -c %y f); sleep 3
        [ \"$seen\" = \"$(stat -c %y f)\" ] && echo same time
        on h1 'cp -p /terral/f /terral/g'; [ \"$seen\" = \"$(stat -c %y g)\" ] && echo copied",
    );
    let text = told(&output);
    assert_eq!(text, "True\nTrue\nTrue\nsame time\ncopied\n", "{}", said(&output));
    for name in ["f", "g"] {
        let script =
            format!("python3 {}/parts.py check {directory}/{name} 0 60", machines.home().display());
        let there = machines.shell_on(0, &script);
        assert_eq!(told(&there), "all\n", "{name}: {}", said(&there));
    }
}

#[test]
fn parts_are_there_whichever_server_or_program_is_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "truncate -s 96M f
        on h1 \"$parts write /terral/f 32 32 64 $home/over\" &
        on h2 \"$parts write /terral/f 64 32 64 $home/over\" &
        sleep 0.3; kill -9 $(pid_of h1); sleep 0.3; kill -9 $(pid_of h0); sleep 0.3
        kill -9 $(pid_of h2)
        for first in 33554432 67108864; do until_there $home/over.$first; done
        on h2 \"$parts check /terral/f 64 32\"; kill -9 $(pid_of h2)
        $parts check f 32 64; touch $home/over; wait; on h1 \"$parts check /terral/f 32 64\"",
    );
    assert_eq!(told(&output), "all\nall\nTrue\nTrue\nall\n", "{}", said(&output));
}

#[test]
fn a_part_that_only_a_dead_machine_had_is_an_error_that_names_it_and_the_rest_is_read() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let directory = to.display().to_string();
    let output = run(
        &machines,
        &["--to", &directory],
        "$parts write f 0 16 1024
        on h1 \"echo \\$\\$ > $home/pid; exec $parts write /terral/f 16 16 1024 $home/over\" &
        on h2 \"$parts write /terral/f 32 16 1024\"; until_there $home/over.16777216
        server=$(pid_of h1); kill -9 $(ps -o ppid= -p $server) $server $(cat $home/pid)
        sleep 1; $TERRAL fence h1 --dead; $parts check f 0 16; $parts check f 32 16
        dd if=f of=/dev/null bs=1M skip=20 count=1 2>&1 | grep -o 'Input/output error'",
    );
    let (text, complained) = (told(&output), said(&output));
    assert_eq!(
        text.lines().take(5).collect::<Vec<_>>(),
        ["True", "True", "all", "all", "Input/output error"],
        "{complained}"
    );
    assert!(complained.contains("/f: only"), "{complained}");
    assert_eq!(output.status.code(), Some(74), "{complained}");
    // As it was before anybody else wrote to it, if it is there: no file with holes.
    let bytes = std::fs::metadata(to.join("f")).map_or(0, |found| found.len());
    assert!([0, 16 << 20].contains(&bytes), "{bytes}");
}
