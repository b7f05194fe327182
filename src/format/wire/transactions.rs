//! Transactions: operations on names and on objects that come to be all together or not at all.
//! Each sees what those before it have done. Not here: who carries them out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::ids::{Member, Number};
use crate::wire::attributes::Seen;
use crate::wire::capability::Operations;
use crate::wire::list;
use crate::wire::manner::{RenameHow, XattrHow};
use crate::{Error, ErrorKind, Result, frame};

/// Most operations of one.
pub const OPERATIONS_MAX: usize = 1024;
/// Most bytes of one, as it is encoded: it is one message.
pub const TRANSACTION_BYTES: usize = (16 << 10) - 64;

/// What a file was when somebody looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Which it is.
    pub number: Number,
    /// Bytes.
    pub size: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// Names a transaction of which several servers have a part, for as long as any of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// The member that decides whether it comes to be.
    pub by: Member,
    /// Random bits: no other of its has them.
    pub number: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.by.number(), self.number)
    }
}

impl FromStr for TransactionId {
    type Err = Error;

    fn from_str(said: &str) -> Result<Self> {
        let none = || Error::new(ErrorKind::Invalid, "a transaction: MEMBER-NUMBER, as listed");
        let (by, number) = said.split_once('-').ok_or_else(none)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        let is_good = number.len() == 16 && number.bytes().all(is_hex);
        let number = u64::from_str_radix(number, 16).ok().filter(|_| is_good).ok_or_else(none)?;
        let decimal = by.bytes().all(|byte| byte.is_ascii_digit());
        let by = by.parse().ok().filter(|_| decimal).and_then(Member::new).ok_or_else(none)?;
        Ok(TransactionId { by, number })
    }
}

/// Why it cannot be heard whether a transaction comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Who decides it does not answer.
    Silent,
    /// Who decides it was removed, and its witness, if it has one: somebody has to say.
    Lost,
    /// Its witness does not answer, by whose word it is.
    Witness,
}

/// Something of which a transaction is prepared, and not known to come to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubt {
    /// Which transaction.
    pub of: TransactionId,
    /// What it sets extended attributes of, or gives names.
    pub file: Number,
    /// One of its paths; empty if it has none.
    pub path: Vec<u8>,
    /// Which attributes, or the first ones.
    pub names: Vec<Vec<u8>>,
    /// How many further names it gives.
    pub gets: u32,
    /// Since when, seconds since 1970.
    pub since_s: u64,
    /// Why that is not known; `None`: it is just being decided, or heard of.
    pub trouble: Option<Trouble>,
    /// The member that knows whether it came to be if who decides it is removed; `None`: none does.
    pub witness: Option<Member>,
}

/// Most of these that a member says.
pub const DOUBTS_MAX: usize = 64;
/// Most names in each.
pub const DOUBT_NAMES_MAX: usize = 8;

/// What a member says of what was prepared there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDoubts {
    /// Which.
    pub member: Member,
    /// The first [`DOUBTS_MAX`]; `None`: it does not answer.
    pub doubts: Option<Vec<InDoubt>>,
}

/// An extended attribute of a file that its home is to set, or remove.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Set {
    /// Which operation of the transaction says so.
    pub operation: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Its value; `None` removes it.
    pub value: Option<Vec<u8>>,
    /// What must be there.
    pub how: XattrHow,
}

/// Names that a file gets, of which its home is to count some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gets {
    /// Which operation of the transaction gives the first one.
    pub operation: u32,
    /// So many more than it loses; at most [`OPERATIONS_MAX`].
    pub names: u32,
}

/// Names, each with a number: what leads to a directory from the root, or in which directory it is.
pub type Way = Vec<(Number, Vec<u8>)>;

/// Where a file has got a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A directory that was there before.
    pub directory: Number,
    /// Those that the same transaction has made, which lead on from there.
    pub made: Way,
    /// What it is called in the last one.
    pub name: Vec<u8>,
}

