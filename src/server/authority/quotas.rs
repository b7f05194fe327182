//! What files take up in containers that have quotas: which of them counts for a path, how much
//! each file is counted with, and whether there is room for more.
//!
//! Invariants: what a container uses is the sum of the files that are counted with it, or with one
//! further in; it changes with each of them, and is never found by looking for files. What uses
//! more than it may stays, and grows no more. Not here: which files are counted, and with how much
//! (`naming/charging`, `storage/charging`).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use terral_format::ids::Ino;
use terral_format::wire::containers::{Bounded, ContainerName, Quota, Used};
use terral_format::{Error, ErrorKind, Result};

/// A container that has a quota, by its place among them: one that is further in comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(usize);

/// What a file is counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Where: with that container, and those around it that have quotas.
    pub at: At,
    /// So much.
    pub bytes: u64,
}

#[derive(Debug)]
struct Tally {
    name: ContainerName,
    quota: Quota,
    used: Used,
    /// The next one around it.
    around: Option<At>,
}

/// What is about to come to containers, and to leave them.
#[derive(Debug, Default)]
pub struct Shift(BTreeMap<At, (i128, i128)>);

/// See the module.
#[derive(Debug, Default)]
pub struct Quotas {
    tallies: Vec<Tally>,
    places: BTreeMap<Vec<u8>, At>,
    charges: FxHashMap<Ino, Charge>,
    /// Machines among which each quota is divided; 0 is one.
    parts: u64,
}

fn add(used: &mut Used, bytes: i128, files: i128) {
    let apply = |is: u64, by: i128| u64::try_from(i128::from(is) + by).unwrap_or_default();
    (used.bytes, used.files) = (apply(used.bytes, bytes), apply(used.files, files));
}

impl Quotas {
    /// Whether any container has one.
    pub fn are_on(&self) -> bool {
        !self.tallies.is_empty()
    }

    /// These are all that have one, by place. What files were counted with counts on where a
    /// container is still there; which they are is to be found out anew.
    pub fn begin(&mut self, mut all: Vec<(Vec<u8>, ContainerName, Quota)>) {
        let before = std::mem::take(self);
        // The greater of two is further in, if one of them is in the other.
        all.sort_unstable();
        self.parts = before.parts;
        for (place, name, quota) in all {
            let at = At(self.tallies.len());
            self.tallies.push(Tally { name, quota, used: Used::default(), around: None });
            self.places.insert(place, at);
        }
        let around: Vec<(At, Option<At>)> = self
            .places
            .iter()
            .map(|(place, at)| {
                let end = place.iter().rposition(|byte| *byte == b'/');
                let above = end.map_or(&[][..], |end| &place[..end]);
                (*at, if place.is_empty() { None } else { self.home(above) })
            })
            .collect();
        around.into_iter().for_each(|(at, around)| self.tallies[at.0].around = around);
        for (ino, charge) in before.charges {
            let name = &before.tallies[charge.at.0].name;
            if let Some(at) = self.named(name) {
                self.put(ino, Some(at), charge.bytes);
            }
        }
    }

    /// The one that is called so.
    pub fn named(&self, name: &ContainerName) -> Option<At> {
        self.tallies.iter().position(|tally| tally.name == *name).map(At)
    }

    /// What it is called.
    pub fn name_of(&self, at: At) -> &ContainerName {
        &self.tallies[at.0].name
    }

    /// Each machine has its part of all quotas: of so many.
    pub fn divide(&mut self, parts: u64) {
        self.parts = parts;
    }

    /// The innermost that counts for a path.
    pub fn home(&self, path: &[u8]) -> Option<At> {
        let mut above = path;
        loop {
            if let Some(at) = self.places.get(above) {
                return Some(*at);
            }
            let end = above.iter().rposition(|byte| *byte == b'/');
            above = match (end, above) {
                (Some(end), _) => &above[..end],
                (None, []) => return None,
                (None, _) => &[],
            };
        }
    }

