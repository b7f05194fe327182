//! Shared maps of files of another machine: what programs store there all see at once, and it is
//! there whoever dies; what cannot be, is said. Not here: maps on one machine (`maps`), and parts
//! that are written without a map (`machines_parts`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// `maps fill PATH MIB`: writes so many MiB. `maps map PATH FROM MIB FLAG WORD [LAST]`: maps from
/// there on, in MiB, stores a word at the begin of each page, says so by a file FLAG.mapped, with
/// its number, and waits for FLAG; then it says what it found there and finds at the begin, stores
/// another word, and unmaps it. `maps read PATH FROM MIB WORD`: whether each page begins so.
/// `maps write PATH AT TEXT`, `maps cut PATH SIZE`; `maps try PATH [MIB]` maps so much, or a page.
const MAPS: &str = r#"
import errno, mmap, os, sys, time
what, path, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
MIB = 1 << 20
def attempt(act):
    try: print(act(), flush=True)
    except OSError as error: print(errno.errorcode[error.errno], flush=True)
if what == "fill":
    with open(path, "wb") as f:
        for at in range(0, int(rest[0]) * MIB, 4096): f.write((b"%015d." % at) * 256)
elif what == "map":
    first, length, flag, word = int(rest[0]) * MIB, int(rest[1]) * MIB, rest[2], rest[3].encode()
    fd = os.open(path, os.O_RDWR)
    held = mmap.mmap(fd, length, offset=first)
    os.close(fd)
    pages = range(0, length, 4096)
    wrong = [at for at in pages if held[at + 16:at + 31] != b"%015d" % (first + at)]
    for at in range(0, length, 4096): held[at:at + len(word)] = word
    with open(flag + ".new", "w") as f: f.write(str(os.getpid()))
    os.rename(flag + ".new", flag + ".mapped")
    while not os.path.exists(flag): time.sleep(0.02)
    seen = bytes(held[:16] if held[8:10] == b"of" else held[:8])
    for at in range(0, length if rest[4:] else 0, 4096): held[at:at + len(word)] = rest[4].encode()
    held.close()
    print("as it was" if not wrong else f"wrong from {wrong[0]} on", seen.decode(), flush=True)