/// The names of a file that are delegated: from when it is prepared until it is known that it never
/// comes to be, or has, they are changed by who decides it, in the permanent store, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delegated {
    /// Which operation of the transaction changes them first.
    pub operation: u32,
    /// So many more it gets than it loses, which are counted from now on.
    pub more: u32,
    /// So many more it loses than it gets, which are counted no more from now on.
    pub less: u32,
    /// Those of its names that the transaction takes, or goes by, each by its directory.
    pub names: Way,
    /// In, or below, which directories it is to have names.
    pub above: Vec<Way>,
    /// The paths of these names, by which it is looked for if it is not heard what has become of
    /// it; none: it only loses names, and if it has no others it is let go instead.
    pub to: Vec<Vec<u8>>,
}

/// What has become of the names of a file, as they come back to its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// Which it has lost, each by its directory.
    pub lost: Way,
    /// Which it has got.
    pub got: Vec<Destination>,
    /// How it looks in the permanent store, if it is there.
    pub fingerprint: Option<Fingerprint>,
    /// That is an older version, or another file, which it is to replace.
    pub rewritten: bool,
}

/// What a home is to do to a file of its once a transaction comes to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Preparing {
    /// Extended attributes.
    pub sets: Vec<Set>,
    /// Names that are counted from now on, and no more if it never comes to be.
    pub gets: Option<Gets>,
    /// Names that are delegated, where there is a permanent store.
    pub delegated: Option<Delegated>,
    /// Who knows whether it came to be if who decides it is removed.
    pub witness: Option<Member>,
}

impl From<&Seen> for Version {
    fn from(seen: &Seen) -> Self {
        Version { number: seen.number, size: seen.size, modified_ns: seen.modified_ns }
    }
}

/// One operation. Paths, `B`, are as those of requests: relative, normal, without symbolic links
/// on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation<B> {
    /// Move a name.
    Rename {
        /// The old name.
        from: B,
        /// The new name.
        to: B,
        /// What else may happen at `to`.
        how: RenameHow,
    },
    /// Give a file a further name.
    Link {
        /// One that it has.
        from: B,
        /// The new name.
        to: B,
    },
    /// Remove a file's name.
    Unlink(B),
    /// Make a directory.
    MakeDirectory {
        /// Where.
        path: B,
        /// Permission bits, umask already taken off.
        mode: u32,
    },
    /// Remove an empty directory.
    RemoveDirectory(B),
    /// Set or remove an extended attribute.
    SetXattr {
        /// Of what.
        path: B,
        /// Its name, with its prefix.
        name: B,
        /// Its value; `None` removes it.
        value: Option<B>,
        /// What must be there.
        how: XattrHow,
    },
    /// There must be something of this name.
    Exists(B),
    /// There must be nothing of this name.
    Missing(B),
    /// What has this name must be as it was.
    Unchanged {
        /// Its name.
        path: B,
        /// As it was.
        version: Version,
    },
    /// The last token that a named lock has given must be this one.
    Holds {
        /// The name of the file that stands for the lock.
        path: B,
        /// The token.
        token: u64,
    },
    /// Of no name: so many members, 1 or 2, are to know whether it came to be, if it is prepared on
    /// others than the one that decides it.
    Copies(u8),
}

impl<B> Operation<B> {
    /// Whether it makes or removes names.
    pub fn moves(&self) -> bool {
        matches!(
            self,
            Operation::Rename { .. }
                | Operation::Link { .. }
                | Operation::Unlink(_)
                | Operation::MakeDirectory { .. }
                | Operation::RemoveDirectory(_)
        )
    }

    /// The paths that it is about.
    pub fn paths_mut(&mut self) -> [Option<&mut B>; 2] {
        match self {
            Operation::Rename { from, to, .. } | Operation::Link { from, to } => {
                [Some(from), Some(to)]
            }
            Operation::Unlink(path)
            | Operation::MakeDirectory { path, .. }
            | Operation::RemoveDirectory(path)
            | Operation::SetXattr { path, .. }
            | Operation::Exists(path)
            | Operation::Missing(path)
            | Operation::Unchanged { path, .. }
            | Operation::Holds { path, .. } => [Some(path), None],
            Operation::Copies(_) => [None, None],
        }
    }

