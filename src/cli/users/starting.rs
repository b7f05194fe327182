//! A user's server is started, as his process, by the invitation that makes it a member.
//!
//! Invariants: it is the member that it was if it has what that had, and a new one a few times
//! only; none is begun once all are to end, but in place of one that has died. Not here: who comes
//! for one (`users`), and what it does (`host`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use terral_client::{Client, ErrorKind, Member, Newcomer};
use terral_server::records::{self, Secret};

use super::{Chair, House, PATIENCE, POLL, host_of, lock};
use crate::door::{has_been_in, is_in, is_seated};
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

impl Chair {
    /// One has come by the invitation.
    fn has_come(&mut self) {
        self.word.iter_mut().for_each(|(_, came)| *came = true);
    }

    /// One that was in is no more: another one begins as soon as may be, unless it has ended by
    /// itself.
    pub(super) fn is_gone_on_with(&mut self, by_itself: bool, owes: bool) {
        self.has_come();
        (self.died, self.owes) = (!by_itself, owes);
    }

    /// One that owed nothing is a member no more: the next one is a new one. Whether it does not
    /// count as one that has lost its memory: a few times only, as each has taken a number.
    fn leaves(&mut self) -> bool {
        (self.word, self.died, self.owes) = (None, false, false);
        self.left += 1;
        self.left <= LIVES_MAX
    }
}

impl House {
    /// Starts one, as the member that the one before was if that was one.
    pub(super) fn begin_his(&self, who: (&User, &Limits), seat: &mut Chair) -> Result<()> {
        let begun = self.begins(who, seat);
        // What it was given is written down: the next process of root's goes on with it, or finds
        // that it has gone.
        if let Err(error) = self.keep(seat) {
            say(format_args!("{}: {error:#}", host_of(who.0)));
        }
        begun
    }

    fn begins(&self, who: (&User, &Limits), seat: &mut Chair) -> Result<()> {
        loop {
            // One that runs for others does so until nothing but the start itself can fail.
            let (word, came) = self.prepare(who.0, seat)?;
            let mut machine = self.start(who, (word, came), seat)?;
            match self.accompany(&mut machine, came) {
                Ok(()) => {
                    (seat.died, seat.owes) = (false, false);
                    seat.has_come();
                    seat.machine = Some(machine);
                    return Ok(());
                }
                Err(_) if machine.forgot && came => {
                    // What only that had is lost to others; a new member begins with nothing.
                    machine.outwait(Instant::now() + PATIENCE);
                    // What is not known to be gone is tried again, and found to be.
                    self.fence((&machine.host, machine.invited.me), true)?;
                    (seat.word, seat.died, seat.owes) = (None, false, false);
                    ensure!(!seat.for_nobody, "what it had is gone, and nobody needs another one");
                }
                Err(error) => {
                    self.give_up((machine, who.0.0.user), seat);
                    return Err(error);
                }
            }
        }
    }

    /// All that can fail before there is a process.
    fn prepare(&self, user: &User, seat: &mut Chair) -> Result<(String, bool)> {
        ensure!(!self.is_over() || seat.died, "all users' servers are ending");
        seat.started = Some(Instant::now());
        let (word, came) = match seat.word.take() {
            Some(word) => word,
            None => (self.invite(user, seat)?, false),
        };
        seat.word = Some((word.clone(), came));
        self.keep_as(seat, true)?;
        // He is in other groups by now, perhaps: others go by those, whatever his process says.
        self.say_groups(user)?;
        if seat.himself.is_some() {
            self.make_home(user)?;
        }
        let number = terral_server::Invitation::of(&word)?.partition.id;
        *lock(&self.partition) = number;
        let fresh = RandomState::new().build_hasher().finish();
        let owner = (user.0.user, user.0.group);
        instances::make_base_of(owner)?;
        terral_server::stage_for(&self.target, owner, number, fresh)?;
        Ok((word, came))
    }

    /// One that did not come is told to go: another one goes on with what it has.
    fn give_up(&self, (mut machine, user): (Machine, u32), seat: &mut Chair) {
        // What it says from here on it was told to.
        let ended = machine.end.take();
        machine.tell(Order::Keep);
        machine.outwait(Instant::now() + PATIENCE);
        let owes = ended.as_ref().or(machine.end.as_ref()).is_none_or(|end| end.owes);
        // Others may know of what it has, and his programs have used it.
        let was_in = || machine.stage == Stage::Serves || self.was_in(&machine);
        if !owes && self.has_left(&machine) {
            if seat.leaves() {
                lock(&self.lives).entry(user).and_modify(|lives| *lives = lives.saturating_sub(1));
            }
        } else if was_in() {
            seat.is_gone_on_with(ended.is_some(), owes);
        }
    }

    /// Whether root's server says that it is a member no more.
    fn has_left(&self, machine: &Machine) -> bool {
        let status = Client::observe(&self.instance).and_then(|client| client.status());
        status.is_ok_and(|status| !is_seated(&status, machine.invited.me))
    }

