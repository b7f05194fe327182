//! What is said to another machine, by a thread: whoever speaks does not wait for a slow one.
//!
//! Invariant: what was said arrives in that order, or not at all. Not here: what it means.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::supply::Sealed;

/// Bytes after which it is looked whether they are still wanted.
const PIECE_BYTES: usize = 64 << 10;

enum Said {
    Line(Vec<u8>),
    File(Sealed),
}

#[derive(Default)]
struct Spoken {
    bytes: AtomicU64,
    over: AtomicBool,
}

/// The way to another machine.
pub struct Voice {
    says: mpsc::Sender<Said>,
    spoken: Arc<Spoken>,
}

impl Voice {
    /// Into this pipe, which is closed once nothing more is said.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn new(mut pipe: impl Write + Send + 'static) -> std::io::Result<Voice> {
        let (says, said) = mpsc::channel();
        let spoken = Arc::new(Spoken::default());
        let of_thread = spoken.clone();
        std::thread::Builder::new().spawn(move || {
            // One that is gone is seen to be.
            while let Ok(said) = said.recv() {
                if of_thread.say(&mut pipe, &said).is_err() {
                    return;
                }
            }
        })?;
        Ok(Voice { says, spoken })
    }

    /// Says a line, without its end.
    pub fn line(&self, text: &[u8]) {
        let _ = self.says.send(Said::Line([text, b"\n"].concat()));
    }

    /// Says how long a file is, and its checksum, in a line, then the file.
    pub fn file(&self, sealed: Sealed) {
        self.line(format!("{} {:016x}", sealed.bytes.len(), sealed.sum).as_bytes());
        let _ = self.says.send(Said::File(sealed));
    }

    /// How many bytes have gone.
    pub fn bytes(&self) -> u64 {
        self.spoken.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.spoken.over.store(true, Ordering::Relaxed);
    }
}

impl Spoken {
    fn say(&self, pipe: &mut impl Write, said: &Said) -> std::io::Result<()> {
        match said {
            Said::Line(line) => pipe.write_all(line),
            Said::File(sealed) => sealed.bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
                if self.over.load(Ordering::Relaxed) {
                    return Err(std::io::ErrorKind::Interrupted.into());
                }
                pipe.write_all(piece)?;
                self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                Ok(())
            }),
        }
    }
}
