//! Writes on condition of an update id, through the client library: processes count in one object,
//! and each count counts once, whoever is killed; what somebody else has changed is not written.
//! Not here: several machines (`machines_updates`), the C face (`c_api`).
#![cfg(not(loom))]

mod beside;
mod descendants;
mod files;
mod launched;
mod process;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use files::open;
use launched::until;
use process::{Bench, Process, command};
use terral_client::objects::{Container, Extent, Object, ObjectId, Value};
use terral_client::{Client, ErrorKind, MapHow, Result};
use terral_format::local::geometry::CHUNK_BYTES;

/// Memory of a server here, MiB.
const MEMORY_MIB: u64 = 128;
/// Environment variable with the place at which a counter counts its own.
const PLACE: &str = "TERRAL_TEST_PLACE";

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(MEMORY_MIB, &[("counter", counter), ("mapper", mapper)]);
}

fn connect(instance: &Path) -> Client {
    Client::connect(instance).expect("connects")
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

fn one(client: &Client) -> Object {
    let made = Container::create(client, b"run", 0o755).expect("makes a container");
    made.create_object(ObjectId(1)).expect("creates")
}

/// The object of another process.
fn same(client: &Client) -> Object {
    let container = Container::open(client, b"run").expect("is there");
    let address = container.list().expect("lists")[0];
    container.open_object(address, true).expect("opens")
}

fn number(object: &Object, place: u64) -> u64 {
    let mut bytes = [0; 8];
    object.read(&mut bytes, at(place)).expect("reads");
    u64::from_le_bytes(bytes)
}

/// Every other count is in the second chunk.
fn at(place: u64) -> u64 {
    (place % 2) * CHUNK_BYTES + place * 8
}

fn acknowledged(instance: &Path, place: u64) -> PathBuf {
    instance.with_file_name(format!("acknowledged-{place}"))
}

fn over(instance: &Path) -> PathBuf {
    instance.with_file_name("over")
}

/// Counts, for all and for itself, in one write, and notes what was answered, until it is killed or
/// told that it is over.
fn counter(instance: &Path) {
    let client = connect(instance);
    let place: u64 = std::env::var(PLACE).expect("a place").parse().expect("a number");
    let object = same(&client);
    let notes = std::fs::File::create(acknowledged(instance, place)).expect("creates");
    let mut mine = 0u64;
    while !over(instance).exists() {
        let id = object.update_id().expect("it has one");
        let all = number(&object, 0);
        assert_eq!(number(&object, place), mine, "nobody else counts there");
        let extents = [0, place].map(|place| Extent { at: at(place), bytes: 8 });
        let packed = [(all + 1).to_le_bytes(), (mine + 1).to_le_bytes()].concat();
        match object.write_if(id, &extents, &packed) {
            Ok(later) => assert!(later > id, "{later} after {id}"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Changed, "{error}");
                continue;
            }
        }
        mine += 1;
        notes.write_all_at(&mine.to_le_bytes(), 0).expect("writes");
    }
}

fn start_counter(instance: &Path, place: u64) -> Process {
    let mut command = command("counter", instance);
    command.env(PLACE, place.to_string()).stdout(Stdio::null());
    Process(command.spawn().expect("starts"))
}

#[test]
fn each_count_counts_once_whoever_is_killed() {
    let mut bench = Bench::new();
    let instance = bench.instance();
    let client = connect(&instance);
    let object = one(&client);
    let mut killed = Vec::new();
    let mut live: Vec<(u64, Process)> =
        (1..4).map(|place| (place, start_counter(&instance, place))).collect();
    for (round, next) in (4..16).enumerate() {
        std::thread::sleep(Duration::from_micros(40_000 + round as u64 * 7_777));
        if round % 2 == 0 {
            bench.restart();
            continue;
        }
        let (place, mut process) = live.remove(round % 3);
        process.kill();
        killed.push(place);
        live.push((next, start_counter(&instance, next)));
    }
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(over(&instance), "").expect("writes");
    for (place, process) in &mut live {
        let ended = process.0.wait().expect("a child");
        assert!(ended.success(), "{place}: {ended}");
    }
    let mut sum = 0;
    for place in killed.iter().copied().chain(live.iter().map(|(place, _)| *place)) {
        let said = std::fs::read(acknowledged(&instance, place)).unwrap_or_default();
        let said = said.try_into().map_or(0, u64::from_le_bytes);
        let counted = number(&object, place);
        // What who was killed had asked for last is there, or is not.
        let most = said + u64::from(killed.contains(&place));
        assert!((said..=most).contains(&counted), "{place}: {counted}, {said} answered");
        sum += counted;
    }
    assert_eq!(number(&object, 0), sum, "each count is whole");
    assert!(sum > 100, "{sum} counts");
}

