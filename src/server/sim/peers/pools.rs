//! Machines of which servers of a pool are started, killed at any step, and started again; with the
//! pool's registry, which fails at any call. What `cli/pool` does to find a server its way in, and
//! what `shell/links` says of who is in, this has in few words. Not here: programs, until the pool
//! has come to be (`Pools::serves`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::Result;
use terral_format::disk::partition::Verdict;
use terral_format::ids::{Member, ROOT};
use terral_format::wire::placement::Role;
use terral_format::wire::pool::{Generation, Keys, Stage, read};
use terral_format::wire::roster::{Roster, Secret};
use terral_partition::effect::Input;
use terral_registry::registry::{Lease, Registry, Revision, View};
use terral_store::backing::scripted::Scripted;

use super::keeping::{Trying, Wrong};
use super::{Peers, member};
use crate::core::state::State;
use crate::naming::elsewhere;
use crate::requests::handling;
use crate::sharing::{departing, succeeding};
use crate::shell::keeping::Keeper;
use crate::sim::world::Virtual;
use crate::sim::{Sim, alive};
use entering::Way;

mod beginning;
mod entering;
mod newcomers;
mod passing_on;
mod talking;
mod users;
mod waiting;

pub(super) const AUTHORITY: Option<Role> = Some(Role::Authority);
pub(super) const STORES: Option<Role> = Some(Role::Storage);
/// Longer than a pool takes, be it that who was to have the root never came.
const ROUNDS: usize = 300;

/// What goes wrong with one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is killed as it writes this transaction, or before it does this in the directory.
    Record(u64),
    /// This call of the registry goes so.
    Call(u64, Wrong),
}

/// Each step, of every kind, from the first on.
pub(super) fn each_kind() -> [fn(u64) -> Step; 5] {
    [
        Step::Record,
        |at| Step::Call(at - 1, Wrong::KilledBefore),
        |at| Step::Call(at - 1, Wrong::KilledAfter),
        |at| Step::Call(at - 1, Wrong::Unheard),
        |at| Step::Call(at - 1, Wrong::Unanswered),
    ]
}

/// Does this in such a pool with each step of each kind that goes wrong with a server, until none
/// is left of its kind. What is done says whether it went wrong.
pub(super) fn at_each_step(pool: impl Fn() -> Pools, at: usize, act: impl Fn(&mut Pools) -> bool) {
    for kind in each_kind() {
        let first = (1..200).find(|moment| {
            let step = kind(*moment);
            let did = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut pools = pool();
                pools.goes_wrong(at, step);
                act(&mut pools)
            }));
            !did.unwrap_or_else(|why| {
                println!("{at}: {step:?}");
                std::panic::resume_unwind(why)
            })
        });
        assert!(first.is_some_and(|first| first > 2), "{at} {:?}: {first:?}", kind(1));
    }
}

/// A machine, and the pool's server there.
struct Machine {
    role: Option<Role>,
    /// Somebody wants a server here.
    is_on: bool,
    /// It does nothing, and says nothing.
    is_still: bool,
    anew: bool,
    /// What is in its memory.
    sim: Option<Sim>,
    /// Of which partition that is.
    noted: Option<(u64, u128, Option<Member>)>,
    /// The server lives.
    keeper: Option<Keeper>,
    /// By which key it asks to be let in, and what it shows.
    asks: Option<(String, Secret, Lease)>,
    /// Why the last one has ended by itself.
    why: Option<String>,
    /// It is a user's server, which asks no registry.
    user: Option<users::Of>,
}

impl Machine {
    fn new(role: Option<Role>) -> Self {
        Machine {
            role,
            is_on: false,
            is_still: false,
            anew: false,
            sim: None,
            noted: None,
            keeper: None,
            asks: None,
            why: None,
            user: None,
        }
    }
}

/// All of them.
pub(super) struct Pools {
    registry: Arc<Trying>,
    keys: Keys,
    dir: Scripted,
    machines: Vec<Machine>,
    /// Between which there are sessions.
    sessions: BTreeSet<(usize, usize)>,
    /// What goes wrong next, and with whose server.
    wrong: Option<(usize, Step)>,
    /// The message that is lost, counted from here on, of those about users' servers.
    loses: Option<u64>,
    drawn: u64,
}

