//! Bad input: garbage from the outside is refused or harmless; the server stays up.
#![cfg(not(loom))]

mod files;
mod mount;
mod process;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use files::WRITE;
use process::Home;
use terral_client::{Client, ErrorKind};

#[test]
fn role() {
    process::play(256, &[("stranger", stranger)]);
}

/// The server answers, and a new file is written and read right.
fn works(client: &Client, name: &str) {
    let file = client.open(name.as_bytes(), WRITE).expect("opens");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    file.write(&bytes).expect("writes");
    let mut seen = vec![0; bytes.len()];
    file.read_at(&mut seen, 0).expect("reads");
    assert!(seen == bytes);
    file.close();
}

#[test]
fn garbage_on_the_socket_is_refused() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    for garbage in [&b""[..], b"\0", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 5000], &[0; 5000]] {
        let mut socket = UnixStream::connect(instance.join("socket")).expect("connects");
        socket.write_all(garbage).expect("writes");
        socket.shutdown(std::net::Shutdown::Write).expect("ends");
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
    }
    works(&Client::connect(&instance).expect("connects"), "after");
}

#[test]
fn a_client_that_writes_garbage_into_all_it_can_write_harms_only_its_own() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let victim = Client::connect(&instance).expect("connects");
    works(&victim, "before");
    let vandal = Client::connect(&instance).expect("connects");
    let sessions = vandal.status().expect("status").sessions;
    let page = instance.join(format!("session-{}", sessions - 1));
    let file = OpenOptions::new().write(true).open(page).expect("opens");
    let bell = OpenOptions::new().write(true).open(instance.join("headers")).expect("opens");
    let mut seed = 0x1234_5678_9abc_def1u64;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = seed >> 33 & 0xffff;
        let word = match seed >> 20 & 3 {
            0 => seed.to_le_bytes(),
            1 => [2, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f],
            2 => [3, 0, 0, 0, 16, 0, 0, 0],
            _ => (seed >> 50).to_le_bytes(),
        };
        file.write_all_at(&word, at & !7).expect("writes");
        bell.write_all_at(&[0xff; 8], 8).expect("rings for every session");
    }
    works(&victim, "after");
    let before = victim.open(b"before", WRITE).expect("opens");
    assert_eq!(before.size(), 3_000_000);
}

#[test]
fn two_programs_that_write_one_file_make_no_third_thing_of_it() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let clients = [1, 2].map(|_| Client::connect(&instance).expect("connects"));
    std::thread::scope(|scope| {
        for (value, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                let file = client.open(b"shared", WRITE).expect("opens");
                for round in 0..200u64 {
                    file.write_at(&[value as u8 + 1; 70_000], round % 50 * 70_000).expect("writes");
                }
            });
        }
    });
    let file = clients[0].open(b"shared", WRITE).expect("opens");
    let mut seen = vec![0; 50 * 70_000];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
    assert!(seen.iter().all(|byte| matches!(byte, 1 | 2)));
}

#[test]
fn a_hundred_thousand_names_in_one_directory_are_all_there() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    client.make_directory(b"d", 0o755).expect("makes");
    for n in 0..100_000 {
        client.open(format!("d/{n:06}").as_bytes(), WRITE).expect("opens").close();
    }
    let names = client.list(b"d").expect("lists");
    assert_eq!(names.len(), 100_000);
    assert_eq!(names[99_999].name, b"099999");
    assert_eq!(client.stat(b"d/054321").expect("is there").size, 0);
}

#[test]
fn a_full_memory_tier_without_a_store_behind_it_is_no_space_and_loses_nothing() {
    let home = Home::new();
    let instance = home.instance();
    let _server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    works(&client, "before");
    let file = client.open(b"big", WRITE).expect("opens");
    let error = (0..400).find_map(|_| file.write(&[7; 1 << 20]).err()).expect("is full at last");
    assert_eq!(error.kind, ErrorKind::NoSpace);
    client.unlink(b"big").expect("unlinks");
    file.close();
    works(&client, "after");
}

#[test]
fn a_full_shared_memory_file_system_is_no_space_and_no_crash() {
    let Some(small) = mount::Mount::tmpfs(200) else { return };
    let instance = small.path().join("instance");
    let mut server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let file = client.open(b"big", WRITE).expect("opens");
    let error = (0..400).find_map(|_| file.write(&[7; 1 << 20]).err()).expect("is full at last");
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    assert!(client.status().is_ok());
    assert!(server.0.try_wait().expect("waits").is_none(), "the server is up");
}

/// Plays another user.
fn stranger(instance: &Path) {
    let error = Client::connect(instance).err().expect("is refused");
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    std::fs::write(instance.join("refused"), b"yes").expect("leaves a mark");
}

#[test]
fn another_user_on_the_socket_is_refused() {
    let home = Home::new();
    let (above, instance) = (home.above(), home.instance());
    let _server = process::start_server(&instance, None);
    if terral_transport::process::user() != 0 {
        println!("skipped: acting as another user needs root");
        return;
    }
    // The directory keeps strangers out; open it, so that the server itself has to.
    for path in [above, &instance, &instance.join("socket")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("opens up");
    }
    let program = above.join("stranger");
    std::fs::copy(std::env::current_exe().expect("own path"), &program).expect("copies");
    let status = std::process::Command::new(program)
        .args(["--exact", "role"])
        .env(process::ROLE, "stranger")
        .env("TERRAL_TEST_INSTANCE", &instance)
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .status();
    assert!(status.expect("runs").success() && instance.join("refused").exists());
}
