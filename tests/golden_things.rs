//! A value of everything that says what things are, for the golden files: to other servers, and in
//! a member's own log.

use crate::{golden_identity, golden_placement, golden_pool, golden_values};
use terral_format::disk::membership::{Membership, Transacts};
use terral_format::disk::partition;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{
    Asker, Epoch, Ino, InstanceId, Lsn, Member, Number, ServerId, SessionSlot,
};
use terral_format::wire::body::Body;
use terral_format::wire::capability::{Principal, Revocation};
use terral_format::wire::containers::{Container, Setting};
use terral_format::wire::credential::{self, CredentialId};
use terral_format::wire::login::Carried;
use terral_format::wire::message::{self, Attributes, Kind, XattrHow};
use terral_format::wire::moving::{Back, Renamed};
use terral_format::wire::person::Person;
use terral_format::wire::placement::Placement;
use terral_format::wire::remembered::{Memory, Remember, Remembered};
use terral_format::wire::roster::{Certificate, Key, Partition, Roster, Seat, Secret};
use terral_format::wire::things::{By, Change, Child, Directory, Look, Made, Node, Outcome};
use terral_format::wire::transactions::{
    Delegated, Destination, Gets, Preparing, Returned, Set, TransactionId,
};
use terral_format::{Error, ErrorKind};

fn number(counted: u64) -> Number {
    Number::new(member(401), counted).expect("50 bits")
}

fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

fn attributes(kind: Kind) -> Attributes {
    Attributes {
        ino: Ino(402),
        kind,
        mode: 0o644,
        links: 403,
        uid: 404,
        gid: 405,
        size: 406,
        accessed_ns: 407,
        modified_ns: 408,
        changed_ns: 409,
    }
}

fn child(kind: Kind) -> Child {
    Child { name: b"a".into(), number: number(410), kind, text: b"b".into() }
}

fn by<T>(what: T) -> By<T> {
    By { person: Person { user: 411, group: 412, groups: vec![413] }, what }
}

fn carried() -> Carried {
    let (id, issuer) = (CredentialId(442), InstanceId(443));
    Carried { id, issuer, secret: credential::Secret([44; 32]) }
}

fn transaction() -> TransactionId {
    TransactionId { by: member(456), number: 457 }
}

fn set() -> Set {
    Set { operation: 458, name: b"C".into(), value: Some(b"D".into()), how: XattrHow::Create }
}

fn destination() -> Destination {
    let made = vec![(number(480), b"E".to_vec())];
    Destination { directory: number(479), made, name: b"F".into() }
}

fn returned() -> Returned {
    let (lost, got) = (vec![(number(493), b"I".into())], vec![destination()]);
    Returned { lost, got, fingerprint: Some(Fingerprint::default()), rewritten: true }
}

fn preparing() -> Preparing {
    let delegated = Delegated {
        operation: 477,
        more: 496,
        names: vec![(number(478), b"G".into())],
        above: vec![vec![(number(492), b"H".into())]],
        to: vec![b"L".into()],
    };
    Preparing {
        sets: vec![set()],
        gets: Some(Gets { operation: 475, names: 476 }),
        delegated: Some(delegated),
        witness: Some(Member::LEAST),
    }
}

