//! The role's state: the machine of the protocol, numbers, copies that others have shown, and the
//! requests that need something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use terral_format::disk::membership::{Creation, Membership};
use terral_format::ids::{
    Asker, Ino, Member, Number, Operation, ServerId, SessionSlot, Thing, Wish,
};
use terral_format::wire::body::Body;
use terral_format::wire::moving::{Moving, Of};
use terral_format::wire::peers::{Answer, Work};
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Control, Partition, Roster};
use terral_format::wire::things::Outcome;
use terral_partition::durable::Durable;
use terral_partition::effect::{Access, Effect, Input};
use terral_partition::machine::Machine;
use terral_partition::terms::Terms;

use super::copies::Copy;
use super::numbers::Numbers;
use super::traffic::Traffic;
use crate::core::state::State;
use crate::core::world::Tick;

mod answering;
mod asking_much;
mod coming;
mod counting;
mod creations;
mod deciding;
mod departing;
pub mod gone;
mod here;
mod inviting;
mod keeping;
mod knowing;
mod letting_go;
mod loads;
mod losses;
mod mover;
mod outbox;
mod rostered;
mod settling;
mod transactions;
mod users;
mod whole;
pub(in crate::members) mod wishing;

use answering::Answering;
pub use answering::Matter;
use asking_much::AskingMuch;
use coming::Coming;
use counting::Counting;
use departing::Departing;
use here::Here;
use inviting::Inviting;
use keeping::Keeping;
pub use keeping::Succession;
use letting_go::LettingGo;
pub use loads::Load;
use loads::Loads;
use losses::Losses;
pub use losses::Restoring;
pub(crate) use mover::Mover;
use outbox::Outbox;
pub use settling::Until;
use transactions::Transactions;
pub use transactions::{Doubt, Returning};
use whole::Whole;

/// A directory that was changed so little ago is in use.
const JUST_NOW: Duration = Duration::from_secs(1);

/// A server whose launcher is gone stays so long after others have wanted something of it.
const LATELY: Duration = Duration::from_secs(60);

/// No session has this number.
pub const NOBODY: SessionSlot = SessionSlot(u16::MAX);

/// Something that another member wants done here.
#[derive(Clone, Debug)]
pub struct Served {
    /// By this operation.
    pub operation: Operation,
    /// To this.
    pub thing: Thing,
    /// What.
    pub work: Work,
}

/// How far something that a request needs is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    Waits,
    /// The thing stays until the request has run.
    Ready,
    Over(Answer),
    /// What was looked at did not say.
    Missed,
}

/// Something that a request needs.
pub(super) struct Wished {
    pub(super) asker: Asker,
    pub(super) thing: Thing,
    /// How it looks at that, if it does.
    pub(super) look: Option<Body>,
    pub(super) stage: Stage,
}

/// The server's part in the protocol.
enum Part {
    /// As records left it.
    Replayed(Box<Durable>),
    Runs(Box<Machine>),
}

macro_rules! here {
    ($members:expr, $state:expr) => {
        Here {
            state: $state,
            numbers: &$members.numbers,
            users: &$members.users,
            changed: &$members.changed,
            placement: &$members.roster.placement,
        }
    };
}

