//! One fixed value of everything that leaves a process, for `golden.rs`.

use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{
    ContainerId, DescriptionSlot, FileSlot, Ino, InstanceId, Member, Number, PageNumber, ServerId,
    SessionSlot,
};
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::geometry::Geometry;
use terral_format::wire::capability::{
    Capability, Caveat, Grant, Key, Operations, Principal, Revocation, Rights,
};
use terral_format::wire::credential::{Credential, CredentialId, Secret};
use terral_format::wire::far_files::{FarFile, Handle, LentTo, Offered, Piece, Stored};
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::handshake::{Hello, Wants, Welcome};
use terral_format::wire::locks::{
    FarLock, FarOwner, HeldLock, LockAsk, LockKind, LockRange, Locker,
};
use terral_format::wire::login::{Hidden, Shown};
use terral_format::wire::message::{
    Attributes, Change, Drain, FileRef, Kind, MemberAnswer, Name, OpenFile, OpenHow, PROTOCOL,
    RenameHow, Reply, Request, Safety, Seen, Space, Status, Target, Totals, XattrHow,
};
use terral_format::wire::person::Person;
use terral_format::wire::placed::Placing;
use terral_format::wire::roster::{Consistency, Policy};
use terral_format::wire::status::{Losses, LostFile, MemberStatus};
use terral_format::wire::transactions::{self, Operation, Version};
use terral_format::wire::updates::{Attempt, Slot, Update};
use terral_format::{Error, ErrorKind};

use crate::{golden_identity, golden_placement, golden_pool};

/// Signs the golden capability.
pub const KEY: Key = Key([7; 32]);

pub const FILE: FileRef = FileRef { ino: Ino(1001), slot: FileSlot(1002) };
pub const CHANGE: Change = Change {
    mode: Some(0o640),
    uid: None,
    gid: Some(1003),
    accessed_ns: None,
    modified_ns: Some(1004),
};

/// Sizes of an instance.
pub fn geometry() -> Geometry {
    Geometry::for_memory(1 << 30)
}

fn error() -> Error {
    Error { kind: ErrorKind::NoSpace, errno: 28, context: "write out/a".to_owned() }
}

pub fn attributes() -> Attributes {
    Attributes {
        ino: Ino(1005),
        kind: Kind::File,
        mode: 0o644,
        links: 1,
        uid: 1006,
        gid: 1007,
        size: 1008,
        accessed_ns: 1009,
        modified_ns: 1010,
        changed_ns: 1011,
    }
}

pub fn totals() -> Totals {
    Totals {
        sessions: 1,
        opens: 2,
        reads: 3,
        writes: 4,
        read_bytes: 5,
        written_bytes: 6,
        read_ns: 7,
        write_ns: 8,
        other_ns: 9,
    }
}

fn drain() -> Drain {
    Drain {
        owed_files: 10,
        owed_bytes: 11,
        owed_names: 12,
        oldest_ms: 13,
        files: 14,
        bytes: 15,
        verified_bytes: 16,
        busy_ms: 17,
        peak_bytes: 18,
        settled: true,
        failures: vec!["out/a: denied".to_owned()],
        conflicts: vec!["out/b".to_owned()],
    }
}

pub fn fingerprint() -> Fingerprint {
    Fingerprint::new(Object::new(19), 20, 21)
}

/// Narrowed once by each kind of caveat.
pub fn capability() -> Capability {
    let grant = Grant {
        container: ContainerId(1),
        operations: Operations::ALL,
        principal: Principal::User(1000),
        epoch: 22,
        expires_s: 2_000_000_000,
        serial: 23,
        issuer: ServerId(24),
    };
    Capability::issue(&KEY, grant)
        .and_then(|whole| whole.attenuate(Caveat::Only(Operations::READ)))
        .and_then(|narrow| narrow.attenuate(Caveat::Until(1_900_000_000)))
        .and_then(|narrow| narrow.attenuate(Caveat::Below(b"out".to_vec())))
        .and_then(|narrow| narrow.attenuate(Caveat::While(CredentialId(263))))
        .expect("encodes")
}

/// A principal that has a name.
pub fn pilot() -> Principal {
    "key:pilot".parse().expect("is one")
}

