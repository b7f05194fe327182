//! A graph of places (rooms or files) with an arrow for each pair of which one calls the other, and
//! the arrows of it that are part of a circle.

use std::collections::{BTreeMap, BTreeSet};

/// What stands behind an arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Calls.
    pub calls: usize,
    /// One of them, for people.
    pub example: String,
}

/// Who calls whom.
#[derive(Default)]
pub struct Graph {
    arrows: BTreeMap<(String, String), Behind>,
}

impl Graph {
    /// Adds a call; one inside a place is no arrow.
    pub fn add(&mut self, from: &str, to: &str, example: impl FnOnce() -> String) {
        if from != to {
            let behind = self.arrows.entry((from.to_owned(), to.to_owned()));
            behind.or_insert_with(|| Behind { calls: 0, example: example() }).calls += 1;
        }
    }

    /// All of them.
    pub fn arrows(&self) -> &BTreeMap<(String, String), Behind> {
        &self.arrows
    }

    /// Those from whose end a way leads back to their beginning.
    pub fn in_circles(&self) -> BTreeMap<(String, String), Behind> {
        let back = |(from, to): &(String, String)| self.reached(to).contains(from);
        self.arrows
            .iter()
            .filter(|(arrow, _)| back(arrow))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect()
    }

    fn reached<'a>(&'a self, from: &'a String) -> BTreeSet<&'a String> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(place) = next.pop() {
            if reached.insert(place) {
                next.extend(self.arrows.keys().filter(|(from, _)| from == place).map(|(_, to)| to));
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::Graph;

    #[test]
    fn arrows_that_lead_into_a_circle_are_not_part_of_it() {
        let mut graph = Graph::default();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("c", "c"), ("b", "c")] {
            graph.add(from, to, || "x".to_owned());
        }
        let circles: Vec<_> = graph.in_circles().into_keys().collect();
        assert_eq!(circles, [("b", "c"), ("c", "b")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(graph.arrows().len(), 4);
        assert_eq!(graph.arrows()[&("b".to_owned(), "c".to_owned())].calls, 2);
    }
}
