//! What a server's own process asks for programs of other machines, about files that were born
//! here. Not here: bytes, and chunks that are lent (`client`).

use terral_format::Result;
use terral_format::ids::Ino;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::FarOwner;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::updates::{Attempt, Update};

use crate::client::Client;
use crate::session::unexpected;

impl Client {
    /// What another member says of a named lock, or of what it protects, that was born here. Only
    /// for the server's own process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`]; see [`Fencing`].
    pub fn fencing_for(&self, ino: Ino, owner: FarOwner, what: Fencing) -> Result<Fenced> {
        match self.0.call(Request::Far(FarFile::FencingFor(ino, owner, what)))? {
            Reply::Fenced(fenced) => Ok(fenced),
            _ => Err(unexpected()),
        }
    }

    /// The update id of what was born here, or a write as long as it has one, for somebody on
    /// another machine. Only for the server's own process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`], and of [`crate::File::write_if`].
    pub fn update_for(
        &self,
        ino: Ino,
        attempt: Attempt,
        (what, records): (Update, &[u8]),
    ) -> Result<u64> {
        match self.0.call(Request::Far(FarFile::UpdateFor { ino, attempt, what, records }))? {
            Reply::Updated(id) => Ok(id),
            _ => Err(unexpected()),
        }
    }
}