/// Bodies of each kind, and of each form of what may be in them.
pub fn bodies() -> Vec<Body> {
    let kinds = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket];
    let names = kinds.map(child).to_vec();
    let directory = Directory { attributes: attributes(Kind::Directory), names, whole: true };
    let looks = [Look::Attributes, Look::Name(b"c".into()), Look::Names(b"d".into())];
    let made = Made { kind: Kind::Symlink, mode: 0o777, text: b"e".into() };
    let changed = message::Change { mode: Some(0o600), uid: Some(414), ..Default::default() };
    let changes = [
        Change::Make(b"f".into(), made),
        Change::Remove(b"g".into()),
        Change::Attributes(changed),
        Change::Unname(b"k/l".into()),
        Change::Move(b"m".into(), b"n".into(), message::RenameHow::Keep),
        Change::LetGo,
        Change::Link { path: b"p".into(), named: true },
        Change::LetGoOf(number(430), b"q".into()),
        Change::Xattr { name: b"s".into(), value: Some(b"t".into()), how: XattrHow::Replace },
        Change::Swap(number(436), b"y".into()),
        Change::Revoke(Revocation::Serial(437)),
        Change::Logout(carried()),
        Change::Prepare(transaction(), Box::new(preparing())),
        Change::Commit(transaction()),
        Change::Resolve(transaction(), true),
        Change::Witness(transaction(), vec![number(469)]),
        Change::Release(transaction()),
        Change::Return(transaction(), Box::new(returned())),
    ];
    let mut all = vec![directory.body(), Node { attributes: attributes(Kind::File) }.body()];
    all.extend(looks.map(|look| by(look).body()));
    all.extend(changes.map(|change| by(change).body()));
    all.extend(outcomes().map(|outcome| outcome.body()));
    let steps = [None, Some(child(Kind::Directory))];
    let steps = steps.map(|child| Outcome::Step(attributes(Kind::Directory), child));
    all.extend(steps.map(|step| step.body()));
    all.push(Outcome::Safety(Box::new(golden_values::safety())).body());
    all.push(Outcome::Server(Box::new(golden_values::told())).body());
    let looks = [Look::Step(b"o".into()), Look::Xattr(b"w".into()), Look::XattrNames(b"x".into())];
    all.extend(looks.map(|look| by(look).body()));
    all.extend([Look::Safety, Look::Server { hasten: true }].map(|look| by(look).body()));
    let verify = Look::Verify(Box::new(golden_values::capability()));
    let issue = Look::Issue(Principal::User(440), 441);
    all.push(by(Look::Doubts).body());
    let decided = Look::Decided(transaction());
    let looks = [verify, Look::Revoked, issue, Look::Authorize(carried()), decided];
    all.extend(looks.map(|look| by(look).body()));
    let (way, name) = (vec![(child(Kind::Directory).number, b"y".into())], b"z".into());
    all.push(by(Look::Adopt(way, name)).body());
    let changes = settings().map(|setting| Change::Container(Principal::User(442), setting));
    all.extend(changes.map(|change| by(change).body()));
    all.into_iter().map(|body| body.expect("short")).collect()
}

/// What may come of it.
fn outcomes() -> [Outcome; 21] {
    [
        Outcome::Attributes(attributes(Kind::Fifo)),
        Outcome::Name(Some(child(Kind::File))),
        Outcome::Name(None),
        Outcome::Names(vec![child(Kind::File)], true),
        Outcome::Done(Some(number(415))),
        Outcome::Done(None),
        Outcome::Failed(Error::new(ErrorKind::NotEmpty, "h")),
        Outcome::LetGo(Some(Fingerprint::default())),
        Outcome::LetGo(None),
        Outcome::LetGoOf(Some(Fingerprint::default()), 431, 479),
        Outcome::Xattr(b"u".into()),
        Outcome::XattrNames(vec![b"v".into()], true),
        Outcome::Good(golden_values::capability().scope()),
        Outcome::Revoked(438),
        Outcome::Issued(Box::new(golden_values::capability())),
        Outcome::Ended(439, vec![Member::LEAST]),
        Outcome::Decided(Some(true)),
        Outcome::Decided(None),
        Outcome::Doubts(vec![golden_identity::in_doubt()]),
        Outcome::Awaits(Member::LEAST),
        Outcome::Delegated(494, Some(Fingerprint::default()), true),
    ]
}

/// What is asked to be done with containers.
fn settings() -> [Setting; 4] {
    let container = golden_identity::container();
    let Container { name, place, owner, entries } = container;
    [
        Setting::Create {
            name: name.clone(),
            place,
            owner: Some(owner),
            entries: entries.clone(),
            quota: golden_identity::bounded().quota,
        },
        Setting::Set { name: name.clone(), entries },
        Setting::Remove(name.clone()),
        Setting::Bound(name, golden_identity::bounded().quota),
    ]
}

/// Every record of a member.
pub fn records() -> Vec<Membership> {
    let transacts = transacts().into_iter().map(Membership::Transacts);
    let control = Membership::Control(Member::LEAST);
    let authorities = Membership::Authorities(vec![member(465)]);
    let striped = |stripe| Membership::Striped { ino: Ino(464), stripe };
    let striped = [striped(Some(golden_placement::stripe())), striped(None)];
    let answers = Membership::Answers(vec![golden_pool::answers()]);
    let others =
        [control, authorities].into_iter().chain(striped).chain(let_go()).chain(in_store());
    of_things().into_iter().chain(transacts).chain(others).chain([answers]).collect()
}

/// Those of names that homes have let go.
fn let_go() -> [Membership; 3] {
    let (directory, name, home) = (number(481), b"ab".to_vec(), member(484));
    [
        Membership::LetGo { ino: Ino(480), directory, name, by: member(482), which: 483, is: true },
        Membership::Asked { home, which: 486 },
        Membership::Gone { home, which: 485, is: false },
    ]
}

