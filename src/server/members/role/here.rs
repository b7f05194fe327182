//! What the protocol asks of the server around it: who is changing what here, and what may go to
//! whom.

use std::collections::BTreeMap;

use terral_format::ids::{Member, Thing};
use terral_format::moment::Moment;
use terral_format::wire::peers::Work;
use terral_format::wire::person::Person;
use terral_format::wire::placement::Placement;
use terral_format::wire::things::{By, Change};
use terral_partition::effect::{Giving, Local};

use super::{JUST_NOW, users};
use crate::core::state::State;
use crate::core::world::Tick;
use crate::members::numbers::Numbers;

/// Who is changing what, as this server knows.
pub(super) struct Here<'s> {
    pub(super) state: &'s State,
    pub(super) numbers: &'s Numbers,
    pub(super) users: &'s BTreeMap<Member, Person>,
    pub(super) changed: &'s BTreeMap<Thing, Tick>,
    pub(super) placement: &'s Placement,
}

impl Here<'_> {
    /// What time it is, as the protocol has it.
    pub(super) fn now(&self) -> Moment {
        Moment(self.state.world.now().0)
    }
}

impl Local for Here<'_> {
    fn in_use(&self, thing: Thing) -> bool {
        let now = self.state.world.now();
        match thing {
            Thing::Directory(_) => {
                self.changed.get(&thing).is_some_and(|at| now.since(*at) < JUST_NOW)
            }
            Thing::File(number) => {
                self.numbers.place(number).is_some_and(|ino| self.state.names.is_written(ino))
            }
            Thing::Chunk(..) => false,
        }
    }

    /// A file's home changes what it looks like: it counts its names. Where there is a permanent
    /// store, only it changes them there, too; and what that is owed of a directory's names is to
    /// be there before the directory goes: it does to who creates files in it, who may create many.
    fn is_lent(&self, thing: Thing, work: &Work) -> bool {
        let is_directory = matches!(thing, Thing::Directory(_));
        is_directory && (self.state.backing.is_none() || creates(work))
    }

    /// A member without the role storage has nothing that would be lost with it: it asks. Where
    /// each user has servers, nobody has what is another's: root's have nothing of a user's.
    fn may_go(&self, thing: Thing, to: Member, how: Giving) -> bool {
        if self.are_for_one(self.numbers.me(), to) {
            return self.placement.stores(to) || how != Giving::Lend;
        }
        let sees = self.users.get(&to).is_none_or(|user| self.may_have(user, thing, how));
        how == Giving::Show && sees
    }

    fn is_trusted(&self, member: Member) -> bool {
        !self.users.contains_key(&member) || self.are_for_one(self.numbers.me(), member)
    }

    fn are_for_one(&self, one: Member, other: Member) -> bool {
        users::are_for_one(self.users, one, other)
    }

    /// A directory goes to who decides it once the permanent store has what it is owed of names:
    /// who only looks does not wait for that.
    fn is_settled(&self, thing: Thing) -> bool {
        let owes = !self.state.names.owed().is_empty() || !self.state.names.publishing().is_empty();
        let is_own = thing.number().born() == self.numbers.me();
        self.state.backing.is_none() || is_own || !owes
    }

    /// Of a directory the tables have the names that were walked.
    fn keeps_copy(&self, thing: Thing) -> bool {
        !matches!(thing, Thing::Directory(_))
    }

    /// What names a directory has, others know, too, or the permanent store; what a file that was
    /// born here is, this server. What was another user's is found anew by the next server of his.
    fn may_be_restored(&self, thing: Thing) -> bool {
        let (me, born) = (self.numbers.me(), thing.number().born());
        match thing {
            Thing::Directory(_) => self.are_for_one(me, born),
            Thing::File(_) => born == me,
            Thing::Chunk(..) => false,
        }
    }
}

/// Of what another member wants of a directory, whether that is a name for a file of its own.
fn creates(work: &Work) -> bool {
    let Work::Change(body) = work else { return false };
    By::<Change>::of(body).is_ok_and(|by| matches!(by.what, Change::Name(_)))
}
