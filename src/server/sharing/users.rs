//! What is heard of a member that speaks for one user alone. Its process is his, so nothing of it
//! is believed but what he may say: it asks as him, whatever it says of who asks; what it has
//! looks like his, and has only names that a directory of his may have; of what others have lost
//! it knows nothing.
//!
//! Invariant: what comes out of here is what such a member says that keeps to the rules. Not here:
//! what it is given (`members/role/users`), and what it asks of files (`far/users`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::ids::{Ino, Member, NUMBERS, Number, Thing};
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
use crate::sharing::bodies;

/// `w` and `x` of a directory: its names may be changed.
const CHANGE: u32 = 3;
/// Where only who owns something takes its name away.
const STICKY: u32 = 0o1000;
/// So many bytes of answers and the like may wait for a member to take them.
const UNTAKEN_MAX: usize = 64 << 20;
/// Most failures and conflicts that one says of itself.
const TOLD_MAX: usize = 16;
/// Longest name, and longest text of a link, bytes.
const NAME_MAX: usize = 255;
const TEXT_MAX: usize = 4096;

/// The user whose server a member is, if it speaks for him alone.
pub fn of(state: &State, member: Member) -> Option<Person> {
    state.members.as_ref().and_then(|members| members.user_of(member)).cloned()
}

/// A frame of a member, as far as it may say what is in it.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what no such member sends.
pub fn admit(state: &mut State, mut frame: Frame) -> Result<Frame> {
    let Some(user) = of(state, frame.from) else { return Ok(frame) };
    let from = (frame.from, &user);
    let wants = wants(&frame);
    if state.members.as_mut().is_some_and(|members| {
        members.untaken(frame.from) > UNTAKEN_MAX || members.wants_too_much(frame.from, wants)
    }) {
        // Who does not take what he is told is told no more: it is heard once he has. So it is when
        // what he wants is more than waits for one here.
        (frame.messages, frame.renewed) = (Vec::new(), None);
    }
    let state = &*state;
    for message in &mut frame.messages {
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
            // Nothing is kept for each thing that he makes up.
            let nothing = state.members.as_ref().and_then(|it| Number::new(it.me(), NUMBERS - 1));
            if let Some(nothing) = nothing.filter(|_| is_unheard_of(state, *thing)) {
                *thing = Thing::File(nothing);
            }
        }
        match message {
            Message::Want { work: Work::Look(body) | Work::Find(body), .. }
            | Message::Ask { look: body, .. } => *body = asks::<Look>(body, &user)?,
            Message::Want { work: Work::Change(body), .. } => *body = asks::<Change>(body, &user)?,
            Message::Lend { thing, body: Some(body), .. }
            | Message::Show { thing, body: Some(body), .. }
            | Message::Return { thing, body, .. } => *body = is(state, from, *thing, body)?,
            Message::Looked { thing, answer: body, .. } => {
                *body = answers(state, from, (Some(*thing), None), body)?;
            }
            Message::Done { operation, answer: Ok(body) } => {
                let members = state.members.as_ref();
                let asked = members.and_then(|members| members.asked_about(from.0, *operation));
                *body = answers(state, from, (None, asked), body)?;
            }
            Message::Holds { held, more, .. } => {
                held.clear();
                *more = false;
            }
            Message::Want { work: Work::Take, .. }
            | Message::Lend { .. }
            | Message::Show { .. }
            | Message::Done { .. }
            | Message::Recall { .. }
            | Message::Dropped { .. } => {}
        }
    }
    Ok(frame)
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
    if body.bytes().is_empty() {
        // Only of what is its own it says that it is gone.
        let gone = "somebody else's directory is gone";
        return match thing.number().born() == from.0 {
            true => Ok(body.clone()),
            false => Err(Error::new(ErrorKind::Malformed, gone)),
        };
    }
    match thing {
        Thing::Directory(_) => {
            let mut directory = Directory::of(body)?;
            directory.attributes.kind = Kind::Directory;
            let place = Place::of(state, from, thing);
            directory.names.retain(|child| place.may_have(child));
            let mut once = BTreeSet::new();
            directory
                .names
                .retain(|child| child.kind != Kind::Directory || once.insert(child.number));
            match place.others() {
                Some(others) => others.stay(&mut directory),
                None => has_owner(&mut directory.attributes, from.1),
            }
            directory.body()
        }
        Thing::File(_) | Thing::Chunk(..) => {
            let mut node = Node::of(body)?;
            has_owner(&mut node.attributes, from.1);
            node.body()
        }
    }
}