/// What the permanent store has of a file.
fn in_store() -> [Membership; 1] {
    [Membership::InStore {
        ino: Ino(487),
        fingerprint: Some(Fingerprint::default()),
        rewritten: true,
    }]
}

/// Those of transactions.
fn transacts() -> [Transacts; 11] {
    let asker = Asker { session: SessionSlot(472), index: 3, sequence: 473 };
    [
        Transacts::Prepared {
            of: transaction(),
            file: number(459),
            sets: vec![set()],
            since_s: 463,
        },
        Transacts::Settled { of: transaction(), file: number(460) },
        Transacts::Decided { of: transaction(), files: vec![number(461)] },
        Transacts::Told { of: transaction(), file: number(462) },
        Transacts::Watched { of: transaction(), file: number(470), witness: Member::LEAST },
        Transacts::Asks { of: transaction(), witness: Member::LEAST, asker },
        Transacts::Witnessed { of: transaction(), files: vec![number(471)] },
        Transacts::Released { of: transaction() },
        Transacts::Gets { of: transaction(), file: number(477), names: 478 },
        Transacts::Delegated { of: transaction(), file: number(488), to: vec![b"K".into()] },
        Transacts::Returns {
            of: transaction(),
            file: number(489),
            after: Lsn(490),
            directories: vec![number(491)],
            lost: vec![(number(495), b"J".into())],
            got: vec![destination()],
        },
    ]
}

fn of_things() -> Vec<Membership> {
    let (ino, parent, name) = (Ino(416), Ino(417), b"i".to_vec());
    let (kind, text) = (Kind::Symlink, b"j".to_vec());
    vec![
        Membership::Joined {
            me: member(418),
            server: ServerId(419),
            root: member(420),
            partition: Partition { id: 423, secret: Secret([42; 32]), encrypted: true },
        },
        Membership::Roster(Roster {
            version: 424,
            epoch: Epoch(425),
            seats: vec![Seat {
                member: member(426),
                standing: partition::Standing::In(ServerId(427)),
                addresses: vec![([127, 0, 0, 1], 428).into()],
            }],
            policies: Vec::new(),
            certificates: Vec::new(),
            placement: Placement::default(),
            authorities: Vec::new(),
            answers: Vec::new(),
        }),
        Membership::Protocol(partition::Record::Epoch(Epoch(421))),
        Membership::Born { ino, number: number(422), kind, text },
        Membership::Forgotten { ino },
        Membership::Named { ino, parent, name: name.clone() },
        Membership::Unnamed { parent, name },
        Membership::Looks { attributes: attributes(Kind::Socket) },
        Membership::Elsewhere { ino, is: true },
        Membership::Overlaid { ino },
        Membership::There { ino, fingerprint: Some(Fingerprint::default()) },
        Membership::Adrift { ino, is: true },
        Membership::Restored { ino, of: member(429) },
        Membership::Bound { member: member(430), instance: 431 },
        Membership::Leaves { ino, directory: number(432), name: b"r".into(), is: true },
        Membership::Lost { ino, by: member(433), token: 434, counted: false },
        Membership::Borrows { ino, file: number(435) },
        Membership::Returned { ino },
        Membership::Exchanges {
            by: member(437),
            back: Back {
                way: vec![(number(438), b"z".into())],
                seen: Some(Renamed {
                    before: Fingerprint::default(),
                    after: Fingerprint::default(),
                    modified_ns: 439,
                    again: true,
                }),
                is_known: false,
            },
        },
        Membership::Swapped {
            by: member(440),
            names: Some([(parent, b"A".into()), (ino, b"B".into())]),
        },
        Membership::Batch { ino, file: number(436), id: 437, strips: true },
        Membership::Merged { ino },
        Membership::Policies(vec![golden_values::policy()]),
        Membership::Certificates(vec![Certificate {
            member: member(455),
            key: Key([45; 32]),
            user: Some(golden_values::person()),
        }]),
        Membership::Placement(golden_placement::placement()),
    ]
}

/// What is asked, and known, of a directory that a dead member had.
pub fn memories() -> Vec<Memory> {
    let (directory, after) = (number(430), b"a".to_vec());
    let asked = Remember { epoch: Epoch(431), directory, after: after.clone() };
    let names = vec![(child(Kind::File), Some(attributes(Kind::File))), (child(Kind::Fifo), None)];
    let way = vec![(directory, b"d".to_vec())];
    let attributes = Some(attributes(Kind::Directory));
    let said = Remembered { directory, after, way, attributes, names, last: true };
    vec![Memory::Asks(asked), Memory::Says(said)]
}
