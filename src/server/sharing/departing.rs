//! How a member leaves in order. It brings what it owes, and waits until nobody uses anything of
//! it; gives back what it has of others; hands the directories that were born here over to who will
//! decide them; and once nothing is under way any more it has left, by its own word, which is
//! written down: from then on it does nothing. The control says so to all others, in a new epoch.
//! Files that were born here are then the permanent store's: nobody else's tables name them any
//! more.
//!
//! Invariants: until it has left it is a member as any other, and may be killed or go on; when it
//! has, it never comes back. What the control says follows what is written down here. Not here:
//! what becomes of things (`terral_partition`), and how the process ends (`shell/serve`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number, Thing};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::wire::roster::{Control, HANDED_MAX};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::{Access, Giving, Input};

use crate::core::state::State;
use crate::debts::owing;
use crate::members::stepping::tell;
use crate::members::{control, requiring, roles};
use crate::naming::{elsewhere, whole};
use crate::sharing::own::{Own, are_wanted, as_own};
use crate::sharing::{bodies, large};

/// Who was started again after it had left ends without the control's word after so long.
const LONG: Duration = Duration::from_secs(30);
/// To whom directories are handed has so long to take them, before another one is asked.
const EACH: Duration = Duration::from_secs(5);

/// Whether this server may end as somebody wants it to: not if it says who is in, and others are;
/// nor if they would miss files, unless they are to (`loses`).
///
/// # Errors
/// [`ErrorKind::Busy`] and [`ErrorKind::Invalid`], with what is to be done.
pub fn may_end(state: &State, loses: bool) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    if members.me() == members.control() && successors(state).is_empty() {
        let others: Vec<Member> = members.others().into_iter().collect();
        let Some(first) = others.first() else { return Ok(()) };
        let named: Vec<String> = others.iter().map(Member::to_string).collect();
        let (named, number) = (named.join(", "), first.number());
        let also = match roles::is_own_authority(state) {
            true => ", start another one of --role authn,authz",
            false => "",
        };
        let context = format!(
            "{named} still in, and need this server: end them before (`terral stop` there; `terral \
             fence {number} --dead` if that machine is lost){also}, or end this one all the same \
             (--now)"
        );
        return Err(Error::new(ErrorKind::Busy, context));
    }
    if roles::is_last_storage(members.roster(), members.me(), members.control()) {
        let context = "the last server of this pool that keeps files, which others need: start \
                       another one of --role storage, end those before, or this one all the same \
                       (--now)";
        return Err(Error::new(ErrorKind::Busy, context));
    }
    let count = if state.backing.is_some() || loses { 0 } else { own_files(state) };
    if count > 0 {
        let context = format!(
            "files in this machine's memory and nowhere else: {count}; copy or move them to \
             another directory, or end it with --lose"
        );
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    Ok(())
}

/// Who may be the control instead of this one: another that is trusted with all and is there, if
/// this is the control of a pool; where it has an authority, one of that.
pub fn successors(state: &State) -> Vec<Member> {
    let members = state.members.as_ref().filter(|members| members.control() == members.me());
    let Some(members) = members.filter(|members| members.is_of_any_pool()) else {
        return Vec::new();
    };
    let (me, roster) = (members.me(), members.roster());
    let is_authority = !roles::other_authorities(roster, me).is_empty();
    let is_authority = is_authority || roles::is_authority(roster, me);
    let may = |member: &Member| {
        let is_of_it = !is_authority || roles::is_authority(roster, *member);
        is_of_it && !roster.is_users(*member) && members.is_connected(*member)
    };
    members.others().into_iter().filter(may).collect()
}

/// Whether another one is to be the control: this server, which is, is to end, or the pool has an
/// authority, and this is none.
pub fn must_hand_over(state: &State) -> bool {
    let members = state.members.as_ref().filter(|members| members.control() == members.me());
    let Some(members) = members.filter(|members| members.is_of_any_pool()) else { return false };
    let (me, roster) = (members.me(), members.roster());
    let is_other = |authority: &Member| members.is_connected(*authority);
    let has_authority = roles::other_authorities(roster, me).iter().any(is_other);
    let is_for_it = !roles::is_authority(roster, me) && has_authority;
    is_for_it || state.departs && !members.others().is_empty()
}

