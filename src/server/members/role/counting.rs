//! How many names files have: those of files that were born here of which others say that they were
//! lost, and those of others' files that were let go for this server.
//!
//! Not here: what is done about them (`naming/counting`, `sharing/adrift`).

use std::collections::{BTreeMap, VecDeque};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino, Member, Number};
use terral_format::wire::transactions::OPERATIONS_MAX;

use super::Members;

/// So many names are remembered that were let go, all of one transaction at least: a file that gets
/// one of them again does so soon.
const LET_GO: usize = OPERATIONS_MAX;

/// As what the home of a file knows a name of it: which file, in which directory, and how called.
pub type Counted = (Number, Number, Vec<u8>);

/// All of it.
#[derive(Default)]
pub(super) struct Counting {
    /// What each has said last of a file, and whether it is counted.
    lost: BTreeMap<(Ino, Member), (u64, bool)>,
    /// A file, a directory, and its name there. As long as this process lives.
    let_go: VecDeque<(Counted, Option<Asker>)>,
    /// Which request has asked about its names once more.
    again: Option<Asker>,
}

impl Counting {
    pub(super) fn apply(&mut self, record: &Membership) {
        if let Membership::Lost { ino, by, token, counted } = record {
            self.lost.insert((*ino, *by), (*token, *counted));
        }
    }
}

impl Members {
    /// For a snapshot.
    pub(super) fn counting(&self) -> impl Iterator<Item = Membership> + '_ {
        let lost = self.counting.lost.iter();
        let lost = lost.map(|((ino, by), (token, counted))| Membership::Lost {
            ino: *ino,
            by: *by,
            token: *token,
            counted: *counted,
        });
        lost.chain(self.inviting.snapshot())
    }

    /// The home of a file is asked to let a name of it go; `by`: so that this request can move it.
    pub fn has_let_go(&mut self, name: Counted, by: Option<Asker>) {
        let names = &mut self.counting.let_go;
        names.retain(|(is, _)| *is != name);
        names.truncate(LET_GO - 1);
        names.push_front((name, by));
    }

    /// Whether a request is to ask homes once more about names: it does so once.
    pub fn asks_again(&mut self, asker: Asker) -> bool {
        self.counting.again.replace(asker) != Some(asker)
    }

    /// Whether it was, not long ago; but for this request, to move it.
    pub fn was_let_go_of(&self, name: &Counted, but: Option<Asker>) -> bool {
        let mut names = self.counting.let_go.iter();
        names.any(|(is, by)| is == name && (by.is_none() || *by != but))
    }

    /// Whether a member has said before that a file has lost a name.
    pub fn has_heard_lost(&self, ino: Ino, by: Member, token: u64) -> bool {
        self.counting.lost.get(&(ino, by)).is_some_and(|(last, _)| *last == token)
    }

    /// What others have said of files that are no more is of no use.
    pub fn forget_lost(&mut self, is_gone: impl Fn(Ino) -> bool) {
        self.counting.lost.retain(|(ino, _), _| !is_gone(*ino));
    }

    /// What is said to be lost, and not counted: the file, by whom, and with which token.
    pub fn uncounted(&self) -> impl Iterator<Item = (Ino, Member, u64)> + '_ {
        let lost = self.counting.lost.iter().filter(|(_, (_, counted))| !counted);
        lost.map(|((ino, by), (token, _))| (*ino, *by, *token))
    }
}
