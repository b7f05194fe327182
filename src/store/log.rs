//! The log: transactions, one frame each, in a file of the instance's directory.
//!
//! A transaction counts once its frame is whole. What a dying server left half-written is cut off
//! at the next start. The log is rewritten from a snapshot when it has grown too long; the new file
//! takes the old one's name in one step. [`Journal`] is what a server needs of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use terral_format::disk::migrate::Migrate;
use terral_format::disk::{Record, Transaction};
use terral_format::{Error, Result, frame};

/// Memory the log always has in hand.
pub const AHEAD_BYTES: u64 = 256 << 10;

/// Records of one transaction of a snapshot.
const PART: usize = 1024;

/// Where a server writes what it did, to be read by the one that follows it.
pub trait Journal: Send {
    /// Adds one transaction. When this returns, it survives the death of this process.
    ///
    /// # Errors
    /// What the file system says; nothing was added then.
    fn append(&mut self, records: &[Record]) -> Result<()>;

    /// Makes sure that the next transactions, [`AHEAD_BYTES`] in all, find memory.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if they would not: nothing may be changed then.
    fn reserve(&mut self) -> Result<()>;

    /// Bytes of it.
    fn bytes(&self) -> u64;

    /// Replaces all of it by `snapshot`, in one step.
    ///
    /// # Errors
    /// What the file system says; it is as it was then.
    fn rewrite(&mut self, snapshot: &mut dyn Iterator<Item = Record>) -> Result<()>;
}

/// An open log.
pub struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    reserved: u64,
    buffer: Vec<u8>,
    oldest: u16,
}

impl Log {
    /// A new log that holds `first`: who is killed as it is made leaves none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, first: &[Record]) -> Result<Self> {
        let next = path.with_extension("next");
        let mut log = Log::over(path, new_file(&next)?, 0);
        log.append(first)?;
        fs::rename(&next, path).map_err(|e| Error::system(&e, next.display().to_string()))?;
        Ok(log)
    }

    fn over(path: &Path, file: File, length: u64) -> Self {
        Log {
            path: path.into(),
            file,
            length,
            reserved: 0,
            buffer: Vec::new(),
            oldest: Transaction::VERSION,
        }
    }

    /// Opens a log and gives its transactions, in order.
    ///
    /// # Errors
    /// A log of a version that this program does not read is refused; a torn end is not an error.
    pub fn open(path: &Path) -> Result<(Self, Vec<Vec<Record>>)> {
        let failed = |e: &io::Error| Error::system(e, path.display().to_string());
        let bytes = fs::read(path).map_err(|e| failed(&e))?;
        let (mut rest, mut transactions) = (bytes.as_slice(), Vec::new());
        let mut oldest = Transaction::VERSION;
        // Zeros at the end are memory that was reserved and not yet used.
        while rest.iter().take(frame::HEADER_BYTES).any(|byte| *byte != 0) {
            let Ok(frame) = frame::read(rest) else { break };
            transactions.push(Transaction::read(frame.version, frame.payload)?.0);
            oldest = oldest.min(frame.version);
            rest = frame.rest;
        }
        let length = (bytes.len() - rest.len()) as u64;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| failed(&e))?;
        file.set_len(length).map_err(|e| failed(&e))?;
        Ok((Log { oldest, ..Log::over(path, file, length) }, transactions))
    }

    /// The earliest version that some of it is of, as long as it is not rewritten.
    pub fn oldest(&self) -> u16 {
        self.oldest
    }

    fn write_next(
        &mut self,
        snapshot: &mut dyn Iterator<Item = Record>,
        next: PathBuf,
    ) -> Result<()> {
        let mut log = Log::over(&next, new_file(&next)?, 0);
        let mut part = Vec::with_capacity(PART);
        for record in snapshot {
            part.push(record);
            if part.len() == PART {
                log.append(&part)?;
                part.clear();
            }
        }
        log.append(&part)?;
        let moved = fs::rename(&next, &self.path);
        moved.map_err(|e| Error::system(&e, next.display().to_string()))?;
        (self.file, self.length, self.reserved) = (log.file, log.length, log.length);
        self.oldest = Transaction::VERSION;
        Ok(())
    }
}

