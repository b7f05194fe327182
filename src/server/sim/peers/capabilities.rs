//! What a job's capabilities cost who issues them, as counted in the frames that reach him; and
//! what a server believes of one that was made of another.
//!
//! Not here: how they are signed (`format`), and the rules of the lease (`authority/lease`).

use std::time::Duration;

use terral_format::wire::capability::{Capability, Caveat, Operations, Revocation, Revoked};
use terral_format::wire::message::{Presentation, Reply, Request, Target};
use terral_format::wire::peers::{Frame, Message, Work};
use terral_format::wire::person::Person;
use terral_format::wire::things::{By, Look};
use terral_format::{ErrorKind, Result, frame};
use terral_transport::requests::Taken;

use super::{Handled, Peers};
use crate::core::world::World;
use crate::requests::handling;
use crate::sharing::{leasing, revoking};

/// Of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// To be issued.
    issued: u64,
    /// Whether one is good.
    verified: u64,
    /// Whether something was revoked.
    renewed: u64,
}

impl Peers {
    /// Counts what a frame asks of capabilities.
    pub(super) fn count_authority(&mut self, way: (usize, usize), frame: &Frame) {
        for message in &frame.messages {
            let Message::Want { work: Work::Find(body) | Work::Look(body), .. } = message else {
                continue;
            };
            let Ok(By { what, .. }) = By::<Look>::of(body) else { continue };
            let counted = self.authority.entry(way).or_default();
            match what {
                Look::Issue(..) => counted.issued += 1,
                Look::Verify(_) => counted.verified += 1,
                Look::Revoked => counted.renewed += 1,
                _ => {}
            }
        }
    }

    /// What has reached the first server from another one.
    fn counted(&self, from: usize) -> Counted {
        self.authority.get(&(from, 0)).copied().unwrap_or_default()
    }

    /// A capability for a job, as somebody gets it on a server.
    pub(super) fn got(&mut self, at: usize) -> Capability {
        for _ in 0..100 {
            let issued = self.sims[at].with(|server| {
                let mut state = server.lock();
                let who = crate::authority::peer::Peer { own: 0 }.identity(0).expect("is one");
                let most = who.most(state.world.wall_s(), &Default::default()).expect("is some");
                state.fetches.let_wait(true);
                let done =
                    handling::at_the_door(&mut state, 1, |state| leasing::issue(state, &most));
                state.fetches.must_wait();
                state.fetches.let_wait(false);
                done
            });
            self.collect(at);
            if let Some(Ok(capability)) = issued {
                return capability;
            }
            self.settle();
        }
        panic!("nobody issues one")
    }

    /// The roster that goes with it comes to a server.
    fn hears_what_was_revoked(&mut self, at: usize) {
        let revoked = self.sims[0].with(|server| server.lock().authz.all_revoked().collect());
        let revoked: Vec<Revoked> = revoked.expect("it lives");
        let heard = self.sims[at]
            .with(|server| revoking::heard(&mut server.lock(), revoked.clone()))
            .expect("it lives");
        heard.expect("it is logged");
    }

    /// A client is about to present one.
    fn presenting(&mut self, at: usize, client: usize, capability: &Capability) -> Taken {
        let (capability, person) = (capability.clone(), Person::default());
        let presented = frame::encode(&Presentation { capability, person }).expect("encodes");
        self.sims[at].asking(client, Request::Present(&presented)).expect("encodes")
    }

