//! What this member says to others: what a transaction wants said goes once the log has it.
//!
//! Invariant: a frame that cannot go now waits behind those before it, and is lost with its
//! session.

use std::collections::VecDeque;

use terral_format::ids::Member;
use terral_format::wire::far::Written;
use terral_format::wire::peers::Frame;
use terral_format::wire::roster::{Control, Tag};
use terral_network::endpoint::{Endpoint, Refused};

use super::{Links, SHORT};
use crate::far::linking;
use crate::sharing::{departing, ruling};

/// Bytes of a file that go from where they lie, as they are so many.
const LONG: usize = 64 << 10;
/// So much memory of questions is kept for the next ones.
const SPARE_MOST: usize = 8;
/// So many bytes may wait for a user's servers to read them, and so many frames.
const UNREAD_MAX: (usize, usize) = (256 << 20, 65_536);
/// What is longer goes in parts, so that others have their turn between them.
const PART_BYTES: usize = 512 << 10;

impl Links<'_> {
    /// Sends all that the log has.
    pub(super) fn say_all(&mut self) {
        self.say_of_memory();
        let (frames, said, leaves, asks, (behind, rule), control, news) = {
            let mut state = self.shared.lock_for_links();
            let is_logged = state.is_logged();
            let Some(members) = &mut state.members else { return };
            let frames = if is_logged { members.take_frames() } else { Vec::new() };
            let said = if is_logged { members.take_said() } else { Vec::new() };
            let is_control = members.control() == members.me();
            let behind = match is_control && is_logged && members.may_tell() {
                true => self.telling.tell(members.roster(), self.sessions.keys()),
                false => Vec::new(),
            };
            let (asks, news, control) =
                (members.take_asks(), members.take_news(), members.control());
            let leaves = if is_logged { departing::take_said(&mut state) } else { None };
            let rule = if behind.is_empty() { None } else { ruling::said(&state) };
            (frames, said, leaves, asks, (behind, rule), control, news)
        };
        self.say_frames(frames);
        for (to, said) in said {
            self.count(to, true);
            self.say(to, &said);
        }
        self.say_of_files();
        leaves.into_iter().for_each(|(to, leaves)| self.say(to, &leaves));
        if asks {
            self.say(control, &Control::Ask);
        }
        if let Some(rule) = rule {
            let said = Control::Roster(Box::new(rule));
            behind.into_iter().for_each(|with| self.say(with, &said));
        }
        if std::mem::take(&mut self.has_answers) || news {
            self.parking.go_on(self.shared);
            if !self.say_what_is_short() {
                // All of it is said, and heard of, in the next turn.
                self.shared.wake_links();
            }
        }
    }

    fn say_frames(&mut self, frames: Vec<(Member, Frame)>) {
        for (to, frame) in frames {
            let mut bytes = vec![Tag::Protocol as u8];
            if frame.write(&mut bytes).is_ok() {
                self.count(to, !frame.messages.is_empty());
                self.send_in_parts(to, bytes);
            }
        }
    }

    /// What the protocol says, and what is asked about bytes of files, if it is short and the log
    /// has it. False: something is left, which the thread that has the way is to say.
    pub fn say_what_is_short(&mut self) -> bool {
        let due = self.tcp.due();
        let (frames, questions, left) = {
            let mut state = self.shared.lock_for_links();
            let is_logged = state.is_logged();
            let Some(members) = &mut state.members else { return true };
            let frames = if is_logged { members.take_frames_within(SHORT) } else { Vec::new() };
            let left = members.has_frames();
            let is_short = is_logged && state.far.has_work_within(SHORT);
            let questions = match is_short {
                true => linking::take_questions(&mut state, Vec::new),
                false => Vec::new(),
            };
            let of_files = state.far.has_work() || state.locks.has_left() || state.far.has_ended();
            (frames, questions, left || of_files)
        };
        self.say_frames(frames);
        self.say_tagged(Tag::Question, questions);
        // Who waits for the network has looked when he is to do something else.
        !left && self.tcp.due() >= due
    }

    /// What is asked and known of directories that dead members had.
    fn say_of_memory(&mut self) {
        let memories = {
            let mut state = self.shared.lock_for_links();
            let is_logged = state.is_logged();
            let members = state.members.as_mut().filter(|_| is_logged);
            members.map(|members| members.take_memories()).unwrap_or_default()
        };
        for (to, memory) in memories {
            if let Ok(frame) = memory.frame() {
                self.send(to, frame);
            }
        }
    }

    /// What is asked and answered about bytes of files.
    fn say_of_files(&mut self) {
        let (questions, news) = {
            let mut state = self.shared.lock_for_links();
            let spare = || self.spare.pop().unwrap_or_default();
            let questions = match state.is_logged() {
                true => linking::take_questions(&mut state, spare),
                false => Vec::new(),
            };
            (questions, state.far.take_news())
        };
        if news {
            self.shared.nudge();
        }
        self.say_tagged(Tag::Question, questions);
        let answers = self.relaying.as_ref().map(|relaying| relaying.take_answers());
        self.say_tagged(Tag::Answer, answers.unwrap_or_default());
    }

    fn say_tagged(&mut self, tag: Tag, frames: Vec<(Member, Written)>) {
        for (to, Written { head, bytes }) in frames {
            let head = [&[tag as u8], head.as_slice()].concat();
            self.count(to, true);
            self.send_written(to, Written { head, bytes });
        }
    }

    /// What is about to be sent asks, answers or tells something, if it is `one`.
    fn count(&self, to: Member, one: bool) {
        if one && self.sessions.contains_key(&to) {
            self.traffic.operation();
        }
    }

    pub(super) fn say(&mut self, to: Member, said: &Control) {
        if let Ok(frame) = said.frame() {
            self.send(to, frame);
        }
    }

    pub(super) fn send(&mut self, to: Member, frame: Vec<u8>) {
        self.send_written(to, Written { head: frame, bytes: Vec::new() });
    }

    /// A frame of the protocol, its tag first: what is too long for one goes in several, of which
    /// all but the last say so.
    fn send_in_parts(&mut self, to: Member, frame: Vec<u8>) {
        if frame.len() <= PART_BYTES {
            return self.send(to, frame);
        }
        let mut parts = frame[1..].chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let tag = if parts.peek().is_some() { Tag::Part } else { Tag::Protocol };
            self.send(to, [&[tag as u8], part].concat());
        }
    }

    /// Without a session it is lost, and one is wanted.
    fn send_written(&mut self, to: Member, frame: Written) {
        if !self.sessions.contains_key(&to) {
            return self.tcp.reach(to);
        }
        self.traffic.frame(frame.head.len() + frame.bytes.len());
        self.waiting.entry(to).or_default().push_back(frame);
        self.send_waiting(to);
        if let Some(deaf) = self.users.get(&to).and_then(|user| self.is_not_read(*user, to)) {
            // What it still wants it asks for in the next session.
            self.waiting.remove(&deaf);
            self.sessions.get(&deaf).into_iter().for_each(|session| self.tcp.cut(*session));
        }
    }

    /// Whether more waits for a user's servers, of which this is one, than for those that read:
    /// then the one for which most waits.
    fn is_not_read(&self, user: u32, one: Member) -> Option<Member> {
        // It is counted now and then.
        let counts = self.waiting.get(&one)?.len().is_multiple_of(64);
        let his = self.waiting.iter().filter(|(of, _)| self.users.get(of) == Some(&user));
        let frames: usize = his.clone().map(|(_, frames)| frames.len()).sum();
        if !counts && frames <= UNREAD_MAX.1 {
            return None;
        }
        let bytes = |frame: &Written| frame.head.len() + frame.bytes.len();
        let its = his.map(|(of, all)| (*of, all.iter().map(bytes).sum::<usize>(), all.len()));
        least_read(&its.collect::<Vec<_>>())
    }

    pub(super) fn send_waiting(&mut self, to: Member) {
        let Some(session) = self.sessions.get(&to).copied() else { return };
        while let Some(frame) = self.waiting.get_mut(&to).and_then(VecDeque::pop_front) {
            let Written { head, bytes } = &frame;
            let sent = match bytes.len() {
                0..LONG => self.tcp.send(session, &[head.as_slice(), bytes].concat()),
                _ => self.tcp.send_now(session, &[head, bytes]),
            };
            if matches!(sent, Err(Refused::Full | Refused::Over)) {
                // There will be room, or the session is lost.
                self.waiting.entry(to).or_default().push_front(frame);
                return;
            }
            let is_question = frame.head.first() == Some(&(Tag::Question as u8));
            let bytes = frame.bytes;
            match &self.relaying {
                _ if is_question && bytes.len() >= LONG && self.spare.len() < SPARE_MOST => {
                    self.spare.push(bytes);
                }
                Some(relaying) if !is_question && !bytes.is_empty() => relaying.was_sent(bytes),
                _ => {}
            }
        }
        self.waiting.remove(&to);
    }
}

