//! `/dev/shm` filled by others: programs get ENOSPC where memory is needed, nobody dies of SIGBUS,
//! what was written stays, and all goes on when there is room again. Needs root, for a small file
//! system of its own.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod files;
mod mount;
mod process;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use files::WRITE;
use terral_client::{Client, ErrorKind, File as TerralFile, Result};

#[test]
fn role() {
    process::play(256, &[]);
}

/// Fills a file system to the last page; gives the file.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("others");
    let mut file = File::create(&path).expect("creates");
    for bytes in [1 << 20, 4096] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    path
}

/// It either worked or there was no memory for it.
fn worked<T>(done: Result<T>) -> Option<T> {
    done.inspect_err(|error| assert_eq!(error.kind, ErrorKind::NoSpace, "{error}")).ok()
}

fn write(client: &Client, name: &str, bytes: &[u8]) -> Result<()> {
    let file = client.open(name.as_bytes(), WRITE)?;
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_at(&bytes[done..], done as u64)?;
    }
    file.close();
    Ok(())
}

fn assert_reads(file: &TerralFile, bytes: &[u8]) {
    let mut seen = vec![0; bytes.len() + 1];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), bytes.len());
    assert!(seen[..bytes.len()] == *bytes);
}

fn assert_holds(client: &Client, name: &str, bytes: &[u8]) {
    let file = client.open(name.as_bytes(), WRITE).expect("opens");
    assert_reads(&file, bytes);
    file.close();
}

/// Does `call` until it works, but not for ever.
fn at_last<T>(mut call: impl FnMut() -> Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn where_others_fill_the_memory_writers_get_enospc_and_nobody_dies() {
    let Some(small) = mount::Mount::tmpfs(300) else { return };
    let instance = small.path().join("instance");
    let mut server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let before: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    write(&client, "before", &before).expect("there is room");
    let open = client.open(b"before", WRITE).expect("opens");
    let others = fill(small.path());

    let mut refused = 0;
    for i in 0..6_000 {
        if worked(write(&client, &format!("full-{i}"), &[7; 5000])).is_none() {
            refused += 1;
        }
        if i % 100 == 0 {
            worked(client.make_directory(format!("directory-{i}").as_bytes(), 0o755));
            worked(Client::connect(&instance));
            worked(write(&client, "large", &before));
            assert_reads(&open, &before);
        }
    }
    assert!(refused > 0, "the file system is not full");
    assert!(server.0.try_wait().expect("waits").is_none(), "the server died");
    let warnings = at_last(|| client.status()).warnings;
    let named = |warning: &String| warning.contains(&*instance.to_string_lossy());
    assert!(warnings.iter().any(named), "{warnings:?}");

    std::fs::remove_file(others).expect("removes");
    at_last(|| write(&client, "after", &before));
    assert_holds(&client, "after", &before);
    assert_holds(&client, "before", &before);
    at_last(|| Client::connect(&instance)).status().expect("status");
}

#[test]
fn a_server_that_starts_again_where_memory_is_full_loses_nothing() {
    let Some(small) = mount::Mount::tmpfs(300) else { return };
    let instance = small.path().join("instance");
    let mut server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 241) as u8).collect();
    for i in 0..300 {
        write(&client, &format!("file-{i}"), &bytes).expect("there is room");
    }
    drop(client);
    let others = fill(small.path());
    for _ in 0..3 {
        server.kill();
        server = process::start("server", &instance, None);
        let begin = Instant::now();
        let answers = || Client::observe(&instance).is_ok_and(|client| client.status().is_ok());
        while server.0.try_wait().expect("waits").is_none() && !answers() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it neither serves nor ends");
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = server.0.try_wait().expect("waits");
        let signal =
            ended.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status));
        assert_eq!(signal, None, "it was killed");
    }
    std::fs::remove_file(others).expect("removes");
    server.kill();
    let _server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    (0..300).for_each(|i| assert_holds(&client, &format!("file-{i}"), &bytes));
}

#[test]
fn the_summary_names_a_full_dev_shm() {
    if mount::Mount::tmpfs(1).is_none() {
        return;
    }
    let to = tempfile::tempdir().expect("directory");
    let script = "
        echo kept > $TERRAL_DIR/kept
        dd if=/dev/zero of=/dev/shm/others bs=1M status=none 2> /dev/null
        dd if=/dev/zero of=/dev/shm/others oflag=append conv=notrunc bs=4k status=none 2> /dev/null
        seq 30000000 > $TERRAL_DIR/large && echo written
        sleep 1
        rm /dev/shm/others";
    let run = "mount -t tmpfs -o size=400m terral-test /dev/shm && \
               exec timeout 60 \"$0\" run --memory 300M --to \"$1\" -- sh -c \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", run]).arg(beside::built("terral")).arg(to.path()).arg(script);
    let output = command.output().expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/dev/shm was full: "), "{said}");
    assert_eq!(std::fs::read(to.path().join("kept")).expect("arrived"), b"kept\n", "{said}");
}

#[test]
fn an_append_that_finds_no_memory_leaves_nothing_where_the_file_grows() {
    const MIB: usize = 1 << 20;
    let home = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let instance = home.path().join("instance");
    let _server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let (log, others) = (client.open(b"log", WRITE), client.open(b"others", WRITE));
    let (log, others) = (log.expect("opens"), others.expect("opens"));
    others.write_at(&vec![7; 64 * MIB], 0).expect("there is room");
    log.append(b"a line\n").expect("there is room");
    // Each goes on in a chunk that is there, and ends in one that is not.
    let mut end = 7;
    while worked(log.append(&vec![9; 5 * MIB])).is_some() {
        end += 5 * MIB as u64;
    }
    assert!(end > 50 * MIB as u64, "{end}");
    others.truncate(0).expect("shorter");
    at_last(|| log.write_at(b"end", end + 4 * MIB as u64));
    let mut found = vec![1; 4 * MIB];
    assert_eq!(log.read_at(&mut found, end).expect("reads"), found.len());
    assert!(found.iter().all(|byte| *byte == 0), "bytes of an append that was refused");
    log.append(b"and on").expect("the ticket is free");
}
