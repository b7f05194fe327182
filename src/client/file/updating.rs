//! Writes that are done only if nobody has changed the file since somebody looked. Not here: how
//! that is known (the server where the file was born).

use terral_format::local::batch::Head;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::updates::{RECORDS_MAX, Update};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::fault;
use terral_transport::permission::acting;

use super::{File, check_range};
use crate::session::unexpected;

impl File {
    /// Its update id: greater after each change of its bytes, its size or its extended attributes,
    /// by whoever on whatever machine. It may be greater, too, though nothing was changed: since
    /// the server has begun anew, or memory was short.
    ///
    /// From then on the first write of each process to each part of the file asks the server.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it is not open for reading; [`ErrorKind::Busy`] or
    /// [`ErrorKind::TextBusy`] while somebody has it mapped to store there.
    pub fn update_id(&self) -> Result<u64> {
        self.words()?;
        self.commit()?;
        self.updated(Update::Look, &[])
    }

    /// Writes all of these, each from a place on and in their order, if the file has an update id
    /// still; gives the one that it has then. All of it is written, or nothing, whoever is killed.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it has another one, as it was changed; [`ErrorKind::TooBig`] for
    /// more than [`RECORDS_MAX`] bytes, of which each place takes 16; those of
    /// [`File::update_id`], and of a write.
    pub fn write_if(&self, seen: u64, writes: &[(u64, &[u8])]) -> Result<u64> {
        self.words()?;
        let mut records = Vec::new();
        for (at, bytes) in writes {
            check_range(*at, bytes.len() as u64)?;
            let length = u32::try_from(bytes.len()).ok();
            let head = length.map(|bytes| Head { at: *at, bytes });
            let too_long = || Error::new(ErrorKind::TooBig, "a write on condition");
            let head = head
                .filter(|head| records.len() as u64 + head.record_bytes() <= RECORDS_MAX as u64);
            records.extend_from_slice(&head.ok_or_else(too_long)?.write());
            let from = records.len();
            records.resize(from + bytes.len(), 0);
            fault::copy(&mut records[from..], bytes)?;
        }
        self.commit()?;
        let strips = !acting().person.is_root();
        if !self.is_far() {
            self.drop_set_id(records.len())?;
        }
        let (token, call) = (self.token(), random()?);
        self.updated(Update::Write { seen, strips, token, call }, &records)
    }

    fn updated(&self, what: Update, records: &[u8]) -> Result<u64> {
        let asked = FarFile::Update { of: self.handle(), what, records };
        match self.connection.call(Request::Far(asked))? {
            Reply::Updated(id) => Ok(id),
            _ => Err(unexpected()),
        }
    }
}

fn random() -> Result<u64> {
    let failed = |error: getrandom::Error| {
        let errno = error.raw_os_error().unwrap_or(0);
        Error { kind: ErrorKind::System, errno, context: format!("a random number: {error}") }
    };
    getrandom::u64().map_err(failed)
}
