//! A member who is away, slow or short of something himself: the others are not told that it is
//! their fault, and not asked without a pause.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Encryption;
use super::beside::{PATIENCE, Two, dialled, listen, listen_by, peer};
use super::framing::{HEADER_BYTES, beat, frame_header};
use super::tests::{TIMING, clock, encrypted_or_not};
use crate::conformance::crowd::member;
use crate::endpoint::{Endpoint, Event, Loss, Timing};

encrypted_or_not! {
    who_was_away_while_it_waited_calls_nobody_silent;
    who_is_slow_to_take_what_has_come_is_heard_of;
    sessions_that_end_at_once_follow_each_other_with_a_pause;
    a_frame_that_cannot_go_is_not_lost_without_its_session;
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short time")
}

/// The process is stopped, or its machine sleeps, within the wait.
fn who_was_away_while_it_waited_calls_nobody_silent(encryption: Encryption) {
    let mut two = Two::new(encryption);
    while two.one.next(two.one.now()).is_some() {}
    let (ahead, until) = (two.ahead.clone(), two.one.now() + TIMING.silence / 2);
    let sleeper = std::thread::spawn(move || {
        std::thread::sleep(TIMING.beat() / 4);
        ahead.fetch_add(10 * nanoseconds(TIMING.silence), Ordering::SeqCst);
    });
    while let Some(event) = two.one.next(until) {
        assert!(!matches!(event, Event::Lost(..)), "{event:?}");
    }
    sleeper.join().expect("it ends");
    two.still_talk();
}

/// Something is there to be taken all the time, and each time that takes long.
fn who_is_slow_to_take_what_has_come_is_heard_of(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut third = two.third();
    let frame = [&frame_header(encryption, &[b"some"])[..], b"some"].concat();
    third.say(&frame.repeat(12));
    let begin = Instant::now();
    while two.one.turns.count(member(3)) == 0 {
        assert!(begin.elapsed() < PATIENCE, "it is never read");
        two.one.look(two.one.now() + Duration::from_millis(1));
    }
    for _ in 0..4 {
        two.ahead.fetch_add(nanoseconds(TIMING.beat()), Ordering::SeqCst);
        assert!(two.one.next(two.one.now()).is_some());
    }
    assert!(two.one.turns.count(member(3)) > 0, "something is still there");
    let wait = || std::thread::sleep(Duration::from_millis(1));
    assert_eq!(third.read(HEADER_BYTES, wait), Some(beat(encryption).to_vec()));
}

/// Where the system has no descriptors left nobody is accepted, and soon after it has some again
/// they are. In a process of its own, whose descriptors are few.
#[test]
fn who_has_no_descriptors_left_accepts_soon_after_it_has_some() {
    const CHILD: &str = "TERRAL_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_some() {
        return runs_out_of_descriptors();
    }
    let name = "tcp::away::who_has_no_descriptors_left_accepts_soon_after_it_has_some";
    let this = std::env::current_exe().expect("a test");
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" --exact --nocapture \"$1\""])
        .args([this.as_os_str(), name.as_ref()])
        .env(CHILD, "1")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
}

fn runs_out_of_descriptors() {
    let hour = Duration::from_secs(3600);
    let timing = Timing { silence: hour, handshake: hour, ..TIMING };
    let mut one = listen_by(1, (timing, Encryption::Tls), clock());
    // Nothing else is to be done for an hour.
    one.look(one.now());
    let (_stranger, begin) = (dialled(&one), Instant::now());
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    while !one.connections.is_paused {
        assert!(begin.elapsed() < PATIENCE, "it never runs out");
        one.look(one.now() + Duration::from_millis(1));
    }
    drop(all);
    while one.connections.shaking().count() == 0 {
        assert!(begin.elapsed() < PATIENCE, "nobody is accepted");
        one.look(one.now() + Duration::from_millis(1));
    }
}

/// As two processes do that both say that they are this member: each is replaced by the other.
fn sessions_that_end_at_once_follow_each_other_with_a_pause(encryption: Encryption) {
    let (mut one, mut two) = (listen(1, encryption), listen(2, encryption));
    one.admit(peer(2, vec![two.address().expect("it listens")]));
    two.admit(peer(1, Vec::new()));
    one.reach(member(2));
    let (mut sessions, begin) = (0, Instant::now());
    while sessions < 12 {
        assert!(begin.elapsed() < PATIENCE, "after {sessions} there are no more");
        if let Some(Event::Connected(session)) = two.next(two.now()) {
            two.cut(session);
        }
        match one.next(one.now() + Duration::from_millis(1)) {
            Some(Event::Connected(_)) => sessions += 1,
            Some(Event::Lost(..)) => one.reach(member(2)),
            _ => {}
        }
    }
    let least = TIMING.retry_most * 4;
    assert!(begin.elapsed() >= least, "12 within {:?}", begin.elapsed());
}

/// The system does not take it, and reading says nothing of that.
fn a_frame_that_cannot_go_is_not_lost_without_its_session(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let _third = two.third();
    let Event::Connected(session) = two.others[0] else { panic!("just now") };
    let token = two.one.open(session).expect("a session").token;
    let socket = two.one.connections.get(token).expect("a connection").stream.socket();
    socket.shutdown(std::net::Shutdown::Write).expect("a socket");
    assert_eq!(two.one.send(session, b"lost"), Ok(()));
    two.until("it is lost", |two| two.others.len() == 2);
    assert_eq!(two.others[1], Event::Lost(session, Loss::Closed));
    two.still_talk();
}