#[test]
fn what_somebody_has_changed_is_not_written() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let object = one(&client);
    object.write(&[1; 100], 0).expect("writes");
    let two = [Extent { at: 10, bytes: 2 }, Extent { at: 3 * CHUNK_BYTES, bytes: 2 }];
    let container = Container::open(&client, b"run").expect("is there");
    let path = container.path_of(object.address()).expect("a path");
    let file = open(&client, std::str::from_utf8(&path).expect("text"));
    let changes: [&dyn Fn(); 6] = [
        &|| assert_eq!(file.write_at(b"x", 90), Ok(1)),
        &|| assert!(file.append(b"x").is_ok()),
        &|| file.truncate(95).expect("cuts"),
        &|| file.truncate(110).expect("makes it longer"),
        &|| object.set_attribute(b"unit", Some(&Value::Integer(1))).expect("sets"),
        &|| object.punch(20, 5).expect("punches"),
    ];
    for (which, change) in changes.iter().enumerate() {
        let id = object.update_id().expect("it has one");
        assert_eq!(object.update_id(), Ok(id), "nothing has changed");
        let size = object.size();
        change();
        let before = content(&object);
        assert_eq!(kind(object.write_if(id, &two, b"abcd")), Some(ErrorKind::Changed), "{which}");
        assert_eq!(content(&object), before, "{which} of {size}");
    }
    let id = object.update_id().expect("it has one");
    let later = object.write_if(id, &two, b"abcd").expect("nothing has changed");
    assert_eq!((object.update_id(), object.size()), (Ok(later), 3 * CHUNK_BYTES + 2));
    let mut read = [0; 4];
    assert_eq!(object.read_vector(&two, &mut read), Ok(4));
    assert_eq!((&read, later > id), (b"abcd", true));
}

fn content(object: &Object) -> Vec<u8> {
    let mut bytes = vec![0; object.size() as usize];
    object.read(&mut bytes, 0).expect("reads");
    bytes
}

#[test]
fn hostile_extents_write_nothing_and_what_there_is_no_memory_for_neither() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let object = one(&client);
    object.write(b"before", 0).expect("writes");
    let one = |at, bytes| Extent { at, bytes };
    let id = object.update_id().expect("it has one");
    let long = vec![7; 16 << 10];
    let refused = |extents: &[Extent], packed: &[u8]| kind(object.write_if(id, extents, packed));
    assert_eq!(refused(&[one(0, 2)], b"a"), Some(ErrorKind::Invalid));
    assert_eq!(refused(&[one(0, 1), one(u64::MAX, 1)], b"ab"), Some(ErrorKind::TooLarge));
    assert_eq!(refused(&[one(0, 1), one(1 << 48, 1)], b"ab"), Some(ErrorKind::TooLarge));
    assert_eq!(refused(&[one(0, 16 << 10)], &long), Some(ErrorKind::TooBig));
    assert_eq!(refused(&vec![one(0, 0); 1000], b""), Some(ErrorKind::TooBig));
    assert_eq!(refused(&vec![one(0, 0); 1 << 17], b""), Some(ErrorKind::Invalid));
    let reads = Container::open(&client, b"run").expect("is there");
    let reads = reads.open_object(object.address(), false).expect("opens");
    assert_eq!(kind(reads.write_if(id, &[one(0, 1)], b"a")), Some(ErrorKind::BadHandle));
    assert_eq!(reads.update_id(), Ok(id), "nothing has changed");
    // Each extent needs 2 MiB; there is no memory for all of them, and nothing can be drained.
    let many: Vec<Extent> = (1..80).map(|index| one(index * CHUNK_BYTES, 1)).collect();
    assert_eq!(refused(&many, &[9; 79]), Some(ErrorKind::NoSpace));
    assert_eq!(content(&object), b"before");
    let id = object.update_id().expect("it has one");
    object.write_if(id, &[one(0, 3)], b"BEF").expect("there is memory for this");
    assert_eq!(content(&object), b"BEFore");
}

/// Has the object mapped, to store there, until it is killed.
fn mapper(instance: &Path) {
    let client = connect(instance);
    let object = same(&client);
    // PROT_READ | PROT_WRITE, MAP_SHARED.
    let how = MapHow { at: 0, length: 4096, protection: 3, flags: 1, offset: 0 };
    object.file().map(how).expect("maps");
    std::fs::write(over(instance), "").expect("writes");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn nobody_is_told_an_id_while_somebody_stores_through_a_map() {
    let bench = Bench::new();
    let client = connect(&bench.instance());
    let object = one(&client);
    object.write(&[1; 5000], 0).expect("writes");
    let instance = bench.instance();
    let mut mapper = command("mapper", &instance);
    let mut mapper = Process(mapper.stdout(Stdio::null()).spawn().expect("starts"));
    until("a map", || over(&instance).exists());
    assert_eq!(kind(object.update_id()), Some(ErrorKind::Busy));
    mapper.kill();
    until("an id", || object.update_id().is_ok());
}
