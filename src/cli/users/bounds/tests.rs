//! How many servers are started for whom.

use std::time::{Duration, Instant};

use terral_client::Needed;

use super::{
    Bounds, Came, FAILED_EACH, KNOWN_MOST, LIVED, May, RUN_EACH, RUN_MAX, STARTS_EACH, WHILE,
};

const BEGUN: Came = Came::Begun { for_others: true };
const S: fn(u64) -> Duration = Duration::from_secs;

fn of(owner: u32, asker: u32) -> Needed {
    Needed { owner, asker }
}

/// Whether one may be started, of which that comes then.
fn begin(bounds: &mut Bounds, needed: Needed, came: Came) -> bool {
    let now = Instant::now();
    let may = bounds.may(needed, now) == May::Begin;
    if may {
        bounds.begins(needed.owner, Some(needed.asker));
        bounds.came(needed.owner, came, (S(0), now));
    }
    may
}

#[test]
fn one_asker_has_so_many_run_and_takes_none_from_others() {
    let mut bounds = Bounds::default();
    let begun = (1000..3000).filter(|owner| begin(&mut bounds, of(*owner, 7), BEGUN)).count();
    assert_eq!(begun, RUN_EACH);
    assert!(begin(&mut bounds, of(2999, 8), BEGUN));
    // A place that is free is had by the next.
    bounds.is_not_for_others(1000);
    assert!(begin(&mut bounds, of(2000, 7), BEGUN) && !begin(&mut bounds, of(2001, 7), BEGUN));
    // All together have so many, root's among them.
    assert!(begin(&mut bounds, of(8999, 0), BEGUN));
    let all = (3000..4000).filter(|user| begin(&mut bounds, of(*user, *user), BEGUN)).count();
    assert_eq!(all + RUN_EACH + 2, RUN_MAX);
    assert!(!begin(&mut bounds, of(9000, 0), BEGUN));
    bounds.is_not_for_others(3000);
    assert!(begin(&mut bounds, of(9000, 0), BEGUN));
}

#[test]
fn one_whose_server_fails_uses_up_nobodys_starts() {
    let (mut bounds, mut now) = (Bounds::default(), Instant::now());
    let mut tried = 0;
    for _ in 0..600 {
        now += S(1);
        if bounds.may(of(1000, 7), now) == May::Begin {
            bounds.begins(1000, Some(7));
            bounds.came(1000, Came::Failed, (S(0), now));
            tried += 1;
        }
    }
    assert!((5..=10).contains(&tried), "{tried}");
    // Nor do others that fail, if it is the same ones again and again.
    assert_eq!(bounds.failures.of(7), 1);
    // Nor does one that runs.
    for owner in 2000..2200 {
        bounds.begins(owner, Some(7));
        bounds.came(owner, Came::Runs, (S(0), now));
    }
    assert_eq!(bounds.may(of(1001, 7), now), May::Begin);
}

#[test]
fn one_whose_server_ends_at_once_has_few_starts_whoever_asks_and_takes_one_of_each() {
    let (mut bounds, begin) = (Bounds::default(), Instant::now());
    let mut tried = 0;
    for second in 0..600 {
        let now = begin + S(second);
        for asker in [7, 8, 0] {
            if bounds.may(of(1000, asker), now) == May::Begin {
                bounds.begins(1000, Some(asker));
                bounds.came(1000, BEGUN, (S(0), now));
                bounds.has_ended(1000);
                bounds.is_not_for_others(1000);
                tried += 1;
            }
        }
    }
    assert!((5..=10).contains(&tried), "{tried}");
    assert!(bounds.begun.of(7) <= 1 && bounds.begun.of(8) <= 1);
    assert_eq!(bounds.may(of(1001, 7), begin + S(600)), May::Begin);
}

#[test]
fn one_that_has_come_is_waited_for_and_has_not_failed() {
    let (mut bounds, now) = (Bounds::default(), Instant::now());
    assert!(begin(&mut bounds, of(1000, 7), BEGUN));
    assert_eq!(bounds.may(of(1000, 8), now), May::Later, "root's server sees it in a moment");
    bounds.has_ended(1000);
    assert_eq!(bounds.may(of(1000, 8), now), May::Failed);
    // One that runs is not looked at all the time.
    bounds.came(1001, Came::Runs, (S(0), now));
    assert_eq!(bounds.may(of(1001, 8), now), May::Later);
    assert_eq!(bounds.may(of(1001, 8), now + S(1)), May::Begin);
}

