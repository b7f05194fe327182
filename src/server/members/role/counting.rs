//! Names of files that were born here, of which it is to be found out whether they still are: those
//! that other members' files are about to take, and those that others say were lost.
//!
//! Not here: what is done about them (`naming/counting`, `sharing/adrift`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number};

use super::Members;

/// All of them.
#[derive(Default)]
pub(super) struct Counting {
    /// Names that are about to be taken.
    leaving: BTreeSet<(Ino, Number, Vec<u8>)>,
    /// What each has said last of a file, and whether it is counted.
    lost: BTreeMap<(Ino, Member), (u64, bool)>,
}

impl Counting {
    pub(super) fn apply(&mut self, record: &Membership) {
        match record {
            Membership::Leaves { ino, directory, name, is } => {
                let name = (*ino, *directory, name.clone());
                match is {
                    true => drop(self.leaving.insert(name)),
                    false => drop(self.leaving.remove(&name)),
                }
            }
            Membership::Lost { ino, by, token, counted } => {
                self.lost.insert((*ino, *by), (*token, *counted));
            }
            _ => {}
        }
    }
}

impl Members {
    /// For a snapshot.
    pub(super) fn counting(&self) -> impl Iterator<Item = Membership> + '_ {
        let Counting { leaving, lost } = &self.counting;
        let leaving = leaving.iter().map(|(ino, directory, name)| Membership::Leaves {
            ino: *ino,
            directory: *directory,
            name: name.clone(),
            is: true,
        });
        let lost = lost.iter().map(|((ino, by), (token, counted))| Membership::Lost {
            ino: *ino,
            by: *by,
            token: *token,
            counted: *counted,
        });
        leaving.chain(lost).chain(self.inviting.snapshot())
    }

    /// Names that other members' files are about to take.
    pub fn leaving(&self) -> impl Iterator<Item = &(Ino, Number, Vec<u8>)> {
        self.counting.leaving.iter()
    }

    /// Whether this is so of a name of a file.
    pub fn is_leaving(&self, ino: Ino) -> bool {
        self.leaving().any(|(of, ..)| *of == ino)
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

    /// Whether the count of a file's names is to change yet, as others have taken some.
    pub fn is_counting(&self, ino: Ino) -> bool {
        self.is_leaving(ino) || self.uncounted().any(|(of, ..)| of == ino)
    }
}
