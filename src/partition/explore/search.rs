//! All states that can be reached within bounds, shortest way first. In each: nothing that was
//! promised is broken, and everything comes to an end if nothing goes wrong from there on.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::bounds::{Bounds, UNIT_NS};
use super::server::SERVERS;
use super::settling::Settling;
use super::step::Step;
use super::world::{Pools, World};
use crate::effect::Access;

/// A step, and whether the process that takes it dies.
pub(crate) type Taken = (Step, bool);

/// What was found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) took: Duration,
}

/// Of what came after, so much is shown.
const SHOWN: usize = 20;

/// A promise that was broken, and how.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) what: String,
    pub(crate) states: usize,
    pub(crate) trace: Vec<Taken>,
    /// What came after, when nothing went wrong any more.
    pub(crate) settling: Vec<Step>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} (state {}):", self.what, self.states)?;
        for (step, halts) in &self.trace {
            writeln!(f, "  {step:?}{}", if *halts { " and dies" } else { "" })?;
        }
        self.settling.iter().take(SHOWN).try_for_each(|step| writeln!(f, "  then {step:?}"))
    }
}

/// Looks at all states within `bounds`, or at the first `most`, that come after some steps.
pub(crate) fn search(
    steps_before: &[Step],
    bounds: Bounds,
    most: usize,
) -> Result<Report, Box<Broken>> {
    let began = Instant::now();
    let before = Bounds { changes: 9, looks: 9, time: 9, deaths: 9, fences: 9, ..bounds };
    let mut first = World::new(before);
    let mut pools = Pools::default();
    for step in steps_before {
        let after = first.after(*step, false);
        first = after.unwrap_or_else(|what| panic!("{step:?}, before the search: {what}"));
    }
    first.left = bounds;
    let mut seen: HashMap<u64, (u64, Taken)> = HashMap::new();
    seen.insert(first.hash(), (0, (Step::Pass { ns: 0 }, false)));
    let (mut open, mut settling, mut steps) = (VecDeque::from([first]), Settling::default(), 0);
    while let Some(world) = open.pop_front().filter(|_| seen.len() < most) {
        let from = world.hash();
        let broken = |what, last: Option<Taken>, settling, states| {
            let trace = trace(&seen, from).into_iter().chain(last).collect();
            Box::new(Broken { what, states, trace, settling })
        };
        if let Err((what, after)) = settling.settle(&world) {
            return Err(broken(what, None, after, seen.len()));
        }
        let mut found = Vec::new();
        for (step, halts) in enabled(&world) {
            steps += 1;
            match world.after(step, halts) {
                Ok(next) => found.push((next, (step, halts))),
                Err(what) => return Err(broken(what, Some((step, halts)), vec![], seen.len())),
            }
        }
        for (mut next, taken) in found {
            let hash = next.hash();
            if let Entry::Vacant(vacant) = seen.entry(hash) {
                vacant.insert((from, taken));
                world.records_lead_to(&next);
                next.share(&mut pools);
                open.push_back(next);
            }
        }
    }
    Ok(Report { states: seen.len(), steps, took: began.elapsed() })
}

fn trace(seen: &HashMap<u64, (u64, Taken)>, mut at: u64) -> Vec<Taken> {
    let mut steps = Vec::new();
    while let Some((before, taken)) = seen.get(&at).filter(|(before, _)| *before != 0) {
        steps.push(*taken);
        at = *before;
    }
    steps.reverse();
    steps
}

/// All that can happen next.
pub(crate) fn enabled(world: &World) -> Vec<Taken> {
    let mut steps = Vec::new();
    (0..SERVERS).for_each(|server| on_server(world, server, &mut steps));
    (0..SERVERS).for_each(|from| (0..SERVERS).for_each(|to| between(world, from, to, &mut steps)));
    if world.left.time > 0 {
        steps.push(Step::Pass { ns: UNIT_NS });
    }
    let dies = |step: &Step| {
        let up = step.server().is_some_and(|server| world.is_up(server));
        up && world.left.halts && world.left.crashes > 0
    };
    let halting: Vec<Taken> = steps.iter().filter(|s| dies(s)).map(|step| (*step, true)).collect();
    steps.into_iter().map(|step| (step, false)).chain(halting).collect()
}

fn on_server(world: &World, server: usize, steps: &mut Vec<Step>) {
    let (left, here) = (&world.left, world.server(server));
    for thing in (0..left.things).filter(|_| world.serves(server)) {
        if left.changes > 0 {
            steps.push(Step::Begin { server, thing, changes: true });
        }
        if left.looks > 0 && !here.shows(thing, world.clock(server)) {
            steps.push(Step::Begin { server, thing, changes: false });
        }
    }
    if world.is_down(server) {
        steps.push(Step::Restart { server });
    }
    let may_remove = left.fences > 0 || world.is_lost(server);
    if world.may_remove(server) && may_remove {
        steps.push(Step::Remove { server });
    }
    if left.deaths > 0 && !world.is_lost(server) {
        steps.push(Step::Die { server });
    }
    if world.is_up(server) {
        of_process(world, server, steps);
    }
}

fn of_process(world: &World, server: usize, steps: &mut Vec<Step>) {
    let (left, here) = (&world.left, world.server(server));
    for thing in 0..left.things {
        if here.recalling[thing] {
            steps.push(Step::Leave { server, thing });
        }
        if here.in_use.0[thing] {
            steps.push(Step::Rest { server, thing });
        }
        if left.returns > 0 && here.access[thing] != Access::Nothing {
            steps.push(Step::GiveBack { server, thing });
        }
    }
    steps.extend(here.ready.iter().map(|request| Step::Run { server, request: *request }));
    if !here.later.is_empty() {
        steps.push(Step::Again { server });
    }
    if !here.ticked && world.notices(server) {
        steps.push(Step::Tick { server });
    }
    if left.crashes > 0 {
        steps.push(Step::Crash { server });
    }
    if world.has_news(server) {
        steps.push(Step::Tell { server });
    }
}

fn between(world: &World, from: usize, to: usize, steps: &mut Vec<Step>) {
    let (left, frames) = (&world.left, world.wire(from, to).len());
    let is_busy = frames > 0 || !world.wire(to, from).is_empty();
    if left.cuts > 0 && from < to && is_busy && world.is_up(from) && world.is_up(to) {
        steps.push(Step::Cut { one: from, other: to });
        if left.doubles > 0 {
            steps.push(Step::Part { one: from, other: to });
        }
    }
    if !world.is_up(to) || frames == 0 {
        return;
    }
    steps.push(Step::Deliver { from, to });
    if left.doubles > 0 {
        steps.push(Step::Double { from, to });
    }
    if left.swaps > 0 && frames > 1 {
        steps.push(Step::Swap { from, to });
    }
}