/// This server as a member of a partition.
pub struct Members {
    part: Part,
    numbers: Numbers,
    root: Member,
    control: Member,
    partition: Partition,
    roster: Roster,
    /// For whom alone members speak that are not trusted with all, as the roster says.
    users: BTreeMap<Member, Person>,
    /// What is asked of the control for them.
    answering: Answering,
    /// What those have under way here.
    asking_much: AskingMuch,
    /// Whose servers are needed, and have not come.
    coming: Coming,
    /// Which version of the roster counts at each, as they have said to the control.
    knows: BTreeMap<Member, u64>,
    /// Members with whom there is a session.
    connected: BTreeSet<Member>,
    /// The control is to say again who is in.
    asks_control: bool,
    /// Something that a request waits for may be there.
    news: bool,
    /// What others have shown: only the server looks at it.
    copies: BTreeMap<Thing, Arc<Copy>>,
    pub(super) wishes: BTreeMap<Wish, Wished>,
    /// Requests that have met something that is gone by now, and how often.
    pub(super) astray: BTreeMap<Asker, u16>,
    /// Directories that requests need beside those that they ask for by their paths, as was found.
    pub(super) further: BTreeMap<Asker, BTreeSet<Ino>>,
    /// Who is carried out now has met such a thing.
    gone: bool,
    /// Those of requests that a server before this one was asked, and will be asked again.
    left: BTreeSet<Wish>,
    /// What is to be done, in order.
    effects: VecDeque<Effect>,
    /// What is to be sent once the log has what it says.
    outbox: Outbox,
    /// What was changed here lately, and when.
    changed: BTreeMap<Thing, Tick>,
    /// What was kept may go on.
    woken: bool,
    /// For whom something is carried out now, and what is in the tables for that, whoever has it.
    asker: Option<Asker>,
    serves: Option<Thing>,
    /// What others want done, and needs something that is elsewhere, or in the permanent store.
    kept: Vec<Served>,
    /// Files that were born here, and whose names another member's file is about to take.
    adrift: BTreeSet<Ino>,
    /// Files that are created in directories of other members, by the wish for their names.
    creations: BTreeMap<Wish, Creation>,
    counting: Counting,
    letting_go: LettingGo,
    /// What waits for the permanent store.
    postponed: Vec<(Effect, Until)>,
    /// What has waited for it, and is to be done.
    waited: Vec<Effect>,
    /// Directories of which the permanent store has had all that it was owed of names since
    /// programs here could change them without asking this server.
    settled: BTreeSet<Thing>,
    /// A directory that this member moves to another path, if it does.
    pub(crate) mover: Option<Mover>,
    /// By which number the last one was known that this process began.
    pub(super) last_move: u64,
    /// What is to be said of such moves once the log has it.
    said: Vec<(Member, Control)>,
    /// Who was told that this one rests for them, and for which move.
    rests: BTreeMap<Member, u64>,
    /// Since when somebody here waits for what another moves.
    awaited: BTreeMap<Member, Tick>,
    /// No other member is waited for any more.
    abandoned: bool,
    /// When another member has last said something, or asked something of a file.
    heard: Option<Tick>,
    /// When the last session with another one was lost.
    cut_off: Option<Tick>,
    /// How much it has sent.
    traffic: Arc<Traffic>,
    /// Directories of which the tables have all names.
    whole: Whole,
    /// What went with members that are dead.
    losses: Losses,
    departing: Departing,
    inviting: Inviting,
    keeping: Option<Keeping>,
    /// How others are, as they say.
    loads: Loads,
    transactions: Transactions,
}

impl Members {
    /// It has just become one, or a record says so.
    pub fn joined((me, server): (Member, ServerId), root: Member, partition: Partition) -> Self {
        Members {
            part: Part::Replayed(Box::new(Durable::new(me, server))),
            numbers: Numbers::new(me, root),
            root,
            control: root,
            partition,
            roster: Roster::default(),
            users: BTreeMap::new(),
            answering: Answering::default(),
            asking_much: AskingMuch::default(),
            coming: Coming::default(),
            knows: BTreeMap::new(),
            connected: BTreeSet::new(),
            asks_control: false,
            news: false,
            copies: BTreeMap::new(),
            wishes: BTreeMap::new(),
            astray: BTreeMap::new(),
            further: BTreeMap::new(),
            gone: false,
            left: BTreeSet::new(),
            effects: VecDeque::new(),
            outbox: Outbox::default(),
            changed: BTreeMap::new(),
            woken: false,
            asker: None,
            serves: None,
            kept: Vec::new(),
            adrift: BTreeSet::new(),
            creations: BTreeMap::new(),
            counting: Counting::default(),
            letting_go: LettingGo::default(),
            postponed: Vec::new(),
            waited: Vec::new(),
            settled: BTreeSet::new(),
            mover: None,
            last_move: 0,
            said: Vec::new(),
            rests: BTreeMap::new(),
            awaited: BTreeMap::new(),
            abandoned: false,
            heard: None,
            cut_off: None,
            traffic: Arc::default(),
            whole: Whole::default(),
            losses: Losses::default(),
            departing: Departing::default(),
            inviting: Inviting::default(),
            keeping: None,
            loads: Loads::default(),
            transactions: Transactions::default(),
        }
    }

    /// Begins to take part.
    pub(super) fn start(&mut self, state: &State) {
        if let Part::Replayed(durable) = &mut self.part {
            // Records that it was replayed from are written.
            durable.take_changes();
            let here = here!(self, state);
            let durable = (**durable).clone();
            let left = durable.wishes(Wish(0)..=Wish(u64::MAX));
            self.left = left.filter(|wish| !wishing::is_ahead(*wish)).collect();
            let (machine, effects) = Machine::start(durable, Terms::USUAL, here.now(), &here);
            self.losses.began_put_out = effects.contains(&Effect::Expelled);
            self.part = Part::Runs(Box::new(machine));
            self.effects.extend(effects);
        }
    }

