//! Reads of chunks that a member keeps of another one's file.

use terral_format::Result;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::{FarFile, LentTo, Offered};
use terral_format::wire::message::{Reply, Request};

use super::{Answered, Peers};
use crate::far::desk::Job;
use crate::far::role::Outcome;
use crate::far::{layouts, parts};
use crate::shared::Shared as Server;

impl Peers {
    /// What others read of a chunk that is here.
    pub(super) fn read_part(
        &mut self,
        at: usize,
        job: &Job,
        (index, stamp): (u64, u64),
        part: (u32, u32),
    ) -> Outcome {
        let (from, bytes) = (part.0, part.1 as usize);
        let copy = |server: &Server| {
            let mut state = server.lock();
            parts::copy(&mut state, (job.number(), index), stamp, (from, bytes))
        };
        Ok(match self.sims[at].with(copy).transpose()?.flatten() {
            Some(mut read) => {
                read.resize(bytes, 0);
                (Done::Read, read)
            }
            None => (Done::Unknown, Vec::new()),
        })
    }

    /// Whether another member keeps the chunk that a job reads first.
    fn is_kept(&mut self, at: usize, job: &Job, from: u64) -> bool {
        let kept = self.sims[at].with(|server| {
            let state = server.lock();
            matches!(layouts::of_byte(&state, job.file(), from), Reply::With(..))
        });
        kept == Some(true)
    }

    /// As [`Peers::bring_for`], unless another member keeps what is read.
    pub(super) fn kept_or_brought(
        &mut self,
        at: usize,
        client: usize,
        job: &Job,
    ) -> Option<Result<Option<Answered>>> {
        match job.act {
            Act::Read { at: from, kept, direct: true, .. } if self.is_kept(at, job, from) => {
                Some(self.kept_by(at, client, (job, from, kept)))
            }
            _ => self.bring_for(at, client, job),
        }
    }

    /// Who keeps it, if one still does.
    fn kept_by(
        &mut self,
        at: usize,
        client: usize,
        (job, from, kept): (&Job, u64, bool),
    ) -> Result<Option<Answered>> {
        if kept {
            self.sims[at].ask(client, Request::Far(FarFile::Rests(job.file())))?;
        }
        let asked = Request::Far(FarFile::Where(job.file(), from));
        Ok(match self.sims[at].ask(client, asked)? {
            Reply::With(member, size) => Some((Done::With { member, size }, Vec::new())),
            _ => None,
        })
    }
}

/// What came of an offer.
pub(super) fn offered(reply: &Reply) -> Done {
    match *reply {
        Reply::LentTo(LentTo { count, size, stamp }) => Done::Lent { count, size, stamp },
        Reply::Offered(Offered { size, bytes, stamp }) => Done::Offered { size, bytes, stamp },
        _ => Done::Unknown,
    }
}

/// What that is of a part of a file.
pub(super) fn told(job: &Job, reply: &Reply) -> Done {
    match (job.act, reply) {
        (Act::Return { .. }, Reply::Again) => Done::Stays,
        _ => offered(reply),
    }
}
