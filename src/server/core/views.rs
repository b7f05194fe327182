//! What several roles know together. Nothing here changes anything.

use terral_format::ids::{Ino, Member, Number, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::local::size::SizeWord;
use terral_format::wire::message::{Attributes, FileRef, Kind, Seen};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;

impl State {
    /// Attributes of an inode as they are now.
    pub fn attributes(&self, ino: Ino) -> Option<Attributes> {
        let inode = self.names.inode(ino)?;
        let mut attributes = inode.attributes();
        if let Some(slot) = inode.slot {
            let header = self.storage.memory().header(slot);
            let order = std::sync::atomic::Ordering::SeqCst;
            attributes.size = SizeWord::load(header.size()).size();
            attributes.modified_ns = header.modified_ns().load(order);
            attributes.accessed_ns = header.accessed_ns().load(order);
            attributes.changed_ns = attributes.changed_ns.max(header.changed_ns().load(order));
        }
        Some(attributes)
    }

    /// What programs are told of an inode: its attributes as they are now, and its number.
    pub fn seen(&self, ino: Ino) -> Option<Seen> {
        Some(Seen { number: self.number(ino), attributes: self.attributes(ino)? })
    }

    /// What `st_ino` says of an inode.
    pub fn number(&self, ino: Ino) -> Number {
        let number = self.members.as_ref().and_then(|members| members.number(ino));
        number.unwrap_or(Number::of(Member::LEAST, ino))
    }

    /// Whether nobody can reach an inode any more.
    pub fn is_orphan(&self, inode: &Inode) -> bool {
        // What has no name here may have one elsewhere, as long as nobody has taken that away.
        let elsewhere = self.members.is_some() && (inode.links > 0 || inode.kind != Kind::File);
        let has_name = inode.is(flag::NAMED) || inode.ino == ROOT || elsewhere;
        let opens = || {
            let members = self.members.as_ref();
            members.is_some_and(|members| members.opens(inode.ino))
                || self.names.is_leaving(inode.ino)
        };
        let of_others = || self.far.loans.has(inode.ino) || self.far.batches.has(inode.ino);
        let opens = || opens() || of_others();
        !has_name && self.names.openers(inode.ino).all == 0 && !opens()
    }

    /// Whether the backing does not have a file as it is now.
    pub fn differs(&self, ino: Ino) -> bool {
        let file = |inode: &Inode| inode.kind == Kind::File && inode.is(flag::NAMED);
        let Some(inode) = self.names.inode(ino).filter(file) else {
            return false;
        };
        let Some(found) = inode.published else { return true };
        let flags = [flag::REWRITTEN, flag::INTENT, flag::CONTESTED];
        if flags.into_iter().any(|flag| inode.is(flag)) {
            return true;
        }
        let size = self.attributes(ino).map_or(0, |attributes| attributes.size);
        // Cut, and grown again since.
        let cut = self.backed_bytes(&inode) < size;
        let dirty = || inode.slot.is_some_and(|slot| self.storage.resident(slot).1 > 0);
        found.size() != size || cut || dirty()
    }

    /// Bytes of a file below this without a chunk lie in the backing.
    pub fn backed_bytes(&self, inode: &Inode) -> u64 {
        inode.slot.map_or(inode.backed_bytes, |slot| self.storage.backed_bytes(slot))
    }

    /// The inode of an open file; what a client says of it must fit together.
    pub fn open_file(&self, file: FileRef) -> Result<Inode> {
        let inode = self.names.inode(file.ino);
        let inode = inode.filter(|inode| inode.slot == Some(file.slot));
        inode.ok_or_else(|| Error::new(ErrorKind::BadHandle, format!("file {}", file.ino)))
    }

    /// Whether programs here may have chunks to write to a file: who has it open, or adds to what
    /// is to be written to another one.
    pub fn takes_writes(&self, ino: Ino) -> bool {
        self.names.is_written(ino) || self.far.batches.has(ino)
    }

    /// Whether somebody may write to a file without asking: who has it open, or mapped, or chunks
    /// of it on another machine.
    pub fn is_written(&self, ino: Ino) -> bool {
        self.names.is_written(ino) || self.is_stored(ino) || self.has_lent(ino)
    }

    /// Whether other machines have chunks of a file that they may write to.
    fn has_lent(&self, ino: Ino) -> bool {
        let slot = self.names.inode(ino).and_then(|inode| inode.slot);
        slot.is_some_and(|slot| self.storage.has_lent(slot))
    }

    /// Whether other machines have chunks of a file.
    pub fn has_away(&self, ino: Ino) -> bool {
        let slot = self.names.inode(ino).and_then(|inode| inode.slot);
        slot.is_some_and(|slot| self.storage.has_away(slot))
    }

    /// Whether stores through maps may not have been counted as written yet.
    pub fn is_stored(&self, ino: Ino) -> bool {
        let slot = self.names.inode(ino).and_then(|inode| inode.slot);
        slot.is_some_and(|slot| self.storage.is_stored(slot))
    }
}
