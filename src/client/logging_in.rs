//! Proving to a server who one is, and what one has then.

use terral_format::Result;
use terral_format::wire::credential::Credential;
use terral_format::wire::login::{CHALLENGE_BYTES, Hidden, Proof, Whom, Wish};
use terral_format::wire::message::{Reply, Request};

use crate::client::Client;
use crate::session::unexpected;

impl Client {
    /// Something to sign, once and within a minute: see [`terral_format::wire::login::signed`].
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn challenge(&self) -> Result<[u8; CHALLENGE_BYTES]> {
        match self.0.call(Request::Challenge)? {
            Reply::Challenge(challenge) => Ok(challenge),
            _ => Err(unexpected()),
        }
    }

    /// What the server answers who shows a ticket of Kerberos to it, with a challenge, which is
    /// used up: see [`kerberos::Asks`](terral_transport::kerberos::Asks).
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::Unauthorized`] if it is not good.
    pub fn negotiate(&self, challenge: &[u8; CHALLENGE_BYTES], token: &[u8]) -> Result<Vec<u8>> {
        match self.0.call(Request::Negotiate(*challenge, Hidden(token)))? {
            Reply::Negotiated(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    /// A credential for who proves who he is.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::Unauthorized`] if he does not,
    /// [`terral_format::ErrorKind::Denied`] if nothing is allowed to him.
    pub fn login(&self, proof: Proof<'_>, wish: Wish<'_>) -> Result<Credential> {
        match self.0.call(Request::Login(proof, wish))? {
            Reply::Credential(credential) => Ok(*credential),
            _ => Err(unexpected()),
        }
    }

    /// Ends a credential, and all capabilities that were got by it: once this is answered, nobody
    /// does anything by them by a call that begins. Gives how many sessions may do less now.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::Unauthorized`] if it is not good there, or has ended.
    pub fn logout(&self, credential: &Credential) -> Result<u32> {
        match self.0.call(Request::Logout(credential.into()))? {
            Reply::Revoked { sessions, .. } => Ok(sessions),
            _ => Err(unexpected()),
        }
    }

    /// As whom one acts, and what one may.
    ///
    /// # Errors
    /// If what is shown is not good.
    pub fn whom(&self) -> Result<Whom> {
        match self.0.call(Request::Whom)? {
            Reply::Whom(whom) => Ok(*whom),
            _ => Err(unexpected()),
        }
    }
}
