//! Many writes at once of many members to one home, which takes its time: its memory is bounded,
//! nothing is said twice, and all have their turns.
//!
//! What is real: what each member asks and says, and what the home remembers. A frame arrives as
//! soon as it is said, and a write takes a step of time; so no session is lost here.

use std::collections::{BTreeMap, VecDeque};

use terral_format::ids::{Asker, Member, Number, SessionSlot};
use terral_format::wire::far::{Act, Answer, BYTES_MAX, Done, Id, Written};

use super::{Behind, Far, FileSlot, Heard as Said};
use crate::core::world::Tick;
use crate::far::desk::{Admitted, Desk, Heard, Job, Payload};
use crate::far::linking::{QUEUED_BYTES, window_of};

const WRITES: u64 = 10_000;
/// Threads of a home that write at a time.
const THREADS: usize = 4;

/// The members, and the one that all of them ask.
struct Many {
    askers: Vec<Far>,
    desk: Desk,
    waiting: VecDeque<Job>,
    /// By the number of who asked: how many are done.
    done: BTreeMap<Member, u64>,
    /// Questions with bytes that have come.
    came: u64,
    most_bytes: usize,
}

fn member(at: usize) -> Member {
    Member::new(at as u16).expect("few")
}

const HOME: usize = 0;

impl Many {
    /// Each of so many members has its part of the writes to ask for, of files of its own.
    fn new(count: usize, window: usize) -> Self {
        let mut many = Many {
            askers: Vec::new(),
            desk: Desk::new(1),
            waiting: VecDeque::new(),
            done: BTreeMap::new(),
            came: 0,
            most_bytes: 0,
        };
        for at in 0..count {
            let mut far = Far::default();
            far.lives(at as u64 + 1);
            far.bounds(window);
            far.connected(member(HOME));
            for sequence in 0..WRITES / count as u64 {
                let session = SessionSlot(sequence as u16 % 1000);
                let asker = Asker { session, index: 0, sequence };
                let file = 1 + at as u64 * WRITES + sequence % 100;
                let file = Number::new(member(HOME), file).expect("few");
                let id = Id { by: member(at + 1), session, sequence, ..far.own_id(member(at + 1)) };
                let act = Act::Write { at: Some(0), strips: false, token: 0 };
                let bytes = BYTES_MAX as u32;
                let behind = Behind::Stored { slot: FileSlot(0), at: 0, bytes };
                far.asks((id, Some(asker)), (file, act), behind, Tick(0));
            }
            many.askers.push(far);
        }
        many
    }

    /// All that may be said is.
    fn say(&mut self) {
        for at in 0..self.askers.len() {
            loop {
                let read = |_, _, bytes: u32| Some(vec![7; bytes as usize]);
                let said = self.askers[at].take_questions(member(at + 1), read);
                if said.is_empty() {
                    break;
                }
                said.into_iter().for_each(|(_, frame)| self.comes(at, frame));
            }
        }
        let bytes = self.waiting.iter().map(|job| job.bytes.len()).sum();
        self.most_bytes = self.most_bytes.max(bytes);
    }

    fn comes(&mut self, at: usize, frame: Written) {
        let payload = Payload::new(frame.whole().into_boxed_slice(), 0);
        let heard =
            self.desk.hear((member(HOME), member(at + 1)), Admitted::whole(payload), Tick(0));
        match heard.expect("what was said") {
            Heard::Job(job) => {
                self.came += u64::from(!job.bytes.is_empty());
                self.waiting.push_back(job);
            }
            Heard::Answer(answer) => self.answered(at, answer),
            Heard::Nothing => panic!("it was said before"),
        }
    }

    fn answered(&mut self, at: usize, answer: Written) {
        let frame = answer.whole();
        let (answer, bytes) = Answer::read(&frame).expect("our own");
        let heard: Option<Said> = self.askers[at].answered(member(HOME), &answer, bytes);
        assert!(heard.is_none(), "somebody waits for it");
    }

    /// Some are written, in the order in which they came, and it is said.
    fn write(&mut self) {
        let some = self.waiting.len().min(THREADS);
        for job in self.waiting.drain(..some).collect::<Vec<_>>() {
            let written = self.desk.done(&job, Ok((Done::Written(0), Vec::new())), Tick(0));
            *self.done.entry(job.from).or_default() += 1;
            self.answered(usize::from(job.from.number()) - 1, written);
        }
    }
}

#[test]
fn ten_thousand_writes_to_one_server_take_64_mib_of_its_memory_and_all_members_have_their_turns() {
    let count = 20;
    let mut many = Many::new(count, window_of(count));
    many.say();
    let (mut steps, mut fairness) = (0, 1.0f64);
    while !many.waiting.is_empty() {
        many.write();
        many.say();
        steps += 1;
        // As long as everybody has more to ask for than he has been given.
        let done = |at: usize| many.done.get(&member(at + 1)).copied().unwrap_or_default();
        let (least, most) = (0..count)
            .map(done)
            .fold((u64::MAX, 0), |(least, most), one| (least.min(one), most.max(one)));
        if least > 0 && steps > 10 * count {
            fairness = fairness.max(most as f64 / least as f64);
        }
    }
    println!(
        "{WRITES} writes of 1 MiB by {count} members: {} MiB queued at most, {} came, \
         the one that was ahead had at most {fairness:.2} times as many as the one behind",
        many.most_bytes >> 20,
        many.came
    );
    assert!(many.most_bytes <= QUEUED_BYTES, "{} bytes", many.most_bytes);
    assert_eq!(many.came, WRITES, "each is said once");
    assert!(many.done.values().all(|done| *done == WRITES / count as u64));
    assert!(fairness <= 2.0, "{fairness}");
}

#[test]
fn without_a_bound_all_of_them_would_wait_in_one_servers_memory() {
    let mut many = Many::new(100, 0);
    // Of the first only, as all would be ten gigabytes.
    many.askers.truncate(1);
    many.say();
    assert_eq!(many.most_bytes, (WRITES as usize / 100) * BYTES_MAX);
}
