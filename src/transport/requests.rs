//! Requests through the session page: a client fills a slot and rings; the server answers in place.
//!
//! Whoever waits spins for as long as spinning has paid off lately, then sleeps: a client on its
//! slot's state, the server on the doorbell. Neither polls when idle. Everything in a slot may be
//! garbage to the server: it copies out, checks, and only then believes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use terral_format::local::geometry::{MESSAGE_BYTES, REQUESTS};
use terral_format::local::tables::{
    Doorbell, RequestSlot, SESSION_BYTES, SessionPage, request, sleep,
};
use terral_format::{Error, ErrorKind, Result};

use crate::futex;
use crate::region::Region;

/// Longest and shortest spin of a waiting client, nanoseconds.
const SPIN_NS: (u32, u32) = (2_000, 100_000);
/// The same of the server.
const SERVER_SPIN: (Duration, Duration) = (Duration::from_micros(3), Duration::from_micros(50));
/// How long what nobody waits for may lie.
const DOZE: Duration = Duration::from_millis(1);
/// Whoever has spun for so long lets others run in between.
const YIELD_AFTER: Duration = Duration::from_micros(2);
/// How often a sleeping client looks whether its server lives.
const LOOK: Duration = Duration::from_millis(20);

/// Whoever waits longer for an answer may have something else to do meanwhile.
const LONG: Duration = Duration::from_millis(100);

static WHILE_WAITING: OnceLock<fn()> = OnceLock::new();

/// Has `call` made now and then by threads that wait long for the server. The first call counts.
pub fn while_waiting(call: fn()) {
    let _ = WHILE_WAITING.set(call);
}

/// To be called again and again by who waits since `begin`.
pub fn meanwhile(begin: Instant) {
    if let (true, Some(call)) = (begin.elapsed() > LONG, WHILE_WAITING.get()) {
        call();
    }
}

/// A mapped `session-N`.
pub struct Session {
    region: Arc<Region>,
    /// As its page said when it was mapped.
    number: usize,
    spin_ns: AtomicU32,
}

impl Session {
    /// The session in `region`.
    pub fn new(region: impl Into<Arc<Region>>) -> Self {
        let region = region.into();
        let page: &SessionPage = region.view(0);
        let number = page.session.load(Ordering::Relaxed) as usize;
        Session { region, number, spin_ns: AtomicU32::new(SPIN_NS.1) }
    }

    /// Bytes a session's region must have.
    pub const BYTES: usize = SESSION_BYTES;

    /// The structures in it.
    pub fn page(&self) -> &SessionPage {
        self.region.view(0)
    }

    fn message_at(slot: usize) -> usize {
        std::mem::offset_of!(SessionPage, requests)
            + slot * size_of::<RequestSlot>()
            + std::mem::offset_of!(RequestSlot, message)
    }

    fn try_acquire(&self) -> Option<usize> {
        self.page().requests.iter().position(|slot| {
            let found = slot.state.load(Ordering::Relaxed);
            let free = found == request::FREE || !request::is_sane(found);
            let (next, order) = (request::FILLING, (Ordering::Acquire, Ordering::Relaxed));
            free && slot.state.compare_exchange(found, next, order.0, order.1).is_ok()
        })
    }

