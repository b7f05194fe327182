//! How somebody proves to a server who he is, and what he gets: a credential.
//!
//! Who has a key asks for a challenge first, and signs that. The bytes that are signed begin with
//! what they are for and name the server: a signature is good there, once, and for nothing else (it
//! is no message of SSH, whose own begin with a length). Who has a ticket of Kerberos says so with
//! a challenge, and once both sides have proven who they are he seals what [`sealed`] gives.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::capability::Operations;
use super::credential::{CredentialId, Secret};
use super::principal::Principal;
use crate::ids::InstanceId;
use crate::{Error, ErrorKind, Result};

/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 32;
/// Longest token, bytes.
pub const TOKEN_MAX: usize = 16 << 10;

/// Bytes that are in no debug print.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden<'a>(#[serde(borrow)] pub &'a [u8]);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// What somebody proves who he is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof<'a> {
    /// A signature by a key (Ed25519, RFC 8032).
    Key(#[serde(borrow)] Signed<'a>),
    /// A signed token (JWT, RFC 7519).
    Token(Hidden<'a>),
    /// What was sealed by who has a ticket of Kerberos (RFC 4121).
    Gss(Sealed<'a>),
}

impl Proof<'_> {
    /// By what mechanism, as lists and logs name it.
    pub fn by(&self) -> &'static str {
        match self {
            Proof::Key(_) => "key",
            Proof::Token(_) => "token",
            Proof::Gss(_) => "gss",
        }
    }
}

/// A challenge, signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed<'a> {
    /// By whom: the public key.
    pub key: [u8; 32],
    /// Which challenge.
    pub challenge: [u8; CHALLENGE_BYTES],
    /// Over what [`signed`] gives.
    #[serde(borrow)]
    pub signature: &'a [u8],
}

/// What was said with a challenge, sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed<'a> {
    /// Which challenge the ticket was shown with.
    pub challenge: [u8; CHALLENGE_BYTES],
    /// Over what [`sealed`] gives.
    #[serde(borrow)]
    pub seal: &'a [u8],
}

/// What somebody wants a credential for, if it is less than he may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish<'a> {
    /// Only at this path, or below.
    #[serde(borrow)]
    pub below: Option<&'a [u8]>,
    /// No longer than so many seconds.
    pub lifetime_s: Option<u64>,
}

/// A credential, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown<'a> {
    /// Which.
    pub id: CredentialId,
    /// Whose server has issued it.
    pub issuer: InstanceId,
    /// Its secret.
    #[serde(borrow)]
    pub secret: Hidden<'a>,
}

impl<'a> From<&'a super::credential::Credential> for Shown<'a> {
    fn from(credential: &'a super::credential::Credential) -> Self {
        let Secret(secret) = &credential.secret;
        Shown { id: credential.id, issuer: credential.issuer, secret: Hidden(secret) }
    }
}

/// The same, as one server shows it to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Which.
    pub id: CredentialId,
    /// Whose server has issued it.
    pub issuer: InstanceId,
    /// Its secret.
    pub secret: Secret,
}

impl Carried {
    /// Of what was shown.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if that is no secret.
    pub fn of(shown: &Shown<'_>) -> Result<Self> {
        let malformed = |_| Error::new(ErrorKind::Unauthorized, "credential: malformed");
        let secret = Secret(shown.secret.0.try_into().map_err(malformed)?);
        Ok(Carried { id: shown.id, issuer: shown.issuer, secret })
    }

    /// As it was shown.
    pub fn shown(&self) -> Shown<'_> {
        Shown { id: self.id, issuer: self.issuer, secret: Hidden(&self.secret.0) }
    }
}

/// As whom somebody acts, and what he may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whom {
    /// Who that is.
    pub principal: Principal,
    /// What he may do.
    pub operations: Operations,
    /// At this path, or below; `None`: everywhere.
    pub below: Option<Vec<u8>>,
    /// Until when, seconds since 1970.
    pub expires_s: u64,
    /// By which credential, if not by the kernel's word.
    pub credential: Option<CredentialId>,
}

/// The bytes that are signed to prove to the server of this instance that one has a key.
pub fn signed(instance: InstanceId, challenge: &[u8; CHALLENGE_BYTES]) -> Vec<u8> {
    [&b"terral login by key, version 1\n"[..], &instance.0.to_le_bytes(), challenge].concat()
}

/// The bytes that are sealed to prove to the server of this instance that one has shown this ticket
/// to it, with this challenge, and has heard this answer.
pub fn sealed(
    instance: InstanceId,
    challenge: &[u8; CHALLENGE_BYTES],
    (token, answer): (&[u8], &[u8]),
) -> Vec<u8> {
    let begin = &b"terral login by gss, version 1\n"[..];
    let (token, answer) = (Sha256::digest(token), Sha256::digest(answer));
    [begin, &instance.0.to_le_bytes(), challenge, &token, &answer].concat()
}

#[cfg(test)]
mod tests {
    use super::{Hidden, InstanceId, Proof, sealed, signed};

    #[test]
    fn what_is_signed_says_what_for_where_and_which() {
        let first = signed(InstanceId(1), &[2; 32]);
        assert!(first.starts_with(b"terral login by key, version 1\n"));
        assert_ne!(first, signed(InstanceId(2), &[2; 32]));
        assert_ne!(first, signed(InstanceId(1), &[3; 32]));
    }

    #[test]
    fn what_is_sealed_says_what_for_where_which_and_what_was_said() {
        let first = sealed(InstanceId(1), &[2; 32], (b"ask", b"answer"));
        assert!(first.starts_with(b"terral login by gss, version 1\n"));
        assert_ne!(first, sealed(InstanceId(2), &[2; 32], (b"ask", b"answer")));
        assert_ne!(first, sealed(InstanceId(1), &[3; 32], (b"ask", b"answer")));
        assert_ne!(first, sealed(InstanceId(1), &[2; 32], (b"aska", b"nswer")));
        assert_ne!(first, sealed(InstanceId(1), &[2; 32], (b"ask", b"")));
    }

    #[test]
    fn a_token_is_in_no_print() {
        assert_eq!(format!("{:?}", Proof::Token(Hidden(b"eyJ"))), "Token(Hidden)");
    }
}
