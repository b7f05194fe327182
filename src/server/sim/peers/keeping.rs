//! The control of a pool, whose registry is a table that goes away, and what it decides. The
//! registry's clock is the test's. Not here: etcd, and servers that come into a pool
//! (`tests/pool.rs`).

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::capability::{Operations, Principal, Revocation};
use terral_format::wire::containers::{
    Container, ContainerName, Entry, Group, Party, Quota, Setting,
};
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::placement::Role;
use terral_format::wire::pool::{Generation, Keys, Machine, Stage, inherited, read, rule, write};
use terral_format::wire::principal::PrincipalName;
use terral_format::wire::roster::{Key, Rule};
use terral_format::{Error, ErrorKind, Result, frame};
use terral_registry::embedded::Embedded;
use terral_registry::registry::{Change, Guard, Lease, Registry, Revision, View};
use terral_transport::requests::Taken;

use super::super::Killed;
use super::{Handled, PARTITION, Peers};
use crate::authority::audit::Who;
use crate::members::control;
use crate::requests::handling;
use crate::sharing::{carrying, containers, ruling};
use crate::shell::keeping::Keeper;
use crate::shell::options::Pool;

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Who asks is killed before.
    KilledBefore,
    /// Or after.
    KilledAfter,
    /// Nobody answers, and nothing was done.
    Unheard,
    /// It was done, and that was not answered.
    Unanswered,
    /// He may not.
    Denied,
}

/// A registry that may be away.
pub(super) struct Trying {
    pub(super) table: Embedded,
    away: AtomicBool,
    pub(super) clock_s: Arc<AtomicU64>,
    /// After so many more calls.
    wrong: Mutex<Option<(u64, Wrong)>>,
    /// What changes something is never let through.
    denies: AtomicBool,
    /// Calls so far.
    pub(super) calls: AtomicU64,
}

impl Trying {
    pub(super) fn new() -> Arc<Self> {
        let clock_s = Arc::new(AtomicU64::new(0));
        let now = clock_s.clone();
        let clock = Arc::new(move || Duration::from_secs(now.load(Ordering::SeqCst)));
        Arc::new(Trying {
            table: Embedded::new(clock),
            away: AtomicBool::new(false),
            clock_s,
            wrong: Mutex::default(),
            denies: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        })
    }

    pub(super) fn is_away(&self, is: bool) {
        self.away.store(is, Ordering::SeqCst);
    }

    pub(super) fn denies(&self, is: bool) {
        self.denies.store(is, Ordering::SeqCst);
    }

    /// The call after so many goes wrong. What was to, and did not.
    pub(super) fn goes_wrong(&self, wrong: Option<(u64, Wrong)>) -> Option<(u64, Wrong)> {
        std::mem::replace(&mut *self.wrong.lock().expect("nobody fails with it"), wrong)
    }

    /// What goes wrong with this call.
    fn wrong(&self) -> Option<Wrong> {
        let mut wrong = self.wrong.lock().expect("nobody fails with it");
        let (after, what) = (*wrong)?;
        *wrong = (after > 0).then(|| (after.saturating_sub(1), what));
        (after == 0).then_some(what)
    }

    fn call<T>(&self, act: impl FnOnce(&Embedded) -> Result<T>) -> Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = |kind| Err(Error::new(kind, "the registry"));
        if self.away.load(Ordering::SeqCst) {
            return fails(ErrorKind::Unreachable);
        }
        let wrong = self.wrong();
        match wrong {
            Some(Wrong::KilledBefore) => resume_unwind(Box::new(Killed)),
            Some(Wrong::Unheard) => return fails(ErrorKind::Unreachable),
            Some(Wrong::Denied) => return fails(ErrorKind::Denied),
            _ => {}
        }
        let done = act(&self.table);
        match wrong {
            Some(Wrong::KilledAfter) => resume_unwind(Box::new(Killed)),
            Some(Wrong::Unanswered) => fails(ErrorKind::Unanswered),
            _ => done,
        }
    }
}

impl Registry for Trying {
    fn describe(&self) -> String {
        "the registry".into()
    }

