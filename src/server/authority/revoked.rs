//! What was revoked: by serial, by credential, by principal, by operation.
//!
//! One epoch counts the revocations of a container. A capability says in which it was issued; an
//! operation, or a principal, in which it was revoked last: what was issued before is good for it
//! no more, and everything else goes on. Serials and credentials have no epoch: they are named one
//! by one.

use std::collections::{BTreeMap, BTreeSet};

use terral_format::wire::capability::{self, Operations, Principal, Revocation};
use terral_format::wire::credential::CredentialId;
use terral_format::{Error, ErrorKind, Result};

/// Most serials, and most credentials, that are revoked one by one.
const NAMED_MAX: usize = 1 << 14;
/// As many operations as a set can have.
const OPERATIONS: usize = 8;

/// What was revoked of one container.
#[derive(Clone, Debug, Default)]
pub struct Revoked {
    epoch: u64,
    /// By number of the operation's bit: what was issued before does not allow it.
    operations: [u64; OPERATIONS],
    principals: BTreeMap<Principal, u64>,
    serials: BTreeSet<u64>,
    credentials: BTreeSet<CredentialId>,
    /// What a control has handed out before is good no more.
    handed_out: u64,
}

impl Revoked {
    /// The epoch of what is issued now.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What a record says of this revocation.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if too many serials are.
    pub fn next(&self, what: Revocation) -> Result<capability::Revoked> {
        let named = match what {
            Revocation::Serial(_) => self.serials.len(),
            Revocation::Credential(_) => self.credentials.len(),
            Revocation::Operations(_) | Revocation::Principal(_) | Revocation::HandedOut => 0,
        };
        if named >= NAMED_MAX {
            let context = "revoked one by one: revoke operations, or the principal";
            return Err(Error::new(ErrorKind::TooMany, context));
        }
        Ok(capability::Revoked { what, epoch: self.epoch + 1 })
    }

    /// Whether this is no news.
    pub fn knows(&self, revoked: capability::Revoked) -> bool {
        let capability::Revoked { what, epoch } = revoked;
        let knows = match what {
            Revocation::Serial(serial) => self.serials.contains(&serial),
            Revocation::Credential(id) => self.has_ended(id),
            Revocation::HandedOut => self.handed_out >= epoch,
            Revocation::Operations(set) => {
                let mut each = self.operations.iter().enumerate();
                each.all(|(at, since)| set.0 & 1 << at == 0 || *since >= epoch)
            }
            Revocation::Principal(who) => {
                self.principals.get(&who).is_some_and(|since| *since >= epoch)
            }
        };
        knows && self.epoch >= epoch
    }

    /// From a record.
    pub fn apply(&mut self, revoked: capability::Revoked) {
        let capability::Revoked { what, epoch } = revoked;
        self.epoch = self.epoch.max(epoch);
        match what {
            Revocation::Serial(serial) => {
                self.serials.insert(serial);
            }
            Revocation::Credential(id) => {
                self.credentials.insert(id);
            }
            Revocation::HandedOut => self.handed_out = epoch.max(self.handed_out),
            Revocation::Operations(set) => {
                let each = self.operations.iter_mut().enumerate();
                let named = each.filter(|(at, _)| set.0 & 1 << at != 0);
                named.for_each(|(_, since)| *since = epoch.max(*since));
            }
            Revocation::Principal(who) => {
                let since = self.principals.entry(who).or_default();
                *since = epoch.max(*since);
            }
        }
    }

    /// Whether all that controls have handed out in this epoch was.
    pub fn was_handed_out_before(&self, epoch: u64) -> bool {
        epoch < self.handed_out
    }

    /// Whether this credential was.
    pub fn has_ended(&self, id: CredentialId) -> bool {
        self.credentials.contains(&id)
    }

    /// What is left of these operations of a capability.
    pub fn left(
        &self,
        operations: Operations,
        (serial, principal, epoch): (u64, Principal, u64),
    ) -> Operations {
        let since = self.principals.get(&principal).copied().unwrap_or_default();
        if epoch < since || self.serials.contains(&serial) {
            return Operations(0);
        }
        let gone = self.operations.iter().enumerate().filter(|(_, since)| epoch < **since);
        operations.without(Operations(gone.fold(0, |set, (at, _)| set | 1 << at)))
    }

