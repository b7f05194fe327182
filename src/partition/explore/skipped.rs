//! Tables that come late, so that a server has not heard of those between: who was removed in
//! these, and who has joined since then.

use terral_format::ids::{Epoch, ServerId, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Failure, Frame, Message, Work};

use crate::durable::Durable;
use crate::effect::{Effect, Input, Local};
use crate::machine::Machine;
use crate::members::{Standing, Table, Verdict};
use crate::terms::Terms;

use super::hostile::frame;
use super::server::{member, thing};

pub(super) const NOW: Moment = Moment(2);
/// Who was removed in all tables that say so here.
const REMOVED: usize = 2;

/// Nothing is in use.
pub(super) struct Idle;

impl Local for Idle {
    fn in_use(&self, _: Thing) -> bool {
        false
    }
}

/// The table of an epoch: these are in, and who was removed has this heir.
pub(super) fn table(epoch: u64, present: &[usize], heir: Option<usize>) -> Table {
    let in_it = |at: &usize| (member(*at), Standing::In(ServerId(*at as u64)));
    let removed = heir.map(|heir| Standing::Removed { heir: member(heir), verdict: Verdict::Dead });
    let gone = removed.map(|standing| (member(REMOVED), standing));
    Table { epoch: Epoch(epoch), members: present.iter().map(in_it).chain(gone).collect() }
}

/// A member that was told these tables; gives what it wanted at the last one.
pub(super) fn member_told(at: usize, tables: &[Table]) -> (Machine, Vec<Effect>) {
    let durable = Durable::new(member(at), ServerId(at as u64));
    let (mut machine, mut effects) = Machine::start(durable, Terms::USUAL, NOW, &Idle);
    for table in tables {
        effects = machine.handle(NOW, &Idle, Input::Table(table.clone()));
    }
    (machine, effects)
}

fn nothing_of_the_removed() -> Message {
    Message::Holds { removed: member(REMOVED), held: Vec::new(), more: false }
}

/// What is sent to a member, of all effects.
pub(super) fn said_to(at: usize, effects: &[Effect]) -> Vec<Message> {
    let to_it = effects.iter().filter_map(|effect| match effect {
        Effect::Send { to, frame } if *to == member(at) => Some(frame.messages.clone()),
        _ => None,
    });
    to_it.flatten().collect()
}

/// An heir's look at what the removed one decided is answered when all of these have spoken, and
/// not before.
fn is_answered_after(mut heir: Machine, epoch: u64, members: &[usize]) {
    let answer = Err(Failure::Removed(member(REMOVED)));
    let answered = Effect::Answer { wish: Wish(1), answer };
    let work = Work::Look(Body::default());
    let wish = Input::Wish { wish: Wish(1), thing: thing(REMOVED), work };
    let mut effects = heir.handle(NOW, &Idle, wish);
    for at in members {
        assert!(!effects.contains(&answered), "before {at} has spoken: {effects:?}");
        let holds = frame(member(*at), *at as u64, vec![nothing_of_the_removed()]);
        let holds = Frame { epoch: Epoch(epoch), ..holds };
        effects = heir.handle(NOW, &Idle, Input::Frame(holds));
    }
    assert!(effects.contains(&answered), "{effects:?}");
}

#[test]
fn who_came_and_went_in_skipped_tables_is_spoken_of_to_its_heir() {
    let tables = [table(1, &[0, 1], None), table(3, &[0, 1], Some(1))];
    let (_, effects) = member_told(0, &tables);
    assert_eq!(said_to(1, &effects), [nothing_of_the_removed()]);
}

#[test]
fn an_heir_of_one_that_it_never_heard_of_waits_for_the_others() {
    let (heir, _) = member_told(1, &[table(1, &[0, 1], None), table(3, &[0, 1], Some(1))]);
    is_answered_after(heir, 3, &[0]);
}

#[test]
fn who_joins_after_a_removal_speaks_of_it_to_an_heir_that_hears_of_both_at_once() {
    let late = table(3, &[0, 1, 3], Some(1));
    let (_, effects) = member_told(3, std::slice::from_ref(&late));
    assert_eq!(said_to(1, &effects), [nothing_of_the_removed()]);
    let (heir, _) = member_told(1, &[table(1, &[0, 1, 2], None), late]);
    is_answered_after(heir, 3, &[0, 3]);
}

#[test]
fn an_heir_whose_first_table_says_that_it_is_one_waits_for_the_others() {
    let (heir, _) = member_told(3, &[table(3, &[0, 1, 3], Some(3))]);
    is_answered_after(heir, 3, &[0, 1]);
}
