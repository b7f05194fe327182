//! Objects through the client library: addresses, containers, what is one step, and what is left
//! when somebody is killed. Not here: checkpoints, the C face (`c_api`).
#![cfg(not(loom))]

mod brought;
mod files;
mod process;

use std::path::Path;
use std::time::Duration;

use brought::settle;
use files::WRITE;
use process::{Bench, Home, start_server};
use rustix::process::Signal;
use terral_client::objects::{Address, Container, Extent, Object, ObjectId, RESERVED, Value};
use terral_client::{Client, ErrorKind, Result};

/// Memory of a server here, MiB.
const MEMORY_MIB: u64 = 128;

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(MEMORY_MIB, &[("race", race)]);
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

fn container(client: &Client) -> Container {
    Container::create(client, b"run", 0o755).expect("makes a container")
}

fn filled(container: &Container, id: u128, bytes: &[u8]) -> Address {
    let object = container.create_object(ObjectId(id)).expect("creates");
    object.write(bytes, 0).expect("writes");
    let address = object.address();
    object.close().expect("closes");
    address
}

fn content(container: &Container, address: Address) -> Vec<u8> {
    let object = container.open_object(address, false).expect("opens");
    let mut bytes = vec![0; object.size() as usize];
    assert_eq!(object.read(&mut bytes, 0).expect("reads"), bytes.len());
    object.close().expect("closes");
    bytes
}

fn names(client: &Client, path: &[u8]) -> Vec<Vec<u8>> {
    client.list(path).expect("lists").into_iter().map(|name| name.name).collect()
}

/// How many ids two creators race for.
const RACES: u128 = 300;

/// Creates all that the other one has not, and says which by what is in them.
fn race(instance: &Path) {
    let client = connect(instance);
    let container = Container::open(&client, b"run").expect("is there");
    let me = std::process::id().to_le_bytes();
    for id in 0..RACES {
        match container.create_object(ObjectId(id)) {
            Ok(object) => {
                object.write(&me, 0).expect("writes");
                let own =
                    Address { id: ObjectId(RACES + (id << 32) + own_half()), ..object.address() };
                object.close().expect("closes");
                filled(&container, own.id.0, b"won");
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Exists, "{error}"),
        }
    }
}

/// Tells the two apart: no two processes have one.
fn own_half() -> u128 {
    u128::from(std::process::id()) << 64
}

#[test]
fn of_two_who_create_one_object_one_has_it() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    let racers = [0, 1].map(|_| process::start("race", &bench.instance(), None));
    let racers: Vec<_> =
        racers.into_iter().map(|mut racer| (racer.0.id(), racer.0.wait())).collect();
    for (_, ended) in &racers {
        assert!(ended.as_ref().expect("waits").success());
    }
    let all = container.list().expect("lists");
    assert_eq!(all.len() as u128, 2 * RACES, "each was created once, and one has said that it did");
    for id in 0..RACES {
        let bytes = content(&container, Address { server: all[0].server, id: ObjectId(id) });
        let winner = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let said = |by: u32| ObjectId(RACES + (id << 32) + (u128::from(by) << 64));
        let won = |by| all.contains(&Address { id: said(by), ..all[0] });
        let winners: Vec<u32> = racers.iter().map(|(by, _)| *by).filter(|by| won(*by)).collect();
        assert_eq!(winners, [winner], "object {id}");
    }
}

