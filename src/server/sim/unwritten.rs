//! What clients see of a server that dies before it has written what it did: nothing that the next
//! one knows nothing of, and upon which they act without asking.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::{FileSlot, Ino, ROOT};
use terral_format::local::names::Lookup;
use terral_format::wire::message::{RenameHow, Request, Target};

use super::Sim;
use super::client::{CREATE, READ};
use crate::requests::handling;
use crate::requests::handling::Outcome;

/// Asks once. False: the server was killed before it answered.
fn answers(sim: &mut Sim, client: usize, request: Request<'_>) -> bool {
    let killed = sim.killed;
    let session = sim.clients[client].session;
    let taken = sim.asking(client, request).expect("it fits");
    while sim.killed == killed {
        match sim.with(|server| handling::handle(&mut server.lock(), session, &taken)) {
            Some(Outcome::Answer(_)) => return true,
            Some(_) => sim.fetch_needed(Duration::ZERO),
            None => {}
        }
    }
    false
}

/// What has a name, and its record.
type There = Option<(Ino, Option<FileSlot>)>;

/// What a client that looks now finds under a name, if it may act upon that without asking.
fn seen(sim: &Sim, name: &[u8]) -> Option<There> {
    let memory = &sim.memory;
    let found = match memory.names().lookup(ROOT, name) {
        Lookup::Found(inode) => Some((inode.ino, inode.slot)),
        Lookup::Missing => None,
        Lookup::Unsure => return None,
    };
    (memory.gate().load(Ordering::SeqCst) == 0).then_some(found)
}

/// What the server has under it.
fn known(sim: &Sim, name: &[u8]) -> There {
    let server = sim.server.as_ref().expect("one that serves").lock();
    let inode = server.names.child_here(ROOT, name).and_then(|ino| server.names.inode(ino))?;
    Some((inode.ino, inode.slot))
}

/// Has a server killed at every moment of a request; when it is carried out, there is something
/// under that name, or not.
fn killed_at_each_moment(first: Option<Request<'_>>, request: Request<'_>, then: (&[u8], bool)) {
    for moment in 1.. {
        let mut sim = Sim::new(1);
        sim.dir.put(b"there", b"bytes").expect("an empty store");
        let client = sim.connect();
        first.map(|first| sim.ask(client, first).expect("it is there"));
        sim.kill_at(moment);
        let answered = answers(&mut sim, client, request);
        let seen = seen(&sim, then.0);
        if answered {
            assert!(moment > 2, "it was never killed");
            assert_eq!(seen, Some(known(&sim, then.0)));
            assert_eq!(seen.flatten().is_some(), then.1);
            break;
        }
        sim.start();
        if let Some(there) = seen {
            assert_eq!(there, known(&sim, then.0), "killed at moment {moment}");
        }
    }
}

#[test]
fn nobody_opens_a_file_of_which_the_next_server_knows_nothing() {
    let stat = Request::Stat(Target::Path(b"there"));
    let open = Request::Open { path: b"there", how: READ };
    killed_at_each_moment(None, open, (b"there", true));
    killed_at_each_moment(Some(stat), open, (b"there", true));
}

#[test]
fn nobody_acts_upon_a_name_that_the_next_server_has_not() {
    let create = Request::Open { path: b"new", how: CREATE };
    killed_at_each_moment(None, create, (b"new", true));
    let stat = Some(Request::Stat(Target::Path(b"there")));
    let renamed = Request::Rename { from: b"there", to: b"new", how: RenameHow::Replace };
    killed_at_each_moment(stat, renamed, (b"new", true));
    killed_at_each_moment(stat, renamed, (b"there", false));
    killed_at_each_moment(stat, Request::Unlink(b"there"), (b"there", false));
}
