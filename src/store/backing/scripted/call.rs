//! What an observer is told before something is done.

/// What is done: the call of [`Backing`](super::super::Backing), [`Staged`](super::Staged) or
/// [`Update`](super::Update) of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the call of the same name")]
pub enum Operation {
    Stat,
    List,
    Read,
    Stage,
    TakeBack,
    Update,
    ResumeUpdate,
    MakeDirectory,
    RemoveDirectory,
    ReadLink,
    MakeLink,
    MakeFifo,
    Link,
    Exchange,
    Unlink,
    Rename,
    KeepTheirs,
    SetAside,
    Change,
    SetXattr,
    Xattrs,
    Sync,
    Space,
    LeaveSign,
    HasSign,
    Clean,
    /// Of a staged version or of an update, as the next two.
    Write,
    Truncate,
    ReadBack,
    Publish,
    Discard,
    Finish,
}

/// One call, just before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// What.
    pub operation: Operation,
    /// To what. While a version is staged: its name in the staging directory.
    pub path: &'a [u8],
    /// The second path, of an operation that has two.
    pub to: Option<&'a [u8]>,
    /// How many bytes are to be read or written.
    pub bytes: usize,
}

impl<'a> Call<'a> {
    pub(super) fn new(operation: Operation, path: &'a [u8]) -> Self {
        Call { operation, path, to: None, bytes: 0 }
    }

    pub(super) fn with(self, to: &'a [u8]) -> Self {
        Call { to: Some(to), ..self }
    }

    pub(super) fn of_bytes(self, bytes: usize) -> Self {
        Call { bytes, ..self }
    }
}
