//! Rules of the protocol that a machine which is built for tests can be told to leave out: the
//! search must find what breaks then. Every other build keeps all of them.

/// A rule, and what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A loan to change ends by being given back, or by the control's verdict; never by a clock.
    LoansOutliveClocks,
    /// What is borrowed and over is taken away before the deadline is moved on.
    TakeAwayFirst,
    /// A message is kept, across sessions, until the other side says that it has taken it.
    KeepUntilTaken,
    /// Each message is taken once, also if it comes again.
    TakeOnce,
    /// A lease counts once all is taken that the lender said before it renewed it.
    RenewInOrder,
    /// Of frames that are sent at once, the last renews the lease.
    RenewWithTheLast,
    /// Copies are taken away, or their leases over, before somebody changes the thing.
    RecallCopies,
    /// The heir decides once all members have said what they have.
    GatherFirst,
    /// What a removed member had borrowed is not answered from what was there before.
    LostIsLost,
    /// A copy is kept for the heir only if its lease lasts when the removal is heard of.
    KeepWhatIsGood,
    /// A copy is kept for the heir only if who has shown it is proven to be dead.
    KeepOfTheDead,
    /// What was shown to a removed member that may live is not changed before its lease is over.
    WaitForTheFenced,
    /// A loan that was fetched for a request stays until that has run once.
    RunOnce,
    /// Who waits for a copy to be dropped renews no lease of its holder: a client that is stopped
    /// there is waited for no longer than that.
    WithholdRenewal,
    /// A member is heard only on what it decides, has borrowed, or wants.
    OnlyItsBusiness,
    /// A process takes it that the one before has just renewed all leases.
    PromiseAfterRestart,
}

/// Whether a rule is kept.
#[cfg(not(test))]
pub const fn keeps(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub use tests::keeps;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether a rule is kept, by machines of this thread.
    pub fn keeps(rule: Rule) -> bool {
        LEFT_OUT.get() != Some(rule)
    }

    /// What `act` gives if machines of this thread leave out this rule meanwhile.
    pub(crate) fn without<T>(rule: Rule, act: impl FnOnce() -> T) -> T {
        LEFT_OUT.set(Some(rule));
        let done = act();
        LEFT_OUT.set(None);
        done
    }
}
