//! What is heard of a member that speaks for one user alone. Its process is his, so nothing of it
//! is believed but what he may say: it asks as him, whatever it says of who asks; it has nothing of
//! others'; what was born at it looks like his, and what its directories have was born at it, too;
//! of what others have lost it knows nothing.
//!
//! Invariant: what comes out of here is what such a member says that keeps to the rules. Not here:
//! what it is given (`members/role/users`), and what it asks of files (`far/users`).

use std::collections::BTreeSet;

use terral_format::ids::{Member, NUMBERS, Number, Thing};
use terral_format::local::geometry::FILE_BYTES_MAX;
use terral_format::wire::attributes::{Attributes, Kind};
use terral_format::wire::body::Body;
use terral_format::wire::moving::Of;
use terral_format::wire::peers::{Frame, Message, Work};
use terral_format::wire::person::Person;
use terral_format::wire::remembered::{Memory, Remembered};
use terral_format::wire::roster::Control;
use terral_format::wire::status::Drain;
use terral_format::wire::things::{By, Change, Child, Directory, Look, Node, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::far::users::{be_plain, failed};
use crate::members::places;
use crate::members::role::Members;

/// So many bytes of answers and the like may wait for a user's servers to take them.
const UNTAKEN_MAX: usize = 64 << 20;
/// Most failures and conflicts that one says of itself.
const TOLD_MAX: usize = 16;
/// Longest name, and longest text of a link, bytes.
const NAME_MAX: usize = 255;
const TEXT_MAX: usize = 4096;

/// The user whose server a member is, if it speaks for him alone, and this one does not.
pub fn of(state: &State, member: Member) -> Option<Person> {
    state.members.as_ref().and_then(|members| members.stranger(member)).cloned()
}

/// Whether a member may say that something is its user's.
fn may_say(state: &State, from: Member, number: Number) -> bool {
    state.members.as_ref().is_some_and(|members| members.may_say(from, number))
}

/// As whom a member of this server's own user asks: as him, whatever it says.
fn asks_as_its_user(state: &State, frame: &mut Frame) -> Result<()> {
    let user = state.members.as_ref().and_then(|members| members.user_of(frame.from)).cloned();
    let Some(user) = user else { return Ok(()) };
    for message in &mut frame.messages {
        asks_as(message, &user)?;
        if let Message::Want { work: Work::Look(body) | Work::Find(body), .. }
        | Message::Ask { look: body, .. } = message
            && matches!(By::<Look>::of(body)?.what, Look::Adopt(..))
        {
            let what = "what only root's servers have adopted";
            return Err(Error::new(ErrorKind::Malformed, what));
        }
    }
    Ok(())
}

fn asks_as(message: &mut Message, user: &Person) -> Result<()> {
    match message {
        Message::Want { work: Work::Look(body) | Work::Find(body), .. }
        | Message::Ask { look: body, .. } => *body = asks::<Look>(body, user)?,
        Message::Want { work: Work::Change(body), .. } => *body = asks::<Change>(body, user)?,
        _ => {}
    }
    Ok(())
}

/// A frame of a member, as far as it may say what is in it.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what no such member sends.
pub fn admit(state: &mut State, mut frame: Frame) -> Result<Frame> {
    let Some(user) = of(state, frame.from) else {
        asks_as_its_user(state, &mut frame)?;
        return Ok(frame);
    };
    let from = (frame.from, &user);
    if let Some(members) = &mut state.members {
        hears_no_more(members, &mut frame);
    }
    for message in &frame.messages {
        if let Message::Want { operation, thing, .. } = message {
            if operation.by != frame.from || operation.number >= NUMBERS {
                let what = "an operation in the name of another member";
                return Err(Error::new(ErrorKind::Malformed, what));
            }
            let own = thing.number().counted() == 0;
            // Of the server itself he may want something; the right to move is not for him.
            if matches!(thing, Thing::Chunk(..)) || (own && !matches!(thing, Thing::File(_))) {
                return Err(Error::new(ErrorKind::Malformed, "what nobody wants so"));
            }
        }
    }
    wants_what_is(state, &user, &mut frame);
    let state = &*state;
    for message in &mut frame.messages {
        asks_as(message, &user)?;
        match message {
            Message::Show { thing, body: Some(body), .. } => {
                *body = is(state, from, *thing, body)?;
            }
            Message::Done { answer: Ok(body), .. } => *body = answers(state, from, body)?,
            // A copy of what a removed member had goes to the heir. What it says of that is not
            // believed: it has it no more, and that is all.
            Message::Return { thing, loan, .. } if !is_own(state, loan.by) => {
                *message = Message::Dropped { thing: *thing, loan: *loan };
            }
            // It has nothing of others', nor they anything of its.
            Message::Lend { .. } | Message::Return { .. } | Message::Looked { .. } => {
                return Err(Error::new(ErrorKind::Malformed, "what nobody has lent"));
            }
            Message::Holds { held, more, .. } => {
                held.clear();
                *more = false;
            }
            Message::Want { .. }
            | Message::Ask { .. }
            | Message::Show { .. }
            | Message::Done { .. }
            | Message::Recall { .. }
            | Message::Dropped { .. } => {}
        }
    }
    Ok(frame)
}

fn is_own(state: &State, member: Member) -> bool {
    state.members.as_ref().is_some_and(|members| members.me() == member)
}

/// What becomes of a want of something of which nothing is known here.
enum Unknown {
    /// Nothing is kept for each that somebody makes up: this stands for all.
    Nothing(Number),
    /// It may be known elsewhere, and is looked for: this server has inherited it.
    Sought,
}

fn unknown(state: &State, thing: Thing) -> Option<Unknown> {
    let members = state.members.as_ref().filter(|_| is_unheard_of(state, thing))?;
    let (me, born) = (members.me(), thing.number().born());
    let is_inherited = born != me && members.decider(thing) == Some(me);
    let is_inherited = is_inherited && members.are_for_one(me, born);
    let may_live = is_inherited && members.may_one_live(born);
    let is_directory = matches!(thing, Thing::Directory(_));
    if is_inherited && !may_live && is_directory && members.has_died(born) {
        return Some(Unknown::Sought);
    }
    // What somebody may still have who was removed is lost, and not missing.
    let of = if may_live { born } else { me };
    Number::new(of, NUMBERS - 1).map(Unknown::Nothing)
}

/// What he wants is wanted of what there is. What is looked for for him, and is too much at a time,
/// he says again, and all behind it.
fn wants_what_is(state: &mut State, user: &Person, frame: &mut Frame) {
    let (mut heard, now) = (frame.messages.len(), state.world.now());
    for (at, message) in frame.messages.iter_mut().enumerate() {
        let Message::Want { thing, .. } = message else { continue };
        match unknown(state, *thing) {
            None => {}
            Some(Unknown::Nothing(number)) => *thing = Thing::File(number),
            Some(Unknown::Sought) => {
                let mut members = state.members.iter_mut();
                if !members.all(|members| members.may_seek(user.user, *thing, now)) {
                    heard = at;
                    break;
                }
            }
        }
    }
    if heard < frame.messages.len() {
        frame.messages.truncate(heard);
        frame.renewed = None;
    }
}

/// Whether no such thing is known here, and it stands for nothing else.
fn is_unheard_of(state: &State, thing: Thing) -> bool {
    let place = state.members.as_ref().and_then(|members| members.place(thing.number()));
    let is_known = place.is_some_and(|ino| state.names.inode(ino).is_some());
    thing.number().counted() != 0 && !is_known
}

/// Something that is to be done, by this user and nobody else.
trait Asked: Sized {
    fn of(body: &Body) -> Result<By<Self>>;
    fn body(by: &By<Self>) -> Result<Body>;
}

impl Asked for Look {
    fn of(body: &Body) -> Result<By<Look>> {
        By::<Look>::of(body)
    }

    fn body(by: &By<Look>) -> Result<Body> {
        by.body()
    }
}

impl Asked for Change {
    fn of(body: &Body) -> Result<By<Change>> {
        By::<Change>::of(body)
    }

    fn body(by: &By<Change>) -> Result<Body> {
        by.body()
    }
}

fn asks<T: Asked>(body: &Body, user: &Person) -> Result<Body> {
    let mut by = T::of(body)?;
    by.person = user.clone();
    T::body(&by)
}

/// What a thing of its is.
fn is(state: &State, from: (Member, &Person), thing: Thing, body: &Body) -> Result<Body> {
    if !is_of_its(state, from.0, thing.number()) {
        return Err(Error::new(ErrorKind::Malformed, "what somebody else has"));
    }
    if body.bytes().is_empty() {
        // It is gone.
        return Ok(body.clone());
    }
    match thing {
        Thing::Directory(_) => {
            let mut directory = Directory::of(body)?;
            directory.attributes.kind = Kind::Directory;
            let mut once = BTreeSet::new();
            let names = &mut directory.names;
            names.retain(|child| is_its(state, from.0, child));
            names.retain(|child| child.kind != Kind::Directory || once.insert(child.number));
            has_owner(&mut directory.attributes, from.1);
            directory.body()
        }
        Thing::File(_) | Thing::Chunk(..) => {
            let mut node = Node::of(body)?;
            has_owner(&mut node.attributes, from.1);
            node.body()
        }
    }
}

/// What came of something that it was to do, with what it decides.
fn answers(state: &State, from: (Member, &Person), body: &Body) -> Result<Body> {
    if body.bytes().is_empty() {
        return Ok(body.clone());
    }
    let own = |child: Option<Child>| child.filter(|child| is_its(state, from.0, child));
    let outcome = match Outcome::of(body)? {
        Outcome::Attributes(mut attributes) => {
            has_owner(&mut attributes, from.1);
            Outcome::Attributes(attributes)
        }
        Outcome::Step(mut attributes, child) => {
            has_owner(&mut attributes, from.1);
            Outcome::Step(attributes, own(child))
        }
        Outcome::Name(child) => Outcome::Name(own(child)),
        Outcome::Names(mut names, last) => {
            // What only the store has stands for nothing that is known yet.
            let unknown = |child: &Child| Number::new(from.0, 0) == Some(child.number);
            names.retain(|child| {
                is_its(state, from.0, child) || (unknown(child) && is_named(child))
            });
            Outcome::Names(names, last)
        }
        Outcome::Done(number) => Outcome::Done(number.filter(|it| may_say(state, from.0, *it))),
        Outcome::Safety(mut safety) => {
            has_owner(&mut safety.attributes, from.1);
            safety.failure.iter_mut().for_each(be_plain);
            Outcome::Safety(safety)
        }
        Outcome::Waits(mut waits) => {
            // Of others it says nothing.
            waits.retain(|wait| wait.waiter.by == from.0);
            Outcome::Waits(waits)
        }
        Outcome::Failed(error) => Outcome::Failed(failed(error)),
        Outcome::Server(mut status) => {
            be_plain(&mut status.host);
            says_plainly(&mut status.drain);
            Outcome::Server(status)
        }
        outcome => outcome,
    };
    outcome.body()
}

/// What a member says of its drain, likewise.
fn says_plainly(drain: &mut Drain) {
    for said in [&mut drain.failures, &mut drain.conflicts] {
        said.truncate(TOLD_MAX);
        said.iter_mut().for_each(be_plain);
    }
}

/// It is his, and no longer than anything is.
fn has_owner(attributes: &mut Attributes, user: &Person) {
    attributes.uid = user.user;
    if !user.is_in(attributes.gid) {
        attributes.gid = user.group;
    }
    attributes.size = attributes.size.min(FILE_BYTES_MAX);
}

/// Whether a member may say what something is: it decides that, or did, and it was one of those
/// that speak for its user at which it was born.
fn is_of_its(state: &State, from: Member, number: Number) -> bool {
    let decider = state.members.as_ref().and_then(|members| members.decider(Thing::File(number)));
    let decides = number.born() == from || decider == Some(from);
    decides && may_say(state, from, number)
}

/// Whether a name in a directory of its may be one, and stand for that: for what was born at one
/// that speaks for its user, and is what it was.
fn is_its(state: &State, from: Member, child: &Child) -> bool {
    let place = state.members.as_ref().and_then(|members| members.place(child.number));
    let known = place.and_then(|ino| state.names.inode(ino));
    let is = known.is_none_or(|inode| inode.kind == child.kind);
    let own = may_say(state, from, child.number) && child.number.counted() != 0;
    is && own && is_named(child)
}

/// Whether a name may be one, and what it says of a link, too.
fn is_named(child: &Child) -> bool {
    let name = child.name.as_slice();
    let odd = matches!(name, b"" | b"." | b"..") || name.len() > NAME_MAX;
    !odd && !name.iter().any(|byte| matches!(byte, b'/' | 0)) && child.text.len() <= TEXT_MAX
}

/// Who does not take what he is told is told no more: it is heard once he has. So it is with what
/// he wants that is more than waits for one here, and what he has said behind that, as all is taken
/// in order; what is before it is what others may wait for.
fn hears_no_more(members: &mut Members, frame: &mut Frame) {
    let bytes = |message: &Message| match message {
        Message::Want { work, .. } => Some(work.bytes()),
        _ => None,
    };
    let heard = match members.is_told_enough(frame.from, UNTAKEN_MAX) {
        true => 0,
        false => {
            let wants = frame.messages.iter().filter_map(bytes);
            let taken = members.takes_wants(frame.from, wants);
            let mut wants = frame.messages.iter().enumerate().filter(|it| bytes(it.1).is_some());
            wants.nth(taken).map_or(frame.messages.len(), |(at, _)| at)
        }
    };
    if heard < frame.messages.len() {
        frame.messages.truncate(heard);
        frame.renewed = None;
    }
}

/// What such a member says of a directory that gets another path: it moves none, as the control
/// does that for it. Of what others move it says that it rests.
pub fn moves(state: &State, from: Member, said: Of) -> Option<Of> {
    match said {
        Of::Moves(_) | Of::Exchanges(..) if of(state, from).is_some() => None,
        said => Some(said),
    }
}

/// What such a member says to the control.
///
/// # Errors
/// [`ErrorKind::Malformed`] if it says that it is elsewhere than on its machine: others would go
/// there; or what it is not for it to say.
pub fn says(state: &mut State, from: Member, said: Control) -> Result<Control> {
    let is_users = state.members.as_ref().is_some_and(|it| it.user_of(from).is_some());
    if is_users && matches!(said, Control::Roster(_)) {
        return Err(Error::new(ErrorKind::Malformed, "a user's server that says who is in"));
    }
    if of(state, from).is_none() {
        return Ok(said);
    }
    let now = state.world.now();
    let members = state.members.as_mut();
    if matches!(said, Control::Here(_)) && members.is_some_and(|its| !its.may_move(from, now)) {
        return Err(Error::new(ErrorKind::Malformed, "it says all the time that it has moved"));
    }
    match said {
        Control::Here(at) => {
            places::may_be_at(state, from, &at)?;
            Ok(Control::Here(at))
        }
        // Nobody else has what is his.
        Control::Hands(_) => Ok(Control::Hands(Vec::new())),
        // That is for root's server of his machine to say.
        Control::Invites { .. }
        | Control::Invited { .. }
        | Control::Gone { .. }
        | Control::Speaks(_) => {
            Err(Error::new(ErrorKind::Malformed, "a user's server that answers for others"))
        }
        said => Ok(said),
    }
}

/// What such a member asks, or says, of a directory that a dead one had: root's servers tell it
/// where one of its user's is, and it knows nothing.
pub fn remembers(state: &State, from: Member, memory: Memory) -> Option<Memory> {
    match memory {
        memory if of(state, from).is_none() => Some(memory),
        Memory::Asks(asked) => {
            let members = state.members.as_ref()?;
            let is_his = members.are_for_one(asked.directory.born(), from);
            let tells = is_his && members.user_of(members.me()).is_none();
            tells.then_some(Memory::Asks(asked))
        }
        Memory::Says(Remembered { directory, after, .. }) => Some(Memory::Says(Remembered {
            directory,
            after,
            way: Vec::new(),
            attributes: None,
            names: Vec::new(),
            last: true,
        })),
    }
}
