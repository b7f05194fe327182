//! A user's server is started, as his process, by the invitation that makes it a member.
//!
//! Invariants: it is the member that it was if it has what that had, and a new one a few times
//! only; none is begun once all are to end. Not here: who comes for one (`users`), and what it does
//! (`host`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use terral_client::{Client, ErrorKind};

use super::{Chair, House, PATIENCE, POLL, host_of, lock};
use crate::door::{has_been_in, is_in};
use crate::instances::{self, PREFIX};
use crate::limits::Limits;
use crate::remote::{Machine, Service, Stage};
use crate::report::{note, say};
use crate::user::{PROGRAMS, User};
use crate::words::Order;

/// So often a user's server may begin with nothing, as what it had is gone: each is a member of its
/// own, and there are 1,024.
const LIVES_MAX: usize = 5;
/// A user's server has so long to come.
const COMING: Duration = Duration::from_secs(60);

impl House {
    /// Starts one, as the member that the one before was if that was one.
    pub(super) fn begin_his(&self, who: (&User, &Limits), seat: &mut Chair) -> Result<()> {
        loop {
            ensure!(!self.is_over(), "all users' servers are ending");
            seat.started = Some(Instant::now());
            let (word, came) = match seat.word.take() {
                Some(word) => word,
                None => (self.invite(who.0)?, false),
            };
            let kept = seat.word.insert((word.clone(), came));
            seat.for_others = seat.himself.is_none();
            // He is in other groups by now, perhaps: others go by those, whatever his process says.
            self.say_groups(who.0)?;
            if !seat.for_others {
                self.make_home(who.0)?;
            }
            let mut machine = self.start(who, (word, came))?;
            match self.accompany(&mut machine, came) {
                Ok(()) => {
                    (kept.1, seat.died, seat.owes) = (true, false, false);
                    seat.machine = Some(machine);
                    return Ok(());
                }
                Err(_) if machine.forgot && came => {
                    // What only that had is lost to others; a new member begins with nothing.
                    machine.outwait(Instant::now() + PATIENCE);
                    self.fence(&machine);
                    (seat.word, seat.died, seat.owes) = (None, false, false);
                }
                Err(error) => {
                    machine.tell(Order::Keep);
                    machine.outwait(Instant::now() + PATIENCE);
                    if machine.stage == Stage::Serves || self.was_in(&machine) {
                        // Others may know of what it has, and his programs have used it: it is
                        // gone on with, as one that has died.
                        let end = machine.end.as_ref();
                        kept.1 = true;
                        (seat.died, seat.owes) = (end.is_none(), end.is_none_or(|end| end.owes));
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Whether root's server has ever had it in, as far as it says anything.
    fn was_in(&self, machine: &Machine) -> bool {
        let status = Client::observe(&self.instance).and_then(|client| client.status());
        status.map_or(true, |status| has_been_in(&status, machine.invited.me))
    }

    fn fence(&self, machine: &Machine) {
        let fenced = Client::observe(&self.instance)
            .and_then(|client| client.fence(machine.invited.me, true));
        if let Err(error) = fenced {
            say(format_args!("{}: {error}", machine.host));
        }
    }

    /// Root's server may have begun anew, and be there in a moment.
    fn say_groups(&self, user: &User) -> Result<()> {
        let begin = Instant::now();
        loop {
            let said = Client::observe(&self.instance)
                .and_then(|client| client.speaks_for(&user.0))
                .map_err(|error| (error.kind == ErrorKind::Invalid, error));
            match said {
                Err((false, _)) if begin.elapsed() < PATIENCE && !self.is_over() => {}
                said => return Ok(said.map_err(|(_, error)| error)?),
            }
            std::thread::sleep(POLL);
        }
    }

    /// The server listens a moment after it can be asked.
    fn invite(&self, user: &User) -> Result<String> {
        let (client, begin) = (Client::observe(&self.instance)?, Instant::now());
        let host = host_of(user);
        let lives = lock(&self.lives).get(&user.0.user).copied().unwrap_or(0);
        ensure!(
            lives < LIVES_MAX,
            "{LIVES_MAX} servers of this user have lost their memory: another is started once root \
             has started `terral serve --users` anew"
        );
        loop {
            match client.invite(Some(&user.0)) {
                Err(error) if error.kind == ErrorKind::Busy && begin.elapsed() < COMING => {}
                invitation => {
                    let invitation = invitation?;
                    *lock(&self.lives).entry(user.0.user).or_default() += 1;
                    let mut hosts = lock(&self.hosts);
                    hosts.invited(&invitation, &host);
                    hosts.keep(&self.instance);
                    return Ok(invitation);
                }
            }
            std::thread::sleep(POLL);
        }
    }

    /// Who has come has a directory, by his login name.
    pub(super) fn make_home(&self, user: &User) -> Result<()> {
        let fresh = RandomState::new().build_hasher().finish();
        if let Some(name) = user.name() {
            terral_server::home_for(&self.target, (user.0.user, user.0.group), &name, fresh)?;
        }
        Ok(())
    }

    fn start(
        &self,
        (user, limits): (&User, &Limits),
        (invitation, again): (String, bool),
    ) -> Result<Machine> {
        let number = terral_server::Invitation::of(&invitation)?.partition.id;
        *lock(&self.partition) = number;
        let fresh = RandomState::new().build_hasher().finish();
        let owner = (user.0.user, user.0.group);
        instances::make_base_of(owner)?;
        terral_server::stage_for(&self.target, owner, number, fresh)?;
        let service = Service {
            name: &self.name,
            named: true,
            target: Some(&self.target),
            prefix: Path::new(PREFIX),
            memory: Some(self.memory),
            ready: None,
            port: 0,
            interface: Some("lo"),
        };
        let mut command = Command::new(&self.supply.build.program);
        command.args(service.words(&self.supply)).arg("--library").arg(&self.supply.build.library);
        command.args([format!("--user={user}"), format!("--limits={limits}")]);
        command.args(again.then_some("--again"));
        command.env_clear().env("PATH", PROGRAMS).current_dir("/");
        // What it has to say goes through the pipe: root's terminal is not his.
        command.stderr(Stdio::null());
        let host = host_of(user);
        Machine::begun_by(command, (&host, &self.name, true), &self.supply, invitation)
    }

    /// Waits until it serves, and is in.
    fn accompany(&self, machine: &mut Machine, again: bool) -> Result<()> {
        let (member, begin, mut over) = (machine.invited.me, Instant::now(), None);
        loop {
            // One that goes on with what another has left brings that first, if it comes soon.
            let ends = self.is_over().then(|| over.get_or_insert_with(Instant::now).elapsed());
            let waits = |ends: Duration| again && ends < PATIENCE;
            ensure!(ends.is_none_or(waits), "all users' servers are ending");
            let there = machine.hear();
            if let Some(why) = &machine.failed {
                bail!("the server: {why}");
            }
            ensure!(there && !machine.forgot, "the server has ended as it started");
            if machine.stage == Stage::Serves {
                let status = Client::observe(&self.instance).and_then(|client| client.status());
                if status.is_ok_and(|status| is_in(&status, member)) {
                    let took = begin.elapsed().as_millis();
                    note(format_args!("{}: served, after {took} ms", machine.host));
                    return Ok(());
                }
            }
            ensure!(begin.elapsed() < COMING, "the server does not reach root's");
            std::thread::sleep(POLL);
        }
    }
}
