//! Users' servers that are started as others look at what is theirs: for what they may use of it,
//! a few at a time, and nobody waits for ever.

use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::Member;
use terral_format::wire::answering::Answers;
use terral_format::wire::message::{Reply, Request, Target};
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Certificate, Key};
use terral_format::wire::starting::{Needed, Started};
use terral_format::{ErrorKind, Result, frame};
use terral_store::backing::NameSink;

use super::users::{ALICE, BOB, gives, house, person, roots};
use super::{Peers, member};
use crate::authority::audit::Who;
use crate::core::state::State;
use crate::requests::handling::Outcome as Handled;
use crate::sharing::starting;

/// A user who has no server.
const CAROL: u32 = 1003;
/// `EUSERS` of Linux.
const EUSERS: i32 = 87;

impl Peers {
    /// Those that are needed are started, by whom the test says.
    pub(super) fn start_needed(&mut self) {
        let Some(starts) = self.starts else { return };
        roots(self, |state| {
            let awaited = state.members.as_ref().map(|members| members.awaited_servers());
            awaited.into_iter().flatten().for_each(|needed| starts(state, needed));
        });
    }

    /// There is a session, or none, which is known where members are users'.
    pub(super) fn has_session(&mut self, at: usize, with: Member, is: bool) {
        let of_users = self.of_users;
        self.sims[at].with(|server| {
            let mut state = server.lock();
            let now = state.world.now();
            let members = state.members.as_mut().filter(|_| of_users);
            members.into_iter().for_each(|members| members.connects(with, is, now));
        });
    }
}

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
    assert_eq!(is_nobody_there(&mut peers), Ok(()));
    for _ in 0..2 {
        peers.pass(Duration::from_secs(2));
        assert_eq!(is_nobody_there(&mut peers), Ok(()));
    }
    peers.pass(Duration::from_secs(2));
    let error = is_nobody_there(&mut peers).expect_err("who starts them is gone");
    assert!(error.to_string().contains("nobody starts it"), "{error}");
    // He is there, and it does not come.
    peers.pass(Duration::from_secs(2));
    awaits(&mut peers, of(CAROL, BOB)).expect("it is tried again");
    for _ in 0..30 {
        peers.pass(Duration::from_secs(2));
        starts(&mut peers, &[(of(CAROL, BOB), Started::Runs)]);
        awaits(&mut peers, of(CAROL, BOB)).expect("not yet a minute");
    }
    peers.pass(Duration::from_secs(1));
    let error = awaits(&mut peers, of(CAROL, BOB)).expect_err("a minute is over");
    assert!(error.to_string().contains("does not come"), "{error}");
}

/// Time passes, and who waits looks.
fn is_nobody_there(peers: &mut Peers) -> Result<()> {
    roots(peers, |state| {
        let now = state.world.now();
        state.members.as_mut().expect("one").does_nobody_start_them(now);
    });
    awaits(peers, of(CAROL, BOB))
}

#[test]
fn who_has_gone_needs_nobody() {
    let mut peers = house(59);
    for asker in [ALICE, BOB] {
        awaits(&mut peers, of(CAROL, asker)).expect("waited for");
    }
    for _ in 0..30 {
        awaits(&mut peers, of(CAROL, ALICE)).expect("she waits");
        peers.pass(Duration::from_millis(250));
    }
    assert_eq!(starts(&mut peers, &[]), [of(CAROL, ALICE)], "he waits no more");
    // Nor do his take a place of those who wait.
    (2000..2016).for_each(|owner| awaits(&mut peers, of(owner, BOB)).expect("waited for"));
    (0..8).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert_eq!(starts(&mut peers, &[]), []);
    (3000..3016).for_each(|owner| awaits(&mut peers, of(owner, BOB)).expect("waited for"));
}

#[test]
fn after_roots_server_began_anew_who_starts_them_has_time_to_ask_it() {
    let mut peers = house(60);
    for _ in 0..3 {
        assert_eq!(is_nobody_there(&mut peers), Ok(()));
        peers.pass(Duration::from_secs(1));
    }
    (0..3).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert!(is_nobody_there(&mut peers).is_err(), "he does not");
}

#[test]
fn who_waits_for_one_that_is_lost_meanwhile_hears_soon_that_it_does_not_come() {
    let mut peers = house(62);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"all/his", b"his").expect("put");
    gives(&dir, b"all/his", (BOB, 0o644));
    peers.stat(1, b"bob").expect("his server has said what that is");
    // It is asked, and says nothing; then it is gone, and none can be started.
    peers.stopped = Some((2, Duration::from_secs(3600)));
    let stat = Request::Stat(Target::Path(b"all/his"));
    let taken = peers.sims[1].asking(peers.clients[1], stat).expect("fits");
    let session = peers.sims[1].clients[peers.clients[1]].session;
    let waits = |peers: &mut Peers| {
        let outcome = peers.handle(1, session, &taken);
        peers.pass(Duration::from_millis(250));
        (0..100).for_each(|_| {
            peers.carry();
        });
        outcome
    };
    (0..8).for_each(|_| assert!(matches!(waits(&mut peers), Some(Handled::Fetch))));
    peers.starts = Some(|state, needed| {
        let (now, why) = (state.world.now(), "seen".into());
        state.members.as_mut().expect("one").comes_not(needed, (why, false), now);
    });
    peers.has_session(0, member(2), false);
    let said = (0..20).find_map(|_| match waits(&mut peers) {
        Some(Handled::Answer(reply)) => Some(reply),
        _ => None,
    });
    let said = said.expect("not after a minute");
    let Ok(Reply::Failed(error)) = frame::decode(&said) else { panic!("it is not there") };
    assert!(error.to_string().contains("seen"), "{error}");
}