    /// A free slot. While all are in use, `alive` is asked now and then, and may end the wait.
    fn acquire(&self, alive: &mut dyn FnMut() -> Result<()>) -> Result<usize> {
        let (mut rounds, begin) = (0u32, Instant::now());
        loop {
            if let Some(index) = self.try_acquire() {
                return Ok(index);
            }
            rounds += 1;
            if rounds < 100 {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_micros(20));
                if rounds.is_multiple_of(1000) {
                    meanwhile(begin);
                    alive()?;
                }
            }
        }
    }

    fn submit(&self, bell: &Doorbell, index: usize, message: &[u8], state: u32) {
        let slot = &self.page().requests[index];
        self.region.copy_in(Self::message_at(index), message);
        slot.length.store(message.len() as u32, Ordering::Relaxed);
        slot.sequence.fetch_add(1, Ordering::Relaxed);
        slot.state.store(state, Ordering::SeqCst);
        ring(bell, self.number);
    }

    /// Sends `message` and waits for no answer, only for a free slot; `alive` as in
    /// [`Session::ask`].
    pub fn tell(
        &self,
        bell: &Doorbell,
        message: &[u8],
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let index = self.acquire(&mut alive)?;
        self.submit(bell, index, message, request::TOLD);
        Ok(())
    }

    /// Sends `message` and gives the answer's bytes. `alive` is asked now and then while it waits;
    /// an error from it ends the wait.
    pub fn ask(
        &self,
        bell: &Doorbell,
        message: &[u8],
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let index = self.acquire(&mut alive)?;
        self.submit(bell, index, message, request::ASKED);
        self.answer_to(bell, Begun(index), alive)
    }

    /// Sends `message` and waits for nothing: [`Session::answer_to`] gives the answer. `None`: no
    /// slot is free.
    pub fn begin(&self, bell: &Doorbell, message: &[u8]) -> Option<Begun> {
        let index = self.try_acquire()?;
        self.submit(bell, index, message, request::ASKED);
        Some(Begun(index))
    }

    /// Whether the answer to what was begun is there.
    pub fn is_answered(&self, begun: Begun) -> bool {
        self.page().requests[begun.0].state.load(Ordering::Acquire) == request::ANSWERED
    }

    /// The answer's bytes to what was begun, to be asked for once. `alive` as in [`Session::ask`].
    pub fn answer_to(
        &self,
        bell: &Doorbell,
        Begun(index): Begun,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let slot = &self.page().requests[index];
        if !self.spin(slot) {
            let begin = Instant::now();
            loop {
                slot.waiting.store(1, Ordering::SeqCst);
                let state = slot.state.load(Ordering::SeqCst);
                if state == request::ANSWERED {
                    break;
                }
                if !matches!(state, request::ASKED | request::TAKEN) {
                    // A process that went wild: nobody will answer.
                    let context = "a program wrote over a request in shared memory";
                    return Err(Error::new(ErrorKind::Corrupt, context));
                }
                futex::wait(&slot.state, state, Some(LOOK));
                if slot.state.load(Ordering::SeqCst) == request::ANSWERED {
                    break;
                }
                // Whoever was to wake the server may be dead, and the ring may be lost.
                ring(bell, self.number);
                nudge(bell);
                meanwhile(begin);
                // The slot stays the server's: if it comes back, it may still answer.
                alive()?;
            }
            slot.waiting.store(0, Ordering::SeqCst);
        }
        let length = slot.length.load(Ordering::Acquire) as usize;
        let mut reply = vec![0; length.min(MESSAGE_BYTES)];
        self.region.copy_out(Self::message_at(index), &mut reply);
        slot.state.store(request::FREE, Ordering::Release);
        Ok(reply)
    }

    /// Spins until the answer is there, or spinning stops paying off.
    fn spin(&self, slot: &RequestSlot) -> bool {
        if !may_spin() {
            return false;
        }
        let limit = self.spin_ns.load(Ordering::Relaxed);
        let begin = Instant::now();
        loop {
            for _ in 0..32 {
                if slot.state.load(Ordering::Acquire) == request::ANSWERED {
                    // Not by a yield that took longer than that.
                    let pays = begin.elapsed() < Duration::from_nanos(limit.into());
                    let next = if pays { limit.saturating_mul(2) } else { limit / 2 };
                    self.spin_ns.store(next.clamp(SPIN_NS.0, SPIN_NS.1), Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            let spent = begin.elapsed();
            if spent > Duration::from_nanos(limit.into()) {
                self.spin_ns.store((limit / 2).max(SPIN_NS.0), Ordering::Relaxed);
                return false;
            }
            if spent > YIELD_AFTER {
                // More spin than there are cores: the other side may be waiting for this one.
                std::thread::yield_now();
            }
        }
    }

    /// Server: takes the requests that wait, in slot order. Those that were taken and are not
    /// `kept` (slot, sequence) wait too: a dead server left them, or their states are garbage.
    pub fn take(&self, kept: impl Fn(u8, u64) -> bool) -> Vec<Taken> {
        let mut taken = Vec::new();
        for index in 0..REQUESTS {
            let slot = &self.page().requests[index];
            let state = slot.state.load(Ordering::SeqCst);
            let waits = match state {
                request::ASKED | request::TOLD => true,
                request::TAKEN => !kept(index as u8, slot.sequence.load(Ordering::Acquire)),
                _ => false,
            };
            if !waits {
                continue;
            }
            let length = (slot.length.load(Ordering::Acquire) as usize).min(MESSAGE_BYTES);
            let mut message = vec![0; length];
            self.region.copy_out(Self::message_at(index), &mut message);
            let told = state == request::TOLD;
            // A told request keeps its state until it is done, so that a server that dies on the
            // way leaves it to be done again; one thread takes, so it is not taken twice.
            if !told {
                slot.state.store(request::TAKEN, Ordering::SeqCst);
            }
            let sequence = slot.sequence.load(Ordering::Acquire);
            taken.push(Taken { index: index as u8, sequence, told, message });
        }
        taken
    }

    /// Server: whether the client still waits for this very request.
    pub fn waits_for(&self, taken: &Taken) -> bool {
        let slot = &self.page().requests[taken.index as usize];
        slot.state.load(Ordering::SeqCst) == request::TAKEN
            && slot.sequence.load(Ordering::SeqCst) == taken.sequence
    }

    /// Server: answers a taken request.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the reply does not fit a slot: our own bug, reported to the
    /// client.
    pub fn answer(&self, taken: &Taken, reply: &[u8]) -> Result<()> {
        let slot = &self.page().requests[taken.index as usize];
        if taken.told {
            slot.state.store(request::FREE, Ordering::SeqCst);
            return Ok(());
        }
        if reply.len() > MESSAGE_BYTES {
            return Err(Error::new(ErrorKind::TooLarge, "reply longer than a request slot"));
        }
        self.region.copy_in(Self::message_at(taken.index as usize), reply);
        slot.length.store(reply.len() as u32, Ordering::Release);
        slot.state.store(request::ANSWERED, Ordering::SeqCst);
        if slot.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&slot.state, 1);
        }
        Ok(())
    }
}

