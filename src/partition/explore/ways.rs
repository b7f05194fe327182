//! Ways through what can happen, step by step: too long for a search, or about what a server is
//! told that no client sees.

use terral_format::ids::{Epoch, Loan, Operation, ServerId, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Failure, Frame, Holding, Message, Work};

use crate::effect::{Effect, Input, Local};
use crate::machine::Machine;
use crate::members::{Standing, Table, Verdict};
use crate::terms::Terms;

use super::bounds::Bounds;
use super::hostile::frame;
use super::oracle::State;
use super::server::{Server, member, show, table, thing};
use super::skipped::{Idle, NOW, member_told};
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

/// Members 0 to 3; these were removed, in an epoch for each, and their heir is member 1.
fn table_of_four(removed: &[(usize, Verdict)]) -> Table {
    let standing = |at: usize| match removed.iter().find(|(one, _)| *one == at) {
        Some((_, verdict)) => Standing::Removed { heir: member(1), verdict: *verdict },
        None => Standing::In(ServerId(at as u64)),
    };
    let members = (0..4).map(|at| (member(at), standing(at))).collect();
    Table { epoch: Epoch(1 + removed.len() as u64), members }
}

#[test]
fn an_heir_waits_for_who_may_have_a_copy_though_what_it_has_itself_is_all_there_is() {
    let (mut heir, _) = member_told(1, &[table_of_four(&[])]);
    let mut tell = |now, input| heir.handle(now, &Idle, input);
    let wish = |wish, work| Input::Wish { wish: Wish(wish), thing: thing(0), work };
    tell(NOW, wish(1, Work::Look(Body::default())));
    let (operation, loan) =
        (Operation { by: member(1), number: 1 }, Loan { by: member(0), number: 1 });
    let body = Some(Body::default());
    let show = frame(member(0), 0, vec![Message::Show { operation, thing: thing(0), loan, body }]);
    let shown = tell(NOW, Input::Frame(Frame { renewed: Some(NOW), ..show }));
    assert!(shown.contains(&Effect::Go(Wish(1))), "{shown:?}");
    tell(NOW, Input::Ran(Wish(1)));
    let dead_and_fenced = [(0, Verdict::Dead), (3, Verdict::Fenced)];
    tell(NOW, Input::Table(table_of_four(&dead_and_fenced)));
    let said = [0, 3].map(|removed| {
        let kept = (removed == 0).then_some((thing(0), Holding::Kept(Loan { number: 2, ..loan })));
        Message::Holds { removed: member(removed), held: kept.into_iter().collect(), more: false }
    });
    let holds = frame(member(2), 2, said.into());
    tell(NOW, Input::Frame(Frame { epoch: Epoch(3), ..holds }));
    let recall = tell(NOW, wish(2, Work::Change(Body::default())));
    assert!(recall.contains(&Effect::Recall(vec![thing(0)])), "{recall:?}");
    tell(NOW, Input::Recalled { thing: thing(0), body: Body::default() });
    let gone = [&dead_and_fenced[..], &[(2, Verdict::Dead)]].concat();
    let goes = Effect::Go(Wish(2));
    assert!(!tell(NOW, Input::Table(table_of_four(&gone))).contains(&goes), "3 may look at it");
    assert!(tell(NOW + Terms::USUAL.promise(), Input::Tick).contains(&goes));
}

/// A server that can put any thing together.
struct Restores;

impl Local for Restores {
    fn in_use(&self, _: Thing) -> bool {
        false
    }

    fn may_be_restored(&self, _: Thing) -> bool {
        true
    }
}

/// What the heir of member 0, and of 3 if that was removed, wants done for somebody who wants a
/// thing of 0's, which nobody else has.
fn wanted_of_the_lost(removed: &[(usize, Verdict)]) -> (Machine, Vec<Effect>) {
    let (mut heir, _) = member_told(1, &[table_of_four(&[])]);
    heir.handle(NOW, &Restores, Input::Table(table_of_four(removed)));
    for from in (2..4).filter(|from| removed.iter().all(|(out, _)| out != from)) {
        let holds = |(out, _): &(usize, Verdict)| Message::Holds {
            removed: member(*out),
            held: Vec::new(),
            more: false,
        };
        let holds = frame(member(from), from as u64, removed.iter().map(holds).collect());
        let epoch = Epoch(1 + removed.len() as u64);
        heir.handle(NOW, &Restores, Input::Frame(Frame { epoch, ..holds }));
    }
    let (thing, work) = (thing(0), Work::Change(Body::default()));
    let wanted = heir.handle(NOW, &Restores, Input::Wish { wish: Wish(1), thing, work });
    (heir, wanted)
}

#[test]
fn what_a_dead_member_had_is_put_together_before_anybody_has_it_and_by_each_process_anew() {
    let (mut heir, wanted) = wanted_of_the_lost(&[(0, Verdict::Dead)]);
    let restore = Effect::Restore { thing: thing(0), of: member(0) };
    assert!(wanted.contains(&restore) && !wanted.contains(&Effect::Go(Wish(1))), "{wanted:?}");
    let (_, again) = Machine::start(heir.durable().clone(), Terms::USUAL, NOW, &Restores);
    assert!(again.contains(&restore), "{again:?}");
    let restored = |is| Input::Restored { thing: thing(0), is };
    let (mut other, _) = wanted_of_the_lost(&[(0, Verdict::Dead)]);
    let there = heir.handle(NOW, &Restores, restored(true));
    assert!(there.contains(&Effect::Go(Wish(1))), "{there:?}");
    let lost = other.handle(NOW, &Restores, restored(false));
    let answer = Err(Failure::Removed(member(0)));
    assert!(lost.contains(&Effect::Answer { wish: Wish(1), answer }), "{lost:?}");
}

#[test]
fn nothing_is_put_together_while_somebody_who_was_removed_may_live() {
    let removed = [(0, Verdict::Dead), (3, Verdict::Fenced)];
    for removed in [&removed[..], &[(0, Verdict::Fenced)]] {
        let (_, wanted) = wanted_of_the_lost(removed);
        let answer = Err(Failure::Removed(member(0)));
        assert!(wanted.contains(&Effect::Answer { wish: Wish(1), answer }), "{wanted:?}");
    }
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