pub const CREDENTIAL: Shown<'static> =
    Shown { id: CredentialId(265), issuer: InstanceId(266), secret: Hidden(&[64; 32]) };

/// What a server gives to who logs in.
pub fn credential() -> Credential {
    Credential {
        id: CredentialId(267),
        secret: Secret([65; 32]),
        issuer: InstanceId(268),
        principal: pilot(),
        issued_s: 269,
        lifetime_s: 270,
    }
}

pub fn person() -> Person {
    Person { user: 174, group: 175, groups: vec![176, 177] }
}

pub const RIGHTS: Rights = Rights { operations: Operations::ALL, expires_s: 173 };

/// The first message, for a session and for an answer.
pub fn hellos() -> [Hello<'static>; 2] {
    let hello = |wants| Hello {
        protocol: PROTOCOL,
        program: "lmp",
        person: person(),
        capability: Some(capability()),
        wants,
    };
    [hello(Wants::Session), hello(Wants::Answer(Request::Safety(b"results/a")))]
}

/// Its answers.
pub fn welcomes() -> [Welcome; 3] {
    let session = Welcome::Session {
        instance: InstanceId(24),
        session: SessionSlot(25),
        capability: capability(),
        authority: 26,
        started_ticks: 170,
        pid: 171,
    };
    [session, Welcome::Refused(error()), Welcome::Answer(Box::new(Reply::Done))]
}

fn how() -> OpenHow {
    let most = OpenHow { access: 3, create: true, truncate: true, ..OpenHow::default() };
    OpenHow { mode: 0o600, token: 262, ..most }
}

/// Every request.
pub fn requests() -> Vec<Request<'static>> {
    let how = how();
    let mut all = vec![
        Request::Present(b"cap"),
        Request::Stat(Target::Path(b"out/a")),
        Request::Stat(Target::File(FILE)),
        Request::Open { path: b"out/a", how },
        Request::Close { description: DescriptionSlot(26), nonce: 27 },
        Request::MakeDirectory { path: b"out", mode: 0o755 },
        Request::RemoveDirectory(b"out"),
        Request::Unlink(b"out/a"),
        Request::Rename { from: b"a", to: b"b", how: RenameHow::Keep },
        Request::Rename { from: b"a", to: b"b", how: RenameHow::Exchange },
        Request::Link { target: Target::Path(b"a"), path: b"c" },
        Request::MakeLink { path: b"d", target: b"../e" },
        Request::ReadLink(b"d"),
        Request::Reopen { file: FILE, how },
        Request::List { path: b"out", after: b"a" },
        Request::Change { target: Target::Path(b"a"), change: CHANGE },
        Request::Truncate { target: Target::File(FILE), size: 28, token: 261 },
        Request::Grant { file: FILE, first: 29, count: 30, pages: 141 },
        Request::Map { file: FILE, first: 167, count: 168, stores: true },
        Request::Preallocate { count: 142, kernel: true },
        Request::Stage { file: FILE, first: 31, count: 32, within: 4096, bytes: 15 << 10 },
        Request::Unblock { file: FILE, index: 33, owner: 34 },
        Request::Sync(FILE),
        Request::DropSetId(FILE),
        Request::Execute { file: FILE, copy: Some(178) },
        Request::Execute { file: FILE, copy: None },
        Request::MakeNode { path: b"out/s", kind: Kind::Socket, mode: 0o755, address: b"s" },
        Request::Late { file: FILE, chunk: Some((181, 182)) },
        Request::Late { file: FILE, chunk: None },
        Request::Space,
        Request::Status,
        Request::Safety(b"out/a"),
        Request::Everywhere { hasten: true },
        Request::Flush,
        Request::Finish,
        Request::Invite(b""),
        Request::Fence { member: Member::LEAST, dead: true },
        Request::Policy("out/*", Some(Consistency::Strict)),
        Request::Stop(true),
        Request::Capability,
        Request::Revoke(Revocation::Serial(249)),
        Request::Revoke(Revocation::Operations(Operations::WRITE)),
        Request::Revoke(Revocation::Principal(Principal::User(250))),
        Request::Renew,
        Request::Leave,
        Request::Stat(Target::Path(b"")),
        Request::Open { path: b"out", how: OpenHow { directory: true, ..OpenHow::default() } },
    ];
    all.extend(golden_placement::requests());
    all.extend(golden_identity::requests());
    all.extend(lock_requests());
    all.extend(far_requests().map(Request::Far));
    let xattr = (Target::Path(b"a"), b"user.b");
    all.extend([
        Request::Xattr { target: xattr.0, name: xattr.1 },
        Request::XattrNames { target: xattr.0, after: xattr.1 },
        Request::SetXattr {
            target: xattr.0,
            name: xattr.1,
            value: Some(b"c"),
            how: XattrHow::Replace,
        },
        Request::SetXattr { target: xattr.0, name: xattr.1, value: None, how: XattrHow::Any },
        Request::Transact(transactions::encode(&operations()).expect("it is short").leak()),
    ]);
    all
}

