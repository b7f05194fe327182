//! Strangers, and members who do what no member does: they are cut, that is said, and two members
//! who talk to each other beside them notice nothing.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use terral_format::ids::ServerId;
use terral_format::wire::roster::Secret;

use super::beside::{Line, PATIENCE, Two, known, listen, peer, proof, prove};
use super::encryption::Keys;
use super::framing::{HEADER_BYTES, beat, frame_header};
use super::greeting::{GREETING_BYTES, PartitionId};
use super::opening::UNHEARD_LOSSES;
use super::shake::{Identity, Known, Next, Shake};
use super::tests::{TIMING, encrypted_or_not, identity, loopback, secret};
use super::{Encryption, READ_BYTES, STRANGERS, Tcp};
use crate::conformance::crowd::{member, server};
use crate::endpoint::{Endpoint, Event, FRAME_BYTES, Loss, Session, Timing};

encrypted_or_not! {
    who_says_garbage_is_turned_away;
    who_says_nothing_or_half_or_a_byte_now_and_then_is_turned_away;
    strangers_without_end_keep_no_member_out;
    who_is_not_who_he_says_gets_no_session;
    a_hand_shake_that_is_said_again_gets_no_session;
    absurd_lengths_kinds_and_sums_end_the_session;
    of_a_frame_that_ends_early_nothing_comes;
    who_never_reads_is_lost_and_holds_a_bounded_amount;
    all_addresses_are_tried_and_who_never_answers_keeps_nobody_waiting;
    a_second_connection_takes_the_place_only_of_a_session_that_its_sender_knew_of;
    who_says_more_than_is_taken_holds_a_bounded_amount;
    who_says_long_frames_without_end_holds_a_bounded_amount;
    an_absurd_number_of_a_session_locks_nobody_out;
    who_begins_sessions_without_end_holds_a_bounded_amount;
}

/// For those who wait until a hand-shake is too slow.
const IMPATIENT: Timing = Timing { handshake: Duration::from_secs(1), ..TIMING };
/// For those who say nothing in a session that is to stay.
const PATIENT: Timing = Timing { silence: Duration::from_secs(30), ..TIMING };

/// What a member says first on the wire.
pub(super) fn first_words(encryption: Encryption) -> Vec<u8> {
    let mut words = Vec::new();
    match encryption {
        Encryption::Tls => {
            let keys = Keys::make().expect("random bytes");
            keys.dial(loopback()).expect("it is ready").send(&mut words).expect("memory");
        }
        Encryption::None => {
            let who = identity(member(3), server(3));
            words.extend(Shake::dial(&who, encryption, (7, [1; 32]), known(1)).1);
        }
    }
    words
}

fn who_says_garbage_is_turned_away(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut stream = two.dialled();
    let garbage: Vec<u8> = (0..1 << 20).map(|at: u32| ((at * at) >> 3) as u8).collect();
    assert!(stream.write(&garbage).expect("some of it goes") > GREETING_BYTES);
    let why = match encryption {
        Encryption::Tls => "no TLS 1.3 as members speak it",
        Encryption::None => "no greeting, or of another version",
    };
    two.is_turned_away(stream, why);
}

fn who_says_nothing_or_half_or_a_byte_now_and_then_is_turned_away(encryption: Encryption) {
    let mut two = Two::with(IMPATIENT, encryption);
    let greeting = first_words(encryption);
    let silent = two.dialled();
    let mut half = two.dialled();
    half.write_all(&greeting[..greeting.len() / 2]).expect("half of it");
    two.is_turned_away(silent, "too slow");
    two.is_turned_away(half, "too slow");
    let mut slow = two.dialled();
    for byte in greeting {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        two.pass(IMPATIENT.handshake / 60);
    }
    two.is_turned_away(slow, "too slow");
}

fn strangers_without_end_keep_no_member_out(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let strangers: Vec<TcpStream> = (0..3 * STRANGERS)
        .map(|_| {
            two.turn();
            two.dialled()
        })
        .collect();
    two.until("the oldest go", |two| {
        two.one.turned_away().get("too many strangers").is_some_and(|count| *count > 0)
    });
    let count = two.one.connections.shaking().count();
    assert!(count <= STRANGERS, "{count} strangers");
    two.third();
    two.still_talk();
    drop(strangers);
}

fn who_is_not_who_he_says_gets_no_session(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let third = identity(member(3), server(3));
    let with = |change: fn(&mut Identity)| {
        let mut who = third.clone();
        change(&mut who);
        who
    };
    let bad = [
        with(|who| who.secret = Secret([77; 32])),
        with(|who| who.secret = secret(member(2))),
        with(|who| who.partition = PartitionId(1)),
        with(|who| who.server = ServerId(3)),
        with(|who| who.member = member(2)),
        with(|who| who.member = member(1)),
        with(|who| who.member = member(4)),
    ];
    for (at, who) in bad.iter().enumerate() {
        assert!(two.shaken(who, 1).is_none(), "{at}");
    }
    assert!(two.shaken(&third, 2).is_none(), "it is not who was dialled");
    two.still_talk();
    assert!(two.others.is_empty());
    two.third();
}

