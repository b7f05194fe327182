//! Transactions through the client library: all that one does is there, or nothing, whoever is
//! killed, and whoever else looks or changes names. Not here: one server under a seed
//! (`server/sim/transactions`), the C face (`c_api`).
#![cfg(not(loom))]

mod brought;
mod files;
mod process;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use brought::settle;
use process::{Bench, Home, start_server};
use terral_client::objects::{Address, Container, ObjectId, RESERVED, Value};
use terral_client::transactions::{OPERATIONS_MAX, TRANSACTION_BYTES, Transaction, Version};
use terral_client::{Caveat, Client, ErrorKind, Operations, RenameHow, Result};

/// Memory of a server here, MiB.
const MEMORY_MIB: u64 = 128;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(MEMORY_MIB, &[("count", count)]);
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

fn names(client: &Client, path: &[u8]) -> Vec<String> {
    let names = client.list(path).expect("lists").into_iter();
    names.map(|name| String::from_utf8(name.name).expect("text")).collect()
}

fn filled(container: &Container, id: u128, bytes: &[u8]) -> Address {
    let object = container.create_object(ObjectId(id)).expect("creates");
    object.write(bytes, 0).expect("writes");
    let address = object.address();
    object.close().expect("closes");
    address
}

fn content(client: &Client, path: &[u8]) -> Vec<u8> {
    let file = client.open(path, files::WRITE).expect("opens");
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), bytes.len());
    file.close();
    bytes
}

/// Of so many kinds there is one thing each, all of the same round.
const KINDS: [&str; 4] = ["a/one", "b/two", "b/three", "a/four"];

fn of_round(kind: &str, round: u32) -> Vec<u8> {
    format!("{kind}-{round:06}").into_bytes()
}

/// All of a round go on to the next one.
fn go_on(client: &Client, round: u32) -> Result<()> {
    let mut transaction = Transaction::begin(client);
    for kind in &KINDS[..3] {
        let (from, to) = (of_round(kind, round), of_round(kind, round + 1));
        transaction.rename(&from, &to, RenameHow::Keep);
    }
    transaction.make_directory(&of_round(KINDS[3], round + 1), 0o755);
    transaction.remove_directory(&of_round(KINDS[3], round));
    transaction.commit()
}

fn begin_rounds(client: &Client) {
    for directory in ["a", "b"] {
        client.make_directory(directory.as_bytes(), 0o755).expect("makes");
    }
    for kind in &KINDS[..3] {
        client.open(&of_round(kind, 0), files::WRITE).expect("creates").close();
    }
    client.make_directory(&of_round(KINDS[3], 0), 0o755).expect("makes");
}

/// The round of what is in a directory, which must be one.
fn round_in(client: &Client, directory: &str) -> u32 {
    let names = names(client, directory.as_bytes());
    assert_eq!(names.len(), 2, "{names:?}");
    let rounds: Vec<u32> = names
        .iter()
        .map(|name| name.rsplit_once('-').expect("a name of a round").1.parse().expect("a number"))
        .collect();
    assert_eq!(rounds[0], rounds[1], "{names:?}");
    rounds[0]
}

#[test]
fn nobody_sees_a_part_of_it_whoever_is_killed() {
    const ROUNDS: u32 = 3000;
    const KILLS: u32 = 8;
    let mut bench = Bench::new();
    let instance = bench.instance();
    let client = connect(&instance);
    begin_rounds(&client);
    let over = AtomicBool::new(false);
    let looks = std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let (client, mut looks) = (connect(&instance), 0);
            while !over.load(Ordering::SeqCst) {
                let (a, b, again) =
                    (round_in(&client, "a"), round_in(&client, "b"), round_in(&client, "a"));
                assert!(a <= b && b <= again, "{a}, then {b}, then {again}");
                looks += 1;
            }
            looks
        });
        let writer = threads.spawn(|| {
            for round in 0..ROUNDS {
                go_on(&client, round).expect("it is done once, whichever server answers");
            }
            over.store(true, Ordering::SeqCst);
        });
        for _ in 0..KILLS {
            std::thread::sleep(std::time::Duration::from_millis(30));
            bench.restart();
        }
        writer.join().expect("ends");
        reader.join().expect("ends")
    });
    assert!(looks > 100, "{looks} looks");
    let client = connect(&bench.instance());
    assert_eq!((round_in(&client, "a"), round_in(&client, "b")), (ROUNDS, ROUNDS));
}

