//! Quotas of containers, with `terral` and real programs: what is refused and how it is said, what
//! makes room again, that two at once have no more than there is, and that a server that is killed
//! knows what is used. Not here: all that may happen at random (`server/sim/quotas`).
#![cfg(not(loom))]

mod beside;
mod files;
mod house;
mod keys;
mod process;

use std::time::{Duration, Instant};

use files::open;
use house::{House, text};
use keys::{private, public};
use serde_json::Value;
use terral_client::{ErrorKind, Operations, authorize, read_credential};

#[test]
fn role() {
    process::play(256, &[]);
}

/// A server with a directory that has a quota, and whom it is alice's.
fn bounded(quota: &str) -> House {
    let house = House::empty();
    let line = |name: &str, key: u8| format!("{name} all key {}\n", public(key));
    house.write("principals", line("alice", 1) + &line("pilot", 2));
    let house = house.started();
    house.write("key", private(1));
    house.ask(&["login", "-q", "--key", "key", "-o", "alice"]);
    for path in ["a", "b"] {
        house.owner().make_directory(path.as_bytes(), 0o777).expect("makes");
    }
    container(&house, &format!("create results --at a --owner key:alice --quota {quota}"));
    house
}

fn container(house: &House, arguments: &str) -> String {
    let words: Vec<&str> = std::iter::once("container").chain(arguments.split(' ')).collect();
    house.ask(&words)
}

/// What is used, bytes and files.
fn used(house: &House) -> (u64, u64) {
    let shown: Value = serde_json::from_str(&container(house, "show results --json")).expect("one");
    let number = |of: &str| shown["quota"][of].as_u64().expect("a number");
    (number("used_bytes"), number("used_files"))
}

/// What a script says, as the server's user.
fn says(house: &House, script: &str) -> String {
    text(&house.run(None, &format!("cd /terral; exec 2>&1; {script}")))
}

#[test]
fn more_than_a_quota_is_edquot_for_everybody_and_what_is_removed_makes_room() {
    let house = bounded("2MiB,3files");
    let full = says(&house, "dd if=/dev/zero of=a/x bs=64k count=100 status=none; stat -c %s a/x");
    assert!(full.contains("quota exceeded"), "{full}");
    let size: u64 = full.lines().last().expect("a size").parse().expect("a number");
    assert!((1 << 20..=2 << 20).contains(&size), "{size}");
    assert_eq!(used(&house), (size, 1));
    // Elsewhere there is room; what comes from there is refused as a whole.
    let said = says(
        &house,
        "head -c 1500000 /dev/zero > b/y && cp b/y a/y || mv b/y a/y; ls a; stat -c %s b/y",
    );
    assert!(said.matches("quota exceeded").count() == 2, "{said}");
    assert!(said.ends_with("x\ny\n1500000\n"), "{said}");
    // Over what is there one writes, also where it is full.
    let over = says(&house, "printf over | dd of=a/x conv=notrunc status=none; head -c 4 a/x");
    assert_eq!(over, "over");
    assert_eq!(says(&house, "rm a/x a/y; mv b/y a/y; stat -c %s a/y"), "1500000\n");
    assert_eq!(used(&house), (1_500_000, 1));
    // Files are counted, too, and not directories.
    let said = says(&house, "mkdir a/d a/e; touch a/1 a/2; touch a/3; ln a/1 a/4; ls a | wc -l");
    assert!(said.contains("'a/3'") && said.contains("quota exceeded"), "{said}");
    assert!(said.ends_with("6\n"), "{said}");
    assert_eq!(used(&house), (1_500_000, 3));
    let list = container(&house, "list");
    assert!(list.contains("1.43 MiB of 2.00 MiB, 3 of 3 files"), "{list}");
    // As long as it is: holes count.
    let holes = says(&house, "rm a/1 a/2 a/4; truncate -s 10M a/y; truncate -s 1M a/y && echo cut");
    assert!(holes.contains("quota exceeded") && holes.ends_with("cut\n"), "{holes}");
    container(&house, "set results --no-quota");
    assert_eq!(says(&house, "truncate -s 10M a/y; stat -c %s a/y"), "10485760\n");
    let shown = container(&house, "show results --json");
    assert!(shown.contains("\"quota\": null") || shown.contains("\"quota\":null"), "{shown}");
}

