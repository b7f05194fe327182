//! A private way between two processes that have one ticket and are no members: TLS by keys that
//! nobody trusts (`encryption`), and a proof of each side over what only the two ends of it know.
//! Whoever has it reads and writes a socket of this machine, into which plain bytes go.
//!
//! Invariants: nothing is handed on before both have proven that they have the ticket, which is
//! never sent; a stranger costs a bounded amount of time and memory, and hears nothing but TLS. Not
//! here: what is said in it.

use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use sha2::Sha256;

use super::encryption::{EXPORTER_BYTES, Keys, OPENING_STEP, Tls};
use super::greeting::{Side, Ticket};

/// Bytes of a proof: an HMAC-SHA-256 (RFC 2104).
const PROOF_BYTES: usize = 32;
/// Bytes that are carried at once.
const PIECE_BYTES: usize = 16 << 10;
/// Who is silent for so long is asked whether it is there, so often, so many times.
const SILENCE: Duration = Duration::from_secs(15);
const ASKED: u32 = 4;
/// What was sent and is not taken for so long ends it.
const UNTAKEN_MS: u32 = 60_000;
/// The last words have so long to go.
const LAST: Duration = Duration::from_secs(10);

/// A private way, once both have proven what they have to.
pub struct Private {
    /// This end of it. It is over when it ends.
    pub stream: UnixStream,
    carrier: JoinHandle<()>,
}

/// A hand-shake, by a socket that waits.
struct Opening {
    socket: TcpStream,
    tls: Tls,
    until: Instant,
}

fn proof(ticket: &Ticket, side: Side, exporter: &[u8; EXPORTER_BYTES]) -> Hmac<Sha256> {
    let mut code =
        Hmac::<Sha256>::new_from_slice(&ticket.0).expect("HMAC takes keys of any length");
    code.update(match side {
        Side::Dialler => b"terral private way: dialler",
        Side::Acceptor => b"terral private way: acceptor",
    });
    code.update(exporter);
    code
}

impl Opening {
    fn left(&self) -> Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn flush(&mut self) -> Result<()> {
        while self.tls.is_unsent() {
            self.socket.set_write_timeout(self.left()?)?;
            self.tls.send(&mut self.socket)?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let mut bytes = [0; OPENING_STEP];
        self.socket.set_read_timeout(self.left()?)?;
        let count = self.socket.read(&mut bytes)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let taken = self.tls.open_first(&bytes[..count]).map_err(Error::other);
        self.flush()?;
        taken
    }

    fn exporter(&mut self) -> Result<[u8; EXPORTER_BYTES]> {
        loop {
            self.flush()?;
            match self.tls.exporter() {
                Some(exporter) => return Ok(exporter),
                None => self.take()?,
            }
        }
    }

    fn say(&mut self, proof: Hmac<Sha256>) -> Result<()> {
        self.tls.seal(&[IoSlice::new(&proof.finalize().into_bytes())])?;
        self.flush()
    }

    fn hear(&mut self, proof: Hmac<Sha256>) -> Result<()> {
        let (mut theirs, mut count) = ([0; PROOF_BYTES], 0);
        loop {
            count += self.tls.plain(&mut theirs[count..]);
            if count == PROOF_BYTES {
                break;
            }
            self.take()?;
        }
        let wrong = |_| Error::new(ErrorKind::PermissionDenied, "it does not have this ticket");
        proof.verify_slice(&theirs).map_err(wrong)
    }

    fn open(mut self, side: Side, ticket: &Ticket) -> Result<Private> {
        let exporter = self.exporter()?;
        let [ours, theirs] = [side, side.other()].map(|side| proof(ticket, side, &exporter));
        if side == Side::Dialler {
            self.say(ours)?;
            self.hear(theirs)?;
        } else {
            // A stranger has no proof of ours.
            self.hear(theirs)?;
            self.say(ours)?;
        }
        let Opening { socket, tls, .. } = self;
        watch_over(&socket)?;
        socket.set_nonblocking(true)?;
        let (stream, here) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        let mut carried = Carried { socket, tls, here, came: Vec::new(), goes: Vec::new() };
        let carrier = std::thread::Builder::new().name("private".into());
        Ok(Private { stream, carrier: carrier.spawn(move || carried.carry())? })
    }
}

/// An end that is lost is noticed.
fn watch_over(socket: &TcpStream) -> Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE)?;
    sockopt::set_tcp_keepcnt(socket, ASKED)?;
    Ok(sockopt::set_tcp_user_timeout(socket, UNTAKEN_MS)?)
}

impl Private {
    /// To who has dialled, within this time.
    ///
    /// # Errors
    /// If it does not prove that it has the ticket; as the system has them.
    pub fn accept(socket: TcpStream, ticket: &Ticket, within: Duration) -> Result<Private> {
        let tls = Keys::make().map_err(Error::other)?.accept()?;
        let opening = Opening { socket, tls, until: Instant::now() + within };
        opening.open(Side::Acceptor, ticket)
    }

    /// To who listens there, within this time.
    ///
    /// # Errors
    /// If it does not prove that it has the ticket; as the system has them.
    pub fn dial(at: SocketAddr, ticket: &Ticket, within: Duration) -> Result<Private> {
        let until = Instant::now() + within;
        let socket = TcpStream::connect_timeout(&at, within)?;
        let tls = Keys::make().map_err(Error::other)?.dial(at)?;
        Opening { socket, tls, until }.open(Side::Dialler, ticket)
    }