    /// Whether root's server has ever had it in, as far as it says anything.
    fn was_in(&self, machine: &Machine) -> bool {
        let status = Client::observe(&self.instance).and_then(|client| client.status());
        status.map_or(true, |status| has_been_in(&status, machine.invited.me))
    }

    /// One is a member no more: it is dead with its memory, or may live.
    ///
    /// # Errors
    /// If the control does not know so; says so.
    pub(super) fn fence(&self, (host, member): (&str, Member), dead: bool) -> Result<()> {
        let fenced = Client::observe(&self.instance)
            .and_then(|client| client.fence_user(member, dead))
            .or_else(|error| match error.kind {
                ErrorKind::Exists => Ok(()),
                _ => Err(error),
            });
        fenced.inspect_err(|error| say(format_args!("{host}: {error}")))?;
        Ok(())
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
    fn invite(&self, user: &User, seat: &mut Chair) -> Result<String> {
        let (client, begin) = (Client::observe(&self.instance)?, Instant::now());
        let host = host_of(user);
        let lives = lock(&self.lives).get(&user.0.user).copied().unwrap_or(0);
        ensure!(
            lives < LIVES_MAX,
            "{LIVES_MAX} servers of this user have lost their memory: another is started once root \
             has started `terral serve --users` anew"
        );
        let secret = match seat.secret {
            Some(secret) => secret,
            None => *seat.secret.insert(Secret(records::secret()?)),
        };
        // By that the next process is answered the same.
        self.keep(seat)?;
        let whom = Newcomer { user: user.0.clone(), login: user.login().unwrap_or_default() };
        loop {
            match client.invite_user(&whom, records::public_half(&secret)) {
                Err(error) if error.kind == ErrorKind::Busy && begin.elapsed() < COMING => {}
                // It was let in, and nobody has come in time.
                Err(error) if error.kind == ErrorKind::Exists => {
                    seat.secret = None;
                    bail!("{error}");
                }
                invitation => {
                    let mut invitation = invitation?;
                    invitation.partition.secret = secret;
                    let invitation = invitation.text()?;
                    seat.secret = None;
                    *lock(&self.lives).entry(user.0.user).or_default() += 1;
                    let mut hosts = lock(&self.hosts);
                    hosts.invited(&invitation, &host);
                    // Else root's server writes it.
                    if !self.of_pool {
                        hosts.keep(&self.instance);
                    }
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
        seat: &mut Chair,
    ) -> Result<Machine> {
        let service = Service {
            name: &self.name,
            named: true,
            target: Some(&self.target),
            prefix: Path::new(PREFIX),
            memory: Some(self.memory),
            ready: None,
            port: 0,
            interface: if self.of_pool { self.interface.as_deref() } else { Some("lo") },
        };
        let mut command = Command::new(&self.supply.build.program);
        command.args(service.words(&self.supply)).arg("--library").arg(&self.supply.build.library);
        command.args([format!("--user={user}"), format!("--limits={limits}")]);
        command.args(again.then_some("--again"));
        command.env_clear().env("PATH", PROGRAMS).current_dir("/");
        // What it has to say goes through the pipe: root's terminal is not his.
        command.stderr(Stdio::null());
        let host = host_of(user);
        self.leave_others(seat);
        let begun = Machine::begun_by(command, (&host, &self.name, true), &self.supply, invitation);
        begun.inspect(|_| seat.for_others = seat.himself.is_none())
    }

    /// One that runs for others, as his account says, is no more: he has come, and another one goes
    /// on with what it has, as he is.
    fn leave_others(&self, seat: &mut Chair) {
        if let Some(mut machine) = seat.machine.take_if(|machine| machine.hear()) {
            machine.kill();
            (seat.died, seat.owes) = (true, true);
        }
        self.has_gone(seat);
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

#[cfg(test)]
mod tests {
    use super::{Chair, LIVES_MAX};

    #[test]
    fn one_that_was_told_to_go_as_it_started_is_gone_on_with_at_once() {
        let mut chair = Chair { word: Some(("it".into(), false)), ..Chair::default() };
        assert!(chair.is_unheard(), "it may have been in: what it said may be heard yet");
        chair.is_gone_on_with(false, true);
        assert_eq!(
            (chair.word.clone(), chair.died, chair.owes),
            (Some(("it".into(), true)), true, true)
        );
        assert!(!chair.is_unheard(), "it was in");
        // Its user has ended it.
        chair.is_gone_on_with(true, true);
        assert!(chair.word.is_some() && !chair.died && chair.owes);
    }

    #[test]
    fn one_that_left_in_order_is_no_lost_memory_a_few_times() {
        let mut chair = Chair { word: Some(("it".into(), true)), ..Chair::default() };
        assert!((0..LIVES_MAX).all(|_| chair.leaves()) && !chair.leaves());
        assert!(chair.word.is_none() && !chair.died && !chair.owes);
    }
}
