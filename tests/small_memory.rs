//! More than fits into memory: whatever a program does with files, the bytes that the permanent
//! store has make room for those to come, and all of them are there in the end. Not here: memory
//! that maps hold (`maps`).
#![allow(clippy::print_stdout)] // What is skipped is said.

mod beside;
mod mount;

use std::path::Path;
use std::process::Command;

/// As little as a server takes.
const LITTLE: &str = "128M";

/// Runs a shell script with little memory, until all of it has arrived in `to`.
fn run_with_little_memory(to: &Path, script: &str) -> serde_json::Value {
    let mut command = Command::new(beside::built("terral"));
    command.args(["run", "--json", "--memory", LITTLE, "--to"]).arg(to);
    command.args(["--", "timeout", "100", "sh", "-c", script]).env("TO", to);
    let output = command.output().expect("terral");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let summary: serde_json::Value =
        serde_json::from_str(said.lines().last().unwrap_or_default()).expect("summary");
    assert_eq!(summary["state"], "arrived", "{summary}");
    summary
}

/// The lines that `seq` gives for these arguments, one after the other.
fn lines(counts: &[u32]) -> Vec<u8> {
    let outputs = counts.iter().map(|count| Command::new("seq").arg(count.to_string()).output());
    outputs.flat_map(|output| output.expect("seq").stdout).collect()
}

fn assert_holds(path: &Path, expected: &[u8]) {
    let found = std::fs::read(path).expect("arrived");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!((found.len(), differs), (expected.len(), None), "{}", path.display());
}

#[test]
fn a_file_of_the_store_grows_beyond_memory_while_it_is_open() {
    let to = tempfile::tempdir().expect("directory");
    std::fs::write(to.path().join("log"), lines(&[1_000_000])).expect("writes");
    run_with_little_memory(
        to.path(),
        "seq 20000000 | dd iflag=fullblock bs=700001 oflag=append conv=notrunc \
             of=$TERRAL_DIR/log status=none
         (seq 1000000; seq 20000000) | cmp - $TERRAL_DIR/log",
    );
    assert_holds(&to.path().join("log"), &lines(&[1_000_000, 20_000_000]));
}

#[test]
fn what_is_appended_in_pieces_of_an_odd_size_is_never_lost() {
    let to = tempfile::tempdir().expect("directory");
    run_with_little_memory(
        to.path(),
        "for i in 1 2 3 4; do
             seq 9000000 | dd iflag=fullblock bs=700001 oflag=append conv=notrunc \
                 of=$TERRAL_DIR/log.$i status=none &
         done
         wait",
    );
    let expected = lines(&[9_000_000]);
    (1..=4).for_each(|i| assert_holds(&to.path().join(format!("log.{i}")), &expected));
}

#[test]
fn a_file_that_somebody_else_changes_in_the_store_grows_beyond_memory() {
    let to = tempfile::tempdir().expect("directory");
    let log = to.path().join("log");
    std::fs::write(&log, lines(&[1_000_000])).expect("writes");
    let summary = run_with_little_memory(
        to.path(),
        "{ seq 1000000; sleep 2; echo theirs >> $TO/log; seq 20000000; } >> $TERRAL_DIR/log",
    );
    assert_holds(&log, &lines(&[1_000_000, 1_000_000, 20_000_000]));
    let theirs = std::fs::read(to.path().join("log.theirs-1")).expect("is kept");
    assert!(theirs.ends_with(b"theirs\n"), "{summary}");
    let conflicts = summary["server"]["drain"]["conflicts"].as_array().map(Vec::len);
    assert_eq!(conflicts, Some(1), "{summary}");
}

#[test]
fn a_small_file_that_grows_finds_room() {
    // All but one of the chunks of 2 MiB: the small file gets a part of the last one first.
    let beside = beside::run_in(
        Some(LITTLE),
        "head -c 132120576 /dev/zero > large
         timeout 100 sh -c '(seq 100; sleep 0.1; seq 1000000) > small'",
        |_, _| (),
    );
    beside.assert_same();
    beside.assert_served(2);
}

#[test]
fn small_files_make_room_for_small_files() {
    if !beside::on_path("python3") {
        return;
    }
    let script = "
for number in range(14000):
    open(str(number), 'wb').write(bytes([number % 255 + 1]) * (4000 + number % 9000))
for number in range(0, 14000, 3):
    open(str(number), 'ab').write(b'more' * 700)
for number in range(0, 14000, 7):
    found = open(str(number), 'rb').read()
    more = b'more' * 700 if number % 3 == 0 else b''
    assert found == bytes([number % 255 + 1]) * (4000 + number % 9000) + more, number
";
    let beside =
        beside::run_in(Some(LITTLE), &format!("timeout 100 python3 -c \"{script}\""), |_, _| ());
    beside.assert_same();
    beside.assert_served(20_000);
}

