//! Opens, directories and renames that wait for no server: done while it is stopped, seen by all,
//! in one step, and there after any death.
#![cfg(not(loom))]

mod files;
mod process;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use files::{WRITE, open};
use process::Bench;
use rustix::process::Signal;
use terral_client::{Client, ErrorKind, File, Kind, OpenHow, RenameHow, access};

const READ: OpenHow = OpenHow { access: access::READ as u8, create: false, ..WRITE };
const NEW: OpenHow = OpenHow { exclusive: true, ..WRITE };

impl Bench {
    /// What `act` does, while the server is stopped; it must not wait for it.
    fn while_stopped(&self, act: impl FnOnce() + Send) {
        let (done, over) = mpsc::channel();
        self.server.signal(Signal::STOP);
        std::thread::scope(|scope| {
            let acts = scope.spawn(move || {
                act();
                done.send(()).expect("listens");
            });
            let waited = over.recv_timeout(Duration::from_secs(60));
            self.server.signal(Signal::CONT);
            assert!(acts.join().is_ok(), "what it did failed");
            assert!(waited.is_ok(), "it waited for the server");
        });
    }
}

/// A client that has in hand what it needs.
fn connect(instance: &Path) -> Client {
    let client = Client::connect(instance).expect("connects");
    static CLIENTS: AtomicUsize = AtomicUsize::new(0);
    let directory = format!("warm-{}", CLIENTS.fetch_add(1, Ordering::SeqCst));
    client.make_directory(directory.as_bytes(), 0o755).expect("makes");
    for round in 0..60 {
        let name = format!("{directory}/{}", round % 4);
        let file = open(&client, &name);
        file.write(b"bytes").expect("writes");
        file.close();
        content(&client, &name);
        let below = format!("{directory}/d{round}");
        client.make_directory(below.as_bytes(), 0o755).expect("makes");
        if round % 8 == 0 {
            // What it used is filled up when the server has heard of it.
            client.status().expect("status");
        }
        client.unlink(name.as_bytes()).expect("removes");
    }
    client.status().expect("status");
    client
}

fn missing(client: &Client, name: &str) -> bool {
    client.stat(name.as_bytes()).is_err_and(|error| error.kind == ErrorKind::NotFound)
}

fn content(client: &Client, name: &str) -> Vec<u8> {
    let file = client.open(name.as_bytes(), READ).expect("opens");
    let mut bytes = vec![0; 1 << 20];
    let count = file.read(&mut bytes).expect("reads");
    bytes.truncate(count);
    file.close();
    bytes
}

fn moves(client: &Client, from: &str, to: &str) {
    client.rename(from.as_bytes(), to.as_bytes(), RenameHow::Replace).expect("moves");
}

#[test]
fn what_exists_is_opened_moved_and_removed_while_the_server_is_stopped() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    one.make_directory(b"d", 0o755).expect("makes");
    one.make_directory(b"d/empty", 0o755).expect("makes");
    for name in ["d/a", "d/b", "d/c"] {
        let file = open(&one, name);
        file.write(name.as_bytes()).expect("writes");
        file.close();
    }
    one.status().expect("status");
    bench.while_stopped(|| {
        assert_eq!(content(&one, "d/a"), b"d/a");
        assert_eq!(content(&other, "d/a"), b"d/a");
        moves(&one, "d/a", "d/n");
        assert!(missing(&other, "d/a"));
        assert_eq!(content(&other, "d/n"), b"d/a");
        moves(&other, "d/n", "d/b");
        assert!(missing(&one, "d/n"));
        assert_eq!(content(&one, "d/b"), b"d/a");
        one.unlink(b"d/c").expect("removes");
        assert!(missing(&other, "d/c"));
        other.remove_directory(b"d/empty").expect("is empty");
        assert!(missing(&one, "d/empty"));
        assert_eq!(other.open(b"d/c", READ).map(|_| ()).expect_err("gone").kind, NOT_FOUND);
    });
    let listed: Vec<_> = one.list(b"d").expect("lists").into_iter().map(|n| n.name).collect();
    assert_eq!(listed, [b"b"]);
    assert_eq!(content(&one, "d/b"), b"d/a");
}

