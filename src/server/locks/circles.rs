//! Circles of processes that wait for each other over files of several homes, of which each home
//! knows only its own waits: what all say is put together.
//!
//! Invariant: a circle is believed when each of its waits was said twice, the second time
//! [`BETWEEN`] after the first ones had all been said. A wait counts for less than that after who
//! waited so has given up: so all of them were there at one moment in between, and no process of
//! such a circle gives back a lock. Of each circle one wait ends, the same for whoever looks.
//! No I/O, no clock. Not here: how the others are asked (`sharing/circles`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::locks::{FarOwner, Waiting};

use super::waits::WAITS_FAR;
use crate::core::left_out::{Step, does};
use crate::core::world::Tick;

/// A wait that has lasted so long may be one for ever.
pub const SUSPECT: Duration = Duration::from_millis(300);
/// Whom others say to wait is asked about again after this.
const BETWEEN: Duration = Duration::from_millis(600);
/// Searches begin so far apart.
const REST: Duration = Duration::from_secs(1);
/// Who has not said by then who waits is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

const _: () = assert!(BETWEEN.as_nanos() > WAITS_FAR.as_nanos());

/// A process waits for another one, at the home of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Who waits.
    pub waiter: FarOwner,
    /// Where.
    pub home: Member,
    /// See [`Waiting::since_ns`].
    pub since_ns: u64,
    /// For whom.
    pub holder: FarOwner,
}

impl Edge {
    /// What a home says.
    pub fn all(home: Member, waiting: &[Waiting]) -> impl Iterator<Item = Edge> {
        waiting.iter().flat_map(move |wait| {
            let (waiter, since_ns) = (wait.waiter, wait.since_ns);
            wait.holders.iter().map(move |holder| Edge { waiter, home, since_ns, holder: *holder })
        })
    }

    /// Whether one of the two is on another machine than the file. In each circle over files of
    /// several homes one is.
    pub fn is_far(&self) -> bool {
        self.waiter.by != self.home || self.holder.by != self.home
    }
}

/// How far a search is.
#[derive(Default)]
enum Stage {
    /// None is under way; the next begins no sooner.
    #[default]
    Rests,
    /// All are asked, since then; with what they said the first time, if it is the second.
    Asks(Tick, Option<BTreeSet<Edge>>),
    /// There is a circle in what they said, if it was so: from then on they are asked again.
    Doubts(Tick, BTreeSet<Edge>),
}

/// The search of one server.
#[derive(Default)]
pub struct Search {
    stage: Stage,
    /// When the last one ended.
    ended: Option<Tick>,
    /// How often all were asked.
    round: u64,
}

impl Search {
    /// The number of the question to be asked of all now, if any is; and whether it need not wait
    /// for who has not answered. A search begins if some wait here is `suspect`.
    pub fn asks(&mut self, now: Tick, suspect: impl FnOnce() -> bool) -> Option<(u64, bool)> {
        match &mut self.stage {
            Stage::Rests => {
                let rested = self.ended.is_none_or(|ended| now.since(ended) >= REST);
                if !rested || !suspect() {
                    return None;
                }
                self.stage = Stage::Asks(now, None);
                self.round += 1;
            }
            Stage::Asks(..) => {}
            Stage::Doubts(from, _) if now < *from => return None,
            Stage::Doubts(_, before) => {
                let before = std::mem::take(before);
                self.stage = Stage::Asks(now, Some(before));
                self.round += 1;
            }
        }
        let Stage::Asks(since, _) = &self.stage else { return None };
        Some((self.round, now.since(*since) >= PATIENCE))
    }

    /// Whether some are asked, and have not answered.
    pub fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asks(..))
    }

    /// All have said who waits, or will not. Gives the waits that are to end.
    pub fn hears(&mut self, edges: BTreeSet<Edge>, now: Tick) -> Vec<Edge> {
        let before = match std::mem::take(&mut self.stage) {
            Stage::Asks(_, before) => before,
            Stage::Rests | Stage::Doubts(..) => None,
        };
        let before = if does(Step::SayTwice) { before } else { Some(edges.clone()) };
        if let Some(before) = before {
            self.ended = Some(now);
            return to_end(&before.intersection(&edges).copied().collect());
        }
        match to_end(&edges).is_empty() {
            true => self.ended = Some(now),
            false => self.stage = Stage::Doubts(now + BETWEEN, edges),
        }
        Vec::new()
    }
}

