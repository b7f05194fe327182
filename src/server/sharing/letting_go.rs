//! What servers say to each other of names that homes have let go: who takes them away says which
//! have gone, until the home knows; of others, and of those of which it has not heard, the home
//! asks. A name that was not taken away by then is not, by that: it counts again, whatever it is
//! called by now, and wherever.
//!
//! Invariants: what is said is written down before, or holds as long as this process lives, and who
//! asked has no name taken away by another one. Who was removed cannot say: then the home looks.
//! Not here: what is counted (`naming/counting`), and by which times names go
//! (`naming/letting_go`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::Result;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member};
use terral_format::wire::letting_go::{LettingGo, WHICH_MAX};
use terral_format::wire::message::Kind;
use terral_format::wire::roster::Control;
use terral_format::wire::things::Child;

use crate::core::state::State;
use crate::core::world::Tick;
use crate::naming::leaving::{LetGo, Time};
use crate::naming::{counting, elsewhere};
use crate::sharing::own::{Own, are_wanted, as_own};

/// Who was let go of a name takes it away by then, mostly.
const SOON: Duration = Duration::from_millis(200);

/// Another member says something of that.
///
/// # Errors
/// None yet: what is not known is nothing.
pub fn heard(state: &mut State, from: Member, said: LettingGo) -> Result<()> {
    if state.backing.is_some() {
        // Where there is a permanent store homes look.
        return Ok(());
    }
    match said {
        LettingGo::Asks(which) => {
            let now = state.world.now();
            let Some(members) = &mut state.members else { return Ok(()) };
            let [gone, stayed] = members.is_asked_of(from, &which, now);
            let asked =
                stayed.iter().copied().max().filter(|which| members.is_new_of(from, *which));
            if let Some(which) = asked {
                state.record(Membership::Asked { home: from, which });
            }
            says(state, from, LettingGo::Gone(gone));
            says(state, from, LettingGo::Stayed(stayed));
        }
        LettingGo::Gone(which) => {
            which.iter().try_for_each(|at| counting::is_known(state, (from, *at), true))?;
            says(state, from, LettingGo::Knows(which));
        }
        LettingGo::Stayed(mut which) => {
            which.retain(|at| state.names.let_go_at((from, *at)).is_some());
            state.members.iter_mut().for_each(|members| members.have_stayed(from, &which));
            settle_stayed(state);
        }
        LettingGo::Knows(which) => {
            for time in which.into_iter().map(|which| (from, which)) {
                if state.members.as_ref().is_some_and(|members| members.is_gone(time)) {
                    forget(state, time);
                }
            }
        }
    }
    Ok(())
}

fn says(state: &mut State, to: Member, said: LettingGo) {
    if said.count() > 0 {
        state.members.iter_mut().for_each(|members| {
            members.says(to, Control::LettingGo(said.clone()));
        });
    }
}

/// The home of what has gone knows, or is no more.
fn forget(state: &mut State, (home, which): Time) {
    state.record(Membership::Gone { home, which, is: false });
}

/// Time has passed.
pub fn tick(state: &mut State) {
    tell(state);
    ask(state);
    settle_stayed(state);
    settle_removed(state);
}

/// Homes are told what has gone.
fn tell(state: &mut State) {
    let Some(members) = &state.members else { return };
    let mut told = BTreeMap::<Member, Vec<u64>>::new();
    let mut lost = Vec::new();
    for (home, which) in members.gone() {
        if members.is_removed(home) {
            lost.push((home, which));
        } else {
            told.entry(home).or_default().push(which);
        }
    }
    lost.into_iter().for_each(|time| forget(state, time));
    for (home, which) in told {
        let some = which.chunks(WHICH_MAX);
        some.for_each(|some| says(state, home, LettingGo::Gone(some.to_vec())));
    }
}

/// Others are asked what has come of names that were let go a while ago.
fn ask(state: &mut State) {
    let now = state.world.now();
    let mut asked = BTreeMap::<Member, Vec<u64>>::new();
    for ((by, which), _) in state.names.let_go() {
        if now.since(Tick(which)) >= SOON {
            asked.entry(by).or_default().push(which);
        }
    }
    for (by, which) in asked {
        let some = which.chunks(WHICH_MAX);
        some.for_each(|some| says(state, by, LettingGo::Asks(some.to_vec())));
    }
}

/// Names that have stayed are counted, as soon as nobody is shown another count.
fn settle_stayed(state: &mut State) {
    let Some(members) = &state.members else { return };
    let of = |time: &Time| Some((state.names.let_go_at(*time)?.ino, *time));
    let mut files = BTreeMap::<Ino, Vec<Time>>::new();
    for (ino, time) in members.stayed().iter().filter_map(of) {
        files.entry(ino).or_default().push(time);
    }
    are_wanted(state, Own::Stayed, &files.keys().copied().collect());
    for (ino, times) in files {
        as_own(state, (Own::Stayed, ino), |state| {
            times.iter().try_for_each(|time| counting::is_known(state, *time, false))
        });
    }
}

/// Of a member that was removed the home finds it out by itself: a name that does not stand for the
/// file any more has gone, if that member had the directory until then. Else another one may have
/// moved the name, or removed it: one too many keeps bytes, one too few loses them.
fn settle_removed(state: &mut State) {
    let Some(members) = &state.members else { return };
    let its = state.names.let_go().filter(|((by, _), _)| members.is_removed(*by));
    let its: Vec<(Time, LetGo)> = its.map(|(time, let_go)| (time, let_go.clone())).collect();
    let mut parents = BTreeMap::<Ino, Vec<(Time, LetGo)>>::new();
    for (time, let_go) in its {
        let (kind, text) = (Kind::Directory, Vec::new());
        let child = Child { name: Vec::new(), number: let_go.directory, kind, text };
        if let Ok(parent) = elsewhere::place(state, &child) {
            parents.entry(parent).or_default().push((time, let_go));
        }
    }
    let wanted: BTreeSet<Ino> = parents.keys().copied().collect();
    are_wanted(state, Own::LetGo, &wanted);
    for (parent, its) in parents {
        as_own(state, (Own::LetGo, parent), |state| {
            elsewhere::take_all(state, &[parent])?;
            its.iter().try_for_each(|(time, _)| {
                let let_go = state.names.let_go_at(*time).filter(|let_go| !let_go.name.is_empty());
                let named =
                    let_go.map(|let_go| (state.names.child_here(parent, &let_go.name), let_go.ino));
                let had = state.members.as_ref().is_some_and(|members| members.had(parent, time.0));
                let gone = had && named.is_some_and(|(there, ino)| there != Some(ino));
                counting::is_known(state, *time, gone)
            })
        });
    }
}
