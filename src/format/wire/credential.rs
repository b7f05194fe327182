//! Credentials: proof that a mechanism has identified a principal, opaque to its holder. Whoever
//! has one acts for that principal.
//!
//! Invariant: the secret is in no message for people and in no debug print. The server keeps only
//! what checks it (HMAC-SHA-256 under the secret, RFC 2104): it compares without telling where a
//! difference is. Not here: how somebody proves who he is (`login`).

use std::fmt;

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::digits;
use super::principal::Principal;
use crate::frame;
use crate::ids::InstanceId;
use crate::{Error, ErrorKind, Result};

/// Version of the text of a credential.
const TEXT_VERSION: u16 = 1;
/// What that begins with.
const PREFIX: &str = "terral-credential-1:";
/// Nothing that is longer, white space around it included, is read as one, bytes.
pub const TEXT_MAX: u64 = 4 << 10;
/// Most bytes that it stands for.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Names a credential, and opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CredentialId(pub u64);

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Random; whoever has it acts for the principal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn mac(&self, id: CredentialId) -> Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .map_err(|_| Error::new(ErrorKind::Invalid, "credential"))?;
        mac.update(b"terral credential 1");
        mac.update(&id.0.to_le_bytes());
        Ok(mac)
    }

    /// What is kept of it to know it again.
    pub fn check(&self, id: CredentialId) -> Result<Check> {
        Ok(Check(self.mac(id)?.finalize().into_bytes().into()))
    }
}

/// What is kept of a secret: it opens nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check(pub [u8; 32]);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

impl Check {
    /// Whether this is that of the secret. How long it takes says nothing of either.
    pub fn is_of(&self, id: CredentialId, secret: &Secret) -> bool {
        secret.mac(id).is_ok_and(|mac| mac.verify_slice(&self.0).is_ok())
    }
}

/// What its holder has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Names it.
    pub id: CredentialId,
    /// What proves it.
    pub secret: Secret,
    /// The instance whose server has issued it, and no other knows it.
    pub issuer: InstanceId,
    /// For whom.
    pub principal: Principal,
    /// When, seconds since 1970.
    pub issued_s: u64,
    /// How long it is good for, seconds.
    pub lifetime_s: u64,
}

impl Credential {
    /// When it is over, seconds since 1970.
    pub fn expires_s(&self) -> u64 {
        self.issued_s.saturating_add(self.lifetime_s)
    }

    /// As one word of text; whoever reads it acts for its principal.
    ///
    /// # Errors
    /// Those of encoding, which do not come.
    pub fn text(&self) -> Result<String> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, TEXT_VERSION, &frame::encode(self)?);
        Ok(PREFIX.to_owned() + &digits::text(&bytes))
    }

    /// What a text says; white space around it does not count. Whether it is good, its issuer
    /// knows.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if it is none, or was cut off; [`ErrorKind::Version`],
    /// [`ErrorKind::Corrupt`]. No error repeats any of it.
    pub fn of(text: &str) -> Result<Self> {
        let none = || Error::new(ErrorKind::Malformed, "no credential (`terral login` makes one)");
        let digits = text.trim().strip_prefix(PREFIX).ok_or_else(none)?;
        let bytes = digits::bytes(digits, TEXT_BYTES_MAX).ok_or_else(none)?;
        let found = frame::read(&bytes)?;
        frame::is_of(found.version, TEXT_VERSION)?;
        if found.rest.is_empty() { frame::decode(found.payload) } else { Err(none()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Credential, CredentialId, InstanceId, Principal, Secret};
    use proptest::prelude::{any, prop, proptest};

    fn credential() -> Credential {
        Credential {
            id: CredentialId(0xabc),
            secret: Secret([0x5e; 32]),
            issuer: InstanceId(7),
            principal: "key:pilot".parse().expect("is one"),
            issued_s: 100,
            lifetime_s: 60,
        }
    }

    #[test]
    fn a_text_says_the_same_and_a_print_says_no_secret() {
        let own = credential();
        let text = own.text().expect("encodes");
        assert_eq!(Credential::of(&format!("\n{text} ")), Ok(own.clone()));
        assert_eq!((own.expires_s(), own.principal.to_string()), (160, "key:pilot".into()));
        let check = own.secret.check(own.id).expect("is a key");
        let printed = format!("{own:?} {check:?}");
        assert!(!printed.contains("94") && !printed.contains("5e"), "{printed}");
        for none in ["", "terral-credential-1:", &text[1..], &text.to_uppercase()] {
            assert!(Credential::of(none).is_err(), "{none}");
        }
        assert!(Credential::of(&format!("{text}00")).is_err());
        assert!(!matches!(own.principal, Principal::User(_)));
    }

    #[test]
    fn only_the_secret_itself_is_known_again() {
        let own = credential();
        let check = own.secret.check(own.id).expect("is a key");
        assert!(check.is_of(own.id, &own.secret));
        assert!(!check.is_of(CredentialId(1), &own.secret));
        for at in 0..256 {
            let mut other = own.secret.clone();
            other.0[at / 8] ^= 1 << (at % 8);
            assert!(!check.is_of(own.id, &other), "{at}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_is_cut_off_or_damaged_is_none(
            at in any::<prop::sample::Index>(),
            bit in 0u8..7,
        ) {
            let text = credential().text().expect("encodes");
            let at = at.index(text.len());
            let short = Credential::of(&text[..at]);
            assert!(short.is_err());
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1u8 << bit;
            let error = Credential::of(&String::from_utf8_lossy(&bytes)).expect_err("damaged");
            assert!(!error.to_string().contains(&text[60..90]), "{error}");
        }
    }
}