    /// Something happened. Gives what is to be written down of it.
    pub(super) fn handle(&mut self, state: &State, input: Input) -> Vec<Membership> {
        if input == Input::Tick {
            let now = state.world.now();
            self.changed.retain(|_, at| now.since(*at) < JUST_NOW);
        }
        let Part::Runs(machine) = &mut self.part else { return Vec::new() };
        let here = here!(self, state);
        self.effects.extend(machine.handle(here.now(), &here, input));
        machine.take_changes().into_iter().map(Membership::Protocol).collect()
    }

    /// What a record says, new or replayed.
    pub fn apply(&mut self, record: &Membership) {
        match record {
            Membership::Protocol(record) => {
                if let Part::Replayed(durable) = &mut self.part {
                    durable.apply(record.clone());
                }
            }
            Membership::Placement(placement) => self.roster.placement.clone_from(placement),
            Membership::Control(member) => self.control = *member,
            Membership::Authorities(of) => self.roster.authorities.clone_from(of),
            Membership::Answers(of) => self.roster.answers.clone_from(of),
            Membership::Policies(policies) => self.roster.policies.clone_from(policies),
            Membership::Certificates(of) => {
                self.users = users::of(of);
                self.look_who_comes();
                self.roster.certificates.clone_from(of);
            }
            Membership::Roster(roster) => {
                self.departing.follows(roster, &self.roster);
                self.are_seated(roster);
                self.losses.begins_anew();
            }
            Membership::Born { ino, number, .. } => self.numbers.born(*ino, *number),
            Membership::Forgotten { ino } => self.numbers.forgotten(*ino),
            Membership::Adrift { ino, is: true } => drop(self.adrift.insert(*ino)),
            Membership::Adrift { ino, is: false } => drop(self.adrift.remove(ino)),
            Membership::Restored { ino, of } => self.losses.was_restored(*ino, *of),
            Membership::Bound { member, instance } => self.inviting.is_bound(*member, *instance),
            Membership::Creates { wish, creation } => self.creates(*wish, creation.as_ref()),
            Membership::Moves(None) => self.mover = None,
            Membership::Moves(Some((moving, owed))) => match &mut self.mover {
                Some(mover) => (mover.asker, mover.owed) = (None, Some(*owed)),
                None => self.mover = Some(Mover::of(moving.clone(), (None, Tick(0)), Some(*owed))),
            },
            Membership::Exchanges { by, back } if *by == self.me() => {
                let mover = self.mover.iter_mut();
                mover.for_each(|mover| mover.moving.back = Some(Box::new(back.clone())));
            }
            record => {
                self.counting.apply(record);
                self.letting_go.apply(record);
                self.transactions.apply(record);
            }
        }
    }

