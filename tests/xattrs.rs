//! Extended attributes, through the client library: what setxattr(2) and the like promise, and what
//! becomes of them when the server is killed.
#![cfg(not(loom))]

mod brought;
mod files;
mod mount;
mod process;

use std::path::Path;

use brought::settle;
use files::open;
use mount::Mount;
use process::start_server;
use terral_client::{Client, ErrorKind, LockKind, LockRange, Locker, RenameHow, XattrHow};

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(128, &[]);
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("room")
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn kind(error: terral_client::Error) -> ErrorKind {
    error.kind
}

#[test]
fn they_are_set_read_listed_and_removed() {
    let home = home();
    let instance = home.path().join("instance");
    let _server = start_server(&instance, None);
    let client = connect(&instance);
    let file = open(&client, "a");
    client.make_directory(b"d", 0o755).expect("makes");
    for path in [&b"a"[..], b"d"] {
        let set = |value, how| client.set_xattr(path, b"user.x", value, how).map_err(kind);
        assert_eq!(client.xattr(path, b"user.x").map_err(kind), Err(ErrorKind::NoData));
        assert_eq!(set(Some(b"1"), XattrHow::Replace), Err(ErrorKind::NoData));
        assert_eq!(set(Some(b"1"), XattrHow::Create), Ok(()));
        assert_eq!(set(Some(b"2"), XattrHow::Create), Err(ErrorKind::Exists));
        assert_eq!(set(Some(b"3"), XattrHow::Replace), Ok(()));
        assert_eq!(client.xattr(path, b"user.x"), Ok(b"3".to_vec()));
        client.set_xattr(path, b"user.empty", Some(b""), XattrHow::Any).expect("sets");
        let names = client.xattrs(path).expect("lists");
        assert_eq!(names, [b"user.empty".to_vec(), b"user.x".to_vec()]);
        assert_eq!(set(None, XattrHow::Any), Ok(()));
        assert_eq!(set(None, XattrHow::Any), Err(ErrorKind::NoData));
    }
    assert_eq!(file.xattr(b"user.empty"), Ok(Vec::new()));
    let before = file.attributes().expect("stat").changed_ns;
    file.set_xattr(b"user.f", Some(b"f"), XattrHow::Any).expect("sets");
    assert!(file.attributes().expect("stat").changed_ns > before, "it is a change of the file");
    assert_eq!(client.xattr(b"a", b"user.f"), Ok(b"f".to_vec()));
    client.rename(b"a", b"b", RenameHow::Replace).expect("renames");
    client.unlink(b"b").expect("unlinks");
    assert_eq!(file.xattrs().expect("lists").len(), 2, "they live as long as the file");
}

#[test]
fn what_is_not_offered_is_refused_with_the_right_error() {
    let home = home();
    let instance = home.path().join("instance");
    let _server = start_server(&instance, None);
    let client = connect(&instance);
    open(&client, "a");
    client.make_link(b"l", b"a").expect("links");
    let set = |path: &[u8], name: &[u8], value: &[u8]| {
        let done = client.set_xattr(path, name, Some(value), XattrHow::Any);
        done.map_err(|error| error.to_errno())
    };
    assert_eq!(set(b"a", b"security.selinux", b"x"), Err(95));
    assert_eq!(set(b"a", b"trusted.x", b"x"), Err(95));
    assert_eq!(set(b"a", b"system.posix_acl_access", b"x"), Err(95));
    assert_eq!(set(b"a", b"x", b"x"), Err(95));
    assert_eq!(set(b"a", b"user.", b"x"), Err(22));
    assert_eq!(set(b"a", b"", b"x"), Err(34));
    let long = [b"user.".to_vec(), vec![b'n'; 250]].concat();
    assert_eq!(set(b"a", &long, b"x"), Ok(()));
    assert_eq!(set(b"a", &[long.clone(), b"n".to_vec()].concat(), b"x"), Err(34));
    assert_eq!(set(b"a", b"user.v", &[7; 8192]), Ok(()));
    assert_eq!(set(b"a", b"user.v", &[7; 8193]), Err(7));
    assert_eq!(client.xattr(b"a", b"user.v"), Ok(vec![7; 8192]));
    assert_eq!(set(b"l", b"user.v", b"x"), Err(1), "a symbolic link has none");
    assert_eq!(client.xattrs(b"l"), Ok(Vec::new()));
    assert_eq!(set(b"gone", b"user.v", b"x"), Err(2));
    // Until the file has 64 KiB of them; the names need more than one message.
    let names = (0..).map(|n| format!("user.{n:0>240}").into_bytes());
    let kept: Vec<Vec<u8>> = names.take_while(|name| set(b"a", name, b"x").is_ok()).collect();
    assert!(kept.len() > 200 && kept.len() < 300, "{}", kept.len());
    assert_eq!(set(b"a", b"user.more-than-fits", &[0; 300]), Err(28));
    assert_eq!(client.xattrs(b"a").expect("lists").len(), kept.len() + 2);
    client.set_xattr(b"a", b"user.v", None, XattrHow::Any).expect("removes");
    assert_eq!(set(b"a", b"user.v", b"fits again"), Ok(()));
}