/// All that one side has said to 1 until there was a session is said again.
fn a_hand_shake_that_is_said_again_gets_no_session(encryption: Encryption) {
    let mut two = Two::with(PATIENT, encryption);
    let mut first = Line::dial(&two.one);
    let who = identity(member(3), server(3));
    let (mut shake, said) = Shake::dial(&who, encryption, (7, [1; 32]), known(1));
    first.say(&said);
    let answer = two.read(&mut first, shake.wants()).expect("an answer");
    let channel = first.0.channel().expect("an answer has come");
    let Ok(Next::Proven(proof)) = shake.take(&answer, &channel, |_| Some(known(1).1)) else {
        panic!("a member is known")
    };
    first.say(&proof);
    two.until("a session", |two| two.others.len() == 1);
    let mut again = Line::dial(&two.one);
    again.say(&[&said[..], &proof].concat());
    assert!(two.read(&mut again, answer.len()).is_some());
    assert_eq!(two.read(&mut again, 1), None);
    let why = "a proof that is not by this member's key, or not for this greeting";
    assert_eq!(two.one.turned_away().get(why), Some(&1));
    two.still_talk();
    assert_eq!(two.others.len(), 1, "the session is still there");
}

fn absurd_lengths_kinds_and_sums_end_the_session(encryption: Encryption) {
    let mut absurd = vec![
        (3, 0xff, "an absurd length"),
        (2, 0x11, "an absurd length"),
        (5, 1, "a kind of frame that there is not"),
        (7, 1, "a kind of frame that there is not"),
        (9, 1, "a checksum that does not fit"),
    ];
    if encryption == Encryption::None {
        absurd.push((HEADER_BYTES + 2, 1, "a checksum that does not fit"));
    }
    for (at, value, what) in absurd {
        let mut said = [&frame_header(encryption, &[b"right"])[..], b"right"].concat();
        let mut wrong = said.clone();
        wrong[at] ^= value;
        said.extend_from_slice(&wrong);
        let (heard, why) = Two::new(encryption).loses_third(&said);
        assert_eq!(why, Loss::Garbage(what), "byte {at}");
        assert!(matches!(&heard[..], [Event::Frame(_, frame)] if &frame[..] == b"right"));
    }
}

fn of_a_frame_that_ends_early_nothing_comes(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut third = two.third();
    let frame = vec![1; FRAME_BYTES];
    third.say(&frame_header(encryption, &[&frame]));
    third.say(&frame[..1000]);
    third.0.socket().shutdown(Shutdown::Write).expect("a socket");
    two.until("it is lost", |two| two.others.len() == 2);
    assert!(matches!(two.others[1], Event::Lost(_, Loss::Closed)));
    two.still_talk();
}

/// It says all the time that it is there.
fn who_never_reads_is_lost_and_holds_a_bounded_amount(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut third = two.third();
    let Event::Connected(session) = two.others[0] else { panic!("just now") };
    let sent = (0..1000).take_while(|_| two.one.send(session, &[3; FRAME_BYTES / 8]).is_ok());
    assert!(sent.count() < 500);
    let end = two.one.now() + PATIENCE;
    while two.others.len() == 1 {
        assert!(two.one.now() < end, "it is never lost");
        two.turn();
        third.say(&beat(encryption));
    }
    assert_eq!(two.others[1], Event::Lost(session, Loss::Silent));
    two.still_talk();
}

/// At one address nobody answers, at another one nobody is, at the third one it is.
fn all_addresses_are_tried_and_who_never_answers_keeps_nobody_waiting(encryption: Encryption) {
    let mut two = Two::with(IMPATIENT, encryption);
    let silent = TcpListener::bind(loopback()).expect("the loopback device");
    let silent = (silent.local_addr().expect("it listens"), silent);
    let nobody = TcpListener::bind(loopback()).and_then(|it| it.local_addr()).expect("a port");
    two.one.admit(peer(3, vec![silent.0, nobody, two.two.address().expect("it listens")]));
    two.one.reach(member(3));
    two.pass(IMPATIENT.handshake * 2);
    assert!(two.others.is_empty() && two.one.turned_away().contains_key("too slow"));
    let mut third = listen(3, encryption);
    third.admit(peer(1, Vec::new()));
    let all = vec![silent.0, nobody, third.address().expect("it listens")];
    two.one.admit(peer(3, all));
    let end = two.one.now() + PATIENCE;
    while third.next(third.now()).is_none() {
        assert!(two.one.now() < end, "it is never reached");
        two.turn();
    }
    two.until("both know", |two| two.others.len() == 1);
    two.still_talk();
}