    /// The records that lead here from nothing, but for what is in the tables.
    pub fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let durable = match &self.part {
            Part::Replayed(durable) => durable,
            Part::Runs(machine) => machine.durable(),
        };
        let (me, server, root) = (durable.me(), durable.server(), self.root);
        let partition = self.partition;
        let joined = std::iter::once(Membership::Joined { me, server, root, partition });
        let control = (self.control != root).then_some(Membership::Control(self.control));
        let joined = joined.chain(control);
        let joined = joined.chain(self.rostered());
        let adrift = self.adrift.iter().map(|ino| Membership::Adrift { ino: *ino, is: true });
        let protocol = durable.snapshot().into_iter().map(Membership::Protocol);
        let moves = self.mover.iter().filter_map(|mover| Some((mover.moving.clone(), mover.owed?)));
        let exchanges = move |moving: &Moving| {
            let back = *moving.back.clone()?;
            Some(Membership::Exchanges { by: me, back })
        };
        let moves = moves.flat_map(move |moves| {
            let exchanges = exchanges(&moves.0);
            std::iter::once(Membership::Moves(Some(moves))).chain(exchanges)
        });
        let restored = self.losses.restored().map(|(ino, of)| Membership::Restored { ino, of });
        let files = self.creations().chain(self.counting()).chain(self.transactions.snapshot());
        joined.chain(protocol).chain(adrift).chain(moves).chain(files).chain(restored)
    }

    /// Which member this is.
    pub fn me(&self) -> Member {
        self.numbers.me()
    }

    /// The life of its memory.
    pub fn server(&self) -> ServerId {
        match &self.part {
            Part::Runs(machine) => machine.durable().server(),
            Part::Replayed(durable) => durable.server(),
        }
    }

    /// Who says who is in: where the root was born, or who has taken over from there.
    pub fn control(&self) -> Member {
        self.control
    }

    /// Where the root was born.
    pub fn root(&self) -> Member {
        self.root
    }

    /// What stands for the right to give a directory another parent: a directory that nobody has.
    /// It comes first of all that is taken.
    pub fn moves(&self) -> Option<Thing> {
        Number::new(self.root, 0).map(Thing::Directory)
    }

    /// Which partition it is.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Who is in, as far as is known here.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Whether there is a session with a member.
    pub fn is_connected(&self, member: Member) -> bool {
        self.connected.contains(&member)
    }

    /// Another member says something, or asks something of a file.
    pub fn hears(&mut self, now: Tick) {
        self.heard = Some(now);
    }

    /// Whether one has, not long ago.
    pub fn heard_lately(&self, now: Tick) -> bool {
        self.heard.is_some_and(|at| now.since(at) < LATELY)
    }

    /// Since when there has been no session with any other member, where `begin` is when this
    /// process began.
    pub fn cut_off_since(&self, begin: Tick) -> Option<Tick> {
        if self.is_put_out() {
            return Some(begin);
        }
        self.connected.is_empty().then(|| self.cut_off.unwrap_or(begin))
    }

    /// Whether something that a request waits for may be there. Said once.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether something is to be sent, or said to who waits here.
    pub fn has_frames(&self) -> bool {
        let says = !self.said.is_empty() || self.losses.says() || self.departing.has_said();
        !self.outbox.is_empty() || says || self.asks_control || self.news
    }

    /// Other members that are in and have come; none once this server is alone.
    pub fn others(&self) -> BTreeSet<Member> {
        let Part::Runs(machine) = &self.part else { return BTreeSet::new() };
        if self.abandoned {
            return BTreeSet::new();
        }
        let comes = |member: &Member| {
            self.roster.seat(*member).is_none_or(|seat| !seat.addresses.is_empty())
        };
        let others = machine.durable().members().filter(|member| *member != self.me());
        others.filter(comes).collect()
    }

    /// All others are gone, and what is here is only to be brought.
    pub fn is_abandoned(&mut self) {
        self.abandoned = true;
    }

    /// This is to be said to a member once the log has it.
    pub fn says(&mut self, to: Member, what: Control) {
        self.said.push((to, what));
    }

    /// This server rests for a member, or does not; then it is to be told.
    pub fn rests(&mut self, by: Member, id: Option<u64>) {
        if self.rests.get(&by).copied() == id {
            return;
        }
        self.rests.remove(&by);
        self.awaited.remove(&by);
        if let Some(id) = id {
            self.rests.insert(by, id);
            self.says(by, Control::Moving(Of::Rests(id)));
        }
    }

    /// Somebody waits for what another member moves. Since when anybody does.
    pub fn awaits(&mut self, by: Member, now: Tick) -> Tick {
        *self.awaited.entry(by).or_insert(now)
    }

    /// Whether somebody is to be told that this server rests for these moves; of several nobody is.
    pub fn is_to_rest(&self, moves: &BTreeMap<Member, Moving>) -> bool {
        let unsaid = |(by, moving): (&Member, &Moving)| self.rests.get(by) != Some(&moving.id);
        let mut bring = moves.iter().filter(|(_, moving)| moving.brings);
        bring.next().is_some_and(|one| bring.next().is_none() && unsaid(one))
    }

    /// What is to be said now.
    pub fn take_said(&mut self) -> Vec<(Member, Control)> {
        std::mem::take(&mut self.said)
    }

    /// What waits may go on.
    pub fn go_on(&mut self) {
        (self.woken, self.news) = (true, true);
    }

    /// Numbers of what was born elsewhere.
    pub fn foreign(&self) -> impl Iterator<Item = (Ino, Number)> + '_ {
        self.numbers.foreign()
    }

    /// Whether this member has counted it.
    pub fn is_born_here(&self, number: Number) -> bool {
        number.born() == self.numbers.me()
    }

    /// The number of what is in this place.
    pub fn number(&self, ino: Ino) -> Option<Number> {
        self.numbers.of(ino)
    }

    /// The place of what has this number, if it has one here.
    pub fn place(&self, number: Number) -> Option<Ino> {
        self.numbers.place(number)
    }

    /// Whether a thing has come, and is not in the tables yet: the protocol is ahead of them.
    fn is_arriving(&self, thing: Thing) -> bool {
        let installs =
            |effect: &Effect| matches!(effect, Effect::Install { thing: it, .. } if *it == thing);
        self.effects.iter().any(installs)
    }

    /// What may be done with a thing here without asking.
    pub fn access(&self, thing: Thing, state: &State) -> Access {
        if self.is_arriving(thing) {
            return Access::Nothing;
        }
        let here = here!(self, state);
        match &self.part {
            Part::Runs(machine) => machine.access(thing, here.now(), &here),
            Part::Replayed(_) => Access::Nothing,
        }
    }

    /// Whether the tables say what a thing is: it is nowhere else.
    pub fn has(&self, thing: Thing, state: &State) -> bool {
        if self.is_arriving(thing) {
            return false;
        }
        let here = here!(self, state);
        match &self.part {
            Part::Runs(machine) => machine.has(thing, here.now(), &here),
            Part::Replayed(_) => true,
        }
    }

    /// Whether who decides a thing wants it back, and it is still here.
    pub(super) fn is_recalled(&self, thing: Thing) -> bool {
        matches!(&self.part, Part::Runs(machine) if machine.is_recalled(thing))
    }

    /// Whether another member's file is about to take the name of this one.
    pub fn is_adrift(&self, ino: Ino) -> bool {
        self.adrift.contains(&ino)
    }

    /// All of which that is so.
    pub fn adrift(&self) -> impl Iterator<Item = Ino> + '_ {
        self.adrift.iter().copied()
    }

    /// For whom something is carried out from now on.
    pub fn asks(&mut self, asker: Option<Asker>) {
        (self.asker, self.gone) = (asker, false);
        self.letting_go.begins();
    }

    /// What is served from now on: nobody else changes it meanwhile.
    pub fn serves(&mut self, thing: Option<Thing>) {
        self.serves = thing;
    }

    pub(super) fn is_served(&self, thing: Thing) -> bool {
        self.serves == Some(thing)
    }

    /// For whom something is carried out now.
    pub fn asker(&self) -> Option<Asker> {
        self.asker
    }

    /// The next thing to be done.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// These cannot be done now.
    pub fn put_back(&mut self, effects: Vec<Effect>) {
        effects.into_iter().rev().for_each(|effect| self.effects.push_front(effect));
    }

    /// Whether nothing else is to be done, and something that was kept may go on. Said once.
    pub fn may_go_on(&mut self) -> bool {
        let idle = self.effects.is_empty() && !self.kept.is_empty();
        idle && std::mem::take(&mut self.woken)
    }

    /// It needs something that is elsewhere.
    pub fn keep(&mut self, served: Served) {
        self.kept.push(served);
        self.news = true;
    }

    /// Whether something is.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// What was kept.
    pub fn take_kept(&mut self) -> Vec<Served> {
        std::mem::take(&mut self.kept)
    }

    /// How much it has sent, which who sends counts.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// What another member has shown, as long as nobody changes it.
    pub fn shown(&self, thing: Thing, state: &State) -> Option<&Arc<Copy>> {
        let here = here!(self, state);
        let Part::Runs(machine) = &self.part else { return None };
        self.copies.get(&thing).filter(|_| machine.is_shown(thing, here.now(), &here))
    }

    /// What another member has shown.
    pub fn copy(&self, thing: Thing) -> Option<&Arc<Copy>> {
        self.copies.get(&thing)
    }

    /// Who has shown something has found this in it.
    pub fn learns(&mut self, thing: Thing, outcome: Outcome) {
        if let Some(copy) = self.copies.get_mut(&thing) {
            Arc::make_mut(copy).learns(outcome);
        }
    }

    /// Another member has shown this.
    pub fn is_shown(&mut self, thing: Thing, copy: Copy) {
        self.copies.insert(thing, Arc::new(copy));
    }

    /// What it has shown is nothing any more. False: it was no copy.
    pub fn drop_copy(&mut self, thing: Thing) -> bool {
        self.copies.remove(&thing).is_some()
    }

    /// A thing was changed here.
    pub fn was_changed(&mut self, thing: Thing, now: Tick) {
        self.changed.insert(thing, now);
    }
}

/// Of what a request wants of a thing, whether it only looks.
pub(super) fn looks(work: &Work) -> bool {
    matches!(work, Work::Look(_) | Work::Find(_))
}
