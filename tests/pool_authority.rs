//! Pools as LWFS draws them: an authority, storage servers, and servers for programs, each a
//! process of its own; with a real etcd, which lets storage servers write down less. Not here:
//! pools whose servers are all alike (`pool`).
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

use launched::{said, until};
use pooled::{Pool, SOON, told};

const AUTHORITY: &[&str] = &["--role", "authn,authz"];
const STORAGE: &[&str] = &["--role", "storage"];
const COMPUTE: &[&str] = &["--role", "compute"];

impl Pool {
    /// A server that serves no programs.
    fn serves_none(&mut self, at: usize, options: &[&str]) {
        self.begin(at, options);
        until("it is the control, or knows who is", || self.status(at).contains("member "));
    }

    fn does(&self, at: usize, words: &[&str]) -> String {
        let output = self.terral(at, words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        told(&output)
    }

    fn is_refused(&self, at: usize, words: &[&str]) -> String {
        let output = self.terral(at, words);
        assert!(!output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.machines.home().join(name);
        fs::write(&path, text).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changes");
        path.display().to_string()
    }

    fn used(&self, at: usize) -> String {
        let status = self.status(at);
        status.lines().find(|line| line.contains("memory ")).unwrap_or_default().to_owned()
    }
}

#[test]
fn an_authority_says_who_may_what_and_keeps_nothing() {
    let Some(mut pool) = Pool::new(4) else { return };
    let who = format!("pilot read,list key {}\n", keys::public(1));
    let (who, key) = (pool.file("who", &who), pool.file("key", &keys::private(1)));
    pool.serves_none(0, &[AUTHORITY, &["--principals", &who]].concat());
    // Who keeps no files waits for one that does.
    pool.begin(3, COMPUTE);
    pool.serve(1, STORAGE);
    pool.is_in(3);
    pool.serve(2, STORAGE);
    assert!(pool.status(1).contains("member 1 of"), "it has the root: {}", pool.status(1));
    pool.shows(3, "mkdir /terral/d /terral/e; for i in 1 2 3 4; do seq 50000 > /terral/d/$i; done");
    assert_eq!(pool.shows(1, "cat /terral/d/* | wc -l"), "200000\n");
    for at in [0, 3] {
        assert!(pool.used(at).contains(" 0 B used"), "{at}: {}", pool.used(at));
    }
    let why = said(&pool.run(0, "true"));
    assert!(why.contains("serves no programs"), "{why}");
    // What is to be decided is decided there, and counts on all machines.
    let create = ["container", "create", "results", "--at", "/terral/e", "--allow", "others=read"];
    pool.does(0, &create);
    for at in [1, 3] {
        assert!(pool.does(at, &["container", "show", "results"]).contains("others"), "{at}");
    }
    pool.does(0, &["policy", "set", "*.log", "consistency=commit"]);
    let why = pool.is_refused(0, &["role", "h0", "storage"]);
    assert!(why.contains("of the pool's authority, and keeps no files"), "{why}");
    let credential = pool.machines.home().join("credential").display().to_string();
    pool.does(0, &["login", "--key", &key, "-o", &credential, "--instance", "default"]);
    let shown = pool.status(3);
    let authority = shown.lines().find(|line| line.trim_start().starts_with("authority"));
    let says = |line: &&str| line.contains("member 0") && line.ends_with("(authn, authz)");
    assert!(authority.is_some_and(|line| says(&line)), "{shown}");
    // The server where the root was born is lost: who keeps files goes on with what it decided.
    pool.does(2, &["wait"]);
    pool.does(1, &["wait"]);
    pool.is_lost(1);
    pool.does(0, &["fence", "1", "--dead"]);
    assert_eq!(pool.shows(3, "ls /terral /terral/d | wc -w"), "8\n");
    assert_eq!(pool.shows(2, "cat /terral/d/* | wc -l"), "200000\n");
    pool.shows(3, "seq 7 > /terral/d/new; mkdir /terral/f");
    assert!(pool.used(0).contains(" 0 B used"), "{}", pool.used(0));
    // The last of its kind is needed as long as others are in.
    let why = pool.is_refused(0, &["stop"]);
    assert!(why.contains("start another one of --role authn,authz"), "{why}");
    // So is the last one that keeps files, as long as programs are to be served.
    let why = pool.is_refused(2, &["stop"]);
    assert!(why.contains("the last server of this pool that keeps files"), "{why}");
    assert!(why.contains("start another one of --role storage"), "{why}");
    assert_eq!(why.trim().lines().count(), 1, "{why}");
    for at in [3, 2] {
        pool.stops(at);
    }
    pool.stops(0);
    let arrived = fs::read_to_string(pool.to.join("d/new")).expect("has arrived");
    assert_eq!(arrived.lines().count(), 7);
}

#[test]
fn an_authority_that_is_stopped_hands_over_to_another_one_and_to_nobody_else() {
    let Some(mut pool) = Pool::new(3) else { return };
    // A storage server is the first, and the control until an authority comes.
    pool.serve(0, STORAGE);
    pool.shows(0, "mkdir /terral/d; seq 100 > /terral/d/a");
    pool.serves_none(1, AUTHORITY);
    let is_control = |pool: &Pool, at: usize| {
        let made = pool.terral(at, &["policy", "set", "*.log", "consistency=commit"]);
        made.status.success()
    };
    until("the authority is the control", || is_control(&pool, 1));
    assert!(!is_control(&pool, 0), "the one before is none any more");
    assert_eq!(pool.shows(0, "wc -l < /terral/d/a"), "100\n");
    pool.serves_none(2, AUTHORITY);
    until("one of its kind is there", || pool.status(1).contains("of 3"));
    pool.stops(1);
    until("the next one is the control", || is_control(&pool, 2));
    assert!(!is_control(&pool, 0));
    pool.shows(0, "seq 9 > /terral/d/b");
    pool.stops(0);
    pool.stops(2);
    assert_eq!(fs::read_to_string(pool.to.join("d/b")).expect("arrived").lines().count(), 9);
}

#[test]
fn programs_wait_until_their_server_has_heard_who_is_in() {
    let Some(mut pool) = Pool::new(2) else { return };
    pool.serves_none(0, AUTHORITY);
    // It asks etcd, and does not reach the authority.
    let route = |pool: &Pool, how: &str| {
        let done = pool.machines.shell_on(1, &format!("ip route {how} blackhole 10.77.0.1/32"));
        assert!(done.status.success(), "{}", said(&done));
    };
    route(&pool, "add");
    pool.begin(1, STORAGE);
    until("it was let in", || pool.status(1).contains("member 1"));
    let words = ["run", "--instance", "default", "--", "sh", "-c", "seq 7 > /terral/a"];
    let mut run = pool.machines.terral(1).args(words).spawn().expect("starts");
    for _ in 0..20 {
        assert!(pool.status(1).contains("member 1"), "it answers");
        assert!(run.try_wait().expect("is ours").is_none(), "nobody has the root yet");
    }
    route(&pool, "del");
    let ran = descendants::ended_within(run, SOON);
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(pool.shows(1, "wc -l < /terral/a"), "7\n");
    pool.stops(1);
    pool.stops(0);
}

#[test]
fn of_two_authorities_that_are_stopped_at_once_one_stays_until_another_one_comes() {
    let Some(mut pool) = Pool::new(4) else { return };
    pool.serves_none(0, AUTHORITY);
    pool.serve(1, STORAGE);
    pool.shows(1, "seq 100 > /terral/a");
    pool.serves_none(2, AUTHORITY);
    until("one of its kind is there", || pool.status(0).contains("of 3"));
    let stop = |at: usize| pool.machines.terral(at).arg("stop").spawn().expect("starts");
    let mut stops = [stop(0), stop(2)];
    let mut ended = |at: usize| stops[at].try_wait().expect("is ours").is_some();
    let mut first = None;
    until("one of them has left", || {
        first = (0..2).find(|at| ended(*at));
        first.is_some()
    });
    let first = first.unwrap_or_default();
    // All goes on, and the other one is still asked what is to be decided.
    assert_eq!(pool.shows(1, "seq 50 > /terral/b; cat /terral/* | wc -l"), "150\n");
    let (left, other) = ([0, 2][first], [0, 2][1 - first]);
    assert!(pool.ends(left).status.success());
    assert!(!ended(1 - first), "nobody else is its like");
    assert!(pool.status(other).contains("member "), "it stays");
    pool.serves_none(3, AUTHORITY);
    assert!(pool.ends(other).status.success());
    until("the next one is the control", || {
        let made = pool.terral(3, &["policy", "set", "*.log", "consistency=commit"]);
        made.status.success()
    });
    for stop in stops {
        let stopped = descendants::ended_within(stop, SOON);
        assert!(stopped.status.success(), "{}", said(&stopped));
    }
    pool.shows(1, "seq 9 > /terral/c");
    pool.stops(1);
    pool.stops(3);
    let arrived = fs::read_to_string(pool.to.join("c")).expect("has arrived");
    assert_eq!(arrived.lines().count(), 9);
}

/// etcd lets `storage` read all of the pool, and write that it wants to come in and is there; the
/// `authority` may everything.
const RIGHTS: &str = r#"
say() { curl --silent --show-error --fail --data "$2" http://$etcd/v3/auth/$1 >/dev/null; }
key() { printf %s "$1" | base64; }
may() {
    range="\"key\":\"$(key $3)\",\"range_end\":\"$(key $4)\""
    say role/grant "{\"name\":\"$1\",\"perm\":{\"permType\":\"$2\",$range}}"
}
say user/add '{"name":"root","password":"r"}'
say user/grant '{"user":"root","role":"root"}'
for who in authority storage; do
    say user/add "{\"name\":\"$who\",\"password\":\"word of $who\"}"
    say role/add "{\"name\":\"$who\"}"
    say user/grant "{\"user\":\"$who\",\"role\":\"$who\"}"
done
may authority READWRITE /terral/p/ /terral/p0
may storage READ /terral/p/ /terral/p0
may storage READWRITE /terral/p/wanted/ /terral/p/wanted0
may storage READWRITE /terral/p/servers/ /terral/p/servers0
say enable '{}'
"#;

#[test]
fn a_storage_server_that_etcd_lets_write_little_comes_in_and_is_never_the_control() {
    let Some(mut pool) = Pool::new(3) else { return };
    let address = pool.etcd.address().to_owned();
    until("etcd is up", || {
        let asked = format!("curl --silent http://{address}/version");
        told(&pool.machines.shell_on(0, &asked)).contains("etcdserver")
    });
    let given = pool.machines.shell_on(0, &format!("set -e; etcd={address}; {RIGHTS}"));
    assert!(given.status.success(), "{}", said(&given));
    let login = |who: &str| {
        let file = pool.file(who, &format!("user {who}\npassword word of {who}\n"));
        ["--control-login".to_owned(), file]
    };
    let [authority, storage] = [login("authority"), login("storage")];
    fn with<'w>(role: &[&'w str], login: &'w [String; 2]) -> Vec<&'w str> {
        let login = login.iter().map(String::as_str);
        role.iter().copied().chain(login).collect()
    }
    // It waits for one that may begin the pool.
    pool.begin(1, &with(STORAGE, &storage));
    pool.serves_none(0, &with(AUTHORITY, &authority));
    pool.is_in(1);
    pool.serve(2, &with(STORAGE, &storage));
    pool.shows(1, "seq 100 > /terral/a");
    assert_eq!(pool.shows(2, "wc -l < /terral/a"), "100\n");
    // As an authority it does not come in, either.
    pool.stops(2);
    let comes = pool.command(2, &with(AUTHORITY, &storage)).spawn().expect("starts");
    let why = said(&descendants::ended_within(comes, SOON));
    assert!(why.contains("permission denied"), "{why}");
    pool.serve(2, &with(STORAGE, &storage));
    pool.is_lost(0);
    let mut why = String::new();
    until("the authority's lease is over", || {
        why = pool.is_refused(2, &["fence", "0", "--dead"]);
        !why.contains("has said within the last")
    });
    assert!(why.contains("permission denied"), "{why}");
    // All goes on; the authority is there again, with nothing of what it had, and is let in by
    // nobody: a person has one take over who may.
    assert_eq!(pool.shows(1, "seq 50 > /terral/b; cat /terral/a /terral/b | wc -l"), "150\n");
}
