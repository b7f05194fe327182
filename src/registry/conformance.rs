//! What each registry does: one suite for all of them. It leaves nothing below its own keys.

use std::time::{Duration, Instant};

use terral_format::ErrorKind;

use crate::registry::{Change, Guard, Lease, Registry, Revision, VALUE_MAX};

/// Below these it works.
const BELOW: &str = "/terral-conformance/";

fn key(name: &str) -> String {
    format!("{BELOW}{name}")
}

fn put(name: &str, value: &[u8]) -> Change {
    Change::put(key(name), value)
}

fn leased(name: &str, lease: Lease) -> Change {
    Change::Put { key: key(name), value: b"leased".to_vec(), lease: Some(lease) }
}

fn said(registry: &dyn Registry, name: &str) -> Option<(Vec<u8>, Revision)> {
    let view = registry.below(&key(name)).expect("looked");
    view.entry(&key(name)).map(|entry| (entry.value.clone(), entry.changed))
}

fn done(registry: &dyn Registry, guards: &[Guard], changes: &[Change]) -> Option<Revision> {
    registry.commit(guards, changes).expect("a transaction")
}

fn gone(registry: &dyn Registry, name: &str, within: Duration) {
    let begin = Instant::now();
    while said(registry, name).is_some() {
        assert!(begin.elapsed() < within, "{name} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn clear(registry: &dyn Registry) {
    let view = registry.below(BELOW).expect("looked");
    for entry in view.entries {
        done(registry, &[], &[Change::Remove(entry.key)]);
    }
}

/// All of it.
pub fn all(registry: &dyn Registry) {
    clear(registry);
    values(registry);
    prefixes(registry);
    transactions(registry);
    races(registry);
    bounds(registry);
    leases(registry);
    clear(registry);
    assert!(registry.below(BELOW).expect("looked").entries.is_empty());
}

/// Values are what was put, whatever their bytes are, and revisions grow.
fn values(registry: &dyn Registry) {
    let bytes: Vec<u8> = (0..=255).collect();
    let first = done(registry, &[], &[put("a", &bytes)]).expect("no guard");
    assert_eq!(said(registry, "a"), Some((bytes, first)));
    let second = done(registry, &[], &[put("a", b"")]).expect("no guard");
    assert!(second > first);
    assert_eq!(said(registry, "a"), Some((Vec::new(), second)));
    done(registry, &[], &[Change::Remove(key("a"))]);
    assert_eq!(said(registry, "a"), None);
    done(registry, &[], &[Change::Remove(key("a"))]);
}

/// Below a prefix is what begins with it, in order, and nothing else.
fn prefixes(registry: &dyn Registry) {
    let names = ["p", "p/1", "p/2", "p0", "q"];
    let all: Vec<Change> = names.iter().rev().map(|name| put(name, name.as_bytes())).collect();
    let at = done(registry, &[], &all).expect("no guard");
    let view = registry.below(&key("p/")).expect("looked");
    let found: Vec<&str> = view.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(found, [key("p/1"), key("p/2")]);
    assert!(view.revision >= at && view.entries.iter().all(|entry| entry.changed == at));
    clear(registry);
}

/// A transaction is done whole if all guards hold, and else not at all.
fn transactions(registry: &dyn Registry) {
    let absent = |name| Guard::Absent(key(name));
    let first = done(registry, &[absent("x")], &[put("x", b"1"), put("y", b"1")]).expect("absent");
    assert_eq!(done(registry, &[absent("x")], &[put("x", b"2"), put("y", b"2")]), None);
    assert_eq!(said(registry, "y"), Some((b"1".to_vec(), first)));
    let unchanged = |name, at| Guard::Unchanged(key(name), at);
    let second = done(registry, &[unchanged("x", first)], &[put("x", b"3")]).expect("unchanged");
    let both = [unchanged("y", first), unchanged("x", first)];
    assert_eq!(done(registry, &both, &[put("y", b"4")]), None, "one of two does not hold");
    assert_eq!(done(registry, &[unchanged("z", first)], &[put("z", b"4")]), None, "not there");
    let both = [unchanged("y", first), unchanged("x", second)];
    done(registry, &both, &[Change::Remove(key("x")), put("z", b"5")]).expect("both hold");
    assert_eq!((said(registry, "x"), said(registry, "y")), (None, Some((b"1".to_vec(), first))));
    assert_eq!(done(registry, &[unchanged("x", second)], &[put("z", b"6")]), None, "removed");
    // One that is there again is another one.
    done(registry, &[absent("x")], &[put("x", b"1")]).expect("absent");
    assert_eq!(done(registry, &[unchanged("x", first)], &[put("z", b"6")]), None, "another");
    clear(registry);
}

/// Of several who claim one key, one has it.
fn races(registry: &dyn Registry) {
    for round in 0..8 {
        let name = format!("race/{round}");
        let won: usize = std::thread::scope(|threads| {
            let claim = |who: usize| {
                let name = name.clone();
                let guards = [Guard::Absent(key(&name))];
                move || done(registry, &guards, &[put(&name, who.to_string().as_bytes())])
            };
            let all: Vec<_> = (0..4).map(|who| threads.spawn(claim(who))).collect();
            all.into_iter().filter_map(|one| one.join().expect("ends")).count()
        });
        assert_eq!(won, 1);
    }
    clear(registry);
}

/// What is beyond what there may be is refused, and nothing is done.
fn bounds(registry: &dyn Registry) {
    let refused = |changes: &[Change]| registry.commit(&[], changes).expect_err("refused").kind;
    assert_eq!(refused(&[put("b", b"1"), put("b", b"2")]), ErrorKind::Invalid);
    assert_eq!(refused(&[put("b", &vec![0; VALUE_MAX + 1])]), ErrorKind::Invalid);
    let many: Vec<Change> = (0..65).map(|at| put(&format!("b/{at}"), b"")).collect();
    assert_eq!(refused(&many), ErrorKind::Invalid);
    assert_eq!(said(registry, "b"), None);
    done(registry, &[], &many[..64]).expect("as many as may be");
    done(registry, &[], &[put("b", &vec![7; VALUE_MAX - 4096])]).expect("as long as may be");
    assert_eq!(said(registry, "b").map(|(value, _)| value.len()), Some(VALUE_MAX - 4096));
    clear(registry);
}

/// What has a lease is there as long as that is kept.
fn leases(registry: &dyn Registry) {
    let lease = registry.grant(Duration::from_secs(1)).expect("a lease");
    done(registry, &[], &[leased("l/1", lease), put("l/stays", b"1")]).expect("no guard");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        assert!(registry.keep(lease).expect("kept"), "it is kept in time");
        assert!(said(registry, "l/1").is_some());
        std::thread::sleep(Duration::from_millis(200));
    }
    gone(registry, "l/1", Duration::from_secs(20));
    assert!(!registry.keep(lease).expect("asked"), "what has run out is not kept again");
    let late = registry.commit(&[], &[leased("l/2", lease), put("l/3", b"")]);
    assert_eq!(late.expect_err("refused").kind, ErrorKind::NotFound);
    assert_eq!((said(registry, "l/2"), said(registry, "l/3")), (None, None));
    registry.end(lease).expect("it is over already");
    let lease = registry.grant(Duration::from_secs(600)).expect("a lease");
    done(registry, &[], &[leased("l/4", lease)]).expect("no guard");
    registry.end(lease).expect("ended");
    assert_eq!(said(registry, "l/4"), None);
    assert!(said(registry, "l/stays").is_some(), "what has none stays");
}
