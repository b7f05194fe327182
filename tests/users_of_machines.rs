//! `terral serve --users --pool`: users of several machines see one `/terral`, each by a server of
//! his own on each machine where he is. Needs root.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod etcd_server;
mod launched;
mod long;
mod namespaces;
mod users_cluster;

use std::fs;

use launched::until;
use rustix::process::Signal;
use users_cluster::{ALICE, BOB, Cluster, SOON};

/// Alice lets others in, and makes something on each machine.
fn made(cluster: &Cluster) {
    cluster.done(0, ALICE, "chmod 755 /terral/alice; mkdir /terral/alice/d");
    cluster.done(0, ALICE, "umask 022; echo one > /terral/alice/d/f; echo own > /terral/alice/own");
    cluster.done(0, ALICE, "chmod 600 /terral/alice/own");
    cluster.done(1, ALICE, "umask 022; mkdir /terral/alice/d/e; echo two > /terral/alice/d/e/g");
}

fn is_there(cluster: &Cluster, at: usize) {
    assert_eq!(cluster.done(at, BOB, "cat /terral/alice/d/f /terral/alice/d/e/g"), "one\ntwo\n");
    assert_eq!(cluster.done(at, ALICE, "cat /terral/alice/own; ls /terral/alice/d"), "own\ne\nf\n");
    cluster.denied(at, BOB, "cat /terral/alice/own");
    cluster.denied(at, BOB, "mkdir /terral/alice/d/mine");
}

#[test]
fn what_a_user_has_on_one_machine_he_and_others_have_on_another() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    for at in [0, 1] {
        is_there(&cluster, at);
        cluster.done(at, 0, "ls -lR /terral");
    }
    cluster.done(
        1,
        ALICE,
        "mv /terral/alice/d/f /terral/alice/d/e/h; echo more >> /terral/alice/own",
    );
    cluster.done(1, BOB, "echo his > /terral/bob/f");
    assert_eq!(
        cluster.done(0, ALICE, "cat /terral/alice/d/e/h /terral/alice/own"),
        "one\nown\nmore\n"
    );
    cluster.ends(1);
    assert_eq!(cluster.done(0, ALICE, "cat /terral/alice/d/e/h /terral/alice/d/e/g"), "one\ntwo\n");
    assert_eq!(cluster.done(0, BOB, "cat /terral/bob/f"), "his\n");
    cluster.ends(0);
    for (path, owner) in [("alice/d/e/h", ALICE), ("alice/own", ALICE), ("bob/f", BOB)] {
        assert_eq!(cluster.owner(path).0, owner, "{path}");
    }
    assert_eq!(cluster.owner("alice/own").1, 0o600);
}

#[test]
fn whichever_server_is_killed_all_is_there() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    let killed = [(1, ALICE), (0, ALICE), (1, 0), (0, 0)];
    for (at, user) in killed {
        cluster.kill(at, user, "--instance-directory");
        for at in [0, 1] {
            is_there(&cluster, at);
        }
        cluster.done(1 - at, ALICE, &format!("echo {at} > /terral/alice/d/of-{user}"));
        assert_eq!(
            cluster.done(at, ALICE, &format!("cat /terral/alice/d/of-{user}")),
            format!("{at}\n")
        );
        cluster.done(1 - at, ALICE, &format!("rm /terral/alice/d/of-{user}"));
    }
    // With what starts it.
    for at in [0, 1] {
        for pid in cluster.processes(at, ALICE, "") {
            descendants::send(pid, Signal::KILL);
        }
        is_there(&cluster, 1 - at);
        is_there(&cluster, at);
    }
    cluster.ends(0);
    is_there(&cluster, 1);
    cluster.ends(1);
}

#[test]
fn who_starts_the_servers_of_users_is_killed_and_the_next_one_goes_on_with_each() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    let before = cluster.members_of(0, ALICE);
    assert_eq!(before.len(), 2, "one on each machine");
    for at in [1, 0] {
        let mut server = cluster.servers[at].take().expect("it serves");
        server.kill().expect("kills");
        server.wait().expect("ends");
        cluster.serve(at);
        for at in [0, 1] {
            is_there(&cluster, at);
        }
    }
    assert_eq!(cluster.members_of(0, ALICE), before, "each is the member that it was");
    cluster.ends(1);
    cluster.ends(0);
}

#[test]
fn a_machine_that_is_lost_goes_with_all_its_users_servers_and_they_go_on_elsewhere() {
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    until("it is in the directory", || {
        fs::read_to_string(cluster.to().join("alice/d/e/g")).is_ok_and(|text| text == "two\n")
    });
    cluster.done(1, BOB, "echo his > /terral/bob/f");
    until("his is, too", || cluster.to().join("bob/f").exists());
    cluster.crash(1);
    assert!(cluster.machines.shell_on(1, "rm -rf /dev/shm/*").status.success());
    let fenced = cluster.fence("h1", &["--dead"]);
    assert!(fenced.contains("users' servers"), "{fenced}");
    is_there(&cluster, 0);
    assert_eq!(cluster.done(0, BOB, "cat /terral/bob/f"), "his\n");
    cluster.serve(1);
    is_there(&cluster, 1);
    assert_eq!(cluster.done(1, BOB, "cat /terral/bob/f"), "his\n");
    cluster.ends(0);
    is_there(&cluster, 1);
    cluster.ends(1);
}

#[test]
fn servers_for_all_users_and_for_one_are_in_no_pool_together() {
    let Some(mut cluster) = Cluster::new() else { return };
    cluster.serve(0);
    let mut one = cluster.begins(1, &[]);
    let ended = descendants::ended_within(one.spawn().expect("starts"), SOON);
    assert!(!ended.status.success());
    assert!(cluster.said(1).contains("start it with --users"), "{}", cluster.said(1));
    cluster.ends(0);
}

#[test]
fn a_machine_ends_whose_user_has_stopped_who_is_to_have_what_he_has() {
    if !long::is_time_for("a user's server that nobody goes on with") {
        return;
    }
    let Some(mut cluster) = Cluster::all() else { return };
    made(&cluster);
    // Nobody else of hers is in, to whom hers here could hand over.
    let stopped = cluster.processes(0, ALICE, "");
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::STOP));
    cluster.signal(1, Signal::TERM);
    let ended = cluster.ended(1);
    stopped.iter().for_each(|pid| descendants::send(*pid, Signal::CONT));
    // Nothing is owed; whether it is a member still is said.
    assert!([Some(0), Some(1)].contains(&ended.code()), "{ended}: {}", cluster.said(1));
    assert_eq!(cluster.members_of(0, ALICE).len(), 1, "she is waited for by nobody");
    is_there(&cluster, 0);
    cluster.serve(1);
    is_there(&cluster, 1);
    cluster.ends(1);
    cluster.ends(0);
}
