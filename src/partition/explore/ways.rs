//! Ways through what can happen, step by step: too long for a search, or about what a server is
//! told that no client sees.

use crate::effect::{Effect, Input};
use crate::ids::{Body, Operation, Wish};
use crate::members::Verdict;
use crate::message::{Message, Work};
use crate::terms::Moment;

use super::bounds::Bounds;
use super::hostile::frame;
use super::oracle::State;
use super::server::{Server, member, show, table, thing};
use super::step::Step;
use super::world::World;

fn look(server: usize) -> Step {
    Step::Begin { server, thing: 0, changes: false }
}

#[test]
fn what_one_has_given_back_to_the_heir_is_there_though_another_copy_is_gone() {
    let bounds = Bounds { looks: 9, deaths: 1, fences: 1, ..Bounds::NONE };
    let mut world = World::new(bounds);
    let shown_to_both =
        [look(1), Step::Deliver { from: 1, to: 0 }, Step::Deliver { from: 0, to: 1 }];
    let have_looked = [Step::Run { server: 2, request: 160 }, Step::Run { server: 1, request: 80 }];
    let inherited = [
        Step::Die { server: 0 },
        Step::Remove { server: 0 },
        Step::Tell { server: 1 },
        Step::Tell { server: 2 },
        Step::Deliver { from: 2, to: 1 },
    ];
    let given_back = [look(1), Step::Leave { server: 1, thing: 0 }];
    let gone = [Step::Remove { server: 2 }, Step::Tell { server: 1 }];
    let looks = [Step::Run { server: 1, request: 81 }];
    let steps =
        [&show(0)[..], &shown_to_both, &have_looked, &inherited, &given_back, &gone, &looks];
    for step in steps.concat() {
        world = world.after(step, false).unwrap_or_else(|what| panic!("{step:?}: {what}"));
    }
    assert_eq!(world.oracle.request(81).state, State::Done);
}

#[test]
fn each_process_of_who_was_removed_is_told_so() {
    let mut server = Server::new(0);
    let removed = Input::Table(table(&[(0, Verdict::Fenced)]));
    assert_eq!(server.handle(Moment(2), removed), [Effect::Expelled]);
    server.crash();
    assert_eq!(server.restart(Moment(3)), [Effect::Expelled]);
}

#[test]
fn a_request_that_comes_to_need_another_thing_keeps_the_one_before_no_longer() {
    let mut server = Server::new(0);
    let work = || Work::Change(Body::default());
    let wish = |thing| Input::Wish { wish: Wish(1), thing, work: work() };
    assert_eq!(server.handle(Moment(2), wish(thing(0))), [Effect::Go(Wish(1))]);
    let by = member(1);
    let operation = Operation { by, number: 1 };
    let want = Message::Want { operation, thing: thing(0), work: work() };
    let effects = server.handle(Moment(2), Input::Frame(frame(by, 1, vec![want])));
    let recall = Effect::Recall(vec![thing(0)]);
    assert!(!effects.contains(&recall), "it stays until that has run: {effects:?}");
    assert!(server.handle(Moment(2), wish(thing(1))).contains(&recall));
}
