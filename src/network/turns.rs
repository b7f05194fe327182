//! Events that wait to be taken, by member, each of whom has a turn: one who says much does not
//! keep the others waiting.

use std::collections::{BTreeMap, VecDeque};

use terral_format::ids::Member;

use crate::endpoint::{Event, Session};

/// What waits.
#[derive(Default)]
pub(crate) struct Turns {
    /// Of each member in order; nobody is in here of whom nothing waits.
    waiting: BTreeMap<Member, VecDeque<Event>>,
    /// Whose turn it was.
    last: Option<Member>,
}

impl Turns {
    pub(crate) fn push(&mut self, event: Event) {
        self.waiting.entry(event.session().with).or_default().push_back(event);
    }

    /// The next of whoever comes after the one who had the last turn.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let after = self.last.and_then(|last| {
            let later = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.waiting.range(later).next().map(|(member, _)| *member)
        });
        let member = after.or_else(|| self.waiting.keys().next().copied())?;
        let events = self.waiting.get_mut(&member)?;
        let event = events.pop_front();
        if events.is_empty() {
            self.waiting.remove(&member);
        }
        self.last = Some(member);
        event
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait of a member.
    pub(crate) fn count(&self, member: Member) -> usize {
        self.waiting.get(&member).map_or(0, VecDeque::len)
    }

    /// How many sessions with a member are over of which nobody has heard that.
    pub(crate) fn losses(&self, member: Member) -> usize {
        let is_loss = |event: &&Event| matches!(event, Event::Lost(..));
        self.waiting.get(&member).map_or(0, |events| events.iter().filter(is_loss).count())
    }

    /// Forgets what has come in a session, but for that there was one.
    pub(crate) fn drop_frames(&mut self, session: Session) {
        if let Some(events) = self.waiting.get_mut(&session.with) {
            let is_said = |event: &Event| matches!(event, Event::Connected(_) | Event::Lost(..));
            events.retain(|event| event.session() != session || is_said(event));
            if events.is_empty() {
                self.waiting.remove(&session.with);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use crate::endpoint::{Event, Session};
    use terral_format::ids::Member;

    #[test]
    fn each_has_a_turn_in_order() {
        let mut turns = Turns::default();
        let session = |with: u16| Session { with: Member::new(with).expect("14 bits"), number: 1 };
        [1, 1, 1, 2, 3].iter().for_each(|with| turns.push(Event::Room(session(*with))));
        let mut order = Vec::new();
        while let Some(event) = turns.pop() {
            order.push(event.session());
        }
        assert_eq!(order, [1, 2, 3, 1, 1].map(session));
        assert_eq!(turns.count(session(1).with), 0);
    }
}
