//! Users' servers that are started as others look at what is theirs: for what they may use of it,
//! a few at a time, and nobody waits for ever.

use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::wire::roster::{Certificate, Key};
use terral_format::wire::starting::{Needed, Started};
use terral_format::{ErrorKind, Result, frame};
use terral_store::backing::NameSink;

use super::users::{ALICE, BOB, gives, house, person, roots};
use super::{Peers, member};
use crate::authority::audit::Who;
use crate::sharing::starting;

/// A user who has no server.
const CAROL: u32 = 1003;
/// `EUSERS` of Linux.
const EUSERS: i32 = 87;

/// Something of hers in a directory of root's.
fn hers(peers: &Peers, path: &[u8], mode: u32) {
    let dir = peers.dir.as_ref().expect("a store");
    dir.put(path, b"hers").expect("put");
    gives(dir, path, (CAROL, mode));
}

fn of(owner: u32, asker: u32) -> Needed {
    Needed { owner, asker }
}

/// Who starts them says what came of some, and is told which are needed.
fn starts(peers: &mut Peers, came: &[(Needed, Started)]) -> Vec<Needed> {
    let encoded = frame::encode(&came).expect("fits");
    roots(peers, |state| {
        starting::hear(state, Who { pid: 1, user: 0 }, &encoded).expect("root's server");
        state.members.as_ref().expect("one").awaited_servers()
    })
}

fn awaits(peers: &mut Peers, needed: Needed) -> Result<()> {
    roots(peers, |state| {
        let now = state.world.now();
        state.members.as_mut().expect("one").awaits_server(needed, now)
    })
}

#[test]
fn it_is_started_for_what_one_may_use_and_for_nothing_else() {
    let mut peers = house(51);
    hers(&peers, b"all/shut", 0o600);
    hers(&peers, b"all/open", 0o644);
    let dir = peers.dir.clone().expect("a store");
    for (path, mode) in [(&b"carol"[..], 0o700), (b"searched", 0o711), (b"listed", 0o744)] {
        dir.make_directory(path, 0o700).expect("new");
        gives(&dir, path, (CAROL, mode));
    }
    peers.starts = Some(|state, needed| {
        let (now, why) = (state.world.now(), "seen".into());
        state.members.as_mut().expect("one").comes_not(needed, (why, false), now);
    });
    for at in [1, 2] {
        for path in [&b"all/shut"[..], b"carol", b"carol/f"] {
            let error = peers.stat(at, path).expect_err("not for him");
            assert_eq!(error.kind, ErrorKind::Denied, "{at} {path:?}: {error}");
        }
    }
    for (at, path) in [(1, &b"all/open"[..]), (2, b"searched"), (1, b"listed"), (0, b"all/shut")] {
        let error = peers.stat(at, path).expect_err("it was not started");
        assert!(error.to_string().contains("seen"), "{at} {path:?}: {error}");
        peers.pass(Duration::from_secs(2));
    }
}

#[test]
fn what_came_of_it_for_one_is_not_said_to_another() {
    let mut peers = house(52);
    assert_eq!([ALICE, BOB].map(|asker| awaits(&mut peers, of(CAROL, asker))), [Ok(()), Ok(())]);
    let both = vec![of(CAROL, ALICE), of(CAROL, BOB)];
    assert_eq!(starts(&mut peers, &[]), both);
    let said = (of(CAROL, BOB), Started::TooMany("sixteen".into()));
    assert_eq!(starts(&mut peers, &[said]), both[..1]);
    let error = awaits(&mut peers, of(CAROL, BOB)).expect_err("he was refused");
    assert_eq!((error.kind, error.errno), (ErrorKind::TooMany, EUSERS));
    assert_eq!(awaits(&mut peers, of(CAROL, ALICE)), Ok(()));
    // After a while he may ask again.
    starts(&mut peers, &[]);
    peers.pass(Duration::from_secs(2));
    assert_eq!(awaits(&mut peers, of(CAROL, BOB)), Ok(()));
}

#[test]
fn one_asker_waits_for_a_few_at_a_time_and_keeps_none_from_others() {
    let mut peers = house(53);
    let mut asked = |asker| {
        let all = (2000..3000).map(|owner| awaits(&mut peers, of(owner, asker)));
        all.filter(Result::is_ok).count()
    };
    assert_eq!([asked(BOB), asked(ALICE), asked(BOB)], [16, 16, 16], "the same ones");
    assert_eq!(asked(0), 512 - 32, "root's are so many as there may be");
    assert_eq!(starts(&mut peers, &[]).len(), 512);
}

#[test]
fn nobody_waits_for_ever_for_who_starts_none() {
    let mut peers = house(54);
    awaits(&mut peers, of(CAROL, BOB)).expect("it is waited for");
    starts(&mut peers, &[]);
    let nobody = |peers: &mut Peers| {
        roots(peers, |state| {
            let now = state.world.now();
            state.members.as_mut().expect("one").does_nobody_start_them(now);
        });
        awaits(peers, of(CAROL, BOB))
    };
    assert_eq!(nobody(&mut peers), Ok(()));
    peers.pass(Duration::from_secs(6));
    let error = nobody(&mut peers).expect_err("who starts them is gone");
    assert!(error.to_string().contains("nobody starts it"), "{error}");
    // He is there, and it does not come.
    peers.pass(Duration::from_secs(2));
    awaits(&mut peers, of(CAROL, BOB)).expect("it is tried again");
    for _ in 0..31 {
        peers.pass(Duration::from_secs(2));
        starts(&mut peers, &[(of(CAROL, BOB), Started::Runs)]);
    }
    let error = awaits(&mut peers, of(CAROL, BOB)).expect_err("a minute is over");
    assert!(error.to_string().contains("does not come"), "{error}");
}

#[test]
fn what_is_written_down_of_one_askers_refusals_is_a_line_a_minute() {
    let mut peers = house(55);
    let lines = |peers: &Peers| peers.sims[0].audited().matches("\"started\"").count();
    for owner in 2000..2100 {
        awaits(&mut peers, of(owner, BOB)).expect("waited for");
        let refused = Started::Refused("no user \"\n".repeat(100));
        starts(&mut peers, &[(of(owner, BOB), refused)]);
    }
    assert_eq!(lines(&peers), 1);
    starts(&mut peers, &[(of(CAROL, BOB), Started::Begun)]);
    assert_eq!(lines(&peers), 2, "each that was started is");
}

#[test]
fn a_member_that_has_no_session_has_not_come() {
    let mut peers = house(56);
    roots(&mut peers, |state| {
        let of = |(at, user)| Certificate { member: member(at), key: Key([0; 32]), user };
        let users = [None, Some(person(ALICE)), Some(person(CAROL))];
        let certificates = users.into_iter().enumerate().map(of).collect();
        state.record(Membership::Certificates(certificates));
        state.commit().expect("there is room");
        let (members, now) = (state.members.as_mut().expect("one"), state.world.now());
        members.connects(member(2), false, now);
        members.awaits_server(of_carol(), now).expect("it is waited for");
        members.look_who_comes();
        assert_eq!(members.awaited_servers(), [of_carol()]);
        members.connects(member(2), true, now);
        members.look_who_comes();
        assert!(members.awaited_servers().is_empty());
        assert_eq!(members.server_there(CAROL), Some(member(2)));
    });
}

fn of_carol() -> Needed {
    of(CAROL, BOB)
}
