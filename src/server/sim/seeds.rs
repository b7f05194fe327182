//! The schedules that are run: so many, or as the environment says (`crate::seeds`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::schedule::{Disk, Schedule, Weather};
use crate::core::world::World;

/// Nothing goes wrong.
pub const QUIET: Weather = Weather {
    kills: false,
    defers: false,
    faults: false,
    cramped: false,
    disk: Disk::None,
    links: false,
    transacts: false,
    specials: false,
    users: false,
    freezes: false,
    xattrs: false,
    locks: false,
    maps: false,
    expires: false,
    clocks: false,
    others: false,
    directories: false,
    flaw: None,
};

/// Whatever dies or fails.
const ALL: Weather = Weather { kills: true, defers: true, faults: true, ..QUIET };

/// Those that are run, if it is not said otherwise.
fn seeds(usual: u64) -> Vec<u64> {
    crate::seeds::seeds(usual).collect()
}

/// Runs schedules; one that fails is named, so that it can be run again. Gives how many servers
/// were killed.
fn run(seeds: &[u64], steps: usize, weather: Weather) -> u64 {
    let mut killed = 0;
    for seed in seeds {
        let ran = catch_unwind(AssertUnwindSafe(|| Schedule::new(*seed, 3, weather).run(steps)));
        match ran {
            Ok(sim) => killed += sim.killed,
            Err(why) => {
                eprintln!("schedule {seed} fails: TERRAL_SEED={seed} runs it again; {weather:?}");
                resume_unwind(why);
            }
        }
    }
    killed
}

#[test]
fn clients_get_what_they_must_and_so_does_the_permanent_store() {
    assert_eq!(run(&seeds(50), 200, Weather::default()), 0);
}

#[test]
fn what_was_answered_is_there_wherever_servers_and_clients_are_killed() {
    let seeds = seeds(100);
    let killed = run(&seeds, 200, Weather { kills: true, ..Weather::default() });
    assert!(killed > seeds.len() as u64, "{killed} servers killed in {} schedules", seeds.len());
}

#[test]
fn what_was_committed_without_waiting_is_there_too() {
    run(&seeds(100), 300, Weather { defers: true, ..Weather::default() });
    run(&seeds(100), 300, Weather { defers: true, kills: true, ..Weather::default() });
}

#[test]
fn nothing_is_lost_while_the_permanent_store_fails() {
    run(&seeds(100), 300, Weather { faults: true, ..Weather::default() });
}

#[test]
fn nothing_is_lost_whatever_fails_and_dies() {
    run(&seeds(60), 300, ALL);
}

#[test]
fn files_with_several_names_or_none_are_what_they_must_be() {
    let quiet = Weather { links: true, ..Weather::default() };
    run(&seeds(40), 300, quiet);
    let weather = Weather { kills: true, defers: true, ..quiet };
    run(&seeds(60), 300, weather);
    // One that lost a name: after a rewrite of the log, a replay chose another first one.
    run(&[721], 300, weather);
}

#[test]
fn files_with_several_names_are_brought_whatever_fails_and_dies() {
    let weather = Weather { links: true, ..ALL };
    run(&seeds(40), 300, weather);
    // One in which a link took the name of somebody else's file, and one in which a name stayed as
    // the file's other name, where it was then, was below a file in the store.
    run(&[41, 1451], 300, weather);
}

#[test]
fn of_a_transaction_all_is_there_or_nothing_whatever_dies_or_fails() {
    let quiet = Weather { transacts: true, links: true, ..QUIET };
    run(&seeds(40), 300, quiet);
    run(&seeds(60), 300, Weather { kills: true, defers: true, ..quiet });
    run(&seeds(20), 300, Weather { transacts: true, ..ALL });
    // What is open loses its names where memory is full: in 460, two files at once.
    let cramped = Weather { kills: true, defers: true, cramped: true, ..quiet };
    run(&[seeds(4), vec![460]].concat(), 1000, cramped);
}

#[test]
fn symbolic_links_and_fifos_are_what_they_must_be() {
    let quiet = Weather { specials: true, ..QUIET };
    run(&seeds(40), 300, Weather { links: true, ..quiet });
    run(&seeds(60), 300, Weather { kills: true, defers: true, ..quiet });
    run(&seeds(40), 300, Weather { specials: true, ..ALL });
}

#[test]
fn users_do_what_they_may_and_nothing_else_and_what_they_make_is_theirs() {
    let quiet = Weather { users: true, ..QUIET };
    run(&seeds(60), 300, Weather { specials: true, ..quiet });
    run(&seeds(60), 300, Weather { kills: true, defers: true, ..quiet });
    run(&seeds(40), 300, Weather { users: true, ..ALL });
    // One in which a mode did not arrive: it was changed when nobody knew whether the file had.
    run(&[1044], 300, Weather { users: true, ..ALL });
}

#[test]
fn who_is_stopped_or_killed_in_the_middle_of_a_copy_spoils_nothing() {
    let weather = Weather { freezes: true, ..Weather::default() };
    run(&seeds(40), 300, weather);
    let killed = Weather { kills: true, defers: true, ..weather };
    run(&seeds(60), 300, killed);
    // One in which a write that outlived its chunk, and the server, went into another file.
    run(&[944], 300, killed);
}

