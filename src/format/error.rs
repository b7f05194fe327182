//! The one error type of the system: what happened, to what, and whether trying again may help.

use serde::{Deserialize, Serialize};

/// What went wrong, in the terms of POSIX where POSIX has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No such file, directory or object.
    NotFound,
    /// It exists already.
    Exists,
    /// A path component is not a directory.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// An argument makes no sense.
    Invalid,
    /// A name of more than 255 or a path of more than 4,095 bytes.
    NameTooLong,
    /// Offset or size beyond what a file can have.
    TooLarge,
    /// Every tier is full and nothing can be drained.
    NoSpace,
    /// A table of this server (files, sessions, open files) is full.
    TooMany,
    /// The principal may not do this.
    Denied,
    /// The capability or credential is forged, stale or revoked.
    Unauthorized,
    /// The descriptor or handle names nothing that is open, or not for this.
    BadHandle,
    /// Rename across file systems.
    CrossDevice,
    /// Too many symbolic links.
    Loop,
    /// A symbolic link is on the way, which the client resolves.
    Link,
    /// The object is in use.
    Busy,
    /// A frame, message, record or shared word is malformed.
    Malformed,
    /// Versions do not fit.
    Version,
    /// Bytes do not match their checksum.
    Corrupt,
    /// The server cannot be reached.
    Unreachable,
    /// The permanent store failed.
    Backing,
    /// The operating system refused something.
    System,
    /// Not offered.
    Unsupported,
    /// Somebody else has a lock there.
    WouldBlock,
    /// Waiting for the lock would never end: its holder waits for the caller.
    Deadlock,
    /// A signal handler ran meanwhile.
    Interrupted,
    /// There is no such extended attribute.
    NoData,
    /// The value of an extended attribute is too long.
    TooBig,
    /// The name of an extended attribute has a length that none has.
    OutOfRange,
    /// A program that runs is not written, and what may be written is not run.
    TextBusy,
    /// A FIFO or a socket, which is not opened as a file.
    Special,
    /// The server is there and says nothing: stopped, or hard at work.
    Unanswered,
    /// It is not as it was when the caller looked at it, which a transaction depends on.
    Changed,
    /// The lock that the caller relies on is not his any more, or what he writes is another's.
    Stale,
    /// A container has no room for it by its quota.
    Quota,
}

/// A failure of the world: a kind, what it happened to and what to do, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The `errno` the operating system gave, or 0.
    pub errno: i32,
    /// What it happened to, and what to do next.
    pub context: String,
}

/// Result of anything that may fail for a reason outside the program.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` on what `context` names.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error { kind, errno: 0, context: context.into() }
    }

    /// An error from the operating system while doing what `context` says.
    pub fn system(error: &std::io::Error, context: impl Into<String>) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        let kind = ErrorKind::from_errno(errno);
        Error { kind, errno, context: format!("{}: {error}", context.into()) }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn may_retry(&self) -> bool {
        let kinds =
            [ErrorKind::Unreachable, ErrorKind::Unanswered, ErrorKind::Busy, ErrorKind::Backing];
        kinds.contains(&self.kind)
    }

    /// The `errno` a POSIX caller gets.
    pub fn to_errno(&self) -> i32 {
        if self.errno != 0 { self.errno } else { self.kind.to_errno() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.errno != 0 {
            return f.write_str(&self.context);
        }
        write!(f, "{}: {}", self.context, self.kind.phrase())
    }
}

impl std::error::Error for Error {}

/// Kind, Linux `errno` (asm-generic), words for a person.
const ERRNOS: &[(ErrorKind, i32, &str)] = &[
    (ErrorKind::NotFound, 2, "no such file or directory"),
    (ErrorKind::Exists, 17, "file exists"),
    (ErrorKind::NotDirectory, 20, "not a directory"),
    (ErrorKind::IsDirectory, 21, "is a directory"),
    (ErrorKind::NotEmpty, 39, "directory not empty"),
    (ErrorKind::Invalid, 22, "invalid argument"),
    (ErrorKind::NameTooLong, 36, "name too long"),
    (ErrorKind::TooLarge, 27, "file too large"),
    (ErrorKind::NoSpace, 28, "no space left"),
    (ErrorKind::TooMany, 23, "table full"),
    (ErrorKind::Denied, 13, "permission denied"),
    (ErrorKind::Unauthorized, 1, "capability refused"),
    (ErrorKind::BadHandle, 9, "not open, or not for this"),
    (ErrorKind::CrossDevice, 18, "not the same file system"),
    (ErrorKind::Loop, 40, "too many symbolic links"),
    (ErrorKind::Link, 40, "a symbolic link"),
    (ErrorKind::Busy, 16, "in use"),
    (ErrorKind::Unsupported, 95, "not supported"),
    (ErrorKind::WouldBlock, 11, "locked by another"),
    (ErrorKind::Changed, 11, "changed since it was looked at"),
    (ErrorKind::Deadlock, 35, "its holder waits for us"),
    (ErrorKind::Interrupted, 4, "interrupted by a signal"),
    (ErrorKind::NoData, 61, "no such attribute"),
    (ErrorKind::TooBig, 7, "value too long"),
    (ErrorKind::OutOfRange, 34, "length out of range"),
    (ErrorKind::TextBusy, 26, "executed, or open for writing"),
    (ErrorKind::Special, 6, "a FIFO or a socket"),
    (ErrorKind::Unanswered, 110, "no answer"),
    (ErrorKind::Stale, 116, "the lock is another's by now"),
    (ErrorKind::Quota, 122, "quota exceeded"),
    (ErrorKind::Unreachable, 107, "server not reachable"),
    (ErrorKind::Malformed, 71, "malformed"),
    (ErrorKind::Version, 71, "version mismatch"),
    (ErrorKind::Corrupt, 5, "checksum mismatch"),
    (ErrorKind::Backing, 5, "permanent store failed"),
    (ErrorKind::System, 5, "system error"),
];

impl ErrorKind {
    /// The Linux `errno` of this kind.
    pub fn to_errno(self) -> i32 {
        ERRNOS.iter().find(|row| row.0 == self).map_or(5, |row| row.1)
    }

    /// The kind of an `errno`, [`ErrorKind::System`] where there is no closer one.
    pub fn from_errno(errno: i32) -> Self {
        ERRNOS.iter().find(|row| row.1 == errno).map_or(ErrorKind::System, |row| row.0)
    }

    fn phrase(self) -> &'static str {
        ERRNOS.iter().find(|row| row.0 == self).map_or("failed", |row| row.2)
    }
}

#[cfg(test)]
mod tests {
    use super::{ERRNOS, Error, ErrorKind};

    #[test]
    fn every_row_maps_back_to_a_kind_with_its_errno() {
        for (kind, errno, _) in ERRNOS {
            assert_eq!(kind.to_errno(), *errno);
            assert_eq!(ErrorKind::from_errno(*errno).to_errno(), *errno);
        }
    }

    #[test]
    fn a_system_error_keeps_its_errno() {
        let io = std::io::Error::from_raw_os_error(30);
        assert_eq!(Error::system(&io, "open /x").to_errno(), 30);
    }
}
