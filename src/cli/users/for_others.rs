//! Users' servers that are started as somebody else looks at what is theirs: root's server says
//! whose are needed, and hears what came of it.
//!
//! Invariants: a thread for each that is being started, a few of them, and nobody else waits in it;
//! each that is needed is started, or its asker hears why it is not. Not here: how many (`bounds`),
//! and who may be one's user (`user`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use terral_client::{Client, Needed, Started, starting};

use super::bounds::{Bounds, May, RUN_MAX};
use super::{DEAF, House, Seat, lock};
use crate::knock::Reply;
use crate::limits::Limits;
use crate::user::User;
use crate::words::Order;

/// So many begin again at a time, in the end.
const WAKEN: usize = 8;
/// Who runs for others is told to rest so often in the time after which he may, and so often at
/// most.
const TOLD: (u32, Duration) = (4, Duration::from_secs(60));
/// How often root's server is asked.
const ASKED: Duration = Duration::from_millis(100);

/// What is known of those that are needed.
#[derive(Default)]
struct Desk {
    bounds: Bounds,
    /// What is to be said.
    came: BTreeMap<Needed, Started>,
}

struct Others {
    house: Arc<House>,
    desk: Mutex<Desk>,
    over: AtomicBool,
}

/// The thread that has them started.
pub(super) struct ForOthers(Arc<Others>, JoinHandle<()>);

impl ForOthers {
    /// Begins to.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn begin(house: Arc<House>) -> Result<ForOthers> {
        let others = Others { house, desk: Mutex::default(), over: AtomicBool::new(false) };
        let others = Arc::new(others);
        let own = others.clone();
        let thread = std::thread::Builder::new().spawn(move || own.ask());
        Ok(ForOthers(others, thread.context("a thread")?))
    }

    /// None is begun any more.
    pub(super) fn end(self) {
        self.0.over.store(true, Ordering::SeqCst);
        // It does not panic, and waits for root's server only, which answers or is gone.
        let _ = self.1.join();
    }
}

impl Others {
    fn ask(self: &Arc<Self>) {
        let (mut client, mut told) = (None, Instant::now());
        let idle = self.house.idle;
        let every = (idle / TOLD.0).clamp(ASKED, TOLD.1);
        while !self.over.load(Ordering::SeqCst) {
            let came: Vec<(Needed, Started)> = {
                let desk = lock(&self.desk);
                let came = desk.came.iter().take(starting::AT_ONCE);
                came.map(|(needed, what)| (*needed, what.clone())).collect()
            };
            let asked = match &client {
                Some(client) => Client::starts(client, &came),
                None => Client::observe(&self.house.instance)
                    .and_then(|new| client.insert(new).starts(&came)),
            };
            match asked {
                Ok(all) => self.heard(&came, all),
                // Another process of it is asked anew.
                Err(_) => client = None,
            }
            if told.elapsed() >= every {
                told = Instant::now();
                let owners = lock(&self.desk).bounds.owners();
                owners.into_iter().for_each(|owner| self.house.may_rest(owner, idle));
            }
            std::thread::sleep(ASKED);
        }
    }

    /// Root's server has heard what came of some, and needs these.
    fn heard(self: &Arc<Self>, said: &[(Needed, Started)], all: Vec<Needed>) {
        let mut desk = lock(&self.desk);
        said.iter().for_each(|(needed, _)| drop(desk.came.remove(needed)));
        if all.is_empty() {
            return;
        }
        for owner in desk.bounds.owners() {
            if self.is_not_for_others(owner) {
                desk.bounds.is_not_for_others(owner);
            }
        }
        for needed in all {
            match desk.bounds.may(needed, Instant::now()) {
                May::Later => {}
                May::Failed => {
                    let why = "it could not be started a moment ago".into();
                    desk.came.insert(needed, Started::Refused(why));
                }
                May::No(why) => drop(desk.came.insert(needed, Started::TooMany(why))),
                May::Begin => self.begin(&mut desk, needed),
            }
        }
    }

    /// Whether a server runs no more, or its user has come.
    fn is_not_for_others(&self, owner: u32) -> bool {
        let seat = lock(&self.house.seats).get(&owner).cloned();
        let Some(seat) = seat else { return true };
        // One that is being started is.
        let Ok(mut seat) = seat.try_lock() else { return false };
        let runs = seat.machine.as_mut().is_some_and(|machine| machine.hear());
        !runs || seat.himself.is_some()
    }

