//! Transactions in doubt, as people see and resolve them. Not here: what programs do at once
//! (`transactions`).

use terral_format::Result;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::transactions::{MemberDoubts, TransactionId};

use crate::client::Client;
use crate::session::unexpected;

impl Client {
    /// What was prepared for transactions and is not known to come to be, on each member of the
    /// partition; nothing if the server is alone. Who does not answer within two seconds is said
    /// not to.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](terral_format::ErrorKind::Denied) for who may not `admin`.
    pub fn doubts(&self) -> Result<Vec<MemberDoubts>> {
        match self.0.call(Request::Doubts)? {
            Reply::Doubts(all) => Ok(all),
            _ => Err(unexpected()),
        }
    }

    /// Says whether a transaction comes to be whose decider was removed. What was in doubt of it on
    /// each member, and is not any more.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](terral_format::ErrorKind::Invalid) if its decider is in; as those of
    /// [`Client::doubts`].
    pub fn resolve(&self, of: TransactionId, is: bool) -> Result<Vec<MemberDoubts>> {
        match self.0.call(Request::Resolve { of, is })? {
            Reply::Doubts(all) => Ok(all),
            _ => Err(unexpected()),
        }
    }
}
