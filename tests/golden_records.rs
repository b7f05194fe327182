//! A value of every record, for the golden files.

use terral_format::disk::facts::{Fact, InodeImage};
use terral_format::disk::local::{Began, Held, Kept, Local, Publishing};
use terral_format::disk::{NameOperation, Record};
use terral_format::fingerprint::Object;
use terral_format::ids::{DescriptionSlot, FileSlot, Ino, InstanceId, Lsn, SessionSlot};
use terral_format::wire::capability::{Operations, Principal, Revocation};
use terral_format::wire::containers::Altered;
use terral_format::wire::credential::{Check, CredentialId};
use terral_format::wire::message::Kind;

use crate::golden_identity::{bounded, container, group};
use crate::golden_values::{
    CHANGE, KEY, RIGHTS, attempt, attributes, fingerprint, geometry, person, pilot, totals,
};

/// Every record of a server by itself.
pub fn records() -> Vec<Record> {
    records_of_5().into_iter().chain(authority().map(Record::from)).collect()
}

/// Those that version 5 had as well.
pub fn records_of_5() -> Vec<Record> {
    let facts = names().into_iter().chain(bytes()).chain(xattrs()).chain(snapshot());
    let local = sessions().into_iter().chain(places()).chain(notes());
    facts.map(Record::from).chain(local.map(Record::from)).collect()
}

fn names() -> Vec<Fact> {
    vec![
        Fact::Made {
            parent: Ino(59),
            name: b"a".to_vec(),
            ino: Ino(115),
            kind: Kind::Symlink,
            mode: 0o777,
            uid: 116,
            gid: 117,
            time_ns: 118,
            target: b"t".to_vec(),
        },
        Fact::Adopted {
            parent: Ino(60),
            name: b"b".to_vec(),
            attributes: attributes(),
            fingerprint: fingerprint(),
            target: Vec::new(),
        },
        Fact::Linked {
            ino: Ino(97),
            alias: Ino(98),
            parent: Ino(99),
            name: b"n".to_vec(),
            time_ns: 100,
        },
        Fact::Exchanged {
            parent: Ino(101),
            name: b"o".to_vec(),
            to_parent: Ino(102),
            to_name: b"p".to_vec(),
            time_ns: 103,
        },
        Fact::Renamed {
            parent: Ino(61),
            name: b"c".to_vec(),
            to_parent: Ino(62),
            to_name: b"d".to_vec(),
            time_ns: 63,
        },
        Fact::Removed { parent: Ino(64), name: b"e".to_vec(), time_ns: 65 },
        Fact::Changed { ino: Ino(66), change: CHANGE, time_ns: 67 },
    ]
}

fn bytes() -> Vec<Fact> {
    let times = (75, 215, 217);
    vec![
        Fact::Rested {
            ino: Ino(73),
            size: 74,
            modified_ns: times.0,
            accessed_ns: times.1,
            changed_ns: times.2,
        },
        Fact::Rewritten { ino: Ino(68) },
        Fact::BackedTo { ino: Ino(69), size: 70 },
        Fact::Published { ino: Ino(82), fingerprint: fingerprint() },
        Fact::Touched { ino: Ino(104), fingerprint: fingerprint() },
        Fact::Settled { ino: Ino(219), fingerprint: fingerprint() },
        Fact::Contested { ino: Ino(169) },
        Fact::NamesDrained(Lsn(84)),
    ]
}

fn xattrs() -> Vec<Fact> {
    let (name, value) = (b"user.b".to_vec(), b"c".to_vec());
    let set = |ino, value, time_ns| Fact::Xattr { ino, name: name.clone(), value, time_ns };
    vec![
        set(Ino(133), Some(value.clone()), 134),
        set(Ino(135), None, 136),
        Fact::XattrFound { ino: Ino(137), name: name.clone(), value },
    ]
}

fn snapshot() -> Vec<Fact> {
    let image = InodeImage {
        attributes: attributes(),
        name: Some((Ino(88), b"f".to_vec())),
        published: Some(fingerprint()),
        rewritten: true,
        backed_bytes: 90,
        overlay: false,
        target: Vec::new(),
    };
    let alias =
        Fact::Alias { ino: Ino(107), alias: Ino(108), parent: Ino(109), name: b"w".to_vec() };
    let owed = operations().map(|operation| Fact::Owed { lsn: Lsn(92), operation });
    let hidden = Fact::Hidden { lsn: Lsn(93), parent: Ino(94), name: b"m".to_vec() };
    let all = [Fact::Inode(image), alias].into_iter().chain(owed);
    all.chain([hidden, Fact::Ordinal(Lsn(96))]).collect()
}

