//! Containers, by themselves: which counts, who may what, and whose they are to change.

use proptest::prelude::{Strategy, any, prop, proptest};
use terral_format::ErrorKind;
use terral_format::wire::capability::{Operations, Principal, is_at_or_below};
use terral_format::wire::containers::{
    Altered, CONTAINERS_MAX, Container, ContainerName, ENTRIES_MAX, Entry, Group, Party, Quota,
    Setting,
};

use super::{BYTES_MAX, Containers, bytes_of};

const USER: Principal = Principal::User(7);
const READS: Operations = Operations(1 | 16);

fn key(name: &str) -> Principal {
    format!("key:{name}").parse().expect("is one")
}

fn name(of: &str) -> ContainerName {
    ContainerName::new(of).expect("is one")
}

fn entry(who: &str, may: Operations) -> Entry {
    Entry { who: who.parse().expect("is one"), may }
}

fn create(of: &str, place: &str, entries: &[Entry]) -> Setting {
    let (place, entries) = (place.into(), entries.to_vec());
    Setting::Create { name: name(of), place, owner: None, entries, quota: Quota::NONE }
}

fn set(of: &str, entries: &[Entry]) -> Setting {
    Setting::Set { name: name(of), entries: entries.to_vec() }
}

fn change(all: &mut Containers, who: Principal, setting: &Setting) -> Result<(), ErrorKind> {
    let altered = all.altered(who, USER, setting).map_err(|error| error.kind)?;
    all.apply(&altered);
    Ok(())
}

#[test]
fn the_innermost_counts_and_who_is_not_named_may_nothing() {
    let (mut all, alice, pilot) = (Containers::default(), key("alice"), key("pilot"));
    assert!(all.are_none() && all.allow(pilot, b"a/b") == Operations::ALL);
    let list = [entry("key:pilot", READS)];
    change(&mut all, alice, &create("out", "a/b", &list)).expect("is new");
    assert_eq!(all.allow(alice, b"a/b"), Operations::ALL);
    assert_eq!(all.allow(pilot, b"a/b/c"), READS);
    assert_eq!(all.allow(key("x"), b"a/b/c"), Operations(0));
    for outside in [&b"a"[..], b"a/bc", b"", b"b"] {
        assert_eq!(all.allow(key("x"), outside), Operations::ALL, "{outside:?}");
    }
    let list = [entry("others", Operations::LIST)];
    change(&mut all, alice, &create("in", "a/b/c", &list)).expect("it is hers");
    assert_eq!(all.allow(pilot, b"a/b/c/d"), Operations::LIST);
    assert_eq!((all.name_at(b"a/b/c/d"), all.name_at(b"a/b/d")), ("in", "out"));
    assert_eq!(all.name_at(b"z"), "default");
    assert!(all.lead_on(pilot, b"a") && !all.lead_on(key("x"), b"b"));
    assert!(all.are_below(b"a/b/c") && all.are_below(b"a") && !all.are_below(b"a/b/c/d"));
    change(&mut all, alice, &Setting::Remove(name("in"))).expect("it is hers");
    assert_eq!(all.allow(pilot, b"a/b/c/d"), READS);
}

#[test]
fn the_runs_own_has_a_list_once_one_is_set() {
    let (mut all, pilot) = (Containers::default(), key("pilot"));
    assert_eq!(change(&mut all, pilot, &set("default", &[])), Err(ErrorKind::Denied));
    let list = [entry("others", READS)];
    change(&mut all, USER, &set("default", &list)).expect("it is his");
    assert_eq!(all.allow(pilot, b"a"), READS);
    assert_eq!(change(&mut all, pilot, &create("x", "a", &[])), Err(ErrorKind::Denied));
    let nobody = [entry("others", Operations(0))];
    change(&mut all, USER, &set("default", &nobody)).expect("it is his");
    assert_eq!(all.allow(pilot, b"a"), Operations(0));
    change(&mut all, USER, &Setting::Remove(name("default"))).expect("it is his");
    assert_eq!(all.allow(pilot, b"a"), Operations::ALL);
}

fn grouped(all: &mut Containers, groups: &[(&str, &[&str])]) {
    let group = |(name, members): &(&str, &[&str])| {
        let Ok(Party::Group(name)) = format!("group:{name}").parse() else { panic!("{name}") };
        Group { name, members: members.iter().map(|one| one.parse().expect("is one")).collect() }
    };
    all.grouped(&groups.iter().map(group).collect::<Vec<_>>());
}

