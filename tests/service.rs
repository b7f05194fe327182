//! One server and its clients, through shared memory: what the client library promises.
#![cfg(not(loom))]

mod files;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use files::open;
use terral_client::{Client, ErrorKind, Kind, OpenHow, RenameHow};
use terral_server::{Options, Outcome, serve};

/// A server in a thread of this process, its instance in `/dev/shm`.
struct Server {
    home: tempfile::TempDir,
    thread: Option<JoinHandle<terral_server::Outcome>>,
}

impl Server {
    fn start(memory_mib: u64, backing: Option<&Path>) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let options = Options {
            instance: home.path().join("instance"),
            backing: backing.map(Into::into),
            memory_bytes: memory_mib << 20,
            spill: None,
            // No process is forked beside the other servers of this one.
            ready_bytes: Some(0),
            partition: None,
            listen: terral_server::EVERYWHERE,
            principals: None,
            pool: None,
            launcher: None,
            among_users: false,
        };
        let thread = std::thread::spawn(move || serve(&options).expect("serves"));
        let server = Server { home, thread: Some(thread) };
        while !server.instance().join("socket").exists() {
            std::thread::yield_now();
        }
        server
    }

    fn instance(&self) -> PathBuf {
        self.home.path().join("instance")
    }

    fn client(&self) -> Client {
        Client::connect(&self.instance()).expect("connects")
    }

    /// Finishes, waits until all is drained, and leaves.
    fn finish(mut self) -> Outcome {
        let client = self.client();
        client.finish().expect("finishes");
        let begin = std::time::Instant::now();
        loop {
            let drain = client.status().expect("status").drain;
            if drain.settled {
                break;
            }
            assert!(begin.elapsed().as_secs() < 60, "the drain stands still: {drain:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        client.leave().expect("leaves");
        self.thread.take().expect("runs").join().expect("no panic")
    }
}

fn pattern(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes()[2]).collect()
}

#[test]
fn what_one_client_writes_another_reads() {
    let server = Server::start(256, None);
    let (writer, reader) = (server.client(), server.client());
    let bytes = pattern(20 << 20, 1);
    let file = open(&writer, "a");
    for piece in bytes.chunks(100_000) {
        assert_eq!(file.write(piece).expect("writes"), piece.len());
    }
    let again = reader.open(b"a", OpenHow { access: 1, ..Default::default() }).expect("opens");
    let mut seen = vec![0; bytes.len() + 10];
    assert_eq!(again.read(&mut seen).expect("reads"), bytes.len());
    assert!(seen[..bytes.len()] == bytes);
    assert_eq!(again.read(&mut seen).expect("reads"), 0);
    assert_eq!(reader.stat(b"a").expect("is there").size, bytes.len() as u64);
    file.close();
    assert_eq!(writer.status().expect("status").totals.written_bytes, bytes.len() as u64);
}

#[test]
fn holes_and_cut_tails_read_as_zeros() {
    let server = Server::start(256, None);
    let client = server.client();
    let file = open(&client, "a");
    file.write_at(&[7; 10_000], 0).expect("writes");
    file.write_at(&[9; 5], (5 << 20) + 3).expect("writes");
    let mut seen = vec![1; (5 << 20) + 8];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), (5 << 20) + 8);
    assert!(seen[..10_000].iter().all(|b| *b == 7));
    assert!(seen[10_000..(5 << 20) + 3].iter().all(|b| *b == 0));
    assert_eq!(seen[(5 << 20) + 3..], [9; 5]);

    file.truncate(100).expect("truncates");
    file.truncate(9_000).expect("truncates");
    let mut seen = vec![1; 9_000];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), 9_000);
    assert!(seen[..100].iter().all(|b| *b == 7) && seen[100..].iter().all(|b| *b == 0));
}