#[test]
fn one_that_comes_and_goes_is_waited_for_no_longer_than_one_that_does_not_come() {
    let mut peers = house(61);
    roots(&mut peers, is_carols);
    let mut goes_on = |is_there| {
        roots(&mut peers, |state| {
            let (members, now) = (state.members.as_mut().expect("one"), state.world.now());
            members.connects(member(2), is_there, now);
            members.look_who_comes();
        });
        peers.pass(Duration::from_millis(500));
        awaits(&mut peers, of_carol())
    };
    let over = (0..200).map(|at| goes_on(at % 2 == 0)).position(|waits| waits.is_err());
    assert_eq!(over, Some(121), "a minute after it was first asked for");
}

fn lines(peers: &Peers) -> usize {
    peers.sims[0].audited().matches("\"started\"").count()
}

#[test]
fn that_one_is_refused_anothers_is_written_down_once_a_minute_and_again_after_it() {
    let mut peers = house(55);
    let mut refused = |needed| {
        awaits(&mut peers, needed).expect("waited for");
        starts(&mut peers, &[(needed, Started::Refused("no user \"\n".repeat(100)))]);
        peers.pass(Duration::from_secs(2));
        lines(&peers)
    };
    // Who is refused all the time is written down again after a minute.
    for at in 0..120 {
        assert_eq!(refused(of(CAROL, BOB)), 1 + at / 30, "{at}");
    }
    // Each owner, and asker, by itself; and of one asker not more than a few.
    assert_eq!([refused(of(2000, BOB)), refused(of(CAROL, ALICE))], [5, 6]);
    peers.pass(Duration::from_secs(60));
    for owner in 3000..3030 {
        awaits(&mut peers, of(owner, BOB)).expect("waited for");
        starts(&mut peers, &[(of(owner, BOB), Started::Refused("why".into()))]);
    }
    assert_eq!(lines(&peers), 6 + 16);
    starts(&mut peers, &[(of(CAROL, BOB), Started::Begun)]);
    assert_eq!(lines(&peers), 6 + 17, "each that was started is");
}

#[test]
fn a_link_starts_nobodys_server() {
    let mut peers = house(57);
    let dir = peers.dir.clone().expect("a store");
    dir.make_link(b"all/link", b"there").expect("new");
    gives(&dir, b"all/link", (CAROL, 0o777));
    peers.starts = Some(|_, needed| panic!("{needed:?}"));
    for at in 0..3 {
        let error = peers.stat(at, b"all/link").expect_err("she has not come");
        assert_eq!(error.kind, ErrorKind::Denied, "{at}: {error}");
    }
}

#[test]
fn what_groups_took_from_a_user_his_server_has_no_more() {
    let mut peers = house(58);
    let (his, root) = (member(2), member(0));
    roots(&mut peers, |state| {
        let answers = vec![Answers { member: his, by: root, login: "bob".into() }];
        state.record(Membership::Answers(answers));
        state.commit().expect("there is room");
    });
    let is_in = |peers: &mut Peers, groups: &[u32]| {
        let user = Person { groups: groups.to_vec(), ..person(BOB) };
        let encoded = frame::encode(&user).expect("fits");
        assert_eq!(peers.ask(0, Request::Speaks(&encoded)).map(drop), Ok(()));
        peers.pass(Duration::from_secs(1));
        roots(peers, |state| {
            let members = state.members.as_ref().expect("one");
            members.user_of(member(2)).expect("his").groups.clone()
        })
    };
    for groups in [&[77][..], &[], &[5, 77]] {
        assert_eq!(is_in(&mut peers, groups), groups);
    }
    // It is so in the next process of root's server, too.
    peers.sims[0].kill();
    assert_eq!(is_in(&mut peers, &[5, 77]), [5, 77]);
    // Nobody is root, nor anybody else, by that.
    let root = frame::encode(&Person { user: 0, ..person(BOB) }).expect("fits");
    assert!(peers.ask(0, Request::Speaks(&root)).is_err());
    let his = frame::encode(&Person { groups: vec![9], ..person(BOB) }).expect("fits");
    assert!(peers.ask(2, Request::Speaks(&his)).is_err(), "his own server");
}

#[test]
fn a_member_that_has_no_session_has_not_come() {
    let mut peers = house(56);
    roots(&mut peers, |state| {
        is_carols(state);
        let (members, now) = (state.members.as_mut().expect("one"), state.world.now());
        members.connects(member(2), false, now);
        members.awaits_server(of_carol(), now).expect("it is waited for");
        members.look_who_comes();
        assert_eq!(members.awaited_servers(), [of_carol()]);
        members.connects(member(2), true, now);
        members.look_who_comes();
        assert!(members.awaited_servers().is_empty());
    });
}

/// The third member is hers.
fn is_carols(state: &mut State) {
    let of = |(at, user)| Certificate { member: member(at), key: Key([0; 32]), user };
    let users = [None, Some(person(ALICE)), Some(person(CAROL))];
    let certificates = users.into_iter().enumerate().map(of).collect();
    state.record(Membership::Certificates(certificates));
    state.commit().expect("there is room");
}

fn of_carol() -> Needed {
    of(CAROL, BOB)
}