#[test]
fn a_group_may_what_its_entry_says_but_for_who_has_one_of_his_own() {
    let mut all = Containers::default();
    let may = |all: &Containers, who: &str| all.allow(who.parse().expect("is one"), b"a/x");
    grouped(&mut all, &[("staff", &["key:a", "gss:b"]), ("wf", &["gss:b", "token:c"])]);
    let list = [entry("group:staff", READS), entry("others", Operations::LIST)];
    change(&mut all, USER, &create("out", "a", &list)).expect("is new");
    assert_eq!([may(&all, "key:a"), may(&all, "gss:b")], [READS, READS]);
    assert_eq!([may(&all, "token:c"), may(&all, "key:b")], [Operations::LIST; 2]);
    change(&mut all, USER, &set("out", &[entry("group:wf", Operations::WRITE)])).expect("is one");
    assert_eq!(may(&all, "gss:b"), READS.and(Operations::WRITE));
    change(&mut all, USER, &set("out", &[entry("gss:b", Operations::LIST)])).expect("is one");
    assert_eq!(may(&all, "gss:b"), Operations::LIST);
    // Who is denied as one of a group may nothing as one of another.
    change(&mut all, USER, &set("out", &[entry("group:wf", Operations(0))])).expect("is one");
    grouped(&mut all, &[("staff", &["key:a", "key:d"]), ("wf", &["key:d"])]);
    assert_eq!([may(&all, "key:a"), may(&all, "key:d")], [READS, Operations(0)]);
    // The list of principals has no such group any more, and none of that name.
    grouped(&mut all, &[("wf", &["key:d"])]);
    assert_eq!(may(&all, "key:a"), Operations::LIST);
    change(&mut all, USER, &set("out", &[entry("group:staff", Operations(0))])).expect("is named");
    let strange = set("out", &[entry("group:nobody", READS)]);
    assert_eq!(change(&mut all, USER, &strange), Err(ErrorKind::NotFound));
    let strange = create("in", "a/b", &[entry("group:nobody", READS)]);
    assert_eq!(change(&mut all, USER, &strange), Err(ErrorKind::NotFound));
}

#[test]
fn only_its_owner_and_the_servers_user_change_one() {
    let (mut all, alice, eve) = (Containers::default(), key("alice"), key("eve"));
    change(&mut all, alice, &create("out", "a", &[])).expect("is new");
    let list = [entry("key:eve", READS)];
    for setting in [set("out", &list), Setting::Remove(name("out")), create("in", "a/b", &[])] {
        assert_eq!(change(&mut all, eve, &setting), Err(ErrorKind::Denied), "{setting:?}");
    }
    assert_eq!(change(&mut all, USER, &create("out", "b", &[])), Err(ErrorKind::Exists));
    assert_eq!(change(&mut all, USER, &create("two", "a", &[])), Err(ErrorKind::Exists));
    assert_eq!(change(&mut all, USER, &create("two", "", &[])), Err(ErrorKind::Invalid));
    assert_eq!(change(&mut all, USER, &create("two", "a/../b", &[])), Err(ErrorKind::Invalid));
    assert_eq!(change(&mut all, USER, &create("default", "b", &[])), Err(ErrorKind::Invalid));
    assert_eq!(change(&mut all, USER, &set("none", &[])), Err(ErrorKind::NotFound));
    let admin = [entry("key:eve", Operations::ADMIN)];
    assert_eq!(change(&mut all, USER, &set("out", &admin)), Err(ErrorKind::Invalid));
    change(&mut all, USER, &set("out", &list)).expect("the server's user may");
    assert_eq!(all.allow(eve, b"a"), READS);
}

#[test]
fn they_are_bounded() {
    let mut all = Containers::default();
    for at in 1..CONTAINERS_MAX {
        change(&mut all, USER, &create(&format!("c{at}"), &format!("d{at}"), &[])).expect("few");
    }
    assert_eq!(change(&mut all, USER, &create("more", "more", &[])), Err(ErrorKind::TooMany));
    change(&mut all, USER, &set("default", &[])).expect("there is a place for it");
    let each_named = |name: &str| entry(&format!("key:{name}"), READS);
    let each = |at| each_named(&format!("k{at}"));
    let many: Vec<Entry> = (0..ENTRIES_MAX).map(each).collect();
    change(&mut all, USER, &set("c1", &many)).expect("few");
    assert_eq!(change(&mut all, USER, &set("c1", &[each(64)])), Err(ErrorKind::TooMany));
    change(&mut all, USER, &set("c1", &[each(3)])).expect("no more than before");
    // What is said in one frame is bounded, too.
    let long = |at| each_named(&format!("{at:0>63}"));
    let long: Vec<Entry> = (0..ENTRIES_MAX).map(long).collect();
    let full = (2..CONTAINERS_MAX).map(|at| set(&format!("c{at}"), &long));
    let done: Vec<_> = full.map(|setting| change(&mut all, USER, &setting)).collect();
    let bytes: usize = all.all().into_iter().map(bytes_of).sum();
    assert!(done.contains(&Err(ErrorKind::TooMany)) && bytes <= BYTES_MAX);
    change(&mut all, USER, &Setting::Remove(name("c2"))).expect("it is his");
}