/// So often each of two programs counts.
const COUNTS: u32 = 300;

/// Counts on, by a name, as often as others have not in between.
fn count(instance: &Path) {
    let client = connect(instance);
    for _ in 0..COUNTS {
        loop {
            let at = round_of(&client);
            let mut transaction = Transaction::begin(&client);
            transaction.rename(
                format!("at-{at}").as_bytes(),
                format!("at-{}", at + 1).as_bytes(),
                RenameHow::Keep,
            );
            transaction.make_directory(format!("log/{at}").as_bytes(), 0o755);
            match transaction.commit() {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error}"),
            }
        }
    }
}

fn round_of(client: &Client) -> u32 {
    let names = names(client, b"");
    let at = names.iter().find_map(|name| name.strip_prefix("at-"));
    at.expect("one name").parse().expect("a number")
}

#[test]
fn of_two_programs_at_once_each_counts_once() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    client.make_directory(b"log", 0o755).expect("makes");
    client.make_directory(b"at-0", 0o755).expect("makes");
    let counters = [0, 1].map(|_| process::start("count", &bench.instance(), None));
    for mut counter in counters {
        assert!(counter.0.wait().expect("waits").success());
    }
    assert_eq!(round_of(&client), 2 * COUNTS);
    assert_eq!(names(&client, b"log").len() as u32, 2 * COUNTS);
}

#[test]
fn objects_get_their_names_and_attributes_at_once_or_not_at_all() {
    let bench = Bench::new();
    let (client, other) = (connect(&bench.instance()), connect(&bench.instance()));
    let container = Container::create(&client, b"run", 0o755).expect("makes");
    let [one, two, three] = [1, 2, 3].map(|id| filled(&container, id, &[id as u8; 5000]));
    client.open(b"two", files::WRITE).expect("creates").close();
    let all = |last: &[u8]| -> Result<()> {
        let mut transaction = Transaction::begin(&client);
        transaction.make_directory(b"out", 0o755);
        transaction.bind(&container, one, b"out/one")?;
        transaction.move_object(&container, two, b"two")?;
        transaction.set_attribute(&container, one, b"step", Some(&Value::Integer(7)))?;
        transaction.remove_object(&container, three)?;
        transaction.must_not_exist(last);
        transaction.commit()
    };
    assert_eq!(kind(all(b"out/one")), Some(ErrorKind::Exists));
    assert_eq!(names(&other, b""), ["two"]);
    assert_eq!(other.stat(b"two").expect("is there").size, 0);
    assert_eq!(container.list().expect("lists"), [one, two, three]);
    all(b"out/two").expect("all can be done");
    assert_eq!(names(&other, b""), ["out", "two"]);
    assert_eq!(content(&other, b"two"), [2; 5000]);
    assert_eq!(content(&other, b"out/one"), [1; 5000]);
    assert_eq!(container.list().expect("lists"), [one]);
    let object = container.open_object(one, false).expect("opens");
    assert_eq!(object.attribute(b"step").expect("reads"), Some(Value::Integer(7)));
    object.close().expect("closes");
    let mut transaction = Transaction::begin(&client);
    transaction.bind_container(&container, b"out/all").unlink(b"two");
    transaction.commit().expect("all can be done");
    assert_eq!(kind(other.stat(RESERVED)), Some(ErrorKind::NotFound), "nothing is left there");
    let bound = Container::at(&other, b"out/all").expect("is there");
    assert_eq!(bound.list().expect("lists"), [one]);
    let mut given_up = Transaction::begin(&client);
    given_up.unlink(b"out/one");
    drop(given_up);
    assert_eq!(names(&other, b"out"), ["all", "one"]);
}

