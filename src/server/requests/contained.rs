//! What who has logged in may ask of containers: each path and each file of a request needs some
//! operations of the container that it is in. Who acts by the kernel's word is not asked.
//!
//! Paths are compared as they are said, as in `bounding`. Where a rename or a link takes a file
//! into another container, that is who may read and write it from then on: so it needs both where
//! it was. The place of a container is neither moved nor removed, with what is above it.

use terral_format::ids::{Ino, SessionSlot};
use terral_format::wire::capability::{Operations, Principal};
use terral_format::wire::far_files::{FarFile, Handle};
use terral_format::wire::manner::RenameHow;
use terral_format::wire::message::{FileRef, OpenHow, Request, Target};
use terral_format::wire::transactions::{self, Operation};
use terral_format::{Error, ErrorKind};

use crate::core::paths::{components, join, refuse};
use crate::core::state::State;

const NOTHING: Operations = Operations(0);
const BYTES: Operations = Operations::READ.and(Operations::WRITE);

/// What was refused, and by which container.
pub struct Refused {
    /// What he is told.
    pub error: Error,
    /// Its name; none if that is not why.
    pub container: Option<String>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, container: None }
    }
}

type Checked = std::result::Result<(), Refused>;

/// Who asks.
struct Asker<'a> {
    state: &'a State,
    session: SessionSlot,
    who: Principal,
}

/// Refuses what containers do not allow to somebody.
///
/// # Errors
/// [`ErrorKind::Denied`], with which container.
pub fn permit(
    state: &State,
    (session, who): (SessionSlot, Principal),
    request: &Request<'_>,
) -> Checked {
    if state.authz.containers.are_none() {
        return Ok(());
    }
    let asker = Asker { state, session, who };
    let needs = request.needs();
    match request {
        Request::Stat(Target::Path(path)) => asker.seen(path, needs),
        Request::Open { path, how } => asker.opened(path, *how, needs),
        Request::Stat(target)
        | Request::Xattr { target, .. }
        | Request::XattrNames { target, .. }
        | Request::Change { target, .. }
        | Request::SetXattr { target, .. }
        | Request::Truncate { target, .. } => asker.target(target, needs),
        Request::ReadLink(path) | Request::List { path, .. } | Request::Safety(path) => {
            asker.at(path, needs)
        }
        Request::MakeDirectory { path, .. }
        | Request::MakeLink { path, .. }
        | Request::MakeNode { path, .. } => asker.at(path, needs),
        Request::RemoveDirectory(path) | Request::Unlink(path) => asker.removes(path),
        Request::Rename { from, to, how } => asker.renames(from, to, *how),
        Request::Link { target, path } => asker.links(target, path),
        Request::Transact(operations) => asker.all(operations),
        Request::Reopen { file, .. }
        | Request::Grant { file, .. }
        | Request::Stage { file, .. }
        | Request::Map { file, .. }
        | Request::Sync(file)
        | Request::DropSetId(file)
        | Request::Execute { file, .. }
        | Request::Use { file, .. }
        | Request::Late { file, .. } => asker.file(file.ino, needs),
        Request::Far(far) => asker.far(far, needs),
        _ => Ok(()),
    }
}

