//! What only an encrypted connection has: strangers within the hand-shake of TLS, words that lie in
//! one record, keys that change, and a word at the end.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::beside::{Line, PATIENCE, Two, known, listen_by, peer, proof, read_all};
use super::encryption::OPENING_BYTES;
use super::framing::frame_header;
use super::hostile::first_words;
use super::stream::Came;
use super::tests::{TIMING, clock, identity};
use super::{Encryption, Tcp};
use crate::conformance::crowd::{member, server};
use crate::endpoint::{Endpoint, Event, Loss, Session, Timing};

/// Nobody says anything of himself.
const QUIET: Timing = Timing { silence: Duration::from_secs(600), ..TIMING };

/// After TLS has answered him, and after it is through.
#[test]
fn who_stops_within_the_hand_shake_is_turned_away() {
    let mut two = Two::new(Encryption::Tls);
    let mut answered = two.dialled();
    answered.write_all(&first_words(Encryption::Tls)).expect("it is read");
    let mut encrypts = Line::dial(&two.one);
    let begin = Instant::now();
    while encrypts.0.channel().is_none() {
        assert!(begin.elapsed() < PATIENCE, "TLS is never through");
        _ = encrypts.0.flush();
        assert_eq!(encrypts.0.read_first(&mut [0; 9]), Came::Nothing);
        two.turn();
    }
    two.ahead.fetch_add(TIMING.handshake.as_nanos() as u64, Ordering::SeqCst);
    assert!(!read_all(&mut answered, || two.turn()).is_empty(), "TLS answers anybody");
    assert_eq!(two.read(&mut encrypts, 1), None);
    assert_eq!(two.one.turned_away().get("too slow"), Some(&2));
    two.still_talk();
}

/// A hand-shake of TLS may be long; one of members is not.
#[test]
fn who_says_much_before_there_is_a_session_holds_a_bounded_amount() {
    let mut two = Two::new(Encryption::Tls);
    let mut stream = two.dialled();
    // One message of 60,000 bytes, in records of 1,000.
    let (mut record, part) = (vec![22, 3, 1, 3, 232], [0; 1000]);
    record.extend_from_slice(&[1, 0, 234, 96]);
    record.extend_from_slice(&part[4..]);
    _ = stream.write(&record);
    for _ in 0..60 {
        _ = stream.write(&[&[22, 3, 3, 3, 232][..], &part].concat());
    }
    two.is_turned_away(stream, "it says more than members do");
    let mut line = Line::dial(&two.one);
    line.say(&vec![b't'; 2 * OPENING_BYTES]);
    assert_eq!(two.read(&mut line, 1), None);
    two.still_talk();
}

/// The proof, that there is a session, and a frame: all of that may lie in one record, and nothing
/// follows that would wake anybody.
#[test]
fn what_lies_behind_the_hand_shake_in_one_record_is_heard() {
    let mut tcp = listen_by(9, (QUIET, Encryption::Tls), clock());
    tcp.admit(peer(3, Vec::new()));
    let (mut line, begin) = (Line::dial(&tcp), Instant::now());
    let third = identity(member(3), server(3));
    let until = tcp.now() + PATIENCE;
    let mut turn = || assert_eq!(tcp.next(tcp.now() + Duration::from_millis(1)), None);
    let (mut said, _) = proof(&mut line, &third, (7, known(9)), &mut turn).expect("it is known");
    said.extend_from_slice(&1u64.to_le_bytes());
    said.extend_from_slice(&frame_header(Encryption::Tls, &[b"first"]));
    said.extend_from_slice(b"first");
    line.say(&said);
    let session = Session { with: member(3), number: 1 };
    assert_eq!(tcp.next(until), Some(Event::Connected(session)));
    assert_eq!(tcp.next(until), Some(Event::Frame(session, b"first"[..].into())));
    assert!(begin.elapsed() < QUIET.beat(), "it waits for another word");
}

/// Asks both until each has heard so many events.
fn heard(both: &mut [Tcp; 2], events: &mut [Vec<Event>; 2], count: usize) {
    let begin = Instant::now();
    while events.iter().any(|events| events.len() < count) {
        assert!(begin.elapsed() < PATIENCE, "{:?} of {count}", events.each_ref().map(Vec::len));
        for (tcp, events) in both.iter_mut().zip(&mut *events) {
            events.extend(tcp.next(tcp.now() + Duration::from_millis(1)));
        }
    }
}

/// While some of it has gone, some waits encrypted and much waits to be; whoever begins it.
#[test]
fn keys_change_within_a_session() {
    let mut both = [1, 2].map(|at| listen_by(at, (QUIET, Encryption::Tls), clock()));
    both[0].admit(peer(2, Vec::new()));
    both[1].admit(peer(1, vec![both[0].address().expect("it listens")]));
    both[1].reach(member(1));
    let (mut events, frames) = ([Vec::new(), Vec::new()], 30);
    heard(&mut both, &mut events, 1);
    let sessions = events.each_ref().map(|events| events[0].session());
    for round in 1..=2 {
        for (tcp, session) in both.iter_mut().zip(sessions) {
            for frame in 0..frames {
                tcp.send(session, &vec![frame as u8; 100_000]).expect("there is room");
                if frame % 10 == 5 {
                    let token = tcp.open(session).expect("a session").token;
                    tcp.connections.get(token).expect("it is open").stream.tls().change_keys();
                }
            }
        }
        heard(&mut both, &mut events, 1 + round * frames);
    }
    for (events, session) in events.iter().zip(sessions) {
        let is_right = |(at, event): (usize, &Event)| {
            let frame = vec![(at % frames) as u8; 100_000];
            *event == Event::Frame(session, frame.into_boxed_slice())
        };
        assert!(events[1..].iter().enumerate().all(is_right));
    }
}

/// Who cuts a session says so, as TLS wants it.
#[test]
fn a_session_that_is_cut_ends_with_a_word() {
    let mut two = Two::new(Encryption::Tls);
    let mut third = two.third();
    let Event::Connected(session) = two.others[0] else { panic!("just now") };
    two.one.cut(session);
    two.until("it is cut", |two| two.others.len() == 2);
    assert_eq!(two.others[1], Event::Lost(session, Loss::Cut));
    let begin = Instant::now();
    while !third.0.tls().is_over() {
        assert!(begin.elapsed() < PATIENCE, "nothing is said");
        third.0.read_first(&mut [0; 100]);
    }
}
