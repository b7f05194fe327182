//! How many names files have: those of files that were born here of which others say that they were
//! lost, and those of others' files that were let go for this server.
//!
//! Not here: what is done about them (`naming/counting`, `sharing/adrift`).

use std::collections::{BTreeMap, VecDeque};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number};

use super::Members;

/// So many names are remembered that were let go: a file that gets one of them again does so soon.
const LET_GO: usize = 256;

/// All of it.
#[derive(Default)]
pub(super) struct Counting {
    /// What each has said last of a file, and whether it is counted.
    lost: BTreeMap<(Ino, Member), (u64, bool)>,
    /// A file, a directory, and its name there. As long as this process lives.
    let_go: VecDeque<(Number, Number, Vec<u8>)>,
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

    /// The home of a file has let a name of it go, which others have, too.
    pub fn has_let_go(&mut self, name: (Number, Number, Vec<u8>)) {
        let names = &mut self.counting.let_go;
        names.retain(|is| *is != name);
        names.truncate(LET_GO - 1);
        names.push_front(name);
    }

    /// Whether it has, not long ago.
    pub fn was_let_go_of(&self, (file, directory, name): (Number, Number, &[u8])) -> bool {
        let mut names = self.counting.let_go.iter();
        names.any(|(of, at, is)| *of == file && *at == directory && is == name)
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