impl Asker<'_> {
    fn may(&self, path: &[u8]) -> Operations {
        self.state.authz.containers.allow(self.who, path)
    }

    fn check(&self, path: &[u8], fits: bool) -> Checked {
        match fits {
            true => Ok(()),
            false => Err(self.denied(path, refuse(ErrorKind::Denied, path))),
        }
    }

    fn denied(&self, path: &[u8], error: Error) -> Refused {
        let container = Some(self.state.authz.containers.name_at(path).to_owned());
        Refused { error, container }
    }

    fn at(&self, path: &[u8], needs: Operations) -> Checked {
        components(path)?;
        self.check(path, self.may(path).contain(needs))
    }

    /// What is on the way to where he may something is seen, too.
    fn seen(&self, path: &[u8], needs: Operations) -> Checked {
        components(path)?;
        let may = self.may(path);
        let sees = may.contain(needs) && may != NOTHING;
        self.check(path, sees || self.state.authz.containers.lead_on(self.who, path))
    }

    fn opened(&self, path: &[u8], how: OpenHow, needs: Operations) -> Checked {
        let only_looks = how.access & 3 == 0 && !how.create && !how.truncate && !how.unnamed;
        match (only_looks, how.unnamed) {
            (true, _) => self.seen(path, needs),
            (_, true) => self.at(path, needs.and(Operations::CREATE)),
            _ => self.at(path, needs),
        }
    }

    fn removes(&self, path: &[u8]) -> Checked {
        self.at(path, Operations::REMOVE)?;
        self.stays(path)
    }

    /// The place of no container goes.
    fn stays(&self, path: &[u8]) -> Checked {
        self.check(path, !self.state.authz.containers.are_below(path))
    }

    fn renames(&self, from: &[u8], to: &[u8], how: RenameHow) -> Checked {
        let away = self.takes(from, to, Operations::REMOVE);
        let away = away.and_then(|()| self.stays(from)).and_then(|()| self.stays(to));
        let back = Operations::CREATE.and(Operations::REMOVE);
        match how {
            RenameHow::Keep => away.and_then(|()| self.at(to, Operations::CREATE)),
            RenameHow::Replace => away.and_then(|()| self.at(to, back)),
            RenameHow::Exchange => {
                away.and_then(|()| self.at(from, back)).and_then(|()| self.takes(to, from, back))
            }
        }
    }

    /// Something goes from one path to another.
    fn takes(&self, from: &[u8], to: &[u8], needs: Operations) -> Checked {
        let containers = &self.state.authz.containers;
        let same =
            containers.at(from).map(|one| &one.name) == containers.at(to).map(|one| &one.name);
        self.at(from, if same { needs } else { needs.and(BYTES) })
    }

    fn links(&self, target: &Target<'_>, path: &[u8]) -> Checked {
        self.target(target, BYTES).and_then(|()| self.at(path, Operations::CREATE))
    }

    fn all(&self, encoded: &[u8]) -> Checked {
        for operation in transactions::decode(encoded)? {
            match operation {
                Operation::Rename { from, to, how } => self.renames(from, to, how),
                Operation::Link { from, to } => self.links(&Target::Path(from), to),
                Operation::Unlink(path) | Operation::RemoveDirectory(path) => self.removes(path),
                Operation::MakeDirectory { path, .. } => self.at(path, Operations::CREATE),
                Operation::SetXattr { path, .. } => self.at(path, Operations::WRITE),
                Operation::Exists(path)
                | Operation::Missing(path)
                | Operation::Unchanged { path, .. }
                | Operation::Holds { path, .. } => self.at(path, Operations::LIST),
                Operation::Copies(_) => Ok(()),
            }?;
        }
        Ok(())
    }

    fn target(&self, target: &Target<'_>, needs: Operations) -> Checked {
        match target {
            Target::Path(path) => self.at(path, needs),
            Target::File(FileRef { ino, .. }) => self.file(*ino, needs),
        }
    }

    /// A file whose bytes are on another machine.
    fn far(&self, far: &FarFile<'_>, needs: Operations) -> Checked {
        match far {
            FarFile::Read { of, .. }
            | FarFile::Write { of, .. }
            | FarFile::Ship { of, .. }
            | FarFile::Borrow { of, .. }
            | FarFile::Grow { of, .. }
            | FarFile::Batch { of, .. }
            | FarFile::Map { of, .. }
            | FarFile::Fencing { of, .. }
            | FarFile::Update { of, .. }
            | FarFile::Commit(of) => self.handle(*of, needs),
            FarFile::WriteMapped { file, .. } => self.file(file.ino, needs),
            FarFile::Place { container, .. } => self.at(container, needs),
            // Of locks, and what is no file of others; or only for servers, who are not asked.
            _ => Ok(()),
        }
    }

    fn handle(&self, of: Handle, needs: Operations) -> Checked {
        let open = self.state.descriptions.get(of.description);
        let ino = open.filter(|open| open.nonce == of.nonce).map(|open| open.ino);
        // What is not open is said by who looks for it.
        ino.map_or(Ok(()), |ino| self.file(ino, needs))
    }

    /// A file, by one of its names; one that has none is that of who has opened it. What it is
    /// called on other machines only, nobody here knows.
    fn file(&self, ino: Ino, needs: Operations) -> Checked {
        let names = &self.state.names;
        let inode = names.inode(ino);
        let paths: Vec<Vec<u8>> = match &inode {
            Some(inode) if inode.is_directory() => names.path(ino).into_iter().collect(),
            _ => {
                let all = names.names_of(ino).into_iter();
                all.filter_map(|(parent, name)| Some(join(&names.path(parent)?, &name))).collect()
            }
        };
        let Some(first) = paths.first() else {
            let named = inode.is_some_and(|inode| inode.links > 0);
            let opened = !named && self.state.descriptions.has_opened(self.session, ino);
            let denied = || Error::new(ErrorKind::Denied, format!("file {ino}"));
            return if opened { Ok(()) } else { Err(denied().into()) };
        };
        self.check(first, paths.iter().any(|path| self.may(path).contain(needs)))
    }
}
