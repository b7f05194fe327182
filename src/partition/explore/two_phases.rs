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
    /// It is decided once the witness has written it down.
    WitnessFirst,
    /// That the witness is asked is written down before.
    WriteThatItAsks,
    /// Who has asked the witness does not say that it never comes to be before that has forgotten.
    ReleaseFirst,
    /// Who asked for it is not told that it failed before that.
    FailLast,
    /// The witness forgets at the decider's word once the homes have been told.
    KeepTheWitness,
    /// The witness is asked by homes that know that the decider was removed.
    AskOfTheRemoved,
    /// A witness that knows so hears nothing more of the decider.
    RefuseTheRemoved,
    /// A witness that knows so tells the homes.
    WitnessTells,
    /// What the decider says to the witness arrives in its order.
    KeepOrder,
    /// Nobody else is asked in the place of a witness that was removed.
    OnlyTheWitness,
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
    /// By the witness.
    IsWitnessed,
    IsReleased,
    Confirm(usize),
    /// To the witness.
    IsConfirmed(usize),
    Inquire(usize),
    /// By the witness.
    Inform(usize, bool),
}

/// What the decider says to the witness: that arrives in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Witness,
    Release,
}

const HOMES: usize = 2;
/// Among those who know that the decider was removed: the homes, and the witness.
const WITNESS: usize = HOMES;

/// What there is beside, where there is a witness.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Second {
    /// In the decider's log: the witness was asked, and has not forgotten it, as far as is known.
    asks: bool,
    /// In the decider's memory: the witness has written it down.
    sure: bool,
    line: Vec<Line>,
    /// In the witness's log: it comes to be if the decider is removed, and these are to be told.
    witnessed: Option<BTreeSet<usize>>,
    /// The decider was removed, and who knows that.
    removed: bool,
    knows: [bool; HOMES + 1],
    /// The witness was removed.
    gone: bool,
    /// Who asked for it was told that it does not come to be.
    failed: bool,
}

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
    /// Processes may die, and machines be removed, so often.
    deaths: usize,
    /// Where there is a witness.
    second: Option<Second>,
}

/// What may happen to all of it.
type Change<'a> = &'a dyn Fn(&mut World);

impl World {
    fn new(deaths: usize, copies: bool) -> Self {
        World {
            homes: [Home::Free; HOMES],
            asked: [false; HOMES],
            undecided: Some([false; HOMES]),
            untold: BTreeSet::new(),
            answered: false,
            said: [Said::Prepare(0)].into(),
            deaths,
            second: copies.then(Second::default),
        }
    }

    /// Whether somebody knows that the decider was removed.
    fn knows(&self, who: usize) -> bool {
        self.second.as_ref().is_some_and(|second| second.knows[who])
    }