#[test]
fn extents_are_written_and_read_in_one_call_and_hostile_ones_change_nothing() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let object = container(&client).create_object(ObjectId(7)).expect("creates");
    let one = |at, bytes| Extent { at, bytes };
    object.write_vector(&[one(100, 3), one(0, 2), one(1 << 30, 1)], b"abcdef").expect("writes");
    assert_eq!(object.size(), (1 << 30) + 1);
    let mut packed = [9; 9];
    let read = object.read_vector(&[one(99, 4), one(0, 2), one((1 << 30) - 1, 3)], &mut packed);
    assert_eq!((read.expect("reads"), &packed), (8, b"\0abcde\0f\0"));
    let hostile = [
        (vec![one(0, 1), one(u64::MAX, 1)], &b"xx"[..], ErrorKind::TooLarge),
        (vec![one(0, 1), one(1, u64::MAX)], &b"xx"[..], ErrorKind::TooLarge),
        (vec![one(0, 1), one(1, 1)], b"x", ErrorKind::Invalid),
        (vec![one(0, 1)], &b"xx"[..], ErrorKind::Invalid),
    ];
    for (extents, packed, refused) in hostile {
        assert_eq!(kind(object.write_vector(&extents, packed)), Some(refused), "{extents:?}");
        let mut room = packed.to_vec();
        assert_eq!(kind(object.read_vector(&extents, &mut room)), Some(refused), "{extents:?}");
    }
    let many = vec![one(0, 0); terral_client::objects::EXTENTS_MAX + 1];
    assert_eq!(kind(object.write_vector(&many, b"")), Some(ErrorKind::Invalid));
    let mut first = [0; 2];
    object.read(&mut first, 0).expect("reads");
    assert_eq!(&first, b"de", "no hostile call wrote anything");
}

#[test]
fn what_is_punched_is_zeros_and_what_is_cut_is_gone() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let object = container(&client).create_object(ObjectId(7)).expect("creates");
    object.write(&[5; 300_000], 0).expect("writes");
    object.punch(10, 200_000).expect("punches");
    let mut bytes = vec![1; 300_000];
    assert_eq!(object.read(&mut bytes, 0).expect("reads"), 300_000);
    assert!(bytes.iter().enumerate().all(|(at, byte)| (*byte == 0) == (10..200_010).contains(&at)));
    object.punch(299_999, 1 << 40).expect("punches as far as it is long");
    assert_eq!(object.size(), 300_000);
    assert_eq!(kind(object.punch(1, u64::MAX)), Some(ErrorKind::TooLarge));
    object.truncate(10).expect("cuts");
    assert_eq!(object.size(), 10);
}

#[test]
fn a_sealed_object_is_changed_by_nobody_and_one_that_is_written_is_not_sealed() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    let (mine, theirs) = (container(&one), Container::open(&other, b"run").expect("is there"));
    let address = filled(&mine, 1, b"for good");
    let writer = theirs.open_object(address, true).expect("opens");
    assert_eq!(kind(mine.seal(address)), Some(ErrorKind::Busy));
    writer.write(b"F", 0).expect("it is as before");
    theirs.open_object(address, true).expect("others may, too").close().expect("closes");
    writer.close().expect("closes");
    mine.seal(address).expect("nobody writes it");
    mine.seal(address).expect("it is");
    assert_eq!(kind(theirs.open_object(address, true)), Some(ErrorKind::Denied));
    assert!(theirs.status(address).expect("is there").sealed);
    assert_eq!(content(&theirs, address), b"For good");
    let reader = theirs.open_object(address, false).expect("opens");
    assert_eq!(kind(reader.write(b"x", 0)), Some(ErrorKind::BadHandle));
    assert_eq!(kind(reader.truncate(0)), Some(ErrorKind::BadHandle));
}

/// One opens an object to write it while another one seals it, again and again: never has one
/// written what the other one has sealed.
#[test]
fn who_seals_and_who_opens_to_write_do_not_both_have_it() {
    let bench = Bench::new();
    let (one, other) = (connect(&bench.instance()), connect(&bench.instance()));
    let (mine, theirs) = (container(&one), Container::open(&other, b"run").expect("is there"));
    for id in 0..300 {
        let address = filled(&mine, id, b"x");
        let (sealed, opened) = std::thread::scope(|threads| {
            let opens = threads.spawn(|| theirs.open_object(address, true));
            (mine.seal(address), opens.join().expect("ends"))
        });
        let both = sealed.is_ok() && opened.is_ok();
        assert!(!both, "{id}: what is sealed is open for writing");
        opened.ok().map(Object::close);
    }
}

