//! A server killed at every system call with which it brings something to the permanent store, one
//! after the other, while somebody else changes files there: nothing of either is lost, and what
//! nobody else has touched is no conflict.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod brought;
mod fault;
mod files;
mod process;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fault::Fault;
use files::{WRITE, open};
use terral_client::{Client, File, OpenHow, RenameHow};

/// The calls with which the server changes something there, or in its log.
const CALLS: [&str; 13] = [
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "write",
    "pwrite64",
    "ftruncate",
    "fchmod",
    "fchmodat",
    "fchown",
    "utimensat",
    "syncfs",
];

/// More than any of these is made.
const TIMES_MAX: u32 = 100;

#[test]
fn role() {
    process::play(128, &[]);
}

/// One thing to bring, and what somebody else does in the directory.
struct Case {
    /// In the directory, before there is a server.
    before: fn(&Path),
    /// In the files, before the server brings them. What stays open is written to once more while
    /// no server is there.
    work: fn(&Client, &Path) -> Option<File>,
    /// In the directory, while no server is there.
    meanwhile: fn(&Path),
    /// How the directory looks in the end; whether the server was killed is said.
    check: fn(&Path, bool),
}

impl Case {
    /// Tries every point at which the server can be killed.
    fn at_every_point(&self) {
        let mut points = 0;
        for call in CALLS {
            for nth in 1..TIMES_MAX {
                match self.at(call, nth) {
                    Some(true) => points += 1,
                    Some(false) => break,
                    None => return,
                }
            }
        }
        println!("{points} points");
        assert!(points > 5, "it was hardly ever killed");
    }