#[test]
fn what_was_seen_and_has_changed_since_is_said() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let file = client.open(b"state", files::WRITE).expect("creates");
    file.write_at(b"one", 0).expect("writes");
    let seen = Version::from(&client.stat(b"state").expect("is there"));
    let goes_on = |version| {
        let mut transaction = Transaction::begin(&client);
        transaction.must_be_unchanged(b"state", version).make_directory(b"next", 0o755);
        transaction.commit()
    };
    file.write_at(b"two!", 0).expect("writes");
    let error = goes_on(seen).expect_err("it was written to");
    assert_eq!((error.kind, error.to_errno()), (ErrorKind::Changed, 11), "{error}");
    assert_eq!(names(&client, b""), ["state"]);
    let seen = Version::from(&client.stat(b"state").expect("is there"));
    goes_on(seen).expect("it is as it was");
    file.close();
}

#[test]
fn who_may_do_less_does_no_more_by_it() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    for path in [&b"in"[..], b"in/a", b"out"] {
        client.make_directory(path, 0o755).expect("makes");
    }
    let refused = |client: &Client, add: &dyn Fn(&mut Transaction) -> &mut Transaction| {
        let mut transaction = Transaction::begin(client);
        add(transaction.make_directory(b"in/new", 0o755));
        assert_eq!(kind(transaction.commit()), Some(ErrorKind::Denied));
        assert_eq!(names(client, b"in"), ["a"]);
    };
    let (bound, makes) = (connect(&bench.instance()), connect(&bench.instance()));
    bound.narrow(Caveat::Below(b"in".to_vec())).expect("narrows");
    refused(&bound, &|at| at.rename(b"in/a", b"out/a", RenameHow::Keep));
    refused(&bound, &|at| at.remove_directory(b"in"));
    refused(&bound, &|at| at.must_exist(b"out"));
    makes.narrow(Caveat::Only(Operations::CREATE.and(Operations::LIST))).expect("narrows");
    refused(&makes, &|at| at.remove_directory(b"in/a"));
    refused(&makes, &|at| at.rename(b"in/a", b"in/b", RenameHow::Keep));
    let mut transaction = Transaction::begin(&makes);
    transaction.make_directory(b"in/new", 0o755).must_exist(b"in/a");
    transaction.commit().expect("it may");
    let mut transaction = Transaction::begin(&bound);
    transaction.rename(b"in/a", b"in/new/a", RenameHow::Keep);
    transaction.commit().expect("it may");
}

#[test]
fn what_is_too_much_is_refused_and_links_on_the_way_are_followed() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let makes = |count: usize, length: usize| {
        let mut transaction = Transaction::begin(&client);
        for at in 0..count {
            let name = format!("{at:length$}").replace(' ', "x");
            transaction.make_directory(name.as_bytes(), 0o755);
        }
        transaction.commit()
    };
    assert_eq!(kind(makes(OPERATIONS_MAX + 1, 1)), Some(ErrorKind::TooBig));
    assert_eq!(kind(makes(TRANSACTION_BYTES / 200, 200)), Some(ErrorKind::TooBig));
    assert!(names(&client, b"").is_empty());
    makes(OPERATIONS_MAX, 1).expect("as many as there may be");
    assert_eq!(names(&client, b"").len(), OPERATIONS_MAX);
    client.make_link(b"link", b"1/.").expect("makes");
    let mut transaction = Transaction::begin(&client);
    transaction.make_directory(b"link/in", 0o755).make_directory(b"1/in/side", 0o755);
    transaction.rename(b"link", b"link/in/link", RenameHow::Replace);
    transaction.commit().expect("all can be done");
    assert_eq!(names(&client, b"1/in"), ["link", "side"]);
}

#[test]
fn the_permanent_directory_has_all_of_it_in_the_end() {
    let (home, directory) = (Home::new(), tempfile::tempdir().expect("directory"));
    let mut server = start_server(&home.instance(), Some(directory.path()));
    let client = connect(&home.instance());
    begin_rounds(&client);
    settle(&client);
    for round in 0..20 {
        go_on(&client, round).expect("all can be done");
        if round % 5 == 0 {
            server.kill();
            server = start_server(&home.instance(), Some(directory.path()));
        }
    }
    settle(&client);
    let there = |path: &str| brought::names(&directory.path().join(path));
    assert_eq!(there("a"), ["four-000020", "one-000020"]);
    assert_eq!(there("b"), ["three-000020", "two-000020"]);
}
