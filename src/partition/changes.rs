//! What differs between two states of a map, a set of sets, or a list.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What is not the same in two maps, by key: before and now.
pub(crate) fn of_map<'a, K: Ord + Copy, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<&'a V>, Option<&'a V>)> {
    let gone = before.keys().filter(|key| !now.contains_key(key));
    let all = gone.chain(now.keys()).map(|key| (*key, before.get(key), now.get(key)));
    all.filter(|(_, before, now)| before != now)
}

/// What has come into sets or gone from them, by the set's key.
pub(crate) fn of_sets<K: Ord + Copy, V: Ord + Copy>(
    before: &BTreeMap<K, BTreeSet<V>>,
    now: &BTreeMap<K, BTreeSet<V>>,
) -> Vec<(K, V, bool)> {
    let none = BTreeSet::new();
    let mut all = Vec::new();
    for (key, before, now) in of_map(before, now) {
        let (before, now) = (before.unwrap_or(&none), now.unwrap_or(&none));
        all.extend(before.difference(now).map(|value| (key, *value, false)));
        all.extend(now.difference(before).map(|value| (key, *value, true)));
    }
    all
}

/// Puts something into one of some sets, or takes it out; none of these is empty.
pub(crate) fn put<K: Ord, V: Ord>(
    sets: &mut BTreeMap<K, BTreeSet<V>>,
    (key, value, is_in): (K, V, bool),
) {
    if is_in {
        sets.entry(key).or_default().insert(value);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&value);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}

/// The places from which a list lost something, and those in which there is something else instead:
/// all before and after these are the same.
pub(crate) fn of_list<T: PartialEq>(before: &[T], now: &[T]) -> (Range<usize>, Range<usize>) {
    let same = |(one, other): &(&T, &T)| one == other;
    let first = before.iter().zip(now).take_while(same).count();
    let (before, now) = (&before[first..], &now[first..]);
    let last = before.iter().rev().zip(now.iter().rev()).take_while(same).count();
    (first..first + before.len() - last, first..first + now.len() - last)
}

#[cfg(test)]
mod tests {
    use super::of_list;

    #[test]
    fn what_leaves_a_list_and_what_comes_is_all_that_is_said() {
        for (before, now, gone, came) in [
            (&[1, 2, 3][..], &[2, 3][..], 0..1, 0..0),
            (&[1, 2], &[1, 2, 3], 2..2, 2..3),
            (&[1, 1], &[1], 1..2, 1..1),
            (&[1, 2, 3], &[1, 4, 3], 1..2, 1..2),
            (&[], &[], 0..0, 0..0),
        ] {
            assert_eq!(of_list(before, now), (gone, came), "{before:?} {now:?}");
        }
    }
}