#[test]
fn they_survive_the_server_and_the_rewriting_of_its_log() {
    let home = home();
    let instance = home.path().join("instance");
    let mut server = start_server(&instance, None);
    let client = connect(&instance);
    let file = open(&client, "a");
    let other = open(&client, "b");
    file.lock(Locker::Flock, LockRange::ALL, LockKind::Exclusive, false).expect("locks");
    let set = |name: &[u8], value: Option<&[u8]>| {
        client.set_xattr(b"a", name, value, XattrHow::Any).expect("sets");
    };
    set(b"user.stays", Some(b"here"));
    set(b"user.goes", Some(b"x"));
    set(b"user.goes", None);
    server.kill();
    let mut server = start_server(&instance, None);
    let check = || {
        assert_eq!(client.xattr(b"a", b"user.stays"), Ok(b"here".to_vec()));
        assert_eq!(client.xattr(b"a", b"user.goes").map_err(kind), Err(ErrorKind::NoData));
        let second = open(&connect(&instance), "a");
        let taken = second.lock(Locker::Flock, LockRange::ALL, LockKind::Shared, false);
        assert_eq!(taken.map_err(kind), Err(ErrorKind::WouldBlock));
    };
    check();
    // More than the log grows before it is rewritten.
    let log = || std::fs::metadata(instance.join("log")).expect("log").len();
    let mut longest = 0;
    for round in 0..3000u32 {
        let value = [&round.to_le_bytes()[..], &[1; 8000]].concat();
        other.set_xattr(b"user.much", Some(&value), XattrHow::Any).expect("sets");
        longest = longest.max(log());
    }
    assert!(log() < longest, "the log was not rewritten");
    server.kill();
    let _server = start_server(&instance, None);
    check();
    assert_eq!(other.xattr(b"user.much").expect("is there")[..4], 2999u32.to_le_bytes());
}

#[test]
fn a_directory_that_takes_none_is_mentioned_once() {
    let Some(target) = Mount::ramfs() else { return };
    let home = home();
    let instance = home.path().join("instance");
    let _server = start_server(&instance, Some(target.path()));
    let client = connect(&instance);
    for name in ["a", "b"] {
        let file = open(&client, name);
        file.write(b"bytes").expect("writes");
        file.set_xattr(b"user.x", Some(b"y"), XattrHow::Any).expect("sets");
        file.close();
    }
    let drain = settle(&client);
    assert_eq!(drain.failures, Vec::<String>::new());
    assert_eq!(client.xattr(b"b", b"user.x"), Ok(b"y".to_vec()));
    assert_eq!(std::fs::read(target.path().join("b")).expect("is there"), b"bytes");
    let said = drain.conflicts.iter().filter(|line| line.contains("extended attributes"));
    assert_eq!(said.count(), 1, "{:?}", drain.conflicts);
}

fn theirs(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 8192];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn they_go_to_the_directory_and_come_from_there() {
    let (home, target) = (home(), tempfile::tempdir_in("/dev/shm").expect("directory"));
    let there = |name: &str| target.path().join(name);
    for name in ["old", "emptied", "replaced", "patched"] {
        std::fs::write(there(name), b"old bytes").expect("writes");
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(there(name), "user.old", name.as_bytes(), flags) {
            println!("skipped: no extended attributes in /dev/shm: {error}");
            return;
        }
    }
    let instance = home.path().join("instance");
    let mut server = start_server(&instance, Some(target.path()));
    let client = connect(&instance);
    let set = |path: &str, name: &str, value: Option<&[u8]>| {
        client.set_xattr(path.as_bytes(), name.as_bytes(), value, XattrHow::Any).expect("sets");
    };
    let write = |name: &str, bytes: &[u8]| {
        let file = open(&client, name);
        file.write(bytes).expect("writes");
        file.close();
    };
    assert_eq!(client.xattr(b"old", b"user.old"), Ok(b"old".to_vec()));
    set("old", "user.old", None);
    set("old", "user.new", Some(b"1"));
    set("patched", "user.new", Some(b"1"));
    write("patched", b"new");
    set("patched", "user.new", Some(b"2"));
    client.truncate(b"emptied", 0).expect("truncates");
    write("emptied", b"new");
    let file = open(&client, "fresh");
    file.write(b"new").expect("writes");
    file.set_xattr(b"user.new", Some(b"3"), XattrHow::Any).expect("sets");
    client.rename(b"fresh", b"replaced", RenameHow::Replace).expect("renames");
    client.make_directory(b"d", 0o755).expect("makes");
    set("d", "user.new", Some(b"4"));
    file.close();
    server.kill();
    let _server = start_server(&instance, Some(target.path()));
    let drain = settle(&client);
    assert_eq!((drain.failures, drain.conflicts), (Vec::new(), Vec::new()));
    assert_eq!(theirs(&there("old"), "user.old"), None);
    assert_eq!(theirs(&there("old"), "user.new"), Some(b"1".to_vec()));
    assert_eq!(theirs(&there("patched"), "user.new"), Some(b"2".to_vec()));
    assert_eq!(theirs(&there("patched"), "user.old"), Some(b"patched".to_vec()));
    assert_eq!(theirs(&there("emptied"), "user.old"), Some(b"emptied".to_vec()));
    assert_eq!(theirs(&there("replaced"), "user.old"), None);
    assert_eq!(theirs(&there("replaced"), "user.new"), Some(b"3".to_vec()));
    assert_eq!(theirs(&there("d"), "user.new"), Some(b"4".to_vec()));
    // Our own changes there are not somebody else's.
    write("old", b"ours");
    let drain = settle(&client);
    assert_eq!((drain.failures, drain.conflicts), (Vec::new(), Vec::new()));
    assert_eq!(std::fs::read(there("old")).expect("is there"), b"oursbytes");
}