/// One wait of each set of processes that all wait for each other, if it goes over several
/// machines: the last in their order.
fn to_end(edges: &BTreeSet<Edge>) -> Vec<Edge> {
    let mut after: BTreeMap<FarOwner, BTreeSet<FarOwner>> = BTreeMap::new();
    for edge in edges {
        after.entry(edge.waiter).or_default().insert(edge.holder);
    }
    let mut last: BTreeMap<FarOwner, Edge> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.is_far()) {
        let reached = reached_from(&after, edge.holder);
        if !reached.contains(&edge.waiter) {
            continue;
        }
        // All that wait for each other reach the same ones, of which the first stands for them.
        let back = |of: &&FarOwner| reached_from(&after, **of).contains(&edge.waiter);
        let first = reached.iter().find(back).copied().unwrap_or(edge.waiter);
        let known = last.entry(first).or_insert(*edge);
        *known = (*known).max(*edge);
    }
    last.into_values().collect()
}

/// Whom somebody waits for, himself or through others, and he himself.
fn reached_from(
    after: &BTreeMap<FarOwner, BTreeSet<FarOwner>>,
    from: FarOwner,
) -> BTreeSet<FarOwner> {
    let (mut reached, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(owner) = next.pop() {
        let its = after.get(&owner).into_iter().flatten();
        next.extend(its.filter(|owner| reached.insert(**owner)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{BETWEEN, Edge, PATIENCE, REST, Search, to_end};
    use crate::core::world::Tick;
    use std::collections::BTreeSet;

    use terral_format::ids::Member;
    use terral_format::wire::locks::{FarOwner, Locker};

    fn process(at: u16, number: u32) -> FarOwner {
        let by = Member::new(at).expect("14 bits");
        FarOwner { by, locker: Locker::Process, number }
    }

    fn edge(home: u16, waiter: (u16, u32), holder: (u16, u32)) -> Edge {
        let (waiter, holder) = (process(waiter.0, waiter.1), process(holder.0, holder.1));
        Edge { waiter, home: Member::new(home).expect("14 bits"), since_ns: 5, holder }
    }

    #[test]
    fn of_each_circle_over_several_homes_one_wait_ends_and_of_a_chain_none() {
        let chain = [edge(1, (1, 1), (2, 1)), edge(2, (2, 1), (3, 1)), edge(1, (1, 2), (1, 1))];
        assert_eq!(to_end(&chain.into()), []);
        let closing = edge(3, (3, 1), (1, 1));
        let circle: BTreeSet<_> = chain.into_iter().chain([closing]).collect();
        assert_eq!(to_end(&circle), [closing], "who waits for one of the circle is not in it");
        // Another circle, apart from it, and a shorter way within the first.
        let other = [edge(1, (4, 1), (4, 2)), edge(2, (4, 2), (4, 1))];
        let both = circle.into_iter().chain(other).chain([edge(2, (2, 1), (1, 1))]).collect();
        assert_eq!(to_end(&both), [closing, other[1]]);
    }

    #[test]
    fn what_waits_for_each_other_on_one_machine_is_that_ones() {
        let home = [edge(1, (1, 1), (1, 2)), edge(1, (1, 2), (1, 1))];
        assert_eq!(to_end(&home.into()), []);
    }

    #[test]
    fn a_circle_is_believed_once_each_of_its_waits_was_said_twice() {
        let circle = BTreeSet::from([edge(1, (1, 1), (2, 1)), edge(2, (2, 1), (1, 1))]);
        let (mut search, begun) = (Search::default(), Tick(1));
        assert_eq!(search.asks(begun, || false), None);
        assert_eq!(search.asks(begun, || true), Some((1, false)));
        assert_eq!(search.asks(begun + PATIENCE, || false), Some((1, true)));
        assert_eq!(search.hears(circle.clone(), begun), []);
        assert_eq!(search.asks(begun, || true), None, "not yet");
        let later = begun + BETWEEN;
        assert_eq!(search.asks(later, || false), Some((2, false)));
        // One of them has given up, and waits again.
        let again = circle.iter().map(|edge| Edge { since_ns: 6, ..*edge });
        let changed = circle.iter().copied().take(1).chain(again.skip(1)).collect();
        assert_eq!(search.hears(changed, later), []);
        assert_eq!(search.asks(later, || true), None, "it rests");
        let later = later + REST;
        assert_eq!(search.asks(later, || true), Some((3, false)));
        assert_eq!(search.hears(circle.clone(), later), []);
        let later = later + BETWEEN;
        assert_eq!(search.asks(later, || true), Some((4, false)));
        assert_eq!(search.hears(circle.clone(), later), [*circle.last().expect("two")]);
    }
}