/// Of these, with so many bytes and frames waiting for each, the one for which most waits of what
/// is too much for all together; `None`: nothing is.
fn least_read(its: &[(Member, usize, usize)]) -> Option<Member> {
    let all = its.iter().fold((0, 0), |all, its| (all.0 + its.1, all.1 + its.2));
    let most = match (all.0 > UNREAD_MAX.0, all.1 > UNREAD_MAX.1) {
        (true, _) => its.iter().max_by_key(|(of, bytes, frames)| (*bytes, *frames, *of)),
        (false, true) => its.iter().max_by_key(|(of, bytes, frames)| (*frames, *bytes, *of)),
        (false, false) => None,
    };
    most.map(|(of, ..)| *of)
}

#[cfg(test)]
mod tests {
    use terral_format::ids::Member;

    use super::{UNREAD_MAX, least_read};

    #[test]
    fn who_reads_what_is_long_goes_on_while_another_one_does_not_read_what_is_short() {
        let [reads, deaf] = [1, 2].map(|number| Member::new(number).expect("few"));
        let (bytes, frames) = UNREAD_MAX;
        assert_eq!(least_read(&[(reads, 1 << 20, 1), (deaf, frames, frames)]), Some(deaf));
        assert_eq!(least_read(&[(reads, 100, frames / 2), (deaf, bytes, 8)]), Some(deaf));
        // Both are too many: whose bytes are, as they are what takes memory.
        assert_eq!(least_read(&[(reads, 100, frames), (deaf, bytes + 1, 8)]), Some(deaf));
        assert_eq!(least_read(&[(reads, bytes / 2, 1), (deaf, 100, frames - 1)]), None);
        assert_eq!(least_read(&[]), None);
    }
}
