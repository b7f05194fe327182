//! Members that speak for different ones: what is lost of one's, and who of others may live.

use std::time::Duration;

use terral_format::disk::partition::Standing;
use terral_format::ids::{Epoch, Loan, Member, Operation, ServerId, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Frame, Message, Work};

use crate::durable::Durable;
use crate::effect::{Effect, Input, Local};
use crate::machine::Machine;
use crate::members::{Table, Verdict};
use crate::terms::Terms;

use super::hostile::frame;
use super::server::{member, thing};
use super::skipped::{NOW, said_to};

/// These members speak for somebody else than the others do. All that is lost may be put together.
struct Apart(&'static [usize]);

impl Local for Apart {
    fn in_use(&self, _: Thing) -> bool {
        false
    }

    fn are_for_one(&self, one: Member, other: Member) -> bool {
        let [one, other] = [one, other].map(|of| self.0.iter().any(|at| member(*at) == of));
        one == other
    }

    fn may_be_restored(&self, _: Thing) -> bool {
        true
    }
}

/// The table of an epoch in which these are in, and these were removed, whose heir is the first.
fn table(epoch: u64, present: &[usize], removed: &[(usize, Verdict)]) -> Table {
    let is_in = |at: &usize| (member(*at), Standing::In(ServerId(*at as u64)));
    let heir = member(0);
    let is_out = |(at, verdict): &(usize, Verdict)| {
        (member(*at), Standing::Removed { heir, verdict: *verdict })
    };
    let members = present.iter().map(is_in).chain(removed.iter().map(is_out)).collect();
    Table { epoch: Epoch(epoch), members }
}

fn told(at: usize, local: &Apart, table: Table) -> Machine {
    let durable = Durable::new(member(at), ServerId(at as u64));
    let (mut machine, _) = Machine::start(durable, Terms::USUAL, NOW, local);
    machine.handle(NOW, local, Input::Table(table));
    machine
}

/// The first of three looks at what the second one decided, which is dead, where the third may
/// live. What it wants done.
fn looks(local: &Apart) -> (Machine, Vec<Effect>) {
    let mut machine = told(0, local, table(1, &[0, 1, 2], &[]));
    for (epoch, present, removed) in [
        (2, &[0, 1][..], &[(2, Verdict::Fenced)][..]),
        (3, &[0], &[(1, Verdict::Dead), (2, Verdict::Fenced)]),
    ] {
        machine.handle(NOW, local, Input::Table(table(epoch, present, removed)));
    }
    let work = Work::Look(Body::default());
    let wish = Input::Wish { wish: Wish(1), thing: thing(1), work };
    let effects = machine.handle(NOW, local, wish);
    (machine, effects)
}

#[test]
fn who_is_fenced_keeps_lost_only_what_it_could_have_had() {
    let restores = |effect: &Effect| matches!(effect, Effect::Restore { .. });
    let is = |apart| looks(&Apart(apart)).1.iter().any(restores);
    assert!(!is(&[]), "its clients may be told of changes of it");
    assert!(!is(&[1, 2]), "so may they: both are one user's");
    assert!(is(&[2]), "it had nothing of it");
    assert!(is(&[1]), "nor of a user's");
}

#[test]
fn what_who_is_fenced_may_have_been_shown_is_not_changed_before_its_lease_is_over() {
    let local = Apart(&[2]);
    let (mut machine, _) = looks(&local);
    let (lost, wish) = (thing(1), Wish(2));
    machine.handle(NOW, &local, Input::Restored { thing: lost, is: true });
    machine.handle(NOW, &local, Input::Ran(Wish(1)));
    let work = Work::Change(Body::default());
    let wants = Input::Wish { wish, thing: lost, work };
    let over = NOW + Terms::USUAL.promise();
    for (at, input, goes) in
        [(NOW, wants, false), (Moment(over.0 - 1), Input::Tick, false), (over, Input::Tick, true)]
    {
        let mut effects = machine.handle(at, &local, input);
        // Clients of this server leave it at once.
        let recalls = |effect: &Effect| matches!(effect, Effect::Recall(_));
        if effects.iter().any(recalls) {
            let left = Input::Recalled { thing: lost, body: Body::default() };
            effects = machine.handle(at, &local, left);
        }
        assert_eq!(effects.contains(&Effect::Go(wish)), goes, "{at:?}: {effects:?}");
    }
}

/// The second one may live for a while longer than the third, which may, too, and then is dead. The
/// first wants to look at what that one decided, and to change it as soon as it has. When it goes,
/// and what is wanted done first.
fn waits_for(verdict: Verdict, local: &Apart) -> (Vec<Effect>, Option<Duration>) {
    let mut machine = told(0, local, table(1, &[0, 1, 2], &[]));
    let fenced = [(1, Verdict::Fenced), (2, Verdict::Fenced)];
    machine.handle(NOW, local, Input::Table(table(2, &[0], &fenced)));
    // All that this server itself has ever promised is over.
    let said = NOW + Terms::USUAL.promise() * 2;
    machine.handle(said, local, Input::Tick);
    let ended = [(1, verdict), (2, Verdict::Fenced)];
    machine.handle(said, local, Input::Table(table(3, &[0], &ended)));
    let (lost, wish) = (thing(1), Wish(1));
    let work = Work::Change(Body::default());
    let wanted = machine.handle(said, local, Input::Wish { wish, thing: lost, work });
    let mut goes = machine.handle(said, local, Input::Restored { thing: lost, is: true });
    for seconds in 0..60 {
        if goes.contains(&Effect::Go(wish)) {
            return (wanted, Some(Duration::from_secs(seconds)));
        }
        goes = machine.handle(said + Duration::from_secs(seconds + 1), local, Input::Tick);
    }
    (wanted, None)
}

#[test]
fn who_is_said_to_be_dead_after_a_while_may_have_shown_what_it_had_until_then() {
    let restores =
        |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Restore { .. }));
    for verdict in [Verdict::Dead, Verdict::Left] {
        let (wanted, goes) = waits_for(verdict, &Apart(&[2]));
        assert!(restores(&wanted), "{wanted:?}");
        let goes = goes.expect("it does not wait for ever");
        assert!(goes >= Terms::USUAL.promise(), "the third may look at it: {goes:?}");
        // Where both are one user's, nothing is put together of it yet.
        let (wanted, goes) = waits_for(verdict, &Apart(&[1, 2]));
        assert!(!restores(&wanted) && goes.is_none(), "{wanted:?}");
    }
}

