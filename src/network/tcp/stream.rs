//! The stream of a connection: a socket that never waits, and what is to go into it. Encryption has
//! its place here: what is above hands over and gets plain bytes.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, ipproto,
};

/// Memory that stays for what is to go.
const KEPT_BYTES: usize = 64 << 10;

/// What reading has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// It is over.
    End,
}

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    /// What is to go, from `gone` on.
    unsent: Vec<u8>,
    gone: usize,
}

impl Stream {
    /// One that was accepted.
    pub(super) fn accepted(socket: TcpStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Stream { socket, unsent: Vec::new(), gone: 0 })
    }

    /// One that is being made; what is written goes when it has been.
    pub(super) fn dial(address: SocketAddr) -> std::io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Stream::accepted(socket.into()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// How much is to go.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len() - self.gone
    }

    /// Puts these behind what is to go. If nothing else is, they go now, as far as they can.
    pub(super) fn write(&mut self, parts: [&[u8]; 2]) -> std::io::Result<()> {
        let mut skip = 0;
        if self.unsent() == 0 {
            skip = self.write_now(parts)?;
        }
        for part in parts {
            let now = part.len().min(skip);
            skip -= now;
            self.unsent.extend_from_slice(&part[now..]);
        }
        Ok(())
    }

    fn write_now(&mut self, parts: [&[u8]; 2]) -> std::io::Result<usize> {
        // Not `writev`: a connection that is over is no reason for a signal.
        let (parts, mut no_more) = (parts.map(IoSlice::new), SendAncillaryBuffer::default());
        match rustix::net::sendmsg(&self.socket, &parts, &mut no_more, SendFlags::NOSIGNAL) {
            Ok(gone) => Ok(gone),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets go what can go; how much that was.
    pub(super) fn flush(&mut self) -> std::io::Result<usize> {
        let before = self.gone;
        while self.unsent() > 0 {
            match self.socket.write(&self.unsent[self.gone..]) {
                Ok(gone) => self.gone += gone,
                Err(error) if is_not_yet(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let went = self.gone - before;
        if self.unsent() == 0 {
            self.gone = 0;
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_BYTES);
        } else if self.gone > self.unsent.len() / 2 {
            self.unsent.drain(..self.gone);
            self.gone = 0;
        }
        Ok(went)
    }

    /// Nothing goes any more, whatever was written, and when all that has come is read it is over.
    pub(super) fn end(&mut self) {
        self.unsent.clear();
        self.gone = 0;
        // Without a connection it is over already.
        _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Reads once.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Came {
        match self.socket.read(into) {
            Ok(0) => Came::End,
            Ok(bytes) => Came::Bytes(bytes),
            Err(error) if is_not_yet(&error) => Came::Nothing,
            Err(_) => Came::End,
        }
    }
}

/// Whether it is to be tried again when the socket is ready.
fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