const NOT_FOUND: ErrorKind = ErrorKind::NotFound;

#[test]
fn a_tree_is_made_filled_and_looked_at_while_the_server_is_stopped() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    one.make_directory(b"d", 0o755).expect("makes");
    one.status().expect("status");
    bench.while_stopped(|| {
        one.make_directory(b"d/sub", 0o755).expect("makes");
        let again = other.make_directory(b"d/sub/low", 0o755);
        again.expect("makes below what another has just made");
        let file = one.open(b"d/sub/low/f", NEW).expect("creates");
        file.write(b"bytes").expect("writes");
        file.close();
        let found = other.stat(b"d/sub/low/f").expect("is there");
        assert_eq!((found.kind, found.size, found.mode & 0o777), (Kind::File, 5, 0o644));
        assert_eq!(content(&other, "d/sub/low/f"), b"bytes");
        moves(&one, "d/sub/low/f", "d/sub/g");
        assert!(missing(&other, "d/sub/low/f"));
        other.open(b"d/sub/low/f", NEW).expect("creates anew").close();
        other.unlink(b"d/sub/low/f").expect("removes");
        assert!(missing(&one, "d/sub/low/f"));
    });
    assert_eq!(other.list(b"d/sub").expect("lists").len(), 2);
    assert_eq!(content(&other, "d/sub/g"), b"bytes");
    one.remove_directory(b"d/sub/low").expect("is empty");
    let full = one.remove_directory(b"d/sub").expect_err("is not");
    assert_eq!(full.kind, ErrorKind::NotEmpty);
}

#[test]
fn what_is_replaced_by_renames_is_whole_at_any_moment_and_through_deaths_of_the_server() {
    let mut bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    one.make_directory(b"d", 0o755).expect("makes");
    open(&one, "d/final").close();
    let over = AtomicBool::new(false);
    let order = Ordering::SeqCst;
    let (round, version) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            while !over.load(order) {
                let round = round.fetch_add(1, order) + 1;
                let file = open(&one, "d/next");
                file.write(&round.to_le_bytes().repeat(16)).expect("writes");
                file.close();
                moves(&one, "d/next", "d/final");
            }
        });
        let reads = scope.spawn(|| {
            while !over.load(order) {
                let bytes = content(&other, "d/final");
                let Some(first) = bytes.first_chunk::<8>() else { continue };
                assert_eq!(bytes, first.repeat(16), "half of a version");
                let now = u64::from_le_bytes(*first);
                let last = version.swap(now, order);
                assert!(now >= last, "version {now} after {last}");
            }
        });
        let enough = || round.load(order) > 100 && version.load(order) > 0;
        for _ in (0..500).take_while(|restarts| *restarts < 8 || !enough()) {
            std::thread::sleep(Duration::from_millis(60));
            bench.restart();
        }
        over.store(true, order);
        writes.join().and(reads.join()).expect("no panic");
    });
    let (rounds, seen) = (round.into_inner(), version.into_inner());
    assert!(rounds > 100 && seen > 0, "{rounds} rounds, {seen} seen");
    assert_eq!(content(&other, "d/final"), rounds.to_le_bytes().repeat(16));
    assert!(missing(&one, "d/next"));
}

/// Names that a mover moves to and fro.
const PAIRS: usize = 6;