impl Pools {
    /// Machines of which servers are for that; nothing is started.
    pub(super) fn new(roles: &[Option<Role>]) -> Self {
        let clock = Arc::new(Virtual::new(1));
        Pools {
            registry: Trying::new(),
            keys: Keys::of("p"),
            dir: Scripted::new(move || crate::core::world::World::wall_ns(&*clock)),
            machines: roles.iter().copied().map(Machine::new).collect(),
            sessions: BTreeSet::new(),
            wrong: None,
            loses: None,
            drawn: 0,
        }
    }

    /// All that there is; nothing is left here.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Pools::new(&[]))
    }

    /// Somebody wants servers there.
    pub(super) fn are_on(&mut self, all: &[usize]) {
        all.iter().for_each(|at| self.machines[*at].is_on = true);
    }

    /// A machine is lost, and its memory.
    pub(super) fn is_lost(&mut self, at: usize) {
        self.dies(at);
        let machine = &mut self.machines[at];
        (machine.is_on, machine.sim, machine.noted) = (false, None, None);
    }

    /// The pool is begun anew by who is there, says a person.
    pub(super) fn is_anew(&mut self, at: usize) {
        self.machines[at].anew = true;
    }

    /// From now on this is about to go wrong.
    pub(super) fn goes_wrong(&mut self, at: usize, step: Step) {
        self.wrong = Some((at, step));
        if let Some(sim) = &self.machines[at].sim {
            arm(sim, self.wrong, at);
        }
    }

    /// Nothing does any more. Whether it has.
    pub(super) fn went_wrong(&mut self) -> bool {
        let left = self.wrong.take();
        if let Some((at, _)) = left {
            self.machines[at].sim.iter().for_each(|sim| sim.kill_at(0));
        }
        left.is_none()
    }

    /// A server does something; if it is killed as it does, it is no more.
    fn on<T>(&mut self, at: usize, act: impl FnOnce(&mut Machine) -> Option<T>) -> Option<T> {
        let calls = match self.wrong {
            Some((with, Step::Call(after, how))) if with == at => Some((after, how)),
            _ => None,
        };
        self.registry.goes_wrong(calls);
        let machine = &mut self.machines[at];
        let done = alive(|| act(machine)).flatten();
        let left = self.registry.goes_wrong(None);
        if calls.is_some() {
            self.wrong = left.map(|(after, how)| (at, Step::Call(after, how)));
        }
        if done.is_none() {
            self.dies(at);
        }
        done
    }

    /// What was in the process is gone.
    fn dies(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        (machine.keeper, machine.asks) = (None, None);
        machine.user.iter_mut().for_each(|of| of.serves = false);
        if let Some(sim) = &mut machine.sim {
            let is_done = sim.moments.left.load(Ordering::SeqCst) == 0;
            if is_done && matches!(self.wrong, Some((with, Step::Record(_))) if with == at) {
                self.wrong = None;
            }
            sim.kill();
        }
        self.sessions.retain(|(one, other)| *one != at && *other != at);
    }

    pub(super) fn is_serving(&self, at: usize) -> bool {
        let machine = &self.machines[at];
        machine.keeper.is_some() || machine.user.as_ref().is_some_and(|of| of.serves)
    }

    fn serving(&self) -> Vec<usize> {
        (0..self.machines.len()).filter(|at| self.is_serving(*at)).collect()
    }

    /// Something of a server that lives.
    fn of<T>(&mut self, at: usize, look: impl FnOnce(&mut State) -> T) -> Option<T> {
        let act = |machine: &mut Machine| machine.sim.as_mut()?.with(|it| look(&mut it.lock()));
        if self.is_serving(at) { self.on(at, act) } else { None }
    }

    /// Who a server is, who it says that the control is, and who is in.
    pub(super) fn known(&mut self, at: usize) -> Option<(Member, Member, Roster)> {
        let known = |state: &mut State| {
            let members = state.members.as_ref()?;
            Some((members.me(), members.control(), members.roster().clone()))
        };
        self.of(at, known).flatten()
    }

    pub(super) fn generation(&self) -> Option<(Generation, Revision)> {
        found(&self.keys, &self.registry.table.below(self.keys.all()).expect("answers"))
    }

    /// A second passes for all.
    pub(super) fn round(&mut self) {
        self.passes();
        self.talk();
    }

    /// The same, and nobody says anything to another one.
    fn passes(&mut self) {
        self.registry.clock_s.fetch_add(1, Ordering::SeqCst);
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            let (is_on, is_still) = (machine.is_on, machine.is_still);
            let is_users = machine.user.is_some();
            match self.is_serving(at) {
                _ if !is_on || is_still => {
                    let sim = self.machines[at].sim.iter();
                    sim.for_each(|sim| sim.world.pass(Duration::from_secs(1)));
                }
                true if self.brings(at).is_some() && !is_users => self.turns(at),
                true => {}
                false if is_users => self.begins(at),
                false => self.enters(at),
            }
        }
    }

    /// So many do.
    pub(super) fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round());
    }

    /// Time passes until this is so, and nobody hears anything.
    fn until_silently(&mut self, what: &str, is: impl Fn(&mut Self) -> bool) {
        for _ in 0..ROUNDS {
            if is(self) {
                return;
            }
            self.passes();
        }
        panic!("{what}: never");
    }

    /// Rounds until this is so.
    pub(super) fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) {
        for _ in 0..ROUNDS {
            if is(self) {
                return;
            }
            self.round();
        }
        let why: Vec<_> = self.machines.iter().map(|one| one.why.clone()).collect();
        let count = self.machines.len();
        let known = |at| self.known(at).map(|(me, now, of)| (me, now, of.version, of.seats.len()));
        let known: Vec<_> = (0..count).map(known).collect();
        panic!("{what}: never; {why:?}; {:?}; {known:?}", self.generation());
    }

    /// A second passes for a server, which brings what it owes.
    fn brings(&mut self, at: usize) -> Option<()> {
        self.on(at, |machine| {
            let sim = machine.sim.as_mut()?;
            let before = sim.killed;
            sim.pass(Duration::from_secs(1));
            (sim.killed == before).then_some(())
        })
    }

    /// The server's thread that keeps its word in the registry has turns, as often as in a second.
    fn turns(&mut self, at: usize) {
        for _ in 0..4 {
            let turned = self.on(at, |machine| {
                let Machine { sim, keeper, .. } = machine;
                let (sim, keeper) = (sim.as_mut()?, keeper.as_mut()?);
                sim.with(|server| keeper.turns(server))
            });
            match turned {
                None => return,
                Some(true) => {}
                Some(false) => return self.ends(at, false),
            }
        }
        let is_over = |state: &mut State| state.finishing && departing::departs(state);
        let is_over = self.of(at, |state| is_over(state) && departing::is_over(state));
        let is_alone = |state: &mut State| {
            state.finishing
                && !departing::departs(state)
                && !departing::must_hand_over(state)
                && state.members.as_ref().is_some_and(|it| it.others().is_empty())
        };
        if is_over == Some(true) || self.of(at, is_alone) == Some(true) {
            self.ends(at, true);
        }
    }

    /// A server ends by itself, in order (`is_over`) or not.
    fn ends(&mut self, at: usize, is_over: bool) {
        self.machines[at].why = self.of(at, |state| state.refused.clone()).flatten();
        let closed =
            self.on(at, |machine| machine.keeper.take().map(|keeper| keeper.close(is_over)));
        self.dies(at);
        let machine = &mut self.machines[at];
        if is_over && closed.is_some() {
            (machine.is_on, machine.sim, machine.noted) = (false, None, None);
        }
    }

    /// A person wants it to end.
    pub(super) fn stops(&mut self, at: usize) -> Result<()> {
        let told = self.of(at, |state| {
            departing::may_end(state, false)?;
            (state.departs, state.finishing) = (true, true);
            Ok(())
        });
        told.unwrap_or(Ok(()))
    }

    /// A person says so on a server, as often as it takes. What is said to that, if anything is.
    pub(super) fn fences(&mut self, at: usize, out: Member) -> Option<Result<()>> {
        self.of(at, |state| {
            state.fetches.let_wait(true);
            let done = handling::at_the_door(state, 1, |state| {
                succeeding::remove(state, out, Verdict::Dead)
            });
            let waits = state.fetches.must_wait();
            state.fetches.let_wait(false);
            (!waits).then_some(done)
        })?
    }

    /// What `terral serve` does there until it serves.
    fn enters(&mut self, at: usize) {
        let (registry, keys, dir) = (self.registry.clone(), self.keys.clone(), self.dir.clone());
        self.drawn += 1;
        let (drawn, wrong) = (self.drawn, self.wrong);
        let entered = self.on(at, |machine| {
            let mut way = Way { registry, keys, dir, at, drawn, wrong, machine, is_killed: false };
            // Who has had no answer waits, and looks again.
            let _ = way.enter();
            (!way.is_killed).then_some(())
        });
        let _ = entered;
    }
}

