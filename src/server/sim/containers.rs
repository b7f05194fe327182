//! Containers of one server that is killed at each moment of a change: what was answered counts,
//! what was not has happened or not, and whoever has a file open is told to ask again.
//! Not here: what containers allow (`authority/containers`).

use std::sync::atomic::Ordering;

use terral_format::wire::capability::{Operations, Principal};
use terral_format::wire::containers::{ContainerName, Entry, Party, Setting};
use terral_format::wire::message::Request;
use terral_format::{ErrorKind, Result};

use super::Sim;
use super::client::{CREATE, Opened};
use crate::authority::audit::Who;
use crate::authority::authn::Most;
use crate::shared::Shared;
use crate::sharing::containers;

fn pilot() -> Principal {
    "key:pilot".parse().expect("is one")
}

/// A client that has logged in, with a file that it has open.
fn logged_in(sim: &mut Sim) -> (usize, Opened) {
    let client = sim.connect();
    let issued = sim.with(|server| {
        let state = server.lock();
        let operations = Operations::ALL.without(Operations::ADMIN);
        let until_s = state.world.wall_s() + 3600;
        let most = Most { principal: pilot(), operations, below: Vec::new(), until_s };
        state.authz.issue(&*state.world, &most)
    });
    sim.clients[client].capability = issued.expect("it lives").expect("issues");
    sim.present(client, None).expect("is good");
    (client, sim.open(client, b"a", CREATE).expect("opens"))
}

/// The pilot may this with files; `None`: the server has died in it.
fn set(sim: &mut Sim, may: Operations) -> Option<Result<()>> {
    sim.with(|server| {
        let mut state = server.lock();
        let who = Who { pid: 1, user: state.machine.user() };
        let entries = vec![Entry { who: Party::Others, may }];
        let setting = Setting::Set { name: ContainerName::new("default")?, entries };
        containers::change(&mut state, who, Principal::User(who.user), setting).map(drop)
    })
}

/// Whether the pilot may write to the file, and how often containers have changed.
fn seen(sim: &mut Sim, (client, open): (usize, Opened)) -> (bool, u64) {
    let word = |server: &Shared| server.lock().storage.memory().containers().load(Ordering::SeqCst);
    let before = sim.with(word).expect("it lives");
    let done = sim.ask(client, Request::Use { file: open.file, access: 2 });
    let may = match done.map_err(|error| error.kind) {
        Ok(_) => true,
        Err(ErrorKind::Denied) => false,
        Err(other) => panic!("{other:?}"),
    };
    // A client takes the count first: what it is let do counts no longer than that.
    (may, before)
}

#[test]
fn a_change_counts_once_it_is_answered_wherever_the_server_is_killed() {
    let mut died = 0;
    for moment in 1..24 {
        let mut sim = Sim::new(moment);
        let pilot = logged_in(&mut sim);
        assert_eq!(seen(&mut sim, pilot), (true, 0));
        let mut before = (true, 0);
        for turn in 0..6 {
            let wishes = turn % 2 != 0;
            let may =
                if wishes { Operations::READ.and(Operations::WRITE) } else { Operations::READ };
            sim.kill_at(moment as i64);
            let done = set(&mut sim, may);
            sim.kill_at(0);
            let now = seen(&mut sim, pilot);
            match done {
                Some(done) => {
                    done.expect("the log has room");
                    assert_eq!(now.0, wishes, "{moment}, {turn}: it was answered");
                    assert!(now.1 > before.1, "{moment}, {turn}: nobody asks again");
                }
                None => died += 1,
            }
            assert!(now.0 == before.0 || now.1 > before.1, "{moment}, {turn}: nobody asks again");
            if turn == 3 {
                sim.with(|server| server.lock().rewrite_log());
                sim.kill();
                assert_eq!(seen(&mut sim, pilot).0, now.0, "{moment}: the log was cut short");
            }
            before = seen(&mut sim, pilot);
        }
    }
    assert!(died > 0, "it never died in a change");
}
