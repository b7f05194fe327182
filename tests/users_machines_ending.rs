//! `terral serve --users --pool`: how a machine's servers end that cannot leave, and those of one
//! that does not come in. Needs root.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod etcd_server;
mod launched;
mod long;
mod namespaces;
mod users_cluster;

use std::time::{Duration, Instant};

use launched::until;
use rustix::process::Signal;
use users_cluster::{ALICE, BOB, Cluster};

/// Who is told twice to end does not wait.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Sends signals until it has ended, and how.
fn is_ended_by(cluster: &mut Cluster, at: usize, signals: usize) -> Option<i32> {
    let begin = Instant::now();
    for _ in 0..signals {
        // Who began us in the background may have us pass over SIGINT.
        cluster.signal(at, Signal::TERM);
        std::thread::sleep(Duration::from_millis(500));
    }
    let ended = cluster.ended(at);
    assert!(begin.elapsed() < AT_ONCE, "{:?}: {}", begin.elapsed(), cluster.said(at));
    ended.code()
}

#[test]
fn a_machine_that_waits_for_its_pool_says_so_and_ends_at_a_signal() {
    let Some(mut cluster) = Cluster::new() else { return };
    cluster.etcd.kill();
    cluster.start(0);
    until("it says that it waits", || cluster.said(0).contains("waiting for it"));
    // As one that has begun nothing.
    assert_eq!(is_ended_by(&mut cluster, 0, 1), None, "{}", cluster.said(0));
    assert_eq!(cluster.machines.left(0), "");
    cluster.etcd.start();
    cluster.serve(0);
    // The control is gone, and its memory is left.
    cluster.crash(0);
    cluster.start(1);
    until("it says for whom it waits", || {
        cluster.said(1).contains("waiting for the control of the pool p")
    });
    assert_eq!(is_ended_by(&mut cluster, 1, 1), Some(125), "{}", cluster.said(1));
    assert_eq!(cluster.machines.left(1), "");
    cluster.serve(0);
    cluster.ends(0);
}

/// Alice has something on the second machine, which bob reads there.
fn made(cluster: &Cluster) {
    cluster.done(1, ALICE, "umask 022; chmod 755 /terral/alice; echo one > /terral/alice/f");
    is_there(cluster, 1);
}

fn is_there(cluster: &Cluster, at: usize) {
    assert_eq!(cluster.done(at, BOB, "cat /terral/alice/f"), "one\n");
}

#[test]
fn without_etcd_an_end_waits_and_two_signals_end_it_and_the_next_goes_on() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    cluster.etcd.kill();
    cluster.signal(1, Signal::TERM);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(is_ended_by(&mut cluster, 1, 2), Some(74), "{}", cluster.said(1));
    cluster.etcd.start();
    cluster.serve(1);
    (0..2).for_each(|at| is_there(&cluster, at));
    cluster.ends(1);
    cluster.ends(0);
}

#[test]
fn without_the_control_those_that_are_members_still_are_named_and_the_next_goes_on_with_them() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    let before = cluster.members_of(0, ALICE);
    let stopped = cluster.processes(0, 0, "--instance-directory");
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::STOP));
    cluster.signal(1, Signal::TERM);
    std::thread::sleep(Duration::from_secs(3));
    let code = is_ended_by(&mut cluster, 1, 2);
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::CONT));
    let said = cluster.said(1);
    assert!(code == Some(74) && said.contains("members still"), "{code:?}: {said}");
    cluster.serve(1);
    // One of hers that had left by then is followed by another member.
    until("she has one on each machine", || cluster.members_of(0, ALICE).len() == before.len());
    (0..2).for_each(|at| is_there(&cluster, at));
    cluster.ends(1);
    cluster.ends(0);
}

#[test]
fn a_machine_that_is_removed_while_it_serves_ends_and_says_why() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    until("it is in the directory", || cluster.to().join("alice/f").exists());
    cluster.fence("h1", &[]);
    let ended = cluster.ended(1);
    let said = cluster.said(1);
    let code = ended.code();
    assert!([Some(74), Some(125)].contains(&code) && said.contains("removed"), "{ended}: {said}");
    // It may have gone on until it heard of it.
    let (code, error) = (cluster.sh(0, BOB, "cat /terral/alice/f"), "Input/output error");
    assert!(users_cluster::text(&code).contains(error), "{code:?}");
    cluster.fence("h1", &["--dead"]);
    is_there(&cluster, 0);
    // What it may have owed comes first, and it is another member.
    cluster.serve(1);
    is_there(&cluster, 1);
    assert_eq!(cluster.members_of(0, ALICE).len(), 2);
    cluster.ends(1);
    cluster.ends(0);
}

#[test]
fn who_does_not_leave_is_removed_also_where_roots_server_begins_again_just_then() {
    if !long::is_time_for("a user's server that says nothing as its machine ends") {
        return;
    }
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    let stopped = cluster.processes(1, ALICE, "");
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::STOP));
    cluster.signal(1, Signal::TERM);
    std::thread::sleep(Duration::from_secs(55));
    cluster.etcd.kill();
    cluster.kill(1, 0, "--instance-directory");
    std::thread::sleep(Duration::from_secs(15));
    cluster.etcd.start();
    let ended = cluster.ended(1);
    assert_eq!(ended.code(), Some(74), "{}", cluster.said(1));
    assert_eq!(cluster.members_of(0, ALICE).len(), 1, "{}", cluster.said(1));
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::KILL));
    cluster.serve(1);
    cluster.ends(1);
    cluster.ends(0);
}
