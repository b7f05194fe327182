//! The credentials of one server that live: those that have ended are not here any more, so what
//! ends with a credential has ended when that is not found.
//!
//! Invariants: no secret is kept, only what checks it; they are bounded in number, and each in
//! time. All of it follows from the log: a server that is started again knows who was logged out.

use std::collections::BTreeMap;

use terral_format::disk::local::{Kept, Local};
use terral_format::ids::InstanceId;
use terral_format::wire::capability::Principal;
use terral_format::wire::credential::{CredentialId, Secret};
use terral_format::wire::login::Shown;
use terral_format::{Error, ErrorKind, Result};

/// Most at a time, of all principals and of one.
const MOST: (usize, usize) = (4096, 256);

/// Those that live.
#[derive(Debug, Default)]
pub struct Credentials(BTreeMap<CredentialId, Kept>);

fn refuse(why: &str) -> Error {
    Error::new(ErrorKind::Unauthorized, format!("credential: {why}"))
}

impl Credentials {
    /// From a record.
    pub fn begin(&mut self, kept: &Kept) {
        self.0.insert(kept.id, kept.clone());
    }

    /// From a record.
    pub fn end(&mut self, id: CredentialId) {
        self.0.remove(&id);
    }

    /// From a record: all of a principal.
    pub fn end_of(&mut self, principal: Principal) {
        self.0.retain(|_, kept| kept.principal != principal);
    }

    /// Whether it lives.
    pub fn lives(&self, id: CredentialId) -> bool {
        self.0.contains_key(&id)
    }

    /// Those that are over and were not ended.
    pub fn over(&self, now_s: u64) -> Vec<CredentialId> {
        self.0.values().filter(|kept| now_s >= kept.expires_s()).map(|kept| kept.id).collect()
    }

    /// Whether there may be one more of this principal, those not counted that are over.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`].
    pub fn admit(&self, now_s: u64, principal: Principal) -> Result<()> {
        let lasting = || self.0.values().filter(|kept| now_s < kept.expires_s());
        let own = lasting().filter(|kept| kept.principal == principal).count();
        if lasting().count() >= MOST.0 || own >= MOST.1 {
            let context = format!("{principal}: too many credentials: log out from some, or wait");
            return Err(Error::new(ErrorKind::TooMany, context));
        }
        Ok(())
    }

    /// The one that is shown, if its secret is the right one.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is none of this instance, has ended or is over.
    pub fn known(&self, instance: InstanceId, now_s: u64, shown: &Shown<'_>) -> Result<&Kept> {
        if shown.issuer != instance {
            return Err(refuse("another server has issued it (terral login here)"));
        }
        let secret = shown.secret.0.try_into().map(Secret).map_err(|_| refuse("malformed"))?;
        let kept = self.0.get(&shown.id).filter(|kept| kept.check.is_of(shown.id, &secret));
        let kept = kept.ok_or_else(|| refuse("not good here, or ended (terral login again)"))?;
        if now_s >= kept.expires_s() {
            return Err(refuse("its time is over (terral login again)"));
        }
        Ok(kept)
    }

    /// Records from which they come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        self.0.values().cloned().map(Local::LoggedIn)
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, MOST};
    use terral_format::disk::local::{Kept, Local};
    use terral_format::ids::InstanceId;
    use terral_format::wire::capability::{Operations, Principal};
    use terral_format::wire::credential::{CredentialId, Secret};
    use terral_format::wire::login::{Hidden, Shown};

    const HERE: InstanceId = InstanceId(1);

    fn kept(id: u64, principal: Principal) -> Kept {
        let (id, secret) = (CredentialId(id), Secret([9; 32]));
        Kept {
            id,
            check: secret.check(id).expect("is a key"),
            principal,
            operations: Operations::READ,
            below: Vec::new(),
            issued_s: 100,
            lifetime_s: 10,
        }
    }

    fn shown(id: u64, secret: &[u8]) -> Shown<'_> {
        Shown { id: CredentialId(id), issuer: HERE, secret: Hidden(secret) }
    }

    #[test]
    fn only_who_has_the_secret_of_one_that_lives_has_it() {
        let mut all = Credentials::default();
        all.begin(&kept(5, Principal::User(1)));
        let why = |all: &Credentials, now_s, shown: Shown<'_>| {
            all.known(HERE, now_s, &shown).map(|kept| kept.id).map_err(|error| error.context)
        };
        assert_eq!(why(&all, 109, shown(5, &[9; 32])), Ok(CredentialId(5)));
        let refused = |all: &Credentials, now_s, shown, part: &str| {
            let said = why(all, now_s, shown).expect_err(part);
            assert!(said.contains(part), "{said}");
        };
        refused(&all, 110, shown(5, &[9; 32]), "its time is over");
        refused(&all, 100, shown(6, &[9; 32]), "not good here");
        refused(&all, 100, shown(5, &[8; 32]), "not good here");
        refused(&all, 100, shown(5, &[9; 31]), "malformed");
        let other = Shown { issuer: InstanceId(2), ..shown(5, &[9; 32]) };
        refused(&all, 100, other, "another server");
        assert_eq!((all.over(109), all.over(110)), (vec![], vec![CredentialId(5)]));
        all.end(CredentialId(5));
        refused(&all, 100, shown(5, &[9; 32]), "not good here");
    }

    #[test]
    fn they_are_bounded_and_come_back() {
        let mut all = Credentials::default();
        let (one, other) = (Principal::User(1), Principal::User(2));
        for id in 0..MOST.1 as u64 {
            assert!(all.admit(100, one).is_ok());
            all.begin(&kept(id, one));
        }
        assert!(all.admit(100, one).is_err() && all.admit(100, other).is_ok());
        assert!(all.admit(110, one).is_ok(), "those that are over do not count");
        all.begin(&kept(1 << 40, other));
        let mut again = Credentials::default();
        for record in all.snapshot() {
            let Local::LoggedIn(kept) = record else { panic!("{record:?}") };
            again.begin(&kept);
        }
        again.end_of(one);
        assert!(again.lives(CredentialId(1 << 40)) && !again.lives(CredentialId(0)));
    }
}
