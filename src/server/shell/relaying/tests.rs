//! What is asked of several members' files, carried out by threads.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use terral_format::ids::{Ino, Member, Number, SessionSlot};
use terral_format::wire::far::{Act, Answer, Done, Id, Question, What, Written};
use terral_format::wire::locks::{FarLock, FarOwner, LockKind, LockRange, Locker};

use super::{Relay, Relaying, SHORT, THREADS};
use crate::far::desk::{Admitted, Payload};
use crate::far::role::Outcome;
use crate::shell::host::Clock;

/// What it is not asked here.
macro_rules! has_nothing_of_others {
    () => {
        fn unlock_all(&self, _: Ino, _: Member) {}

        fn is_open(&self, _: Number) -> terral_format::Result<bool> {
            Ok(false)
        }

        fn give_back(&self, _: Number, _: (u64, u64), _: (u32, u32)) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }

        fn took(&self, _: Number, _: (u64, u64)) -> terral_format::Result<()> {
            Ok(())
        }

        fn take(&self, _: Number, _: &Act) -> terral_format::Result<bool> {
            Ok(false)
        }

        fn read_part(&self, _: Number, _: (u64, u64), _: u32) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }

        fn through_map(&self, _: Number, _: &Act, _: &[u8]) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }
    };
}

macro_rules! closes_nothing {
    () => {
        fn keep(&self, _: Option<&BTreeSet<Ino>>) -> bool {
            false
        }
    };
}

/// Notes what it is asked, and takes its time.
#[derive(Debug, Default)]
struct Slow(Mutex<Vec<(Ino, Act)>>);

impl Relay for Slow {
    fn carry_out(&self, file: Ino, act: &Act, _: &[u8]) -> Outcome {
        std::thread::sleep(Duration::from_millis(2));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((file, *act));
        Ok((if act.changes() { Done::Written(0) } else { Done::Read }, Vec::new()))
    }

    closes_nothing!();

    has_nothing_of_others!();
}

fn framed(bytes: &[u8]) -> Payload {
    Payload::new(bytes.into(), 0)
}

fn question(from: Member, to: Member, number: u64) -> Vec<u8> {
    asking(from, to, number, Act::Write { at: Some(number), strips: false, token: 0 })
}

fn asking(from: Member, to: Member, number: u64, act: Act) -> Vec<u8> {
    let (pid, started_ticks, index, step) = (1, 2, 3, 4);
    let session = SessionSlot(5);
    let id = Id { by: from, session, pid, started_ticks, index, sequence: number, step };
    let file = Number::new(to, number % 3).expect("few");
    let bytes = if act.changes() { &b"abc"[..] } else { b"" };
    Question { id, life: 6, number, past: 0, what: What::File(file, act) }
        .write(bytes.to_vec())
        .map(Written::whole)
        .expect("encodes")
}