    /// Says no more, and waits until what was said has gone.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        // The thread does not panic.
        let _ = self.carrier.join();
    }
}

/// What goes between the two sockets.
struct Carried {
    socket: TcpStream,
    tls: Tls,
    here: UnixStream,
    /// Was decrypted, and is to be read here.
    came: Vec<u8>,
    /// Was said here, and is not encrypted yet.
    goes: Vec<u8>,
}

/// Whether something may be tried again later.
fn later(done: Result<usize>) -> Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

impl Carried {
    fn carry(&mut self) {
        // What has come behind the proof is there already.
        let came = &mut self.came;
        let mut done = self.tls.open(&[], |plain| came.extend_from_slice(plain)).is_ok();
        while done {
            done = self.turn().unwrap_or(false);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.here.shutdown(Shutdown::Both);
    }

    /// Waits until something can go on. Who cannot take anything now is not looked at, as one that
    /// has hung up would be ready for ever.
    fn wait(&self) -> Result<()> {
        let busy = self.tls.is_unsent() || !self.goes.is_empty();
        let mut of_socket = PollFlags::empty();
        of_socket.set(PollFlags::IN, self.came.is_empty());
        of_socket.set(PollFlags::OUT, busy);
        let mut of_here = PollFlags::empty();
        of_here.set(PollFlags::IN, !busy);
        of_here.set(PollFlags::OUT, !self.came.is_empty());
        let mut watched = Vec::with_capacity(2);
        if !of_socket.is_empty() {
            watched.push(PollFd::new(&self.socket, of_socket));
        }
        if !of_here.is_empty() {
            watched.push(PollFd::new(&self.here, of_here));
        }
        match poll(&mut watched, None) {
            Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Carries some. False: one side says no more.
    fn turn(&mut self) -> Result<bool> {
        self.wait()?;
        let mut bytes = [0; PIECE_BYTES];
        if self.came.is_empty()
            && let Some(count) = later(self.socket.read(&mut bytes))?
        {
            let came = &mut self.came;
            let opened = self.tls.open(&bytes[..count], |plain| came.extend_from_slice(plain));
            opened.map_err(Error::other)?;
            if count == 0 {
                return Ok(false);
            }
        }
        if !self.came.is_empty()
            && let Some(count) = later(self.here.write(&self.came))?
        {
            self.came.drain(..count);
        }
        if self.goes.is_empty()
            && !self.tls.is_unsent()
            && let Some(count) = later(self.here.read(&mut bytes))?
        {
            if count == 0 {
                return self.say_goodbye().map(|()| false);
            }
            self.goes.extend_from_slice(&bytes[..count]);
        }
        if !self.goes.is_empty() {
            let count = self.tls.seal(&[IoSlice::new(&self.goes)])?;
            self.goes.drain(..count);
        }
        while self.tls.is_unsent() && later(self.tls.send(&mut self.socket))?.is_some() {}
        Ok(true)
    }

    fn say_goodbye(&mut self) -> Result<()> {
        self.tls.say_goodbye();
        self.socket.set_nonblocking(false)?;
        self.socket.set_write_timeout(Some(LAST))?;
        while self.tls.is_unsent() {
            self.tls.send(&mut self.socket)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use super::Private;
    use crate::tcp::greeting::Ticket;

    const LONG: Duration = Duration::from_secs(20);

    /// Somebody who accepts one, within this time.
    fn accepts(within: Duration) -> (SocketAddr, JoinHandle<std::io::Result<Private>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let at = listener.local_addr().expect("an address");
        let accepts = std::thread::spawn(move || {
            Private::accept(listener.accept()?.0, &Ticket([7; 32]), within)
        });
        (at, accepts)
    }

    #[test]
    fn what_is_said_arrives_at_the_other_end_and_so_does_the_end() {
        let (at, accepts) = accepts(LONG);
        let mut one = Private::dial(at, &Ticket([7; 32]), LONG).expect("opens");
        let mut other = accepts.join().expect("no panic").expect("opens");
        // More than fits anywhere on the way, in both directions at once.
        let said: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut read = vec![0; said.len()];
        std::thread::scope(|scope| {
            for (end, _) in [(&one.stream, 0), (&other.stream, 1)] {
                let (mut end, said) = (end.try_clone().expect("clones"), &said);
                scope.spawn(move || end.write_all(said).expect("is taken"));
            }
            other.stream.read_exact(&mut read).expect("arrives");
            assert!(read == said);
            one.stream.read_exact(&mut read).expect("arrives");
            assert!(read == said);
        });
        one.stream.write_all(b"last").expect("is taken");
        one.close();
        let mut last = Vec::new();
        other.stream.read_to_end(&mut last).expect("ends");
        assert_eq!(last, b"last");
    }

    #[test]
    fn who_has_another_ticket_is_told_nothing_and_gets_no_way() {
        let (at, accepts) = accepts(LONG);
        assert!(Private::dial(at, &Ticket([8; 32]), LONG).is_err());
        let refused = accepts.join().expect("no panic").err().expect("is refused");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn who_speaks_no_tls_or_says_nothing_is_not_waited_for_long() {
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[22, 3, 1, 255, 255], b""] {
            let (at, accepts) = accepts(Duration::from_millis(300));
            let begin = Instant::now();
            let mut stranger = TcpStream::connect(at).expect("connects");
            stranger.write_all(said).expect("is taken");
            assert!(accepts.join().expect("no panic").is_err());
            assert!(begin.elapsed() < LONG);
        }
    }
}