/// A transaction of all operations.
fn operations() -> [Operation<Vec<u8>>; 11] {
    let [from, to, path] = [b"out/a", b"out/b", b"out/c"].map(|path| path.to_vec());
    let (name, value) = (b"user.b".to_vec(), Some(b"c".to_vec()));
    let number = Number::of(Member::LEAST, Ino(251));
    let version = Version { number, size: 252, modified_ns: 253 };
    [
        Operation::Rename { from: from.clone(), to: to.clone(), how: RenameHow::Exchange },
        Operation::Link { from, to: to.clone() },
        Operation::Unlink(to),
        Operation::MakeDirectory { path: path.clone(), mode: 0o755 },
        Operation::RemoveDirectory(path.clone()),
        Operation::SetXattr { path: path.clone(), name, value, how: XattrHow::Create },
        Operation::Exists(path.clone()),
        Operation::Missing(path.clone()),
        Operation::Unchanged { path: path.clone(), version },
        Operation::Holds { path, token: 260 },
        Operation::Copies(2),
    ]
}

/// Changes that clients defer.
pub fn deferred() -> Vec<Made<'static>> {
    let (ino, parent, time_ns) = (Ino(156), Ino(157), 158);
    let changes = [
        Deferred::Create { ino, parent, name: b"m", mode: 0o600, by: (182, 183), time_ns },
        Deferred::Unlink { parent, name: b"n", ino, time_ns },
        Deferred::Change { ino, change: CHANGE, time_ns },
        Deferred::Close { description: DescriptionSlot(159), nonce: 160 },
        Deferred::Open { ino, description: DescriptionSlot(174), nonce: 175, access: 3 },
        Deferred::MakeDirectory { ino, parent, name: b"o", mode: 0o700, by: (184, 185), time_ns },
        Deferred::RemoveDirectory { parent, name: b"p", ino, time_ns },
        Deferred::Rename {
            parent,
            name: b"q",
            to_parent: Ino(176),
            to_name: b"r",
            ino,
            over: Ino(177),
            time_ns,
        },
    ];
    changes.map(|change| Made { authority: 169, change }).to_vec()
}