/// What goes wrong with this server goes wrong.
fn arm(sim: &Sim, wrong: Option<(usize, Step)>, at: usize) {
    if let Some((with, Step::Record(moment))) = wrong
        && with == at
    {
        sim.kill_at(moment as i64);
    }
}

fn found(keys: &Keys, view: &View) -> Option<(Generation, Revision)> {
    let entry = view.entry(&keys.generation())?;
    Some((read(&entry.key, &entry.value).expect("is one"), entry.changed))
}

fn address(of: Member) -> Vec<std::net::SocketAddr> {
    vec![([127, 0, 0, 1], 2000 + of.number()).into()]
}

impl Pools {
    /// All that are wanted are in, and say who is, as the registry does.
    pub(super) fn has_come_to_be(&mut self, all: &[usize]) -> bool {
        let Some((generation, _)) = self.generation() else { return false };
        let Stage::Begun(_) = generation.stage else { return false };
        let known: Vec<_> = all.iter().filter_map(|at| self.known(*at)).collect();
        let Some((_, _, first)) = known.first().cloned() else { return false };
        known.len() == all.len()
            && first.version > 0
            && known.iter().all(|(me, control, roster)| {
                let seat = roster.seat(*me);
                *control == generation.control
                    && *roster == first
                    && roster.is_in(*me)
                    && roster.is_in(*control)
                    && seat.is_some_and(|seat| !seat.addresses.is_empty())
            })
            && self.at_of(generation.control).is_some()
            && self.roots(all).len() == 1
    }

