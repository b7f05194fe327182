//! What a process may do, and what it lets others do: capabilities that are shown, narrowed, got to
//! be handed on, and revoked.

use std::path::Path;

use terral_format::Result;
use terral_format::ids::Member;
use terral_format::wire::capability::{Capability, Caveat, Revocation};
use terral_format::wire::message::{Reply, Request};

use crate::client::Client;
use crate::session::{Connection, unexpected};

impl Client {
    /// As [`Client::connect`], with this capability in place of what the environment names, or with
    /// its user's own.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(instance: &Path, shows: Option<Capability>) -> Result<Self> {
        let client = Client::beside_with(instance, shows)?;
        client.0.own()?;
        Ok(client)
    }

    /// As [`Client::beside`], with this capability in place of what the environment names, or with
    /// its user's own.
    ///
    /// # Errors
    /// As [`Client::beside`].
    pub fn beside_with(instance: &Path, shows: Option<Capability>) -> Result<Self> {
        Connection::open(instance, shows).map(Client)
    }

    /// As [`Client::observe`], with this capability, or its user's own.
    ///
    /// # Errors
    /// As [`Client::observe`].
    pub fn observe_with(instance: &Path, shows: Option<Capability>) -> Result<Self> {
        Connection::observe(instance, shows).map(Client)
    }

    /// Narrows what this process may do from now on; its children, what they begin with. What runs
    /// out ends reads and writes within a second, while a server runs.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if nothing is left of it.
    pub fn narrow(&self, caveat: Caveat) -> Result<()> {
        self.0.narrow(caveat)
    }

    /// A capability for all that this process may do, to be kept, narrowed and handed on. Who shows
    /// one gets none.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] for who shows one; [`ErrorKind::Malformed`] with a session.
    pub fn capability(&self) -> Result<Capability> {
        match self.0.call(Request::Capability)? {
            Reply::Capability(capability) => Ok(*capability),
            _ => Err(unexpected()),
        }
    }

    /// Ends what capabilities allow: once this is answered, nobody does that any more by a call
    /// that begins. Gives how many sessions of the server that says who is in may do less now, and
    /// which members have not said that they go by it: what was handed out is good there no more,
    /// and their own programs go on until they do.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if too many serials were revoked.
    pub fn revoke(&self, what: Revocation) -> Result<(u32, Vec<Member>)> {
        match self.0.call(Request::Revoke(what))? {
            Reply::Revoked { sessions, deaf } => Ok((sessions, deaf)),
            _ => Err(unexpected()),
        }
    }
}