fn far_requests() -> [FarFile<'static>; 41] {
    let from = Handle { description: DescriptionSlot(203), nonce: 204 };
    let number = Number::new(far_lock().owner.by, 205).expect("50 bits");
    let of = Handle { description: DescriptionSlot(186), nonce: 187 };
    let piece = Piece { call: 188, within: 189, more: 190 };
    let by = far_lock().owner.by;
    [
        FarFile::Read { of, at: 191, bytes: 192, piece },
        FarFile::Write { of, at: Some(193), piece, bytes: b"f" },
        FarFile::Write { of, at: None, piece, bytes: b"g" },
        FarFile::Open { ino: Ino(194), access: 3 },
        FarFile::Through { call: 197 },
        FarFile::Lock { ask: lock_ask(), wait: 7 },
        FarFile::TestLock(lock_ask()),
        FarFile::LockFor(Ino(198), far_lock()),
        FarFile::TestLockFor(Ino(199), far_lock()),
        FarFile::UnlockAll(Ino(200), far_lock().owner.by),
        FarFile::Lost(Ino(201), far_lock().owner.by, 202),
        FarFile::Ship { of, at: Some(206), from, bytes: 207 },
        FarFile::Ship { of, at: None, from, bytes: 208 },
        FarFile::Bounce,
        FarFile::IsOpen(number),
        FarFile::Borrow { of, first: 209, count: 210 },
        FarFile::Grow { of, to: 211, epoch: 212 },
        FarFile::Batch { of, full: Ino(228) },
        FarFile::Commit(of),
        FarFile::LendTo(Ino(213), far_lock().owner.by, 214, 215),
        FarFile::BringBack(Ino(216), far_lock().owner.by, 217, 218, true),
        FarFile::HasNothing(Ino(219), far_lock().owner.by),
        FarFile::GiveBack(number, 220, 221),
        FarFile::Took(number, 222, 223),
        FarFile::OfferTo(Ino(229), far_lock().owner.by, 230),
        FarFile::Accepted(Ino(231), far_lock().owner.by, 232, 233),
        FarFile::Mapped(number, 234),
        FarFile::Where(Ino(293), 294),
        FarFile::Take { of: number, index: 295, bytes: 296, from: by, stamp: 297 },
        FarFile::Kept(Ino(298), by, 299, 300),
        FarFile::ReadPart { of: number, at: 301, bytes: 302, stamp: 303, piece },
        FarFile::Map { of, index: 235, stores: true },
        FarFile::WriteMapped { file: FILE, at: 236, bytes: b"h" },
        FarFile::Fencing { of, what: Fencing::Take { lease_ms: 263 } },
        FarFile::Fencing { of, what: Fencing::Renew { token: 264, lease_ms: 265 } },
        FarFile::Fencing { of, what: Fencing::Fence { token: 266 } },
        FarFile::FencingFor(Ino(267), far_lock().owner, Fencing::Fence { token: 268 }),
        FarFile::Place {
            on: by,
            what: Placing::Create { mode: 283 },
            container: b"all/c",
            id: 270,
        },
        FarFile::Place {
            on: by,
            what: Placing::Copy { of: 271, at: 272, bytes: 273 },
            container: b"all/c",
            id: 274,
        },
        FarFile::Update { of, what: Update::Look, records: b"" },
        FarFile::UpdateFor {
            ino: Ino(275),
            attempt: attempt(),
            what: Update::Write { seen: 276, strips: true, token: 277, call: 284 },
            records: b"records",
        },
    ]
}

/// A request for an update.
pub fn attempt() -> Attempt {
    let (by, session) = (far_lock().owner.by, SessionSlot(278));
    let of = Slot { by, session, pid: 279, started_ticks: 280, index: 6 };
    Attempt { of, call: 281 }
}

/// A lock of a file of another machine.
pub fn far_lock() -> FarLock {
    let by = Member::new(201).expect("14 bits");
    let owner = FarOwner { by, locker: Locker::Flock, number: 202 };
    let range = LockRange { first: 203, last: 204 };
    FarLock { owner, range, kind: LockKind::Shared, wait: 7 }
}

fn lock_ask() -> LockAsk {
    LockAsk {
        ino: Ino(118),
        description: DescriptionSlot(119),
        nonce: 120,
        locker: Locker::Process,
        range: LockRange { first: 121, last: 122 },
        kind: LockKind::Exclusive,
    }
}

fn lock_requests() -> Vec<Request<'static>> {
    let ask = lock_ask();
    let flock = LockAsk { locker: Locker::Flock, kind: LockKind::Unlock, ..ask };
    vec![
        Request::LockBlocked { ask, waiter: 123 },
        Request::LockBlocked { ask: flock, waiter: 0 },
        Request::LockBlocked {
            ask: LockAsk { locker: Locker::Description, kind: LockKind::Shared, ..ask },
            waiter: 0,
        },
        Request::LockBlocks,
        Request::StopWaiting(124),
    ]
}

/// What went with a member that was removed.
pub fn losses() -> Losses {
    let (path, of) = ("/out/a".into(), Member::LEAST);
    let file = LostFile { path, of, size: Some(50), modified_ns: 51 };
    Losses { files: vec![file], count: 52, restored: vec![("/out".into(), Member::LEAST)] }
}