#[test]
fn of_one_file_all_is_done_in_order_and_answered_once() {
    let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
    let (relay, (told, hears)) = (Arc::new(Slow::default()), mpsc::channel());
    let answered = move || told.send(()).expect("somebody hears");
    let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
    let mut answers = BTreeSet::new();
    std::thread::scope(|threads| {
        (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
        for number in 1..=60 {
            let frame = question(from, me, number);
            (0..2).for_each(|_| {
                relaying.push((me, from), Admitted::whole(framed(&frame))).expect("a question");
            });
        }
        while answers.len() < 60 {
            hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
            for (to, frame) in relaying.take_answers() {
                assert_eq!(to, from);
                answers.insert(Answer::read(&frame.whole()).expect("an answer").0.id.sequence);
            }
        }
        relaying.end();
    });
    let done = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(done.len(), 60, "what is asked twice is done once");
    for file in 0..3 {
        let of = done.iter().filter(|(ino, _)| *ino == Ino(file));
        let places = of.map(|(_, act)| match act {
            Act::Write { at: Some(at), .. } => *at,
            other => panic!("{other:?}"),
        });
        assert!(places.is_sorted(), "in the order in which they came");
    }
}

/// Does at once what is asked of one file, and notes all: whether it was done so.
#[derive(Debug, Default)]
struct Prompt(Mutex<Vec<(Act, bool)>>);

impl Prompt {
    fn notes(&self, act: &Act, at_once: bool) -> Outcome {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((*act, at_once));
        Ok((if act.changes() { Done::Written(0) } else { Done::Read }, Vec::new()))
    }
}

impl Relay for Prompt {
    fn carry_out(&self, _: Ino, act: &Act, _: &[u8]) -> Outcome {
        self.notes(act, false)
    }

    fn at_once(&self, file: Ino, act: &Act, _: &[u8]) -> Option<Outcome> {
        (file == Ino(1)).then(|| self.notes(act, true))
    }

    closes_nothing!();

    has_nothing_of_others!();
}

#[test]
fn who_hears_a_short_question_answers_it_unless_others_of_its_file_wait() {
    let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
    let (relay, (told, hears)) = (Arc::new(Prompt::default()), mpsc::channel());
    let answered = move || told.send(()).expect("somebody hears");
    let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
    let read =
        |at: u64, bytes: usize| Act::Read { at, bytes: bytes as u32, kept: false, direct: false };
    let write = |at: u64| Act::Write { at: Some(at), strips: false, token: 0 };
    let push = |number: u64, act: Act| {
        let frame = asking(from, me, number, act);
        relaying.push((me, from), Admitted::whole(framed(&frame))).expect("a question");
        let sequence = |frame: Written| Answer::read(&frame.whole()).expect("one").0.id.sequence;
        let answers = relaying.take_answers().into_iter();
        answers.map(|(_, frame)| sequence(frame)).collect::<Vec<_>>()
    };
    // Of file 1, at once, and what is asked twice once.
    assert_eq!([push(1, write(1)), push(1, write(1)), push(4, read(4, SHORT))], [[1], [1], [4]]);
    // What is long, what others must be asked for, and what comes behind it waits.
    let append = Act::Write { at: None, strips: false, token: 0 };
    let kept = Act::Read { at: 9, bytes: 1, kept: true, direct: false };
    let waits = [(7, read(7, SHORT + 1)), (10, append), (13, write(13)), (2, kept), (5, write(5))];
    waits.iter().for_each(|(number, act)| assert!(push(*number, *act).is_empty(), "{number}"));
    std::thread::scope(|threads| {
        threads.spawn(|| relaying.run());
        let mut left = waits.len();
        while left > 0 {
            hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
            left -= relaying.take_answers().len();
        }
        relaying.end();
    });
    let done = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
    let of_one = [(write(1), true), (read(4, SHORT), true)].into_iter();
    let by_and_by = waits.iter().map(|(_, act)| (*act, false));
    assert_eq!(*done, of_one.chain(by_and_by).collect::<Vec<_>>());
}

/// Has files open, and takes its time to close those that nobody has.
#[derive(Debug, Default)]
struct Open(Mutex<BTreeSet<Ino>>);

impl Relay for Open {
    fn carry_out(&self, file: Ino, act: &Act, _: &[u8]) -> Outcome {
        if *act == Act::Open {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file);
        }
        Ok((Done::Done, Vec::new()))
    }

    fn keep(&self, open: Option<&BTreeSet<Ino>>) -> bool {
        std::thread::sleep(Duration::from_millis(2));
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.into_iter().for_each(|open| files.retain(|file| open.contains(file)));
        false
    }

    has_nothing_of_others!();
}