elif what == "read":
    first, length, word = int(rest[0]) * MIB, int(rest[1]) * MIB, rest[2].encode()
    with open(path, "rb") as f:
        f.seek(first)
        pages = [f.read(4096) for _ in range(length // 4096)]
    wrong = [n for n, page in enumerate(pages)
             if page[:len(word)] != word or page[16:31] != b"%015d" % (first + n * 4096)]
    print("all" if not wrong else f"{len(wrong)} wrong from page {wrong[0]} on", flush=True)
elif what == "write":
    def write():
        fd = os.open(path, os.O_RDWR)
        return os.pwrite(fd, rest[1].encode(), int(rest[0]))
    attempt(write)
elif what == "cut":
    attempt(lambda: os.truncate(path, int(rest[0])))
elif what == "try":
    attempt(lambda: len(mmap.mmap(os.open(path, os.O_RDWR), int(rest[0]) * MIB if rest else 4096)))
"#;

fn run(machines: &Machines, options: &[&str], script: &str) -> std::process::Output {
    let home = machines.home();
    std::fs::write(home.join("maps.py"), MAPS).expect("writes");
    let words = format!(
        "home={}; maps=\"python3 $home/maps.py\"
        until_there() {{ until [ -e $1 ]; do sleep 0.02; done; }}\n",
        home.display()
    );
    machines.run_with(options, &format!("{words}{script}"))
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_stored_through_a_map_of_another_machines_file_all_see_at_once() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$maps fill f 9
        on h1 \"$maps map /terral/f 1 6 $home/over first...\" & until_there $home/over.mapped
        $maps read f 1 6 first...; on h2 \"$maps read /terral/f 1 6 first...\"
        $maps read f 0 1 0; on h1 \"$maps read /terral/f 7 2 0\"
        touch $home/over; wait
        $maps read f 1 6 first...; on h2 \"$maps read /terral/f 1 6 first...\"
        stat -c %s f; on h1 'stat -c %s /terral/f'",
    );
    let expected = "all\nall\nall\nall\nas it was first...\nall\nall\n9437184\n9437184\n";
    assert_eq!(told(&output), expected, "{}", said(&output));
}

/// `arrays PATH make`; `arrays PATH add ROW NUMBER`: adds that to all of a row, of 2 MiB.
const ARRAYS: &str = r#"
import sys, numpy
path, what = sys.argv[1:3]
row = 1 << 18
shape = (4, row)
if what == "make": numpy.memmap(path, "f8", "w+", shape=shape)[:] = 1
elif what == "add":
    numpy.memmap(path, "f8", "r+", int(sys.argv[3]) * row * 8, row)[:] += float(sys.argv[4])
else: print([float(part.sum()) / row for part in numpy.memmap(path, "f8", "r", shape=shape)])
"#;

#[test]
fn an_array_of_numpy_is_made_and_changed_by_all_machines_through_maps() {
    let Some(machines) = Machines::new(3) else { return };
    let there =
        std::process::Command::new("/usr/bin/python3").args(["-c", "import numpy"]).output();
    if !there.is_ok_and(|there| there.status.success()) {
        println!("skipped: /usr/bin/python3 has no numpy");
        return;
    }
    std::fs::write(machines.home().join("arrays.py"), ARRAYS).expect("writes");
    let output = run(
        &machines,
        &[],
        "arrays=\"/usr/bin/python3 $home/arrays.py\"; truncate -s 8M a
        on h1 \"$arrays /terral/a make\"; $arrays a sum
        for at in 0 1 2; do on h$at \"$arrays /terral/a add $at $((at + 1))\" & done; wait
        on h1 \"$arrays /terral/a add 0 10\"
        for at in 0 1 2; do on h$at \"$arrays /terral/a sum\"; done",
    );
    let sums = "[12.0, 3.0, 4.0, 1.0]\n".repeat(3);
    assert_eq!(told(&output), format!("[1.0, 1.0, 1.0, 1.0]\n{sums}"), "{}", said(&output));
}

#[test]
fn what_is_written_elsewhere_the_map_shows_and_what_cannot_be_is_refused_until_it_is_gone() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$maps fill f 4; exec 3< f
        on h1 \"$maps map /terral/f 0 4 $home/over first... last....\" & one=$!
        until_there $home/over.mapped
        $maps write f 0 of-h0...; on h2 \"$maps write /terral/f 8 of-h2...\"
        on h1 \"$maps write /terral/f 4096 first...\"; on h1 \"$maps try /terral/f\"
        $maps try f; on h2 \"$maps try /terral/f\"; $maps cut f 100
        on h2 \"$maps cut /terral/f 100\"
        mv f g; rm g; touch $home/over; wait $one; cat <&3 > h; $maps read h 0 4 last....
        on h2 \"$maps try /terral/h\"; $maps try h
        on h1 \"$maps cut /terral/h 100\"; stat -c %s h",
    );
    let refused = "ETXTBSY\n".repeat(4);
    let written = "8\n8\n8\n4096\n";
    let (seen, free) = ("as it was of-h0...of-h2...\nall\n", "4096\n4096\nNone\n100\n");
    assert_eq!(told(&output), format!("{written}{refused}{seen}{free}"), "{}", said(&output));
}

#[test]
fn what_is_stored_is_there_whichever_server_or_program_is_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let output = run(
        &machines,
        &[],
        "$maps fill f 8
        on h1 \"$maps map /terral/f 0 3 $home/over first...\" & one=$!
        on h2 \"$maps map /terral/f 4 4 $home/end second.. last....\" & other=$!
        until_there $home/over.mapped; until_there $home/end.mapped
        kill -9 $(pid_of h1); $maps read f 0 3 first...; kill -9 $(pid_of h0)
        on h1 \"$maps read /terral/f 4 4 second..\"; kill -9 $(pid_of h2)
        on h2 \"$maps read /terral/f 0 3 first...\"; $maps read f 4 4 second..
        kill -9 $(cat $home/over.mapped); wait $one; $maps read f 0 3 first...; $maps try f
        kill -9 $(pid_of h0); kill -9 $(pid_of h2); touch $home/end; wait $other
        on h1 \"$maps read /terral/f 4 4 last....\"; $maps read f 0 3 first...",
    );
    let expected = "all\nall\nall\nall\nall\n4096\nas it was second..\nall\nall\n";
    assert_eq!(told(&output), expected, "{}", said(&output));
}

