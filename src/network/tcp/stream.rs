//! The stream of a connection: a socket that never waits, and what is to go into it. What is above
//! hands over and gets plain bytes, whether they are encrypted on the wire or not.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, ipproto,
};

use super::backlog::Backlog;
use super::encryption::{OPENING_STEP, SEALED_BYTES, Tls};
use super::greeting::Channel;

/// Parts that the system takes at once (`UIO_MAXIOV`).
const PARTS_AT_ONCE: usize = 1024;

/// What reading has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// It is over.
    End,
    /// Something that is wrong: it was not said by the other side.
    Wrong(&'static str),
}

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
    /// What is to go, not encrypted.
    unsent: Backlog,
}

impl Stream {
    /// One that was accepted, or is being made.
    pub(super) fn new(socket: TcpStream, tls: Option<Tls>) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Stream { socket, tls: tls.map(Box::new), unsent: Backlog::default() })
    }

    /// One that is being made; what is written goes when it has been.
    pub(super) fn dial(address: SocketAddr, tls: Option<Tls>) -> std::io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Stream::new(socket.into(), tls),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What carries its bytes; nothing does yet before TLS is through.
    pub(super) fn channel(&mut self) -> Option<Channel> {
        match &mut self.tls {
            None => Some(Channel::Plain),
            Some(tls) => tls.exporter().map(Channel::Tls),
        }
    }

    /// How much is to go. What is encrypted counts as the most that may be.
    pub(super) fn unsent(&self) -> usize {
        let is_sealed = self.tls.as_ref().is_some_and(|tls| tls.is_unsent());
        self.unsent.bytes() + if is_sealed { SEALED_BYTES } else { 0 }
    }

    /// Puts these behind what is to go. If nothing else is, they go now, as far as they can, from
    /// where they lie.
    pub(super) fn write(&mut self, parts: &[&[u8]]) -> std::io::Result<()> {
        let mut parts: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut parts[..];
        if self.unsent() == 0 {
            self.write_now(&mut left)?;
        }
        left.iter().for_each(|part| self.unsent.push(part));
        Ok(())
    }

    /// Takes of these what has gone, or waits encrypted.
    fn write_now(&mut self, left: &mut &mut [IoSlice<'_>]) -> std::io::Result<()> {
        let mut wire = Wire(&self.socket);
        let Some(tls) = &mut self.tls else {
            IoSlice::advance_slices(left, not_yet_is_none(wire.send(left))?);
            return Ok(());
        };
        loop {
            let now = tls.seal(left)?;
            IoSlice::advance_slices(left, now);
            not_yet_is_none(tls.send(&mut wire))?;
            if now == 0 || tls.is_unsent() {
                return Ok(());
            }
        }
    }

    /// Lets go what can go; how much that was.
    pub(super) fn flush(&mut self) -> std::io::Result<usize> {
        let (mut went, mut wire) = (0, Wire(&self.socket));
        let Some(tls) = &mut self.tls else { return self.flush_plain() };
        loop {
            while tls.is_unsent() {
                match not_yet_is_none(tls.send(&mut wire))? {
                    0 => return Ok(went),
                    some => went += some,
                }
            }
            match tls.seal(&self.unsent.first().map(IoSlice::new))? {
                0 => return Ok(went),
                sealed => self.unsent.pop(sealed),
            }
        }
    }

    fn flush_plain(&mut self) -> std::io::Result<usize> {
        let mut went = 0;
        while self.unsent.bytes() > 0 {
            let first = self.unsent.first().map(IoSlice::new);
            match not_yet_is_none(Wire(&self.socket).send(&first))? {
                0 => break,
                some => {
                    self.unsent.pop(some);
                    went += some;
                }
            }
        }
        Ok(went)
    }

    /// Gives memory back that was not needed for a while.
    pub(super) fn rest(&mut self) {
        self.unsent.rest();
    }

    #[cfg(test)]
    pub(super) fn tls(&mut self) -> &mut Tls {
        self.tls.as_mut().expect("it is encrypted")
    }

    /// Nothing goes any more, whatever was written, and when all that has come is read it is over.
    pub(super) fn end(&mut self) {
        self.unsent.clear();
        // Without a connection it is over already.
        _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Tells the other side what TLS has to say to the end of it, if there is room for that.
    pub(super) fn say_goodbye(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.say_goodbye();
            // It is closed in any case.
            _ = tls.send(&mut Wire(&self.socket));
        }
    }

    /// Reads once, and no more than there is room for; before there is a session.
    pub(super) fn read_first(&mut self, into: &mut [u8]) -> Came {
        let Some(tls) = &mut self.tls else { return read(&self.socket, into) };
        let mut sealed = [0; OPENING_STEP];
        if !tls.has_plain() {
            match read(&self.socket, &mut sealed) {
                Came::Bytes(count) => {
                    if let Err(what) = tls.open_first(&sealed[..count]) {
                        return Came::Wrong(what);
                    }
                }
                came => return came,
            }
        }
        match tls.plain(into) {
            0 if tls.is_over() => Came::End,
            0 => Came::Nothing,
            count => Came::Bytes(count),
        }
    }

    /// Whether something has come that [`Stream::read_first`] had no room for.
    pub(super) fn is_unread(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.has_plain())
    }

    /// Reads once, by way of `scratch`, and hands on all of it.
    pub(super) fn read(&mut self, scratch: &mut [u8], mut hand: impl FnMut(&[u8])) -> Came {
        let came = read(&self.socket, scratch);
        let count = if let Came::Bytes(count) = came { count } else { 0 };
        let Some(tls) = &mut self.tls else {
            hand(&scratch[..count]);
            return came;
        };
        match tls.open(&scratch[..count], hand) {
            Err(what) => Came::Wrong(what),
            Ok(_) if tls.is_over() => Came::End,
            Ok(0) if count > 0 => Came::Nothing,
            Ok(0) => came,
            Ok(count) => Came::Bytes(count),
        }
    }

    /// Reads once, to the end of `into`, without taking more memory for it. Not for what is
    /// encrypted.
    pub(super) fn read_plain(&mut self, into: &mut Vec<u8>) -> Came {
        debug_assert!(self.tls.is_none(), "TLS has it elsewhere");
        came(rustix::io::read(&self.socket, spare_capacity(into)).map_err(Into::into))
    }
}

fn read(mut socket: &TcpStream, into: &mut [u8]) -> Came {
    came(socket.read(into))
}

fn came(count: std::io::Result<usize>) -> Came {
    match count {
        Ok(0) => Came::End,
        Ok(bytes) => Came::Bytes(bytes),
        Err(error) if is_not_yet(&error) => Came::Nothing,
        Err(_) => Came::End,
    }
}

/// Whether it is to be tried again when the socket is ready.
fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn not_yet_is_none(went: std::io::Result<usize>) -> std::io::Result<usize> {
    went.or_else(|error| if is_not_yet(&error) { Ok(0) } else { Err(error) })
}

/// A socket into which parts go together.
struct Wire<'a>(&'a TcpStream);

impl Wire<'_> {
    /// Not `writev`: a connection that is over is no reason for a signal.
    fn send(&self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let parts = &parts[..parts.len().min(PARTS_AT_ONCE)];
        let mut no_more = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.0, parts, &mut no_more, SendFlags::NOSIGNAL)?)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.send(&[IoSlice::new(part)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.send(parts)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
