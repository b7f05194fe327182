//! Who says what to other machines, and who has requests go on, explored with `loom`: whatever
//! thread has the way, all is said and all answers are heard, and that breaks when a rule is left
//! out.
//!
//! Two programs ask: one something short, one something long. The threads are that of requests,
//! which says itself what is short, and that of the way (`server/shell/way`, `links`, `parking`),
//! which hears the answers. Sleep is a flag of who is to wake: once no thread runs, only who was
//! woken goes on. Not here: how frames travel (`network`), nor the log.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test way --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

mod flawed;

use flawed::promise;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread::spawn;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Who finds the way taken wakes nobody.
    LeavesItTaken,
    /// Who says what is short wakes nobody for what is left.
    LeavesTheRest,
    /// Who has the way forgets that he was woken when he has said all, not before.
    ForgetsWakes,
    /// Who hears a long answer does not wake who is to go on with it.
    KeepsLongAnswers,
    /// Who hears a short answer does not go on with it, and wakes nobody.
    KeepsShortAnswers,
    /// What comes while he says something, he does not look for.
    LooksOnce,
}

/// The two questions.
const SHORT: usize = 0;
const LONG: usize = 1;

/// What the state's lock guards, of each question.
#[derive(Default)]
struct State {
    unsaid: [bool; 2],
    parked: [bool; 2],
    outcome: [bool; 2],
    answered: [u32; 2],
}

struct Machine {
    flaw: Flaw,
    state: Mutex<State>,
    /// Who has the way.
    way: Mutex<()>,
    /// The thread of the way has been woken, which counts once.
    woken: AtomicBool,
    /// So has that of requests.
    nudged: AtomicBool,
    /// Answers that have come and were not heard: a level, not an edge.
    came: Mutex<[bool; 2]>,
}

impl Machine {
    fn new(flaw: Flaw) -> Self {
        Machine {
            flaw,
            state: Mutex::default(),
            way: Mutex::default(),
            woken: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            came: Mutex::default(),
        }
    }

    fn lacks(&self, rule: Flaw) -> bool {
        self.flaw == rule
    }

    fn wake(&self) {
        self.woken.swap(true, SeqCst);
    }

    fn nudge(&self) {
        self.nudged.swap(true, SeqCst);
    }

    /// By who has the way: the other machine answers at once.
    fn send(&self, question: usize) {
        self.came.lock().unwrap()[question] = true;
    }

    /// By who has the way. Whether nothing is left.
    fn say_what_is_short(&self) -> bool {
        let (short, left) = {
            let mut state = self.state.lock().unwrap();
            // All of it, or nothing.
            let short = state.unsaid[SHORT] && !state.unsaid[LONG];
            state.unsaid[SHORT] &= !short;
            (short, state.unsaid.contains(&true))
        };
        if short {
            self.send(SHORT);
        }
        !left || self.lacks(Flaw::LeavesTheRest)
    }

    // The thread of requests.

    /// `Way::say`.
    fn say(&self) {
        let said = match self.way.try_lock() {
            Ok(_way) => self.say_what_is_short(),
            Err(_) => self.lacks(Flaw::LeavesItTaken),
        };
        if !said {
            self.wake();
        }
    }

    /// A program asks.
    fn asks(&self, question: usize) {
        {
            let mut state = self.state.lock().unwrap();
            (state.unsaid[question], state.parked[question]) = (true, true);
        }
        self.say();
    }

    /// It was nudged: all that wait are tried again.
    fn tries_again(&self) {
        let mut state = self.state.lock().unwrap();
        [SHORT, LONG].into_iter().for_each(|question| state.try_again(question));
    }

    // The thread that has the way.

    /// Hears what has come. Whether it was short.
    fn hear(&self) -> bool {
        let came = std::mem::take(&mut *self.came.lock().unwrap());
        for question in [SHORT, LONG] {
            self.state.lock().unwrap().outcome[question] |= came[question];
        }
        if came[LONG] && !self.lacks(Flaw::KeepsLongAnswers) {
            self.nudge();
        }
        came[SHORT] && !self.lacks(Flaw::KeepsShortAnswers)
    }

    /// `Parking::go_on`.
    fn go_on(&self) {
        let mut state = self.state.lock().unwrap();
        match state.parked.contains(&true) {
            true => [SHORT, LONG].into_iter().for_each(|question| state.try_again(question)),
            false => self.nudge(),
        }
    }

    /// `Links::turn`.
    fn turn(&self) {
        let _way = self.way.lock().unwrap();
        if !self.lacks(Flaw::ForgetsWakes) {
            self.woken.swap(false, SeqCst);
        }
        let goes_on = self.hear();
        let unsaid = std::mem::take(&mut self.state.lock().unwrap().unsaid);
        [SHORT, LONG].into_iter().filter(|at| unsaid[*at]).for_each(|at| self.send(at));
        if goes_on {
            self.go_on();
            if !self.say_what_is_short() {
                self.wake();
            }
        }
        if self.lacks(Flaw::LooksOnce) {
            *self.came.lock().unwrap() = [false; 2];
        }
        // He looks until when to wait: here others may run, too.
        self.woken.load(SeqCst);
        if self.lacks(Flaw::ForgetsWakes) {
            self.woken.swap(false, SeqCst);
        }
    }

    /// Whether its wait for the network is over.
    fn is_awake(&self) -> bool {
        self.woken.load(SeqCst) || self.came.lock().unwrap().contains(&true)
    }
}

impl State {
    /// A request that waits is carried out anew.
    fn try_again(&mut self, question: usize) {
        if self.parked[question] && self.outcome[question] {
            self.parked[question] = false;
            self.answered[question] += 1;
        }
    }
}

/// The two ask, in this order, while the thread of the way takes some turns.
fn asked(flaw: Flaw, order: [usize; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(move || {
        let machine = Arc::new(Machine::new(flaw));
        let requests = {
            let machine = Arc::clone(&machine);
            spawn(move || {
                order.into_iter().for_each(|question| machine.asks(question));
                if machine.nudged.swap(false, SeqCst) {
                    machine.tries_again();
                }
            })
        };
        let links = {
            let machine = Arc::clone(&machine);
            spawn(move || {
                machine.turn();
                if machine.is_awake() {
                    machine.turn();
                }
            })
        };
        requests.join().expect("joins");
        links.join().expect("joins");
        // Whoever was woken by now goes on, and nobody else.
        for _ in 0..4 {
            if machine.is_awake() {
                machine.turn();
            }
            if machine.nudged.swap(false, SeqCst) {
                machine.tries_again();
            }
        }
        let state = machine.state.lock().unwrap();
        assert_eq!(state.answered, [1, 1], "promise: each is answered, and once");
        assert!(!state.unsaid.contains(&true), "promise: all is said");
    });
}

fn short_first(flaw: Flaw) {
    asked(flaw, [SHORT, LONG]);
}

fn long_first(flaw: Flaw) {
    asked(flaw, [LONG, SHORT]);
}

promise!(what_is_asked_is_said_and_answered, super::short_first, broken by [
    who_finds_the_way_taken_wakes_who_has_it: LeavesItTaken,
    what_is_left_is_said_by_who_is_woken: LeavesTheRest,
    who_says_all_has_forgotten_wakes_before: ForgetsWakes,
    long_answers_are_left_to_who_is_woken: KeepsLongAnswers,
    what_has_come_is_looked_for_again: LooksOnce,
]);

promise!(so_it_is_if_the_long_one_is_first, super::long_first, broken by [
    short_answers_are_gone_on_with: KeepsShortAnswers,
    what_is_left_is_said_by_who_is_woken: LeavesTheRest,
]);
