//! The formats against their stored bytes: whoever changes what leaves a process sees it here.
//!
//! `UPDATE_GOLDEN=1 cargo test -p terral-tests --test golden` stores the new bytes; a change of
//! bytes that an older program could meet also needs a new version (that of `record::Transaction`,
//! `message::PROTOCOL`, `peers::PEERS`, `tables::MAGIC`). Integers differ from each other so that
//! two fields cannot change places unseen.

#![cfg(not(loom))]

mod golden_far;
mod golden_identity;
mod golden_layout;
mod golden_partition;
mod golden_peers;
mod golden_placement;
mod golden_pool;
mod golden_records;
mod golden_things;
mod golden_values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::{any, prop, proptest};
use serde::{Serialize, de::DeserializeOwned};
use terral_format::disk::membership::Membership;
use terral_format::disk::migrate::Migrate;
use terral_format::disk::{Record, Transaction, partition, v4, v5};
use terral_format::frame;
use terral_format::local::changes::Made;
use terral_format::wire::far::{ANSWERS, Answer, QUESTIONS, Question};
use terral_format::wire::handshake::{Hello, Welcome};
use terral_format::wire::message::{Envelope, FRAMES, PROTOCOL, Reply};
use terral_format::wire::peers::{self, PEERS};
use terral_format::wire::remembered::Memory;
use terral_format::wire::things::{Directory, Outcome};
use terral_format::{Error, ErrorKind};

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// Compares `bytes` with the golden file, or stores them if asked to.
fn hold(name: &str, bytes: &[u8]) {
    let path = stored(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, bytes).expect("golden file is writable");
    }
    let golden = std::fs::read(&path).unwrap_or_default();
    let same = golden.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    assert!(
        golden == bytes,
        "{name}: differs from byte {same} on ({} stored, {} now): if that is meant, give the \
         format a new version and run with UPDATE_GOLDEN=1",
        golden.len(),
        bytes.len()
    );
}

fn frames<T: Serialize>(values: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        frame::write(&mut out, FRAMES, &frame::encode(value).expect("encodes"));
    }
    out
}

fn envelopes() -> Vec<Envelope<'static>> {
    let requests = golden_values::requests().into_iter();
    requests.map(|request| Envelope { authority: 3, request }).collect()
}

/// Every stored frame is read back to a value with the very same bytes.
fn reads_back<T: Serialize + DeserializeOwned>(name: &str) {
    let bytes = std::fs::read(stored(name)).expect("stored");
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let frame = frame::read(rest).expect("a frame");
        let value: T = frame::decode(frame.payload).expect("a value");
        assert_eq!(frame::encode(&value).expect("encodes"), frame.payload);
        rest = frame.rest;
    }
}

