//! Credentials and capabilities: who somebody is, and what the holder may do to a container.
//!
//! A capability is signed by a key only the authorization role has (HMAC-SHA-256, RFC 2104). Its
//! holder may attenuate it without asking: each caveat replaces the tag by HMAC(tag, caveat), the
//! chained construction of macaroons (Birgisson et al., NDSS 2014), so that nobody can take a
//! caveat off again.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::ids::ContainerId;
use crate::{Error, ErrorKind, Result};

/// What a capability allows, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations(pub u8);

impl Operations {
    /// Read the bytes and attributes of objects.
    pub const READ: Operations = Operations(1);
    /// Change the bytes and attributes of objects.
    pub const WRITE: Operations = Operations(2);
    /// Make new names.
    pub const CREATE: Operations = Operations(4);
    /// Take names away.
    pub const REMOVE: Operations = Operations(8);
    /// See names.
    pub const LIST: Operations = Operations(16);
    /// Change the container itself, stop its server.
    pub const ADMIN: Operations = Operations(32);
    /// Everything.
    pub const ALL: Operations = Operations(63);

    /// Both sets together.
    pub fn and(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    /// Whether every operation of `other` is in this set.
    pub fn contain(self, other: Operations) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Whom a mechanism has identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Principal {
    /// A local user, vouched for by the kernel.
    User(u32),
}

/// Proof that a mechanism identified a principal; opaque to its holder.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Random; whoever has it acts for the principal.
    pub secret: [u8; 32],
    /// Whom.
    pub principal: Principal,
    /// When it was issued, seconds since 1970.
    pub issued_s: u64,
    /// How long it is good for, seconds.
    pub lifetime_s: u64,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({:?})", self.principal)
    }
}

/// Narrows a capability; added by its holder, never taken off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caveat {
    /// Only these operations.
    Only(Operations),
    /// Not after this time, seconds since 1970.
    Until(u64),
}

/// What the issuer signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To what.
    pub container: ContainerId,
    /// What may be done.
    pub operations: Operations,
    /// For whom it was issued.
    pub principal: Principal,
    /// The container's revocation epoch at issue.
    pub epoch: u64,
    /// Seconds since 1970.
    pub expires_s: u64,
    /// Names this capability for ever.
    pub serial: u64,
}

/// What a capability comes to with all its caveats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// What may be done.
    pub operations: Operations,
    /// Until when, seconds since 1970.
    pub expires_s: u64,
}

/// The right to do some operations on a container, for whoever holds it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// As issued.
    pub grant: Grant,
    /// As narrowed since.
    pub caveats: Vec<Caveat>,
    tag: [u8; 32],
}

impl std::fmt::Debug for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capability({:?}, {:?})", self.grant, self.caveats)
    }
}

/// The issuer's signing key.
#[derive(Clone, Serialize, Deserialize)]
pub struct Key(pub [u8; 32]);

fn chain<T: Serialize>(key: &[u8; 32], value: &T) -> Result<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|_| Error::new(ErrorKind::Invalid, "capability key"))?;
    mac.update(&crate::frame::encode(value)?);
    Ok(mac)
}

impl Capability {
    /// Issues a capability.
    pub fn issue(key: &Key, grant: Grant) -> Result<Self> {
        let tag = chain(&key.0, &grant)?.finalize().into_bytes().into();
        Ok(Capability { grant, caveats: Vec::new(), tag })
    }

    /// The same capability, narrowed. Needs no key and asks nobody.
    pub fn attenuate(&self, caveat: Caveat) -> Result<Self> {
        let tag = chain(&self.tag, &caveat)?.finalize().into_bytes().into();
        let mut caveats = self.caveats.clone();
        caveats.push(caveat);
        Ok(Capability { grant: self.grant.clone(), caveats, tag })
    }

    /// What it allows and until when, if the issuer of `key` made it and nobody widened it.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is forged or, at `now_s`, expired.
    pub fn verify(&self, key: &Key, now_s: u64) -> Result<Rights> {
        let refuse = |why: &str| Error::new(ErrorKind::Unauthorized, format!("capability: {why}"));
        let mut mac = chain(&key.0, &self.grant)?;
        let (mut operations, mut expires_s) = (self.grant.operations, self.grant.expires_s);
        for caveat in &self.caveats {
            let tag: [u8; 32] = mac.finalize().into_bytes().into();
            mac = chain(&tag, caveat)?;
            match caveat {
                Caveat::Only(set) => operations = Operations(operations.0 & set.0),
                Caveat::Until(time_s) => expires_s = expires_s.min(*time_s),
            }
        }
        mac.verify_slice(&self.tag).map_err(|_| refuse("not issued here, or widened"))?;
        if now_s >= expires_s {
            return Err(refuse("expired"));
        }
        Ok(Rights { operations, expires_s })
    }
}

#[cfg(test)]
mod tests {
    use super::{Capability, Caveat, ContainerId, Grant, Key, Operations, Principal, Rights};

    fn capability() -> (Key, Capability) {
        let key = Key([7; 32]);
        let grant = Grant {
            container: ContainerId(1),
            operations: Operations::READ.and(Operations::WRITE),
            principal: Principal::User(1000),
            epoch: 0,
            expires_s: 100,
            serial: 9,
        };
        let issued = Capability::issue(&key, grant).expect("encodes");
        (key, issued)
    }

    #[test]
    fn a_holder_can_narrow_but_never_widen() {
        let (key, whole) = capability();
        let narrow = whole.attenuate(Caveat::Only(Operations::READ)).expect("encodes");
        let rights = |operations| Ok(Rights { operations, expires_s: 100 });
        assert_eq!(whole.verify(&key, 1), rights(Operations::READ.and(Operations::WRITE)));
        assert_eq!(narrow.verify(&key, 1), rights(Operations::READ));
        let mut widened = narrow.clone();
        widened.caveats.clear();
        assert!(widened.verify(&key, 1).is_err());
        let mut forged = whole.clone();
        forged.grant.operations = Operations::ALL;
        assert!(forged.verify(&key, 1).is_err());
        assert!(whole.verify(&Key([8; 32]), 1).is_err());
    }

    #[test]
    fn time_runs_out_for_the_child_before_the_parent() {
        let (key, whole) = capability();
        let brief = whole.attenuate(Caveat::Until(50)).expect("encodes");
        assert!(brief.verify(&key, 60).is_err() && whole.verify(&key, 60).is_ok());
        assert_eq!(brief.verify(&key, 49).map(|rights| rights.expires_s), Ok(50));
        assert!(whole.verify(&key, 100).is_err());
    }
}
