//! One server of the world: its process and what is in its machine's memory, for its clients and
//! for the process after it.

use std::collections::BTreeSet;

use terral_format::ids::{Epoch, Member, Number, Operation, ServerId, Thing};
use terral_format::moment::Moment;

use crate::durable::Durable;
use crate::effect::{Access, Effect, Input, Local};
use crate::machine::Machine;
use crate::members::{Standing, Table, Verdict};

use super::bounds::TERMS;
use super::bytes;
use super::step::Step;

/// How many servers there are.
pub(crate) const SERVERS: usize = 3;
/// How many things there may be.
pub(crate) const THINGS: usize = 2;

/// The member of an index.
pub(crate) fn member(index: usize) -> Member {
    Member::new(index as u16).expect("14 bits")
}

/// The thing of an index, born on the server of the same.
pub(crate) fn thing(index: usize) -> Thing {
    Thing::File(Number::new(member(index), 1).expect("50 bits"))
}

/// The index of a thing.
pub(crate) fn index(thing: Thing) -> usize {
    (0..THINGS).find(|at| self::thing(*at) == thing).expect("there are no other things")
}

/// Whether it is a thing of the world: who does harm speaks of others, too.
pub(crate) fn is_one(thing: Thing) -> bool {
    (0..THINGS).any(|at| self::thing(at) == thing)
}

/// The control's table, once it has removed these, in this order. The heir is the next member that
/// is in then.
pub(crate) fn table(removed: &[(usize, Verdict)]) -> Table {
    let standing = |at: usize| match removed.iter().position(|(one, _)| *one == at) {
        None => Standing::In(ServerId(at as u64)),
        Some(when) => {
            let is_in = |heir: &usize| removed[..when].iter().all(|(one, _)| one != heir);
            let heir = (1..SERVERS).map(|step| (at + step) % SERVERS).find(is_in);
            let heir = member(heir.expect("the last one stays"));
            Standing::Removed { heir, verdict: removed[when].1 }
        }
    };
    let members = (0..SERVERS).map(|at| (member(at), standing(at))).collect();
    Table { epoch: Epoch(1 + removed.len() as u64), members }
}

/// The server's process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Process {
    Up(Machine),
    /// It has died; the memory is there.
    Down(Durable),
    /// The machine is lost.
    Lost,
}

/// Who is changing what, as the server around the machine knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct InUse(pub(crate) [bool; THINGS]);

impl Local for InUse {
    fn in_use(&self, thing: Thing) -> bool {
        is_one(thing) && self.0[index(thing)]
    }
}

/// One server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) process: Process,
    /// What clients may do.
    pub(crate) access: [Access; THINGS],
    /// The deadline word.
    pub(crate) word: Moment,
    /// How many changes have gone into what is here of a thing.
    pub(crate) content: [u8; THINGS],
    pub(crate) in_use: InUse,
    /// What clients are leaving.
    pub(crate) recalling: [bool; THINGS],
    /// Requests that can run.
    pub(crate) ready: BTreeSet<u8>,
    /// What other members want done, and cannot be yet.
    pub(crate) later: Vec<(Operation, Thing)>,
    /// The process has noticed what time it is.
    pub(crate) ticked: bool,
}

impl Server {
    pub(crate) fn new(at: usize) -> Self {
        let durable = Durable::new(member(at), ServerId(at as u64));
        let none = InUse::default();
        let (mut machine, _) = Machine::start(durable, TERMS, Moment(0), &none);
        machine.handle(Moment(0), &none, Input::Table(table(&[])));
        let mut access = [Access::Nothing; THINGS];
        if let Some(own) = access.get_mut(at) {
            *own = Access::Change;
        }
        Server {
            process: Process::Up(machine),
            access,
            word: Moment(0),
            content: [0; THINGS],
            in_use: InUse::default(),
            recalling: [false; THINGS],
            ready: BTreeSet::new(),
            later: Vec::new(),
            ticked: true,
        }
    }

    pub(crate) fn machine(&self) -> Option<&Machine> {
        match &self.process {
            Process::Up(machine) => Some(machine),
            Process::Down(_) | Process::Lost => None,
        }
    }

    /// What outlives the process.
    pub(crate) fn durable(&self) -> Option<&Durable> {
        match &self.process {
            Process::Up(machine) => Some(machine.durable()),
            Process::Down(durable) => Some(durable),
            Process::Lost => None,
        }
    }

    /// What was done so far is written down.
    pub(crate) fn has_written(&mut self) {
        match &mut self.process {
            Process::Up(machine) => _ = machine.take_changes(),
            Process::Down(durable) => _ = durable.take_changes(),
            Process::Lost => {}
        }
    }

    /// The machine takes a step; what it wants is to be done.
    pub(crate) fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        match &mut self.process {
            Process::Up(machine) => machine.handle(now, &self.in_use, input),
            Process::Down(_) | Process::Lost => Vec::new(),
        }
    }

    /// The process dies.
    pub(crate) fn crash(&mut self) {
        if let Process::Up(machine) = &self.process {
            let mut durable = machine.durable().clone();
            durable.borrower.clients_know_nothing();
            self.process = Process::Down(durable);
        }
        self.ready.clear();
        self.later.clear();
        self.recalling = [false; THINGS];
        self.ticked = true;
    }

    /// Another process takes the memory over; what it wants is to be done.
    pub(crate) fn restart(&mut self, now: Moment) -> Vec<Effect> {
        let Process::Down(durable) = &self.process else { return Vec::new() };
        let (machine, effects) = Machine::start(bytes::kept(durable), TERMS, now, &self.in_use);
        for at in 0..THINGS {
            self.access[at] = machine.access(thing(at), now, &self.in_use);
        }
        self.process = Process::Up(machine);
        effects
    }

    /// Whether clients can look at a thing without asking.
    pub(crate) fn shows(&self, thing: usize, now: Moment) -> bool {
        match self.access[thing] {
            Access::Nothing => false,
            Access::Leased => now < self.word,
            Access::Look | Access::Change => true,
        }
    }
}

/// Thing 0 is shown to servers 2 and 1; 1 is removed, and its decider dies.
pub(crate) fn shown_and_removed() -> Vec<Step> {
    let shown = [
        Step::Begin { server: 1, thing: 0, changes: false },
        Step::Deliver { from: 1, to: 0 },
        Step::Deliver { from: 0, to: 1 },
    ];
    let removed = [Step::Remove { server: 1 }, Step::Die { server: 0 }, Step::Remove { server: 0 }];
    [&show(0)[..], &shown, &removed].concat()
}

/// Server 2 looks at a thing, and is shown it; without the last step, that is still on its way.
pub(crate) fn show(thing: usize) -> [Step; 4] {
    [
        Step::Begin { server: 2, thing, changes: false },
        Step::Deliver { from: 2, to: thing },
        Step::Leave { server: thing, thing },
        Step::Deliver { from: thing, to: 2 },
    ]
}
