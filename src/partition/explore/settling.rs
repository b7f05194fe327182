//! What becomes of a state once nothing goes wrong any more: dead processes are followed by others,
//! lost machines are removed, frames arrive, clients leave what is recalled, time passes. Every
//! request must come to its end, by an answer or by an error that names a member.

use std::collections::HashSet;

use super::bounds::{Bounds, UNIT_NS};
use super::oracle::State;
use super::server::{SERVERS, THINGS};
use super::step::Step;
use super::world::World;

/// So many rounds are enough for what was bounded; in each all that can happen does, once.
const ROUNDS: usize = 60;

/// States that are known to come to an end.
#[derive(Default)]
pub(crate) struct Settling {
    ending: HashSet<u64>,
}

impl Settling {
    /// Lets a state come to its end. The steps that were taken, if it does not.
    pub(crate) fn settle(&mut self, world: &World) -> Result<(), (String, Vec<Step>)> {
        let mut world = world.clone();
        let Bounds { things, in_use, is_calm, .. } = world.left;
        world.left = Bounds { things, in_use, is_calm, ..Bounds::NONE };
        let (mut path, mut steps) = (Vec::new(), Vec::new());
        reconnect(&mut world, &mut steps).map_err(|what| (what, steps.clone()))?;
        for _ in 0..ROUNDS {
            path.push(world.hash());
            if is_settled(&world) || self.ending.contains(&world.hash()) {
                self.ending.extend(path);
                return Ok(());
            }
            round(&mut world, &mut steps).map_err(|what| (what, steps.clone()))?;
        }
        Err(("a request does not come to an end".to_owned(), steps))
    }
}

/// What was overtaken is not taken before there is another session, as with what was lost.
fn reconnect(world: &mut World, steps: &mut Vec<Step>) -> Result<(), String> {
    let pairs = [(0, 1), (0, 2), (1, 2)];
    for (one, other) in pairs {
        if world.has_gaps && world.is_up(one) && world.is_up(other) {
            world.left.cuts += 1;
            steps.push(Step::Cut { one, other });
            *world = world.after(Step::Cut { one, other }, false)?;
        }
    }
    world.has_gaps = false;
    Ok(())
}

fn is_settled(world: &World) -> bool {
    let mut all = world.oracle.requests.values();
    all.all(|request| request.state != State::Open || world.is_lost(request.server))
}

/// All that can happen, each once; if nothing can, time passes.
fn round(world: &mut World, steps: &mut Vec<Step>) -> Result<(), String> {
    let before = steps.len();
    let mut take = |world: &mut World, step| {
        steps.push(step);
        *world = world.after(step, false)?;
        Ok::<(), String>(())
    };
    for server in 0..SERVERS {
        if world.is_lost(server) && world.may_remove(server) {
            take(world, Step::Remove { server })?;
        }
        if world.is_down(server) {
            take(world, Step::Restart { server })?;
        }
        if world.has_news(server) && world.is_up(server) {
            take(world, Step::Tell { server })?;
        }
    }
    for (from, to) in (0..SERVERS).flat_map(|from| (0..SERVERS).map(move |to| (from, to))) {
        if world.is_up(to) && !world.wire(from, to).is_empty() {
            take(world, Step::Deliver { from, to })?;
        }
    }
    for server in 0..SERVERS {
        for thing in
            (0..THINGS).filter(|at| world.server(server).recalling[*at]).collect::<Vec<_>>()
        {
            take(world, Step::Leave { server, thing })?;
        }
        while !world.server(server).later.is_empty() {
            take(world, Step::Again { server })?;
        }
        for request in world.server(server).ready.clone() {
            take(world, Step::Run { server, request })?;
        }
    }
    if steps.len() == before {
        let pass = Step::Pass { ns: UNIT_NS };
        steps.push(pass);
        *world = world.after(pass, false)?;
        for server in (0..SERVERS).filter(|at| world.is_up(*at)).collect::<Vec<_>>() {
            steps.push(Step::Tick { server });
            *world = world.after(Step::Tick { server }, false)?;
        }
    }
    Ok(())
}