#[test]
fn who_is_told_all_of_them_has_the_same() {
    let (mut all, mut other) = (Containers::default(), Containers::default());
    change(&mut all, USER, &create("a", "p", &[])).expect("is new");
    let told = |all: &Containers| all.all().into_iter().cloned().collect::<Vec<_>>();
    let heard = |other: &mut Containers, all: &Containers| {
        let altered = other.differences(told(all));
        altered.iter().for_each(|one| other.apply(one));
        assert_eq!(told(other), told(all));
        altered.len()
    };
    assert_eq!((heard(&mut other, &all), heard(&mut other, &all)), (1, 0));
    // Two change places.
    change(&mut all, USER, &create("b", "q", &[])).expect("is new");
    assert_eq!(heard(&mut other, &all), 1);
    all = Containers::default();
    change(&mut all, USER, &create("a", "q", &[])).expect("is new");
    change(&mut all, USER, &create("b", "p", &[])).expect("is new");
    assert_eq!(heard(&mut other, &all), 2);
    assert_eq!(heard(&mut other, &Containers::default()), 2);
}

fn parties() -> impl Strategy<Value = Vec<Entry>> {
    let who = ["key:a", "key:b", "token:a", "others", "group:g", "group:h"];
    let who = prop::sample::select(who.to_vec());
    prop::collection::vec((who, 0..32u8), 0..4)
        .prop_map(|all| all.into_iter().map(|(who, set)| entry(who, Operations(set))).collect())
}

/// Of the tables that are drawn.
const GROUPS: [(&str, &[&str]); 2] = [("g", &["key:a", "key:b"]), ("h", &["key:b", "token:b"])];

fn is_in(who: Principal, party: Party) -> bool {
    let named = |(name, members): &(&str, &[&str])| {
        format!("group:{name}") == party.to_string() && members.contains(&who.to_string().as_str())
    };
    GROUPS.iter().any(named)
}

fn table() -> impl Strategy<Value = Containers> {
    let one = ("[ab](/[ab]){0,3}", parties(), any::<bool>());
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let mut table = Containers::default();
        grouped(&mut table, &GROUPS);
        for (at, (place, entries, own)) in all.into_iter().enumerate() {
            let owner = if own { key("a") } else { USER };
            let setting = create(&format!("c{at}"), &place, &entries);
            let Ok(Altered::Is(container)) = table.altered(USER, USER, &setting) else {
                continue;
            };
            table.apply(&Altered::Is(Container { owner, ..container }));
        }
        table
    })
}

proptest! {
    #[test]
    fn a_path_is_in_the_innermost_and_no_entry_is_nothing(
        table in table(),
        path in "([abc](/[abc]){0,4})?",
    ) {
        let around = table.all().into_iter();
        let around = around.filter(|one| is_at_or_below(path.as_bytes(), &one.place));
        let innermost = around.max_by_key(|one| one.place.len());
        assert_eq!(table.at(path.as_bytes()), innermost);
        for who in ["key:a", "key:b", "token:a", "token:b"] {
            let who: Principal = who.parse().expect("is one");
            let expected = match innermost {
                None => Operations::ALL,
                Some(one) if one.owner == who => Operations::ALL,
                Some(one) => {
                    let of = |party| one.entries.iter().find(move |entry| entry.who == party);
                    let his = |entry: &&Entry| is_in(who, entry.who);
                    let his: Vec<u8> = one.entries.iter().filter(his).map(|it| it.may.0).collect();
                    match of(Party::Principal(who)) {
                        Some(entry) => entry.may,
                        None if his.contains(&0) => Operations(0),
                        None if !his.is_empty() => Operations(his.iter().fold(0, |a, b| a | b)),
                        None => of(Party::Others).map_or(Operations(0), |entry| entry.may),
                    }
                }
            };
            assert_eq!(table.allow(who, path.as_bytes()), expected);
        }
    }

    #[test]
    fn a_set_widens_nobody_who_is_not_named(
        table in table(),
        at in 0..6usize,
        entries in parties(),
        path in "([abc](/[abc]){0,4})?",
    ) {
        let mut table = table;
        let named = |who: Principal| {
            let mut parties = entries.iter().map(|entry| entry.who);
            let of_all = |party| party == Party::Others || is_in(who, party);
            parties.any(|party| party == Party::Principal(who) || of_all(party))
        };
        let people = ["key:a", "key:b", "token:a", "token:b"];
        let people = people.map(|who| who.parse::<Principal>().expect("is one"));
        let before = people.map(|who| table.allow(who, path.as_bytes()));
        let _ = change(&mut table, USER, &set(&format!("c{at}"), &entries));
        for (who, before) in people.into_iter().zip(before) {
            let now = table.allow(who, path.as_bytes());
            assert!(named(who) || now == before, "{who}");
        }
    }
}