    /// Has the server killed at the `nth` of these calls. Whether it came to that; `None` if it
    /// cannot be done here.
    fn at(&self, call: &str, nth: u32) -> Option<bool> {
        let home = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("room");
        let instance: PathBuf = memory.path().join("instance");
        (self.before)(home.path());
        let mut server = process::start_server(&instance, Some(home.path()));
        let client = Client::connect(&instance).expect("connects");
        let file = (self.work)(&client, home.path());
        let fault = Fault::kill_at(&server, call, nth)?;
        let mut killed = false;
        std::thread::scope(|scope| {
            let settled = scope.spawn(|| settle(&client));
            while !settled.is_finished() {
                if !killed && server.0.try_wait().expect("is a child").is_some() {
                    killed = true;
                    (self.meanwhile)(home.path());
                    if let Some(file) = &file {
                        file.write_at(&bytes(AGAIN), 0).expect("writes");
                    }
                    server = process::start_server(&instance, None);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        drop(fault);
        if server.0.try_wait().expect("is a child").is_some() {
            killed = true;
            server = process::start_server(&instance, None);
            settle(&client);
        }
        if let Some(file) = file {
            file.close();
        }
        client.leave().expect("leaves");
        server.0.wait().expect("ends");
        println!("{call} {nth}: {:?}", names(home.path()));
        (self.check)(home.path(), killed);
        assert!(!instance.exists(), "something is owed");
        Some(killed)
    }
}

/// Waits until everything is there.
fn settle(client: &Client) {
    let (begin, mut asked) = (Instant::now(), 0);
    loop {
        let status = client.status().expect("status");
        if status.starts > asked {
            client.finish().expect("finishes");
            asked = status.starts;
        } else if status.drain.settled {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "never settled: {status:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("lists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("entry").file_name().into_string().expect("ours"))
        .collect();
    names.sort();
    names
}

fn bytes(of: u8) -> Vec<u8> {
    vec![of; 300_000]
}

const BEFORE: u8 = b'b';
const OURS: u8 = b'o';
const THEIRS: u8 = b't';
const AGAIN: u8 = b'a';

fn put(directory: &Path, name: &str, of: u8) {
    std::fs::write(directory.join(name), bytes(of)).expect("writes");
}

/// The one byte value of a file.
fn of(directory: &Path, name: &str) -> u8 {
    let found = std::fs::read(directory.join(name)).expect("is there");
    assert!(found.iter().all(|byte| *byte == found[0]), "{name} is mixed");
    assert_eq!(found.len(), 300_000, "{name}");
    found[0]
}

fn write(client: &Client, name: &str, how: OpenHow, of: u8) -> File {
    let file = client.open(name.as_bytes(), how).expect("opens");
    file.write_at(&bytes(of), 0).expect("writes");
    file
}

/// Writes ours, whole, and closes it.
fn replace(client: &Client, _: &Path) -> Option<File> {
    write(client, "data", TRUNCATE, OURS).close();
    None
}

/// Writes ours over what is there, and closes it.
fn update(client: &Client, _: &Path) -> Option<File> {
    write(client, "data", WRITE, OURS).close();
    None
}

const TRUNCATE: OpenHow = OpenHow { truncate: true, ..WRITE };

fn nothing(_: &Path) {}

fn something(directory: &Path) {
    put(directory, "data", BEFORE);
}

fn only_ours(directory: &Path, _: bool) {
    assert_eq!(names(directory), ["data"]);
    assert_eq!(of(directory, "data"), OURS);
}

/// Of a file that was still open.
fn only_the_last(directory: &Path, killed: bool) {
    assert_eq!(names(directory), ["data"]);
    assert_eq!(of(directory, "data"), if killed { AGAIN } else { OURS });
}

#[test]
fn a_new_file_arrives_once() {
    let meanwhile = nothing;
    Case { before: nothing, work: update, meanwhile, check: only_ours }.at_every_point();
    let work = |client: &Client, _: &Path| Some(write(client, "data", WRITE, OURS));
    Case { before: nothing, work, meanwhile, check: only_the_last }.at_every_point();
}

#[test]
fn a_replaced_file_is_no_conflict() {
    let meanwhile = nothing;
    Case { before: something, work: replace, meanwhile, check: only_ours }.at_every_point();
    let work = |client: &Client, _: &Path| Some(write(client, "data", TRUNCATE, OURS));
    Case { before: something, work, meanwhile, check: only_the_last }.at_every_point();
}

#[test]
fn a_file_changed_in_place_is_no_conflict() {
    let meanwhile = nothing;
    Case { before: something, work: update, meanwhile, check: only_ours }.at_every_point();
    let work = |client: &Client, _: &Path| Some(write(client, "data", WRITE, OURS));
    Case { before: something, work, meanwhile, check: only_the_last }.at_every_point();
}

/// A file that was brought is renamed, and written to again: in place, if it is known as ours.
fn rename_and_write(client: &Client, _: &Path) -> Option<File> {
    write(client, "first", WRITE, BEFORE).close();
    brought::settle(client);
    client.rename(b"first", b"data", RenameHow::Replace).expect("renames");
    Some(write(client, "data", WRITE, OURS))
}

#[test]
fn a_renamed_file_is_no_conflict() {
    let (work, meanwhile, check) = (rename_and_write, nothing, only_the_last);
    Case { before: nothing, work, meanwhile, check }.at_every_point();
    let work = |client: &Client, directory: &Path| {
        client.stat(b"data").expect("is known");
        rename_and_write(client, directory)
    };
    Case { before: something, work, meanwhile, check }.at_every_point();
}

#[test]
fn files_that_change_places_are_no_conflict() {
    let work = |client: &Client, _: &Path| {
        client.rename(b"data", b"other", RenameHow::Exchange).expect("exchanges");
        write(client, "data", WRITE, OURS).close();
        write(client, "other", WRITE, OURS).close();
        None
    };
    let before = |directory: &Path| {
        put(directory, "data", BEFORE);
        put(directory, "other", b'c');
    };
    let check = |directory: &Path, _: bool| {
        assert_eq!(names(directory), ["data", "other"]);
        assert_eq!((of(directory, "data"), of(directory, "other")), (OURS, OURS));
    };
    Case { before, work, meanwhile: nothing, check }.at_every_point();
}

/// Reads through a new server what a server left that was killed at the `nth` of these calls as it
/// changed names, before the new one changes any. Whether it came to that; `None` as above.
fn reads_right(call: &str, nth: u32, change: fn(&Client), found: &[(&str, u8)]) -> Option<bool> {
    let home = tempfile::tempdir().expect("directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("room");
    let instance: PathBuf = memory.path().join("instance");
    put(home.path(), "data", BEFORE);
    put(home.path(), "other", b'c');
    let mut server = process::start_server(&instance, Some(home.path()));
    let client = Client::connect(&instance).expect("connects");
    change(&client);
    let _fault = Fault::kill_at(&server, call, nth)?;
    client.finish().expect("finishes");
    let begin = Instant::now();
    while server.0.try_wait().expect("is a child").is_none() {
        if begin.elapsed() > Duration::from_millis(500) {
            return Some(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _server = process::start_server(&instance, None);
    for (name, of) in found {
        let file = open(&client, name);
        let mut seen = bytes(0);
        let read = file.read_at(&mut seen, 0);
        assert_eq!(read.as_ref().ok(), Some(&seen.len()), "{call} {nth}: {name}: {read:?}");
        assert!(seen == bytes(*of), "{call} {nth}: {name} has bytes of another file");
        file.close();
    }
    Some(true)
}

#[test]
fn what_only_the_directory_has_is_read_under_the_name_that_it_has_there() {
    let exchange = |client: &Client| {
        client.rename(b"data", b"other", RenameHow::Exchange).expect("exchanges");
    };
    let rename = |client: &Client| {
        client.rename(b"data", b"moved", RenameHow::Replace).expect("renames");
    };
    let mut points = 0;
    for call in ["renameat", "renameat2", "write", "pwrite64", "unlinkat", "syncfs"] {
        for nth in 1..TIMES_MAX {
            let found = [
                reads_right(call, nth, exchange, &[("data", b'c'), ("other", BEFORE)]),
                reads_right(call, nth, rename, &[("moved", BEFORE), ("other", b'c')]),
            ];
            let [Some(exchanged), Some(renamed)] = found else { return };
            points += u32::from(exchanged) + u32::from(renamed);
            if !exchanged && !renamed {
                break;
            }
        }
    }
    println!("{points} points");
    assert!(points > 2, "it was hardly ever killed");
}

#[test]
fn what_somebody_else_wrote_before_is_kept_once() {
    let work = |client: &Client, directory: &Path| {
        let file = open(client, "data");
        file.write_at(&bytes(OURS), 0).expect("writes");
        put(directory, "data", THEIRS);
        file.close();
        None
    };
    let before = something;
    let check = |directory: &Path, _: bool| {
        assert_eq!(names(directory), ["data", "data.theirs-1"]);
        assert_eq!((of(directory, "data"), of(directory, "data.theirs-1")), (OURS, THEIRS));
    };
    Case { before, work, meanwhile: nothing, check }.at_every_point();
}

/// Who writes after the last of ours has come has the last word; everybody else is kept.
fn theirs_is_somewhere(directory: &Path, killed: bool) {
    let last = of(directory, "data");
    let found = names(directory);
    let kept = found.iter().filter(|name| name.starts_with("data.theirs")).collect::<Vec<_>>();
    match (killed, last) {
        (false, _) => assert_eq!((last, kept.len()), (OURS, 0)),
        (true, OURS) => {
            assert!(kept.iter().any(|name| of(directory, name) == THEIRS), "theirs is lost")
        }
        (true, _) => assert_eq!(last, THEIRS),
    }
    assert!(kept.len() < 2 && found.len() == 1 + kept.len(), "{found:?}");
}

#[test]
fn what_somebody_else_writes_in_place_meanwhile_is_not_taken_for_ours() {
    let meanwhile = |directory: &Path| {
        let mut how = std::fs::OpenOptions::new();
        let file = how.write(true).create(true).truncate(false).open(directory.join("data"));
        file.expect("opens").write_all_at(&bytes(THEIRS), 0).expect("writes");
    };
    let check = theirs_is_somewhere;
    Case { before: something, work: replace, meanwhile, check }.at_every_point();
    Case { before: nothing, work: update, meanwhile, check }.at_every_point();
}

#[test]
fn what_somebody_else_puts_there_meanwhile_is_not_taken_for_ours() {
    let meanwhile = |directory: &Path| {
        put(directory, "new", THEIRS);
        std::fs::rename(directory.join("new"), directory.join("data")).expect("renames");
    };
    let check = theirs_is_somewhere;
    Case { before: something, work: replace, meanwhile, check }.at_every_point();
    Case { before: nothing, work: update, meanwhile, check }.at_every_point();
    Case { before: something, work: update, meanwhile, check }.at_every_point();
}

#[test]
fn what_somebody_else_removes_meanwhile_comes_again_if_it_is_owed() {
    let meanwhile = |directory: &Path| {
        let _ = std::fs::remove_file(directory.join("data"));
        let _ = std::fs::remove_dir_all(directory.join(".terral"));
    };
    let check = |directory: &Path, killed: bool| {
        let found = names(directory);
        assert!(found == ["data"] || (killed && found.is_empty()), "{found:?}");
        assert!(found.is_empty() || of(directory, "data") == OURS);
    };
    Case { before: nothing, work: update, meanwhile, check }.at_every_point();
    Case { before: something, work: replace, meanwhile, check }.at_every_point();
    Case { before: something, work: update, meanwhile, check }.at_every_point();
}
