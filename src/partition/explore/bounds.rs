//! How much of each thing may happen in a search.

use std::time::Duration;

use crate::terms::Terms;

/// The clocks' unit: nothing happens between two of these.
pub(crate) const UNIT_NS: u64 = 1000;

/// Terms that a few units are enough for: a lease is over after one by its holder's clock, and
/// after two by the lender's.
pub(crate) const TERMS: Terms = Terms {
    lease: Duration::from_nanos(UNIT_NS),
    drift_per_mille: 10,
    patience: Duration::from_nanos(3 * UNIT_NS),
    calm: Duration::from_nanos(UNIT_NS),
};

/// What may happen, how often.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    /// Things: each is born on the server of its index.
    pub(crate) things: usize,
    /// Changes that clients begin, on any server and thing.
    pub(crate) changes: u8,
    /// Whether every other one of these is to be made where its client is.
    pub(crate) takes: bool,
    /// Looks that clients have to wait for, on any server and thing.
    pub(crate) looks: u8,
    /// Whether every other one of these is for what no copy says.
    pub(crate) finds: bool,
    /// Whether who has changed something is still changing it until he says that he is not.
    pub(crate) in_use: bool,
    /// Units of time that pass.
    pub(crate) time: u8,
    /// Processes that die, and are followed by others.
    pub(crate) crashes: u8,
    /// Whether they also die in the middle of a step: it is written down, and nothing is done.
    pub(crate) halts: bool,
    /// Machines that are lost.
    pub(crate) deaths: u8,
    /// Members that are removed though they live.
    pub(crate) fences: u8,
    /// Sessions that break, and begin anew.
    pub(crate) cuts: u8,
    /// Frames that come twice.
    pub(crate) doubles: u8,
    /// Frames that come before the one sent before them.
    pub(crate) swaps: u8,
    /// Times that a server gives something back unasked.
    pub(crate) returns: u8,
    /// Times that a change for another member, or what it wants to find, must wait.
    pub(crate) delays: u8,
    /// Times that something is too large to be given to another server.
    pub(crate) larges: u8,
    /// Nobody is removed, and nobody has to wait for long: then nothing fails.
    pub(crate) is_calm: bool,
}

impl Bounds {
    /// Nothing happens.
    pub(crate) const NONE: Bounds = Bounds {
        things: 1,
        changes: 0,
        takes: false,
        looks: 0,
        finds: false,
        in_use: false,
        time: 0,
        crashes: 0,
        halts: false,
        deaths: 0,
        fences: 0,
        cuts: 0,
        doubles: 0,
        swaps: 0,
        returns: 0,
        delays: 0,
        larges: 0,
        is_calm: false,
    };
}

/// What there is, and what may happen.
impl std::fmt::Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let times = [
            ("things", self.things as u8),
            ("changes", self.changes),
            ("of which every other one takes", u8::from(self.takes)),
            ("looks", self.looks),
            ("of which every other one finds", u8::from(self.finds)),
            ("in use", u8::from(self.in_use)),
            ("units of time", self.time),
            ("crashes", self.crashes),
            ("also within steps", u8::from(self.halts)),
            ("deaths", self.deaths),
            ("fences", self.fences),
            ("cuts", self.cuts),
            ("doubles", self.doubles),
            ("swaps", self.swaps),
            ("returns", self.returns),
            ("delays", self.delays),
            ("times too large", self.larges),
        ];
        let some = times.iter().filter(|(_, count)| *count > 0);
        let some: Vec<String> = some.map(|(what, count)| format!("{what} {count}")).collect();
        f.write_str(&some.join(", "))
    }
}