    fn below(&self, prefix: &str) -> Result<View> {
        self.call(|table| table.below(prefix))
    }

    fn commit(&self, guards: &[Guard], changes: &[Change]) -> Result<Option<Revision>> {
        if self.denies.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Denied, "the registry"));
        }
        self.call(|table| table.commit(guards, changes))
    }

    fn grant(&self, term: Duration) -> Result<Lease> {
        self.call(|table| table.grant(term))
    }

    fn keep(&self, lease: Lease) -> Result<bool> {
        self.call(|table| table.keep(lease))
    }

    fn end(&self, lease: Lease) -> Result<()> {
        self.call(|table| table.end(lease))
    }
}

/// The control of a pool, who writes down for it what it decides, and where.
struct Control {
    peers: Peers,
    keeper: Keeper,
    registry: Arc<Trying>,
    keys: Keys,
}

fn machine() -> Machine {
    Machine { host: "a".into(), id: String::new(), boot: "b".into(), user: 0, users: false }
}

impl Control {
    fn new() -> Self {
        let (registry, keys) = (Trying::new(), Keys::of("p"));
        let stage = Stage::Claimed;
        let (control, replaced) = (Member::LEAST, Vec::new());
        let generation =
            Generation { number: 1, by: machine(), token: 7, stage, control, replaced };
        let claim = Change::put(keys.generation(), write(&generation).expect("encodes"));
        let revision = registry.commit(&[], &[claim]).expect("answers").expect("no guard");
        let pool = Pool {
            name: "p".into(),
            keys: keys.clone(),
            registry: registry.clone(),
            generation,
            revision,
            machine: machine(),
            instance: "default".into(),
            principals: None,
            list: "/nowhere".into(),
            machines: "/nowhere/machines".into(),
        };
        let mut peers = Peers::new(3, 1);
        peers.sims[0].with(|server| {
            let mut state = server.lock();
            let members = state.members.as_mut().expect("a member");
            members.is_of_pool(("p".into(), "the registry".into()), 1);
        });
        let mut control = Control { peers, keeper: Keeper::new(pool), registry, keys };
        assert!(control.turns());
        control
    }

    /// Whoever writes down what was decided has a turn. Whether there is another one.
    fn turns(&mut self) -> bool {
        let keeper = &mut self.keeper;
        self.peers.sims[0].with(|server| keeper.turns(server)).expect("it lives")
    }

    /// Something is asked of the server, and not waited for.
    fn asks(&mut self, request: Request<'_>) -> Taken {
        let client = self.peers.clients[0];
        self.peers.sims[0].asking(client, request).expect("encodes")
    }

    /// What it says to that now; nothing if who asked is to wait.
    fn said(&mut self, asked: &Taken) -> Option<Result<()>> {
        let session = self.peers.sims[0].clients[self.peers.clients[0]].session;
        match self.peers.handle(0, session, asked).expect("it lives") {
            Handled::Answer(reply) => Some(match frame::decode(&reply).expect("an answer") {
                Reply::Failed(error) => Err(error),
                _ => Ok(()),
            }),
            _ => None,
        }
    }

    /// Somebody, who has this number at the door, wants a container; nothing if he is to wait.
    fn creates(&mut self, number: u64, name: &str) -> Option<Result<()>> {
        let setting = create(name);
        let done = self.peers.sims[0].with(|server| {
            let mut state = server.lock();
            let who = Who { pid: 1, user: state.machine.user() };
            state.fetches.let_wait(true);
            let done = handling::at_the_door(&mut state, number, |state| {
                containers::change(state, who, Principal::User(who.user), setting).map(drop)
            });
            let waits = state.fetches.must_wait();
            state.fetches.let_wait(false);
            (!waits).then_some(done)
        });
        self.peers.collect(0);
        done.expect("it lives")
    }