#[test]
fn what_was_opened_elsewhere_stays_open_while_others_are_closed() {
    let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
    let (relay, (told, hears)) = (Arc::new(Open::default()), mpsc::channel());
    let answered = move || told.send(()).expect("somebody hears");
    let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
    let ask = |number: u64, file: u64, act| {
        let (pid, started_ticks, index, step) = (1, 2, 3, 4);
        let session = SessionSlot(5);
        let id = Id { by: from, session, pid, started_ticks, index, sequence: number, step };
        let what = What::File(Number::new(me, file).expect("few"), act);
        let question = Question { id, life: 6, number, past: 0, what };
        let frame = question.write(Vec::new()).map(Written::whole).expect("encodes");
        relaying.push((me, from), Admitted::whole(framed(&frame))).expect("a question");
    };
    std::thread::scope(|threads| {
        (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
        for file in 1..=100 {
            ask(2 * file, file, Act::Open);
            loop {
                hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
                let answers = relaying.take_answers().into_iter();
                let read = |frame: Written| Answer::read(&frame.whole()).expect("one").0;
                if answers.map(|(_, frame)| read(frame)).any(|one| one.id.sequence == 2 * file) {
                    break;
                }
            }
            let files = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(files.contains(&Ino(file)), "{file}");
            drop(files);
            ask(2 * file + 1, file, Act::Close);
        }
        relaying.end();
    });
}

/// Files of which something is wanted that nobody gives back until told.
#[derive(Debug, Default)]
struct Stuck(Mutex<bool>, std::sync::Condvar);

impl Relay for Stuck {
    fn carry_out(&self, file: Ino, _: &Act, _: &[u8]) -> Outcome {
        let mut over = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while file.0 >= 100 && !*over {
            over = self.1.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((Done::Read, Vec::new()))
    }

    closes_nothing!();

    has_nothing_of_others!();
}

#[test]
fn a_users_server_that_waits_for_all_it_can_keeps_nobody_else_waiting() {
    let [me, user, other, trusted, beside] =
        [1, 2, 3, 4, 5].map(|it| Member::new(it).expect("few"));
    let users = std::collections::BTreeMap::from([(user, 7), (other, 8), (beside, 7)]);
    let (relay, (told, hears)) = (Arc::new(Stuck::default()), mpsc::channel());
    let answered = move || told.send(()).expect("somebody hears");
    let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
    let ask = |from: Member, file: u64| {
        let (pid, started_ticks, index, step) = (1, 2, 3, 4);
        let id = Id {
            by: from,
            session: SessionSlot(5),
            pid,
            started_ticks,
            index,
            sequence: file,
            step,
        };
        let act = Act::Read { at: 0, bytes: 1, kept: true, direct: false };
        let what = What::File(Number::new(me, file).expect("few"), act);
        let question = Question { id, life: 6, number: file, past: 0, what };
        let frame = question.write(Vec::new()).map(Written::whole).expect("encodes");
        let user = users.get(&from).copied();
        let admitted = Admitted { user, ..Admitted::whole(framed(&frame)) };
        relaying.push((me, from), admitted).expect("a question");
    };
    std::thread::scope(|threads| {
        (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
        for (member, user) in &users {
            let (relaying, user) = (&relaying, *user);
            let mut begun = 0;
            (0..2).for_each(|_| {
                let begin = || {
                    threads.spawn(move || relaying.run_for(user));
                    begun += 1;
                    Ok(())
                };
                relaying.begins(user, *member, begin).expect("there is one");
            });
            assert_eq!(begun, usize::from(*member != beside), "one for each user");
        }
        let is_answered = |from: Member, file: u64| {
            ask(from, file);
            loop {
                hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
                if relaying.take_answers().iter().any(|(to, _)| *to == from) {
                    break;
                }
            }
        };
        is_answered(beside, 5);
        (100..120).for_each(|file| ask(user, file));
        for (from, file) in [(trusted, 1), (other, 2), (trusted, 3), (other, 4)] {
            is_answered(from, file);
        }
        *relay.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        relay.1.notify_all();
        relaying.end();
    });
}

#[test]
fn nobody_asks_in_the_name_of_another_member_or_for_its_files() {
    let [me, from, other] = [1, 2, 3].map(|number| Member::new(number).expect("few"));
    let relay = Arc::new(Slow::default());
    let relaying = Relaying::new(relay, Arc::new(Clock), 7, || ());
    assert!(relaying.push((me, other), Admitted::whole(framed(&question(from, me, 1)))).is_err());
    assert!(relaying.push((me, from), Admitted::whole(framed(&question(from, other, 1)))).is_err());
    let owner = FarOwner { by: other, locker: Locker::Flock, number: 1 };
    let (range, kind, wait) = (LockRange::ALL, LockKind::Exclusive, 0);
    let lock = Act::Lock(FarLock { owner, range, kind, wait });
    assert!(
        relaying.push((me, from), Admitted::whole(framed(&asking(from, me, 2, lock)))).is_err()
    );
    assert!(relaying.push((me, from), Admitted::whole(framed(b"nothing"))).is_err());
    relaying.removed(from);
}

/// Writes wait until a chunk of the same file is kept elsewhere, as they do for its memory.
#[derive(Debug, Default)]
struct Full {
    kept: Mutex<bool>,
    is_kept: Condvar,
}

impl Relay for Full {
    fn carry_out(&self, _: Ino, act: &Act, _: &[u8]) -> Outcome {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(act, Act::Kept { .. }) {
            *kept = true;
            self.is_kept.notify_all();
        }
        let long = Duration::from_secs(30);
        let (kept, _) = self
            .is_kept
            .wait_timeout_while(kept, long, |kept| !*kept)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(*kept, "it waits for what waits for it");
        Ok((Done::Written(0), Vec::new()))
    }

    closes_nothing!();

    has_nothing_of_others!();
}

#[test]
fn what_frees_memory_is_done_though_all_wait_for_memory() {
    let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
    let (told, hears) = mpsc::channel();
    let answered = move || told.send(()).expect("somebody hears");
    let relaying = Relaying::new(Arc::new(Full::default()), Arc::new(Clock), 7, answered);
    std::thread::scope(|threads| {
        (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
        threads.spawn(|| relaying.run_urgent());
        let writes = (0..12).map(|number| question(from, me, number));
        let kept = Act::Kept { by: from, index: 0, stamp: 1 };
        for frame in writes.chain([asking(from, me, 12, kept)]) {
            relaying.push((me, from), Admitted::whole(framed(&frame))).expect("a question");
        }
        let mut left = 13;
        while left > 0 {
            hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
            left -= relaying.take_answers().len();
        }
        relaying.end();
    });
}

#[test]
fn who_gets_no_thread_gets_one_when_he_asks_again() {
    let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
    let relaying = Relaying::new(Arc::new(Slow::default()), Arc::new(Clock), 7, || ());
    let none = || terral_format::Error::new(terral_format::ErrorKind::System, "no thread");
    (0..2).for_each(|_| {
        let begun = relaying.begins(7, from, || Err(none()));
        assert_eq!(begun, Err(none()), "nobody does it");
    });
    std::thread::scope(|threads| {
        relaying
            .begins(7, from, || {
                threads.spawn(|| relaying.run_for(7));
                Ok(())
            })
            .expect("there is one");
        let frame = question(from, me, 1);
        let admitted = Admitted { user: Some(7), ..Admitted::whole(framed(&frame)) };
        relaying.push((me, from), admitted).expect("a question");
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while relaying.take_answers().is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        relaying.end();
        assert!(std::time::Instant::now() < until, "it is answered");
    });
}