#[test]
fn who_is_killed_while_it_moves_names_leaves_each_once() {
    let bench = Bench::new();
    let watcher = connect(&bench.instance());
    watcher.make_directory(b"d", 0o755).expect("makes");
    for pair in 0..PAIRS {
        open(&watcher, &format!("d/a{pair}")).close();
    }
    for round in 0..25u64 {
        let mut mover = process::start("mover", &bench.instance(), None);
        let begin = Instant::now();
        while missing(&watcher, "d/moving") {
            assert!(begin.elapsed() < Duration::from_secs(60), "the mover does not work");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 137 % 3000));
        mover.kill();
        // What it had asked of the server is done by now, or never.
        watcher.status().expect("status");
        for pair in 0..PAIRS {
            let names = [format!("d/a{pair}"), format!("d/b{pair}")];
            let there = names.each_ref().map(|name| !missing(&watcher, name));
            assert!(there[0] != there[1], "round {round}, {names:?}: {there:?}");
            if there[1] {
                moves(&watcher, &names[1], &names[0]);
            }
        }
        watcher.unlink(b"d/moving").expect("removes");
        let begin = Instant::now();
        while watcher.remove_directory(b"d/sub").is_err() && !missing(&watcher, "d/sub") {
            assert!(begin.elapsed() < Duration::from_secs(60), "something is left in it");
            for name in watcher.list(b"d/sub").expect("lists") {
                let path = [b"d/sub/", &name.name[..]].concat();
                watcher.unlink(&path).expect("removes");
            }
        }
    }
    let begin = Instant::now();
    while watcher.status().expect("status").open > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "descriptions are left over");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(watcher.list(b"d").expect("lists").len(), PAIRS);
}

fn move_until_killed(instance: &Path) {
    let client = Client::connect(instance).expect("connects");
    let _ = client.make_directory(b"d/sub", 0o755);
    for round in 0.. {
        for pair in 0..PAIRS {
            let names = [format!("d/a{pair}"), format!("d/b{pair}")];
            client.open(names[round % 2].as_bytes(), READ).expect("opens").close();
            moves(&client, &names[round % 2], &names[(round + 1) % 2]);
            let made = format!("d/sub/{}", round % 5);
            open(&client, &made).close();
            if pair % 2 == 0 {
                client.unlink(made.as_bytes()).expect("removes");
            }
        }
        if round == 3 {
            open(&client, "d/moving").close();
        }
    }
}

#[test]
fn a_closed_file_is_never_lost_to_who_is_just_opening_it() {
    let bench = Bench::new();
    let clients = [connect(&bench.instance()), connect(&bench.instance())];
    clients[0].make_directory(b"d", 0o755).expect("makes");
    for at in 0..40 {
        let file = open(&clients[0], &format!("d/f{at}"));
        file.write(format!("content of {at}").as_bytes()).expect("writes");
        file.close();
    }
    // Long enough that they are packed in between, as the pauses are as long as they linger.
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || {
                for round in 0..6u64 {
                    for at in 0..40 {
                        let name = format!("d/f{at}");
                        assert_eq!(content(client, &name), format!("content of {at}").as_bytes());
                    }
                    std::thread::sleep(Duration::from_millis(980 + round * 8));
                }
            });
        }
    });
    assert_eq!(clients[0].status().expect("status").open, 0);
}

/// Makes files with their names as content, in a directory of their own, and waits until all of
/// them have been closed for so long that they have lost their records.
fn at_rest(client: &Client, directory: &str, count: usize) -> Vec<String> {
    client.make_directory(directory.as_bytes(), 0o755).expect("makes");
    let names: Vec<String> = (0..count).map(|at| format!("{directory}/f{at}")).collect();
    for name in &names {
        let file = open(client, name);
        file.write(name.as_bytes()).expect("writes");
        file.close();
    }
    wait_for_rest(client, &names);
    names
}

