//! The trait: what whoever needs state that outlives servers can rely on.
//!
//! Invariants of each implementation: a transaction is done whole or not at all; revisions grow
//! with each that changes something; a key with a lease is gone once that has run out or was ended,
//! and never comes back by itself. Nothing here waits for longer than its implementation says.

use std::time::Duration;

use terral_format::Result;

/// Longest value, and all values of one transaction together, bytes.
pub const VALUE_MAX: usize = 1 << 20;
/// Most guards, and most changes, of one transaction.
pub const STEPS_MAX: usize = 64;

/// How far the whole registry has come. 0: before anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// What keeps some keys there, as long as it is kept itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

/// A key, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub key: String,
    /// At most [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
    /// When it was changed last: what a guard is to name.
    pub changed: Revision,
}

/// All keys below a prefix, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// In order of keys.
    pub entries: Vec<Entry>,
    /// When.
    pub revision: Revision,
}

impl View {
    /// What a key says.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// All keys, and what they say.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_slice()))
    }
}

/// On what a transaction depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key is not there.
    Absent(String),
    /// The key is there, and was changed last then.
    Unchanged(String, Revision),
}

/// What a transaction does. No key twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key says this from now on.
    Put {
        /// Which.
        key: String,
        /// At most [`VALUE_MAX`] bytes.
        value: Vec<u8>,
        /// For as long as this one is kept; `None`: until it is removed.
        lease: Option<Lease>,
    },
    /// The key is gone; also if it was not there.
    Remove(String),
}

impl Change {
    /// The key says this until it is removed.
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Change::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Which key.
    pub fn key(&self) -> &str {
        match self {
            Change::Put { key, .. } | Change::Remove(key) => key,
        }
    }
}

/// State that outlives servers.
///
/// # Errors
/// Of all of them: [`Unreachable`](terral_format::ErrorKind::Unreachable) if nobody answers soon
/// enough, [`Denied`](terral_format::ErrorKind::Denied) if who asks may not, and
/// [`Malformed`](terral_format::ErrorKind::Malformed) if what answers makes no sense.
pub trait Registry: Send + Sync {
    /// Who keeps it, for a person.
    fn describe(&self) -> String;

    /// All keys that begin with this.
    ///
    /// # Errors
    /// Those of all.
    fn below(&self, prefix: &str) -> Result<View>;

    /// Does all of this if all guards hold, and says when; `None`: one does not, and nothing was
    /// done. Who has had no answer does not know which: he looks.
    ///
    /// # Errors
    /// Those of all; [`NotFound`](terral_format::ErrorKind::NotFound) for a lease that is over,
    /// [`Invalid`](terral_format::ErrorKind::Invalid) for a key that is changed twice, and what is
    /// beyond [`VALUE_MAX`] or [`STEPS_MAX`]: nothing was done.
    fn commit(&self, guards: &[Guard], changes: &[Change]) -> Result<Option<Revision>>;

    /// A lease that runs out so long after it was kept last, or somewhat later.
    ///
    /// # Errors
    /// Those of all.
    fn grant(&self, term: Duration) -> Result<Lease>;

    /// Keeps a lease for another term. Whether there still is one: what has run out has run out.
    ///
    /// # Errors
    /// Those of all.
    fn keep(&self, lease: Lease) -> Result<bool>;

    /// Ends a lease, and its keys with it; also if it is over.
    ///
    /// # Errors
    /// Those of all.
    fn end(&self, lease: Lease) -> Result<()>;
}

/// Whether a transaction may be one.
///
/// # Errors
/// [`Invalid`](terral_format::ErrorKind::Invalid), as [`Registry::commit`] says.
pub fn check(guards: &[Guard], changes: &[Change]) -> Result<()> {
    let invalid =
        |what: String| Err(terral_format::Error::new(terral_format::ErrorKind::Invalid, what));
    if guards.len() > STEPS_MAX || changes.len() > STEPS_MAX {
        return invalid(format!("a transaction of more than {STEPS_MAX} steps"));
    }
    let mut bytes = 0;
    for (at, change) in changes.iter().enumerate() {
        if changes[..at].iter().any(|before| before.key() == change.key()) {
            return invalid(format!("{}: changed twice by one transaction", change.key()));
        }
        if let Change::Put { key, value, .. } = change {
            bytes += value.len();
            if bytes > VALUE_MAX {
                return invalid(format!("{key}: a transaction of more than {VALUE_MAX} bytes"));
            }
        }
    }
    Ok(())
}