#[test]
fn attributes_keep_their_types_also_when_the_server_dies() {
    let mut bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    let address = filled(&container, 1, b"x");
    let object = container.open_object(address, true).expect("opens");
    let real = Value::Real(0.25);
    object.set_attribute(b"dt", Some(&real)).expect("sets");
    object.set_attribute(b"unit", Some(&Value::Text("K".into()))).expect("sets");
    object.set_attribute(b"step", Some(&Value::Integer(-3))).expect("sets");
    object.set_attribute(b"step", None).expect("removes");
    assert_eq!(kind(object.set_attribute(b"", Some(&real))), Some(ErrorKind::Invalid));
    let long = Value::Bytes(vec![0; 8 << 10]);
    assert_eq!(kind(object.set_attribute(b"long", Some(&long))), Some(ErrorKind::TooBig));
    object.close().expect("closes");
    bench.restart();
    let object = container.open_object(address, false).expect("opens");
    assert_eq!(object.attributes().expect("lists"), [&b"dt"[..], b"unit"]);
    assert_eq!(object.attribute(b"dt").expect("reads"), Some(real));
    assert_eq!(object.attribute(b"step").expect("reads"), None);
}

#[test]
fn objects_are_created_and_written_while_the_server_is_stopped() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    // The first makes the directory; who goes on has more files in hand.
    for id in 1000..1100 {
        filled(&container, id, b"before");
    }
    client.status().expect("status");
    bench.server.signal(Signal::STOP);
    let all: Vec<Address> = (0..20).map(|id| filled(&container, id, &id.to_le_bytes())).collect();
    for address in &all {
        assert_eq!(content(&container, *address), address.id.0.to_le_bytes());
    }
    bench.server.signal(Signal::CONT);
    assert_eq!(container.list().expect("lists").len(), 120);
}

#[test]
fn what_was_created_before_the_server_was_killed_is_written_after_it() {
    let mut bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    for id in 0..20 {
        let object = container.create_object(ObjectId(id)).expect("creates");
        bench.server.kill();
        bench.server = start_server(&bench.instance(), None);
        object.write(&[id as u8; 5000], 0).expect("writes");
        assert_eq!(kind(container.create_object(ObjectId(id))), Some(ErrorKind::Exists));
        let address = object.address();
        object.close().expect("closes");
        assert_eq!(content(&container, address), [id as u8; 5000]);
    }
}

#[test]
fn containers_are_in_no_listing_until_they_have_a_name_and_then_whole() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    let address = filled(&container, 5, b"bytes");
    assert!(names(&client, b"").is_empty());
    assert_eq!(names(&client, RESERVED), [b"run"], "who knows the name finds it");
    assert_eq!(kind(client.remove_directory(RESERVED)), Some(ErrorKind::NotEmpty));
    let open = container.open_object(address, true).expect("opens");
    client.make_directory(b"taken", 0o755).expect("makes");
    assert_eq!(kind(container.clone().bind(b"taken")), Some(ErrorKind::Exists));
    let bound = container.bind(b"results").expect("is free");
    assert_eq!(names(&client, b""), [&b"results"[..], b"taken"]);
    open.write(b"B", 0).expect("what is open stays open");
    assert_eq!(content(&bound, address), b"Bytes");
    assert_eq!(kind(client.stat(RESERVED)), Some(ErrorKind::NotFound), "nothing is left there");
    assert_eq!(kind(Container::open(&client, b"run")), Some(ErrorKind::NotFound));
    let again = Container::at(&client, b"results").expect("is there");
    assert_eq!(again.list().expect("lists"), [address]);
    again.remove().expect("removes");
    assert_eq!(names(&client, b""), [b"taken"]);
}