#[test]
fn a_removed_file_that_is_open_keeps_its_bytes_or_its_name() {
    let to = tempfile::tempdir().expect("directory");
    let bytes = lines(&[14_000_000]);
    for name in ["kept", "too-large"] {
        std::fs::write(to.path().join(name), &bytes).expect("writes");
    }
    let copy = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(copy.path(), &bytes).expect("writes");
    run_with_little_memory(
        to.path(),
        &format!(
            "head -c 30000000 /dev/zero > $TERRAL_DIR/recent
             exec 3< $TERRAL_DIR/kept; rm $TERRAL_DIR/kept || exit 1
             cmp {0} - <&3 || exit 2
             exec 4< $TERRAL_DIR/too-large; rm $TERRAL_DIR/too-large 2>/dev/null && exit 3
             cmp {0} - <&4",
            copy.path().display()
        ),
    );
    assert!(!to.path().join("kept").exists());
    assert_holds(&to.path().join("too-large"), &bytes);
}

#[test]
fn an_open_file_larger_than_memory_keeps_its_name_and_nobody_hangs() {
    let to = tempfile::tempdir().expect("directory");
    let bytes = lines(&[30_000_000]);
    std::fs::write(to.path().join("old"), &bytes).expect("writes");
    run_with_little_memory(
        to.path(),
        "cd $TERRAL_DIR; refused='No space left'
         { seq 30000000; rm -f new 2> error && exit 1; grep -q \"$refused\" error || exit 2; } > new
         exec 3>> old; echo more >&3
         rm -f old 2> error && exit 3; grep -q \"$refused\" error || exit 4
         : > small; mv -f small old 2> error && exit 5; grep -q \"$refused\" error || exit 6
         rm -f error small",
    );
    assert_holds(&to.path().join("new"), &bytes);
    assert_holds(&to.path().join("old"), &[&bytes, b"more\n" as &[u8]].concat());
}

#[test]
fn a_file_without_a_name_that_does_not_fit_gets_an_error() {
    let to = tempfile::tempdir().expect("directory");
    run_with_little_memory(
        to.path(),
        "exec 3> $TERRAL_DIR/file; rm $TERRAL_DIR/file
         head -c 200000000 /dev/zero >&3 2> $TERRAL_DIR/error && exit 1
         grep -q 'No space left' $TERRAL_DIR/error && exec 3>&-
         seq 30000000 > $TERRAL_DIR/next",
    );
    assert_holds(&to.path().join("next"), &lines(&[30_000_000]));
}

#[test]
fn what_is_added_to_a_file_that_somebody_removed_in_the_store_arrives() {
    let to = tempfile::tempdir().expect("directory");
    let log = to.path().join("log");
    std::fs::write(&log, lines(&[1_000_000])).expect("writes");
    let summary = run_with_little_memory(
        to.path(),
        "{ seq 1000; sleep 2; rm $TO/log; seq 1000; } >> $TERRAL_DIR/log",
    );
    // All but the chunk it was added to was only there.
    let found = std::fs::read(&log).expect("arrives");
    assert_eq!(found.len(), lines(&[1_000_000, 1000, 1000]).len());
    assert!(found.ends_with(&lines(&[1000, 1000])), "{summary}");
    assert!(summary["server"]["drain"]["conflicts"][0].as_str().is_some(), "{summary}");
}

#[test]
fn who_only_reads_does_not_wait_for_room() {
    // Another 8 MiB, and it is full: then the writer waits, and all of memory is owed.
    let Some(to) = mount::Mount::tmpfs(40) else { return };
    let model = lines(&[4_500_000]);
    std::fs::write(to.path().join("model"), &model).expect("writes");
    let beside_it = tempfile::tempdir().expect("directory");
    let copy = beside_it.path().join("copy");
    std::fs::write(&copy, &model).expect("writes");
    if !beside::on_path("python3") {
        return;
    }
    // In a chunk that is mapped, and so stays in memory.
    let writer = "
import mmap, os, sys
file = os.open('model', os.O_RDWR)
held, same = mmap.mmap(file, 4096), os.pread(file, 4096, 0)
open(sys.argv[1] + '.writes', 'w')
while not os.path.exists(sys.argv[1] + '.stop'):
    os.pwrite(file, same, 0)
";
    let script = format!(
        "cd $TERRAL_DIR; copy={}
         trap 'mount -o remount,size=400m $TO; touch $copy.stop; wait' EXIT
         python3 -c \"{writer}\" $copy & until [ -e $copy.writes ]; do sleep 0.1; done
         size() {{ stat -c %s large 2> /dev/null || echo 0; }}
         head -c 200000000 /dev/zero > large &
         before=0; until [ $(size) -gt 100000000 ] && [ $(size) = $before ]; do
             before=$(size); sleep 1
         done
         timeout 30 cmp $copy model || exit 1
         timeout 30 dd if=model bs=1M skip=7 count=9 status=none > $copy.part || exit 2
         dd if=$copy bs=1M skip=7 count=9 status=none | cmp - $copy.part || exit 3
         timeout 30 dd if=model bs=2M skip=2 count=9 status=none | cmp -i 4194304:0 -n 18874368 \\
             $copy - || exit 5
         [ $(size) = $before ] || exit 4",
        copy.display()
    );
    run_with_little_memory(to.path(), &script);
    assert_holds(&to.path().join("model"), &model);
    assert_eq!(std::fs::metadata(to.path().join("large")).expect("arrived").len(), 200_000_000);
}