#[test]
fn handshake() {
    hold("hello.bin", &frames(&golden_values::hellos()));
    hold("welcome.bin", &frames(&golden_values::welcomes()));
    for hello in golden_values::hellos() {
        let bytes = frame::encode(&hello).expect("encodes");
        assert_eq!(frame::decode::<Hello<'_>>(&bytes), Ok(hello));
    }
    reads_back::<Welcome>("welcome.bin");
}

#[test]
fn deferred_changes() {
    let changes = golden_values::deferred();
    hold("deferred.bin", &frames(&changes));
    for change in changes {
        let bytes = frame::encode(&change).expect("encodes");
        assert_eq!(frame::decode::<Made<'_>>(&bytes).expect("decodes"), change);
        assert!(bytes.len() + 255 <= terral_format::local::deferred::CHANGE_BYTES);
    }
}

#[test]
fn requests() {
    let envelopes = envelopes();
    hold("requests.bin", &frames(&envelopes));
    for envelope in envelopes {
        let bytes = frame::encode(&envelope).expect("encodes");
        assert_eq!(frame::decode::<Envelope>(&bytes), Ok(envelope));
    }
}

#[test]
fn replies() {
    hold("replies.bin", &frames(&golden_values::replies()));
    reads_back::<Reply>("replies.bin");
}

#[test]
fn what_servers_say_to_each_other() {
    let said = golden_peers::messages();
    let kinds: BTreeSet<usize> = said.iter().map(golden_peers::kind).collect();
    assert_eq!(kinds, (0..golden_peers::KINDS).collect(), "a message is not in the golden file");
    let (mut all, mut read) = (Vec::new(), Vec::new());
    for frame in golden_peers::frames() {
        let begin = all.len();
        frame.write(&mut all).expect("encodes");
        read.push(peers::Frame::read(&all[begin..]).expect("a frame"));
    }
    assert_eq!(read, golden_peers::frames());
    hold("peers-15.bin", &all);
}

#[test]
fn what_servers_of_a_pool_leave_for_each_other() {
    hold("pool-7.bin", &golden_pool::records().expect("encodes"));
}

#[test]
fn what_servers_say_to_each_other_of_users() {
    hold("control-15.bin", &golden_pool::said().expect("encodes"));
}

#[test]
fn what_is_asked_of_who_has_a_files_bytes() {
    let mut all = Vec::new();
    for (question, bytes) in golden_far::questions() {
        let frame = question.write(bytes.to_vec()).expect("encodes").whole();
        assert_eq!(Question::read(&frame), Ok((question, bytes)));
        all.extend(frame);
    }
    for (answer, bytes) in golden_far::answers() {
        let frame = answer.write(bytes.to_vec()).expect("encodes").whole();
        assert_eq!(Answer::read(&frame), Ok((answer, bytes)));
        all.extend(frame);
    }
    hold("far-15.bin", &all);
}

#[test]
fn what_a_server_writes_down_of_its_part() {
    let records = golden_partition::records();
    let kinds: BTreeSet<usize> = records.iter().map(golden_partition::kind).collect();
    assert_eq!(kinds, (0..golden_partition::KINDS).collect(), "one is not in the golden file");
    hold("partition-1.bin", &frames(&records));
    reads_back::<partition::Record>("partition-1.bin");
}

#[test]
fn what_things_are() {
    let bodies = golden_things::bodies();
    hold("things-15.bin", &frames(&bodies));
    assert_eq!(Directory::of(&bodies[0]).and_then(|read| read.body()).as_ref(), Ok(&bodies[0]));
    for outcome in &bodies[23..bodies.len() - 16] {
        assert_eq!(Outcome::of(outcome).and_then(|read| read.body()).as_ref(), Ok(outcome));
    }
    hold("membership-1.bin", &frames(&golden_things::records()));
    reads_back::<Membership>("membership-1.bin");
    hold("remembered-1.bin", &frames(&golden_things::memories()));
    reads_back::<Memory>("remembered-1.bin");
}

#[test]
fn records() {
    let all = golden_records::records().into_iter();
    let all = all.chain(golden_things::records().into_iter().map(Record::from));
    hold("records-6.bin", &frames(&all.collect::<Vec<_>>()));
    reads_back::<Record>("records-6.bin");
}

#[test]
fn records_of_version_5_are_said_in_this_one() {
    reads_back::<v5::Record>("records-5.bin");
    assert_eq!(said_now(5, "records-5.bin"), golden_records::records_of_5());
}

/// What a file of records of that version says, each in a transaction of its own.
fn said_now(version: u16, file: &str) -> Vec<Record> {
    let bytes = std::fs::read(stored(file)).expect("stored");
    let (mut rest, mut said) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let frame = frame::read(rest).expect("a frame");
        let alone = [&[1], frame.payload].concat();
        said.extend(Transaction::read(version, &alone).expect("a transaction of one record").0);
        rest = frame.rest;
    }
    said
}

#[test]
fn records_of_version_4_are_said_in_this_one() {
    reads_back::<v4::Record>("records-4.bin");
    let said = said_now(4, "records-4.bin");
    hold("records-4-said-now.bin", &frames(&said));
}

#[test]
fn capability() {
    hold("capability.bin", &frame::encode(&golden_values::capability()).expect("encodes"));
    let bytes = std::fs::read(stored("capability.bin")).expect("stored");
    let read: terral_format::wire::capability::Capability =
        frame::decode(&bytes).expect("a capability");
    assert!(read.verify(&golden_values::KEY, 1).is_ok());
}

#[test]
fn a_frame() {
    let mut out = Vec::new();
    frame::write(&mut out, FRAMES, b"Terral");
    hold("frame.bin", &out);
}

#[test]
fn shared_memory() {
    hold("layout.txt", golden_layout::layout().as_bytes());
}

#[test]
fn the_page_on_formats_says_what_is_so() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats.md");
    let page = std::fs::read_to_string(page).expect("docs/formats.md");
    for version in [
        format!("`message::PROTOCOL`, {PROTOCOL},"),
        format!("`message::FRAMES`, {FRAMES} "),
        format!("`peers::PEERS`, {PEERS} "),
        format!("`far::QUESTIONS`, {QUESTIONS},"),
        format!("`far::ANSWERS`, {ANSWERS} "),
        format!("of the log, {} ", Transaction::VERSION),
    ] {
        assert!(page.contains(&version), "docs/formats.md does not say {version}");
    }
    let layout = golden_layout::layout();
    for (row, structure) in [
        ("superblock", "Superblock"),
        ("file record", "FileRecord"),
        ("file header", "FileHeader"),
        ("description", "Description"),
        ("doorbell", "Doorbell"),
    ] {
        let said = page.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let said = said.unwrap_or_else(|| panic!("docs/formats.md has no row for {row}"));
        let said: Vec<&str> = said.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let fields = layout.lines().skip_while(|line| !line.starts_with(structure)).skip(1);
        for field in fields.take_while(|line| line.starts_with(' ')) {
            let at = field.split_whitespace().next().expect("an offset");
            assert!(said.contains(&at), "docs/formats.md: {row}: nothing of {field}");
        }
    }
}