fn wait_for_rest(client: &Client, names: &[String]) {
    let rests =
        |name: &String| client.safety(name.as_bytes()).is_ok_and(|safety| safety.memory_bytes == 0);
    let begin = Instant::now();
    while !names.iter().all(rests) {
        assert!(begin.elapsed() < Duration::from_secs(60), "they do not come to rest");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read_on(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 10];
    let count = file.read(&mut bytes).expect("reads");
    bytes.truncate(count);
    bytes
}

#[test]
fn any_number_of_files_at_rest_is_opened_while_the_server_is_stopped() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    // More than may linger at a time.
    let names = at_rest(&client, "d", 10_000);
    bench.while_stopped(|| {
        for name in names.iter().chain(&names) {
            let file = client.open(name.as_bytes(), READ).expect("opens");
            let size = name.len() as u64;
            assert_eq!((file.attributes().expect("known").size, file.size()), (size, size));
            file.close();
        }
    });
    assert_eq!(client.status().expect("status").open, 0);
    let safety = client.safety(names[0].as_bytes()).expect("is there");
    assert_eq!(safety.memory_bytes, 0, "the server never heard of it");
    for name in names.iter().step_by(500) {
        assert_eq!(content(&client, name), name.as_bytes());
    }
}

#[test]
fn what_was_opened_at_rest_is_read_whatever_becomes_of_its_name_and_of_the_server() {
    let mut bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    let names = at_rest(&one, "d", 6);
    let opened: Vec<File> =
        names.iter().map(|name| one.open(name.as_bytes(), READ).expect("opens")).collect();
    other.unlink(names[0].as_bytes()).expect("removes");
    moves(&other, &names[1], &names[2]);
    let file = open(&other, &names[3]);
    file.write_at(b"D", 0).expect("writes");
    file.close();
    // Has them hear of everything, and take what memory they can.
    other.status().expect("status");
    std::thread::sleep(Duration::from_millis(1500));
    bench.restart();
    let inherited = other.adopt(opened[4].description(), opened[4].nonce()).expect("is open");
    assert_eq!(read_on(&inherited), names[4].as_bytes(), "another process reads it");
    opened[4].set_offset(0);
    for (at, (file, name)) in opened.iter().zip(&names).enumerate() {
        let expected = if at == 3 { name.replacen('d', "D", 1) } else { name.clone() };
        assert_eq!(read_on(file), expected.as_bytes(), "{name}");
    }
    opened.iter().for_each(File::close);
    wait_for_rest(&one, &names[2..]);
    assert_eq!(one.status().expect("status").open, 0);
}

#[test]
fn who_reads_what_was_at_rest_while_others_come_and_go_gets_all_of_it() {
    let bench = Bench::new();
    let clients = [connect(&bench.instance()), connect(&bench.instance())];
    let names = at_rest(&clients[0], "d", 40);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (client, pause) in clients.iter().zip([0, 7]) {
            let names = &names;
            scope.spawn(move || {
                for round in 0..u64::MAX {
                    for (at, name) in names.iter().enumerate() {
                        // Some are opened only, some read at once, some a moment later.
                        let file = client.open(name.as_bytes(), READ).expect("opens");
                        match (at as u64 + round) % 4 {
                            0 => {}
                            1 => assert_eq!(read_on(&file), name.as_bytes()),
                            _ => {
                                std::thread::sleep(Duration::from_micros(pause * 10 + at as u64));
                                assert_eq!(read_on(&file), name.as_bytes());
                            }
                        }
                        file.close();
                    }
                    if begin.elapsed() > Duration::from_secs(5) {
                        break;
                    }
                    // About as long as they linger, so that they lose their records meanwhile.
                    std::thread::sleep(Duration::from_millis(960 + round * (11 + pause)));
                }
            });
        }
    });
}