    /// All of it, from which it comes back.
    pub fn snapshot(&self) -> impl Iterator<Item = capability::Revoked> {
        let record = |what, epoch| capability::Revoked { what, epoch };
        let each = self.operations.iter().enumerate().filter(|(_, since)| **since > 0);
        let operations = each
            .map(move |(at, since)| record(Revocation::Operations(Operations(1 << at)), *since));
        let principals = self.principals.iter();
        let principals =
            principals.map(move |(who, since)| record(Revocation::Principal(*who), *since));
        let serials = self.serials.iter();
        let serials = serials.map(move |one| record(Revocation::Serial(*one), self.epoch));
        let credentials = self.credentials.iter();
        let credentials =
            credentials.map(move |id| record(Revocation::Credential(*id), self.epoch));
        let handed_out = Some(record(Revocation::HandedOut, self.handed_out));
        let handed_out = handed_out.filter(|one| one.epoch > 0);
        let all = operations.chain(principals).chain(serials).chain(credentials).chain(handed_out);
        // Others may have counted it: what they changed is said elsewhere.
        let nothing = record(Revocation::Operations(Operations(0)), self.epoch);
        all.chain(Some(nothing).filter(|nothing| nothing.epoch > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::{CredentialId, Operations, Principal, Revocation, Revoked};

    const WHO: Principal = Principal::User(1);

    #[test]
    fn a_credential_ends_and_a_snapshot_says_so() {
        let (mut revoked, id) = (Revoked::default(), CredentialId(9));
        revoke(&mut revoked, Revocation::Credential(id));
        let mut again = Revoked::default();
        revoked.snapshot().for_each(|one| again.apply(one));
        assert!(again.has_ended(id) && !again.has_ended(CredentialId(8)));
        assert!(revoked.snapshot().all(|one| again.knows(one)));
        assert_eq!(left(&revoked, 1, 0), Operations::ALL);
    }

    fn left(revoked: &Revoked, serial: u64, epoch: u64) -> Operations {
        revoked.left(Operations::ALL, (serial, WHO, epoch))
    }

    fn revoke(revoked: &mut Revoked, what: Revocation) {
        let said = revoked.next(what).expect("few");
        assert!(!revoked.knows(said));
        revoked.apply(said);
        assert!(revoked.knows(said));
    }

    #[test]
    fn what_is_issued_later_is_good_again_and_a_serial_never() {
        let mut revoked = Revoked::default();
        revoke(&mut revoked, Revocation::Operations(Operations::WRITE));
        assert_eq!(left(&revoked, 1, 0), Operations::ALL.without(Operations::WRITE));
        assert_eq!(left(&revoked, 2, revoked.epoch()), Operations::ALL);
        revoke(&mut revoked, Revocation::Serial(2));
        assert_eq!(left(&revoked, 2, u64::MAX), Operations(0));
        assert_eq!(left(&revoked, 3, 1), Operations::ALL);
        revoke(&mut revoked, Revocation::Principal(Principal::User(7)));
        assert_eq!(left(&revoked, 3, 1), Operations::ALL);
        revoke(&mut revoked, Revocation::Principal(WHO));
        assert_eq!(left(&revoked, 3, 1), Operations(0));
        assert_eq!(left(&revoked, 4, revoked.epoch()), Operations::ALL);
    }

    #[test]
    fn a_snapshot_says_the_same() {
        let mut revoked = Revoked::default();
        let set = Operations::WRITE.and(Operations::REMOVE);
        revoke(&mut revoked, Revocation::Operations(set));
        revoke(&mut revoked, Revocation::Serial(2));
        revoke(&mut revoked, Revocation::Principal(WHO));
        revoke(&mut revoked, Revocation::Operations(Operations::WRITE));
        let mut again = Revoked::default();
        revoked.snapshot().for_each(|said| again.apply(said));
        assert!(revoked.snapshot().all(|said| again.knows(said)));
        assert_eq!(again.epoch(), revoked.epoch());
        for (serial, epoch) in [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 4)] {
            assert_eq!(left(&again, serial, epoch), left(&revoked, serial, epoch), "{epoch}");
        }
    }
}
