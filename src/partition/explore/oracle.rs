//! What was answered, and what that means: each thing is a register that counts its changes.
//!
//! * A change is made to what all changes before have left, and once.
//! * A look gives nothing older than what was acknowledged, or seen, before it began.
//!
//! That holds on all servers. One that was removed alive and does not know it is as one whose links
//! are cut: it breaks no promise, and nobody breaks one that it has made. What only it has is lost
//! to the others: that is an error, and no promise.

use std::collections::BTreeMap;

/// One thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Truth {
    /// How many changes were made.
    pub(crate) made: u8,
    /// Up to which of them somebody was told.
    pub(crate) told: u8,
}

/// How far a client's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// It waits.
    Open,
    /// It was done.
    Done,
    /// It was answered with an error that names a member.
    Failed,
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) server: usize,
    pub(crate) thing: usize,
    pub(crate) changes: bool,
    /// What had been told when it began.
    pub(crate) since: u8,
    /// Which change it made; 0 if none.
    pub(crate) made: u8,
    pub(crate) state: State,
}

/// All that was done and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Oracle {
    pub(crate) things: Vec<Truth>,
    /// By number: a server's have numbers of their own, so that who was first where they do not
    /// know of each other makes no difference.
    pub(crate) requests: BTreeMap<u8, Request>,
}

/// Requests of one server, at most.
const EACH: usize = 80;

impl Oracle {
    /// A client begins something; gives its number.
    pub(crate) fn begin(&mut self, server: usize, thing: usize, changes: bool) -> u8 {
        let since = self.things[thing].told;
        let state = State::Open;
        let before = self.requests.values().filter(|request| request.server == server).count();
        let number = (server * EACH + before) as u8;
        self.requests.insert(number, Request { server, thing, changes, since, made: 0, state });
        number
    }

    /// A request, by its number.
    pub(crate) fn request(&mut self, number: u8) -> &mut Request {
        self.requests.get_mut(&number).expect("only these have numbers")
    }

    /// A change is made to a thing that is at `content`; gives what it is then.
    pub(crate) fn change(&mut self, request: u8, content: u8) -> Result<u8, String> {
        let Request { thing, made, .. } = *self.request(request);
        let truth = &mut self.things[thing];
        if made != 0 {
            return Err(format!("request {request} is done twice"));
        }
        if content != truth.made {
            let all = truth.made;
            return Err(format!("request {request} changes {content} of thing {thing}, not {all}"));
        }
        truth.made += 1;
        let made = truth.made;
        self.request(request).made = made;
        Ok(made)
    }

    /// A client is told: of its change, which it was; of its look, what it saw.
    pub(crate) fn answer(&mut self, request: u8, seen: u8) -> Result<(), String> {
        let Request { thing, since, changes, made, .. } = *self.request(request);
        let truth = &mut self.things[thing];
        if changes && made != seen || !changes && !(since..=truth.made).contains(&seen) {
            return Err(format!("request {request} is told {seen}, after {since} was told"));
        }
        truth.told = truth.told.max(seen);
        self.conclude(request, State::Done)
    }

    /// A client is told that it is over. What it would have had to see does not matter any more.
    pub(crate) fn conclude(&mut self, request: u8, state: State) -> Result<(), String> {
        let request = self.request(request);
        if request.state != State::Open {
            return Err("a request is answered twice".to_owned());
        }
        (request.state, request.since, request.made) = (state, 0, request.made.min(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Oracle, State, Truth};

    fn two_changes() -> (Oracle, u8) {
        let mut oracle = Oracle { things: vec![Truth::default()], ..Oracle::default() };
        let first = oracle.begin(0, 0, true);
        assert_eq!(oracle.change(first, 0), Ok(1));
        let second = oracle.begin(1, 0, true);
        (oracle, second)
    }

    #[test]
    fn a_change_of_what_is_old_or_made_twice_is_noticed() {
        let (mut oracle, second) = two_changes();
        assert!(oracle.change(second, 0).is_err());
        assert_eq!(oracle.change(second, 1), Ok(2));
        assert!(oracle.change(second, 2).is_err());
    }

    #[test]
    fn a_look_at_what_is_older_than_what_was_told_is_noticed() {
        let (mut oracle, second) = two_changes();
        let beside = oracle.begin(2, 0, false);
        assert_eq!(oracle.change(second, 1), Ok(2));
        assert_eq!(oracle.answer(second, 2), Ok(()));
        let after = oracle.begin(2, 0, false);
        assert_eq!(oracle.answer(beside, 1), Ok(()));
        assert!(oracle.answer(after, 1).is_err() && oracle.answer(after, 3).is_err());
        assert_eq!(oracle.answer(after, 2), Ok(()));
        assert!(oracle.conclude(after, State::Failed).is_err());
    }
}
