//! Requests and answers of who proves who he is, and of what he may: for [`crate::golden_values`].

use terral_format::ids::{Member, Number};
use terral_format::wire::capability::{Operations, Principal, Revocation};
use terral_format::wire::containers::{
    Bounded, Container, ContainerName, Entry, Group, Party, Quota, Used,
};
use terral_format::wire::credential::CredentialId;
use terral_format::wire::login::{Hidden, Proof, Sealed, Signed, Whom, Wish};
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::starting::Needed;
use terral_format::wire::transactions::{InDoubt, MemberDoubts, TransactionId, Trouble};

use crate::golden_values::{CREDENTIAL, FILE, credential, pilot};

/// A container with a list.
pub fn container() -> Container {
    let may = Operations::READ.and(Operations::LIST);
    let entry = |(who, may)| Entry { who, may };
    let list = [
        (Party::Principal(pilot()), may),
        (Party::Others, Operations(0)),
        (Party::Group(group().name), Operations::CREATE),
    ];
    Container {
        name: ContainerName::new("results").expect("is one"),
        place: b"out/results".to_vec(),
        owner: Principal::User(281),
        entries: list.map(entry).to_vec(),
    }
}

/// A transaction in doubt.
pub fn in_doubt() -> InDoubt {
    let by = Member::new(464).expect("14 bits");
    InDoubt {
        of: TransactionId { by, number: 465 },
        file: Number::new(by, 466).expect("50 bits"),
        path: b"out/x".to_vec(),
        names: vec![b"user.x".to_vec()],
        gets: 474,
        since_s: 467,
        trouble: Some(Trouble::Lost),
        witness: Member::new(468),
    }
}

/// A group.
pub fn group() -> Group {
    let Principal::Key(name) = pilot() else { panic!("by a key") };
    Group { name, members: vec![pilot()] }
}

/// With a quota.
pub fn bounded() -> Bounded {
    let quota = Quota { bytes: Some(282), files: Some(283) };
    Bounded { name: container().name, quota, used: Used { bytes: 284, files: 285 } }
}

/// Of who proves who he is.
pub fn requests() -> [Request<'static>; 17] {
    [
        Request::Revoke(Revocation::Credential(CredentialId(280))),
        Request::Revoke(Revocation::Principal(pilot())),
        Request::Challenge,
        Request::Login(
            Proof::Key(Signed { key: [61; 32], challenge: [62; 32], signature: &[63; 64] }),
            Wish { below: Some(b"out"), lifetime_s: Some(264) },
        ),
        Request::Login(Proof::Token(Hidden(b"eyJ")), Wish::default()),
        Request::Authorize(CREDENTIAL, true),
        Request::Logout(CREDENTIAL),
        Request::Whom,
        Request::Negotiate([64; 32], Hidden(b"\x60\x82")),
        Request::Login(
            Proof::Gss(Sealed { challenge: [65; 32], seal: &[66; 28] }),
            Wish::default(),
        ),
        Request::Containers("results"),
        Request::SetContainer(b"set"),
        Request::Doubts,
        Request::Resolve { of: in_doubt().of, is: true },
        Request::Use { file: FILE, access: 2 },
        Request::Starts(&[1, 0]),
        Request::Speaks(&[2]),
    ]
}

/// Answers to who proves who he is.
pub fn replies() -> [Reply; 7] {
    [
        Reply::Challenge([67; 32]),
        Reply::Credential(Box::new(credential())),
        Reply::Whom(Box::new(Whom {
            principal: pilot(),
            operations: Operations::READ,
            below: Some(b"out".to_vec()),
            expires_s: 278,
            credential: Some(CredentialId(279)),
        })),
        Reply::Negotiated(vec![0x60, 0x83]),
        Reply::Containers(vec![container()], vec![bounded()], true),
        Reply::Doubts(vec![MemberDoubts {
            member: in_doubt().of.by,
            doubts: Some(vec![in_doubt()]),
        }]),
        Reply::Needed(vec![Needed { owner: 304, asker: 305 }]),
    ]
}
