//! Users' servers that are started as somebody else looks at what is theirs: root's server says
//! whose are needed, and hears what came of it.
//!
//! Invariants: a thread for each that is being started, a few of them, and nobody else waits in it;
//! each that is needed is started, or its asker hears why it is not. Not here: how many (`bounds`),
//! those that die (`again`), and as whom one is started (`unasked`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use terral_client::{Client, Needed, Started, starting};

use super::bounds::{Bounds, Came, May};
use super::{House, lock};

/// How often root's server is asked.
const ASKED: Duration = Duration::from_millis(100);
/// What is known of those that are needed.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) bounds: Bounds,
    /// What is to be said.
    came: BTreeMap<Needed, Started>,
}

/// Who has them started.
pub(super) struct Others {
    pub(super) house: Arc<House>,
    pub(super) desk: Mutex<Desk>,
}

/// The threads that do.
pub(super) struct ForOthers([JoinHandle<()>; 2]);

impl ForOthers {
    /// Begins to.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn begin(house: Arc<House>) -> Result<ForOthers> {
        let others = Arc::new(Others { house, desk: Mutex::default() });
        let [asks, looks] = [others.clone(), others];
        let begun = |does: fn(&Arc<Others>), own: Arc<Others>| {
            std::thread::Builder::new().spawn(move || does(&own)).context("a thread")
        };
        Ok(ForOthers([begun(Others::ask, asks)?, begun(Others::look, looks)?]))
    }

    /// They end, once the house is over.
    pub(super) fn end(self) {
        // They do not panic, and wait for root's server only, which answers or is gone.
        self.0.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Others {
    fn ask(self: &Arc<Self>) {
        let mut client = None;
        while !self.house.is_over() {
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
            std::thread::sleep(ASKED);
        }
    }

    /// Root's server has heard what came of some, and needs these.
    fn heard(self: &Arc<Self>, said: &[(Needed, Started)], all: Vec<Needed>) {
        let mut desk = lock(&self.desk);
        // What came of one meanwhile is said, too.
        desk.came
            .retain(|needed, came| !said.iter().any(|(is, what)| is == needed && what == came));
        for needed in all {
            if desk.came.contains_key(&needed) {
                continue;
            }
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

    fn begin(self: &Arc<Self>, desk: &mut Desk, needed: Needed) {
        desk.bounds.begins(needed.owner, Some(needed.asker));
        let own = self.clone();
        let begun = std::thread::Builder::new().spawn(move || {
            let begin = Instant::now();
            let (came, why) = own.house.run_his(needed.owner, false);
            let started = match came {
                Came::Begun { .. } => Started::Begun,
                // It is on its way, or was a moment ago: it is asked for again.
                Came::Runs => Started::Runs,
                Came::Refused | Came::Failed => Started::Refused(why),
            };
            let (mut desk, now) = (lock(&own.desk), Instant::now());
            desk.bounds.came(needed.owner, came, (now - begin, now));
            desk.came.insert(needed, started);
        });
        if begun.is_err() {
            // It is asked for again.
            desk.bounds.came(needed.owner, Came::Runs, (Duration::ZERO, Instant::now()));
        }
    }
}
