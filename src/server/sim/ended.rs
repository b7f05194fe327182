//! What becomes of requests whose process has ended before they were carried out: nothing that
//! others could see.

use std::time::Duration;

use terral_format::ids::ROOT;
use terral_format::wire::message::{RenameHow, Request, Target};

use super::Sim;
use super::client::CREATE;
use crate::requests::handling::{self, Outcome};

/// Whether a name is there.
fn is_there(sim: &Sim, name: &[u8]) -> bool {
    let state = sim.server.as_ref().expect("one that serves").lock();
    state.names.child_here(ROOT, name).is_some()
}

#[test]
fn who_has_ended_moves_makes_and_removes_nothing_any_more() {
    let mut sim = Sim::new(1);
    let client = sim.connect();
    let opened = sim.open(client, b"a", CREATE).expect("a new file");
    sim.close(client, opened).expect("is open");
    let renamed = Request::Rename { from: b"a", to: b"b", how: RenameHow::Replace };
    let asked = [renamed, Request::Unlink(b"a"), Request::Open { path: b"new", how: CREATE }]
        .map(|request| sim.asking(client, request).expect("it fits"));
    let session = sim.clients[client].session;
    sim.machine.end(sim.clients[client].pid);
    for taken in &asked {
        let outcome = sim.with(|server| handling::handle(&mut server.lock(), session, taken));
        assert!(matches!(outcome, Some(Outcome::Answer(_))));
        assert_eq!(
            [&b"a"[..], b"b", b"new"].map(|name| is_there(&sim, name)),
            [true, false, false]
        );
    }
}

#[test]
fn who_ends_while_his_request_waits_for_the_store_changes_nothing_any_more() {
    // A store that is far: nobody has it asked while he waits.
    let mut sim = Sim::new(2);
    sim.dir.put(b"there", b"bytes").expect("an empty store");
    let client = sim.connect();
    let session = sim.clients[client].session;
    let taken = sim.asking(client, Request::Unlink(b"there")).expect("it fits");
    let ask =
        |sim: &mut Sim| sim.with(|server| handling::handle(&mut server.lock(), session, &taken));
    assert!(matches!(ask(&mut sim), Some(Outcome::Fetch)));
    sim.machine.end(sim.clients[client].pid);
    sim.fetch_needed(Duration::ZERO);
    assert!(matches!(ask(&mut sim), Some(Outcome::Answer(_))));
    let other = sim.connect();
    sim.ask(other, Request::Stat(Target::Path(b"there"))).expect("it is there still");
}