/// What came of something that it was to do; `thing`: with one that it has, which this server
/// decides; `asked`: with one that it decides itself.
fn answers(
    state: &State,
    from: (Member, &Person),
    (thing, asked): (Option<Thing>, Option<Thing>),
    body: &Body,
) -> Result<Body> {
    if body.bytes().is_empty() {
        return Ok(body.clone());
    }
    let place = thing.map(|thing| Place::of(state, from, thing));
    let of_others = place.as_ref().is_some_and(|place| place.others().is_some());
    let sound = |child: &Child| match &place {
        Some(place) => place.may_have(child),
        None => {
            let own = child.kind != Kind::Directory || child.number.born() == from.0;
            own && is_named(child)
                && is_sound(state, from.0, child)
                && may_be_called(state, asked, child)
        }
    };
    let own = |child: Option<Child>| child.filter(|child| sound(child));
    let looks = |attributes: &mut Attributes| match thing.filter(|_| of_others) {
        Some(thing) => {
            let inode = bodies::inode_of(state, thing);
            let is = inode.ok().and_then(|inode| state.attributes(inode.ino));
            is.into_iter().for_each(|is| *attributes = is);
        }
        None => has_owner(attributes, from.1),
    };
    let outcome = match Outcome::of(body)? {
        Outcome::Attributes(mut attributes) => {
            looks(&mut attributes);
            Outcome::Attributes(attributes)
        }
        Outcome::Step(mut attributes, child) => {
            looks(&mut attributes);
            Outcome::Step(attributes, own(child))
        }
        Outcome::Name(child) => Outcome::Name(own(child)),
        Outcome::Names(mut names, last) => {
            names.retain(sound);
            Outcome::Names(names, last)
        }
        Outcome::Done(number) => Outcome::Done(number.filter(|it| it.born() == from.0)),
        Outcome::Safety(mut safety) => {
            looks(&mut safety.attributes);
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

/// Whether a name may be one, and what it says of a link, too.
fn is_named(child: &Child) -> bool {
    let name = child.name.as_slice();
    let odd = matches!(name, b"" | b"." | b"..") || name.len() > NAME_MAX;
    let is_something = child.number.counted() != 0;
    let sound = is_something && child.text.len() <= TEXT_MAX;
    !odd && !name.iter().any(|byte| matches!(byte, b'/' | 0)) && sound
}

/// Whether what a name stands for may be what it is said to be.
fn is_sound(state: &State, from: Member, child: &Child) -> bool {
    let Some(members) = &state.members else { return false };
    let known = members.place(child.number).and_then(|ino| state.names.inode(ino));
    let is_member = members.roster().certificate(child.number.born()).is_some();
    match known {
        Some(inode) => inode.kind == child.kind,
        None => is_member && (child.number.born() == from || !members.is_born_here(child.number)),
    }
}

/// Whether a name in a directory of its may stand for that, as far as it was born here: how it is
/// called is known, or is just to be known. Else what is done with the name would be done with
/// somebody else's file.
fn may_be_called(state: &State, directory: Option<Thing>, child: &Child) -> bool {
    let Some(members) = state.members.as_ref() else { return false };
    if !members.is_born_here(child.number) {
        return true;
    }
    let ino = Ino(child.number.counted());
    let at = directory.and_then(|thing| members.place(thing.number()));
    let names = state.names.names_of(ino);
    let is_it = |(above, name): &(Ino, Vec<u8>)| Some(*above) == at && *name == child.name;
    members.is_created(ino) || names.iter().any(is_it)
}

/// What a frame wants done: how many things, and how many bytes say so.
fn wants(frame: &Frame) -> (usize, usize) {
    let wants = frame.messages.iter().filter_map(|message| match message {
        Message::Want { work, .. } => Some(work.bytes()),
        _ => None,
    });
    wants.fold((0, 0), |(count, bytes), its| (count + 1, bytes + its))
}

/// A directory that such a member has, or decides, as the tables here have it.
struct Place<'s> {
    state: &'s State,
    from: (Member, &'s Person),
    /// This server decides it.
    is_decided: bool,
    /// What it looks like.
    is: Option<Attributes>,
    /// What its names stand for.
    names: BTreeMap<Vec<u8>, Child>,
}

impl<'s> Place<'s> {
    fn of(state: &'s State, from: (Member, &'s Person), thing: Thing) -> Self {
        let inode = bodies::inode_of(state, thing).ok();
        let is = inode.and_then(|inode| state.attributes(inode.ino));
        // What it has made is his, be it that nobody here has looked at that yet.
        let is = is.filter(|_| thing.number().born() != from.0);
        let names = inode.map(|inode| bodies::children(state, &inode)).unwrap_or_default();
        let names = names.into_iter().map(|child| (child.name.clone(), child)).collect();
        let is_decided = state.members.as_ref().is_some_and(|members| members.decides(thing));
        Place { state, from, is_decided, is, names }
    }

    /// It, if it is somebody else's, who let this one change names in it.
    fn others(&self) -> Option<&Self> {
        self.is.as_ref().filter(|is| is.uid != self.from.1.user).map(|_| self)
    }

    /// Whether nothing but what is his may lose its name here.
    fn is_sticky(&self) -> bool {
        self.is.as_ref().is_some_and(|is| is.mode & STICKY != 0 || !self.from.1.may(is, CHANGE))
    }

    /// Whether he may give names here.
    fn may_name(&self) -> bool {
        self.is.as_ref().is_none_or(|is| self.from.1.may(is, CHANGE))
    }

    /// Whether it is his, as far as is known here.
    fn is_his(&self, child: &Child) -> bool {
        let place = self.state.members.as_ref().and_then(|members| members.place(child.number));
        let inode = place.and_then(|ino| self.state.names.inode(ino));
        let is_his = inode.is_some_and(|inode| inode.attributes().uid == self.from.1.user);
        child.number.born() == self.from.0 || is_his
    }

    /// Whether it may have this name. What is not its own, and was not there, it may have only if
    /// it decides itself what is in it; but no directory, so that none is in two places, and no
    /// file that was born here: its home knows what it is called.
    fn may_have(&self, child: &Child) -> bool {
        let from = self.from.0;
        if !is_named(child) || !is_sound(self.state, from, child) {
            return false;
        }
        let others = self.others().is_some();
        let was_there = self.names.values().any(|known| known.number == child.number);
        if self.names.get(&child.name).is_some_and(|known| known.number == child.number) {
            return true;
        }
        if child.number.born() == from {
            return !others || self.may_name();
        }
        let members = self.state.members.as_ref();
        let is_here = members.is_none_or(|members| members.is_born_here(child.number));
        // How a file is called that was born here is its home's to say.
        if is_here && child.kind == Kind::File {
            return false;
        }
        match was_there {
            true => !others || !self.is_sticky() || self.is_his(child),
            // Who decides the directory knows what is in it; and what was born here, who has it.
            false => !self.is_decided && child.kind != Kind::Directory && !is_here,
        }
    }

    /// What this one may not take away from somebody else's directory stays: its looks, and names
    /// of directories, and, where it is sticky, of anything that is not its own.
    fn stay(&self, directory: &mut Directory) {
        let Some(is) = &self.is else { return };
        let stays = |child: &&Child| {
            let bound = self.is_sticky() || child.kind == Kind::Directory;
            (bound && !self.is_his(child)) || !self.may_name()
        };
        let kept: Vec<_> = self.names.values().filter(stays).cloned().collect();
        let said = directory.names.iter().map(|child| (child.number, child.kind));
        let is_dir = |(number, kind): (Number, Kind)| (kind == Kind::Directory).then_some(number);
        let said: BTreeSet<Number> = said.filter_map(is_dir).collect();
        for child in kept {
            // Where it is not sticky a directory may have got another name in it.
            let moved = !self.is_sticky() && said.contains(&child.number);
            if !moved {
                directory.names.retain(|other| other.name != child.name);
                directory.names.push(child);
            }
        }
        let count = |names: &mut dyn Iterator<Item = &Child>| {
            names.filter(|child| child.kind == Kind::Directory).count() as u32
        };
        let [before, now] = [count(&mut self.names.values()), count(&mut directory.names.iter())];
        let (modified_ns, changed_ns) =
            (directory.attributes.modified_ns, directory.attributes.changed_ns);
        // It may have more than somebody says who has had it.
        directory.whole = false;
        let links = (is.links + now).saturating_sub(before);
        directory.attributes = Attributes { modified_ns, changed_ns, links, ..*is };
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
/// [`ErrorKind::Malformed`] if it says that it is elsewhere than on this machine: others would go
/// there.
pub fn says(state: &mut State, from: Member, said: Control) -> Result<Control> {
    if of(state, from).is_none() {
        return Ok(said);
    }
    let now = state.world.now();
    let members = state.members.as_mut();
    if matches!(said, Control::Here(_)) && members.is_some_and(|its| !its.may_move(from, now)) {
        return Err(Error::new(ErrorKind::Malformed, "it says all the time that it has moved"));
    }
    match said {
        Control::Here(at) if at.iter().any(|at| !at.ip().is_loopback()) => {
            Err(Error::new(ErrorKind::Malformed, "a user's server on another machine"))
        }
        Control::Hands(mut directories) => {
            // Of what nobody has heard of nothing is needed.
            directories.retain(|number| !is_unheard_of(state, Thing::Directory(*number)));
            Ok(Control::Hands(directories))
        }
        said => Ok(said),
    }
}

/// What such a member asks, or says, of a directory that a dead one had: it is told nothing, and
/// knows nothing.
pub fn remembers(state: &State, from: Member, memory: Memory) -> Option<Memory> {
    match memory {
        memory if of(state, from).is_none() => Some(memory),
        Memory::Asks(_) => None,
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