    /// Whether all that is below these two paths is counted alike.
    pub fn are_alike(&self, one: &[u8], other: &[u8]) -> bool {
        let has_below = |path: &[u8]| {
            let mut from = self.places.range(path.to_vec()..);
            from.any(|(place, _)| {
                place.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&b'/'))
            })
        };
        self.home(one) == self.home(other) && !has_below(one) && !has_below(other)
    }

    fn chain(&self, at: Option<At>) -> impl Iterator<Item = At> + '_ {
        std::iter::successors(at, |at| self.tallies[at.0].around)
    }

    fn change(&mut self, at: Option<At>, (bytes, files): (i128, i128)) {
        let chain: Vec<At> = self.chain(at).collect();
        chain.into_iter().for_each(|at| add(&mut self.tallies[at.0].used, bytes, files));
    }

    /// What a file is counted with.
    pub fn charge(&self, ino: Ino) -> Option<Charge> {
        self.charges.get(&ino).copied()
    }

    /// A file is counted there with so much from now on; `None`: nowhere.
    pub fn put(&mut self, ino: Ino, at: Option<At>, bytes: u64) {
        self.forget(ino);
        if let Some(at) = at {
            self.charges.insert(ino, Charge { at, bytes });
            self.change(Some(at), (i128::from(bytes), 1));
        }
    }

    /// The same, with so much where it is.
    pub fn set(&mut self, ino: Ino, bytes: u64) {
        if let Some(charge) = self.charge(ino).filter(|charge| charge.bytes != bytes) {
            self.charges.insert(ino, Charge { bytes, ..charge });
            self.change(Some(charge.at), (i128::from(bytes) - i128::from(charge.bytes), 0));
        }
    }

    /// It is no more.
    pub fn forget(&mut self, ino: Ino) {
        if let Some(Charge { at, bytes }) = self.charges.remove(&ino) {
            self.change(Some(at), (-i128::from(bytes), -1));
        }
    }

    /// All that are counted.
    pub fn all(&self) -> impl Iterator<Item = (Ino, Charge)> + '_ {
        self.charges.iter().map(|(ino, charge)| (*ino, *charge))
    }

    /// Something of that much leaves one for another.
    pub fn shift(&self, shift: &mut Shift, (from, to): (Option<At>, Option<At>), used: Used) {
        let (bytes, files) = (i128::from(used.bytes), i128::from(used.files));
        for (chain, sign) in [(from, -1), (to, 1)] {
            for at in self.chain(chain) {
                let (has_bytes, has_files) = shift.0.entry(at).or_default();
                *has_bytes += sign * bytes;
                *has_files += sign * files;
            }
        }
    }

    /// Bytes that fit into a container, and those around it; `None`: any number.
    pub fn room(&self, at: At) -> Option<u64> {
        let room = |at: At| {
            let Tally { quota, used, .. } = &self.tallies[at.0];
            quota.bytes.map(|most| (most / self.parts.max(1)).saturating_sub(used.bytes))
        };
        self.chain(Some(at)).filter_map(room).min()
    }

    /// Refuses what does not fit.
    ///
    /// # Errors
    /// [`ErrorKind::Quota`], with which container.
    pub fn permit(&self, shift: &Shift) -> Result<()> {
        for (at, (bytes, files)) in &shift.0 {
            let Tally { name, quota, used, .. } = &self.tallies[at.0];
            let fits = |more: i128, used: u64, most: Option<u64>| {
                let part = most.map(|most| i128::from(most / self.parts.max(1)));
                more <= 0 || part.is_none_or(|part| i128::from(used) + more <= part)
            };
            if !fits(*bytes, used.bytes, quota.bytes) {
                return Err(Error::new(ErrorKind::Quota, format!("container {name}: bytes")));
            }
            if !fits(*files, used.files, quota.files) {
                return Err(Error::new(ErrorKind::Quota, format!("container {name}: files")));
            }
        }
        Ok(())
    }

    /// Refuses so much more in one.
    ///
    /// # Errors
    /// As [`Quotas::permit`].
    pub fn permit_more(&self, at: Option<At>, more: Used) -> Result<()> {
        let mut shift = Shift::default();
        self.shift(&mut shift, (None, at), more);
        self.permit(&shift)
    }

    /// What people are shown.
    pub fn shown(&self) -> Vec<Bounded> {
        let one = |Tally { name, quota, used, .. }: &Tally| Bounded {
            name: name.clone(),
            quota: *quota,
            used: *used,
        };
        self.tallies.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::{At, ContainerName, ErrorKind, Ino, Quota, Quotas, Shift, Used};

    /// Place, name, bytes and files.
    type Said = (&'static str, &'static str, Option<u64>, Option<u64>);

    fn quotas(all: &[Said]) -> Quotas {
        let mut quotas = Quotas::default();
        let one = |(place, name, bytes, files): &Said| {
            let name = ContainerName::new(name).expect("is one");
            (place.as_bytes().to_vec(), name, Quota { bytes: *bytes, files: *files })
        };
        quotas.begin(all.iter().map(one).collect());
        quotas
    }

    fn used(quotas: &Quotas, name: &str) -> (u64, u64) {
        let shown = quotas.shown().into_iter().find(|one| one.name.as_str() == name);
        let used = shown.expect("has one").used;
        (used.bytes, used.files)
    }

    fn more(quotas: &Quotas, path: &str, bytes: u64, files: u64) -> Result<(), ErrorKind> {
        let at = quotas.home(path.as_bytes());
        quotas.permit_more(at, Used { bytes, files }).map_err(|error| error.kind)
    }

    #[test]
    fn what_is_further_in_counts_for_those_around_it_too() {
        let mut all = quotas(&[
            ("a", "outer", Some(100), Some(3)),
            ("a/b", "inner", Some(40), None),
            ("c", "other", None, Some(1)),
        ]);
        assert!(all.home(b"d").is_none() && all.home(b"ab").is_none());
        let [outer, inner, other] =
            ["a/x", "a/b/x", "c"].map(|path| all.home(path.as_bytes()).expect("has one"));
        all.put(Ino(1), Some(outer), 50);
        all.put(Ino(2), Some(inner), 30);
        assert_eq!((used(&all, "outer"), used(&all, "inner")), ((80, 2), (30, 1)));
        assert_eq!(more(&all, "a/b/y", 11, 0), Err(ErrorKind::Quota), "of its own");
        assert_eq!(more(&all, "a/b/y", 10, 1), Ok(()));
        assert_eq!((all.room(inner), all.room(outer), all.room(other)), (Some(10), Some(20), None));
        all.set(Ino(1), 65);
        assert_eq!(more(&all, "a/b/y", 6, 0), Err(ErrorKind::Quota), "of the one around it");
        assert_eq!(more(&all, "a/y", 0, 2), Err(ErrorKind::Quota));
        assert_eq!(more(&all, "d", 1 << 60, 1 << 60), Ok(()));
        // From the inner one outward is no more for the outer one.
        let mut shift = Shift::default();
        all.shift(&mut shift, (Some(inner), Some(outer)), Used { bytes: 30, files: 1 });
        assert_eq!(all.permit(&shift), Ok(()));
        all.put(Ino(2), Some(outer), 30);
        assert_eq!((used(&all, "outer"), used(&all, "inner")), ((95, 2), (0, 0)));
        all.forget(Ino(1));
        all.forget(Ino(1));
        all.put(Ino(2), None, 30);
        assert_eq!((used(&all, "outer"), all.charge(Ino(2))), ((0, 0), None));
        assert!(all.are_alike(b"a/x", b"a/y") && !all.are_alike(b"a", b"a/x"));
        assert!(!all.are_alike(b"x", b"c") && all.are_alike(b"x", b"y/z"));
    }

    #[test]
    fn what_uses_more_than_it_may_only_grows_no_more() {
        let mut all = quotas(&[("", "default", Some(10), Some(1))]);
        let at = all.home(b"x");
        all.put(Ino(1), at, 50);
        all.put(Ino(2), at, 0);
        assert_eq!(more(&all, "y", 0, 0), Ok(()));
        assert_eq!(more(&all, "y", 1, 0), Err(ErrorKind::Quota));
        assert_eq!(more(&all, "y", 0, 1), Err(ErrorKind::Quota));
        let mut shift = Shift::default();
        all.shift(&mut shift, (at, at), Used { bytes: 50, files: 1 });
        assert_eq!(all.permit(&shift), Ok(()), "a rename within it");
        // Each machine has its part.
        let mut all = quotas(&[("", "default", Some(10), None)]);
        all.divide(3);
        assert_eq!((more(&all, "x", 3, 9), more(&all, "x", 4, 0)), (Ok(()), Err(ErrorKind::Quota)));
    }

    #[test]
    fn what_was_counted_counts_on_where_its_container_is_still_there() {
        let mut all = quotas(&[("a", "one", Some(9), None), ("b", "two", Some(9), None)]);
        all.put(Ino(1), all.home(b"a"), 5);
        all.put(Ino(2), all.home(b"b"), 6);
        let two = ContainerName::new("two").expect("is one");
        all.begin(vec![(b"c".to_vec(), two, Quota { bytes: Some(7), files: None })]);
        assert_eq!((used(&all, "two"), all.charge(Ino(1))), ((6, 1), None));
        all.begin(Vec::new());
        assert!(!all.are_on() && all.charge(Ino(2)).is_none() && all.home(b"c").is_none());
    }

    proptest! {
        #[test]
        fn what_is_used_is_always_the_sum_of_what_is_counted(
            steps in prop::collection::vec((0u64..8, 0usize..5, 0u64..100, any::<u8>()), 0..60)
        ) {
            let mut all = quotas(&[
                ("", "default", Some(1), None),
                ("a", "outer", Some(1), None),
                ("a/b", "inner", None, Some(1)),
                ("c", "other", Some(1), None),
            ]);
            for (ino, at, bytes, what) in steps {
                match what % 4 {
                    0 => all.put(Ino(ino), (at < 4).then_some(At(at)), bytes),
                    1 => all.set(Ino(ino), bytes),
                    2 => all.forget(Ino(ino)),
                    _ => {}
                }
            }
            for (name, inside) in
                [("default", vec![0, 1, 2, 3]), ("outer", vec![1, 2]), ("inner", vec![2])]
            {
                let its: Vec<u64> = all
                    .all()
                    .filter(|(_, charge)| inside.contains(&charge.at.0))
                    .map(|(_, charge)| charge.bytes)
                    .collect();
                assert_eq!(used(&all, name), (its.iter().sum(), its.len() as u64), "{name}");
            }
        }
    }
}
