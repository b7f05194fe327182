//! One direction and the other between two servers, across sessions and restarts: what one says the
//! other takes once, in order. A message is kept until it is known to be taken, so an answer is
//! remembered exactly until both sides have moved past it.
//!
//! It is durable, and written down before any of it is sent or acted on. Not here: what has been
//! put into the present session (`machine`).

use std::collections::VecDeque;

use terral_format::disk::partition::Record;
use terral_format::ids::Member;
use terral_format::wire::peers::Message;

use crate::changes::Aside;
use crate::left_out::{Rule, keeps};

/// What is between this server and another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channel {
    /// How many of ours the other side has taken.
    acknowledged: u64,
    /// What it has not, as far as we know; in order.
    kept: VecDeque<Message>,
    /// How many of the other side's we have taken.
    taken: u64,
    /// What was written down of it; `None`: nothing was.
    written: Aside<Option<Written>>,
}

/// How many were acknowledged, said, and taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    acknowledged: u64,
    said: u64,
    taken: u64,
}

impl Channel {
    /// Says something.
    pub fn say(&mut self, message: Message) {
        self.kept.push_back(message);
    }

    /// How many were said.
    pub fn said(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64
    }

    /// How many of ours were taken, as far as is known.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many of the other side's were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether all that was said was taken.
    pub fn is_taken(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many bytes of what was said were not, about.
    pub fn untaken_bytes(&self) -> usize {
        self.kept.iter().map(Message::bytes_at_most).sum()
    }

    /// All that was said after the first `count`.
    pub fn after(&self, count: u64) -> Vec<Message> {
        self.kept.iter().skip(self.index(count)).cloned().collect()
    }

    /// What is kept: what was said after the first [`Self::acknowledged`].
    pub fn kept(&mut self) -> &[Message] {
        self.kept.make_contiguous()
    }

    /// Where in what is kept that is which was said after the first `count`.
    pub fn index(&self, count: u64) -> usize {
        let index = usize::try_from(count.saturating_sub(self.acknowledged)).unwrap_or(usize::MAX);
        index.min(self.kept.len())
    }

    /// The other side has taken so many. More than were said is refused: no server says that.
    pub fn acknowledge(&mut self, count: u64) {
        if count > self.said() {
            return;
        }
        while self.acknowledged < count {
            self.kept.pop_front();
            self.acknowledged += 1;
        }
    }

    /// All that was said has been sent: without the rule, it is forgotten.
    pub fn sent(&mut self) {
        if !keeps(Rule::KeepUntilTaken) {
            self.acknowledge(self.said());
        }
    }

    /// Whether the message after the first `before` is to be taken now: it is the next.
    pub fn take(&mut self, before: u64) -> bool {
        if before == self.taken {
            self.taken += 1;
            return true;
        }
        before < self.taken && !keeps(Rule::TakeOnce)
    }
}

impl Channel {
    /// What has changed since this was last asked, of what is between this server and `with`.
    pub(crate) fn take_changes(&mut self, with: Member, records: &mut Vec<Record>) {
        let (acknowledged, said, taken) = (self.acknowledged, self.said(), self.taken);
        let before = self.written.0.replace(Written { acknowledged, said, taken });
        if before.is_none_or(|before| before.taken != taken) {
            records.push(Record::Taken(with, taken));
        }
        if before.map_or(0, |before| before.acknowledged) != acknowledged {
            records.push(Record::Acknowledged(with, acknowledged));
        }
        let new = self.after(before.map_or(0, |before| before.said)).into_iter();
        records.extend(new.map(|message| Record::Said(with, message)));
    }

    /// Nothing of it was written down.
    pub(crate) fn all_is_new(&mut self) {
        self.written.0 = None;
    }

    /// Whether all of it was written down.
    pub(crate) fn is_written(&self) -> bool {
        let Channel { acknowledged, taken, .. } = *self;
        self.written.0 == Some(Written { acknowledged, said: self.said(), taken })
    }

    /// Makes a change, if the record is one of these.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Taken(_, count) => self.taken = count,
            Record::Said(_, message) => self.say(message),
            Record::Acknowledged(_, count) => {
                self.kept.drain(..self.index(count));
                self.acknowledged = count;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Channel;
    use terral_format::ids::{Loan, Member, Number, Operation, Thing};
    use terral_format::wire::body::Body;
    use terral_format::wire::peers::Message;

    fn message(number: u64) -> Message {
        let by = Member::new(1).expect("14 bits");
        let thing = Thing::File(Number::new(by, 1).expect("50 bits"));
        Message::Recall { thing, loan: Loan { by, number } }
    }

    #[test]
    fn what_is_not_taken_is_counted() {
        let mut channel = Channel::default();
        assert_eq!(channel.untaken_bytes(), 0);
        let answer = Ok(Body::new(vec![0; Body::MAX]).expect("not too long"));
        let operation = Operation { by: Member::LEAST, number: 1 };
        (0..3).for_each(|_| channel.say(Message::Done { operation, answer: answer.clone() }));
        let three = channel.untaken_bytes();
        assert!((3 * Body::MAX..=4 * Body::MAX).contains(&three), "{three}");
        channel.acknowledge(2);
        assert_eq!(channel.untaken_bytes(), three / 3);
        channel.acknowledge(3);
        assert_eq!(channel.untaken_bytes(), 0);
    }

    #[test]
    fn what_was_said_is_kept_until_it_is_taken() {
        let mut channel = Channel::default();
        (0..3).for_each(|number| channel.say(message(number)));
        channel.acknowledge(1);
        assert_eq!(channel.after(0), [message(1), message(2)]);
        assert_eq!(channel.after(2), [message(2)]);
        channel.acknowledge(9);
        assert_eq!((channel.acknowledged(), channel.said()), (1, 3));
        channel.acknowledge(3);
        assert_eq!(channel.after(0), []);
    }

    #[test]
    fn what_comes_again_or_too_early_is_not_taken() {
        let mut channel = Channel::default();
        assert!(!channel.take(1) && channel.take(0) && !channel.take(0) && channel.take(1));
        assert_eq!(channel.taken(), 2);
    }
}
