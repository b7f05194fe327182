//! The parts of a striped object that is open: calls on the object are divided over them, and
//! those of many bytes are done on several at the same time.
//!
//! Invariants: a part that is missing is an error, never zeros; of one part the pieces are done in
//! their order. Not here: how parts come to be (`striping`).

use terral_format::{Error, ErrorKind, Result};

use super::stripes::Striping;
use super::vector::Extent;
use crate::file::File;

/// Fewer bytes are moved by the caller alone.
const ALONE: u64 = 1 << 20;
/// So many threads at most: a process has room for four requests, and one of them is for others.
const THREADS: usize = 3;

/// See the module. Cheap to clone, but for errors.
#[derive(Clone)]
pub(super) struct Parts {
    striping: Striping,
    files: Vec<Result<File>>,
}

/// What is to be done with one part.
type Work<T> = (usize, Vec<(u64, T)>);

impl Parts {
    /// All of an object, the first its own.
    pub fn new(striping: Striping, files: Vec<Result<File>>) -> Self {
        Parts { striping, files }
    }

    fn file(&self, part: usize) -> Result<&File> {
        self.files[part].as_ref().map_err(Clone::clone)
    }

    /// Bytes of the object.
    ///
    /// # Errors
    /// If a part is lost: it may have been the longest.
    pub fn size(&self) -> Result<u64> {
        let end = |part| Ok(self.striping.end(self.file(part)?.attributes()?.size, part));
        (0..self.files.len()).map(end).try_fold(0, |most, end: Result<u64>| Ok(most.max(end?)))
    }

    /// Does something with several parts, at the same time if it is much.
    fn each<T: Send>(
        &self,
        all: Vec<Work<T>>,
        bytes: u64,
        act: impl Fn(&File, u64, T) -> Result<bool> + Sync,
    ) -> Result<bool> {
        let of_part = |(part, pieces): Work<T>| {
            let file = self.file(part)?;
            pieces.into_iter().try_fold(false, |any, (at, piece)| Ok(any | act(file, at, piece)?))
        };
        let many = |all: Vec<Work<T>>| {
            all.into_iter().map(of_part).try_fold(false, |any, one: Result<bool>| Ok(any | one?))
        };
        let all: Vec<Work<T>> = all.into_iter().filter(|(_, pieces)| !pieces.is_empty()).collect();
        if all.len() < 2 || bytes < ALONE {
            return many(all);
        }
        let mut lots: Vec<Vec<Work<T>>> = (0..THREADS).map(|_| Vec::new()).collect();
        all.into_iter().enumerate().for_each(|(at, work)| lots[at % THREADS].push(work));
        std::thread::scope(|threads| {
            let begun: Vec<_> = lots.into_iter().map(|lot| threads.spawn(|| many(lot))).collect();
            let died = |_| Err(Error::new(ErrorKind::System, "thread for a part of an object"));
            let done = begun.into_iter().map(|one| one.join().unwrap_or_else(died));
            // All are waited for, whatever one says.
            let done: Vec<Result<bool>> = done.collect();
            done.into_iter().try_fold(false, |any, one| Ok(any | one?))
        })
    }

    fn nothing<T>(&self) -> Vec<Work<T>> {
        (0..self.files.len()).map(|part| (part, Vec::new())).collect()
    }

    /// Writes bytes that are packed one after the other to extents, which fit.
    pub fn write(&self, extents: &[Extent], packed: &[u8]) -> Result<()> {
        let (mut all, mut rest) = (self.nothing(), packed);
        for piece in extents.iter().flat_map(|of| self.striping.pieces(of.at, of.bytes)) {
            let (bytes, others) = rest.split_at(piece.bytes as usize);
            all[piece.part].1.push((piece.at, bytes));
            rest = others;
        }
        let write = |file: &File, at, bytes: &[u8]| file.write_at(bytes, at).map(|_| false);
        self.each(all, packed.len() as u64, write).map(drop)
    }

    /// Reads extents, which fit, packed one after the other; what lies beyond its end is zeros.
    /// Gives how many bytes were in it.
    pub fn read(&self, extents: &[Extent], packed: &mut [u8]) -> Result<usize> {
        let length = packed.len();
        let (mut all, mut rest) = (self.nothing(), packed);
        for piece in extents.iter().flat_map(|of| self.striping.pieces(of.at, of.bytes)) {
            let (bytes, others) = rest.split_at_mut(piece.bytes as usize);
            all[piece.part].1.push((piece.at, bytes));
            rest = others;
        }
        let read = |file: &File, at, bytes: &mut [u8]| {
            let count = file.read_at(bytes, at)?;
            bytes[count..].fill(0);
            Ok(count < bytes.len())
        };
        if !self.each(all, length as u64, read)? {
            return Ok(length);
        }
        // A part ends before others do, or the object ends.
        let size = self.size()?;
        let within = |of: &Extent| size.saturating_sub(of.at).min(of.bytes) as usize;
        Ok(extents.iter().map(within).sum())
    }

    /// Does something with a range of each part: of those bytes of the object.
    pub fn ranges(
        &self,
        (at, end): (u64, u64),
        act: impl Fn(&File, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let share = |bytes, part| self.striping.share(bytes, part);
        let mut parts = 0..self.files.len();
        parts.try_for_each(|part| act(self.file(part)?, share(at, part), share(end, part)))
    }

    /// Does something with each part beside the object's own that is there; the first error.
    pub fn others(&self, act: impl Fn(&File) -> Result<()>) -> Result<()> {
        let mut done = Ok(());
        for file in self.files.iter().skip(1).flatten() {
            done = done.and(act(file));
        }
        done
    }
}
