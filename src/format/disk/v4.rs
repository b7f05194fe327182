//! Records as version 4 had them, to be read only: facts and local ones in one list. Not to be
//! changed any more; `tests/golden/records-4.bin` has its bytes.

#![allow(missing_docs)] // What each says stands with today's.

use serde::{Deserialize, Serialize};

use super::facts::{self, Fact};
use super::local::{Began, Local, Publishing};
use super::migrate::{Migrate, Nothing};
use super::v5::Record as Next;
use crate::fingerprint::{Fingerprint, Object};
use crate::ids::{DescriptionSlot, FileSlot, Ino, Lsn, SessionSlot};
use crate::wire::capability::Rights;
use crate::wire::message::{Attributes, Change, Kind, Totals};
use crate::wire::person::Person;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Began(Began),
    SessionBegan {
        session: SessionSlot,
        pid: u32,
        started_ticks: u64,
    },
    SessionEnded {
        session: SessionSlot,
        totals: Totals,
    },
    Made {
        parent: Ino,
        name: Vec<u8>,
        ino: Ino,
        kind: Kind,
        mode: u32,
        uid: u32,
        gid: u32,
        time_ns: u64,
        target: Vec<u8>,
    },
    Adopted {
        parent: Ino,
        name: Vec<u8>,
        attributes: Attributes,
        fingerprint: Fingerprint,
        target: Vec<u8>,
    },
    Linked {
        ino: Ino,
        alias: Ino,
        parent: Ino,
        name: Vec<u8>,
        time_ns: u64,
    },
    Alias {
        ino: Ino,
        alias: Ino,
        parent: Ino,
        name: Vec<u8>,
    },
    Exchanged {
        parent: Ino,
        name: Vec<u8>,
        to_parent: Ino,
        to_name: Vec<u8>,
        time_ns: u64,
    },
    Renamed {
        parent: Ino,
        name: Vec<u8>,
        to_parent: Ino,
        to_name: Vec<u8>,
        time_ns: u64,
    },
    Removed {
        parent: Ino,
        name: Vec<u8>,
        time_ns: u64,
    },
    Changed {
        ino: Ino,
        change: Change,
        time_ns: u64,
    },
    Rewritten {
        ino: Ino,
    },
    BackedTo {
        ino: Ino,
        size: u64,
    },
    Attached {
        ino: Ino,
        slot: FileSlot,
    },
    Detached {
        ino: Ino,
        size: u64,
        modified_ns: u64,
        accessed_ns: u64,
        changed_ns: u64,
    },
    Packed {
        ino: Ino,
        place: u32,
        size: u64,
        modified_ns: u64,
        accessed_ns: u64,
        changed_ns: u64,
    },
    Opened {
        description: DescriptionSlot,
        nonce: u32,
        ino: Ino,
        access: u8,
        session: SessionSlot,
    },
    Spared {
        ino: Ino,
        slot: FileSlot,
        description: DescriptionSlot,
        nonce: u32,
        access: u8,
        session: SessionSlot,
    },
    Presented {
        session: SessionSlot,
        handle: u32,
        rights: Rights,
        epoch: u64,
        person: Person,
    },
    Defers {
        session: SessionSlot,
    },
    Lent {
        session: SessionSlot,
        descriptions: Vec<(DescriptionSlot, u32)>,
        inos: Vec<Ino>,
    },
    Created {
        ino: Ino,
        parent: Ino,
        name: Vec<u8>,
        mode: u32,
        uid: u32,
        gid: u32,
        time_ns: u64,
    },
    Closed {
        description: DescriptionSlot,
    },
    Xattr {
        ino: Ino,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        time_ns: u64,
    },
    XattrFound {
        ino: Ino,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    Published {
        ino: Ino,
        fingerprint: Fingerprint,
    },
    Touched {
        ino: Ino,
        fingerprint: Fingerprint,
    },
    Intent {
        ino: Ino,
    },
    Settled {
        ino: Ino,
        fingerprint: Fingerprint,
    },
    Publishing {
        ino: Ino,
        version: Publishing,
    },
    Exchanging {
        lsn: Lsn,
        object: Object,
    },
    NamesDrained(Lsn),
    Answered {
        session: SessionSlot,
        request: u8,
        sequence: u64,
        reply: Vec<u8>,
    },
    Inode(InodeImage),
    Owed {
        lsn: Lsn,
        operation: NameOperation,
    },
    Hidden {
        lsn: Lsn,
        parent: Ino,
        name: Vec<u8>,
    },
    Counters {
        next_ino: Ino,
        lsn: Lsn,
        totals: Totals,
    },
    Contested {
        ino: Ino,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NameOperation {
    MakeDirectory { path: Vec<u8>, mode: u32 },
    Rename { from: Vec<u8>, to: Vec<u8>, ino: Ino, over: Option<Object> },
    Unlink { path: Vec<u8>, keeps: Option<Ino> },
    Link { from: Vec<u8>, to: Vec<u8>, ino: Ino },
    MakeLink { path: Vec<u8>, target: Vec<u8> },
    Exchange { from: Vec<u8>, to: Vec<u8>, inos: [Ino; 2] },
    RemoveDirectory { path: Vec<u8> },
    Change { path: Vec<u8>, ino: Ino, change: Change },
    SetXattr { path: Vec<u8>, ino: Ino, name: Vec<u8>, value: Option<Vec<u8>> },
    MakeFifo { path: Vec<u8>, mode: u32 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InodeImage {
    pub attributes: Attributes,
    pub name: Option<(Ino, Vec<u8>)>,
    pub slot: Option<FileSlot>,
    pub published: Option<Fingerprint>,
    pub rewritten: bool,
    pub backed_bytes: u64,
    pub overlay: bool,
    pub target: Vec<u8>,
    pub packed: Option<u32>,
    pub spare: bool,
}

/// A transaction as version 4 had them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Transaction(pub Vec<Record>);

impl Migrate for Transaction {
    const VERSION: u16 = 4;
    type Previous = Nothing;

    fn migrate(previous: Nothing) -> Self {
        match previous {}
    }
}

/// What is said as before says now whether it is a fact or local; the rest is said otherwise.
macro_rules! migrated {
    (
        $record:expr, $out:ident;
        facts { $($fact:ident { $($of:ident),* })* }
        local { $($local:ident { $($at:ident),* })* }
        else { $($other:pat => $said:expr;)* }
    ) => {
        match $record {
            $(Record::$fact { $($of),* } => $out.push(Fact::$fact { $($of),* }.into()),)*
            $(Record::$local { $($at),* } => $out.push(Local::$local { $($at),* }.into()),)*
            $($other => $said,)*
        }
    };
}

/// Adds what a record of version 4 says.
pub fn migrate(record: Record, out: &mut Vec<Next>) {
    migrated! {
        record, out;
        facts {
            Made { parent, name, ino, kind, mode, uid, gid, time_ns, target }
            Adopted { parent, name, attributes, fingerprint, target }
            Linked { ino, alias, parent, name, time_ns }
            Alias { ino, alias, parent, name }
            Exchanged { parent, name, to_parent, to_name, time_ns }
            Renamed { parent, name, to_parent, to_name, time_ns }
            Removed { parent, name, time_ns }
            Changed { ino, change, time_ns }
            Rewritten { ino }
            BackedTo { ino, size }
            Xattr { ino, name, value, time_ns }
            XattrFound { ino, name, value }
            Published { ino, fingerprint }
            Touched { ino, fingerprint }
            Settled { ino, fingerprint }
            Contested { ino }
            Hidden { lsn, parent, name }
        }
        local {
            SessionBegan { session, pid, started_ticks }
            SessionEnded { session, totals }
            Attached { ino, slot }
            Opened { description, nonce, ino, access, session }
            Presented { session, handle, rights, epoch, person }
            Defers { session }
            Lent { session, descriptions, inos }
            Closed { description }
            Intent { ino }
            Publishing { ino, version }
            Exchanging { lsn, object }
            Answered { session, request, sequence, reply }
        }
        else {
            Record::Began(began) => out.push(Local::Began(began).into());
            Record::NamesDrained(lsn) => out.push(Fact::NamesDrained(lsn).into());
            Record::Created { ino, parent, name, mode, uid, gid, time_ns } => {
                let (kind, target) = (Kind::File, Vec::new());
                let made = Fact::Made { parent, name, ino, kind, mode, uid, gid, time_ns, target };
                out.push(made.into());
            };
            Record::Detached { ino, size, modified_ns, accessed_ns, changed_ns } => {
                out.push(Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns }.into());
                out.push(Local::Detached { ino }.into());
            };
            Record::Packed { ino, place, size, modified_ns, accessed_ns, changed_ns } => {
                out.push(Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns }.into());
                out.push(Local::Packed { ino, place }.into());
            };
            Record::Spared { ino, slot, description, nonce, access, session } => {
                out.push(Local::Preallocated { ino, slot }.into());
                out.push(Local::Opened { description, nonce, ino, access, session }.into());
            };
            Record::Inode(image) => migrate_image(image, out);
            Record::Owed { lsn, operation } => {
                out.push(Fact::Owed { lsn, operation: migrate_operation(operation) }.into());
            };
            Record::Counters { next_ino, lsn, totals } => {
                out.push(Fact::Ordinal(lsn).into());
                out.push(Local::Counters { bound: next_ino, totals }.into());
            };
        }
    }
}

/// What a link would take the name of was not known.
fn migrate_operation(operation: NameOperation) -> super::NameOperation {
    use super::NameOperation as Next;
    match operation {
        NameOperation::MakeDirectory { path, mode } => Next::MakeDirectory { path, mode },
        NameOperation::Rename { from, to, ino, over } => Next::Rename { from, to, ino, over },
        NameOperation::Unlink { path, keeps } => Next::Unlink { path, keeps },
        NameOperation::Link { from, to, ino } => Next::Link { from, to, ino, over: None },
        NameOperation::MakeLink { path, target } => Next::MakeLink { path, target },
        NameOperation::Exchange { from, to, inos } => Next::Exchange { from, to, inos },
        NameOperation::RemoveDirectory { path } => Next::RemoveDirectory { path },
        NameOperation::Change { path, ino, change } => Next::Change { path, ino, change },
        NameOperation::SetXattr { path, ino, name, value } => {
            Next::SetXattr { path, ino, name, value }
        }
        NameOperation::MakeFifo { path, mode } => Next::MakeFifo { path, mode },
    }
}

/// An image said where the inode is, too.
fn migrate_image(image: InodeImage, out: &mut Vec<Next>) {
    let ino = image.attributes.ino;
    if let (true, Some(slot)) = (image.spare, image.slot) {
        out.push(Local::Preallocated { ino, slot }.into());
        return;
    }
    let fact = facts::InodeImage {
        attributes: image.attributes,
        name: image.name,
        published: image.published,
        rewritten: image.rewritten,
        backed_bytes: image.backed_bytes,
        overlay: image.overlay,
        target: image.target,
    };
    out.push(Fact::Inode(fact).into());
    out.extend(image.packed.map(|place| Local::Packed { ino, place }.into()));
    out.extend(image.slot.map(|slot| Local::Attached { ino, slot }.into()));
}

#[cfg(test)]
mod tests {
    use super::{Fact, InodeImage, Local, Next, Record, facts, migrate};
    use crate::ids::{FileSlot, Ino};
    use crate::wire::message::{Attributes, Kind};

    fn image(slot: Option<FileSlot>, packed: Option<u32>) -> InodeImage {
        let attributes = Attributes {
            ino: Ino(7),
            kind: Kind::File,
            mode: 0o600,
            links: 1,
            uid: 1,
            gid: 2,
            size: 3,
            accessed_ns: 4,
            modified_ns: 5,
            changed_ns: 6,
        };
        InodeImage {
            attributes,
            name: Some((Ino(1), b"a".to_vec())),
            slot,
            published: None,
            rewritten: true,
            backed_bytes: 8,
            overlay: false,
            target: Vec::new(),
            packed,
            spare: false,
        }
    }

    fn said(image: InodeImage) -> Vec<Next> {
        let mut out = Vec::new();
        migrate(Record::Inode(image), &mut out);
        out
    }

    #[test]
    fn what_an_image_was_and_where_it_lay_are_two_things() {
        let [here, packed] = [image(Some(FileSlot(9)), None), image(None, Some(10))].map(said);
        let [Next::Fact(Fact::Inode(fact)), place] = here.as_slice() else { panic!("{here:?}") };
        assert_eq!(*place, Local::Attached { ino: Ino(7), slot: FileSlot(9) }.into());
        let name = Some((Ino(1), b"a".to_vec()));
        let expected = facts::InodeImage { name, ..fact.clone() };
        assert_eq!((fact, fact.backed_bytes, fact.rewritten), (&expected, 8, true));
        assert_eq!(packed[1], Local::Packed { ino: Ino(7), place: 10 }.into());
    }
}
