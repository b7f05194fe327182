//! Two phases of a transaction, as a model: who decides it, two homes, and all orders in which what
//! they say arrives, with the death of any server's process at any moment. Whatever happens, both
//! homes do the same, as who asked was told, and from everywhere there is a way to where nobody
//! waits and nothing is kept.
//!
//! It is the state machine that `server/naming/preparing` and `server/sharing/transacting` follow,
//! and not they themselves: the simulation interrupts those.

use std::collections::{BTreeMap, BTreeSet};

/// What may be left out, so that it is seen what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A decision is kept until each home has said that it is done.
    KeepUntilTold,
    /// Who has not decided yet does not say that it never comes to be.
    SayUndecided,
    /// A home is sure before it is decided.
    PrepareFirst,
    /// Who is asked by a home that hears nothing says what he knows.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Free,
    Prepared,
    /// It came to be, or does not.
    Over(bool),
}

/// What is on its way: of an operation that is done once, whenever it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Prepare(usize),
    IsPrepared(usize),
    Commit(usize),
    IsTold(usize),
    Ask(usize),
    Answer(usize, Option<bool>),
}

const HOMES: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    homes: [Home; HOMES],
    /// Which have taken up what they were to prepare: once.
    asked: [bool; HOMES],
    /// In the decider's memory: it is undecided, and these are prepared.
    undecided: Option<[bool; HOMES]>,
    /// In its log: it came to be, and these are to be told.
    untold: BTreeSet<usize>,
    /// Who asked for it was told that it came to be.
    answered: bool,
    said: BTreeSet<Said>,
    /// Processes may die so often.
    deaths: usize,
}

impl World {
    fn new(deaths: usize) -> Self {
        World {
            homes: [Home::Free; HOMES],
            asked: [false; HOMES],
            undecided: Some([false; HOMES]),
            untold: BTreeSet::new(),
            answered: false,
            said: [Said::Prepare(0)].into(),
            deaths,
        }
    }

    /// Something arrives.
    fn hears(&mut self, said: Said, without: Option<Rule>) {
        let keeps = |rule| without != Some(rule);
        match said {
            Said::Prepare(home) if !self.asked[home] => {
                self.asked[home] = true;
                self.homes[home] = Home::Prepared;
                self.said.insert(Said::IsPrepared(home));
            }
            Said::IsPrepared(home) => {
                if let Some(prepared) = &mut self.undecided {
                    prepared[home] = true;
                    // One after the other.
                    self.said.extend((home + 1 < HOMES).then_some(Said::Prepare(home + 1)));
                }
            }
            Said::Commit(home) => {
                if self.homes[home] == Home::Prepared {
                    self.homes[home] = Home::Over(true);
                }
                self.said.insert(Said::IsTold(home));
            }
            Said::IsTold(home) => {
                self.untold.remove(&home);
            }
            Said::Ask(home) if keeps(Rule::Answer) => {
                let unknown = self.undecided.is_some() && keeps(Rule::SayUndecided);
                let is = (!unknown).then_some(!self.untold.is_empty());
                self.said.insert(Said::Answer(home, is));
            }
            Said::Answer(home, Some(is)) if self.homes[home] == Home::Prepared => {
                self.homes[home] = Home::Over(is);
            }
            Said::Prepare(_) | Said::Ask(_) | Said::Answer(..) => {}
        }
    }

    /// All that may happen next.
    fn next(&self, without: Option<Rule>) -> Vec<World> {
        let mut all = Vec::new();
        let mut one = |change: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        for said in &self.said {
            one(&|world| {
                world.said.remove(said);
                world.hears(*said, without);
            });
        }
        if let Some(prepared) = self.undecided {
            let first = without == Some(Rule::PrepareFirst);
            if prepared.iter().all(|is| *is) || (first && prepared[0]) {
                one(&|world| {
                    (world.undecided, world.answered) = (None, true);
                    let homes = 0..HOMES;
                    match without == Some(Rule::KeepUntilTold) {
                        true => world.said.extend(homes.map(Said::Commit)),
                        false => world.untold.extend(homes),
                    }
                });
            }
            // It fails, or who asked is gone.
            one(&|world| world.undecided = None);
        }
        for home in &self.untold {
            one(&|world| world.said.extend([Said::Commit(*home)]));
        }
        for home in (0..HOMES).filter(|home| self.homes[*home] == Home::Prepared) {
            one(&|world| world.said.extend([Said::Ask(home)]));
        }
        if self.deaths > 0 {
            // Of the decider: what was in memory only. Of a home: nothing was.
            one(&|world| {
                world.undecided = None;
                world.deaths -= 1;
            });
        }
        all
    }

    /// What must not be.
    fn is_wrong(&self) -> bool {
        let over = |is| self.homes.contains(&Home::Over(is));
        (over(true) && over(false)) || (self.answered && over(false))
    }

    /// Nobody waits, nothing is kept, and it came to be everywhere if it did anywhere.
    fn is_settled(&self) -> bool {
        let waits = self.homes.contains(&Home::Prepared) || self.undecided.is_some();
        let same = !self.answered || self.homes.iter().all(|home| *home == Home::Over(true));
        !waits && self.untold.is_empty() && same
    }
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// So many states, all of which are right.
    Right(usize),
    Wrong,
    /// One from which there is no way to where all is settled.
    Stuck,
}

fn explored(deaths: usize, without: Option<Rule>) -> Found {
    let first = World::new(deaths);
    let mut from = BTreeMap::<World, Vec<World>>::from([(first.clone(), Vec::new())]);
    let mut left = vec![first];
    while let Some(world) = left.pop() {
        if world.is_wrong() {
            return Found::Wrong;
        }
        for next in world.next(without) {
            let known = from.entry(next.clone()).or_insert_with(|| {
                left.push(next);
                Vec::new()
            });
            known.push(world.clone());
        }
    }
    let mut settles: BTreeSet<&World> = from.keys().filter(|world| world.is_settled()).collect();
    let mut left: Vec<&World> = settles.iter().copied().collect();
    while let Some(world) = left.pop() {
        left.extend(from[world].iter().filter(|before| settles.insert(before)));
    }
    if settles.len() == from.len() { Found::Right(from.len()) } else { Found::Stuck }
}

#[test]
fn both_homes_do_the_same_and_nobody_waits_for_ever_wherever_processes_die() {
    for deaths in 0..3 {
        let found = explored(deaths, None);
        assert!(matches!(found, Found::Right(states) if states > 100), "{deaths}: {found:?}");
        eprintln!("{deaths} deaths: {found:?}");
    }
}

#[test]
fn each_rule_is_needed() {
    for rule in [Rule::KeepUntilTold, Rule::SayUndecided, Rule::PrepareFirst] {
        assert_eq!(explored(1, Some(rule)), Found::Wrong, "{rule:?}");
    }
    assert_eq!(explored(1, Some(Rule::Answer)), Found::Stuck);
}