#[test]
fn versions_are_told_apart() {
    let mut out = Vec::new();
    frame::write(&mut out, FRAMES, b"Terral");
    out[4] ^= 0xff;
    let frame = frame::read(&out).expect("a frame of another version");
    assert_eq!(frame.of(FRAMES).map_err(|Error { kind, .. }| kind), Err(ErrorKind::Version));
    let newer = Transaction::VERSION + 1;
    assert!(!Transaction::reads(newer) && Transaction::reads(Transaction::VERSION));
    let read = Transaction::read(newer, &[0]);
    assert_eq!(read.map_err(|Error { kind, .. }| kind), Err(ErrorKind::Version));
}

/// Whatever the bytes are: an error or a value, never a panic.
fn read_all(bytes: &[u8]) {
    let payload = frame::read(bytes).map_or(bytes, |frame| frame.payload);
    for bytes in [bytes, payload] {
        let _ = frame::decode::<Hello>(bytes).map(|hello| format!("{hello:?}"));
        let _ = frame::decode::<Welcome>(bytes).map(|welcome| format!("{welcome:?}"));
        let _ = frame::decode::<Envelope>(bytes).map(|e| (e.request.needs(), format!("{e:?}")));
        let _ = frame::decode::<Reply>(bytes).map(|reply| format!("{reply:?}"));
        let _ = frame::decode::<peers::Frame>(bytes).map(|frame| format!("{frame:?}"));
        let _ = Transaction::read(4, bytes).map(|read| format!("{read:?}"));
        let _ = Transaction::read(5, bytes).map(|read| format!("{read:?}"));
        let _ = frame::decode::<Record>(bytes).map(|record| format!("{record:?}"));
        let _ = frame::decode::<partition::Record>(bytes).map(|record| format!("{record:?}"));
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn mutated_bytes_are_refused_or_read(
        which in 0usize..4,
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        start in any::<prop::sample::Index>(),
    ) {
        let all = [
            frames(&envelopes()),
            frames(&golden_records::records()),
            frames(&golden_values::replies()),
            frames(&golden_values::welcomes()),
        ];
        let mut rest = all[which].as_slice();
        let mut payloads = Vec::new();
        while let Ok(frame) = frame::read(rest) {
            payloads.push(frame.payload.to_vec());
            rest = frame.rest;
        }
        let mut bytes = start.get(&payloads).clone();
        if !bytes.is_empty() {
            let place = at.index(bytes.len());
            bytes[place] = value;
            bytes.truncate(bytes.len() - cut.index(bytes.len()) / 8);
        }
        read_all(&bytes);
        let mut framed = Vec::new();
        frame::write(&mut framed, FRAMES, &bytes);
        let place = at.index(framed.len());
        framed[place] ^= value;
        read_all(&framed);
    }
}
