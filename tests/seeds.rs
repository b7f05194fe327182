//! Which seeds simulations try, in every room that has one: `TERRAL_SEEDS=N` so many,
//! `TERRAL_FIRST_SEED=N` from that one on, `TERRAL_SEED=N` that one alone. Each test says in one
//! line which it tries, also one that passes: a search is worth as much as what it has looked at.

use std::io::Write;
use std::ops::Range;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// Those that a test tries: so many, if nothing else is said.
///
/// # Panics
/// If none are to be tried: nothing would be found, and nobody would see that.
pub fn seeds(usual: u64) -> Range<u64> {
    let seeds = chosen(usual, number);
    assert!(!seeds.is_empty(), "no seed is tried");
    let test = std::thread::current();
    let name = test.name().unwrap_or("a simulation");
    // What macros print of a test that passes is kept back.
    let line = format!("{name}: seeds {} to {}\n", seeds.start, seeds.end - 1);
    let _ = std::io::stderr().write_all(line.as_bytes());
    seeds
}

fn chosen(usual: u64, number: impl Fn(&str) -> Option<u64>) -> Range<u64> {
    if let Some(one) = number("TERRAL_SEED") {
        return one..one + 1;
    }
    let first = number("TERRAL_FIRST_SEED").unwrap_or(0);
    first..first + number("TERRAL_SEEDS").unwrap_or(usual)
}

#[test]
fn seeds_are_those_that_the_environment_says() {
    let said = |all: &'static [(&str, u64)]| {
        chosen(20, |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    };
    assert_eq!(said(&[]), 0..20);
    assert_eq!(said(&[("TERRAL_SEEDS", 3)]), 0..3);
    assert_eq!(said(&[("TERRAL_FIRST_SEED", 1000)]), 1000..1020);
    assert_eq!(said(&[("TERRAL_FIRST_SEED", 1000), ("TERRAL_SEEDS", 3)]), 1000..1003);
    assert_eq!(said(&[("TERRAL_SEED", 7), ("TERRAL_FIRST_SEED", 9), ("TERRAL_SEEDS", 3)]), 7..8);
}
