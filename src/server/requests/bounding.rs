//! What the holder of a capability may ask that is bound to a path: names at it and below, and
//! files that are there or that he has opened there.
//!
//! Paths are compared as they are said: who follows symbolic links asks with where they lead, and a
//! request whose path has one on its way is refused. The place itself stays: who is bound to it
//! neither moves nor removes it.

use terral_format::ids::{FileSlot, SessionSlot};
use terral_format::wire::capability::is_at_or_below;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{FileRef, OpenHow, Request, Target};
use terral_format::wire::transactions;
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::{components, refuse};
use crate::core::state::State;

/// Who asks, and what he is bound to.
struct Bound<'a> {
    state: &'a State,
    session: SessionSlot,
    place: &'a [u8],
}

/// Refuses what the holder of a capability for a place may not ask.
///
/// # Errors
/// [`ErrorKind::Denied`].
pub fn permit(
    state: &State,
    session: SessionSlot,
    place: &[u8],
    request: &Request<'_>,
) -> Result<()> {
    let bound = Bound { state, session, place };
    match request {
        identity if identity.is_of_identity() => Ok(()),
        Request::Present(_)
        | Request::Close { .. }
        | Request::LockBlocked { .. }
        | Request::LockBlocks
        | Request::StopWaiting(_)
        | Request::Renew
        | Request::Space
        | Request::Status
        | Request::Unblock { .. } => Ok(()),
        Request::Stat(Target::Path(path)) => bound.seen(path),
        Request::Stat(target) | Request::Xattr { target, .. } => bound.target(target),
        Request::XattrNames { target, .. }
        | Request::Change { target, .. }
        | Request::SetXattr { target, .. }
        | Request::Truncate { target, .. } => bound.target(target),
        Request::ReadLink(path) | Request::List { path, .. } | Request::Safety(path) => {
            bound.at(path)
        }
        Request::Open { path, how } => bound.opened(path, *how),
        Request::MakeDirectory { path, .. }
        | Request::RemoveDirectory(path)
        | Request::Unlink(path)
        | Request::MakeLink { path, .. }
        | Request::MakeNode { path, .. } => bound.below(path),
        Request::Rename { from, to, .. } => bound.below(from).and_then(|()| bound.below(to)),
        Request::Transact(operations) => bound.all(operations),
        Request::Link { target, path } => bound.target(target).and_then(|()| bound.below(path)),
        Request::Reopen { file, .. }
        | Request::Grant { file, .. }
        | Request::Stage { file, .. }
        | Request::Map { file, .. }
        | Request::Sync(file)
        | Request::DropSetId(file)
        | Request::Execute { file, .. }
        | Request::Use { file, .. }
        | Request::Late { file, .. } => bound.file(*file),
        Request::Far(far) => bound.far(far),
        _ => Err(Error::new(ErrorKind::Denied, "a capability for one place allows no such thing")),
    }
}

impl Bound<'_> {
    fn check(&self, path: &[u8], fits: bool) -> Result<()> {
        components(path)?;
        if fits { Ok(()) } else { Err(refuse(ErrorKind::Denied, path)) }
    }

    fn at(&self, path: &[u8]) -> Result<()> {
        self.check(path, is_at_or_below(path, self.place))
    }

    fn below(&self, path: &[u8]) -> Result<()> {
        self.check(path, path != self.place && is_at_or_below(path, self.place))
    }

    /// What is on the way there is seen, too.
    fn seen(&self, path: &[u8]) -> Result<()> {
        let on_the_way = is_at_or_below(self.place, path);
        self.check(path, on_the_way || is_at_or_below(path, self.place))
    }

    fn opened(&self, path: &[u8], how: OpenHow) -> Result<()> {
        let only_looks = how.access & 3 == 0 && !how.create && !how.truncate && !how.unnamed;
        match (only_looks, how.create) {
            (true, _) => self.seen(path),
            // A file that the capability is for may be opened as if it had to be made.
            (_, true) if path != self.place => self.below(path),
            _ => self.at(path),
        }
    }

    /// All operations of a transaction.
    fn all(&self, encoded: &[u8]) -> Result<()> {
        for mut operation in transactions::decode(encoded)? {
            // Attributes of the place itself may be set, as by a request of their own.
            let at = !operation.moves();
            for path in operation.paths_mut().into_iter().flatten() {
                if at { self.at(path) } else { self.below(path) }?;
            }
        }
        Ok(())
    }

    fn target(&self, target: &Target<'_>) -> Result<()> {
        match target {
            Target::Path(path) => self.at(path),
            Target::File(file) => self.file(*file),
        }
    }

    /// A file whose bytes are on another machine, and that he has opened.
    fn far(&self, far: &FarFile<'_>) -> Result<()> {
        let of = match far {
            FarFile::Bounce | FarFile::Through { .. } => return Ok(()),
            FarFile::Place { container, .. } => return self.at(container),
            FarFile::Read { of, .. }
            | FarFile::Write { of, .. }
            | FarFile::Ship { of, .. }
            | FarFile::Borrow { of, .. }
            | FarFile::Grow { of, .. }
            | FarFile::Batch { of, .. }
            | FarFile::Fencing { of, .. }
            | FarFile::Update { of, .. }
            | FarFile::Commit(of) => of,
            _ => return Err(Error::new(ErrorKind::Denied, "of a file of another machine")),
        };
        let open = self.state.descriptions.get(of.description);
        let own = open.filter(|open| open.nonce == of.nonce && open.session == self.session);
        let denied = || Error::new(ErrorKind::Denied, "a file that was opened by somebody else");
        own.map(drop).ok_or_else(denied)
    }

    /// One that is there now, by one of its names, or that he has opened.
    fn file(&self, file: FileRef) -> Result<()> {
        let path = self.state.names.path(file.ino).filter(|_| file.slot != FileSlot::FAR);
        let there = path.is_some_and(|path| is_at_or_below(&path, self.place));
        if there || self.state.descriptions.has_opened(self.session, file.ino) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, format!("file {}", file.ino)))
    }
}
