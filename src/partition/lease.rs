//! The lease between two servers, which covers all that one has shown the other: this server's side
//! of it, in both directions. What it has counted is lost with the process, which is on the safe
//! side for who borrowed, and what `after_restart` is for in who lent.
//!
//! Invariant: what the holder takes for the lease's end has come, by any clock within the bound of
//! drift, before what the lender takes for it. The holder counts from when it sent what the lender
//! repeats, the lender from when it got that, and longer. Not here: what is shown.

use terral_format::ids::Member;
use terral_format::moment::Moment;

use crate::left_out::{Rule, keeps};
use crate::terms::Terms;

/// With one other server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The latest moment of its clock that it has said, and when we heard that.
    heard: Option<(Moment, Moment)>,
    /// Until when it may go by what we have shown it.
    promised: Moment,
    /// Until when we may go by what it has shown us.
    until: Moment,
}

impl Lease {
    /// With a server that may have been promised a term just before.
    pub fn after_restart(now: Moment, terms: &Terms) -> Self {
        if !keeps(Rule::PromiseAfterRestart) {
            return Lease::default();
        }
        Lease { promised: now + terms.promise(), ..Lease::default() }
    }

    /// The other server has said what time it has.
    pub fn hear(&mut self, sent: Moment, now: Moment) {
        if self.heard.is_none_or(|(latest, _)| sent > latest) {
            self.heard = Some((sent, now));
        }
    }

    /// Renews what we have promised; gives what is to be said of it.
    pub fn renew(&mut self, terms: &Terms) -> Option<Moment> {
        let (sent, heard) = self.heard?;
        self.promised = self.promised.max(heard + terms.promise());
        Some(sent)
    }

    /// Somebody else may have promised a term just before, and what that one promised counts here.
    pub fn inherit(&mut self, now: Moment, terms: &Terms) {
        self.promised = self.promised.max(now + terms.promise());
    }

    /// The other server has renewed what it promised, when it knew of what we `sent` then.
    pub fn renewed(&mut self, sent: Moment, now: Moment, terms: &Terms) {
        self.until = self.until.max(sent.min(now) + terms.lease);
    }

    /// Whether it may still go by what we have shown it.
    pub fn binds(&self, now: Moment) -> bool {
        now < self.promised
    }
}

/// All leases of a server, by the other one.
pub type Leases = std::collections::BTreeMap<Member, Lease>;

/// Until when we may go by what a member has shown us.
pub fn until(leases: &Leases, member: Member) -> Moment {
    leases.get(&member).map_or_else(Moment::default, |lease| lease.until)
}

#[cfg(test)]
mod tests {
    use super::Lease;
    use crate::terms::Terms;
    use terral_format::moment::Moment;

    #[test]
    fn the_holder_is_through_before_the_lender_however_long_the_way_takes() {
        let terms = Terms::USUAL;
        for way_ns in [0, 1, 4_000_000_000, 9_000_000_000] {
            let (mut lender, mut holder) = (Lease::default(), Lease::default());
            assert_eq!(lender.renew(&terms), None);
            lender.hear(Moment(100), Moment(100 + way_ns));
            let said = lender.renew(&terms).expect("it has heard");
            holder.renewed(said, Moment(100 + 2 * way_ns), &terms);
            // By the lender's clock, which is one in a hundred faster.
            let over = holder.until.0 + holder.until.0 / 100;
            assert!(lender.binds(Moment(over - 100)), "{way_ns}");
            assert!(!lender.binds(Moment(over + way_ns + 200)), "{way_ns}");
        }
    }

    #[test]
    fn what_comes_late_renews_nothing_and_the_future_is_not_believed() {
        let (terms, mut lease) = (Terms::USUAL, Lease::default());
        lease.hear(Moment(9), Moment(10));
        lease.hear(Moment(5), Moment(99));
        assert_eq!(lease.renew(&terms), Some(Moment(9)));
        assert!(!lease.binds(Moment(10) + terms.promise()));
        lease.renewed(Moment(u64::MAX), Moment(7), &terms);
        assert_eq!(lease.until, Moment(7) + terms.lease);
    }
}
