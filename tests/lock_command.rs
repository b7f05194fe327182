//! `terral lock` as a person uses it, in a run. Not here: the locks themselves (`named_locks`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;

use std::process::Output;

use launched::{LONG, run_to, said};

/// A script in a run, in its directory; `$T` is `terral`.
fn ran(script: &str) -> Output {
    let to = tempfile::tempdir().expect("directory");
    let mut run = run_to(to.path(), &["--cwd"]);
    let script = format!("T={}\n{script}", beside::built("terral").display());
    run.args(["sh", "-c", &script]);
    descendants::ended_within(run.spawn().expect("starts"), LONG)
}

fn told(script: &str) -> String {
    let output = ran(script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    text
}

#[test]
fn the_command_has_the_lock_and_its_status_is_given_on() {
    let text = told(
        "$T lock a -- sh -c 'exit 7'; echo $?
        $T lock a -- sh -c 'kill -9 $$'; echo $?
        $T lock a -- /nothing/there 2>/dev/null; echo $?
        $T lock a -- sh -c \"$T lock --timeout 0 a -- echo wrong || echo \\$?\"
        $T lock a -- $T lock b -- echo both
        $T lock -s a -- $T lock -s -t 1s a -- echo shared
        $T lock .a -- echo wrong || echo $?
        one=$($T lock a -- sh -c 'echo $TERRAL_LOCK_TOKEN')
        two=$($T lock a -- sh -c 'echo $TERRAL_LOCK_TOKEN')
        [ $two -gt $one ] && echo grown; ls -A",
    );
    assert_eq!(text, "7\n137\n127\n75\nboth\nshared\n1\ngrown\n");
}

#[test]
fn what_is_fenced_is_written_by_the_command_and_by_nobody_else() {
    let text = told(
        "echo old > f
        $T lock --fence f a -- sh -c 'echo new > f; echo more >> f'
        cat f
        echo wrong > f || echo refused
        echo wrong >> f || echo refused
        truncate -s 0 f || echo refused
        $T lock --fence nothing a -- echo wrong || echo $?
        $T lock a -- sh -c 'echo last > f'; cat f",
    );
    assert_eq!(text, "new\nmore\nrefused\nrefused\nrefused\n1\nlast\n");
}

/// `terral lock` and its command are stopped, another one has the lock, and they go on.
#[test]
fn a_command_that_was_stopped_cannot_write_and_is_told_that_the_lock_is_lost() {
    let text = told(
        "echo 0 > f
        setsid $T lock --lease 300ms --fence f a -- sh -c '
            trap \"echo told; exit 0\" TERM
            echo $$ > pid
            while echo 1 > f 2>/dev/null; do :; done
            echo stale; while :; do sleep 0.05; done' & first=$!
        until [ -s pid ]; do sleep 0.05; done; sleep 0.2
        kill -STOP -$first
        $T lock --fence f a -- sh -c 'echo 2 > f'
        kill -CONT -$first
        wait $first; echo $?
        cat f",
    );
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert!(lines == ["2", "75", "stale", "told"] || lines == ["2", "75", "told"], "{text}");
}
