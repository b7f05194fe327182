//! Pools of servers that stay, whose state is in etcd: a real etcd, real servers, a real network
//! between namespaces; servers and etcd are killed and stopped. Not here: what each registry does
//! (`registry`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod etcd_server;
mod keys;
mod launched;
mod namespaces;
mod pooled;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use launched::{said, until};
use pooled::{Pool, SOON, told};
use rustix::process::Signal;

#[test]
fn servers_find_each_other_by_the_pool_and_show_one_tree() {
    let Some(mut pool) = Pool::all(3) else { return };
    pool.shows(0, "seq 100 > /terral/a; mkdir /terral/d");
    pool.shows(1, "seq 200 > /terral/d/b");
    assert_eq!(pool.shows(2, "cat /terral/a /terral/d/b | wc -l"), "300\n");
    for at in 0..3 {
        let status = pool.status(at);
        assert!(status.contains("pool      p, generation 1, kept in etcd://"), "{status}");
    }
    let again = descendants::ended_within(
        pool.command(1, &["--name", "another"]).spawn().expect("starts"),
        SOON,
    );
    assert!(said(&again).contains("this machine has a server of the pool p already: default"));
    // One that leaves in order is missed by nobody, and comes again as another one.
    pool.stops(1);
    assert_eq!(pool.shows(2, "wc -l < /terral/d/b"), "200\n");
    pool.serve(1, &[]);
    assert_eq!(pool.shows(1, "wc -l < /terral/d/b"), "200\n");
    assert!(pool.status(1).contains("member 3"), "a number is given once");
}

