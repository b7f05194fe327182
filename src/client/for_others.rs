//! What a server's own process asks for programs of other machines, about files that were born
//! here. Not here: chunks that are lent (`client`).

use terral_format::Result;
use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::far::Done;
use terral_format::wire::far_files::{FarFile, LentTo, PIECE_MAX, Piece};
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::FarOwner;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::updates::{Attempt, Update};

use crate::client::Client;
use crate::file::far::next_call;
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

    /// Which member keeps the chunk of what was born here that has this byte, if one does, and the
    /// size of the file. Only for the server's own process, as all that follow.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn kept_by(&self, ino: Ino, at: u64) -> Result<Option<(Member, u64)>> {
        match self.0.call(Request::Far(FarFile::Where(ino, at)))? {
            Reply::With(member, size) => Ok(Some((member, size))),
            Reply::Again => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// A chunk of another member's file, of which so many bytes count, is to come from a member,
    /// and to stay here. False: it cannot.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn take(
        &self,
        (of, index, bytes): (Number, u64, u32),
        (from, stamp): (Member, u64),
    ) -> Result<bool> {
        match self.0.call(Request::Far(FarFile::Take { of, index, bytes, from, stamp }))? {
            Reply::Done => Ok(true),
            Reply::Again => Ok(false),
            _ => Err(unexpected()),
        }
    }

    /// A member has all of a chunk that it was to take, by this stamp.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn kept(&self, (ino, by): (Ino, Member), (index, stamp): (u64, u64)) -> Result<Done> {
        match self.0.call(Request::Far(FarFile::Kept(ino, by, index, stamp)))? {
            Reply::LentTo(LentTo { count, size, stamp }) => Ok(Done::Lent { count, size, stamp }),
            Reply::Again => Ok(Done::Unknown),
            _ => Err(unexpected()),
        }
    }

    /// Bytes of a chunk that is here, from there in its file on, by who is to take it with this
    /// stamp; 0: by who only reads. False: they are not to be had.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn read_part(&self, of: Number, (at, stamp): (u64, u64), into: &mut [u8]) -> Result<bool> {
        let call = next_call();
        let count = into.len();
        let mut within = 0;
        for part in into.chunks_mut(PIECE_MAX) {
            let more = (count - within - part.len()) as u32;
            let piece = Piece { call, within: within as u32, more };
            let (at, bytes) = (at + within as u64, part.len() as u32);
            match self.0.call(Request::Far(FarFile::ReadPart { of, at, bytes, stamp, piece }))? {
                Reply::Extent(read) if read.len() == part.len() => part.copy_from_slice(&read),
                Reply::Again => return Ok(false),
                _ => return Err(unexpected()),
            }
            within += part.len();
        }
        Ok(true)
    }
}