    /// Names of the containers that the server goes by, and of those that are written down.
    fn containers(&mut self) -> [Vec<String>; 2] {
        let here = self.peers.sims[0].with(|server| {
            let state = server.lock();
            let all = state.authz.containers.all();
            all.iter().map(|one| one.name.as_str().to_owned()).collect()
        });
        let prefix = self.keys.kept();
        let parts = self.registry.table.below(&prefix).expect("answers").entries.into_iter();
        let parts = parts.map(|entry| (entry.key[prefix.len()..].to_owned(), entry.value));
        let kept = inherited(&parts.collect()).expect("whole").containers;
        let kept = kept.iter().map(|one| one.name.as_str().to_owned());
        [here.expect("it lives"), kept.collect()]
    }

    fn generation(&self) -> (Generation, Revision) {
        let view = self.registry.table.below(&self.keys.generation()).expect("answers");
        let entry = &view.entries[0];
        (read(&entry.key, &entry.value).expect("is one"), entry.changed)
    }
}

fn create(name: &str) -> Setting {
    Setting::Create {
        name: ContainerName::new(name).expect("is one"),
        place: name.as_bytes().to_vec(),
        owner: None,
        entries: vec![Entry { who: Party::Others, may: Operations::READ }],
        quota: Quota::NONE,
    }
}

#[test]
fn what_a_control_decides_is_answered_once_the_registry_has_it() {
    let mut control = Control::new();
    assert_eq!(control.generation().0.stage, Stage::Begun(PARTITION.id));
    assert_eq!(control.creates(1, "results"), None, "it is not written down yet");
    assert_eq!(control.creates(1, "results"), None);
    assert!(control.turns());
    assert_eq!(control.creates(1, "results"), Some(Ok(())));
    let [here, kept] = control.containers();
    assert!(here == kept && kept.contains(&"results".to_owned()), "{here:?} {kept:?}");
}

#[test]
fn without_the_registry_nothing_is_decided_but_what_takes_something_away() {
    let mut control = Control::new();
    let before = control.containers();
    control.registry.is_away(true);
    assert!(control.turns());
    assert_eq!(control.creates(2, "results"), None, "it waits");
    control.peers.pass(Duration::from_secs(7));
    let refused =
        control.creates(2, "results").expect("not for ever").expect_err("nothing is decided");
    assert_eq!(refused.kind, ErrorKind::Unreachable);
    assert!(refused.context.contains("nothing was changed"), "{refused}");
    assert_eq!(control.containers(), before);

    let epoch = |control: &mut Control| {
        control.peers.sims[0].with(|server| server.lock().authz.epoch()).expect("it lives")
    };
    let revoked = epoch(&mut control);
    let whole = Revocation::Operations(Operations::WRITE);
    let asked = control.asks(Request::Revoke(whole));
    assert_eq!(control.said(&asked), None, "it waits");
    assert!(epoch(&mut control) > revoked, "and counts");
    control.peers.pass(Duration::from_secs(7));
    let late = control.said(&asked).expect("not for ever").expect_err("it is not there");
    assert_eq!(late.kind, ErrorKind::Unanswered);

    // Who waits as it comes back is answered, and all is there.
    assert_eq!(control.creates(3, "results"), None);
    control.registry.is_away(false);
    assert!(control.turns());
    assert_eq!(control.creates(3, "results"), None, "it is decided");
    assert!(control.turns());
    assert_eq!(control.creates(3, "results"), Some(Ok(())));
    let [here, kept] = control.containers();
    assert_eq!(here, kept);
}

#[test]
fn a_control_that_was_replaced_writes_nothing_and_ends() {
    let mut control = Control::new();
    let (generation, _) = control.generation();
    let other = Generation { number: 2, token: 8, stage: Stage::Claimed, ..generation };
    let claim = Change::put(control.keys.generation(), write(&other).expect("encodes"));
    control.registry.commit(&[], &[claim]).expect("answers").expect("no guard");
    let before = control.registry.table.below("").expect("answers");
    assert_eq!(control.creates(4, "results"), None);
    // One turn finds that it may not write, the next one why.
    let ended = (0..3).any(|_| !control.turns());
    assert!(ended, "it goes on");
    assert_eq!(control.creates(4, "results"), None, "it was never answered");
    assert_eq!(control.registry.table.below("").expect("answers"), before);
    let why = control.peers.sims[0].with(|server| server.lock().refused.clone());
    assert!(why.flatten().is_some_and(|why| why.contains("begun anew")));
}