/// Both sides have dialled: what is there stays. Who says that he knew of it has lost it.
fn a_second_connection_takes_the_place_only_of_a_session_that_its_sender_knew_of(
    encryption: Encryption,
) {
    let mut two = Two::with(PATIENT, encryption);
    let third = identity(member(3), server(3));
    let mut shakes = [0, 0, 1].map(|latest| {
        let mut line = Line::dial(&two.one);
        let to = (member(1), Known { latest, ..known(1).1 });
        let (proof, _) = proof(&mut line, &third, (7, to), || two.turn()).expect("it is known");
        (line, proof)
    });
    let mut says = |two: &mut Two, at: usize| {
        let (line, proof) = &mut shakes[at];
        line.say(proof);
        two.read(line, 8)
    };
    assert_eq!(says(&mut two, 0), Some(1u64.to_le_bytes().to_vec()));
    assert_eq!(says(&mut two, 1), None);
    two.still_talk();
    assert_eq!(two.others.len(), 1, "the first one stays");
    assert_eq!(says(&mut two, 2), Some(2u64.to_le_bytes().to_vec()));
    two.until("the next one", |two| two.others.len() == 3);
    assert!(matches!(two.others[1..], [Event::Lost(_, Loss::Replaced), Event::Connected(_)]));
    two.still_talk();
}

/// However slowly it is taken: the rest waits on the other side.
fn who_says_more_than_is_taken_holds_a_bounded_amount(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut third = two.third();
    let frame = [&frame_header(encryption, &[&[3; 100]])[..], &[3; 100]].concat();
    // With the record of TLS of which some had come before.
    let (much, most) = (frame.repeat(1000), (READ_BYTES + (16 << 10)) / frame.len() + 2);
    for _ in 0..2000 {
        _ = third.0.flush();
        if third.0.unsent() == 0 {
            third.say(&much);
        }
        _ = two.one.next(two.one.now());
        let waits = two.one.turns.count(member(3));
        assert!(waits <= most, "{waits} frames");
    }
    assert!(two.one.turns.count(member(3)) > 16, "it says more than is taken");
}

/// They are read to where they will be given out, and no more of them at once than of others.
fn who_says_long_frames_without_end_holds_a_bounded_amount(encryption: Encryption) {
    let mut two = Two::new(encryption);
    let mut third = two.third();
    let frame = vec![3; 40_000];
    let frame = [&frame_header(encryption, &[&frame])[..], &frame].concat();
    let (much, most) = (frame.repeat(30), (READ_BYTES + (16 << 10)) / frame.len() + 2);
    let (mut came, mut greatest, begin) = (0, 0, Instant::now());
    while came < 300 || greatest < 2 {
        assert!(begin.elapsed() < PATIENCE, "{came} have come, {greatest} at once");
        _ = third.0.flush();
        if third.0.unsent() == 0 {
            third.say(&much);
        }
        match two.one.next(two.one.now()) {
            Some(Event::Frame(session, bytes)) if session.with == member(3) => {
                assert!(bytes[..] == frame[HEADER_BYTES..], "what came is what was sent");
                came += 1;
            }
            _ => {}
        }
        let waits = two.one.turns.count(member(3));
        assert!(waits <= most, "{waits} frames");
        greatest = greatest.max(waits);
    }
}

/// Who sits on the wire can change that number, and none that follows would be greater.
fn an_absurd_number_of_a_session_locks_nobody_out(encryption: Encryption) {
    let mut tcp = listen(9, encryption);
    tcp.admit(peer(3, Vec::new()));
    let third = identity(member(3), server(3));
    let says = |number: u64, tcp: &mut Tcp| {
        let mut line = Line::dial(tcp);
        let until = |tcp: &Tcp| tcp.now() + Duration::from_millis(1);
        let proven =
            prove(&mut line, &third, (7, known(9)), || assert_eq!(tcp.next(until(tcp)), None));
        assert!(proven.is_some(), "a member is known");
        line.say(&number.to_le_bytes());
        let (end, before) = (tcp.now() + PATIENCE, tcp.turned_away().len());
        loop {
            assert!(tcp.now() < end, "neither a session nor none");
            let event = tcp.next(until(tcp));
            if event.is_some() || tcp.turned_away().len() > before {
                return event;
            }
        }
    };
    assert_eq!(says(u64::MAX, &mut tcp), None);
    let session = Session { with: member(3), number: 1 };
    assert_eq!(says(1, &mut tcp), Some(Event::Connected(session)));
}

/// It begins one session after the other while 1 hears nothing of it.
fn who_begins_sessions_without_end_holds_a_bounded_amount(encryption: Encryption) {
    let mut two = Two::with(PATIENT, encryption);
    let third = identity(member(3), server(3));
    for life in 0..4 * UNHEARD_LOSSES as u64 {
        let mut line = Line::dial(&two.one);
        let mut look = || two.one.look(two.one.now() + Duration::from_millis(1));
        if let Some(wants) = prove(&mut line, &third, (life, known(1)), &mut look) {
            line.read(wants, &mut look);
        }
    }
    let waits = two.one.turns.count(member(3));
    assert!(waits <= 2 * UNHEARD_LOSSES + 1, "{waits} events");
    assert!(two.one.turned_away().contains_key("more sessions than are heard of"));
    two.until("it is heard of", |two| two.one.turns.losses(member(3)) == 0);
    assert!(two.shaken(&third, 1).is_some());
    two.still_talk();
}
