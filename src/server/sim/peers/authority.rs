//! A pool whose authority does nothing else: it says who is in, and what others decided of names
//! goes to those that keep files. Not here: how it becomes the control of a pool that another
//! server has begun (`succeeding`).

use std::time::Duration;

use terral_format::disk::partition::Standing;
use terral_format::disk::partition::Verdict;
use terral_format::ids::{Member, ROOT};
use terral_format::wire::placement::Role;
use terral_format::wire::roster::{Key, Roster, Seat};
use terral_format::{ErrorKind, Result};

use super::{Peers, member};
use crate::members::{control, placement};
use crate::naming::elsewhere;
use crate::sharing::{carrying, ruling};
use crate::sim::{Sim, client::CREATE};

/// What the servers after the first are for.
type Roles<'r> = &'r [Option<Role>];

impl Peers {
    /// The first begins as the authority; others are let in by it, in this order.
    fn with_authority(seed: u64, roles: Roles<'_>) -> Self {
        let sims = (0..=roles.len()).map(|at| Sim::without_dir(seed * 100 + at as u64)).collect();
        let mut peers = Peers::alone(sims, None);
        peers.sims[0].with(|server| {
            let mut state = server.lock();
            control::begin(&mut state, false, true).expect("random bits");
            carrying::resume(&mut state).expect("it is logged");
        });
        peers.is_at(0);
        for (before, role) in roles.iter().enumerate() {
            peers.comes(before + 1, *role).expect("it is let in");
        }
        peers.clients = peers.sims.iter_mut().skip(1).map(Sim::connect).collect();
        // Nobody asks the first one for anything.
        peers.clients.insert(0, usize::MAX);
        peers.all_know();
        peers.meet();
        peers
    }

    fn is_at(&mut self, at: usize) {
        let addresses = vec![([127, 0, 0, 1], 1).into()];
        self.sims[0].with(|server| {
            let mut state = server.lock();
            control::is_at(&mut state, member(at), addresses.clone()).expect("it is the control");
            carrying::resume(&mut state).expect("it is logged");
        });
    }

    /// One asks to be let in, and comes.
    fn comes(&mut self, at: usize, role: Option<Role>) -> Result<Member> {
        let me = self.is_let_in(at, role)?;
        self.is_at(at);
        Ok(me)
    }

    /// It has not come yet.
    fn is_let_in(&mut self, at: usize, role: Option<Role>) -> Result<Member> {
        let let_in = self.sims[0].with(|server| {
            let mut state = server.lock();
            let invited = control::let_in(&mut state, Key([at as u8; 32]), role);
            carrying::resume(&mut state).expect("it is logged");
            invited
        });
        let invitation = let_in.expect("it lives")?;
        self.sims[at].with(|server| {
            let mut state = server.lock();
            control::accept(&mut state, &invitation);
            carrying::resume(&mut state).expect("it is logged");
        });
        Ok(invitation.me)
    }

    /// All hear what the first one says.
    fn all_know(&mut self) {
        let rule = self.sims[0].with(|server| ruling::said(&server.lock())).flatten();
        let rule = rule.expect("it is a member");
        for at in (1..self.sims.len()).filter(|at| !self.dead.contains(at)).collect::<Vec<_>>() {
            let heard = self.sims[at].with(|server| {
                let mut state = server.lock();
                let rule =
                    terral_format::wire::roster::Rule { control: Some(member(0)), ..rule.clone() };
                ruling::heard(&mut state, rule)?;
                carrying::resume(&mut state)
            });
            heard.expect("it lives").expect("it is logged");
            self.collect(at);
        }
        self.settle();
    }

    fn known(&mut self, at: usize) -> Roster {
        let known = |state: &crate::core::state::State| {
            state.members.as_ref().map(|members| members.roster().clone())
        };
        self.sims[at].with(|server| known(&server.lock())).flatten().expect("it is a member")
    }

    /// Whether one has names of its own: the root, or any other directory.
    fn decides_names(&mut self, at: usize) -> bool {
        let decides = self.sims[at].with(|server| {
            let state = server.lock();
            let mut all = state.names.inodes().filter(|inode| inode.is_directory());
            all.any(|inode| elsewhere::is_here(&state, inode.ino))
        });
        decides.expect("it lives")
    }

    /// The first one removes another.
    fn says_dead(&mut self, out: usize) -> Seat {
        self.dies(out);
        self.sims[0].with(|server| {
            let mut state = server.lock();
            control::remove(&mut state, member(out), Verdict::Dead).expect("it is in");
            carrying::resume(&mut state).expect("it is logged");
        });
        self.collect(0);
        self.all_know();
        self.known(0).seat(member(out)).expect("is known").clone()
    }
}

const STORES: Option<Role> = Some(Role::Storage);

#[test]
fn the_root_is_born_on_the_first_server_that_keeps_files() {
    let mut peers = Peers::with_authority(1, &[STORES, STORES]);
    let root = |peers: &mut Peers, at: usize| {
        let is_here = peers.sims[at].with(|server| elsewhere::is_here(&server.lock(), ROOT));
        is_here.expect("it lives")
    };
    assert_eq!([0, 1, 2].map(|at| root(&mut peers, at)), [false, true, false]);
    peers.make_directory(2, b"d").expect("made");
    for at in [1, 2] {
        peers.create(at, format!("d/of{at}").as_bytes()).expect("made");
        peers.create(at, format!("of{at}").as_bytes()).expect("made");
    }
    for at in [1, 2] {
        for path in [&b"d/of1"[..], b"d/of2", b"of1", b"of2"] {
            assert!(peers.stat(at, path).is_ok(), "{at} {path:?}");
        }
    }
    peers.pass(Duration::from_secs(3));
    assert!(!peers.decides_names(0), "it decides none");
    let storage = peers.sims[0].with(|server| placement::storage_servers(&server.lock()));
    assert_eq!(storage, Some(vec![member(1), member(2)]));
}

