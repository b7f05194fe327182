//! Long walks through what can happen, by a seed: far more of everything than a search can bear,
//! clocks that differ by the bound, time that passes in any portions. `TERRAL_SEED=N` walks one.

use crate::fitting::tests::with_at_most;
use crate::seeds::seeds;

use super::bounds::{Bounds, UNIT_NS};
use super::chance::Chance;
use super::search::{Taken, enabled};
use super::settling::Settling;
use super::step::Step;
use super::world::World;

/// So much of everything.
pub(super) const MUCH: Bounds = Bounds {
    things: 2,
    changes: 40,
    looks: 40,
    takes: false,
    finds: false,
    in_use: true,
    time: 200,
    crashes: 3,
    halts: true,
    deaths: 1,
    fences: 1,
    cuts: 5,
    doubles: 10,
    swaps: 10,
    returns: 10,
    delays: 6,
    larges: 8,
    is_calm: false,
};

/// Seeds that have found something: they are walked in every build.
const FOUND: [u64; 1] = [5087];

/// Steps of a walk, at most.
const STEPS: usize = 1500;

fn is_failure((step, halts): &Taken) -> bool {
    let rare = [Step::Crash { server: 0 }, Step::Die { server: 0 }, Step::Remove { server: 0 }];
    let kind = std::mem::discriminant(step);
    let cut = Step::Cut { one: 0, other: 0 };
    let part = Step::Part { one: 0, other: 0 };
    *halts || rare.iter().chain([&cut, &part]).any(|one| std::mem::discriminant(one) == kind)
}

/// One of the steps that can be taken, most often none in which something goes wrong.
pub(super) fn likely(world: &World, chance: &mut Chance) -> Option<Taken> {
    let steps = enabled(world);
    if steps.is_empty() {
        return None;
    }
    loop {
        let (step, halts) = steps[chance.below(steps.len())];
        if is_failure(&(step, halts)) && chance.below(60) != 0 {
            continue;
        }
        let pass = |ns| (Step::Pass { ns }, halts);
        let passes = matches!(step, Step::Pass { .. });
        return Some(if passes {
            pass(chance.below(UNIT_NS as usize) as u64)
        } else {
            (step, halts)
        });
    }
}

/// What broke, if something did, and the steps that led there. With `finds`, every other look is
/// for what no copy says.
fn walk(seed: u64, finds: bool) -> Result<usize, (String, Vec<Taken>)> {
    let mut chance = Chance::new(seed);
    let in_use = chance.below(2) == 0;
    let takes = chance.below(3) == 0;
    let mut world = World::new(Bounds { in_use, takes, finds, ..MUCH });
    world.rates = std::array::from_fn(|_: usize| 1000 + chance.below(11) as u64);
    let mut path = Vec::new();
    while path.len() < STEPS {
        let Some((step, halts)) = likely(&world, &mut chance) else { break };
        path.push((step, halts));
        let next = world.after(step, halts).map_err(|what| (what, path.clone()))?;
        world.records_lead_to(&next);
        world = next;
    }
    let settled = Settling::default().settle(&world);
    settled.map_err(|(what, after)| {
        let after = after.into_iter().map(|step| (step, false));
        (what, path.iter().copied().chain(after).collect())
    })?;
    Ok(path.len())
}

#[test]
#[allow(clippy::print_stdout)] // How far it went.
fn long_walks_break_no_promise() {
    let large = std::env::var_os("TERRAL_EXPLORE").is_some();
    let seeds = seeds(if large { 10_000 } else { 400 });
    // Who asks for one has that alone.
    let one = seeds.end - seeds.start == 1;
    let again: Vec<u64> = FOUND.into_iter().filter(|it| !one && !seeds.contains(it)).collect();
    let (mut walks, mut steps) = (0, 0);
    for seed in seeds.chain(again) {
        // In every other one, frames hold one message, so that what is said at once is parted.
        let most = if seed % 2 == 0 { 1 } else { usize::MAX };
        for finds in [false, true] {
            match with_at_most(most, || walk(seed, finds)) {
                Ok(took) => steps += took,
                Err((what, path)) => {
                    path.iter().for_each(|taken| println!("  {taken:?}"));
                    panic!("TERRAL_SEED={seed}, finds {finds}: {what}");
                }
            }
            walks += 1;
        }
    }
    println!("{walks} walks, {steps} steps");
    assert!(steps > walks * 200, "walks are short");
}