#[test]
fn of_servers_that_start_at_once_one_begins_the_pool() {
    let Some(mut pool) = Pool::new(3) else { return };
    (0..3).for_each(|at| pool.begin(at, &[]));
    (0..3).for_each(|at| pool.is_in(at));
    (0..3).for_each(|at| drop(pool.shows(at, &format!("seq 10 > /terral/of{at}"))));
    let mut numbers = Vec::new();
    for at in 0..3 {
        assert_eq!(pool.shows(at, "cat /terral/of* | wc -l"), "30\n");
        let status = pool.status(at);
        assert!(status.contains("p, generation 1,"), "{status}");
        numbers.extend((0..3).filter(|number| status.contains(&format!("member {number} of 3"))));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn servers_that_were_killed_go_on_as_the_members_that_they_were() {
    let Some(mut pool) = Pool::all(2) else { return };
    pool.shows(0, "seq 100 > /terral/a");
    pool.shows(1, "seq 200 > /terral/b");
    for at in [1, 0] {
        pool.is_killed(at);
        pool.serve(at, &[]);
    }
    for at in [0, 1] {
        assert_eq!(pool.shows(at, "cat /terral/a /terral/b | wc -l"), "300\n");
        let status = pool.status(at);
        assert!(status.contains(&format!("member {at} of 2")), "{status}");
        assert!(status.contains("generation 1"), "{status}");
    }
    // Without a word of the pool it is not gone on with.
    pool.is_killed(1);
    let to = pool.to.display().to_string();
    let without = pool.terral(1, &["serve", "--to", &to]);
    assert!(said(&without).contains("is of the pool p: `terral serve … --control etcd://"));
}

/// A list of principals with one, and his key.
fn principals(pool: &Pool) -> [String; 2] {
    let write = |name: &str, text: String| {
        let path = pool.machines.home().join(name);
        fs::write(&path, text).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changes");
        path.display().to_string()
    };
    let line = format!("pilot read,list key {}\ngroup crew = key:pilot\n", keys::public(1));
    [write("who", line), write("key", keys::private(1))]
}

const CREATE: &[&str] =
    &["container", "create", "results", "--at", "/terral/d", "--allow", "others=read"];

#[test]
fn containers_and_principals_outlast_all_servers_of_the_pool() {
    let Some(mut pool) = Pool::new(2) else { return };
    let [who, key] = principals(&pool);
    pool.serve(0, &["--principals", &who]);
    let created = pool.terral(0, CREATE);
    assert!(created.status.success(), "{}", said(&created));
    let policy = pool.terral(0, &["policy", "set", "*.log", "consistency=commit"]);
    assert!(policy.status.success(), "{}", said(&policy));
    let shown = || told(&pool.terral(0, &["container", "show", "results"]));
    let before = shown();
    assert!(before.contains("others"), "{before}");
    pool.shows(0, "seq 100 > /terral/a");
    pool.stops(0);
    // Another machine is the first now, and has never had the list.
    pool.serve(1, &[]);
    let status = pool.status(1);
    assert!(status.contains("p, generation 2"), "{status}");
    assert_eq!(told(&pool.terral(1, &["container", "show", "results"])), before);
    assert!(told(&pool.terral(1, &["policy", "list"])).contains("*.log"));
    assert_eq!(pool.shows(1, "wc -l < /terral/a"), "100\n");
    let credential = pool.machines.home().join("credential").display().to_string();
    let login = ["login", "--key", &key, "-o", &credential, "--instance", "default"];
    let login = pool.terral(1, &login);
    assert!(login.status.success(), "{}", said(&login));
}

#[test]
fn a_pool_whose_control_is_lost_begins_anew_once_nobody_is_left_of_it() {
    let Some(mut pool) = Pool::all(3) else { return };
    assert!(pool.terral(0, CREATE).status.success());
    pool.shows(1, "seq 200 > /terral/b");
    pool.is_lost(0);
    // Who is there goes on with what it has.
    assert_eq!(pool.shows(1, "wc -l < /terral/b"), "200\n");
    // Nobody begins beside it, also where the control was.
    let refused = pool.command(0, &[]).spawn().expect("starts");
    let output = descendants::ended_within(refused, SOON);
    let why = said(&output);
    assert!(!output.status.success() && why.contains("are there still, on h1, h2"), "{why}");
    for at in [1, 2] {
        let stopped = pool.terral(at, &["stop", "--now"]);
        assert!(!said(&stopped).contains("error"), "{}", said(&stopped));
        pool.ends(at);
    }
    // What they owed is brought before they come in again.
    pool.serve(0, &[]);
    pool.serve(1, &[]);
    assert!(pool.status(1).contains("p, generation 2"), "{}", pool.status(1));
    assert_eq!(pool.shows(0, "wc -l < /terral/b"), "200\n");
    assert!(pool.terral(1, &["container", "show", "results"]).status.success());
}

#[test]
fn where_the_machine_of_the_control_is_lost_for_good_a_person_says_so() {
    let Some(mut pool) = Pool::all(2) else { return };
    pool.shows(1, "seq 200 > /terral/b");
    pool.is_lost(0);
    pool.terral(1, &["stop", "--now"]);
    pool.ends(1);
    pool.serve(1, &["--anew"]);
    assert!(pool.status(1).contains("p, generation 2"), "{}", pool.status(1));
    assert_eq!(pool.shows(1, "wc -l < /terral/b"), "200\n");
}

#[test]
fn without_etcd_all_goes_on_but_what_changes_the_pool() {
    let Some(mut pool) = Pool::all(2) else { return };
    pool.shows(0, "mkdir /terral/d; seq 100 > /terral/d/a");
    pool.etcd.kill();
    until("the status says so", || pool.status(0).contains("away for"));
    let begin = Instant::now();
    pool.shows(1, "seq 200 > /terral/d/b; cat /terral/d/a >> /terral/d/b; mkdir /terral/e");
    assert_eq!(pool.shows(0, "wc -l < /terral/d/b; ls /terral"), "300\nd\ne\n");
    assert!(begin.elapsed() < Duration::from_secs(12), "nobody waits for etcd");
    let refused = pool.terral(1, CREATE);
    let why = said(&refused);
    assert!(!refused.status.success() && why.contains("nothing was changed: etcd://"), "{why}");
    assert!(!pool.terral(0, &["container", "show", "results"]).status.success());
    // Who waits when it comes back is answered, or told after 6 s to come again.
    let waits = pool.machines.terral(0).args(CREATE).spawn().expect("starts");
    pool.etcd.start();
    let answered = descendants::ended_within(waits, SOON);
    let told = said(&answered);
    assert!(answered.status.success() || told.contains("nothing was changed"), "{told}");
    until("it is decided", || {
        pool.terral(0, CREATE);
        pool.terral(0, &["container", "show", "results"]).status.success()
    });
    until("the status is as before", || pool.status(0).contains("kept in etcd://"));
    assert!(pool.terral(1, &["container", "show", "results"]).status.success());
}

/// The lease of a control that stands still is over.
fn is_given_up(pool: &Pool) {
    // Base64 of "/terral/p/control".
    let key = r#"{"key":"L3RlcnJhbC9wL2NvbnRyb2w="}"#;
    let ask = format!("curl -s -d '{key}' http://{}/v3/kv/range", pool.etcd.address());
    until("its lease is over", || {
        let found = told(&pool.machines.shell_on(1, &ask));
        found.contains("revision") && !found.contains("kvs")
    });
}

#[test]
fn a_control_that_stood_still_is_waited_for() {
    let Some(mut pool) = Pool::new(2) else { return };
    pool.serve(0, &[]);
    pool.shows(0, "seq 100 > /terral/a");
    pool.signal(0, Signal::STOP);
    pool.begin(1, &[]);
    is_given_up(&pool);
    assert!(!pool.terral(1, &["status"]).status.success(), "nobody begins beside it");
    pool.signal(0, Signal::CONT);
    pool.is_in(1);
    assert_eq!(pool.shows(1, "wc -l < /terral/a"), "100\n");
    assert!(pool.status(1).contains("p, generation 1"), "{}", pool.status(1));
    assert!(pool.terral(1, CREATE).status.success(), "it decides as before");
}

#[test]
fn a_control_that_was_replaced_while_it_stood_still_ends() {
    let Some(mut pool) = Pool::new(2) else { return };
    pool.serve(0, &[]);
    pool.shows(0, "seq 100 > /terral/a");
    pool.signal(0, Signal::STOP);
    pool.begin(1, &["--anew"]);
    pool.is_in(1);
    assert!(pool.status(1).contains("p, generation 2"), "{}", pool.status(1));
    pool.signal(0, Signal::CONT);
    let ended = pool.ends(0);
    assert_eq!(ended.status.code(), Some(125), "{}", said(&ended));
    pool.serve(0, &[]);
    assert_eq!(pool.shows(0, "wc -l < /terral/a"), "100\n");
    assert!(pool.terral(0, CREATE).status.success());
    assert!(pool.status(0).contains("p, generation 2"), "{}", pool.status(0));
}

/// Another server takes over from a control that is not there.
fn takes_over(pool: &Pool, at: usize, dead: &[&str]) {
    let fence = [&["fence", "0"][..], dead].concat();
    let early = said(&pool.terral(at, &fence));
    assert!(early.contains("has said within the last 10 s that it is there"), "{early}");
    is_given_up(pool);
    let fenced = pool.terral(at, &fence);
    assert!(fenced.status.success(), "{}", said(&fenced));
    assert!(said(&fenced).contains("this server is the control of the pool now"));
}

#[test]
fn another_server_takes_over_from_a_control_whose_machine_is_lost() {
    let Some(mut pool) = Pool::new(3) else { return };
    let [who, key] = principals(&pool);
    pool.serve(0, &["--principals", &who]);
    (1..3).for_each(|at| pool.serve(at, &[]));
    assert!(pool.terral(0, CREATE).status.success());
    pool.shows(1, "mkdir /terral/e; seq 200 > /terral/e/b");
    pool.shows(2, "seq 100 > /terral/e/a; cat /terral/e/b > /terral/top");
    pool.is_lost(0);
    takes_over(&pool, 1, &["--dead"]);
    for at in [1, 2] {
        assert_eq!(pool.shows(at, "cat /terral/e/a /terral/e/b /terral/top | wc -l"), "500\n");
        pool.shows(at, &format!("seq 9 > /terral/of{at}; seq 9 > /terral/e/of{at}"));
        assert!(pool.terral(at, &["container", "show", "results"]).status.success());
    }
    // It decides, and its log says so.
    pool.is_killed(1);
    pool.serve(1, &[]);
    let policy = pool.terral(2, &["policy", "set", "*.log", "consistency=commit"]);
    assert!(!policy.status.success(), "that is done where the control is");
    let policy = pool.terral(1, &["policy", "set", "*.log", "consistency=commit"]);
    assert!(policy.status.success(), "{}", said(&policy));
    until("the others hear of it", || told(&pool.terral(2, &["policy", "list"])).contains("*.log"));
    let credential = pool.machines.home().join("credential").display().to_string();
    let login = ["login", "--key", &key, "-o", &credential, "--instance", "default"];
    let login = pool.terral(1, &login);
    assert!(login.status.success(), "{}", said(&login));
    // The machine is there again, as another member of the same partition.
    pool.serve(0, &[]);
    let status = pool.status(0);
    assert!(status.contains("p, generation 1") && status.contains("member 3"), "{status}");
    assert_eq!(pool.shows(0, "cat /terral/of1 /terral/of2 /terral/e/of1 | wc -l"), "27\n");
    (0..3).for_each(|at| drop(pool.shows(at, &format!("seq 9 > /terral/again{at}"))));
    // Who has taken over may be lost, too: its server, and then its place.
    pool.is_killed(1);
    until("its lease is over", || pool.terral(2, &["fence", "1", "--dead"]).status.success());
    for at in [0, 2] {
        assert_eq!(
            pool.shows(at, "cat /terral/e/a /terral/again0 /terral/again2 | wc -l"),
            "118\n"
        );
    }
    // Its memory is there: that is brought, and it comes in.
    pool.serve(1, &[]);
    assert_eq!(pool.shows(1, "cat /terral/again0 /terral/again1 | wc -l"), "18\n");
    [0, 1, 2].into_iter().for_each(|at| pool.stops(at));
    let arrived = fs::read_to_string(pool.to.join("again0")).expect("has arrived");
    assert_eq!(arrived.lines().count(), 9);
}

#[test]
fn where_the_controls_machine_was_started_again_another_takes_over_by_itself() {
    let Some(mut pool) = Pool::all(3) else { return };
    assert!(pool.terral(0, CREATE).status.success());
    pool.shows(1, "mkdir /terral/e; seq 200 > /terral/e/b");
    pool.shows(2, "seq 100 > /terral/e/a");
    pool.is_lost(0);
    // It was started again, as far as anybody can see.
    let boot = pool.machines.home().join("boot");
    fs::write(&boot, "01234567-89ab-cdef-0123-456789abcdef\n").expect("writes");
    let bind = format!("mount --bind {} /proc/sys/kernel/random/boot_id", boot.display());
    assert!(pool.machines.shell_on(0, &bind).status.success());
    // Nobody is asked anything: it comes in once another one is the control.
    pool.serve(0, &[]);
    let status = pool.status(0);
    assert!(status.contains("p, generation 1") && status.contains("member 3"), "{status}");
    for at in [0, 1, 2] {
        assert_eq!(pool.shows(at, "cat /terral/e/a /terral/e/b | wc -l"), "300\n");
        pool.shows(at, &format!("mkdir /terral/of{at}; seq 9 > /terral/of{at}/f"));
        assert!(pool.terral(at, &["container", "show", "results"]).status.success());
    }
    assert_eq!(pool.shows(0, "cat /terral/of?/f | wc -l"), "27\n");
}

/// Members and their machines, as a server knows them.
fn machines(pool: &Pool, at: usize) -> String {
    let status = told(&pool.terral(at, &["status", "--json"]));
    let all: serde_json::Value = serde_json::from_str(&status).expect("a list");
    let each = all[0]["machines"].as_array().expect("a list").iter();
    each.map(|one| format!("{}:{} ", one["member"], one["host"].as_str().expect("text"))).collect()
}

#[test]
fn members_are_known_by_their_machines_be_they_lost_and_etcd_away() {
    let Some(mut pool) = Pool::all(3) else { return };
    let all = "0:h0 1:h1 2:h2 ";
    (0..3).for_each(|at| until("all are known", || machines(&pool, at) == all));
    pool.is_killed(2);
    let silent = "machine   2 h2: does not answer";
    until("it is silent", || pool.status(1).contains(silent));
    assert!(pool.status(0).contains("no connection to h2 (member 2)"), "{}", pool.status(0));
    pool.etcd.kill();
    until("the status says so", || pool.status(0).contains("away for"));
    assert_eq!([0, 1].map(|at| machines(&pool, at)), [all, all]);
    assert!(pool.status(1).contains(silent), "{}", pool.status(1));
    pool.etcd.start();
    until("the status is as before", || pool.status(0).contains("kept in etcd://"));
    pool.serve(2, &[]);
    // Another one takes over, asked by the machine's name.
    pool.is_lost(0);
    is_given_up(&pool);
    let fenced = pool.terral(1, &["fence", "h0", "--dead"]);
    assert!(fenced.status.success(), "{}", said(&fenced));
    let removed = "removed: h0 (member 0)";
    until("it is known", || [1, 2].iter().all(|at| pool.status(*at).contains(removed)));
    let elsewhere = said(&pool.terral(2, &["role", "h2", "storage"]));
    assert!(elsewhere.contains("only h1 (member 1) gives roles"), "{elsewhere}");
    // It comes in again: its name alone does not say which is to be removed.
    pool.serve(0, &[]);
    until("it is known", || machines(&pool, 1) == format!("{all}3:h0 "));
    let again = said(&pool.terral(1, &["fence", "h0", "--dead"]));
    assert!(again.contains("h0: is member 0, member 3: say which"), "{again}");
    let policy = pool.terral(1, &["policy", "set", "x*", "layout=one:h0"]);
    assert!(policy.status.success(), "{}", said(&policy));
    assert!(told(&pool.terral(1, &["policy", "list"])).contains("one:h0"));
    pool.stops(2);
    until("it has left", || pool.status(1).contains("left: h2 (member 2)"));
    assert_eq!(machines(&pool, 1), format!("{all}3:h0 "));
}

#[test]
fn what_programs_of_a_compute_server_have_closed_is_on_storage_servers() {
    let Some(mut pool) = Pool::new(3) else { return };
    let first = pool.command(0, &["--role", "compute"]).spawn().expect("starts");
    let refused = said(&descendants::ended_within(first, SOON));
    assert!(refused.contains("begin it with one of --role storage"), "{refused}");
    pool.serve(0, &[]);
    pool.serve(1, &["--role", "storage"]);
    pool.serve(2, &["--role", "compute"]);
    pool.shows(2, "mkdir /terral/d; seq 50000 > /terral/d/of2");
    pool.shows(1, "seq 50000 > /terral/d/of1");
    let storage = told(&pool.terral(1, &["status", "--json"]));
    assert!(storage.contains("\"storage\""), "{storage}");
    let used = |at| {
        let status = pool.status(at);
        status.lines().find(|line| line.contains("memory ")).unwrap_or_default().to_owned()
    };
    assert!(used(2).contains(" 0 B used"), "{}", used(2));
    pool.is_lost(2);
    assert_eq!(pool.shows(0, "cat /terral/d/of1 /terral/d/of2 | wc -l"), "100000\n");
}

#[test]
fn a_control_that_is_stopped_hands_over_and_the_pool_goes_on() {
    let Some(mut pool) = Pool::new(3) else { return };
    let [who, key] = principals(&pool);
    pool.serve(0, &["--principals", &who]);
    (1..3).for_each(|at| pool.serve(at, &[]));
    assert!(pool.terral(0, CREATE).status.success());
    pool.shows(0, "mkdir /terral/d; seq 100 > /terral/d/a; seq 9 > /terral/top");
    pool.shows(1, "seq 200 > /terral/d/b");
    pool.stops(0);
    for at in [1, 2] {
        assert_eq!(pool.shows(at, "cat /terral/d/a /terral/d/b /terral/top | wc -l"), "309\n");
        pool.shows(at, &format!("mkdir /terral/of{at}; seq 9 > /terral/of{at}/f"));
        assert!(pool.terral(at, &["container", "show", "results"]).status.success());
    }
    let credential = pool.machines.home().join("credential").display().to_string();
    let login = ["login", "--key", &key, "-o", &credential, "--instance", "default"];
    let login = pool.terral(1, &login);
    assert!(login.status.success(), "{}", said(&login));
    // It comes in as any other, and the next one hands over, too, be it that it was killed before.
    pool.serve(0, &[]);
    assert_eq!(pool.shows(0, "cat /terral/d/a /terral/of1/f /terral/of2/f | wc -l"), "118\n");
    pool.is_killed(1);
    pool.serve(1, &[]);
    until("the others are there again", || !said(&pool.terral(1, &["stop"])).contains("still in"));
    let ended = pool.ends(1);
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(pool.shows(0, "cat /terral/d/b /terral/of1/f /terral/of2/f | wc -l"), "218\n");
    pool.shows(2, "seq 5 > /terral/d/last");
    pool.stops(2);
    assert_eq!(pool.shows(0, "wc -l < /terral/d/last"), "5\n");
    pool.stops(0);
    let arrived = fs::read_to_string(pool.to.join("d/last")).expect("has arrived");
    assert_eq!(arrived.lines().count(), 5);
    assert!(!pool.to.join(".terral").exists(), "nothing of it is left there");
}

#[test]
fn a_control_that_stood_still_and_was_removed_ends_and_comes_in_as_another_member() {
    let Some(mut pool) = Pool::all(2) else { return };
    pool.shows(1, "seq 200 > /terral/b");
    // It has not brought that yet.
    pool.shows(0, "seq 100 > /terral/a");
    pool.signal(0, Signal::STOP);
    takes_over(&pool, 1, &[]);
    pool.signal(0, Signal::CONT);
    let ended = pool.ends(0);
    assert_eq!(ended.status.code(), Some(125), "{}", said(&ended));
    // Now it is sure that it does nothing any more.
    let dead = pool.terral(1, &["fence", "0", "--dead"]);
    assert!(dead.status.success(), "{}", said(&dead));
    assert_eq!(pool.shows(1, "wc -l < /terral/b"), "200\n");
    // What it owed is brought, and found.
    pool.serve(0, &[]);
    let status = pool.status(0);
    assert!(status.contains("p, generation 1") && status.contains("member 2"), "{status}");
    for at in [0, 1] {
        assert_eq!(pool.shows(at, "cat /terral/a /terral/b | wc -l"), "300\n");
    }
}

#[test]
fn what_somebody_else_has_written_in_etcd_begins_nothing() {
    let Some(mut pool) = Pool::new(1) else { return };
    let put = |pool: &Pool, key: &str| {
        let body = format!("{{\"key\":\"{key}\",\"value\":\"Z2FyYmFnZQ==\"}}");
        let ask = format!("curl -sf -d '{body}' http://{}/v3/kv/put", pool.etcd.address());
        until("etcd has it", || pool.machines.shell_on(0, &ask).status.success());
    };
    // Base64 of "/terral/p/wanted/x", "/terral/p/generation".
    put(&pool, "L3RlcnJhbC9wL3dhbnRlZC94");
    pool.serve(0, &[]);
    assert_eq!(pool.shows(0, "seq 9 > /terral/a; wc -l < /terral/a"), "9\n");
    put(&pool, "L3RlcnJhbC9wL2dlbmVyYXRpb24=");
    until("it says so", || pool.status(0).contains("/terral/p/generation: "));
    assert_eq!(pool.shows(0, "wc -l < /terral/a"), "9\n");
    pool.is_killed(0);
    let mut refused = pool.command(0, &[]);
    let refused = refused.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let refused = descendants::ended_within(refused, SOON);
    assert!(said(&refused).contains("/terral/p/generation: "), "{}", said(&refused));
}