#[test]
fn who_keeps_no_files_waits_until_the_root_is_somewhere() {
    let mut peers = Peers::with_authority(2, &[]);
    let sims = (1..4).map(|at| Sim::without_dir(300 + at));
    peers.sims.extend(sims);
    for role in [None, Some(Role::Compute), Some(Role::Authority)] {
        let said = peers.comes(1, role).expect_err("it is to wait");
        assert!(said.kind == ErrorKind::Busy && said.context.contains("--role storage"), "{said}");
    }
    assert_eq!(peers.comes(1, STORES), Ok(member(1)));
    assert_eq!(peers.comes(2, Some(Role::Authority)), Ok(member(2)));
    assert_eq!(peers.comes(3, None), Ok(member(3)));
    let roster = peers.known(0);
    assert_eq!(roster.authorities, [member(0), member(2)]);
    assert_eq!(roster.placement.storage, Some(vec![member(1)]));
    for (role, is) in [(0, false), (2, false), (3, true)] {
        let given = peers.sims[0]
            .with(|server| placement::set_role(&mut server.lock(), member(role), true).is_ok());
        assert_eq!(given, Some(is), "{role}");
    }
}

#[test]
fn who_was_to_have_the_root_and_never_came_is_not_waited_for_for_long() {
    let mut peers = Peers::with_authority(5, &[]);
    let sims = (1..4).map(|at| Sim::without_dir(600 + at));
    peers.sims.extend(sims);
    peers.homes.extend((1..4).map(super::relay::Home::new));
    peers.killed.extend([0; 3]);
    assert_eq!(peers.is_let_in(1, STORES), Ok(member(1)));
    let missed = |peers: &mut Peers, after_s: u64| {
        peers.sims[0].world.pass(Duration::from_secs(after_s));
        peers.sims[0].with(|server| control::is_missed(&mut server.lock())).expect("it lives")
    };
    let after: [_; 2] = [1, 600].map(|after_s| missed(&mut peers, after_s));
    assert_eq!(after, [None; 2], "nobody else could have it");
    assert_eq!(peers.comes(2, Some(Role::Compute)), Ok(member(2)));
    assert_eq!(missed(&mut peers, 1), None, "who keeps no files is not to have it");
    assert_eq!(peers.comes(3, STORES), Ok(member(3)));
    assert_eq!(missed(&mut peers, 1), Some(member(1)));
    peers.says_dead(1);
    let heir = peers.known(0).seat(member(1)).map(|seat| seat.standing);
    assert!(matches!(heir, Some(Standing::Removed { heir, .. }) if heir == member(3)));
    let clients = [2, 3].map(|at: usize| peers.sims[at].connect());
    peers.clients.extend([usize::MAX, clients[0], clients[1]]);
    peers.meet();
    peers.create(3, b"f").expect("made");
    assert!(peers.stat(2, b"f").is_ok() && !peers.decides_names(0));
}

#[test]
fn what_a_lost_server_decided_goes_to_who_keeps_files() {
    let mut peers = Peers::with_authority(3, &[STORES, Some(Role::Compute), STORES]);
    peers.make_directory(1, b"d").expect("made");
    for at in [1, 3] {
        peers.create(at, format!("d/of{at}").as_bytes()).expect("made");
    }
    peers.create(3, b"of3").expect("made");
    peers.stat(2, b"d/of3").expect("there");
    peers.pass(Duration::from_secs(3));
    let seat = peers.says_dead(1);
    assert!(matches!(seat.standing, Standing::Removed { heir, .. } if heir == member(3)));
    for at in [2, 3] {
        for path in [&b"d/of3"[..], b"of3"] {
            assert!(peers.stat(at, path).is_ok(), "{at} {path:?}");
        }
    }
    let open = peers.open(3, b"d/new", CREATE).expect("made");
    peers.close(open).expect("closed");
    assert!(peers.stat(2, b"d/new").is_ok());
    assert!(!peers.decides_names(0), "it decides none");
    // Who comes then learns who has the root.
    peers.sims.push(Sim::without_dir(777));
    let killed = &mut peers.killed;
    killed.push(0);
    peers.homes.push(super::relay::Home::new(4));
    assert_eq!(peers.comes(4, STORES), Ok(member(4)));
    let heir = peers.known(4).seat(member(1)).map(|seat| seat.standing);
    assert!(matches!(heir, Some(Standing::Removed { heir, .. }) if heir == member(3)), "{heir:?}");
}

#[test]
fn no_program_is_served_by_the_authority() {
    let mut peers = Peers::with_authority(4, &[STORES]);
    let said = peers.sims[0].try_connect().expect_err("it serves none");
    assert!(said.kind == ErrorKind::Unsupported && said.context.contains("serves no"), "{said}");
    assert!(peers.sims[1].try_connect().is_ok());
}
