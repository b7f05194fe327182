//! Sessions that there are: what comes is put together, what waits goes, who is silent is lost.

use terral_format::ids::Member;
use terral_format::moment::Moment;

use crate::endpoint::{Event, Loss, Session};

use super::connections::Connections;
use super::framing::{self, Assembler};
use super::greeting::Encryption;
use super::peer::Open;
use super::ready::Token;
use super::stream::Came;
use super::{LONGEST_IDLE, PAUSE, READ_BYTES, Tcp};

/// Bytes that are read at once where a long frame is likely to come, whose rest is then read to
/// where it will be given out.
const LITTLE_BYTES: usize = 4 << 10;

/// What reading has come to, and whether that is what a member says.
type Heard = (Came, Result<(), &'static str>);

/// Reads long frames that are coming to where they will be given out, as long as there is more and
/// it is not too much for one turn; none if no such frame is coming.
fn read_long(
    connections: &mut Connections,
    token: Token,
    assembler: &mut Assembler,
    hand: &mut impl FnMut(Box<[u8]>),
) -> Option<Heard> {
    let (mut heard, mut all, mut is_more) = (None, 0, true);
    while is_more && all < READ_BYTES {
        let mut asked = 0;
        let read = |into: &mut Vec<u8>| {
            asked = into.capacity() - into.len();
            connections.read_plain(token, into)
        };
        let Some(now) = assembler.read_rest(read, &mut *hand) else { break };
        is_more = now == (Came::Bytes(asked), Ok(()));
        all += asked;
        if now.0 != Came::Nothing || heard.is_none() {
            heard = Some(now);
        }
    }
    heard
}

impl Tcp {
    /// The session, if it is the one that there is.
    pub(super) fn open(&mut self, session: Session) -> Option<&mut Open> {
        let open = self.members.get_mut(&session.with)?.open.as_mut()?;
        (open.number == session.number).then_some(open)
    }

    /// A session's socket has something to read, or room. Who has said something that was not taken
    /// is read later: the rest waits on his side.
    pub(super) fn talk(&mut self, token: Token, member: Member, now: Moment) {
        if self.turns.count(member) == 0 {
            self.hear(token, member, now);
        }
        let went = self.connections.flush(token);
        let unsent = self.connections.unsent(token);
        let Some(open) = self.members.get_mut(&member).and_then(|known| known.open.as_mut()) else {
            return;
        };
        if went > 0 {
            (open.moved, open.said) = (now, now);
        }
        if open.room.is_some_and(|room| unsent <= room) {
            open.room = None;
            self.turns.push(Event::Room(Session { with: member, number: open.number }));
        }
    }

    /// Reads what a member says, and puts frames together from it.
    fn hear(&mut self, token: Token, member: Member, now: Moment) {
        let Some(open) = self.members.get_mut(&member).and_then(|known| known.open.as_mut()) else {
            return;
        };
        let session = Session { with: member, number: open.number };
        let (turns, assembler) = (&mut self.turns, &mut open.assembler);
        let mut hand = |frame| turns.push(Event::Frame(session, frame));
        let straight = match self.encryption {
            Encryption::Tls => None,
            Encryption::None => read_long(&mut self.connections, token, assembler, &mut hand),
        };
        let (came, right) = straight.unwrap_or_else(|| {
            let is_long = self.encryption == Encryption::None && assembler.is_long();
            let most = if is_long { LITTLE_BYTES } else { READ_BYTES };
            let mut right = Ok(());
            let came = self.connections.read(token, &mut self.scratch[..most], |bytes| {
                if right.is_ok() {
                    right = assembler.take(bytes, &mut hand);
                }
            });
            (came, right)
        });
        match (right, came) {
            (Err(what), _) | (_, Came::Wrong(what)) => self.lose(member, Loss::Garbage(what)),
            (Ok(()), Came::Bytes(_)) => open.heard = now,
            (Ok(()), Came::Nothing) => {}
            (Ok(()), Came::End) => self.lose(member, Loss::Closed),
        }
    }

    /// Who was away himself cannot say that others were silent.
    pub(super) fn forgive(&mut self, now: Moment) {
        for open in self.members.values_mut().filter_map(|known| known.open.as_mut()) {
            (open.heard, open.moved) = (now, now);
        }
    }

    /// Does what nobody else begins, and says when that is to be done next.
    pub(super) fn tend(&mut self, now: Moment) {
        self.due = now + LONGEST_IDLE;
        if self.connections.is_paused {
            self.connections.resume();
            self.due = now + PAUSE;
        }
        self.end_shaking(now);
        for member in self.members.keys().copied().collect::<Vec<_>>() {
            self.tend_to(member, now);
        }
    }

    fn end_shaking(&mut self, now: Moment) {
        let begun: Vec<_> = self.connections.shaking().map(|(at, one)| (at, one.begun)).collect();
        for (token, begun) in begun {
            let end = begun + self.timing.handshake;
            if end <= now {
                self.refuse(token, "too slow");
            } else {
                self.due = self.due.min(end);
            }
        }
    }

    fn tend_to(&mut self, member: Member, now: Moment) {
        let Some(known) = self.members.get_mut(&member) else { return };
        let Some(open) = known.open.as_mut() else {
            if known.next.is_some_and(|next| next <= now) {
                self.dial(member, now);
            }
            let next = self.members.get(&member).and_then(|known| known.next);
            self.due = next.map_or(self.due, |next| self.due.min(next));
            return;
        };
        let unsent = self.connections.unsent(open.token);
        self.connections.rest(open.token);
        if self.turns.count(member) > 0 {
            open.heard = now;
        }
        let stuck = if unsent > 0 { open.moved } else { now };
        let end = open.heard.min(stuck) + self.timing.silence;
        if end <= now {
            return self.lose(member, Loss::Silent);
        }
        if open.said + self.timing.beat() <= now {
            open.said = now;
            let token = open.token;
            if unsent == 0 {
                open.moved = now;
                self.connections.write(token, &[&framing::beat(self.encryption)]);
            }
        }
        let Some(open) = self.members.get(&member).and_then(|known| known.open.as_ref()) else {
            return;
        };
        self.due = self.due.min(end).min(open.said + self.timing.beat());
    }
}
