//! What servers of a pool leave for each other in a registry, for `golden`.

use terral_format::ids::{Epoch, Member, ServerId};
use terral_format::wire::answering::{Answers, Newcomer};
use terral_format::wire::capability::{Revocation, Revoked};
use terral_format::wire::person::Person;
use terral_format::wire::placement::Role;
use terral_format::wire::pool::{
    Generation, Invited, Lost, Machine, Replaced, Server, Stage, Wanted, parts, write,
};
use terral_format::wire::roster::{
    Certificate, Control, Invitation, Key, Partition, Roster, Rule, Seat, Secret, Standing, Verdict,
};
use terral_format::wire::status::{Membership, Other, PoolStatus, Sent};
use terral_format::{Error, ErrorKind, Result};

use crate::golden_identity::{bounded, container, group};
use crate::golden_placement::placement;
use crate::golden_values::{losses, pilot, policy};

/// A member as it is shown.
pub fn membership() -> Membership {
    Membership {
        me: Member::LEAST,
        control: Member::LEAST,
        epoch: Epoch(47),
        members: vec![Other {
            seat: Seat {
                member: Member::LEAST,
                standing: Standing::In(ServerId(48)),
                addresses: vec![([127, 0, 0, 1], 49).into()],
            },
            connected: true,
            current: true,
        }],
        encrypted: true,
        sent: Sent { frames: 211, operations: 212, bytes: 213 },
        losses: losses(),
        policies: vec![policy()],
        placement: placement(),
        authorities: vec![Member::LEAST],
        answers: vec![(Member::LEAST, answers().by)],
        users: vec![(Member::LEAST, 1001)],
        pool: Some(status()),
    }
}

/// As it is shown.
pub fn status() -> PoolStatus {
    PoolStatus {
        name: "p".to_owned(),
        registry: "etcd://a:2379".to_owned(),
        generation: 214,
        away_ms: Some(215),
        why: Some("no answer".to_owned()),
        unkept: true,
    }
}

fn machine() -> Machine {
    Machine { host: "node1".into(), id: "521".into(), boot: "b".into(), user: 501, users: false }
}

fn seat() -> Seat {
    let addresses = vec![([10, 0, 0, 1], 502).into()];
    Seat { member: Member::LEAST, standing: Standing::In(ServerId(503)), addresses }
}

fn rule() -> Rule {
    let bounded = bounded();
    Rule {
        roster: Roster {
            version: 504,
            epoch: Epoch(505),
            seats: vec![seat()],
            ..Roster::default()
        },
        certificates: vec![Certificate { member: Member::LEAST, key: Key([71; 32]), user: None }],
        policies: vec![policy()],
        revoked: vec![Revoked { what: Revocation::Principal(pilot()), epoch: 506 }],
        containers: vec![container()],
        quotas: vec![(bounded.name, bounded.quota)],
        placement: placement(),
        groups: vec![group()],
        control: Some(Member::LEAST),
        authorities: vec![Member::LEAST],
        answers: vec![answers()],
    }
}

/// Who answers for whom.
pub fn answers() -> Answers {
    let member = |number| Member::new(number).expect("14 bits");
    Answers { member: member(522), by: member(523), login: "al".to_owned() }
}

/// What servers say to each other of users' servers.
pub fn said() -> Result<Vec<u8>> {
    let key = Key([74; 32]);
    let user = Person { user: 524, group: 525, groups: vec![526] };
    let whom = Box::new(Newcomer { user: user.clone(), login: "al".into() });
    let refused = Error::new(ErrorKind::TooMany, "why");
    let all = [
        Control::Invites { key, whom },
        Control::Invited { key, answer: Ok(Box::new(invitation())) },
        Control::Invited { key, answer: Err(refused) },
        Control::Gone { member: answers().member, dead: true },
        Control::Speaks(user),
    ];
    Ok(all.iter().map(Control::frame).collect::<Result<Vec<_>>>()?.concat())
}

fn invitation() -> Invitation {
    Invitation {
        partition: Partition { id: 511, secret: Secret([0; 32]), encrypted: true },
        me: Member::LEAST,
        server: ServerId(512),
        control: seat(),
        key: Key([73; 32]),
        root: Some(seat()),
        permanent: true,
    }
}

/// Each record, one behind the other.
pub fn records() -> Result<Vec<u8>> {
    let stages = [Stage::Claimed, Stage::Begun(507), Stage::Ended];
    let control = Member::LEAST;
    let lost = Replaced { member: control, verdict: Some(Verdict::Fenced) };
    let replaced = || vec![lost, Replaced { verdict: None, ..lost }];
    let generation = |stage| Generation {
        number: 508,
        by: machine(),
        token: 509,
        stage,
        control,
        replaced: replaced(),
    };
    let mut all = Vec::new();
    for stage in stages {
        all.extend(write(&generation(stage))?);
    }
    let (instance, member) = ("default".to_owned(), Member::LEAST);
    let leaves = true;
    all.extend(write(&Server { machine: machine(), instance, generation: 510, member, leaves })?);
    let lost = Lost { token: 509, member: control, verdict: Verdict::Dead };
    all.extend(write(&lost)?);
    for role in [None, Some(Role::Authority), Some(Role::Storage), Some(Role::Compute)] {
        all.extend(write(&Wanted { machine: machine(), key: Key([72; 32]), role })?);
    }
    let answers: [Invited; 2] = [Ok(invitation()), Err("why".into())];
    for answer in answers {
        all.extend(write(&answer)?);
    }
    for part in parts(&rule())?.into_values() {
        all.extend(part);
    }
    Ok(all)
}
