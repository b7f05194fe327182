//! What a process says through a pipe, as long as somebody wants to hear it. Whoever else has the
//! pipe open may keep it so for ever.
//!
//! Not here: what it says (`words`), and who hears it (`remote`).

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How often it is looked whether somebody still does.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Who wants to hear it has this.
#[derive(Clone, Default)]
pub struct Wanted(Arc<()>);

/// The pipe, which ends once nobody does.
pub struct Heard<P> {
    pipe: P,
    wanted: Weak<()>,
}

impl Wanted {
    /// The same pipe.
    pub fn of<P: Read + AsFd>(&self, pipe: P) -> Heard<P> {
        Heard { pipe, wanted: Arc::downgrade(&self.0) }
    }
}

impl<P: Read + AsFd> Read for Heard<P> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.wanted.strong_count() > 0 {
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.pipe.read(into),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;
    use std::io::{Read, Write};

    #[test]
    fn a_pipe_that_others_have_open_ends_once_nobody_hears() {
        let (from, mut to) = std::io::pipe().expect("a pipe");
        let wanted = Wanted::default();
        let mut heard = wanted.of(from);
        let mut byte = [0];
        to.write_all(b"ab").expect("room");
        for is in b"ab" {
            assert_eq!((heard.read(&mut byte).expect("there"), byte[0]), (1, *is));
        }
        let hears = std::thread::spawn(move || heard.read(&mut byte));
        drop(wanted);
        assert_eq!(hears.join().expect("runs").expect("it is over"), 0);
        drop(to);
    }
}