fn operations() -> [NameOperation; 10] {
    [
        NameOperation::MakeDirectory { path: b"g".to_vec(), mode: 0o700 },
        NameOperation::Rename {
            from: b"h".to_vec(),
            to: b"i".to_vec(),
            ino: Ino(91),
            over: Some(Object::new(92)),
        },
        NameOperation::Unlink { path: b"j".to_vec(), keeps: Some(Ino(105)) },
        NameOperation::Link {
            from: b"q".to_vec(),
            to: b"r".to_vec(),
            ino: Ino(106),
            over: Some(Object::new(7)),
        },
        NameOperation::MakeLink { path: b"s".to_vec(), target: b"t".to_vec() },
        NameOperation::MakeFifo { path: b"u".to_vec(), mode: 0o620 },
        NameOperation::Exchange {
            from: b"u".to_vec(),
            to: b"v".to_vec(),
            inos: [Ino(120), Ino(121)],
        },
        NameOperation::RemoveDirectory { path: b"k".to_vec() },
        NameOperation::Change { path: b"l".to_vec(), ino: Ino(119), change: CHANGE },
        NameOperation::SetXattr {
            path: b"x".to_vec(),
            ino: Ino(138),
            name: b"user.b".to_vec(),
            value: Some(b"c".to_vec()),
        },
    ]
}

fn authority() -> [Local; 21] {
    let held = Held {
        rights: RIGHTS,
        below: Some(b"out".to_vec()),
        epoch: 254,
        serial: 255,
        principal: Principal::User(256),
        person: person(),
    };
    let kept = Kept {
        id: CredentialId(271),
        check: Check([66; 32]),
        principal: pilot(),
        operations: Operations::READ,
        below: b"out".to_vec(),
        issued_s: 272,
        lifetime_s: 273,
    };
    let (session, credential) = (SessionSlot(274), CredentialId(276));
    let under =
        Local::HeldUnder { session, handle: 275, held: held.clone(), credential, leased: true };
    let revoked = |what| Local::Revoked { what, epoch: 257 };
    [
        Local::Held { session: SessionSlot(252), handle: 253, held: held.clone() },
        Local::HeldLeased { session: SessionSlot(254), handle: 255, held },
        revoked(Revocation::Operations(Operations::WRITE)),
        revoked(Revocation::Serial(258)),
        revoked(Revocation::Principal(Principal::User(259))),
        revoked(Revocation::Principal(pilot())),
        under,
        Local::LoggedIn(kept),
        Local::LoggedOut(CredentialId(277)),
        Local::Token { ino: Ino(260), token: 261 },
        Local::Fenced { ino: Ino(262), token: 263 },
        revoked(Revocation::Principal("gss:alice".parse().expect("is one"))),
        revoked(Revocation::HandedOut),
        Local::Container(Altered::Is(container())),
        Local::Container(Altered::Ended(container().name)),
        Local::Quota(container().name, bounded().quota),
        Local::Counted { at: Some(container().name), inos: vec![Ino(443), Ino(444)] },
        Local::Updated { ino: Ino(278), id: 279 },
        Local::Update { ino: Ino(280), id: 281, attempt: attempt(), records: b"records".to_vec() },
        Local::Attempted { attempt: attempt(), id: 282 },
        Local::Groups(vec![group()]),
    ]
}

fn sessions() -> Vec<Local> {
    let began = Began {
        instance: InstanceId(54),
        boot: "boot".to_owned(),
        geometry: geometry(),
        backing: Some(b"/scratch".to_vec()),
        key: KEY,
    };
    vec![
        Local::Began(began),
        Local::SessionBegan { session: SessionSlot(55), pid: 56, started_ticks: 57 },
        Local::SessionEnded { session: SessionSlot(58), totals: totals() },
        Local::Presented {
            session: SessionSlot(170),
            handle: 171,
            rights: RIGHTS,
            epoch: 172,
            person: person(),
        },
        Local::Defers { session: SessionSlot(149) },
        Local::Lent {
            session: SessionSlot(178),
            descriptions: vec![(DescriptionSlot(179), 180)],
            inos: vec![Ino(181)],
        },
        Local::Answered {
            session: SessionSlot(85),
            request: 86,
            sequence: 87,
            reply: b"done".to_vec(),
        },
        Local::Opened {
            description: DescriptionSlot(76),
            nonce: 77,
            ino: Ino(78),
            access: 79,
            session: SessionSlot(80),
        },
        Local::Closed { description: DescriptionSlot(81) },
    ]
}

fn places() -> Vec<Local> {
    vec![
        Local::Preallocated { ino: Ino(143), slot: FileSlot(144) },
        Local::Attached { ino: Ino(71), slot: FileSlot(72) },
        Local::Detached { ino: Ino(220) },
        Local::Packed { ino: Ino(111), place: 112 },
    ]
}

fn notes() -> Vec<Local> {
    let version = Publishing { path: b"y".to_vec(), fingerprint: fingerprint(), modified_ns: 221 };
    vec![
        Local::Intent { ino: Ino(83) },
        Local::Publishing { ino: Ino(222), version },
        Local::Exchanging { lsn: Lsn(120), object: Object::new(121) },
        Local::Counters { bound: Ino(95), totals: totals() },
    ]
}