    /// A client presents one, and goes by it.
    pub(super) fn presents(
        &mut self,
        at: usize,
        client: usize,
        capability: &Capability,
    ) -> Result<()> {
        let (capability, person) = (capability.clone(), Person::default());
        let presented = frame::encode(&Presentation { capability, person })?;
        match self.ask_as(at, client, Request::Present(&presented))? {
            Reply::Handle(handle) => self.sims[at].goes_by(client, handle),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    /// So many programs begin on a server at once, which present these, each one.
    fn begin_all(&mut self, at: usize, count: usize, which: impl Fn(usize) -> Capability) {
        let mut waiting = Vec::new();
        for number in 0..count {
            let client = self.sims[at].connect();
            let taken = self.presenting(at, client, &which(number));
            waiting.push((client, taken));
        }
        let mut rounds = 0;
        while !waiting.is_empty() {
            rounds += 1;
            assert!(rounds < 100, "{} wait for ever", waiting.len());
            let mut left = Vec::new();
            for (client, taken) in waiting {
                let session = self.sims[at].clients[client].session;
                match self.handle(at, session, &taken).expect("it lives") {
                    Handled::Answer(reply) => {
                        let reply = frame::decode(&reply).expect("an answer");
                        assert!(matches!(reply, Reply::Handle(_)), "{reply:?}");
                        self.sims[at].end(client);
                    }
                    Handled::Fetch => left.push((client, taken)),
                    Handled::Park => panic!("there is memory"),
                }
            }
            waiting = left;
            self.settle();
        }
    }
}

fn only(parent: &Capability, operations: Operations) -> Capability {
    parent.attenuate(Caveat::Only(operations)).expect("encodes")
}

/// The narrower one of a process.
fn child(parent: &Capability, number: usize) -> Capability {
    let place = format!("rank-{number}").into_bytes();
    parent.attenuate(Caveat::Below(place)).expect("encodes")
}

#[test]
fn a_job_of_any_number_of_processes_asks_the_issuer_once_and_each_storage_server_once() {
    for processes in [1, 64, 4096] {
        for children in [false, true] {
            let mut peers = Peers::new(1, 4);
            let whole = peers.got(1);
            assert_eq!(peers.counted(1), Counted { issued: 1, ..Counted::default() });
            // On each of the machines, as many at once as there are sessions.
            for at in 1..4 {
                let its = (processes / 3 + usize::from(processes % 3 >= at)).max(1);
                peers.begin_all(at, 1, |_| whole.clone());
                for begin in (1..its).step_by(900) {
                    let some = 900.min(its - begin);
                    let which = |number| match children {
                        true => child(&whole, begin + number),
                        false => whole.clone(),
                    };
                    peers.begin_all(at, some, which);
                }
            }
            let all: Vec<Counted> = (1..4).map(|at| peers.counted(at)).collect();
            let issued: u64 = all.iter().map(|one| one.issued).sum();
            println!(
                "{processes} processes, {} capability each: {issued} asked for, on 3 storage \
                 servers {:?} questions whether it is good",
                if children { "a narrower" } else { "the same" },
                all.iter().map(|one| one.verified).collect::<Vec<_>>(),
            );
            assert_eq!(issued, 1, "{processes}");
            assert!(all.iter().all(|one| one.verified == 1), "{processes}: {all:?}");
        }
    }
}

#[test]
fn those_that_begin_at_once_ask_once() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    peers.begin_all(1, 64, |_| whole.clone());
    assert_eq!(peers.counted(1).verified, 1);
    // Of one that was not presented each child is a question of its own.
    let other = peers.got(0);
    peers.begin_all(1, 4, |number| child(&other, number));
    assert_eq!(peers.counted(1).verified, 5);
    peers.begin_all(1, 1, |_| other.clone());
    peers.begin_all(1, 100, |number| child(&other, 4 + number));
    assert_eq!(peers.counted(1).verified, 6, "and with it there is none");
}

#[test]
fn who_ends_as_he_asks_for_all_leaves_it_to_the_next() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    let clients = [0; 3].map(|_| peers.sims[1].connect());
    let all = clients.map(|client| peers.presenting(1, client, &whole));
    let sessions = clients.map(|client| peers.sims[1].clients[client].session);
    for (session, taken) in sessions.iter().zip(&all) {
        assert!(matches!(peers.handle(1, *session, taken), Some(Handled::Fetch)));
    }
    peers.cut(0, 1);
    peers.sims[1].end(clients[0]);
    let news = |peers: &mut Peers| {
        let members = |server: &crate::shared::Shared| {
            server.lock().members.as_mut().is_some_and(|members| members.take_news())
        };
        peers.sims[1].with(members).expect("it lives")
    };
    assert!(news(&mut peers), "those who wait look again");
    for at in [1, 2, 1, 2] {
        peers.handle(1, sessions[at], &all[at]);
        peers.settle();
    }
    for at in [1, 2] {
        let handled = peers.handle(1, sessions[at], &all[at]);
        assert!(matches!(handled, Some(Handled::Answer(_))), "{at}");
    }
}

/// Whether a client that has presented one may look.
fn looks(peers: &mut Peers, at: usize, client: usize) -> std::result::Result<(), ErrorKind> {
    let looked = peers.ask_as(at, client, Request::Stat(Target::Path(b"")));
    looked.map(drop).map_err(|error| error.kind)
}

fn presented(
    peers: &mut Peers,
    client: usize,
    one: &Capability,
) -> std::result::Result<(), ErrorKind> {
    peers.presents(1, client, one).map_err(|error| error.kind)
}