#[test]
fn names_behave_as_posix_says() {
    let server = Server::start(128, None);
    let client = server.client();
    client.make_directory(b"d", 0o755).expect("makes");
    let kind = |error: terral_client::Error| error.kind;
    assert_eq!(client.make_directory(b"d", 0o755).map_err(kind), Err(ErrorKind::Exists));
    open(&client, "d/a").write(b"x").expect("writes");
    assert_eq!(client.remove_directory(b"d").map_err(kind), Err(ErrorKind::NotEmpty));
    assert_eq!(client.unlink(b"d").map_err(kind), Err(ErrorKind::IsDirectory));
    assert_eq!(client.stat(b"d/a/b").map_err(kind), Err(ErrorKind::NotDirectory));
    client.rename(b"d/a", b"d/b", RenameHow::Replace).expect("renames");
    assert_eq!(client.stat(b"d/a").map_err(kind), Err(ErrorKind::NotFound));
    let long = [b'n'; 256];
    assert_eq!(client.stat(&long).map_err(kind), Err(ErrorKind::NameTooLong));
    open(&client, std::str::from_utf8(&long[..255]).expect("ascii"));
    assert_eq!(
        client.rename(b"d", b"d/x", RenameHow::Replace).map_err(kind),
        Err(ErrorKind::Invalid)
    );
    let names = client.list(b"d").expect("lists");
    assert_eq!((names.len(), names[0].name.as_slice(), names[0].kind), (1, &b"b"[..], Kind::File));
    client.unlink(b"d/b").expect("unlinks");
    client.remove_directory(b"d").expect("removes");
}

#[test]
fn a_file_removed_while_open_is_readable_and_its_memory_comes_back() {
    let server = Server::start(128, None);
    let client = server.client();
    let file = open(&client, "a");
    file.write(&[5; 3 << 20]).expect("writes");
    client.unlink(b"a").expect("unlinks");
    let mut seen = [0; 10];
    assert_eq!(file.read_at(&mut seen, 1 << 20).expect("reads"), 10);
    assert_eq!(seen, [5; 10]);
    file.close();
    while client.status().expect("status").memory_used_bytes > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn appends_of_many_threads_are_whole_and_lose_nothing() {
    let server = Server::start(128, None);
    let clients = [server.client(), server.client()];
    open(&clients[0], "log");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let client = &clients[usize::from(thread) % 2];
            scope.spawn(move || {
                let file = open(client, "log");
                for _ in 0..500 {
                    file.append(&[b'a' + thread; 777]).expect("appends");
                }
            });
        }
    });
    let file = open(&clients[0], "log");
    let mut seen = vec![0; 4 * 500 * 777];
    assert_eq!(file.size(), seen.len() as u64);
    file.read_at(&mut seen, 0).expect("reads");
    let mut counts = [0; 4];
    for record in seen.chunks(777) {
        assert!(record.iter().all(|byte| *byte == record[0]), "a record is torn");
        counts[usize::from(record[0] - b'a')] += 1;
    }
    assert_eq!(counts, [500; 4]);
}

#[test]
fn what_was_written_arrives_in_the_directory_whole() {
    let target = tempfile::tempdir().expect("directory");
    std::fs::write(target.path().join("old"), pattern(3 << 20, 5)).expect("writes");
    let server = Server::start(256, Some(target.path()));
    let client = server.client();
    client.make_directory(b"d", 0o750).expect("makes");
    let bytes = pattern(5_000_001, 2);
    open(&client, "d/new").write(&bytes).expect("writes");
    client.rename(b"d/new", b"d/renamed", RenameHow::Replace).expect("renames");
    let old = open(&client, "old");
    let mut seen = vec![0; 3 << 20];
    assert_eq!(old.read_at(&mut seen, 0).expect("reads"), 3 << 20);
    assert!(seen == pattern(3 << 20, 5));
    old.write_at(b"patched", 2_500_000).expect("writes");
    open(&client, "empty");
    let outcome = server.finish();
    assert_eq!(outcome.status.drain.failures, Vec::<String>::new());
    let read = |name: &str| std::fs::read(target.path().join(name)).expect("is there");
    assert!(read("d/renamed") == bytes);
    assert_eq!(read("empty"), b"");
    let mut patched = pattern(3 << 20, 5);
    patched[2_500_000..2_500_007].copy_from_slice(b"patched");
    assert!(read("old") == patched);
    let mut names: Vec<_> = std::fs::read_dir(target.path())
        .expect("lists")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "empty", "old"]);
}

#[test]
fn a_file_larger_than_memory_goes_through_it() {
    let target = tempfile::tempdir().expect("directory");
    let server = Server::start(128, Some(target.path()));
    let client = server.client();
    let file = open(&client, "big");
    let piece = pattern(1 << 20, 3);
    for _ in 0..400 {
        file.write(&piece).expect("writes");
    }
    let mut seen = vec![0; 1 << 20];
    for at in [0, 37, 250, 399] {
        file.read_at(&mut seen, at << 20).expect("reads");
        assert!(seen == piece, "MiB {at}");
    }
    file.close();
    server.finish();
    let arrived = std::fs::read(target.path().join("big")).expect("is there");
    assert_eq!(arrived.len(), 400 << 20);
    assert!(arrived.chunks(1 << 20).all(|chunk| chunk == piece));
}
