//! Flaws that a server could have, put in on purpose: schedules that find none of them find
//! nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terral_format::disk::Record;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_store::private::Forgets;

use super::schedule::{Schedule, Weather};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It does not remember what it answered.
    Answers,
    /// It does not log that it changes a file in place.
    Intents,
    /// It does not log what of names was brought.
    Brought,
}

impl Flaw {
    /// The records that it does not write.
    pub fn forgets(self) -> Forgets {
        match self {
            Flaw::Answers => |record| matches!(record, Record::Local(Local::Answered { .. })),
            Flaw::Intents => |record| matches!(record, Record::Local(Local::Intent { .. })),
            Flaw::Brought => |record| matches!(record, Record::Fact(Fact::NamesDrained(_))),
        }
    }
}

/// The first schedule that fails, if one of so many does.
fn caught(weather: Weather, seeds: u64) -> Option<u64> {
    let fails = |seed: &u64| {
        catch_unwind(AssertUnwindSafe(|| Schedule::new(*seed, 3, weather).run(300))).is_err()
    };
    (0..seeds).find(fails)
}

#[test]
fn a_server_that_forgets_to_log_something_is_caught() {
    for flaw in [Flaw::Answers, Flaw::Intents, Flaw::Brought] {
        let weather = Weather { kills: true, defers: true, flaw: Some(flaw), ..Weather::default() };
        assert!(caught(weather, 60).is_some(), "{flaw:?}");
    }
}

#[test]
fn a_server_that_leaves_a_step_out_is_caught() {
    let kills = Weather { kills: true, ..Weather::default() };
    for (step, weather, seeds) in [
        (Step::RememberAnswer, Weather { defers: true, ..kills }, 60),
        (Step::KeepDirty, Weather { cramped: true, ..kills }, 60),
        (Step::Announce, Weather { defers: true, ..kills }, 4000),
        (Step::CopyAnew, Weather { freezes: true, ..Weather::default() }, 400),
        (Step::Together, Weather { transacts: true, ..Weather::default() }, 60),
        (Step::CompareThere, Weather { others: true, ..Weather::default() }, 60),
    ] {
        let found = without(step, || caught(weather, seeds));
        eprintln!("without {step:?}: schedule {found:?} fails");
        assert!(found.is_some(), "{step:?}");
    }
}
