//! The thread that watches processes: it lets clients in (see `door`), ends the sessions of the
//! dead, and finishes when the launcher is gone.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use terral_format::ids::SessionSlot;
use terral_transport::process::{self, Process, WaitSet};

use crate::debts::owing;
use crate::requests::{ending, tending};
use crate::shared::Shared;
use crate::shell::door::Door;
use crate::shell::leftover::program_of;

/// What the set of descriptors says when somebody connects.
pub const LISTENER: u64 = u64::MAX;
/// What it says when the launcher is gone.
pub const LAUNCHER: u64 = u64::MAX - 1;
/// What it says when the server leaves.
pub const STOP: u64 = u64::MAX - 2;
/// While files are open through kernel descriptors, the server looks this often whether somebody it
/// does not know has closed the last one.
const PROBE: Duration = Duration::from_millis(500);
/// While somebody at the door waits for what must be fetched, it is looked whether it is.
const ASK: Duration = Duration::from_millis(5);

/// What the thread has.
pub struct Watcher<'s> {
    /// The server.
    pub shared: &'s Shared,
    /// Its directory.
    pub instance: &'s Path,
    /// All that is watched.
    pub watch: &'s WaitSet,
    /// Where clients come in.
    pub door: Door<'s>,
    /// Somebody started it, and it finishes when he is gone.
    pub launched: bool,
    /// Whose server this is, while that lives; then one of the programs that he has left.
    pub launcher: Option<Process>,
}

impl Watcher<'_> {
    /// Watches until the server leaves.
    pub fn run(mut self) {
        process::be_prompt();
        if self.launched && self.launcher.is_none() {
            self.launcher_ended();
        }
        let mut probed = Instant::now();
        while !self.shared.over.load(Ordering::SeqCst) {
            let tokens = self.watch.wait(self.limit(probed)).unwrap_or_default();
            self.door.give_up();
            for token in tokens {
                match token {
                    STOP => return,
                    LISTENER => self.door.admit(),
                    LAUNCHER => self.launcher_ended(),
                    caller if Door::is_caller(caller) => self.door.hear(caller),
                    session => self.end(SessionSlot(session as u16)),
                }
            }
            self.door.ask_again();
            // Also while others keep asking.
            if probed.elapsed() >= PROBE {
                self.probe();
                probed = Instant::now();
            }
        }
    }

    fn limit(&self, probed: Instant) -> Option<Duration> {
        let silent = self.door.until().map(|until| until.saturating_duration_since(Instant::now()));
        let probe = self.probes().map(|pause| pause.saturating_sub(probed.elapsed()));
        let asked = self.door.is_asked().then_some(ASK);
        [probe, silent, asked].into_iter().flatten().min()
    }

    /// Takes back what has run out. And whoever is there may open files at any time, without a word
    /// to this thread.
    fn probes(&self) -> Option<Duration> {
        tending::must_tend(&mut self.shared.lock()).then_some(PROBE)
    }

    /// Programs that he started may have used nothing yet: they are waited for one by one.
    fn launcher_ended(&mut self) {
        // Dropping it takes it out of the set.
        self.launcher = None;
        self.launcher = program_of(self.instance).filter(|program| {
            let watched = self.watch.add(program.as_fd(), LAUNCHER);
            watched.is_ok()
        });
        let mut state = self.shared.lock();
        if state.is_among_users() && !state.orphaned {
            // Root may have ended its launcher, to have another one go on with what it has: others
            // need that as if they had just asked for it, whenever they have.
            let now = state.world.now();
            state.members.iter_mut().for_each(|members| members.hears(now));
        }
        (state.finishing, state.orphaned) = (true, true);
        state.attended = self.launcher.is_some();
        self.shared.wake(state);
    }

    fn end(&self, session: SessionSlot) {
        let mut state = self.shared.lock();
        let client = state.sessions.client(session);
        if client.is_some_and(|client| client.process.is_alive()) {
            // Who waited for a lock of the dead one has ended it, and the place is taken again.
            return;
        }
        if let Err(error) = ending::end_session(&mut state, session) {
            owing::was_looked_after(&mut state, Err(error));
        }
        if let Some(client) = state.sessions.client(session) {
            // It is looked at again by and by.
            client.process.descriptor().into_iter().for_each(|ended| self.watch.remove(ended));
        }
        self.shared.wake(state);
    }

    fn probe(&self) {
        let mut state = self.shared.lock();
        tending::tend(&mut state);
        self.shared.wake(state);
    }
}