#[test]
fn a_control_whose_lease_is_over_is_there_again_before_it_writes() {
    let mut control = Control::new();
    control.registry.clock_s.store(60, Ordering::SeqCst);
    assert_eq!(control.creates(5, "results"), None);
    assert!(control.turns());
    assert_eq!(control.creates(5, "results"), None, "its lease is over");
    assert!(control.turns());
    assert_eq!(control.creates(5, "results"), Some(Ok(())));
    let there = control.registry.table.below(&control.keys.control()).expect("answers");
    assert_eq!(there.entries.len(), 1);
}

#[test]
fn a_registry_that_has_lost_all_ends_nobody_and_has_all_again() {
    let mut control = Control::new();
    assert_eq!(control.creates(6, "results"), None);
    assert!(control.turns());
    assert_eq!(control.creates(6, "results"), Some(Ok(())));
    let all = control.registry.table.below("").expect("answers").entries.into_iter();
    let gone: Vec<Change> = all.map(|entry| Change::Remove(entry.key)).collect();
    control.registry.commit(&[], &gone).expect("answers").expect("no guard");
    for _ in 0..4 {
        control.creates(7, "more");
        assert!(control.turns());
    }
    let [here, kept] = control.containers();
    assert!(here == kept && kept.len() >= 2, "{here:?} {kept:?}");
}

impl Control {
    /// It decides more than one transaction of the registry holds.
    fn decides_much(&mut self) {
        let done = self.peers.sims[0].with(|server| {
            let mut state = server.lock();
            let container = |at: usize| Container {
                name: ContainerName::new(&format!("c{at}")).expect("is one"),
                place: format!("{at}/{}", "x".repeat(4000)).into_bytes(),
                owner: Principal::User(0),
                entries: Vec::new(),
            };
            let group = |at: usize| Group {
                name: PrincipalName::new(&format!("g{at}")).expect("is one"),
                members: (0..80).map(Principal::User).collect(),
            };
            let all = (0..255).map(container).collect();
            containers::heard(&mut state, all, Vec::new(), (0..200).map(group).collect())?;
            let me = Member::LEAST;
            control::is_at(&mut state, me, vec![([127, 0, 0, 1], 1).into()])?;
            control::let_in(&mut state, Key([9; 32]), Some(Role::Authority))?;
            carrying::resume(&mut state)
        });
        done.expect("it lives").expect("there is room");
    }

    /// What it says, and what is written down of that; the list of who says so aside.
    fn both(&mut self) -> [Rule; 2] {
        let said = self.peers.sims[0].with(|server| ruling::said(&server.lock())).flatten();
        let said = Rule { control: None, ..said.expect("it is a member") };
        let prefix = self.keys.kept();
        let parts = self.registry.table.below(&prefix).expect("answers").entries.into_iter();
        let parts = parts.map(|entry| (entry.key[prefix.len()..].to_owned(), entry.value));
        [said, rule(&parts.collect()).expect("whole")]
    }
}

#[test]
fn who_reads_a_version_of_what_was_decided_reads_all_of_it() {
    for how in [Wrong::Unheard, Wrong::Unanswered] {
        let first = (0..40).find(|after| {
            let mut control = Control::new();
            let known = super::fencing::roster(1, 2, &Default::default());
            control.peers.hears_roster(0, &known);
            assert!(control.turns());
            let [before, kept] = control.both();
            assert_eq!(before, kept);
            control.decides_much();
            control.registry.goes_wrong(Some((*after, how)));
            control.turns();
            let [said, kept] = control.both();
            let is_new = kept.roster.version == said.roster.version;
            assert!(!is_new || kept == said, "{how:?} {after}: half of it");
            assert!(is_new || kept.roster == before.roster, "{how:?} {after}: of no version");
            let went_wrong = control.registry.goes_wrong(None).is_none();
            (0..3).for_each(|_| assert!(control.turns()));
            let [said, kept] = control.both();
            assert_eq!(said, kept);
            !went_wrong
        });
        assert!(first.is_some_and(|first| first > 5), "each part by itself: {first:?}");
    }
}