    /// Who has the root.
    pub(super) fn roots(&mut self, all: &[usize]) -> Vec<usize> {
        let has = |state: &mut State| {
            let root = elsewhere::thing_of(state, ROOT)?;
            Some(state.members.as_ref()?.decides(root))
        };
        let all = all.iter().copied();
        all.filter(|at| self.of(*at, has).flatten() == Some(true)).collect()
    }

    /// Programs use it, from all of these servers.
    pub(super) fn serves(mut self, storage: &[usize]) {
        let mut all: BTreeMap<usize, Sim> = BTreeMap::new();
        let mut members = Vec::new();
        let control = self.generation().map(|(now, _)| usize::from(now.control.number()));
        for at in self.serving() {
            let (me, ..) = self.known(at).expect("it lives");
            let sim = self.machines[at].sim.take().expect("it lives");
            all.insert(me.number().into(), sim);
            if storage.contains(&at) {
                members.push(usize::from(me.number()));
            }
        }
        let count = all.keys().max().map_or(0, |most| most + 1);
        let living: BTreeSet<usize> = all.keys().copied().collect();
        let sim = |at| all.remove(&at).unwrap_or_else(|| Sim::without_dir(9000 + at as u64));
        let mut peers = Peers::alone((0..count).map(sim).collect(), Some(self.dir.clone()));
        (0..count).filter(|at| !living.contains(at)).for_each(|at| peers.dies(at));
        peers.clients = vec![usize::MAX; count];
        peers.control = control.expect("there is one");
        members.iter().for_each(|at| peers.clients[*at] = peers.sims[*at].connect());
        for at in &living {
            for with in living.iter().filter(|with| *with != at) {
                peers.tell(*at, Input::Connected(member(*with)));
            }
        }
        peers.settle();
        for at in &members {
            peers.create(*at, format!("of{at}").as_bytes()).expect("made");
        }
        for at in &members {
            for other in &members {
                peers.stat(*at, format!("of{other}").as_bytes()).expect("is there");
            }
        }
    }
}