#[test]
fn a_copy_of_a_strangers_thing_is_kept_for_nobody() {
    for apart in [&[][..], &[1]] {
        let local = Apart(apart);
        let mut machine = told(2, &local, table(1, &[0, 1, 2], &[]));
        let work = Work::Look(Body::default());
        machine.handle(NOW, &local, Input::Wish { wish: Wish(1), thing: thing(1), work });
        let operation = Operation { by: member(2), number: 1 };
        let loan = Loan { by: member(1), number: 1 };
        let body = Some(Body::default());
        let shows = vec![Message::Show { operation, thing: thing(1), loan, body }];
        let shows = Frame { renewed: Some(NOW), ..frame(member(1), 1, shows) };
        machine.handle(NOW, &local, Input::Frame(shows));
        machine.handle(NOW, &local, Input::Ran(Wish(1)));
        let dead = table(2, &[0, 2], &[(1, Verdict::Dead)]);
        let mut effects = machine.handle(NOW, &local, Input::Table(dead));
        let recalls = |effect: &Effect| matches!(effect, Effect::Recall(_));
        if effects.iter().any(recalls) {
            let left = Input::Recalled { thing: thing(1), body: Body::default() };
            effects.extend(machine.handle(NOW, &local, left));
        }
        let said = said_to(0, &effects);
        let is_told = |message: &Message| match message {
            Message::Holds { held, .. } => !held.is_empty(),
            Message::Return { .. } => true,
            _ => false,
        };
        assert_eq!(said.iter().any(is_told), apart.is_empty(), "{said:?}");
        let has = machine.durable().borrower.borrowed(member(2)).count();
        assert_eq!(has, usize::from(apart.is_empty()), "{said:?}");
    }
}
