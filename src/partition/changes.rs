//! What a step has changed: maps that remember what they were, of what was touched since they were
//! last asked, so that finding it takes as long as the step did, however much there is.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

use terral_format::ids::{Member, Thing};

/// Something beside a state that is no part of it: two states that differ in it are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside<T>(pub(crate) T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Aside<T> {}

impl<T> Hash for Aside<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A map. It is looked at as any other, and changed by what it has itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tracked<K: Ord, V> {
    now: BTreeMap<K, V>,
    /// What was touched, as it was before; `None` if it was not there.
    before: Aside<BTreeMap<K, Option<V>>>,
}

/// A set.
pub(crate) type TrackedSet<K> = Tracked<K, ()>;

impl<K: Ord, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Tracked { now: BTreeMap::new(), before: Aside(BTreeMap::new()) }
    }
}

impl<K: Ord, V> Deref for Tracked<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.now
    }
}

impl<K: Ord + Copy, V: Clone + PartialEq> Tracked<K, V> {
    fn touch(&mut self, key: K) {
        let now = &self.now;
        self.before.0.entry(key).or_insert_with(|| now.get(&key).cloned());
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.touch(key);
        self.now.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.touch(*key);
        self.now.remove(key)
    }

    /// To change it: who only looks asks with `get`, as this copies what it was.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.now.contains_key(key) {
            self.touch(*key);
        }
        self.now.get_mut(key)
    }

    pub(crate) fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.touch(key);
        self.now.entry(key).or_insert_with(value)
    }

    /// Takes away what does not fit; gives what that was.
    pub(crate) fn take_unless(&mut self, fits: impl Fn(&K, &V) -> bool) -> Vec<(K, V)> {
        let over = self.now.iter().filter(|(key, value)| !fits(key, value));
        let over: Vec<K> = over.map(|(key, _)| *key).collect();
        over.into_iter().filter_map(|key| Some((key, self.remove(&key)?))).collect()
    }

    /// What differs from what was when this was last asked: by key, before and now.
    pub(crate) fn changed(
        &mut self,
    ) -> impl Iterator<Item = (K, Option<V>, Option<&V>)> + use<'_, K, V> {
        let before = std::mem::take(&mut self.before.0).into_iter();
        let all = before.map(|(key, before)| (key, before, self.now.get(&key)));
        all.filter(|(_, before, now)| before.as_ref() != *now)
    }

    /// All of it has changed: nothing of it was there.
    pub(crate) fn all_is_new(&mut self) {
        self.before.0 = self.now.keys().map(|key| (*key, None)).collect();
    }
}

impl<K: Ord + Copy> TrackedSet<K> {
    /// Puts something in, or takes it out.
    pub(crate) fn put(&mut self, key: K, is_in: bool) {
        if is_in {
            self.insert(key, ());
        } else {
            self.remove(&key);
        }
    }
}

/// What there is nothing before.
pub(crate) trait Least {
    fn least() -> Self;
}

impl<T: Ord + Copy + Least> TrackedSet<(Member, T)> {
    /// What is in it of a member.
    pub(crate) fn of(&self, member: Member) -> impl Iterator<Item = T> + '_ {
        let from = self.now.range((member, T::least())..);
        from.take_while(move |((of, _), ())| *of == member).map(|((_, what), ())| *what)
    }
}

impl Least for Member {
    fn least() -> Self {
        Member::LEAST
    }
}

impl Least for Thing {
    fn least() -> Self {
        Thing::LEAST
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
    use super::{Tracked, of_list};

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

    #[test]
    fn only_what_differs_in_the_end_has_changed_and_is_said_once() {
        let mut map = Tracked::default();
        (1..=4).for_each(|key| _ = map.insert(key, key * 10));
        assert_eq!(map.changed().count(), 4);
        assert_eq!(map.changed().count(), 0);
        map.get_mut(&1).into_iter().for_each(|value| *value = 11);
        map.get_mut(&1).into_iter().for_each(|value| *value = 12);
        map.get_mut(&2).into_iter().for_each(|value| *value = 20);
        map.remove(&3);
        map.or_insert_with(5, || 50);
        map.insert(6, 60);
        map.remove(&6);
        assert_eq!(map.get_mut(&7), None);
        let changed: Vec<_> = map.changed().map(|(key, was, is)| (key, was, is.copied())).collect();
        assert_eq!(changed, [(1, Some(10), Some(12)), (3, Some(30), None), (5, None, Some(50))]);
        map.all_is_new();
        assert_eq!(map.changed().count(), 4);
    }
}