#[test]
fn what_is_stored_arrives_once_the_map_is_gone() {
    let Some(machines) = Machines::new(2) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let directory = to.display().to_string();
    let output = run(
        &machines,
        &["--to", &directory],
        "$maps fill f 4; $TERRAL wait --instance machines
        on h1 \"$maps map /terral/f 0 4 $home/over first... last....\" &
        until_there $home/over.mapped; $maps read f 0 4 first...; touch $home/over; wait",
    );
    assert_eq!(told(&output), "all\nas it was first...\n", "{}", said(&output));
    let script =
        format!("python3 {0}/maps.py read {0}/to/f 0 4 last....", machines.home().display());
    let there = machines.shell_on(0, &script);
    assert_eq!(told(&there), "all\n", "{}", said(&there));
}

#[test]
fn who_reads_a_map_over_a_link_that_is_cut_waits_and_sees_all() {
    let Some(machines) = Machines::new(2) else { return };
    let home = machines.home().to_path_buf();
    let output = std::thread::scope(|threads| {
        let cuts = threads.spawn(|| {
            while !home.join("over.mapped").exists() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            machines.link(1, false);
            std::fs::write(home.join("cut"), "").expect("writes");
            std::thread::sleep(std::time::Duration::from_secs(3));
            machines.link(1, true);
        });
        let output = run(
            &machines,
            &[],
            "$maps fill f 4
            on h1 \"$maps map /terral/f 0 4 $home/over first... last....\" &
            until_there $home/cut; $maps read f 0 4 first...; touch $home/over; wait
            $maps read f 0 4 last....",
        );
        cuts.join().expect("it is up again");
        output
    });
    let expected = "all\nas it was first...\nall\n";
    assert_eq!(told(&output), expected, "{}", said(&output));
}

#[test]
fn what_only_a_dead_machine_had_mapped_is_an_error_and_the_rest_is_read() {
    let Some(machines) = Machines::new(2) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let directory = to.display().to_string();
    let output = run(
        &machines,
        &["--to", &directory],
        "$maps fill f 8
        on h1 \"$maps map /terral/f 2 2 $home/over first...\" & until_there $home/over.mapped
        server=$(pid_of h1); kill -9 $(ps -o ppid= -p $server) $server $(cat $home/over.mapped)
        sleep 1; $TERRAL fence h1 --dead; $maps read f 0 2 0; $maps read f 4 4 0
        dd if=f of=/dev/null bs=1M skip=2 count=1 2>&1 | grep -o 'Input/output error'
        $maps write f 2097152 lost; $maps try f 8",
    );
    let (text, complained) = (told(&output), said(&output));
    assert_eq!(text, "all\nall\nInput/output error\nEIO\nEIO\n", "{complained}");
    assert!(complained.contains("/f: only"), "{complained}");
    assert_eq!(output.status.code(), Some(74), "{complained}");
}

#[test]
fn a_map_that_does_not_fit_into_a_machines_memory_is_refused_and_changes_nothing() {
    let Some(machines) = Machines::new(2) else { return };
    let output = run(
        &machines,
        &[],
        "$maps fill f 64; on h1 'head -c 220M /dev/zero > /terral/g'
        on h1 \"$maps try /terral/f 64\"; $maps read f 0 64 0; on h1 'rm /terral/g'
        on h1 \"$maps try /terral/f 64\"; $maps read f 0 64 0",
    );
    assert_eq!(told(&output), "ENOMEM\nall\n67108864\nall\n", "{}", said(&output));
}
