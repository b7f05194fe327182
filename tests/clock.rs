//! Times of files are the partition's, which a machine's clock may be behind or ahead of: whoever
//! stamps them, clients and server, and also after the server was killed.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod left;
mod random;

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use descendants::ended;
use launched::{run_to, said, until};
use left::{Home, directory_of, instance_of, kill_all};
use random::Random;
use rustix::process::Signal;
use terral_format::local::tables::Superblock;

const HOUR: i64 = 3600;
/// The offset of each round, which is set when the files that it changes were made; that of the
/// first, before.
const ROUNDS: [i64; 4] = [-2 * HOUR, -2 * HOUR, HOUR, HOUR];
/// In these rounds the server is killed first.
const KILLED: [usize; 2] = [1, 3];

/// Prints a line for each time that a command has set, in order.
const WORK: &str = r#"
    step() {
        sh -c "$1" || exit 1
        stat -c "$3" "$2" | tr ' ' '\n' | sed "s|^|$2 |"
    }
    meet() {
        : > $OUT/ready.$1
        for tick in $(seq 6000); do [ -e $OUT/go.$1 ] && return; sleep 0.01; done
        exit 1
    }
    meet begin
    for round in 0 1 2 3; do
        mkdir $TERRAL_DIR/$round; cd $TERRAL_DIR/$round || exit 1
        for old in appended over touched mode linked cut attr read removed; do
            echo before > $old
        done
        meet $round
        {
            step ': > made' made '%.9X %.9Y %.9Z'
            step 'mkdir dir' dir '%.9X %.9Y %.9Z'
            step 'ln -s made soft' soft '%.9X %.9Y %.9Z'
            step 'echo more >> appended' appended '%.9Y %.9Z'
            step 'mkfifo pipe' pipe '%.9X %.9Y %.9Z'
            step 'touch touched' touched '%.9X %.9Y %.9Z'
            step 'ln linked hard' linked '%.9Z'
            step 'printf x | dd of=over conv=notrunc 2> /dev/null' over '%.9Y %.9Z'
            step 'chmod 600 mode' mode '%.9Z'
            step 'truncate -s 3 cut' cut '%.9Y %.9Z'
            step 'setfattr -n user.a -v value attr' attr '%.9Z'
            step 'cat read > /dev/null' read '%.9X'
            step 'touch -a pipe' pipe '%.9X %.9Z'
            step 'rm removed' . '%.9Y %.9Z'
            step 'touch -h soft' soft '%.9X %.9Y %.9Z'
        } > $OUT/times.$round || exit 1
        : > $OUT/done.$round
    done"#;
/// Lines of a round.
const TIMES: usize = 32;

fn now_ns() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_nanos() as i128
}

/// One that is killed, with all it has started, where the test fails.
struct Run(Option<Child>);

impl Run {
    fn id(&self) -> u32 {
        self.0.as_ref().expect("runs").id()
    }

    fn ended(mut self) -> Output {
        ended(self.0.take().expect("runs"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(run) = &mut self.0 {
            kill_all(run, &mut Random(1));
        }
    }
}

/// What a command set, in nanoseconds since 1970.
fn time_of(line: &str) -> i128 {
    let (_, time) = line.rsplit_once(' ').expect("a time");
    let (seconds, rest) = time.split_once('.').expect("nanoseconds");
    let number = |digits: &str| digits.parse::<i128>().expect("a number");
    number(seconds) * 1_000_000_000 + number(rest)
}

fn set_offset(instance: &Path, seconds: i64) {
    let tables = OpenOptions::new().write(true).open(instance.join("tables")).expect("opens");
    let offset = (seconds * 1_000_000_000).to_ne_bytes();
    tables.write_all_at(&offset, offset_of!(Superblock, clock_offset) as u64).expect("writes");
}

/// What a round has set: all since its begin, none after its end, and one after the other.
fn assert_times(lines: &str, offset: i64, begin: i128, end: i128) {
    let shift = i128::from(offset) * 1_000_000_000;
    let mut before = begin + shift;
    for line in lines.lines() {
        let time = time_of(line);
        assert!(time >= before, "{line}: {} ns too early", before - time);
        assert!(time <= end + shift, "{line}: {} ns after the end", time - end - shift);
        before = time;
    }
    assert_eq!(lines.lines().count(), TIMES, "{lines}");
}

#[test]
fn files_are_stamped_by_the_partitions_time_also_after_a_kill() {
    let home = Home::new();
    let out = |what: &str, round: &dyn Display| home.path(&format!("{what}.{round}"));
    let mut command = run_to(&home.to(), &["--memory", "128M"]);
    command.env("OUT", home.0.path()).args(["--", "sh", "-c", WORK]);
    let run = Run(Some(command.spawn().expect("starts")));
    until("the shell", || out("ready", &"begin").exists());
    let instance = directory_of(&instance_of(run.id()).expect("a server"));
    set_offset(&instance, ROUNDS[0]);
    fs::write(out("go", &"begin"), "").expect("writes");
    for (round, offset) in ROUNDS.into_iter().enumerate() {
        until("the files of a round", || out("ready", &round).exists());
        set_offset(&instance, offset);
        if KILLED.contains(&round) {
            let server = descendants::server(run.id()).expect("a server");
            descendants::send(server, Signal::KILL);
            until("another server", || {
                descendants::server(run.id()).is_some_and(|other| other != server)
            });
        }
        let begin = now_ns();
        fs::write(out("go", &round), "").expect("writes");
        until("the end of a round", || out("done", &round).exists());
        let lines = fs::read_to_string(out("times", &round)).expect("a round's times");
        assert_times(&lines, offset, begin, now_ns());
    }
    let output = run.ended();
    assert!(output.status.success(), "{}", said(&output));
}
