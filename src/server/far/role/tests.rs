//! What is asked, said and heard, without a server.

use terral_format::ids::{Asker, Member, Number, SessionSlot};
use terral_format::wire::far::{Act, Answer, Done, Id, Question, Written};
use terral_format::wire::placed::Placing;

use super::{Behind, Far};
use crate::core::world::Tick;

#[test]
fn what_one_home_does_not_answer_has_no_other_one_remember_anything() {
    let [me, silent, home] = [0, 1, 2].map(|number| Member::new(number).expect("few"));
    let file = |of| Number::new(of, 1).expect("few");
    let said = |far: &mut Far| -> Question {
        let mut frames = far.take_questions(me, |_, _, _| None).into_iter();
        let frame = frames.next().map(|(_, frame): (_, Written)| frame.whole());
        Question::read(&frame.expect("one")).expect("a question").0
    };
    let mut far = Far::default();
    far.lives(1);
    far.connected(home);
    for of in [silent, home] {
        far.asks((far.own_id(me), None), (file(of), Act::Close), Behind::Nothing, Tick(0));
    }
    let (life, result) = (7, Ok(Done::Done));
    let begun = Answer { id: said(&mut far).id, file: None, life, result };
    far.answered(home, &begun, &[]);
    let question = said(&mut far);
    assert_eq!(question.past, question.number);
}

/// The home of the second question is killed before it answers.
fn asked_of_two_lives(act: Act) -> Option<super::Outcome> {
    let [me, home] = [0, 1].map(|number| Member::new(number).expect("few"));
    let file = Number::new(home, 1).expect("few");
    let asker = Asker { session: SessionSlot(1), index: 0, sequence: 1 };
    let mut far = Far::default();
    far.lives(1);
    let id = Id { session: asker.session, ..far.own_id(me) };
    far.asks((id, Some(asker)), (file, act), Behind::Nothing, Tick(0));
    for life in [7, 8] {
        far.connected(home);
        let said = far.take_questions(me, |_, _, _| None).into_iter();
        let begin = said.map(|(_, frame)| frame.whole()).next().expect("the first");
        let id = Question::read(&begin).expect("a question").0.id;
        far.answered(home, &Answer { id, file: None, life, result: Ok(Done::Done) }, &[]);
        far.take_questions(me, |_, _, _| None);
    }
    far.outcome(asker, file, id.step)
}

#[test]
fn what_may_have_been_created_by_one_that_was_killed_is_an_error_and_a_copy_is_made_anew() {
    let created = asked_of_two_lives(Act::Place(Placing::Create { mode: 0o755 })).expect("ends");
    assert_eq!(created.expect_err("nobody knows").errno, 5);
    let copy = Placing::Copy { of: 0, at: 0, bytes: 1 };
    assert!(asked_of_two_lives(Act::Place(copy)).is_none(), "it is asked again");
}
