//! The roster that counts here, as it is written down: who is in, and, each by itself, what all go
//! by.

use terral_format::disk::membership::Membership;
use terral_format::wire::roster::Roster;

use super::Members;

impl Members {
    /// These are in. What is written down beside it stays as it is.
    pub(super) fn are_seated(&mut self, roster: &Roster) {
        let policies = std::mem::take(&mut self.roster.policies);
        let certificates = std::mem::take(&mut self.roster.certificates);
        let placement = std::mem::take(&mut self.roster.placement);
        let authorities = std::mem::take(&mut self.roster.authorities);
        let answers = std::mem::take(&mut self.roster.answers);
        let beside = Roster { answers, ..roster.clone() };
        self.roster = Roster { policies, certificates, placement, authorities, ..beside };
    }

    /// The records that lead to the roster that counts here, and what is beside it.
    pub(super) fn rostered(&self) -> impl Iterator<Item = Membership> + use<> {
        let of = &self.roster;
        let authorities =
            (!of.authorities.is_empty()).then(|| Membership::Authorities(of.authorities.clone()));
        let answers = (!of.answers.is_empty()).then(|| Membership::Answers(of.answers.clone()));
        let all = [
            Membership::Roster(of.clone()),
            Membership::Certificates(of.certificates.clone()),
            Membership::Policies(of.policies.clone()),
            Membership::Placement(of.placement.clone()),
        ];
        all.into_iter().chain(authorities).chain(answers)
    }
}