#[test]
fn containers_are_made_while_others_get_their_names_or_go() {
    let bench = Bench::new();
    let instance = &bench.instance();
    let each = |who: u128| {
        let client = connect(instance);
        for round in 0..300 {
            let name = format!("{who}-{round}");
            let made = Container::create(&client, name.as_bytes(), 0o755).expect("makes");
            let address = filled(&made, who, name.as_bytes());
            if round % 2 == 0 {
                made.remove().expect("removes");
                continue;
            }
            let bound = made.bind(name.as_bytes()).expect("is free");
            assert_eq!(content(&bound, address), name.as_bytes());
        }
    };
    std::thread::scope(|threads| {
        for who in 0..3 {
            threads.spawn(move || each(who));
        }
    });
    let client = connect(&bench.instance());
    assert_eq!(names(&client, b"").len(), 450);
    assert_eq!(kind(client.stat(RESERVED)), Some(ErrorKind::NotFound));
}

#[test]
fn an_object_with_a_name_is_a_file_and_keeps_its_address() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    let (one, other) = (filled(&container, 1, b"one"), filled(&container, 2, b"other"));
    container.bind_object(one, b"name").expect("is free");
    assert_eq!(kind(container.bind_object(other, b"name")), Some(ErrorKind::Exists));
    let file = client.open(b"name", WRITE).expect("opens");
    file.write_at(b"O", 0).expect("writes");
    file.close();
    assert_eq!(content(&container, one), b"One");
    container.remove_object(one).expect("removes the address");
    container.move_object(other, b"name").expect("takes its place");
    assert_eq!(client.stat(b"name").expect("is there").size, 5);
    assert!(container.list().expect("lists").is_empty());
    let nobody = Address { server: 1 << 14, ..one };
    assert_eq!(kind(container.open_object(nobody, false)), Some(ErrorKind::Invalid));
    assert_eq!(kind(container.open_object(one, false)), Some(ErrorKind::NotFound));
}

#[test]
fn the_permanent_directory_has_what_has_a_name_and_nothing_of_what_is_gone() {
    let (home, directory) = (Home::new(), tempfile::tempdir().expect("directory"));
    let _server = start_server(&home.instance(), Some(directory.path()));
    let client = connect(&home.instance());
    let bound = container(&client);
    let address = filled(&bound, 5, &[7; 5 << 20]);
    settle(&client);
    // What has no name yet is kept all the same: nobody else has it.
    assert_eq!(brought::names(directory.path()), [".terral-objects"]);
    assert!(bound.status(address).expect("is there").in_backing);
    bound.bind(b"results").expect("is free");
    let gone = container(&client);
    filled(&gone, 5, &[7; 5 << 20]);
    gone.remove().expect("removes");
    settle(&client);
    assert_eq!(brought::names(directory.path()), ["results"]);
    let name = format!("results/{}/{}", address.server, address.id);
    assert!(std::fs::read(directory.path().join(name)).expect("arrived") == [7; 5 << 20]);
}

#[test]
fn a_full_memory_is_said_and_the_object_has_what_was_written_before() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let container = container(&client);
    let object = container.create_object(ObjectId(1)).expect("creates");
    let piece = vec![3; 4 << 20];
    let full = (0..MEMORY_MIB).find_map(|at| object.write(&piece, at * (4 << 20)).err());
    assert_eq!(full.expect("it does not all fit").kind, ErrorKind::NoSpace);
    let mut seen = vec![0; 4 << 20];
    assert_eq!(object.read(&mut seen, 0).expect("reads"), seen.len());
    assert!(seen == piece);
    let address = object.address();
    object.close().expect("closes");
    container.remove_object(address).expect("removes");
    let begin = std::time::Instant::now();
    while filled_again(&container).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "its memory does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn filled_again(container: &Container) -> Result<()> {
    let object = container.create_object(ObjectId::random()?)?;
    let written = object.write(&vec![3; 32 << 20], 0);
    let address = object.address();
    object.close()?;
    if written.is_err() {
        container.remove_object(address)?;
    }
    written
}
