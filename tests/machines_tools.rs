//! Tools of everybody, used from several machines of a run in turn: git, make, and SQLite where it
//! wants a shared map. Real servers, a real network between namespaces. Not here: programs of
//! scientists (`machines_programs`), those of MPI (`machines_mpi`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;

use beside::{compiled_as, on_path, program};
use launched::said;
use namespaces::Machines;

/// What a script said that ended well, with `git` and the like where all machines have them.
fn ran(machines: &Machines, options: &[&str], script: &str) -> String {
    let output = machines.run_with(options, script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    text
}

/// Machines, if this program is there.
fn with(tool: &str) -> Option<Machines> {
    Machines::new(3).filter(|_| on_path(tool))
}

/// `turn HOST WORDS` does that with git there.
fn turns() -> String {
    let script = program("machines/git.sh");
    format!("turn() {{ at=$1; shift; on $at \"cd /terral; sh {} $*\"; }}\n", script.display())
}

#[test]
fn a_repository_that_three_machines_commit_to_in_turn_is_whole_and_is_cloned() {
    let Some(machines) = with("git") else { return };
    let to = machines.home().join("to");
    let text = ran(
        &machines,
        &["--to", &to.display().to_string()],
        &format!(
            "{}turn h0 make; for i in 1 2 3 4 5 6 7; do turn h$((i % 3)) commit $i; done
            turn h2 clone two; turn h1 collect; turn h0 commit 8
            turn h2 give two side; turn h1 merge main; turn h1 clone three
            turn h0 commit 9; turn h2 collect; on h0 'cat /terral/one/log' | tr '\\n' ' '",
            turns()
        ),
    );
    let expected =
        "7 6 5 4 3 2 1".split(' ').map(|number| format!("number {number} ")).collect::<String>();
    let log = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let merged = format!("{expected}0\n{log}number 8 {expected}0\n1 2 3 4 5 6 7 8 9 ");
    assert_eq!(text, merged);
    // It is whole where it has arrived, too.
    let check =
        format!("cd {} && sh {} clone four", to.display(), program("machines/git.sh").display());
    let there = machines.shell_on(0, &check);
    assert!(there.status.success(), "{}", said(&there));
    let there = String::from_utf8_lossy(&there.stdout).into_owned();
    assert_eq!(there, format!("number 9 number 8 {expected}"));
}

#[test]
fn what_three_machines_push_to_one_repository_at_once_is_all_there() {
    let Some(machines) = with("git") else { return };
    let text = ran(
        &machines,
        &[],
        &format!(
            "{}turn h1 make; for at in h0 h1 h2; do turn $at push of-$at & done; wait
            turn h2 look; turn h0 look",
            turns()
        ),
    );
    let all = (0..3).flat_map(|at| (1..5).map(move |number| format!("of-h{at}.{number} ")));
    assert_eq!(text, all.collect::<String>().repeat(2));
}

/// The clock of a machine shows so many seconds more than it is.
fn set_clock(machines: &Machines, at: usize, seconds: i32) {
    let home = machines.home().join(format!("of-h{at}"));
    fs::create_dir(&home).expect("makes");
    let skew = format!("-DSKEW={seconds}");
    let skewed = compiled_as("skewed", &home, &["-shared", "-fPIC", &skew, "-ldl"]);
    let etc = home.join("etc");
    let script = format!(
        "cp -a /etc {0} && echo {1} > {0}/ld.so.preload && mount --bind {0} /etc",
        etc.display(),
        skewed.display()
    );
    let set = machines.shell_on(at, &script);
    assert!(set.status.success(), "{}", said(&set));
}

#[test]
fn what_one_machine_touches_make_builds_on_another_whatever_their_clocks_say() {
    let Some(machines) = with("make") else { return };
    if !on_path("gcc") {
        return;
    }
    set_clock(&machines, 1, -3600);
    set_clock(&machines, 2, 3600);
    let text = ran(
        &machines,
        &[],
        &format!(
            "for at in h1 h2; do
                ahead=$(($(on $at 'date +%s') - $(date +%s))); echo $(((ahead + 1800 * \
                (ahead > 0) - 1800 * (ahead < 0)) / 3600))
            done
            made() {{ on $1 'make -C /terral/p -j2 2> /dev/null' | grep -c gcc; }}
            on h1 'mkdir /terral/p; cd /terral/p; sh {project}'
            made h1; made h0; made h2
            for i in 1 2 3; do
                on h$((i % 3)) \"echo >> /terral/p/f$i.c\"; made h$(((i + 1) % 3)); \
                made h$(((i + 2) % 3))
                on h$(((i + 1) % 3)) \"touch /terral/p/all.h\"; made h$((i % 3)); \
                made h$(((i + 1) % 3))
            done
            for at in h0 h1 h2; do
                on $at \"mkdir /terral/of.$at; echo > /terral/of.$at/file; touch /terral/of.$at\"
                for path in of.$at of.$at/file; do
                    off=$(($(stat -c %Y $path) - $(date +%s)))
                    [ ${{off#-}} -lt 9 ] || echo $path $off
                done
            done",
            project = program("machines/project.sh").display()
        ),
    );
    // All eight, then nothing more; of one file that changed, that and what all are put into.
    let turn = "2\n0\n8\n0\n";
    assert_eq!(text, format!("-1\n1\n8\n0\n0\n{}", turn.repeat(3)));
}

/// One that stays open and writes, and is killed in the end.
const HELD: &str = r#"
import os, sqlite3, sys, time
database = sqlite3.connect("/terral/wal.db", isolation_level=None)
database.execute("INSERT INTO t VALUES (10)")
open(sys.argv[1] + "/open", "w").close()
while not os.path.exists(sys.argv[1] + "/tried"): time.sleep(0.01)
database.execute("INSERT INTO t VALUES (11)")
os.kill(os.getpid(), 9)
"#;

/// SQLite shares what its log has by a map, which one machine has at a time.
#[test]
fn a_database_with_a_write_ahead_log_is_one_machines_at_a_time_and_stays_whole() {
    let Some(machines) = with("sqlite3") else { return };
    let held = machines.home().join("held.py");
    fs::write(&held, HELD).expect("writes");
    let home = machines.home().display();
    let text = ran(
        &machines,
        &[],
        &format!(
            "sql() {{ on $1 \"sqlite3 /terral/wal.db \\\"$2\\\" 2>&1 || echo failed\" |
                sed 's/.*disk I.O error.*/refused/'; }}
            all='select count(*), sum(x) from t; pragma integrity_check'
            sql h1 'pragma journal_mode=wal; create table t(x); insert into t values(1)'
            sql h0 'insert into t values(2)'; sql h2 'insert into t values(3)'; sql h1 \"$all\"
            on h1 '/usr/bin/python3 {held} {home}' & one=$!
            until [ -e {home}/open ]; do sleep 0.05; done
            sql h0 'insert into t values(99)'; sql h2 \"$all\"; sql h1 \"$all\"; touch {home}/tried
            wait $one; ls; sql h0 \"$all\"
            sql h2 \"pragma locking_mode=exclusive; $all\"; sql h1 \"$all\"; sql h0 \"$all\"; ls",
            held = held.display(),
        ),
    );
    // Who is refused is told so; the one that has it open loses nothing, nor does its end.
    let refused = "refused\nfailed\n";
    let (open, left) = ("4|16\nok\n", "wal.db\nwal.db-shm\nwal.db-wal\n");
    let whole = "5|27\nok\n";
    // Who comes after one that was killed has what that one had mapped.
    let turns = format!("wal\n3|6\nok\n{refused}{refused}{open}{left}{whole}");
    assert_eq!(text, format!("{turns}exclusive\n{whole}{whole}{whole}wal.db\n"));
}

/// Adds rows for two seconds, each as often as it is refused; says how many are in.
const ADDS: &str = r#"
import random, sqlite3, sys, time
me, rows, end = int(sys.argv[1]), 0, time.monotonic() + 2
while time.monotonic() < end:
    database = sqlite3.connect("/terral/wal.db", timeout=2, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO t VALUES (?)", (me * 10000 + rows,))
        database.execute("UPDATE total SET rows = rows + 1")
        database.execute("COMMIT")
        rows += 1
    except sqlite3.OperationalError as error:
        assert any(word in str(error) for word in ("I/O", "locked")), error
    database.close()
    time.sleep(random.random() * 0.03)
print("rows", rows, flush=True)
"#;

#[test]
fn what_three_machines_added_to_it_at_once_and_were_not_refused_is_all_there() {
    let Some(machines) = with("sqlite3") else { return };
    let adds = machines.home().join("adds.py");
    fs::write(&adds, ADDS).expect("writes");
    let text = ran(
        &machines,
        &[],
        &format!(
            "sql='pragma journal_mode=wal; create table t(x primary key); create table total(rows)'
            on h1 \"sqlite3 /terral/wal.db '\\''$sql'\\''\" > {home}/said
            sqlite3 wal.db 'insert into total values (0)'
            for at in 0 1 2; do on h$at \"/usr/bin/python3 {} $at\" & done; wait
            sqlite3 wal.db 'pragma locking_mode=exclusive; select rows from total;
            select count(*) from t; pragma integrity_check'",
            adds.display(),
            home = machines.home().display(),
        ),
    );
    let rows = text.lines().filter_map(|line| line.strip_prefix("rows "));
    let rows: Vec<u64> = rows.map(|rows| rows.parse().expect("a number")).collect();
    let sum: u64 = rows.iter().sum();
    assert!(rows.len() == 3 && sum > 9, "{text}");
    assert!(text.ends_with(&format!("exclusive\n{sum}\n{sum}\nok\n")), "{text}");
}