fn seen() -> Seen {
    let born = Member::new(207).expect("14 bits");
    Seen { number: Number::of(born, Ino(46)), attributes: attributes() }
}

pub fn safety() -> Safety {
    Safety {
        attributes: attributes(),
        home: Member::new(230),
        heard: false,
        memory_bytes: 44,
        owed_bytes: 45,
        in_backing: false,
        open_for_writing: true,
        failure: Some("denied".to_owned()),
        parts: vec![(Member::LEAST, 227)],
        stripe: Some(golden_placement::stripe()),
        consistency: Consistency::Commit,
        uncommitted_bytes: 229,
    }
}

/// What a member says of itself.
pub fn told() -> MemberStatus {
    MemberStatus {
        host: "h1".to_owned(),
        pid: 231,
        memory_bound_bytes: 232,
        memory_used_bytes: 233,
        programs: 234,
        lent: 235,
        borrowed: 236,
        drain: Drain { owed_files: 237, ..Drain::default() },
    }
}

/// What was said of files.
pub fn policy() -> Policy {
    Policy { pattern: "out/*".to_owned(), consistency: Consistency::Commit }
}

/// Every reply.
pub fn replies() -> Vec<Reply> {
    let status = Status {
        pid: 35,
        starts: 36,
        uptime_ms: 37,
        backing: Some("/scratch".to_owned()),
        sessions: 38,
        files: 39,
        open: 40,
        memory_bound_bytes: 41,
        memory_used_bytes: 42,
        memory_warm_bytes: 43,
        totals: totals(),
        drain: drain(),
        warnings: vec!["process 1".to_owned()],
        spill: Some("/disk/terral-spill".to_owned()),
        spilled_bytes: 46,
        partition: Some(golden_pool::membership()),
    };
    let name = Name { name: b"a".to_vec(), number: Some(seen().number), kind: Kind::Directory };
    let space = Space { total_bytes: 47, free_bytes: 48, total_files: 49, free_files: 50 };
    let known = vec![
        Reply::Done,
        Reply::Failed(error()),
        Reply::Handle(51),
        Reply::Attributes(seen()),
        Reply::Opened { description: DescriptionSlot(52), nonce: 53, file: FILE },
        Reply::Preallocated(vec![OpenFile {
            file: FILE,
            description: DescriptionSlot(150),
            nonce: 151,
        }]),
        Reply::Names { names: vec![name], last: true },
        Reply::LockBlocks(125),
        Reply::Xattr(b"c".to_vec()),
        Reply::XattrNames { names: vec![b"user.b".to_vec()], last: false },
        Reply::Space(space),
        Reply::Status(Box::new(status)),
        Reply::Safety(Box::new(safety())),
        Reply::Everywhere(vec![MemberAnswer { member: Member::LEAST, status: Some(told()) }]),
        Reply::Node(Ino(155)),
        Reply::Again,
        Reply::Elsewhere(Member::LEAST),
        Reply::Invitation("word".into()),
        Reply::Capability(Box::new(capability())),
        Reply::Revoked { sessions: 251, deaf: vec![Member::LEAST] },
        Reply::Extent(vec![1, 2, 200]),
        Reply::At(196),
    ];
    known.into_iter().chain(golden_identity::replies()).chain(far_replies()).collect()
}

fn far_replies() -> [Reply; 10] {
    let places = vec![Stored { page: PageNumber(205), within: 206, bytes: 207 }];
    let (range, kind) = (LockRange { first: 209, last: 210 }, LockKind::Exclusive);
    let held = HeldLock { pid: 208, range, kind };
    let [none, some] = [None, Some(held)].map(Reply::Held);
    let lent = Reply::LentTo(LentTo { count: 224, size: 225, stamp: 226 });
    let offered = Reply::Offered(Offered { size: 237, bytes: 238, stamp: 239 });
    let stored = Reply::Stored { places, ends: true };
    let fenced = Reply::Fenced(Fenced { token: 269, wanted: true });
    let (open, updated) = (Reply::IsOpen(true), Reply::Updated(282));
    let with = Reply::With(Member::LEAST, 303);
    [with, stored, none, some, open, Reply::Lent(FILE), lent, offered, fenced, updated]
}
