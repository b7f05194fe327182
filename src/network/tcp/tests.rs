//! The suite over the loopback device, and strangers who do what no member does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;
use terral_format::wire::roster::{Key, Secret};

use super::signing::public_half;
use super::{Clock, Encryption, Found, Identity, PartitionId, Settings, Tcp, WAKER};
use crate::conformance::Stage;
use crate::endpoint::{Endpoint, Event, Peer, Timing};

/// Long enough that a loaded machine is not taken for a silent one, as who has not looked for a
/// quarter of it gives the others time.
pub(super) const TIMING: Timing = Timing {
    silence: Duration::from_millis(1600),
    handshake: Duration::from_secs(10),
    retry_first: Duration::from_millis(10),
    retry_most: Duration::from_millis(100),
};

pub(super) fn clock() -> Clock {
    let begin = Instant::now();
    Box::new(move || Moment(1 + begin.elapsed().as_nanos() as u64))
}

pub(super) fn identity(member: Member, server: ServerId) -> Identity {
    Identity { partition: PartitionId(0xabc), member, server, secret: secret(member) }
}

/// That of a member.
pub(super) fn secret(member: Member) -> Secret {
    Secret([(member.number() as u8) ^ 5; 32])
}

/// Its public half.
pub(super) fn key(member: Member) -> Key {
    public_half(&secret(member))
}

pub(super) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Makes two tests of each of these: with encryption, and without.
macro_rules! encrypted_or_not {
    ($($test:ident;)*) => {
        mod encrypted {
            $(#[test] fn $test() { super::$test($crate::tcp::Encryption::Tls) })*
        }
        mod plain {
            $(#[test] fn $test() { super::$test($crate::tcp::Encryption::None) })*
        }
    };
}
pub(super) use encrypted_or_not;

/// The loopback device is a stage.
struct Loopback {
    encryption: Encryption,
    addresses: BTreeMap<Member, SocketAddr>,
}

fn stage(encryption: Encryption) -> [Loopback; 1] {
    [Loopback { encryption, addresses: BTreeMap::new() }]
}

impl Stage for Loopback {
    type Endpoint = Tcp;

    fn start(&mut self, member: Member, server: ServerId) -> Tcp {
        let settings = Settings { timing: TIMING, encryption: self.encryption };
        let tcp = Tcp::listen(loopback(), identity(member, server), settings, clock());
        let tcp = tcp.expect("the loopback device");
        self.addresses.insert(member, tcp.address().expect("it listens"));
        tcp
    }

    fn peer(&self, member: Member, server: ServerId) -> Peer {
        Peer {
            member,
            server,
            key: key(member),
            addresses: self.addresses.get(&member).into_iter().copied().collect(),
        }
    }

    fn timing(&self) -> Timing {
        TIMING
    }

    /// Nobody calls it, which is what a frozen process does.
    fn freeze(&mut self, _member: Member, _time: Duration) {}
}

/// The thread that makes it need not be the one that asks it.
#[test]
fn an_endpoint_goes_to_another_thread() {
    let [mut stage] = stage(Encryption::Tls);
    let one = Member::new(1).expect("14 bits");
    let mut tcp = stage.start(one, ServerId(1));
    let now = std::thread::spawn(move || (tcp.next(tcp.now()), tcp.now()));
    assert_eq!(now.join().expect("it ends").0, None);
}

#[test]
fn a_wait_is_broken_off_once_for_who_wakes_it() {
    let [mut stage] = stage(Encryption::Tls);
    let mut tcp = stage.start(Member::new(1).expect("14 bits"), ServerId(1));
    let (waker, begin) = (tcp.waker(), Instant::now());
    let woken = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        (0..3).for_each(|_| waker.wake());
    });
    let far = tcp.now() + Duration::from_secs(60);
    assert_eq!(tcp.next(far), None);
    assert!(begin.elapsed() < Duration::from_secs(30), "it waited on");
    woken.join().expect("it ends");
    // Those that came after the first was heard count once, too.
    assert_eq!(tcp.next(tcp.now() + Duration::from_millis(20)), None);
    let soon = tcp.now() + Duration::from_millis(20);
    assert_eq!(tcp.next(soon), None);
    assert!(tcp.now() >= soon, "nobody has woken it since");
}

fn who_waits_beside_it_hands_on_what_he_has_found(encryption: Encryption) {
    let [mut stage] = stage(encryption);
    let all = [1, 2].map(|number| Member::new(number).expect("14 bits"));
    let server = |member: Member| ServerId(member.number().into());
    let mut ends = all.map(|member| stage.start(member, server(member)));
    let (begin, mut sessions) = (Instant::now(), [None, None]);
    ends[0].admit(stage.peer(all[1], server(all[1])));
    ends[1].admit(stage.peer(all[0], server(all[0])));
    ends[0].reach(all[1]);
    while sessions.contains(&None) {
        assert!(begin.elapsed() < Duration::from_secs(30), "there is no session");
        for (end, session) in ends.iter_mut().zip(&mut sessions) {
            match end.next(end.now() + Duration::from_millis(10)) {
                Some(Event::Connected(now)) => *session = Some(now),
                other => assert_eq!(other, None),
            }
        }
    }
    let ([hears, says], [_, Some(session)]) = (&mut ends, sessions) else { panic!("no session") };
    for number in 0..3 {
        assert_eq!(says.send(session, &[number]), Ok(()));
        loop {
            assert!(begin.elapsed() < Duration::from_secs(30), "{number} is not heard");
            let found = hears.watch().wait(Duration::from_secs(5));
            hears.has_found(found);
            match hears.next(Moment(0)) {
                Some(Event::Frame(_, frame)) => break assert_eq!(frame[..], [number]),
                other => assert_eq!(other, None),
            }
        }
        // What was there is not any more, and never was.
        hears.has_found(Found((0..9).chain([WAKER]).collect()));
        assert_eq!(hears.next(Moment(0)), None);
    }
}

encrypted_or_not! {
    who_waits_beside_it_hands_on_what_he_has_found;
}

mod conforms {
    crate::endpoint_conforms!(super::stage(super::Encryption::Tls));
}

mod conforms_without_encryption {
    crate::endpoint_conforms!(super::stage(super::Encryption::None));
}
