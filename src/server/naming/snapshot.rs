//! The namespace as records that make it anew.

use terral_format::disk::Record;
use terral_format::disk::facts::{Fact, InodeImage};
use terral_format::disk::local::Local;
use terral_format::ids::{Ino, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;

use crate::naming::names::Names;

impl Names {
    /// Records from which [`Names::apply`] and [`Names::apply_local`] make the same names again.
    pub fn snapshot(&self) -> impl Iterator<Item = Record> {
        let inodes = self.inodes().flat_map(|inode| self.records_of(&inode));
        let aliases = self.inodes.iter().filter(|inode| inode.is(flag::ALIAS));
        let aliases = aliases.map(|alias| Fact::Alias {
            ino: self.file_of(&alias),
            alias: alias.ino,
            parent: self.inodes.at(alias.parent).ino,
            name: self.inodes.name(&alias),
        });
        let owed = self.owed.iter();
        let owed = owed.map(|(lsn, done)| Fact::Owed { lsn: *lsn, operation: done.clone() });
        let hidden = self.hidden.iter();
        let hidden =
            hidden.map(|(lsn, parent, name)| Fact::Hidden { lsn, parent, name: name.to_vec() });
        let facts = aliases.chain(owed).chain(hidden).chain([Fact::Ordinal(self.ordinal)]);
        let begun = self.exchanging.iter();
        let begun = begun.map(|(lsn, object)| Local::Exchanging { lsn: *lsn, object: *object });
        let publishing = self.publishing.iter();
        let publishing = publishing
            .map(|(ino, version)| Local::Publishing { ino: *ino, version: version.clone() });
        let local = begun.chain(publishing).map(Record::from);
        inodes.chain(facts.map(Record::from)).chain(local)
    }

    /// What there is to say of one inode.
    pub(super) fn records_of(&self, inode: &Inode) -> impl Iterator<Item = Record> + use<> {
        let (ino, has) = (inode.ino, |flag| inode.is(flag));
        let preallocated = inode.slot.filter(|_| has(flag::PREALLOCATED));
        let image = preallocated.is_none().then(|| Fact::Inode(self.image(inode)));
        let contested = has(flag::CONTESTED).then_some(Fact::Contested { ino });
        let held = match inode.slot {
            Some(slot) if has(flag::PREALLOCATED) => Some(Local::Preallocated { ino, slot }),
            Some(slot) => Some(Local::Attached { ino, slot }),
            None => has(flag::PACKED).then_some(Local::Packed { ino, place: inode.below }),
        };
        let intent = has(flag::INTENT).then_some(Local::Intent { ino });
        let facts = image.into_iter().chain(contested).map(Record::from);
        facts.chain(held.into_iter().chain(intent).map(Record::from))
    }

    pub(super) fn image(&self, inode: &Inode) -> InodeImage {
        let parent = self.inodes.at(inode.parent).ino;
        InodeImage {
            attributes: inode.attributes(),
            name: inode.is(flag::NAMED).then(|| (parent, self.inodes.name(inode))),
            published: inode.published,
            rewritten: inode.is(flag::REWRITTEN),
            backed_bytes: inode.backed_bytes,
            overlay: inode.is(flag::OVERLAY),
            target: if inode.kind.has_text() { self.inodes.target(inode) } else { Vec::new() },
        }
    }

    pub(super) fn restore(&mut self, image: &InodeImage) {
        let mut inode = Inode::new(&image.attributes);
        inode.published = image.published;
        inode.backed_bytes = image.backed_bytes;
        if image.rewritten {
            inode.flags |= flag::REWRITTEN;
        }
        if image.overlay {
            inode.flags |= flag::OVERLAY;
        }
        if inode.kind == Kind::File && inode.published.is_none() {
            inode.flags |= flag::COUNTED;
        }
        let (parent, name) = image.name.as_ref().map_or((ROOT, &[][..]), |(at, name)| (*at, name));
        if inode.ino == ROOT {
            self.inodes.update(ROOT, |root| {
                *root = Inode { below: root.below, foreign: root.foreign, ..inode }
            });
        } else {
            self.inodes.insert(inode, (parent, name), &image.target);
        }
    }

    /// After a replay. Of what is not used, this is lent.
    pub fn replayed(&mut self, lent: impl Iterator<Item = Ino>) {
        self.resumed = !self.owed.is_empty();
        // Some went without a record, and others have their slots.
        self.preallocated =
            self.inodes().filter(|inode| inode.is(flag::PREALLOCATED)).count() as u64;
        self.inodes.replayed(self.bound, lent);
    }
}
