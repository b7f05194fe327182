//! A member that says whatever it likes, beside two that keep to the protocol: what it has by right
//! (things that it decides, or was lent) it may spoil. Of all others it may make somebody wait, as
//! who looks may; their clients notice nothing else.
//!
//! Not here: what it says of a dead member's things, which is believed.

use terral_format::ids::{Loan, Member, Number, Operation, Thing};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Failure, Frame, Holding, Message, Work};

use crate::left_out::Rule;
use crate::left_out::tests::without;

use super::bounds::Bounds;
use super::chance::Chance;
use super::hostile::frame;
use super::oracle::{Request, State};
use super::server::{is_one, member};
use super::settling::Settling;
use super::step::Step;
use super::walks::{MUCH, likely};
use super::world::World;

/// Who does harm: things 0 and 1 are the others'.
const HOSTILE: usize = 2;
/// Each member has decided another thing, which no clients use: it may be lent.
const OTHER: u64 = 2;
/// Walks in every build.
const WALKS: u64 = 300;
/// Steps of one.
const STEPS: usize = 400;

/// Nobody else is removed, and nobody dies but who does harm: only its machine is not there.
const BOUNDS: Bounds = Bounds { deaths: 1, fences: 0, ..MUCH };

/// Somebody, or something, that the others know.
struct Guess<'a>(&'a mut Chance);

impl Guess<'_> {
    fn number(&mut self) -> u64 {
        if self.0.below(20) == 0 { u64::MAX } else { self.0.below(7) as u64 }
    }

    fn member(&mut self) -> Member {
        member(self.0.below(3))
    }

    fn thing(&mut self) -> Thing {
        let (born, counted) = (self.member(), if self.0.below(3) == 0 { OTHER } else { 1 });
        Thing::File(Number::new(born, counted).expect("50 bits"))
    }

    fn operation(&mut self) -> Operation {
        Operation { by: self.member(), number: self.number() }
    }

    fn loan(&mut self) -> Loan {
        Loan { by: self.member(), number: self.number() }
    }

    fn body(&mut self) -> Body {
        Body::new([self.number() as u8]).expect("a byte")
    }

    fn holding(&mut self) -> Holding {
        let loan = self.loan();
        if self.0.below(2) == 0 { Holding::Whole(loan) } else { Holding::Kept(loan) }
    }

    /// Anything but its own wish to be lent what clients of the others use.
    fn message(&mut self) -> Message {
        let (operation, thing, loan) = (self.operation(), self.thing(), self.loan());
        let (body, some) = (self.body(), self.0.below(2) == 0);
        match self.0.below(11) {
            0 => Message::Want { operation, thing, work: Work::Look(body) },
            1 => {
                let by = if is_one(thing) { member(0) } else { member(HOSTILE) };
                let operation = Operation { by, ..operation };
                Message::Want { operation, thing, work: Work::Change(body) }
            }
            2 => Message::Lend { operation, thing, loan, body: some.then_some(body) },
            3 => Message::Show { operation, thing, loan, body: some.then_some(body) },
            4 if some => Message::Done { operation, answer: Ok(body) },
            4 => Message::Done { operation, answer: Err(Failure::Removed(self.member())) },
            5 => Message::Recall { thing, loan },
            6 => Message::Ask { operation, thing, loan, look: body },
            7 => Message::Looked { operation, thing, answer: body },
            8 => Message::Return { thing, loan, body, in_use: some },
            9 => Message::Dropped { thing, loan },
            _ => {
                let held = vec![(thing, self.holding()); self.0.below(3)];
                Message::Holds { removed: self.member(), held, more: some }
            }
        }
    }

    /// A frame that a server which has taken so much takes up, most often.
    fn frame(&mut self, world: &World, to: usize) -> Option<Frame> {
        let durable = world.server(to).machine()?.durable();
        let from = member(HOSTILE);
        let taken = durable.channels.get(&from).map_or(0, |channel| channel.taken());
        let messages = (0..self.0.below(4)).map(|_| self.message()).collect();
        let before = if self.0.below(10) == 0 { self.number() } else { taken };
        let now = world.time as usize;
        let mut moment = || Moment(self.0.below(2 * now) as u64);
        let (sent, renewed) = (moment(), Some(moment()));
        let renew = self.0.below(2) == 0;
        let frame = frame(from, HOSTILE as u64, messages);
        let taken = self.number();
        Some(Frame { epoch: durable.table.epoch, taken, before, sent, renewed, renew, ..frame })
    }
}

/// Gives how many requests have had an answer, or says what broke.
fn walk(seed: u64) -> Result<usize, String> {
    let mut chance = Chance::new(seed);
    let mut world = World::new(BOUNDS).after(Step::Die { server: HOSTILE }, false)?;
    for _ in 0..STEPS {
        if chance.below(3) == 0 {
            let to = chance.below(HOSTILE);
            if let Some(frame) = Guess(&mut chance).frame(&world, to) {
                let next = world.hearing(to, frame)?;
                world.records_lead_to(&next);
                world = next;
            }
            continue;
        }
        let Some((step, halts)) = likely(&world, &mut chance) else { break };
        if !matches!(step, Step::Remove { .. }) {
            world = world.after(step, halts)?;
        }
    }
    Settling::default().settle(&world).map_err(|(what, _)| what)?;
    let answered = |request: &&Request| matches!(request.state, State::Done);
    Ok(world.oracle.requests.values().filter(answered).count())
}

/// How many requests had an answer in so many walks, or what broke first.
fn walks(most: u64) -> Result<usize, String> {
    (0..most).map(|seed| walk(seed).map_err(|what| format!("seed {seed}: {what}"))).sum()
}

#[test]
#[allow(clippy::print_stdout)] // How much was answered.
fn whatever_a_member_says_the_others_things_are_as_they_were() {
    let answered = walks(WALKS).unwrap_or_else(|what| panic!("{what}"));
    println!("{answered} requests answered in {WALKS} walks");
    assert!(answered > WALKS as usize * 5, "{answered}");
}

#[test]
fn a_member_that_is_heard_on_what_is_none_of_its_business_does_harm() {
    assert!(without(Rule::OnlyItsBusiness, || walks(WALKS)).is_err());
}
