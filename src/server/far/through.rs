//! Chunks that were born here, and that another member has mapped: what is read and written of them
//! here is read and written there, by the requests of who reads and writes.
//!
//! Not here: how they came there (`offers`), and who does it there (`shell/relaying`).

use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::PIECE_MAX;
use terral_format::wire::message::{EXTENT_MAX, FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use super::asking::{Step, ask_user};
use super::role::Behind;
use crate::core::state::State;
use crate::storage::bringing;

/// What a reader of chunk `first` asks for, as [`bringing::for_reader`] says; of one that is mapped
/// elsewhere the bytes come in the answer.
///
/// # Errors
/// As those of [`bringing::for_reader`], and of [`super::asking::ask`].
pub fn for_reader(
    state: &mut State,
    file: FileRef,
    (first, count): (u64, u32),
    (within, bytes): (u32, u32),
) -> Result<Reply> {
    // Who asks for none needs the chunk itself.
    if bytes > 0 && state.storage.is_mapped_there(file.ino, first) {
        match read(state, file, first, (within, bytes)) {
            Ok(None) => state.storage.maps_there(file.ino, first, false),
            Ok(Some(reply)) => return Ok(reply),
            Err(error) => return Err(error),
        }
    }
    match bringing::for_reader(state, file, (first, count), (within, bytes)) {
        Err(error) if error.kind == ErrorKind::TextBusy && bytes > 0 => {
            if let Some(reply) = read(state, file, first, (within, bytes))? {
                return Ok(reply);
            }
            // It was when it was asked for, and is not any more.
            let asker = state.members.as_ref().and_then(|members| members.asker());
            state.storage.forget_refused(|of| Some(of) == asker);
            state.storage.maps_there(file.ino, first, false);
            bringing::for_reader(state, file, (first, count), (within, bytes))
        }
        staged => staged,
    }
}

/// `None`: it is not mapped there any more.
fn read(
    state: &mut State,
    file: FileRef,
    index: u64,
    (within, bytes): (u32, u32),
) -> Result<Option<Reply>> {
    state.open_file(file)?;
    let Some(with) = state.storage.with(file.slot, index) else { return Ok(None) };
    let bytes = u64::from(bytes.min(EXTENT_MAX)).min(CHUNK_BYTES.saturating_sub(within.into()));
    let act = Act::ReadMapped { index, at: within, bytes: bytes as u32 };
    let asked = (with, file.ino, act);
    match ask_user(state, asked, Step::ReadMapped, Behind::Nothing)? {
        (Done::Read, mut read) => {
            read.resize(bytes as usize, 0);
            Ok(Some(Reply::Extent(read)))
        }
        _ => Ok(None),
    }
}

/// Writes bytes of one chunk that is mapped elsewhere.
///
/// # Errors
/// As those of [`super::asking::ask`]; [`ErrorKind::BadHandle`] if nobody has the file open for
/// writing.
pub fn write(state: &mut State, file: FileRef, at: u64, bytes: &[u8]) -> Result<Reply> {
    let ino = state.open_file(file)?.ino;
    let (index, within) = (at / CHUNK_BYTES, (at % CHUNK_BYTES) as u32);
    let end = u64::from(within) + bytes.len() as u64;
    if !state.takes_writes(ino) {
        return Err(Error::new(ErrorKind::BadHandle, format!("file {ino}")));
    }
    if bytes.len() > PIECE_MAX || end > CHUNK_BYTES || at > FILE_BYTES_MAX {
        return Err(Error::new(ErrorKind::Malformed, "a write to a chunk that is mapped"));
    }
    let Some(with) = state.storage.with(file.slot, index) else { return Ok(Reply::Again) };
    let asked = (with, ino, Act::WriteMapped { index, at: within });
    match ask_user(state, asked, Step::WriteMapped, Behind::Bytes(bytes.to_vec()))?.0 {
        Done::Done => Ok(Reply::Done),
        _ => {
            state.storage.maps_there(ino, index, false);
            Ok(Reply::Again)
        }
    }
}
