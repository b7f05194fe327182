//! What is proved in full only when there is time: `TERRAL_TEST_LONG=1`, which `make soak` sets.
#![allow(clippy::print_stdout)] // What is skipped is said.

/// Whether there is time; says what is left out if there is not.
pub fn is_time_for(what: &str) -> bool {
    let long = std::env::var_os("TERRAL_TEST_LONG").is_some_and(|value| value == "1");
    if !long {
        println!("skipped: {what}: set TERRAL_TEST_LONG=1, as `make soak` does");
    }
    long
}