#[test]
fn a_narrower_one_is_believed_by_its_parent_and_by_nothing_else() {
    const REFUSED: std::result::Result<(), ErrorKind> = Err(ErrorKind::Unauthorized);
    let mut peers = Peers::new(1, 2);
    let client = peers.clients[1];
    let (whole, other) = (peers.got(0), peers.got(0));
    let reads = only(&whole, Operations::READ.and(Operations::LIST));
    let asked = |peers: &Peers| peers.counted(1).verified;

    // Its parent was never presented here: its issuer is asked.
    assert_eq!(presented(&mut peers, client, &reads), Ok(()));
    assert_eq!(asked(&peers), 1);
    let grandchild = child(&reads, 1);
    assert_eq!(presented(&mut peers, client, &grandchild), Ok(()));
    assert_eq!(asked(&peers), 1, "its parent was");
    // Who was only shown a child does not believe its parent, nor a sibling.
    let sibling = only(&whole, Operations::WRITE);
    assert_eq!(presented(&mut peers, client, &sibling), Ok(()));
    assert_eq!(asked(&peers), 2);

    // Widened: what it was made of is said to be less; or another parent is said.
    let mut widened = grandchild.clone();
    widened.caveats.pop();
    let mut wider = grandchild.clone();
    wider.caveats[0] = Caveat::Only(Operations::ALL);
    let mut strange = grandchild.clone();
    strange.grant = other.grant.clone();
    let mut later = grandchild.clone();
    later.grant.expires_s += 1000;
    for forged in [&widened, &wider, &strange, &later] {
        assert_eq!(presented(&mut peers, client, forged), REFUSED, "{forged:?}");
        assert_eq!(presented(&mut peers, client, forged), REFUSED, "{forged:?}: again");
    }
    // They have not spoiled what is good.
    let before = asked(&peers);
    assert_eq!(presented(&mut peers, client, &child(&reads, 2)), Ok(()));
    assert_eq!(asked(&peers), before);
}

#[test]
fn what_was_revoked_is_believed_by_no_parent_that_is_known() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    let (client, other) = (peers.sims[1].connect(), peers.sims[1].connect());
    let parent = only(&whole, Operations::READ.and(Operations::LIST));
    assert_eq!(presented(&mut peers, client, &parent), Ok(()));
    assert_eq!(looks(&mut peers, 1, client), Ok(()));
    let revoke = Request::Revoke(Revocation::Serial(whole.grant.serial));
    peers.ask(0, revoke).expect("it is revoked");
    peers.hears_what_was_revoked(1);
    assert_eq!(looks(&mut peers, 1, client), Err(ErrorKind::Unauthorized));
    // A child of a parent that is known to have been good is told from one that is.
    for again in [&parent, &child(&parent, 1), &whole] {
        assert_eq!(presented(&mut peers, other, again), Err(ErrorKind::Unauthorized));
    }
}

#[test]
fn a_child_lasts_no_longer_than_what_it_was_made_of() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    let now_s = peers.sims[1].world.wall_s();
    let parent = whole.attenuate(Caveat::Until(now_s + 2)).expect("encodes");
    let (client, other) = (peers.sims[1].connect(), peers.sims[1].connect());
    assert_eq!(presented(&mut peers, client, &parent), Ok(()));
    // It says that it lasts longer.
    let longer = parent.attenuate(Caveat::Until(now_s + 1000)).expect("encodes");
    assert_eq!(presented(&mut peers, other, &longer), Ok(()));
    assert_eq!(looks(&mut peers, 1, other), Ok(()));
    peers.pass(Duration::from_secs(3));
    assert_eq!(looks(&mut peers, 1, other), Err(ErrorKind::Unauthorized));
    let third = peers.sims[1].connect();
    assert_eq!(presented(&mut peers, third, &child(&parent, 1)), Err(ErrorKind::Unauthorized));
}

#[test]
fn a_child_counts_no_longer_than_the_lease_that_is_its_issuers_word() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    let client = peers.sims[1].connect();
    assert_eq!(presented(&mut peers, client, &whole), Ok(()));
    let narrow = child(&whole, 1);
    let other = peers.sims[1].connect();
    assert_eq!(presented(&mut peers, other, &narrow), Ok(()));
    assert_eq!(looks(&mut peers, 1, client), Ok(()));
    // The issuer does nothing for longer than the lease lasts.
    peers.stopped = Some((0, Duration::from_secs(30)));
    for _ in 0..30 {
        peers.pass(Duration::from_millis(200));
    }
    let session = peers.sims[1].clients[client].session;
    let asks = Request::Stat(Target::Path(b""));
    let taken = peers.sims[1].asking(client, asks).expect("encodes");
    assert!(matches!(peers.handle(1, session, &taken), Some(Handled::Fetch)), "it waits");
    // It goes on once the issuer does, and nobody is asked again whether it is good.
    peers.stopped = None;
    let before = peers.counted(1).verified;
    assert_eq!(looks(&mut peers, 1, client), Ok(()));
    assert_eq!(peers.counted(1).verified, before);
}

#[test]
fn leases_are_renewed_once_for_all_that_a_server_keeps() {
    let mut peers = Peers::new(1, 2);
    let whole = peers.got(0);
    for number in 0..50 {
        let client = peers.sims[1].connect();
        assert_eq!(presented(&mut peers, client, &whole), Ok(()));
        let narrow = child(&whole, number);
        assert_eq!(presented(&mut peers, client, &narrow), Ok(()));
    }
    let before = peers.counted(1).renewed;
    for _ in 0..80 {
        peers.tell(1, terral_partition::effect::Input::Tick);
        peers.pass(Duration::from_millis(250));
    }
    let renewed = peers.counted(1).renewed - before;
    println!("{renewed} renewals of the lease in 20 s, of 51 capabilities");
    assert!((4..=20).contains(&renewed), "{renewed}");
}