#[test]
fn a_killed_server_knows_what_is_used_and_who_has_it_open_goes_on() {
    let house = bounded("5MiB");
    let owner = house.owner();
    let file = open(&owner, "a/x");
    file.write(&vec![1; 3 << 20]).expect("there is room");
    let other = open(&owner, "a/y");
    other.write(&[2; 100]).expect("there is little room");
    other.close();
    let before = used(&house);
    let house = house.started();
    assert_eq!(used(&house), before);
    file.write_at(b"over what is there", 0).expect("it is no more");
    let more = file.write_at(&vec![3; 1 << 20], 4 << 20).map_err(|error| error.kind);
    assert_eq!(more, Err(ErrorKind::Quota));
    file.close();
    let begin = Instant::now();
    while used(&house).0 != (3 << 20) + 100 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", used(&house));
        std::thread::sleep(Duration::from_millis(10));
    }
    owner.unlink(b"a/x").expect("it is there");
    assert_eq!(used(&house), (100, 1));
}

#[test]
fn programs_that_write_at_once_have_no_more_than_there_is_together() {
    let house = bounded("20MiB");
    let said = says(
        &house,
        "for at in 1 2 3 4; do dd if=/dev/zero of=a/$at bs=256k count=200 status=none & done; wait
         cat a/1 a/2 a/3 a/4 | wc -c",
    );
    assert_eq!(said.matches("quota exceeded").count(), 4, "{said}");
    let all: u64 = said.lines().last().expect("a sum").parse().expect("a number");
    assert!((10 << 20..=20 << 20).contains(&all), "{all}");
    assert_eq!(used(&house), (all, 4));
}

#[test]
fn a_quota_below_what_is_used_refuses_only_growth() {
    let house = bounded("8MiB");
    assert_eq!(says(&house, "head -c 5M /dev/zero > a/x; echo x > a/y"), "");
    container(&house, "set results --quota 1MiB,1files");
    let said =
        says(&house, "echo new > a/z; cat a/y; mv a/y a/w; cp a/x b/x; rm a/w; truncate -s 9 a/x");
    assert!(said.contains("quota exceeded"), "{said}");
    assert!(said.ends_with("x\n"), "{said}");
    assert_eq!(used(&house), (9, 1));
}

#[test]
fn an_owner_does_not_exceed_his_quota_and_does_not_change_it() {
    let house = bounded("1MiB");
    let alice = house.file("alice");
    let said = text(&house.run(Some(&alice), "head -c 2M /dev/zero > /terral/a/x"));
    assert!(said.contains("quota exceeded"), "{said}");
    let mut set = house.terral(&["container", "set", "results", "--quota", "1GiB"]);
    let refused = set.env("TERRAL_CREDENTIAL", &alice).output().expect("terral");
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("its quota is for"), "{said}");
    // In one that she makes further in there is no more.
    let mut inner = house.terral(&["container", "create", "inner", "--at", "a/in"]);
    inner.env("TERRAL_CREDENTIAL", &alice);
    assert!(inner.output().expect("terral").status.success());
    let said =
        text(&house.run(Some(&alice), "mkdir /terral/a/in; head -c 2M /dev/zero > /terral/a/in/x"));
    assert!(said.contains("quota exceeded"), "{said}");
    let lines = house.audit().into_iter().filter(|line| line["what"] == "quota");
    let bytes: Vec<Value> = lines.map(|line| line["bytes"].clone()).collect();
    assert_eq!(bytes, [1 << 20]);
    // Who acts by the kernel's word is asked, too, and so is who has it from him.
    let credential = read_credential(&alice).expect("is one");
    let issued = authorize(&house.instance(), &credential, false).expect("is good");
    assert!(issued.scope().rights.operations.contain(Operations::WRITE));
}
