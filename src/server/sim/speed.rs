//! How long a schedule takes. It asks the kernel, as no other part of the simulation does.

use super::schedule::{Disk, Schedule, Weather};
use super::seeds::QUIET;

/// Time that this thread has had a core for, microseconds: what else runs here does not count.
fn busy_us() -> u64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let busy_ns: u64 =
        said.split(' ').next().and_then(|busy| busy.parse().ok()).unwrap_or_default();
    busy_ns / 1000
}

#[test]
fn a_schedule_of_a_thousand_steps_takes_a_few_milliseconds() {
    let all = Weather { links: true, freezes: true, xattrs: true, locks: true, ..QUIET };
    let spills = |disk| Weather { disk, cramped: true, ..QUIET };
    for (name, weather) in [
        ("quiet", QUIET),
        ("all calls", all),
        ("servers and clients killed", Weather { kills: true, defers: true, ..all }),
        ("files larger than memory", spills(Disk::None)),
        ("with a spill", spills(Disk::Sound)),
        ("a spill that fails", spills(Disk::Failing)),
        ("a spill that loses bytes", spills(Disk::Corrupting)),
    ] {
        let mut took: Vec<u64> = (0..9)
            .map(|seed| {
                let begin = busy_us();
                Schedule::new(seed, 3, weather).run(1000);
                busy_us() - begin
            })
            .collect();
        took.sort_unstable();
        let median = took[took.len() / 2];
        eprintln!("a schedule of 1,000 steps, {name}: {}.{} ms", median / 1000, median / 100 % 10);
        // Less than 20 ms here; a debug build, or another machine, may take longer.
        assert!(median < 200_000, "{took:?} microseconds");
    }
}
