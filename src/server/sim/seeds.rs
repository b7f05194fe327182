//! The schedules that are run, and what one takes. `TERRAL_SEED=N` runs that one alone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::schedule::Schedule;

fn seeds(count: u64) -> Vec<u64> {
    let one = std::env::var("TERRAL_SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or_else(|| (0..count).collect(), |seed| vec![seed])
}

/// Runs schedules; one that fails is named, so that it can be run again. Gives servers killed.
fn run(count: u64, steps: usize, kills: bool) -> u64 {
    let mut killed = 0;
    for seed in seeds(count) {
        let ran = catch_unwind(AssertUnwindSafe(|| Schedule::new(seed, 3, kills).run(steps)));
        match ran {
            Ok(sim) => killed += sim.killed,
            Err(why) => {
                eprintln!("schedule {seed} fails: TERRAL_SEED={seed} runs it again");
                resume_unwind(why);
            }
        }
    }
    killed
}

#[test]
fn clients_get_what_they_must_and_so_does_the_permanent_store() {
    run(seeds_count(50), 200, false);
}

#[test]
fn what_was_answered_is_there_wherever_servers_and_clients_are_killed() {
    let begin = Instant::now();
    let killed = run(seeds_count(100), 200, true);
    println!("{killed} servers killed in {:?}", begin.elapsed());
}

fn seeds_count(usual: u64) -> u64 {
    std::env::var("TERRAL_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}
