//! The handshake's socket: frames with descriptors, between processes of one machine. Used once per
//! session, after which everything goes through shared memory, and once per question of those who
//! only look. The server's side never waits for the other.

use std::fs;
use std::io::{self, ErrorKind as IoKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use terral_format::wire::message::FRAMES;
use terral_format::{Error, ErrorKind, Result, frame};

use crate::kernel;
use crate::system::{check, retry};

/// Longest handshake message; what the kernel takes at once, without waiting for the other side.
const MESSAGE_MAX: usize = 64 << 10;
/// Most descriptors of one message.
const DESCRIPTORS_MAX: usize = 4;
/// How long a client waits for the server's words, and the server for a client's.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Who is at the other end, as the kernel says (unix(7), `SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Where a server waits for clients.
pub struct Listener(UnixListener);

/// One handshake.
pub struct Handshake {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl Listener {
    /// Listens at `path`, in the place of a dead server's socket; only this user can connect.
    pub fn bind(path: &Path) -> Result<Self> {
        let failed = |e: &io::Error| Error::system(e, format!("listen at {}", path.display()));
        match fs::remove_file(path) {
            Err(e) if e.kind() != IoKind::NotFound => return Err(failed(&e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(|e| failed(&e))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
        listener.set_nonblocking(true).map_err(|e| failed(&e))?;
        Ok(Listener(listener))
    }

    /// The next client, if one is waiting.
    pub fn accept(&self) -> Result<Option<Handshake>> {
        match self.0.accept() {
            Ok((stream, _)) => {
                let done = stream.set_nonblocking(true);
                done.map_err(|e| Error::system(&e, "accept a client"))?;
                Ok(Some(Handshake { stream, heard: Vec::new() }))
            }
            Err(e) if e.kind() == IoKind::WouldBlock => Ok(None),
            Err(e) => Err(Error::system(&e, "accept a client")),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Handshake {
    /// The server's side: the payload of a message, once all of it is there.
    ///
    /// # Errors
    /// If the client is gone, or what it says is no message.
    pub fn hear(&mut self) -> Result<Option<Vec<u8>>> {
        let mut part = [0; 4096];
        loop {
            if self.heard.len() >= whole_bytes(&self.heard)? {
                let frame = frame::read(&self.heard)?;
                return frame.of(FRAMES).map(|payload| Some(payload.to_vec()));
            }
            match self.stream.read(&mut part) {
                Ok(0) => return Err(cut_off()),
                Ok(count) => self.heard.extend_from_slice(&part[..count]),
                Err(e) if e.kind() == IoKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == IoKind::Interrupted => {}
                Err(e) => return Err(Error::system(&e, "handshake")),
            }
        }
    }

    /// Goes to the server at `path`.
    pub fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(|e| {
            if e.raw_os_error() == Some(libc::EMFILE) {
                return Error::system(&e, "handshake");
            }
            let context = format!("no server answers at {}", path.display());
            Error { kind: ErrorKind::Unreachable, errno: 0, context: format!("{context} ({e})") }
        })?;
        let failed = |e: &io::Error| Error::system(e, "handshake");
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed(&e))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(|e| failed(&e))?;
        Ok(Handshake { stream, heard: Vec::new() })
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Result<Peer> {
        let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both out-parameters live through the call and have the lengths given.
        let got = unsafe {
            libc::getsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &mut length,
            )
        };
        check(got.into(), || "who is the client".into())?;
        Ok(Peer { pid: who.pid as u32, uid: who.uid })
    }

    /// Sends one message with descriptors.
    pub fn send<T: serde::Serialize>(&self, message: &T, with: &[BorrowedFd<'_>]) -> Result<()> {
        assert!(with.len() <= DESCRIPTORS_MAX, "more descriptors than a message carries");
        let mut bytes = Vec::new();
        frame::write(&mut bytes, FRAMES, &frame::encode(message)?);
        let mut control = ControlBuffer::default();
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut header = header_over(&mut part, &mut control, control_bytes(with.len()));
        if with.is_empty() {
            header.msg_controllen = 0;
        } else {
            let raw: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
            // SAFETY: the control buffer has room for one header and DESCRIPTORS_MAX numbers.
            unsafe {
                let first = &mut *libc::CMSG_FIRSTHDR(&header);
                first.cmsg_level = libc::SOL_SOCKET;
                first.cmsg_type = libc::SCM_RIGHTS;
                first.cmsg_len = libc::CMSG_LEN(size_of_val(raw.as_slice()) as u32) as usize;
                let data = libc::CMSG_DATA(first).cast::<RawFd>();
                std::ptr::copy_nonoverlapping(raw.as_ptr(), data, raw.len());
            }
        }
        // SAFETY: the header points to buffers that live through the call.
        let send =
            || unsafe { libc::sendmsg(self.stream.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
        let sent = check(retry(|| send() as i64), || "handshake".into())?;
        if sent as usize == bytes.len() { Ok(()) } else { Err(cut_off()) }
    }

    /// Keeps the place of a descriptor, as long as the answer lives.
    pub fn reserve(&self) -> Result<OwnedFd> {
        // SAFETY: no memory is passed.
        let fd = unsafe {
            kernel::enter()(libc::SYS_fcntl, self.stream.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0)
        };
        let fd = check(fd, || "handshake".into())?;
        // SAFETY: the kernel just made it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }

    /// Receives one message and its descriptors (closed on exec).
    pub fn receive<T: serde::de::DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>)> {
        let mut bytes = vec![0u8; frame::HEADER_BYTES + MESSAGE_MAX];
        let (mut used, mut descriptors) = (0, Vec::new());
        while used < whole_bytes(&bytes[..used])? {
            let got = self.receive_part(&mut bytes[used..], &mut descriptors)?;
            if got == 0 {
                return Err(cut_off());
            }
            used += got;
        }
        let payload = frame::read(&bytes[..used])?.of(FRAMES)?;
        Ok((frame::decode(payload)?, descriptors))
    }

    fn receive_part(&self, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize> {
        let mut control = ControlBuffer::default();
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let mut header = header_over(&mut part, &mut control, size_of::<ControlBuffer>());
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header points to buffers that live through the call.
        let mut receive =
            || unsafe { libc::recvmsg(self.stream.as_raw_fd(), &mut header, flags) } as i64;
        let got = check(retry(&mut receive), || "no answer from the server".into());
        let got = got.map_err(|error| match error.kind {
            // The time-out of a receive says so.
            ErrorKind::WouldBlock => {
                Error::new(ErrorKind::Unanswered, "the server, for 10 s (is it stopped?)")
            }
            _ => error,
        })?;
        // SAFETY: the kernel filled the control buffer; CMSG_* walk it within its length. Each
        // number is a new descriptor of ours.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&header);
            while let Some(one) = next.as_ref() {
                if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_RIGHTS {
                    let bytes = one.cmsg_len - libc::CMSG_LEN(0) as usize;
                    let data = libc::CMSG_DATA(one).cast::<RawFd>();
                    for at in 0..bytes / size_of::<RawFd>() {
                        descriptors.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                    }
                }
                next = libc::CMSG_NXTHDR(&header, one);
            }
        }
        Ok(got as usize)
    }
}

/// Bytes of the message that begins so, as far as that can be told.
fn whole_bytes(begin: &[u8]) -> Result<usize> {
    if begin.len() < frame::HEADER_BYTES {
        return Ok(frame::HEADER_BYTES);
    }
    let payload = frame::payload_bytes(begin)?;
    if payload > MESSAGE_MAX {
        return Err(Error::new(ErrorKind::Malformed, "handshake: message too long"));
    }
    Ok(frame::HEADER_BYTES + payload)
}

fn cut_off() -> Error {
    Error::new(ErrorKind::Malformed, "handshake: cut off")
}

/// Room for the control message of [`DESCRIPTORS_MAX`] descriptors, aligned as its header must be.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

impl Default for ControlBuffer {
    fn default() -> Self {
        ControlBuffer([0; 64])
    }
}

fn control_bytes(descriptors: usize) -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE((descriptors * size_of::<RawFd>()) as u32) as usize }
}

fn header_over(part: &mut libc::iovec, control: &mut ControlBuffer, bytes: usize) -> libc::msghdr {
    assert!(bytes <= size_of::<ControlBuffer>(), "room for the control message");
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = bytes;
    header
}

#[cfg(test)]
mod tests {
    use super::{Handshake, Listener};
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("socket");
        let listener = Listener::bind(&path).expect("listens");
        let client = Handshake::connect(&path).expect("connects");
        let server = listener.accept().expect("accepts").expect("is waiting");
        assert_eq!(server.peer().expect("kernel").pid, std::process::id());
        let mut file = tempfile::tempfile().expect("file");
        file.write_all(b"hello").expect("writes");
        server.send(&("words", 7u32), &[file.as_fd()]).expect("sends");
        let ((words, number), mut with): ((String, u32), _) = client.receive().expect("receives");
        assert_eq!((words.as_str(), number, with.len()), ("words", 7, 1));
        let mut received = File::from(with.remove(0));
        received.rewind().expect("seeks");
        let mut text = String::new();
        received.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "hello");
    }

    #[test]
    fn garbage_is_an_error_and_silence_is_not_waited_for() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("socket");
        let listener = Listener::bind(&path).expect("listens");
        let mut raw = std::os::unix::net::UnixStream::connect(&path).expect("connects");
        let mut server = listener.accept().expect("accepts").expect("is waiting");
        assert_eq!(server.hear().expect("silence"), None);
        raw.write_all(&[0xff; 10]).expect("writes");
        assert_eq!(server.hear().expect("half a header"), None);
        raw.write_all(&[0xff; 54]).expect("writes");
        assert!(server.hear().is_err());
        drop(raw);
        assert!(listener.accept().expect("accepts").is_none());
    }

    #[test]
    fn a_message_in_pieces_is_heard_once_it_is_whole() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("socket");
        let listener = Listener::bind(&path).expect("listens");
        let mut raw = std::os::unix::net::UnixStream::connect(&path).expect("connects");
        let mut server = listener.accept().expect("accepts").expect("is waiting");
        let mut message = Vec::new();
        super::frame::write(&mut message, super::FRAMES, &[7; 5000]);
        let (first, second) = message.split_at(4990);
        raw.write_all(first).expect("writes");
        assert_eq!(server.hear().expect("half"), None);
        raw.write_all(second).expect("writes");
        assert_eq!(server.hear().expect("whole"), Some(vec![7; 5000]));
    }
}
