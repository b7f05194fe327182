//! What a client may do: issues capabilities for the container, verifies presented ones once, and
//! answers every request, and every deferred change, from what it remembers after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use terral_format::ids::ROOT_CONTAINER;
use terral_format::wire::capability::{Capability, Credential, Grant, Key, Operations, Rights};
use terral_format::wire::message::Request;
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::core::world::World;

/// Most capabilities one session may present.
const PRESENTED_MAX: usize = 4096;

/// What was presented and is good: what the log says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Good {
    /// What the capability allows.
    pub rights: Rights,
    /// The container's revocation epoch at its issue.
    pub epoch: u64,
    /// Whom its holder acts as.
    pub person: Arc<Person>,
}

/// The same, as a session's cache keeps it.
#[derive(Clone, Debug)]
struct Verified {
    good: Good,
    /// Its time is over, and what was committed before has been applied.
    ended: bool,
}

/// What a session has presented and was believed, by handle. Handles count from 1.
#[derive(Clone, Debug, Default)]
pub struct Presented(BTreeMap<u32, Verified>);

impl Presented {
    /// From a record: `handle` stands for this.
    pub fn insert(&mut self, handle: u32, good: Good) {
        self.0.insert(handle, Verified { good, ended: false });
    }

    /// Whether this handle may stand for that: it does, or is the one that comes next.
    pub fn may_be(&self, handle: u32, good: &Good) -> bool {
        let next = self.0.last_key_value().map_or(1, |(newest, _)| newest + 1);
        handle == next || self.0.get(&handle).is_some_and(|known| known.good == *good)
    }

    /// Everything in it, by handle.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Good)> {
        self.0.iter().map(|(handle, verified)| (*handle, &verified.good))
    }

    /// The handle that stands for the very same already.
    pub fn find(&self, good: &Good) -> Option<u32> {
        let same = |(_, known): &(u32, &Good)| *known == good;
        self.iter().find(same).map(|(handle, _)| handle)
    }

    /// When the next one runs out that has not been ended, seconds since 1970.
    pub fn expires_s(&self) -> Option<u64> {
        let lasting = self.0.values().filter(|verified| !verified.ended);
        lasting.map(|verified| verified.good.rights.expires_s).min()
    }

    /// Whether the newest one has run out.
    pub fn is_over(&self, now_s: u64) -> bool {
        self.0.last_key_value().is_some_and(|(_, newest)| now_s >= newest.good.rights.expires_s)
    }

    /// Deferred changes do not count any more under what has run out.
    pub fn end(&mut self, now_s: u64) {
        for verified in self.0.values_mut() {
            verified.ended |= now_s >= verified.good.rights.expires_s;
        }
    }
}

/// The authorization role of one server.
pub struct Authz {
    key: Key,
    epoch: u64,
}

impl Authz {
    /// An issuer with this key.
    pub fn new(key: Key) -> Self {
        Authz { key, epoch: 0 }
    }

    /// A capability for everything in the root container, for whom the credential names.
    pub fn issue(&self, world: &dyn World, credential: &Credential) -> Result<Capability> {
        let expires_s = credential.issued_s.saturating_add(credential.lifetime_s);
        if world.wall_s() >= expires_s {
            return Err(Error::new(ErrorKind::Unauthorized, "credential: expired"));
        }
        let grant = Grant {
            container: ROOT_CONTAINER,
            operations: Operations::ALL,
            principal: credential.principal,
            epoch: self.epoch,
            expires_s,
            serial: world.random()? as u64,
        };
        Capability::issue(&self.key, grant)
    }

    /// Verifies a capability that is presented.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is forged, expired or of a revoked epoch.
    pub fn verify(&self, now_s: u64, capability: &Capability, person: Arc<Person>) -> Result<Good> {
        let rights = capability.verify(&self.key, now_s)?;
        let grant = &capability.grant;
        if grant.container != ROOT_CONTAINER || grant.epoch != self.epoch {
            return Err(Error::new(
                ErrorKind::Unauthorized,
                "capability: revoked, or not for here",
            ));
        }
        Ok(Good { rights, epoch: grant.epoch, person })
    }

    /// A handle for what was verified.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the session has presented as much as one may.
    pub fn handle(&self, presented: &Presented) -> Result<u32> {
        if presented.0.len() >= PRESENTED_MAX {
            return Err(Error::new(ErrorKind::TooMany, "capabilities presented by one session"));
        }
        Ok(presented.0.last_key_value().map_or(1, |(newest, _)| newest + 1))
    }