    /// Whether it was.
    fn is_removed(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.removed)
    }

    /// Whether the witness was.
    fn is_gone(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.gone)
    }

    /// Whether that is so of both who know whether it comes to be.
    fn is_lost(&self) -> bool {
        self.is_removed() && self.is_gone()
    }

    /// Something arrives.
    fn hears(&mut self, said: Said, without: Option<Rule>) {
        let keeps = |rule| without != Some(rule);
        match said {
            // Nobody hears who was removed, once he knows that.
            Said::Prepare(home) | Said::Commit(home) | Said::Answer(home, _)
                if self.knows(home) => {}
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
                self.comes_to_be(home);
                self.said.insert(Said::IsTold(home));
            }
            Said::IsTold(home) => {
                self.untold.remove(&home);
            }
            Said::Ask(home) if keeps(Rule::Answer) => {
                self.said.insert(Said::Answer(home, self.decision(without)));
            }
            Said::Answer(home, Some(is)) if self.homes[home] == Home::Prepared => {
                self.homes[home] = Home::Over(is);
            }
            Said::Prepare(_) | Said::Ask(_) | Said::Answer(..) => {}
            Said::Inquire(_) if self.is_gone() && keeps(Rule::OnlyTheWitness) => {}
            said => self.hears_of_witness(said),
        }
    }

    fn comes_to_be(&mut self, home: usize) {
        if self.homes[home] == Home::Prepared {
            self.homes[home] = Home::Over(true);
        }
    }

    /// Whether something that is on its way may do anything yet.
    fn says(&self, said: Said) -> bool {
        let waits = |home: usize| self.homes[home] == Home::Prepared;
        match said {
            Said::Prepare(home) => !self.asked[home] && !self.knows(home),
            Said::IsPrepared(_) => self.undecided.is_some(),
            Said::Ask(home) | Said::Answer(home, _) => waits(home) && !self.knows(home),
            Said::Commit(home) => !self.knows(home) && (waits(home) || self.untold.contains(&home)),
            Said::IsTold(home) => self.untold.contains(&home),
            Said::Inquire(home) | Said::Inform(home, _) => waits(home),
            Said::IsWitnessed => self.undecided.is_some(),
            Said::IsReleased | Said::Confirm(_) | Said::IsConfirmed(_) => true,
        }
    }

    /// What arrives too late, whenever it does, is as if it were lost: there are fewer states.
    fn drops_what_says_nothing(&mut self) {
        let mut said = std::mem::take(&mut self.said);
        said.retain(|said| self.says(*said));
        self.said = said;
    }

    /// What the decider says of it.
    fn decision(&self, without: Option<Rule>) -> Option<bool> {
        let keeps = |rule| without != Some(rule);
        let undecided = self.undecided.is_some() && keeps(Rule::SayUndecided);
        let asks = self.second.as_ref().is_some_and(|second| second.asks);
        match self.untold.is_empty() {
            false => Some(true),
            true if undecided || (asks && keeps(Rule::ReleaseFirst)) => None,
            true => Some(false),
        }
    }

    /// Who goes by a later table than he who hears him has him know it first.
    fn hears_of_witness(&mut self, said: Said) {
        let Some(mut second) = self.second.take() else { return };
        match said {
            Said::IsWitnessed => second.sure = self.undecided.is_some(),
            Said::IsReleased => second.asks = false,
            Said::Confirm(home) => {
                second.knows[home] = true;
                self.comes_to_be(home);
                self.said.insert(Said::IsConfirmed(home));
            }
            Said::Inquire(home) => {
                second.knows[WITNESS] |= second.knows[home];
                // An heir has nothing.
                let is = second.witnessed.is_some() && !second.gone;
                self.said.insert(Said::Inform(home, is));
            }
            Said::Inform(home, is) if self.homes[home] == Home::Prepared => {
                self.homes[home] = Home::Over(is);
            }
            Said::IsConfirmed(home) => {
                let left = second.witnessed.as_mut().map(|untold| {
                    untold.remove(&home);
                    untold.len()
                });
                if left == Some(0) {
                    second.witnessed = None;
                }
            }
            _ => {}
        }
        self.second = Some(second);
    }

    /// What the decider has said arrives at the witness.
    fn line_arrives(&mut self, at: usize, without: Option<Rule>) {
        let Some(second) = &mut self.second else { return };
        let line = second.line.remove(at);
        if second.gone || (second.knows[WITNESS] && without != Some(Rule::RefuseTheRemoved)) {
            return;
        }
        self.said.insert(match line {
            Line::Witness => {
                second.witnessed = Some((0..HOMES).collect());
                Said::IsWitnessed
            }
            Line::Release => {
                second.witnessed = None;
                Said::IsReleased
            }
        });
    }

    /// It is decided.
    fn is_decided(&mut self, without: Option<Rule>) {
        (self.undecided, self.answered) = (None, true);
        match without == Some(Rule::KeepUntilTold) {
            true => self.said.extend((0..HOMES).map(Said::Commit)),
            false => self.untold.extend(0..HOMES),
        }
    }

    fn is_given_up(&mut self) {
        self.undecided = None;
        self.second.iter_mut().for_each(|second| second.sure = false);
    }

    /// All that may happen next.
    fn next(&self, without: Option<Rule>) -> Vec<World> {
        let mut all = Vec::new();
        let mut one = |change: Change<'_>| {
            let mut next = self.clone();
            change(&mut next);
            next.drops_what_says_nothing();
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
            let may = prepared.iter().all(|is| *is) || (first && prepared[0]);
            let sure = self.second.as_ref().is_none_or(|second| second.sure);
            if may && (sure || without == Some(Rule::WitnessFirst)) {
                one(&|world| world.is_decided(without));
            }
            if may && self.second.as_ref().is_some_and(|second| !second.asks && !second.gone) {
                one(&|world| {
                    world.second.iter_mut().for_each(|second| {
                        (second.asks, second.line) = (true, vec![Line::Witness]);
                    });
                });
            }
            // It fails, or who asked is gone.
            one(&World::is_given_up);
        }
        for home in &self.untold {
            one(&|world| world.said.extend([Said::Commit(*home)]));
        }
        for home in (0..HOMES).filter(|home| self.homes[*home] == Home::Prepared) {
            if !self.knows(home) {
                one(&|world| world.said.extend([Said::Ask(home)]));
            }
        }
        if self.deaths > 0 && !self.is_removed() {
            // Of the decider: what was in memory only. Of a home: nothing was.
            one(&|world| {
                world.is_given_up();
                if let Some(second) = &mut world.second {
                    second.asks &= without != Some(Rule::WriteThatItAsks);
                }
                world.deaths -= 1;
            });
        }
        if let Some(second) = &self.second {
            self.next_of(second, without, &mut one);
        }
        all
    }

    /// The same of what is there where there is a witness.
    fn next_of(&self, second: &Second, without: Option<Rule>, one: &mut dyn FnMut(Change<'_>)) {
        let keeps = |rule| without != Some(rule);
        let mut of = |change: &dyn Fn(&mut Second, &mut BTreeSet<Said>)| {
            one(&|world| {
                let World { second, said, .. } = world;
                second.iter_mut().for_each(|second| change(second, said));
            });
        };
        let may_release = self.untold.is_empty() || !keeps(Rule::KeepTheWitness);
        if second.asks && self.undecided.is_none() && may_release {
            of(&|second, _| {
                if second.line.last() != Some(&Line::Release) {
                    second.line.push(Line::Release);
                }
            });
        }
        if self.undecided.is_none() && !self.answered && (!second.asks || !keeps(Rule::FailLast)) {
            of(&|second, _| second.failed = true);
        }
        for home in (0..HOMES).filter(|home| self.homes[*home] == Home::Prepared) {
            let is_there = !second.gone || !keeps(Rule::OnlyTheWitness);
            if is_there && (second.knows[home] || !keeps(Rule::AskOfTheRemoved)) {
                of(&|_, said| said.extend([Said::Inquire(home)]));
            }
        }
        let tells = second.knows[WITNESS] && !second.gone && keeps(Rule::WitnessTells);
        for home in second.witnessed.iter().flatten().filter(|_| tells) {
            of(&|_, said| said.extend([Said::Confirm(*home)]));
        }
        for who in (0..=HOMES).filter(|who| second.removed && !second.knows[*who]) {
            of(&|second, _| second.knows[who] = true);
        }
        if self.deaths > 0 && !second.removed {
            one(&|world| {
                world.second.iter_mut().for_each(|second| second.removed = true);
                world.deaths -= 1;
            });
        }
        if self.deaths > 0 && !second.gone {
            one(&|world| {
                world.deaths -= 1;
                // Who decides it asks another one, as another transaction.
                let begins = world.second.as_ref().is_some_and(|second| second.asks);
                let goes_on = !world.is_removed() && begins;
                if goes_on && world.undecided.is_some() {
                    world.is_given_up();
                }
                world.second.iter_mut().for_each(|second| {
                    second.gone = true;
                    second.asks &= second.removed;
                });
            });
        }
        let in_order = usize::from(!second.line.is_empty());
        for at in 0..if keeps(Rule::KeepOrder) { in_order } else { second.line.len() } {
            one(&|world| world.line_arrives(at, without));
        }
    }

    /// What must not be.
    fn is_wrong(&self) -> bool {
        let over = |is| self.homes.contains(&Home::Over(is));
        let failed = self.second.as_ref().is_some_and(|second| second.failed);
        let told = (self.answered && over(false)) || (failed && over(true));
        (over(true) && over(false)) || told
    }

    /// Nobody waits, nothing is kept, and it came to be everywhere if it did anywhere; or it is in
    /// doubt, as nobody is left who knows.
    fn is_settled(&self) -> bool {
        if self.is_lost() {
            return true;
        }
        let waits = self.homes.contains(&Home::Prepared);
        let same = !self.answered || self.homes.iter().all(|home| *home == Home::Over(true));
        let undecided = self.undecided.is_some() || !self.untold.is_empty();
        let asks = self.second.as_ref().is_some_and(|second| second.asks);
        let keeps = !self.is_removed() && (undecided || asks);
        let witness = self.second.as_ref().filter(|second| !second.gone);
        let kept = witness.is_some_and(|second| second.witnessed.is_some());
        !waits && !keeps && !kept && same
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

fn explored((deaths, copies): (usize, bool), without: Option<Rule>) -> Found {
    let first = World::new(deaths, copies);
    let mut known = BTreeMap::from([(first.clone(), 0)]);
    // By their numbers: from which each comes.
    let mut from: Vec<Vec<usize>> = vec![Vec::new()];
    let (mut left, mut settled) = (vec![(first, 0)], Vec::new());
    while let Some((world, at)) = left.pop() {
        if world.is_wrong() {
            return Found::Wrong;
        }
        settled.extend(world.is_settled().then_some(at));
        for next in world.next(without) {
            let new = from.len();
            let number = *known.entry(next.clone()).or_insert(new);
            if number == new {
                from.push(Vec::new());
                left.push((next, number));
            }
            from[number].push(at);
        }
    }
    let mut settles = vec![false; from.len()];
    let mut left = settled;
    while let Some(at) = left.pop() {
        if !std::mem::replace(&mut settles[at], true) {
            left.extend(&from[at]);
        }
    }
    if settles.iter().all(|is| *is) { Found::Right(from.len()) } else { Found::Stuck }
}

#[test]
fn both_homes_do_the_same_and_nobody_waits_for_ever_wherever_processes_die() {
    for deaths in 0..3 {
        let found = explored((deaths, false), None);
        assert!(matches!(found, Found::Right(states) if states > 100), "{deaths}: {found:?}");
        eprintln!("{deaths} deaths: {found:?}");
    }
}

#[test]
fn so_it_is_where_machines_are_lost_as_long_as_one_is_left_that_knows() {
    for deaths in 0..3 {
        let found = explored((deaths, true), None);
        assert!(matches!(found, Found::Right(states) if states > 1000), "{deaths}: {found:?}");
        eprintln!("{deaths} deaths: {found:?}");
    }
}

#[test]
fn each_rule_is_needed() {
    for rule in [Rule::KeepUntilTold, Rule::SayUndecided, Rule::PrepareFirst] {
        assert_eq!(explored((1, false), Some(rule)), Found::Wrong, "{rule:?}");
    }
    assert_eq!(explored((1, false), Some(Rule::Answer)), Found::Stuck);
    for rule in [
        Rule::WitnessFirst,
        Rule::WriteThatItAsks,
        Rule::ReleaseFirst,
        Rule::FailLast,
        Rule::KeepTheWitness,
        Rule::AskOfTheRemoved,
        Rule::RefuseTheRemoved,
        Rule::KeepOrder,
        Rule::OnlyTheWitness,
    ] {
        assert_eq!(explored((2, true), Some(rule)), Found::Wrong, "{rule:?}");
    }
    assert_eq!(explored((1, true), Some(Rule::WitnessTells)), Found::Stuck);
}
