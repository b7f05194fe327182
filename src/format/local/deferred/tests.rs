//! What the table of deferred changes promises where nobody else is at work; interleavings are
//! `tests/deferral.rs`'s.

use super::{AtomicU64, CHANGE_BYTES, DeferredTable, Key, Pending, WORDS};

fn words() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn a_change_is_pending_from_its_commit_until_it_is_applied() {
    let words = words();
    let table = DeferredTable::new(&words);
    let (key, other) = (Key::name(7), Key::attributes(7));
    let mut buffer = [0; CHANGE_BYTES];
    let claim = table.claim(key, 3, 1, true).expect("free");
    assert!(!table.is_pending(key), "not before it is committed");
    assert!(table.claim(key, 4, 1, true).is_none(), "claimed alone");
    let late = table.claim(other, 3, 2, false).expect("free");
    assert!(table.commit(late, b"later"));
    assert!(table.commit(claim, b"first was claimed first"));
    assert!(table.is_pending(key) && table.is_pending(other) && table.is_any_name_pending());
    let last = table.latest(key, |_| None, &mut buffer);
    assert_eq!(last, Pending::Change(b"first was claimed first"));
    assert!(table.claim(key, 4, 1, true).is_some(), "after what is committed");
    let (found, more) = table.collect(1, false);
    assert!(found.len() == 1 && more);
    let (found, more) = table.collect(table.next_stamp(), false);
    assert!(!more);
    let read: Vec<Vec<u8>> =
        found.iter().map(|change| table.read(change, &mut buffer).to_vec()).collect();
    assert_eq!(read, [&b"later"[..], b"first was claimed first"]);
    found.iter().for_each(|change| table.applied(change, None));
    assert!(!table.is_any_name_pending());
}

#[test]
fn a_revoked_claim_cannot_be_committed() {
    let words = words();
    let table = DeferredTable::new(&words);
    let claim = table.claim(Key::name(1), 0, 0, true).expect("free");
    assert!(table.collect(u64::MAX, true).0.is_empty());
    assert!(table.claim(Key::name(1), 0, 9, true).is_none(), "its claimer may still write");
    assert!(!table.commit(claim, b"x"));
    let claim = table.claim(Key::name(1), 0, 1, true).expect("free again");
    table.drop_claims(0);
    assert!(!table.commit(claim, b"x"));
}

#[test]
fn a_shadow_counts_when_its_change_is_committed_and_goes_with_it() {
    let words = words();
    let table = DeferredTable::new(&words);
    let (to, from) = (Key::name(1), Key::name(2));
    let mut buffer = [0; CHANGE_BYTES];
    let claims = [to, from].map(|key| table.claim(key, 5, 6, true).expect("free"));
    assert!(table.shadow(claims[1], b"moved"));
    assert!(table.is_pending(from), "it may have happened already");
    assert_eq!(table.latest(from, |_| Some(to), &mut buffer), Pending::Nothing);
    assert!(table.commit(claims[0], b"moved"));
    assert!(table.claim(from, 7, 8, true).is_none(), "nobody knows yet that it has happened");
    table.cast(claims[1]);
    let next = table.claim(from, 7, 8, true).expect("after what is committed");
    table.withdraw(next);
    for key in [to, from] {
        let last = table.latest(key, |_| Some(to), &mut buffer);
        assert_eq!(last, Pending::Change(b"moved"));
    }
    let (found, _) = table.collect(u64::MAX, true);
    assert_eq!(found.len(), 1);
    table.applied(&found[0], Some(from));
    assert!(!table.is_any_name_pending());
}

#[test]
fn an_open_is_recalled_or_taken() {
    let words = words();
    let table = DeferredTable::new(&words);
    let open = |count| {
        let claim = table.claim(Key::opening(4), 2, count, false).expect("free");
        table.commit_open(claim, b"open").expect("nobody revokes")
    };
    assert!(table.recall(open(1)) && table.collect(u64::MAX, false).0.is_empty());
    assert!(!table.is_claimed(Key::opening(4)));
    let (left, taken) = (open(2), open(3));
    assert_eq!(table.collect(table.next_stamp() - 1, false).0.len(), 1, "what came first");
    assert!(!table.recall(left) && table.recall(taken));
    let again = table.collect(u64::MAX, false).0;
    assert_eq!(again.len(), 1, "one that died before it was applied has taken it");
    table.applied(&again[0], None);
    assert!(!table.is_claimed(Key::opening(4)));
    let died = open(4);
    table.change(died.at)[0].fetch_or(super::RECALLED, super::Ordering::SeqCst);
    assert!(table.collect(u64::MAX, true).0.is_empty());
    table.drop_claims(2);
    assert!(!table.is_claimed(Key::opening(4)));
}

#[test]
fn changes_in_other_directories_are_passed_over() {
    let words = words();
    let table = DeferredTable::new(&words);
    let changes =
        [(1, Some([5, 5]), &b"5"[..]), (2, Some([6, 5 + (1 << 16)]), b"6"), (3, None, b"any")];
    for (name, within, bytes) in changes {
        let claim = table.claim(Key::name(name), 0, name.into(), true).expect("free");
        assert!(table.commit(within.map_or(claim, |within| claim.within(within)), bytes));
    }
    let seen = |directory| {
        let mut seen = Vec::new();
        assert!(table.names_are(None, directory, |bytes| {
            seen.push(String::from_utf8_lossy(bytes).into_owned());
            true
        }));
        seen.sort();
        seen
    };
    assert_eq!(seen(5), ["5", "6", "any"]);
    assert_eq!(seen(6), ["6", "any"]);
    assert_eq!(seen(7), ["any"]);
}

#[test]
fn a_full_line_defers_nothing() {
    let words = words();
    let table = DeferredTable::new(&words);
    let key = Key::name(9);
    for count in 0..super::LINE as u64 {
        assert!(table.claim(key, 0, count, false).is_some());
    }
    assert!(table.claim(key, 0, 99, false).is_none());
}