    fn begin(self: &Arc<Self>, desk: &mut Desk, needed: Needed) {
        desk.bounds.begins(needed, Instant::now());
        let own = self.clone();
        let begun = std::thread::Builder::new().spawn(move || {
            let begin = Instant::now();
            let (started, runs) = own.house.run_for_others(needed.owner);
            let (mut desk, now) = (lock(&own.desk), Instant::now());
            match started {
                Started::Refused(_) => desk.bounds.has_failed(needed.owner, now - begin, now),
                _ => desk.bounds.is_over(needed.owner, runs),
            }
            desk.came.insert(needed, started);
        });
        if begun.is_err() {
            // It is asked for again.
            desk.bounds.is_over(needed.owner, false);
        }
    }
}

impl House {
    /// Those that rest begin again, to go in order: what is in their memory is theirs to remove.
    pub(super) fn wake_all(&self) {
        let all: Vec<(u32, Seat)> =
            lock(&self.seats).iter().map(|(owner, seat)| (*owner, seat.clone())).collect();
        let is_resting = |seat: &Seat| {
            let Ok(mut seat) = seat.try_lock() else { return false };
            let machine = seat.machine.as_mut();
            if machine.is_some_and(|machine| !machine.hear() && machine.end.is_some()) {
                self.has_gone(&mut seat);
            }
            seat.rests
        };
        let resting: Vec<u32> =
            all.into_iter().filter(|(_, seat)| is_resting(seat)).map(|(owner, _)| owner).collect();
        let begin = Instant::now();
        // Those that do not come are waited for by nobody.
        for some in resting.chunks(WAKEN).take_while(|_| begin.elapsed() < DEAF) {
            std::thread::scope(|threads| {
                for owner in some {
                    // What it leaves its user brings, or removes.
                    let _ = std::thread::Builder::new()
                        .spawn_scoped(threads, || drop(self.run_his(*owner)));
                }
            });
        }
    }

    /// A server that runs for others is told to go, if nobody has needed it for so long.
    fn may_rest(&self, owner: u32, idle: Duration) {
        let Some(seat) = lock(&self.seats).get(&owner).cloned() else { return };
        // One that is being started is needed.
        let Ok(mut seat) = seat.try_lock() else { return };
        let is_for_others = seat.himself.is_none();
        if let Some(machine) = seat.machine.as_mut().filter(|_| is_for_others)
            && machine.hear()
        {
            let ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
            machine.tell(Order::Rest(ms));
        }
    }

    /// Has a user's server run, who has not come for it just now. Whether it runs for others alone.
    fn run_for_others(&self, owner: u32) -> (Started, bool) {
        match self.run_his(owner) {
            Ok((Reply::Serves, is_new, himself)) => {
                (if is_new { Started::Begun } else { Started::Runs }, !himself)
            }
            // It is on its way, or was a moment ago: it is asked for again.
            Ok(_) => (Started::Runs, false),
            Err(error) => (Started::Refused(format!("{error:#}")), false),
        }
    }

    /// Refuses a seat more to who has not come himself: those are kept from nobody who comes.
    fn has_room_for_others(&self, owner: u32) -> Result<()> {
        let seats = lock(&self.seats);
        let is_for_others = |seat: &&Seat| seat.try_lock().is_ok_and(|it| it.himself.is_none());
        let is_full = || seats.values().filter(is_for_others).count() >= RUN_MAX;
        ensure!(
            seats.contains_key(&owner) || !is_full(),
            "{RUN_MAX} users who have not come have servers, and no more of them"
        );
        Ok(())
    }

    /// What came of it, whether it was started, and whether its user has come himself.
    fn run_his(&self, owner: u32) -> Result<(Reply, bool, bool)> {
        let known = lock(&self.seats).get(&owner).cloned();
        let himself = match &known {
            Some(seat) => match seat.try_lock() {
                Ok(chair) => chair.himself.clone(),
                Err(_) => return Ok((Reply::Starting, false, false)),
            },
            None => None,
        };
        let (user, limits) = match himself {
            Some(himself) => himself,
            None => (User::of_number(owner)?, Limits::own()?),
        };
        self.has_room_for_others(owner)?;
        let seat = self.seat_of(&user)?;
        let Ok(mut chair) = seat.try_lock() else { return Ok((Reply::Starting, false, false)) };
        let before = chair.started;
        let reply = self.has_it_run((&user, &limits), &mut chair)?;
        Ok((reply, chair.started != before, chair.himself.is_some()))
    }
}
