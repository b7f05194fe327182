//! What a client may do: issues capabilities for the container, verifies presented ones once, and
//! answers every request from the cache after that.

use terral_format::capability::{Capability, Credential, Grant, Key, Operations};
use terral_format::ids::{ContainerId, ROOT_CONTAINER};
use terral_format::message::Request;
use terral_format::{Error, ErrorKind, Result};

use crate::authn::{now_s, random};

/// Most capabilities one session may present.
const PRESENTED_MAX: usize = 64;

/// A verified capability, as a session's cache keeps it.
#[derive(Clone, Copy, Debug)]
struct Verified {
    container: ContainerId,
    operations: Operations,
    expires_s: u64,
    epoch: u64,
}

/// What a session has presented and was believed. A handle is 1 + the place in it.
#[derive(Debug, Default)]
pub struct Presented(Vec<Verified>);

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
    pub fn issue(&self, credential: &Credential) -> Result<Capability> {
        let expires_s = credential.issued_s.saturating_add(credential.lifetime_s);
        if now_s() >= expires_s {
            return Err(Error::new(ErrorKind::Unauthorized, "credential: expired"));
        }
        let grant = Grant {
            container: ROOT_CONTAINER,
            operations: Operations::ALL,
            principal: credential.principal,
            epoch: self.epoch,
            expires_s,
            serial: u64::from_le_bytes(random()?),
        };
        Capability::issue(&self.key, grant)
    }

    /// Verifies a capability and gives the session a handle for it.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is forged, expired or of a revoked epoch.
    pub fn present(&self, capability: &Capability, presented: &mut Presented) -> Result<u32> {
        let operations = capability.verify(&self.key, now_s())?;
        let grant = &capability.grant;
        if grant.container != ROOT_CONTAINER || grant.epoch != self.epoch {
            return Err(Error::new(
                ErrorKind::Unauthorized,
                "capability: revoked, or not for here",
            ));
        }
        if presented.0.len() >= PRESENTED_MAX {
            return Err(Error::new(ErrorKind::TooMany, "capabilities presented by one session"));
        }
        presented.0.push(Verified {
            container: grant.container,
            operations,
            expires_s: grant.expires_s,
            epoch: grant.epoch,
        });
        Ok(presented.0.len() as u32)
    }

    /// Whether the capability behind `handle` allows `request`. Every request comes through here
    /// but two: presenting a capability, and closing a description, whose nonce is proof enough.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] for an unknown or stale handle (present the capability again),
    /// [`ErrorKind::Denied`] if the capability does not allow it.
    pub fn check(&self, presented: &Presented, handle: u32, request: &Request<'_>) -> Result<()> {
        let found = (handle as usize).checked_sub(1).and_then(|at| presented.0.get(at));
        let stale = || Error::new(ErrorKind::Unauthorized, "capability handle");
        let verified = found.ok_or_else(stale)?;
        if verified.epoch != self.epoch || now_s() >= verified.expires_s {
            return Err(stale());
        }
        debug_assert_eq!(verified.container, ROOT_CONTAINER);
        if verified.operations.contain(request.needs()) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, "the capability presented does not allow this"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Authz, Presented};
    use terral_format::capability::{Capability, Caveat, Credential, Key, Operations, Principal};
    use terral_format::message::Request;

    fn credential() -> Credential {
        Credential {
            secret: [0; 32],
            principal: Principal::User(1),
            issued_s: crate::authn::now_s(),
            lifetime_s: 60,
        }
    }

    #[test]
    fn a_forged_stale_or_narrow_capability_is_refused() {
        let (authz, other) = (Authz::new(Key([1; 32])), Authz::new(Key([2; 32])));
        let mut presented = Presented::default();
        let own = authz.issue(&credential()).expect("issues");
        let handle = authz.present(&own, &mut presented).expect("is good");
        assert!(authz.check(&presented, handle, &Request::Unlink(b"x")).is_ok());
        assert!(authz.check(&presented, handle + 1, &Request::Unlink(b"x")).is_err());
        assert!(authz.check(&presented, 0, &Request::Status).is_err());

        let forged: Capability = other.issue(&credential()).expect("issues");
        assert!(authz.present(&forged, &mut presented).is_err());
        let narrow = own.attenuate(Caveat::Only(Operations::READ)).expect("narrows");
        let handle = authz.present(&narrow, &mut presented).expect("is good");
        assert!(authz.check(&presented, handle, &Request::Unlink(b"x")).is_err());
        let expired = own.attenuate(Caveat::Until(1)).expect("narrows");
        assert!(authz.present(&expired, &mut presented).is_err());
    }
}