    /// Whether the capability behind `handle` allows `request` now; gives who asks. Every request
    /// comes through here but two: presenting a capability, and closing a description, whose nonce
    /// is proof enough.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] for an unknown handle or one that has run out,
    /// [`ErrorKind::Denied`] if the capability does not allow it.
    pub fn check(
        &self,
        now_s: u64,
        presented: &Presented,
        handle: u32,
        request: &Request<'_>,
    ) -> Result<Arc<Person>> {
        let refuse = |why| Err(Error::new(ErrorKind::Unauthorized, why));
        let verified = match presented.0.get(&handle) {
            Some(verified) if verified.good.epoch == self.epoch => verified,
            _ => return refuse("capability: none was presented"),
        };
        if verified.ended || now_s >= verified.good.rights.expires_s {
            return refuse("capability: expired");
        }
        if verified.good.rights.operations.contain(request.needs()) {
            return Ok(verified.good.person.clone());
        }
        Err(Error::new(ErrorKind::Denied, "the capability presented does not allow this"))
    }

    /// Who made a change that was committed under `handle` and needs these operations; `None` if it
    /// does not count. What was committed in time does, whenever it is applied.
    pub fn covers(
        &self,
        presented: &Presented,
        handle: u32,
        needs: Operations,
    ) -> Option<Arc<Person>> {
        let lasting = |verified: &&Verified| verified.good.epoch == self.epoch && !verified.ended;
        let verified = presented.0.get(&handle).filter(lasting)?;
        let allowed = verified.good.rights.operations.contain(needs);
        allowed.then(|| verified.good.person.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Authz, Good, Presented};
    use crate::core::world::{Tick, World};
    use terral_format::Result;
    use terral_format::wire::capability::{
        Capability, Caveat, Credential, Key, Operations, Principal, Rights,
    };
    use terral_format::wire::message::Request;
    use terral_format::wire::person::Person;

    const NOW_S: u64 = 1_000_000;

    /// Time stands still, and chance is none.
    struct Still;

    impl World for Still {
        fn now(&self) -> Tick {
            Tick(0)
        }

        fn wall_ns(&self) -> u64 {
            NOW_S * 1_000_000_000
        }

        fn random(&self) -> Result<u128> {
            Ok(4)
        }

        fn give_way(&self) {}
    }

    fn credential() -> Credential {
        Credential {
            secret: [0; 32],
            principal: Principal::User(1),
            issued_s: NOW_S,
            lifetime_s: 60,
        }
    }

    fn present(authz: &Authz, presented: &mut Presented, capability: &Capability) -> Option<u32> {
        let good = authz.verify(NOW_S, capability, Default::default()).ok()?;
        let handle = authz.handle(presented).ok()?;
        presented.insert(handle, good);
        Some(handle)
    }

    #[test]
    fn a_forged_stale_or_narrow_capability_is_refused() {
        let (authz, other) = (Authz::new(Key([1; 32])), Authz::new(Key([2; 32])));
        let mut presented = Presented::default();
        let own = authz.issue(&Still, &credential()).expect("issues");
        let handle = present(&authz, &mut presented, &own).expect("is good");
        assert!(authz.check(NOW_S, &presented, handle, &Request::Unlink(b"x")).is_ok());
        assert!(authz.check(NOW_S, &presented, handle + 1, &Request::Unlink(b"x")).is_err());
        assert!(authz.check(NOW_S, &presented, 0, &Request::Status).is_err());

        let forged: Capability = other.issue(&Still, &credential()).expect("issues");
        assert!(present(&authz, &mut presented, &forged).is_none());
        let narrow = own.attenuate(Caveat::Only(Operations::READ)).expect("narrows");
        let handle = present(&authz, &mut presented, &narrow).expect("is good");
        assert!(authz.check(NOW_S, &presented, handle, &Request::Unlink(b"x")).is_err());
        assert!(authz.covers(&presented, handle, Operations::REMOVE).is_none());
        assert!(authz.covers(&presented, handle, Operations::READ).is_some());
        let expired = own.attenuate(Caveat::Until(1)).expect("narrows");
        assert!(present(&authz, &mut presented, &expired).is_none());
    }

    #[test]
    fn what_has_run_out_allows_no_request_and_covers_what_was_committed_before() {
        let (authz, mut presented) = (Authz::new(Key([1; 32])), Presented::default());
        let until = |expires_s| Good {
            rights: Rights { operations: Operations::ALL, expires_s },
            epoch: 0,
            person: Arc::new(Person { user: 7, ..Person::default() }),
        };
        presented.insert(1, until(10));
        assert!(authz.check(NOW_S, &presented, 1, &Request::Unlink(b"x")).is_err());
        let who = authz.covers(&presented, 1, Operations::REMOVE).expect("committed in time");
        assert_eq!(who.user, 7);
        assert_eq!((presented.find(&until(10)), presented.find(&until(11))), (Some(1), None));
        assert_eq!((presented.expires_s(), presented.is_over(10)), (Some(10), true));
        presented.end(10);
        assert!(authz.covers(&presented, 1, Operations::REMOVE).is_none());
        assert_eq!(presented.expires_s(), None);
        presented.insert(2, until(20));
        assert!(!presented.is_over(19) && presented.is_over(20));
    }
}
