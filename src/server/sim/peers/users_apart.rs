//! Where each user has a server, each keeps what is his: what there is for machines that keep
//! files for each other is refused, or does not take users' servers for such.

use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::Member;
use terral_format::wire::capability::Principal;
use terral_format::wire::containers::{ContainerName, Quota, Setting};
use terral_format::wire::message::{OpenHow, Reply, Request};
use terral_format::wire::placement::Layout;
use terral_format::{ErrorKind, Result};

use super::fencing::roster;
use super::users::{house, put, roots};
use super::{Peers, member};
use crate::authority::audit::Who;
use crate::core::state::State;
use crate::members::placement;
use crate::requests::handling;
use crate::sharing::containers;
use crate::sim::client::CREATE;

/// All are in, as everybody knows.
fn seated(seed: u64) -> Peers {
    let mut peers = house(seed);
    for sim in &mut peers.sims {
        sim.with(|server| {
            let mut state = server.lock();
            state.record(Membership::Roster(roster(3, 1, &Default::default())));
            state.commit().expect("there is room");
        });
    }
    peers
}

fn kind<T>(done: Result<T>) -> std::result::Result<(), ErrorKind> {
    done.map(drop).map_err(|error| error.kind)
}

#[test]
fn nobodys_files_are_created_on_another_users_server() {
    let mut peers = seated(1);
    for at in 0..3 {
        let of = |server: &crate::shared::Shared| placement::storage_servers(&server.lock());
        let all: Vec<Member> = peers.sims[at].with(of).expect("it lives");
        assert_eq!(all, [member(at)], "{at}");
        for _ in 0..10 {
            match peers.ask(at, Request::Choose).expect("chosen") {
                Reply::Elsewhere(on) => assert_eq!(on, member(at)),
                other => panic!("{other:?}"),
            }
        }
    }
    for (at, path) in [(0, &b"all/f"[..]), (1, b"alice/f"), (2, b"bob/f")] {
        let how = OpenHow { on: Some(member((at + 1) % 3)), ..CREATE };
        let open = peers.open(at, path, how).expect("his own");
        peers.close(open).expect("closed");
        assert_eq!(peers.stat(at, path).expect("there").number.born(), member(at));
    }
}

#[test]
fn roles_and_layouts_are_refused_where_each_user_has_a_server() {
    let mut peers = seated(2);
    let unsupported = Err(ErrorKind::Unsupported);
    for at in 0..3 {
        for stores in [true, false] {
            let done = roots(&mut peers, |state| placement::set_role(state, member(at), stores));
            assert_eq!(kind(done), unsupported, "{at} {stores}");
        }
        let layouts = [Layout::One(member(at)), Layout::Stripe { count: 0, chunks: 1 }];
        for layout in layouts {
            let set = |state: &mut State| placement::set_layout(state, "all/*", Some(layout));
            assert_eq!(kind(roots(&mut peers, set)), unsupported, "{layout:?}");
        }
    }
    for (at, path) in [(0, &b"all/f"[..]), (1, b"alice/f"), (2, b"bob/f")] {
        put(&mut peers, at, path, b"his own");
    }
}

/// Root changes something of containers.
fn change(peers: &mut Peers, number: u64, setting: Setting) -> Result<()> {
    for _ in 0..100 {
        let done = roots(peers, |state| {
            let who = Who { pid: 1, user: state.machine.user() };
            state.fetches.let_wait(true);
            let done = handling::at_the_door(state, number, |state| {
                containers::change(state, who, Principal::User(who.user), setting.clone()).map(drop)
            });
            let waits = state.fetches.must_wait();
            state.fetches.let_wait(false);
            (!waits).then_some(done)
        });
        match done {
            Some(done) => return done,
            None => peers.pass(Duration::from_secs(1)),
        }
    }
    panic!("it waits for ever");
}

#[test]
fn quotas_are_refused_where_each_user_has_a_server() {
    let mut peers = seated(3);
    let name = ContainerName::new("c").expect("is one");
    let create = |quota| Setting::Create {
        name: name.clone(),
        place: b"all".to_vec(),
        owner: None,
        entries: Vec::new(),
        quota,
    };
    let most = Quota { bytes: Some(3 << 20), files: None };
    // Each would have a third of it, also where only root may have anything.
    assert_eq!(kind(change(&mut peers, 1, create(most))), Err(ErrorKind::Unsupported));
    assert_eq!(kind(change(&mut peers, 2, create(Quota::NONE))), Ok(()));
    let bound = |most| Setting::Bound(name.clone(), most);
    assert_eq!(kind(change(&mut peers, 3, bound(most))), Err(ErrorKind::Unsupported));
    assert_eq!(kind(change(&mut peers, 4, bound(Quota::NONE))), Ok(()));
    put(&mut peers, 0, b"all/f", &vec![7; 2 << 20]);
}