/// A request that was sent, whose answer nobody has looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun(pub usize);

/// A request the server has taken.
#[derive(Debug)]
pub struct Taken {
    /// Its slot.
    pub index: u8,
    /// Which request of that slot.
    pub sequence: u64,
    /// Nobody waits for an answer.
    pub told: bool,
    /// Its bytes, not yet checked.
    pub message: Vec<u8>,
}

/// Whether there is another core for the other side to run on.
pub fn may_spin() -> bool {
    static CORES: AtomicU32 = AtomicU32::new(0);
    let mut cores = CORES.load(Ordering::Relaxed);
    if cores == 0 {
        cores = crate::process::cores();
        CORES.store(cores, Ordering::Relaxed);
    }
    cores > 1
}

fn ring(bell: &Doorbell, session: usize) {
    bell.sessions[session / 64 % 16].fetch_or(1 << (session % 64), Ordering::SeqCst);
    wake_server(bell, true);
}

/// Says that a change was deferred. Nobody waits for it; but `soon`: there are many.
pub fn ring_deferred(bell: &Doorbell, soon: bool) {
    bell.deferred.store(1, Ordering::SeqCst);
    wake_server(bell, soon);
}

/// Says the same, and wakes nobody: whoever rings next sees to it.
pub fn note_deferred(bell: &Doorbell) {
    if bell.deferred.load(Ordering::SeqCst) == 0 {
        bell.deferred.store(1, Ordering::SeqCst);
    }
}

/// Server: whether changes were deferred since the last call.
pub fn rung_deferred(bell: &Doorbell) -> bool {
    bell.deferred.load(Ordering::SeqCst) != 0 && bell.deferred.swap(0, Ordering::SeqCst) != 0
}

fn wake_server(bell: &Doorbell, soon: bool) {
    bell.rings.fetch_add(1, Ordering::SeqCst);
    let found = bell.sleeping.load(Ordering::SeqCst);
    if found == sleep::AWAKE || (found == sleep::DOZING && !soon) {
        return;
    }
    // Only the first who rings wakes; should that one die on the way, whoever waits for an answer
    // wakes again (see `ask`), and so does who reaps it.
    if bell.sleeping.swap(sleep::AWAKE, Ordering::SeqCst) != sleep::AWAKE {
        futex::wake(&bell.rings, 1);
    }
}

/// Server: wakes the thread in [`Waiter::wait`] without a request.
pub fn nudge(bell: &Doorbell) {
    bell.rings.fetch_add(1, Ordering::SeqCst);
    futex::wake(&bell.rings, 1);
}