    fn needs(&self) -> Operations {
        match self {
            Operation::Rename { .. } => Operations::CREATE.and(Operations::REMOVE),
            Operation::Link { .. } | Operation::MakeDirectory { .. } => Operations::CREATE,
            Operation::Unlink(_) | Operation::RemoveDirectory(_) => Operations::REMOVE,
            Operation::SetXattr { .. } => Operations::WRITE,
            Operation::Exists(_)
            | Operation::Missing(_)
            | Operation::Unchanged { .. }
            | Operation::Holds { .. } => Operations::LIST,
            Operation::Copies(_) => Operations(0),
        }
    }
}

#[derive(Deserialize)]
struct Written<'a>(
    #[serde(borrow, deserialize_with = "list::deserialize")] Vec<Operation<&'a [u8]>>,
);

/// The operations of an encoded transaction.
///
/// # Errors
/// [`ErrorKind::Malformed`]; [`ErrorKind::TooBig`] for more than [`OPERATIONS_MAX`].
pub fn decode(encoded: &[u8]) -> Result<Vec<Operation<&[u8]>>> {
    let Written(operations) = frame::decode(encoded)?;
    check_count(operations.len()).map(|()| operations)
}

/// Encodes a transaction.
///
/// # Errors
/// [`ErrorKind::TooBig`] for more than [`OPERATIONS_MAX`], or [`TRANSACTION_BYTES`].
pub fn encode(operations: &[Operation<Vec<u8>>]) -> Result<Vec<u8>> {
    check_count(operations.len())?;
    let encoded = frame::encode(&operations)?;
    match encoded.len() <= TRANSACTION_BYTES {
        true => Ok(encoded),
        false => Err(Error::new(ErrorKind::TooBig, "transaction")),
    }
}

fn check_count(count: usize) -> Result<()> {
    let what = || format!("transaction of {count} operations");
    if count <= OPERATIONS_MAX { Ok(()) } else { Err(Error::new(ErrorKind::TooBig, what())) }
}

/// What a capability must allow for an encoded transaction.
pub(super) fn needs(encoded: &[u8]) -> Operations {
    // What cannot be read is refused as such.
    let operations = decode(encoded).unwrap_or_default();
    operations.iter().fold(Operations(0), |needs, operation| needs.and(operation.needs()))
}

#[cfg(test)]
mod tests {
    use super::{OPERATIONS_MAX, Operation, TRANSACTION_BYTES, decode, encode};
    use crate::ErrorKind;
    use crate::wire::capability::Operations;

    #[test]
    fn what_is_encoded_is_read_and_needs_what_all_its_operations_need() {
        let operations = [
            Operation::Unlink(b"a".to_vec()),
            Operation::MakeDirectory { path: b"b".to_vec(), mode: 0o755 },
        ];
        let encoded = encode(&operations).expect("encodes");
        let read = decode(&encoded).expect("reads");
        assert_eq!(read[0], Operation::Unlink(&b"a"[..]));
        assert_eq!(read[1], Operation::MakeDirectory { path: &b"b"[..], mode: 0o755 });
        assert_eq!(super::needs(&encoded), Operations::CREATE.and(Operations::REMOVE));
        assert_eq!(decode(&encoded[..3]).map_err(|e| e.kind), Err(ErrorKind::Malformed));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let many = vec![Operation::Exists(b"a".to_vec()); OPERATIONS_MAX + 1];
        assert_eq!(encode(&many).map_err(|e| e.kind), Err(ErrorKind::TooBig));
        let long = [Operation::Exists(vec![b'a'; TRANSACTION_BYTES])];
        assert_eq!(encode(&long).map_err(|e| e.kind), Err(ErrorKind::TooBig));
    }
}