#[test]
fn what_only_the_permanent_directory_has_is_opened_without_the_server_and_kept_for_who_has_it() {
    let (home, backing) = (process::Home::new(), tempfile::tempdir().expect("room"));
    for name in ["a", "b"] {
        std::fs::write(backing.path().join(name), name.repeat(5000)).expect("writes");
    }
    let server = process::start_server(&home.instance(), Some(backing.path()));
    let (one, other) = (connect(&home.instance()), connect(&home.instance()));
    one.list(b"").expect("lists");
    for name in [b"a", b"b"] {
        one.stat(name).expect("is there");
    }
    server.signal(Signal::STOP);
    let opened = [b"a", b"b"].map(|name| one.open(name, READ).expect("opens"));
    server.signal(Signal::CONT);
    other.unlink(b"a").expect("removes");
    let begin = Instant::now();
    while backing.path().join("a").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is not removed there");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (file, name) in opened.iter().zip(["a", "b"]) {
        let mut bytes = vec![0; 10_000];
        assert_eq!(file.read(&mut bytes).expect("reads"), 5000);
        assert_eq!(bytes[..5000], *name.repeat(5000).as_bytes());
    }
}

#[test]
fn empty_files_that_are_closed_keep_no_pages() {
    let bench = Bench::new();
    let client = Client::connect(&bench.instance()).expect("connects");
    let used = || client.status().expect("status").memory_used_bytes;
    let opened: Vec<_> = (0..200).map(|at| open(&client, &format!("f{at}"))).collect();
    opened.iter().for_each(File::close);
    // Those that are there may be opened with what a writer needs first.
    let opened: Vec<_> = (0..200).map(|at| open(&client, &format!("f{at}"))).collect();
    let ready = used();
    assert!(ready >= 200 * 4096, "{ready} bytes: who writes finds his first pages");
    opened.iter().for_each(File::close);
    let gone = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        used() <= ready / 4
    });
    assert!(gone, "{} bytes of pages of empty files, {ready} before", used());
}

/// As much as a file that is closed is packed into at once, and once more.
const RECORD: usize = 60_001;

#[test]
fn what_is_appended_as_others_close_is_all_there() {
    let bench = Bench::new();
    let clients = [connect(&bench.instance()), connect(&bench.instance())];
    for round in 0..600 {
        let name = format!("log-{round}");
        std::thread::scope(|scope| {
            for (letter, client) in (b'a'..).zip(&clients) {
                let name = &name;
                scope.spawn(move || {
                    for _ in 0..8 {
                        let file = open(client, name);
                        file.append(&[letter; RECORD]).expect("appends");
                        file.close();
                    }
                });
            }
        });
        let log = content(&clients[0], &name);
        assert_eq!(log.len(), 16 * RECORD);
        for record in log.chunks(RECORD) {
            let odd = record.iter().find(|byte| **byte != record[0]);
            assert!(matches!((record[0], odd), (b'a' | b'b', None)), "round {round}: {odd:?}");
        }
        clients[1].unlink(name.as_bytes()).expect("removes");
    }
}

#[test]
fn a_name_is_known_to_all_the_moment_it_is_made_and_while_others_come_and_go() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    client.make_directory(b"d", 0o755).expect("makes");
    let over = AtomicBool::new(false);
    let order = Ordering::SeqCst;
    std::thread::scope(|scope| {
        let busy = connect(&bench.instance());
        let over = &over;
        scope.spawn(move || {
            for round in 0u64.. {
                if over.load(order) {
                    break;
                }
                let name = format!("d/busy{}", round % 50);
                match round / 50 % 2 {
                    0 => open(&busy, &name).close(),
                    _ => busy.unlink(name.as_bytes()).expect("unlinks"),
                }
            }
        });
        let other = connect(&bench.instance());
        for round in 0..2000 {
            let name = format!("d/n{round}").into_bytes();
            let file = client.open(&name, WRITE).expect("makes");
            assert_eq!(other.stat(&name).expect("is known").ino, file.ino());
            client.unlink(&name).expect("unlinks");
            assert_eq!(other.stat(&name).expect_err("is gone").kind, ErrorKind::NotFound);
            file.close();
        }
        over.store(true, order);
    });
}

/// Not a test: what this program does when the tests start it again.
#[test]
fn role() {
    process::play(256, &[("mover", move_until_killed)]);
}