#[test]
fn extended_attributes_are_what_they_must_be_here_and_there() {
    run(&seeds(40), 300, Weather { xattrs: true, links: true, ..QUIET });
    run(&seeds(60), 300, Weather { xattrs: true, kills: true, defers: true, ..QUIET });
}

#[test]
fn nobody_has_a_lock_that_is_in_the_way_of_anothers() {
    run(&seeds(40), 300, Weather { locks: true, links: true, ..QUIET });
    run(&seeds(60), 300, Weather { locks: true, kills: true, defers: true, ..QUIET });
}

#[test]
fn what_is_stored_through_maps_is_there_and_what_others_write_is_seen_through_them() {
    let quiet = Weather { maps: true, ..QUIET };
    run(&seeds(60), 300, Weather { links: true, ..quiet });
    run(&seeds(60), 300, Weather { kills: true, defers: true, ..quiet });
    run(&seeds(40), 300, Weather { freezes: true, kills: true, ..quiet });
    // In 363 a file is closed while another thread of its program maps it.
    run(&[seeds(10), vec![363]].concat(), 1000, Weather { cramped: true, ..quiet });
    let full = Weather { cramped: true, disk: Disk::Sound, ..quiet };
    run(&seeds(10), 1000, Weather { kills: true, defers: true, ..full });
}

#[test]
fn what_a_client_may_do_ends_in_time_and_what_it_had_committed_counts() {
    let quiet = Weather { expires: true, xattrs: true, links: true, ..QUIET };
    run(&seeds(60), 300, quiet);
    run(&seeds(60), 300, Weather { kills: true, defers: true, ..quiet });
    run(&seeds(40), 300, Weather { freezes: true, defers: true, maps: true, ..quiet });
}

#[test]
fn clocks_may_jump() {
    run(&seeds(40), 300, Weather { clocks: true, kills: true, defers: true, ..QUIET });
    run(&seeds(40), 300, Weather { clocks: true, faults: true, ..QUIET });
}

#[test]
fn nothing_of_others_is_lost_and_nothing_of_ours() {
    run(&seeds(60), 300, Weather { others: true, ..QUIET });
    run(&seeds(60), 300, Weather { others: true, kills: true, defers: true, ..QUIET });
    // Some in which they removed a file that was renamed over an older one, which stayed.
    run(&[1669], 300, Weather { others: true, ..QUIET });
    run(&[862], 300, Weather { others: true, kills: true, defers: true, ..QUIET });
}

#[test]
fn directories_that_others_remove_are_made_anew_for_what_comes() {
    let quiet = Weather { others: true, directories: true, ..QUIET };
    run(&seeds(60), 300, quiet);
    let weather = Weather { kills: true, defers: true, ..quiet };
    run(&seeds(60), 300, weather);
    // One in which a file was opened by a name whose removal was committed and waited.
    run(&[520], 300, weather);
}

#[test]
fn memory_may_be_smaller_than_what_is_written() {
    let quiet = Weather { cramped: true, ..Weather::default() };
    let parked: u64 =
        seeds(10).iter().map(|seed| Schedule::new(*seed, 3, quiet).run(1000).parked).sum();
    assert!(parked > 0, "memory was never full");
    let weather = Weather { kills: true, defers: true, ..quiet };
    run(&seeds(20), 1000, weather);
    // Schedules that lost a byte, never ended, or listed a name whose removal was committed and
    // waited for memory.
    run(&[27, 73, 613], 1000, weather);
}

#[test]
fn what_does_not_fit_in_memory_goes_to_a_disk_and_comes_back() {
    let quiet = Weather { disk: Disk::Sound, cramped: true, ..QUIET };
    let moved = (0..10).map(|seed| Schedule::new(seed, 3, quiet).run(1000).disk);
    let moved: Vec<_> = moved.flatten().map(|disk| disk.moved()).collect();
    let both = moved.iter().filter(|(there, back)| *there > 0 && *back > 0);
    assert!(both.count() > 5, "{moved:?}");
    run(&seeds(10), 1000, Weather { freezes: true, ..quiet });
    run(&seeds(20), 1000, Weather { kills: true, defers: true, freezes: true, ..quiet });
    run(&seeds(10), 1000, Weather { links: true, faults: true, ..quiet });
}

#[test]
fn nothing_is_lost_on_a_disk_that_fails_and_what_that_loses_is_an_error() {
    let failing = Weather { disk: Disk::Failing, cramped: true, ..QUIET };
    run(&seeds(20), 1000, Weather { kills: true, defers: true, ..failing });
    let corrupting = Weather { disk: Disk::Corrupting, ..failing };
    run(&seeds(10), 1000, corrupting);
    run(&seeds(20), 1000, Weather { kills: true, defers: true, ..corrupting });
}

#[test]
fn logs_are_rewritten_in_schedules() {
    let weather = Weather { kills: true, defers: true, ..Weather::default() };
    let sims = (0..10).map(|seed| Schedule::new(seed, 3, weather).run(300));
    assert!(sims.map(|sim| sim.kept.log.rewritten()).sum::<u64>() > 0);
}

#[test]
fn one_seed_is_one_run() {
    let run = || {
        let weather = Weather { kills: true, defers: true, faults: true, ..Weather::default() };
        let sim = Schedule::new(7, 3, weather).run(300);
        (sim.killed, sim.world.now(), sim.dir.tree(), sim.kept.log.transactions())
    };
    assert!(run() == run());
}
