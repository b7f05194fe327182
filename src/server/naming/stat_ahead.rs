//! Attributes that are asked for ahead (as Lustre's statahead): who looks at one file after the
//! other of a directory that another member has shown is shown the next ones in the same frame.
//!
//! Invariants: nobody waits for these, and they are shown as if somebody had looked; of a directory
//! of which there is no copy nothing is asked ahead. Not here: how a look is answered
//! (`elsewhere`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::Result;
use terral_format::ids::{Ino, Thing};
use terral_format::wire::message::Kind;
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Child, Look};
use terral_partition::effect::Access;

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::core::world::Tick;
use crate::members::requiring;
use crate::members::role::Members;
use crate::naming::elsewhere;

/// Files that are asked for at once: by who looks at any of a directory, and by who looks at them
/// in the order of a listing, four times as many each time. Who has them shows all of them before
/// it does anything else, some 20 µs each.
const LEAST: usize = 8;
const MOST: usize = 64;
/// Who has looked so often in any order looks at most of them, and is shown more.
const OFTEN: u32 = 4;
const OF_MANY: usize = 32;
/// Looks that are farther apart do not follow each other.
const WITHIN: Duration = Duration::from_secs(1);
/// Directories of which is known what was looked at last.
const DIRECTORIES_MAX: usize = 64;

/// What was looked at last in a directory.
struct Walk {
    /// Who was waited for.
    ino: Ino,
    /// The last name that was asked for.
    until: Vec<u8>,
    window: usize,
    /// How often somebody has had to wait, one look soon after the other.
    times: u32,
    at: Tick,
}

/// See the module.
#[derive(Default)]
pub struct StatAhead(BTreeMap<Ino, Walk>);

impl StatAhead {
    /// Something with this name is looked at, before which `before` comes in the directory. Gives
    /// how many are to be asked for with it.
    fn meets(
        &mut self,
        directory: Ino,
        (ino, name): (Ino, &[u8]),
        before: Option<&[u8]>,
        now: Tick,
    ) -> usize {
        let walk = self.0.remove(&directory).filter(|walk| now.since(walk.at) < WITHIN);
        let again = walk.as_ref().is_some_and(|walk| walk.ino == ino);
        let window = match &walk {
            None => 0,
            Some(walk) if again => walk.window,
            Some(walk) if before == Some(&walk.until) => (walk.window * 4).clamp(LEAST, MOST),
            Some(walk) if walk.times >= OFTEN => OF_MANY,
            Some(_) => LEAST,
        };
        let times = walk.as_ref().map_or(1, |walk| walk.times + u32::from(!again));
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.retain(|_, walk| now.since(walk.at) < WITHIN);
        }
        let until = walk.filter(|_| again).map_or_else(|| name.to_vec(), |walk| walk.until);
        if self.0.len() < DIRECTORIES_MAX {
            self.0.insert(directory, Walk { ino, until, window, times, at: now });
        }
        if again { 0 } else { window }
    }

    /// All up to this name have been asked for.
    fn until(&mut self, directory: Ino, name: &[u8]) {
        if let Some(walk) = self.0.get_mut(&directory) {
            walk.until = name.to_vec();
        }
    }
}

/// A request is about to wait for what a file looks like: others of its directory are asked for
/// with it, if it is not the first.
pub fn go_on(state: &mut State, caller: &Caller, ino: Ino) -> Result<()> {
    let body = By { person: (*caller.person).clone(), what: Look::Attributes }.body()?;
    for thing in next(state, ino).unwrap_or_default() {
        requiring::ask_ahead(state, thing, Work::Look(body.clone()))?;
    }
    Ok(())
}

fn next(state: &mut State, ino: Ino) -> Option<Vec<Thing>> {
    let (directory, name) = state.names.names_of(ino).into_iter().next()?;
    let of = elsewhere::thing_of(state, directory)?;
    let members = state.members.as_ref()?;
    let copy = members.copy(of)?.clone();
    let before = copy.before(&name).map(|child| child.name.as_slice());
    let window = state.stat_ahead.meets(directory, (ino, &name), before, state.world.now());
    let wanted = |child: &&Child| is_unknown(members, state, child);
    let asked: Vec<&Child> = copy.after(&name).take(window).filter(wanted).collect();
    if let Some(last) = copy.after(&name).take(window).last() {
        state.stat_ahead.until(directory, &last.name);
    }
    Some(asked.into_iter().map(|child| Thing::File(child.number)).collect())
}

fn is_unknown(members: &Members, state: &State, child: &Child) -> bool {
    let thing = Thing::File(child.number);
    let others = child.kind != Kind::Directory && !members.is_born_here(child.number);
    others && members.copy(thing).is_none() && members.access(thing, state) == Access::Nothing
}

#[cfg(test)]
mod tests {
    use super::{LEAST, MOST, OF_MANY, StatAhead, WITHIN};
    use crate::core::world::Tick;
    use terral_format::ids::Ino;

    const DIRECTORY: Ino = Ino(1);

    fn meets(ahead: &mut StatAhead, number: u64, before: u64, at: u64) -> usize {
        let name = |number: u64| format!("{number:04}").into_bytes();
        let before = name(before);
        let meets = ahead.meets(DIRECTORY, (Ino(number), &name(number)), Some(&before), Tick(at));
        if meets > 0 {
            ahead.until(DIRECTORY, &name(number + meets as u64));
        }
        meets
    }

    #[test]
    fn who_goes_through_a_directory_in_order_is_shown_more_each_time() {
        let ahead = &mut StatAhead::default();
        assert_eq!(meets(ahead, 10, 9, 1), 0, "the first of all");
        assert_eq!(meets(ahead, 11, 10, 2), LEAST);
        assert_eq!(meets(ahead, 11, 10, 3), 0, "the same look, tried again");
        let next = 11 + LEAST as u64 + 1;
        assert_eq!(meets(ahead, next, next - 1, 4), 4 * LEAST);
        let next = next + 4 * LEAST as u64 + 1;
        assert_eq!(meets(ahead, next, next - 1, 5), MOST);
    }

    #[test]
    fn who_looks_here_and_there_is_shown_few_and_who_looks_seldom_none() {
        let ahead = &mut StatAhead::default();
        assert_eq!(meets(ahead, 10, 9, 1), 0);
        assert_eq!(meets(ahead, 500, 499, 2), LEAST);
        assert_eq!(meets(ahead, 200, 199, 3), LEAST);
        assert_eq!(meets(ahead, 700, 699, 3), LEAST);
        assert_eq!(meets(ahead, 900, 899, 3), OF_MANY, "most of them, it seems");
        assert_eq!(meets(ahead, 300, 299, 4 + WITHIN.as_nanos() as u64), 0);
    }

    #[test]
    fn of_so_many_directories_and_no_more_something_is_known() {
        let ahead = &mut StatAhead::default();
        for directory in 0..1000 {
            ahead.meets(Ino(directory), (Ino(1), b"a"), None, Tick(1));
        }
        assert_eq!(ahead.0.len(), super::DIRECTORIES_MAX);
    }
}