/// What is to be said of that now, and to whom: directories are handed to one after the other of
/// those that may have them, as one may be about to leave, too.
pub fn take_said(state: &mut State) -> Option<(Member, Control)> {
    let now = state.world.now();
    let said = state.members.as_mut()?.take_departure()?;
    let control = state.members.as_ref()?.control();
    if !matches!(said, Control::Hands(_)) {
        return Some((control, said));
    }
    let heirs = heirs(state);
    let turn = now.since(state.since).as_secs() / EACH.as_secs();
    let heir = heirs.get(turn as usize % heirs.len().max(1)).copied();
    heir.map(|heir| (heir, said))
}

/// Who may have this server's directories: of a user's only his other ones. Where there is none,
/// what it decided is what the permanent store has.
fn heirs(state: &State) -> Vec<Member> {
    let is_ours = |member: &Member| state.members.as_ref().is_some_and(|it| it.is_ours(*member));
    control::heirs_of_own(state).into_iter().filter(is_ours).collect()
}

fn own_files(state: &State) -> usize {
    let own = |inode: &Inode| {
        let is_file = inode.kind == Kind::File && inode.is(flag::NAMED);
        is_file && !inode.is(flag::FAR) && !inode.is(flag::PREALLOCATED)
    };
    state.names.inodes().filter(own).count()
}

fn me(state: &State) -> Option<Member> {
    state.members.as_ref().map(|members| members.me())
}

/// Whether this server has left, by its own word.
pub fn has_left(state: &State) -> bool {
    let members = state.members.as_ref();
    members.is_some_and(|members| members.has_left(members.me()))
}

/// Whether this server is to end as one that has left.
pub fn departs(state: &State) -> bool {
    let is_control = |state: &State| {
        state.members.as_ref().is_none_or(|members| members.control() == members.me())
    };
    (state.departs || has_left(state)) && !is_control(state)
}

/// Whether it need not wait with that any more: the control knows that it has left, or what was
/// left of it was only to be told so, and nobody hears.
pub fn is_over(state: &State) -> bool {
    let Some(members) = &state.members else { return true };
    let waited = state.world.now().since(state.since) > LONG;
    members.was_let_go() || members.began_put_out() && has_left(state) && waited
}

/// Whether nobody uses anything of this server, and it owes nothing.
fn is_at_rest(state: &State) -> bool {
    let own = state.machine.pid();
    let programs = state.sessions.clients().any(|(_, client)| client.process.pid() != own);
    let open = state.descriptions.count() + state.far.nameless();
    let is_open = open > state.names.count_preallocated();
    let paid = state.backing.is_none() || state.debts.is_settled();
    let owes = state.backing.is_some() && owing::owes(state);
    let far = state.far.loans.is_empty() && state.far.batches.is_empty() && !state.far.has_unsaid();
    let waits = state.waiting.count() > 0 || state.waits_between();
    let moves = !state.names.resting().is_empty();
    paid && far && !(programs || is_open || owes || waits || moves)
}

/// Whether this server is about to leave, and nothing of it is used any more.
pub fn is_leaving(state: &State) -> bool {
    has_left(state) || departs(state) && is_at_rest(state)
}

/// Time has passed.
///
/// # Errors
/// If the tables have no room.
pub fn tick(state: &mut State) -> Result<()> {
    take(state);
    if has_left(state) {
        // Also if it was started again meanwhile: there is nothing else to do.
        state.finishing = true;
        let members = state.members.iter_mut().filter(|members| !members.was_let_go());
        members.for_each(|members| members.says_to_control(Control::Leaves));
    } else if departs(state) && is_at_rest(state) {
        let borrowed = state.members.as_ref().map(|members| members.borrowed());
        borrowed.into_iter().flatten().for_each(|thing| tell(state, Input::GiveBack(thing)));
        let left = own_directories(state);
        if !left.is_empty() {
            let members = state.members.iter_mut();
            members.for_each(|members| members.says_to_control(Control::Hands(left.clone())));
        }
    }
    Ok(())
}