/// Server: whether whoever rings thinks that it need not wake the server: so it may be also if the
/// one who was to wake it died before.
pub fn seems_awake(bell: &Doorbell) -> bool {
    bell.sleeping.load(Ordering::SeqCst) == sleep::AWAKE
}

/// Server: sessions that rang since the last call.
pub fn rung(bell: &Doorbell) -> Vec<usize> {
    let mut sessions = Vec::new();
    for (word, bits) in bell.sessions.iter().enumerate() {
        if bits.load(Ordering::SeqCst) == 0 {
            continue;
        }
        let mut bits = bits.swap(0, Ordering::SeqCst);
        while bits != 0 {
            sessions.push(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
    sessions
}

/// The server's side of the bell: how it waits for the next ring.
pub struct Waiter {
    /// Rings it knows of.
    seen: u32,
    /// How long it spins before it sleeps: longer while that pays off.
    spin: Duration,
}

impl Default for Waiter {
    fn default() -> Self {
        Waiter { seen: 0, spin: SERVER_SPIN.1 }
    }
}

impl Waiter {
    /// Returns when the bell has rung, or soon. `busy`: there was something the last time, so that
    /// more is likely: it spins, and then dozes.
    pub fn wait(&mut self, bell: &Doorbell, busy: bool) {
        if !(busy && self.spin(bell)) {
            let how = if busy { sleep::DOZING } else { sleep::ASLEEP };
            bell.sleeping.store(how, Ordering::SeqCst);
            if bell.rings.load(Ordering::SeqCst) == self.seen {
                futex::wait(&bell.rings, self.seen, busy.then_some(DOZE));
            }
            bell.sleeping.store(sleep::AWAKE, Ordering::SeqCst);
        }
        self.seen = bell.rings.load(Ordering::SeqCst);
    }

    fn spin(&mut self, bell: &Doorbell) -> bool {
        let begin = Instant::now();
        while may_spin() && begin.elapsed() < self.spin {
            for _ in 0..64 {
                if bell.rings.load(Ordering::SeqCst) != self.seen {
                    // Not by a yield that took longer than that: who sleeps is woken at once.
                    let pays = begin.elapsed() < self.spin;
                    let next = if pays { self.spin * 2 } else { self.spin / 2 };
                    self.spin = next.clamp(SERVER_SPIN.0, SERVER_SPIN.1);
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.spin > SERVER_SPIN.0 && begin.elapsed() > YIELD_AFTER {
                std::thread::yield_now();
            }
        }
        self.spin = (self.spin / 2).max(SERVER_SPIN.0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Session, Waiter, nudge, rung};
    use crate::region::Region;
    use std::sync::atomic::{AtomicBool, Ordering};
    use terral_format::local::tables::Doorbell;

    #[test]
    fn requests_of_many_threads_are_each_answered_once() {
        let (memory, bells) =
            (tempfile::tempfile().expect("file"), tempfile::tempfile().expect("file"));
        memory.set_len(Session::BYTES as u64).expect("room");
        bells.set_len(4096).expect("room");
        let map = || Region::map(&memory, Session::BYTES, true).expect("maps");
        let bells = Region::map(&bells, 4096, true).expect("maps");
        let bell: &Doorbell = bells.view(0);
        let (client, server) = (Session::new(map()), Session::new(map()));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut waiter = Waiter::default();
                while !over.load(Ordering::SeqCst) {
                    waiter.wait(bell, true);
                    for session in rung(bell) {
                        assert_eq!(session, 0);
                        for taken in server.take(|_, _| true) {
                            let mut reply = taken.message.clone();
                            reply.reverse();
                            server.answer(&taken, &reply).expect("fits");
                        }
                    }
                }
            });
            let asking: Vec<_> = (0..6u8)
                .map(|thread| {
                    let client = &client;
                    scope.spawn(move || {
                        for round in 0..500u16 {
                            let [high, low] = round.to_be_bytes();
                            let message = [thread, high, low];
                            client.tell(bell, b"told", || Ok(())).expect("a slot");
                            let reply = client.ask(bell, &message, || Ok(())).expect("answers");
                            assert_eq!(reply, [low, high, thread]);
                        }
                    })
                })
                .collect();
            for thread in asking {
                thread.join().expect("no panic");
            }
            over.store(true, Ordering::SeqCst);
            nudge(bell);
        });
    }
}
