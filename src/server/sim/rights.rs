//! Capabilities of simulated clients: presented, also such as run out, and what a client may do
//! without asking, as its page says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::size::SizeWord;
use terral_format::wire::capability::{Caveat, Revocation};
use terral_format::wire::message::{Presentation, Reply, Request, Target};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result, frame};

use super::Sim;
use super::client::CREATE;
use super::deferring::{Begun, Progress, Wish};
use super::writing::Wrote;
use crate::core::world::World;

const SECOND_NS: u64 = 1_000_000_000;

/// Whether that is what somebody gets who has nothing good to present, and no EPERM of Linux.
pub fn is_refused(error: &Error) -> bool {
    error.kind == ErrorKind::Unauthorized && error.errno == 0
}

impl Sim {
    /// A client presents what it was given, for so many seconds more, or for as long as it lasts.
    ///
    /// # Errors
    /// As the server says.
    pub fn present(&mut self, client: usize, for_s: Option<u64>) -> Result<()> {
        let whole = self.clients[client].capability.clone();
        let now_s = self.world.wall_ns() / SECOND_NS;
        let until_s = for_s.map(|more| now_s + more);
        let capability = match until_s {
            Some(until_s) => whole.attenuate(Caveat::Until(until_s))?,
            None => whole,
        };
        let person = self.clients[client].person.clone();
        let presented = frame::encode(&Presentation { capability, person })?;
        match self.ask(client, Request::Present(&presented))? {
            Reply::Handle(handle) => {
                let asker = &mut self.clients[client];
                (asker.authority, asker.until_s) = (handle, until_s);
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    /// A client goes by what this handle stands for.
    pub fn goes_by(&mut self, client: usize, handle: u32) {
        self.clients[client].authority = handle;
    }

    /// What a client was given is revoked by another one, and the client gets a new one. What it
    /// has presented is over until it presents that.
    ///
    /// # Errors
    /// As the server says; then it may have been revoked or not, and the client has a new one, too.
    pub fn revoke(&mut self, by: usize, client: usize) -> Result<()> {
        let serial = self.clients[client].capability.grant.serial;
        let revoked = self.ask(by, Request::Revoke(Revocation::Serial(serial)));
        if revoked.is_ok() {
            self.clients[client].until_s = Some(0);
        }
        self.clients[client].capability = self.issue()?;
        match revoked? {
            Reply::Revoked { .. } => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    /// A client acts as another user from now on.
    pub fn become_user(&mut self, client: usize, user: u32) {
        self.clients[client].person = Person { user, group: user, groups: vec![] };
        self.present(client, None).expect("what it was given lasts");
    }

    /// Whether what a client has presented has run out.
    pub fn is_over(&self, client: usize) -> bool {
        let until_s = self.clients[client].until_s;
        until_s.is_some_and(|until_s| self.world.wall_ns() / SECOND_NS >= until_s)
    }

    /// Whether a client finds in its page that what it has presented lasts: it need not ask then.
    pub(super) fn lasts(&self, client: usize) -> bool {
        let page = self.clients[client].page.page();
        let lasts = || self.world.wall_ns() < page.until_ns.load(Ordering::SeqCst);
        page.operations.load(Ordering::SeqCst) != 0 && lasts()
    }

    /// What was presented counts as long as it lasts, and no longer.
    pub(super) fn check_rights(&self, client: usize, over: bool, answer: &Result<Reply>) {
        let refused = answer.as_ref().is_err_and(is_refused);
        assert!(refused || !over, "client {client} had nothing left to present: {answer:?}");
        assert!(
            !refused || self.is_over(client),
            "what client {client} has presented lasts: {answer:?}"
        );
    }
}

#[test]
fn who_may_not_finish_an_append_gives_its_ticket_up() {
    let mut sim = Sim::new(1);
    let (one, other) = (sim.connect(), sim.connect());
    let log = sim.open(one, b"log", CREATE).expect("an empty store").file;
    sim.present(one, Some(1)).expect("it lasts for a second");
    let mut append = sim.appending(one, log, &vec![1; 2 * CHUNK_BYTES as usize]);
    while sim.go_on_writing(&mut append).expect("it may") != Wrote::Shown {}
    sim.pass(Duration::from_secs(2));
    let refused = loop {
        if let Err(error) = sim.go_on_writing(&mut append) {
            break error;
        }
    };
    assert!(is_refused(&refused), "{refused:?}");
    assert_eq!(sim.memory.header(log.slot).ticket().load(Ordering::SeqCst), 0);
    let mut append = sim.appending(other, log, b"shown");
    while sim.go_on_writing(&mut append).expect("nothing is in its way") != Wrote::Over {}
    assert_eq!(
        SizeWord::load(sim.memory.header(log.slot).size()).size(),
        5,
        "nothing else has been appended"
    );
}

/// Goes on with a deferred change to its end; whether it has happened.
fn happens(sim: &mut Sim, begun: &mut Begun) -> bool {
    loop {
        match sim.go_on(begun) {
            Progress::Going | Progress::Happened => {}
            Progress::Refused => return false,
            Progress::Over => return true,
        }
    }
}

#[test]
fn what_is_deferred_before_a_revocation_counts_and_nothing_after_it_whenever_a_server_dies() {
    let mut killed = 0;
    for moment in 0..12 {
        let mut sim = Sim::without_dir(1);
        let (one, other) = (sim.connect(), sim.connect());
        sim.fetch(one).expect("an empty store");
        sim.fetch(other).expect("an empty store");
        let create = |name: &[u8]| Wish::Create(name.to_vec());
        let mut early = sim.begin(one, create(b"early")).expect("nothing is in its way");
        assert!(happens(&mut sim, &mut early));
        let mut late = sim.begin(one, create(b"late")).expect("nothing is in its way");
        assert!(matches!(sim.go_on(&mut late), Progress::Going));

        let gone = sim.clients[one].capability.clone();
        sim.kill_at(moment);
        sim.revoke(other, one).expect("it may");
        sim.kill_at(-1);
        sim.clients[one].capability = gone;

        assert!(!happens(&mut sim, &mut late), "{moment}: it is refused");
        assert!(sim.begin(one, create(b"later")).is_none(), "{moment}: nothing begins");
        let look = |path| Request::Stat(Target::Path(path));
        for _ in 0..2 {
            sim.ask(one, look(b"early")).expect_err("it was revoked");
            sim.present(one, None).expect_err("for ever");
            sim.ask(other, look(b"early")).expect("it was answered");
            sim.ask(other, look(b"late")).expect_err("it was refused");
            sim.kill();
        }
        let mut others = sim.begin(other, create(b"others")).expect("nothing is in its way");
        assert!(happens(&mut sim, &mut others), "{moment}: others go on");
        killed += sim.killed.saturating_sub(2);
    }
    assert!(killed > 1, "none died in between");
}