impl Journal for Log {
    fn append(&mut self, records: &[Record]) -> Result<()> {
        self.buffer.clear();
        frame::write(&mut self.buffer, Transaction::VERSION, &frame::encode(&records)?);
        let written = self.file.write_all_at(&self.buffer, self.length);
        written.map_err(|e| Error::system(&e, self.path.display().to_string()))?;
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    fn reserve(&mut self) -> Result<()> {
        if self.length + AHEAD_BYTES <= self.reserved {
            return Ok(());
        }
        let (from, bytes) = (self.length, 2 * AHEAD_BYTES);
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, bytes)
            .map_err(|e| Error::system(&e.into(), self.path.display().to_string()))?;
        self.reserved = from + bytes;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.length
    }

    /// In transactions of bounded size.
    fn rewrite(&mut self, snapshot: &mut dyn Iterator<Item = Record>) -> Result<()> {
        let next = self.path.with_extension("next");
        let written = self.write_next(snapshot, next.clone());
        if written.is_err() {
            // It takes memory that somebody lacks.
            let _ = fs::remove_file(&next);
        }
        written
    }
}

fn new_file(path: &Path) -> Result<File> {
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(true).truncate(true).mode(0o600);
    how.open(path).map_err(|e| Error::system(&e, path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::{Journal, Log};
    use std::fs::OpenOptions;
    use std::io::Write;
    use terral_format::disk::Record;
    use terral_format::disk::facts::Fact;
    use terral_format::ids::{Ino, Lsn};

    fn record(n: u64) -> Vec<Record> {
        vec![Fact::Rewritten { ino: Ino(n) }.into(), Fact::NamesDrained(Lsn(n)).into()]
    }

    #[test]
    fn a_torn_end_is_cut_off_and_what_was_whole_stays() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("log");
        let mut log = Log::create(&path, &record(0)).expect("creates");
        for n in 1..50 {
            log.append(&record(n)).expect("appends");
        }
        let whole = std::fs::read(&path).expect("reads");
        for cut in [1, 7, 16, 20] {
            std::fs::write(&path, &whole[..whole.len() - cut]).expect("writes");
            let (mut log, found) = Log::open(&path).expect("opens");
            assert_eq!(found.len(), 49);
            log.append(&record(99)).expect("appends");
            let (_, found) = Log::open(&path).expect("opens");
            assert_eq!(found.last(), Some(&record(99)));
        }
        let garbage = OpenOptions::new().append(true).open(&path).expect("opens");
        (&garbage).write_all(&[0x5a; 40]).expect("writes");
        assert_eq!(Log::open(&path).expect("opens").1.len(), 50);
        let (mut log, _) = Log::open(&path).expect("opens");
        log.reserve().expect("room");
        assert_eq!(Log::open(&path).expect("opens").1.len(), 50);
    }

    #[test]
    fn a_log_that_is_there_has_what_it_began_with() {
        let home = tempfile::tempdir().expect("directory");
        let paths: Vec<_> = (0..500).map(|at| home.path().join(at.to_string())).collect();
        std::thread::scope(|threads| {
            let looks = threads.spawn(|| {
                for path in &paths {
                    while !path.exists() {
                        std::hint::spin_loop();
                    }
                    assert_ne!(std::fs::read(path).expect("there").len(), 0);
                }
            });
            for path in &paths {
                if looks.is_finished() {
                    break;
                }
                Log::create(path, &record(0)).expect("creates");
            }
        });
    }

    #[test]
    fn a_rewritten_log_holds_the_snapshot_and_goes_on() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("log");
        let mut log = Log::create(&path, &record(0)).expect("creates");
        let snapshot: Vec<_> = (0..3000).map(|n| Fact::Rewritten { ino: Ino(n) }.into()).collect();
        log.rewrite(&mut snapshot.clone().into_iter()).expect("rewrites");
        log.append(&record(1)).expect("appends");
        let (_, found) = Log::open(&path).expect("opens");
        let flat: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(flat[..3000], snapshot);
        assert_eq!(flat[3000..], record(1));
    }
}