#[test]
fn of_one_asker_so_many_are_begun_and_so_many_fail_in_a_while() {
    for (came, most) in [
        (Came::Begun { for_others: false }, STARTS_EACH),
        (Came::Failed, FAILED_EACH),
        (Came::Refused, FAILED_EACH),
    ] {
        let mut bounds = Bounds::default();
        let begun = (1000..3000).filter(|owner| begin(&mut bounds, of(*owner, 7), came)).count();
        assert_eq!(begun, most);
        let now = Instant::now();
        assert!(matches!(bounds.may(of(4000, 7), now), May::No(_)));
        assert!([8, 0].iter().all(|asker| bounds.may(of(4000, *asker), now) == May::Begin));
        assert_eq!(bounds.may(of(4000, 7), now + WHILE), May::Begin);
        assert_eq!((bounds.begun.all(), bounds.failures.all()), (0, 0), "nothing is kept");
    }
    // And of all together; root is kept from none by them.
    let mut bounds = Bounds::default();
    let of_all = (0..50_u32).flat_map(|asker| (0..100).map(move |at| (asker + 7, at)));
    let fails = |(asker, at): &(u32, u32)| {
        begin(&mut bounds, of(1000 + asker * 100 + at, *asker), Came::Failed)
    };
    assert_eq!(of_all.filter(fails).count(), 512);
    assert_eq!(bounds.may(of(9, 0), Instant::now()), May::Begin);
}

#[test]
fn one_that_fails_is_tried_less_and_less() {
    let (mut bounds, begin) = (Bounds::default(), Instant::now());
    let needed = of(1000, 0);
    let mut now = begin;
    for apart in [1, 2, 4] {
        bounds.came(1000, Came::Failed, (S(0), now));
        assert_eq!(bounds.may(needed, now + S(apart) / 2), May::Failed, "{apart}");
        assert!(!bounds.may_again(1000, now + S(apart) / 2), "{apart}");
        now += S(apart);
        assert_eq!(bounds.may(needed, now), May::Begin, "{apart}");
    }
    // It took a minute.
    bounds.came(1000, Came::Failed, (S(60), now));
    assert_eq!(bounds.may(needed, now + S(299)), May::Failed);
    assert!(bounds.may_again(1000, now + S(300)));
    // One that came, and was seen to run for a while, is as a new one.
    bounds.came(1000, BEGUN, (S(0), now));
    bounds.lives(1000, now + LIVED - S(1));
    bounds.has_ended(1000);
    assert_eq!(bounds.may(needed, now + S(4)), May::Failed, "it did not");
    now += S(20);
    bounds.came(1000, BEGUN, (S(0), now));
    bounds.lives(1000, now + LIVED);
    bounds.came(1000, Came::Failed, (S(0), now));
    assert_eq!(bounds.may(needed, now + S(1)), May::Begin, "it lived");
    // What is known of them is bounded; numbers that nobody has keep out no user's.
    bounds.came(999, Came::Failed, (S(0), now));
    (2000..7000).for_each(|owner| bounds.came(owner, Came::Refused, (S(9), now)));
    assert_eq!(bounds.tried.len(), KNOWN_MOST);
    assert!([999, 1000].iter().all(|owner| bounds.tried.contains_key(owner)));
}

#[test]
fn one_that_dies_all_the_time_begins_less_and_less() {
    let (mut bounds, begin) = (Bounds::default(), Instant::now());
    let again = |at: &u64| {
        let (now, again) = (begin + S(*at), bounds.may_again(1000, begin + S(*at)));
        if again {
            bounds.begins(1000, None);
            bounds.came(1000, BEGUN, (S(0), now));
        }
        again
    };
    let begun: Vec<u64> = (0..100).filter(again).collect();
    assert_eq!(begun, [0, 1, 3, 7, 15, 31, 63]);
    assert!(bounds.run.is_empty(), "nobody has asked");
    assert!(bounds.may_again(1000, begin + S(63 + 64) + 2 * WHILE), "after a long life at once");
}

#[test]
fn one_is_started_once_and_few_at_a_time() {
    let (mut bounds, now) = (Bounds::default(), Instant::now());
    for owner in [1000, 1001] {
        assert_eq!(bounds.may(of(owner, 7), now), May::Begin);
        bounds.begins(owner, Some(7));
    }
    assert_eq!(bounds.may(of(1000, 8), now), May::Later, "the same one");
    assert!(!bounds.may_again(1000, now), "the same one");
    assert_eq!(bounds.may(of(1002, 7), now), May::Later, "of the same asker");
    for asker in 8..13 {
        assert_eq!(bounds.may(of(1000 + asker, asker), now), May::Begin, "{asker}");
        bounds.begins(1000 + asker, Some(asker));
    }
    assert_eq!(bounds.may(of(1003, 13), now), May::Later, "the last is root's");
    assert_eq!(bounds.may(of(1003, 0), now), May::Begin);
    // Those that have died are few, too, and keep root's place.
    let mut bounds = Bounds::default();
    let dead = (1000..1100).filter(|owner| {
        let may = bounds.may_again(*owner, now);
        may.then(|| bounds.begins(*owner, None)).is_some()
    });
    assert_eq!(dead.count(), 4);
    assert_eq!(bounds.may(of(2000, 7), now), May::Begin);
}