/// Directories that were born here and nobody else has, as many as are handed over at once, if
/// anybody may have them. Of one that is too large to be given away the others know enough.
fn own_directories(state: &State) -> Vec<Number> {
    let Some(members) = state.members.as_ref().filter(|_| !heirs(state).is_empty()) else {
        return Vec::new();
    };
    let directories = state.names.inodes().filter(|it| it.is_directory() && it.is(flag::NAMED));
    let numbers = directories.filter_map(|inode| members.number(inode.ino));
    let is_here = |number: &Number| {
        let thing = Thing::Directory(*number);
        let is_own = members.is_born_here(*number) && !members.is_lent(thing);
        is_own && large::may_be_given(state, thing, Giving::Take)
    };
    numbers.filter(is_here).take(HANDED_MAX).collect()
}

/// This server leaves, if nothing is left that anybody would miss, or that is under way.
pub fn leave_if_quiet(state: &mut State) {
    if !departs(state) || has_left(state) || !is_at_rest(state) {
        return;
    }
    let is_free = |state: &State| {
        let members = state.members.as_ref();
        members.is_some_and(|it| it.is_quiet() && it.borrowed().is_empty() && it.is_withdrawn())
    };
    if is_free(state) && own_directories(state).is_empty() {
        control::leave(state);
        state.members.iter_mut().for_each(|members| members.says_to_control(Control::Leaves));
    }
}

/// A member that is about to leave hands directories over, which were born there.
pub fn hands(state: &mut State, from: Member, directories: Vec<Number>) {
    if departs(state) {
        // It would give them back.
        return;
    }
    let theirs = directories.into_iter().filter(|directory| directory.born() == from);
    let members = state.members.iter_mut();
    members.for_each(|members| members.handed().extend(theirs.clone()));
    take(state);
}

/// Has such directories here: who has one when its member has left goes on with it.
fn take(state: &mut State) {
    let Some(mut members) = state.members.take() else { return };
    let mut handed = std::mem::take(members.handed());
    handed.retain(|number| {
        let is_here = members.access(Thing::Directory(*number), state) == Access::Change;
        !is_here && !members.is_removed(number.born())
    });
    members.handed().clone_from(&handed);
    state.members = Some(members);
    let wanted: BTreeSet<Ino> = handed.iter().map(|number| Ino(number.word())).collect();
    are_wanted(state, Own::Handed, &wanted);
    for number in handed {
        as_own(state, (Own::Handed, Ino(number.word())), |state| {
            requiring::hold_all(state, &[Thing::Directory(number)].into())
        });
    }
}

/// Members are gone: what those had that have left in order the permanent store has now, under the
/// names that it has there; what was a user's another one of his finds there.
pub fn are_gone(state: &mut State) {
    let departed = state.members.as_mut().map(|members| members.take_departed());
    let departed = departed.unwrap_or_default();
    if !(departed.in_order || departed.users) || state.backing.is_none() || me(state).is_none() {
        return;
    }
    if departed.in_order {
        let directories: Vec<Inode> = state.names.inodes().filter(Inode::is_directory).collect();
        let here = directories.into_iter().filter(|inode| elsewhere::is_here(state, inode.ino));
        let here: Vec<Inode> = here.collect();
        here.iter().for_each(|directory| forget_names(state, directory));
    }
    // Who looks at what was shown before is to ask.
    let gone = elsewhere::gone(state);
    let members = state.members.as_ref();
    let old = members.map(|members| members.copies_with(|copy| copy.has(|is| gone.had(is))));
    old.into_iter().flatten().for_each(|thing| tell(state, Input::GiveBack(thing)));
}

/// Names of such members' files in a directory that is here are looked for when they are wanted.
fn forget_names(state: &mut State, directory: &Inode) {
    let children = state.names.children(directory);
    let old: Vec<(Vec<u8>, Ino)> = children
        .filter_map(|(name, inode)| {
            let child = bodies::told(state, name, &inode)?;
            elsewhere::is_in_store(state, &child).then_some((child.name, inode.ino))
        })
        .collect();
    if old.is_empty() {
        return;
    }
    let parent = directory.ino;
    elsewhere::overlay(state, parent);
    if let Some(thing) = elsewhere::thing_of(state, parent) {
        whole::has_left(state, thing);
    }
    for (name, ino) in old {
        state.record(Membership::Unnamed { parent, name });
        bodies::forget_unused(state, ino);
    }
}
