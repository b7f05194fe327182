//! What is to be sent to other members, once the log has what it says. What is said to one in
//! several steps goes in one frame: each is a call here, and wakes somebody there.
//!
//! Invariants: to each the messages go in their order; a lease that was renewed counts once all is
//! taken that was said before, so a frame takes the later one's word for that, and none that is
//! withheld since.

use terral_format::ids::Member;
use terral_format::wire::peers::{Frame, fitting};

use super::Members;

/// Frames, in order.
#[derive(Default)]
pub(super) struct Outbox(Vec<(Member, Frame)>);

/// Adds to a frame what the next one to the same member says. That, if it must go by itself.
fn joined(last: &mut Frame, next: Frame) -> Option<Frame> {
    let follows = last.before + last.messages.len() as u64 == next.before;
    let same = (last.server, last.epoch) == (next.server, next.epoch);
    let withholds = last.renewed.is_some() && next.renewed.is_none();
    if !follows || !same || withholds {
        return Some(next);
    }
    let count = last.messages.len();
    last.messages.extend_from_slice(&next.messages);
    if fitting(&last.messages) < last.messages.len() {
        last.messages.truncate(count);
        return Some(next);
    }
    (last.taken, last.sent, last.renewed) = (next.taken, next.sent, next.renewed);
    last.renew |= next.renew;
    None
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, to: Member, frame: Frame) {
        let last = self.0.iter_mut().rev().find(|(last, _)| *last == to);
        let left = match last {
            Some((_, last)) => joined(last, frame),
            None => Some(frame),
        };
        self.0.extend(left.map(|frame| (to, frame)));
    }
}

impl Members {
    /// This frame goes once the log has what it says.
    pub fn sends(&mut self, to: Member, frame: Frame) {
        self.outbox.push(to, frame);
    }

    /// What is to be sent now.
    pub fn take_frames(&mut self) -> Vec<(Member, Frame)> {
        std::mem::take(&mut self.outbox.0)
    }

    /// The same, if none of it is longer than this.
    pub fn take_frames_within(&mut self, bytes: usize) -> Vec<(Member, Frame)> {
        let short = self.outbox.0.iter().all(|(_, frame)| frame.is_within(bytes));
        if short { self.take_frames() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{Epoch, Loan, Member, Number, ServerId, Thing};
    use terral_format::moment::Moment;
    use terral_format::wire::peers::{Frame, Message};

    use super::Outbox;

    fn member(number: u16) -> Member {
        Member::new(number).expect("14 bits")
    }

    fn message(number: u64) -> Message {
        let by = member(1);
        let thing = Thing::File(Number::new(by, 1).expect("50 bits"));
        Message::Recall { thing, loan: Loan { by, number } }
    }

    fn frame(before: u64, count: u64, renewed: Option<u64>) -> Frame {
        Frame {
            from: member(1),
            server: ServerId(1),
            epoch: Epoch(1),
            taken: before,
            before,
            messages: (before..before + count).map(message).collect(),
            sent: Moment(before),
            renewed: renewed.map(Moment),
            renew: before == 0,
        }
    }

    #[test]
    fn what_is_said_to_one_in_several_steps_goes_together_and_in_order() {
        let mut outbox = Outbox::default();
        outbox.push(member(2), frame(0, 1, None));
        outbox.push(member(3), frame(7, 1, None));
        outbox.push(member(2), frame(1, 0, Some(4)));
        outbox.push(member(2), frame(1, 2, Some(5)));
        let [(two, all), (three, other)] = &outbox.0[..] else { panic!("one for each") };
        assert_eq!((*two, *three, other.before), (member(2), member(3), 7));
        assert_eq!(all.messages, (0..3).map(message).collect::<Vec<_>>());
        assert_eq!((all.before, all.taken, all.sent), (0, 1, Moment(1)));
        assert_eq!((all.renewed, all.renew), (Some(Moment(5)), true));
    }

    #[test]
    fn what_another_session_has_said_or_withholds_the_lease_goes_by_itself() {
        let apart = [frame(0, 1, None), frame(1, 1, None), frame(0, 2, None), frame(2, 0, Some(9))];
        let mut outbox = Outbox::default();
        apart.iter().for_each(|frame| outbox.push(member(2), frame.clone()));
        let firsts = |outbox: &Outbox| -> Vec<(u64, usize)> {
            outbox.0.iter().map(|(_, frame)| (frame.before, frame.messages.len())).collect()
        };
        assert_eq!(firsts(&outbox), [(0, 2), (0, 2)]);
        outbox.push(member(2), frame(2, 1, None));
        assert_eq!(firsts(&outbox), [(0, 2), (0, 2), (2, 1)]);
        let later = Frame { epoch: Epoch(2), ..frame(3, 1, None) };
        outbox.push(member(2), later);
        assert_eq!(firsts(&outbox), [(0, 2), (0, 2), (2, 1), (3, 1)]);
    }
}
