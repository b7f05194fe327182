//! Transactions of which other members have a part: those that this one decides, and what was
//! prepared here for others.
//!
//! Invariants: of one that was not decided, and that no request is about to decide, it is known
//! that it never comes to be, as its id is used once; unless a witness was asked, and may know
//! something else yet. A witness of which a decider that was removed has asked nothing knows that
//! it never does, as it hears nothing of that one any more: so it writes nothing down for that. Of
//! a file one is prepared at a time. Not here: what is done about them (`naming/preparing`,
//! `sharing/transacting`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Asker, Lsn, Member, Number, SessionSlot};
use terral_format::wire::transactions::{Destination, Set, TransactionId, Trouble, Way};

use super::Members;
use crate::core::left_out::{Step, does};
use crate::core::world::Tick;

/// What was prepared of a file.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// For which transaction.
    pub of: TransactionId,
    /// What it comes to.
    pub sets: Vec<Set>,
    /// So many names it gives, which are counted already.
    pub gets: u32,
    /// So many names it takes, which are counted no more already.
    pub loses: u32,
    /// Its names are delegated, and these are the paths of those that it is to get.
    pub delegated: Option<Vec<Vec<u8>>>,
    /// When it was, seconds since 1970.
    pub since_s: u64,
    /// Since when nothing was heard of it.
    pub since: Option<Tick>,
    /// Who decides it is to be asked.
    pub asks: bool,
    /// What keeps it from being known.
    pub trouble: Option<Trouble>,
    /// Who knows of it, too.
    pub witness: Option<Member>,
}

impl Doubt {
    fn of(of: TransactionId) -> Self {
        let (sets, gets, loses, delegated, since_s) = Default::default();
        let (since, asks, trouble, witness) = Default::default();
        Doubt { of, sets, gets, loses, delegated, since_s, since, asks, trouble, witness }
    }
}

/// What a request is about to decide, and who is to know of it, too.
#[derive(Clone, Copy)]
struct Undecided {
    of: TransactionId,
    witness: Option<Member>,
    /// What tells what is asked of homes for it from all else.
    what: u64,
}

/// When the names of a file are returned to its home that were delegated.
pub struct Returning {
    /// Once the permanent store has all that it is owed up to this operation.
    pub after: Lsn,
    /// In which it has, or had, names: these stay until then.
    pub directories: BTreeSet<Number>,
    /// Which it has lost, each by its directory.
    pub lost: Way,
    /// Which it has got.
    pub got: Vec<Destination>,
}

/// Who was asked to know of one, too.
struct Asked {
    witness: Member,
    by: Asker,
    /// It does not answer. Of this process only.
    is_silent: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Transactions {
    /// By request: what it is about to decide. Of this process only.
    undecided: BTreeMap<Asker, Undecided>,
    /// What has come to be, and whose homes are to be told.
    decided: BTreeMap<TransactionId, BTreeSet<Number>>,
    /// Those of them whose names were delegated.
    returning: BTreeMap<(TransactionId, Number), Returning>,
    prepared: BTreeMap<Number, Doubt>,
    /// Of which that this one decides a witness may know.
    asked: BTreeMap<TransactionId, Asked>,
    /// What others decide and has come to be if they are removed, and whose homes are to be told
    /// then.
    witnessed: BTreeMap<TransactionId, BTreeSet<Number>>,
}

impl Transactions {
    pub(super) fn apply(&mut self, record: &Membership) {
        let Membership::Transacts(record) = record else { return };
        match record {
            Transacts::Prepared { of, file, sets, since_s } => {
                let (of, sets, since_s) = (*of, sets.clone(), *since_s);
                self.prepared.insert(*file, Doubt { sets, since_s, ..Doubt::of(of) });
            }
            Transacts::Watched { of, file, witness } => {
                let doubt = self.prepared.get_mut(file).filter(|doubt| doubt.of == *of);
                doubt.into_iter().for_each(|doubt| doubt.witness = Some(*witness));
            }
            Transacts::Gets { of, file, names } => {
                let doubt = self.prepared.get_mut(file).filter(|doubt| doubt.of == *of);
                doubt.into_iter().for_each(|doubt| doubt.gets = *names);
            }
            Transacts::Loses { of, file, names } => {
                let doubt = self.prepared.get_mut(file).filter(|doubt| doubt.of == *of);
                doubt.into_iter().for_each(|doubt| doubt.loses = *names);
            }
            Transacts::Delegated { of, file, to } => {
                let doubt = self.prepared.get_mut(file).filter(|doubt| doubt.of == *of);
                doubt.into_iter().for_each(|doubt| doubt.delegated = Some(to.clone()));
            }
            Transacts::Returns { of, file, after, directories, lost, got } => {
                let directories = directories.iter().copied().collect();
                let (after, lost, got) = (*after, lost.clone(), got.clone());
                let returning = Returning { after, directories, lost, got };
                self.returning.insert((*of, *file), returning);
            }
            Transacts::Settled { of, file } => {
                if self.prepared.get(file).is_some_and(|doubt| doubt.of == *of) {
                    self.prepared.remove(file);
                }
            }
            Transacts::Decided { of, files } => {
                self.decided.insert(*of, files.iter().copied().collect());
            }
            Transacts::Told { of, file } => {
                self.returning.remove(&(*of, *file));
                was_told(&mut self.decided, *of, *file);
                was_told(&mut self.witnessed, *of, *file);
            }
            Transacts::Asks { of, witness, asker } => {
                let asked = Asked { witness: *witness, by: *asker, is_silent: false };
                self.asked.insert(*of, asked);
            }
            Transacts::Witnessed { of, files } => {
                self.witnessed.insert(*of, files.iter().copied().collect());
            }
            Transacts::Released { of } => {
                self.asked.remove(of);
                self.witnessed.remove(of);
            }
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let decided = self.decided.iter().map(|(of, files)| Transacts::Decided {
            of: *of,
            files: files.iter().copied().collect(),
        });
        let prepared = self.prepared.iter().map(|(file, doubt)| Transacts::Prepared {
            of: doubt.of,
            file: *file,
            sets: doubt.sets.clone(),
            since_s: doubt.since_s,
        });
        let watched = self.prepared.iter().filter_map(|(file, doubt)| {
            let (of, file, witness) = (doubt.of, *file, doubt.witness?);
            Some(Transacts::Watched { of, file, witness })
        });
        let gets = self.prepared.iter().filter(|(_, doubt)| doubt.gets > 0);
        let gets = gets.map(|(file, doubt)| {
            let (of, file, names) = (doubt.of, *file, doubt.gets);
            Transacts::Gets { of, file, names }
        });
        let loses = self.prepared.iter().filter(|(_, doubt)| doubt.loses > 0);
        let loses = loses.map(|(file, doubt)| {
            let (of, file, names) = (doubt.of, *file, doubt.loses);
            Transacts::Loses { of, file, names }
        });
        let delegated = self.prepared.iter().filter_map(|(file, doubt)| {
            let (of, file, to) = (doubt.of, *file, doubt.delegated.clone()?);
            Some(Transacts::Delegated { of, file, to })
        });
        let returns = self.returning.iter().map(|((of, file), returning)| Transacts::Returns {
            of: *of,
            file: *file,
            after: returning.after,
            directories: returning.directories.iter().copied().collect(),
            lost: returning.lost.clone(),
            got: returning.got.clone(),
        });
        let asked = self.asked.iter().map(|(of, asked)| Transacts::Asks {
            of: *of,
            witness: asked.witness,
            asker: asked.by,
        });
        let witnessed = self.witnessed.iter().map(|(of, files)| Transacts::Witnessed {
            of: *of,
            files: files.iter().copied().collect(),
        });
        let here = decided.chain(returns).chain(prepared).chain(watched).chain(gets);
        let here = here.chain(loses).chain(delegated);
        here.chain(asked).chain(witnessed).map(Membership::Transacts)
    }

    pub(super) fn are_none(&self) -> bool {
        let own = self.decided.is_empty() && self.prepared.is_empty();
        own && self.asked.is_empty() && self.witnessed.is_empty()
    }

    fn is_undecided(&self, of: TransactionId) -> bool {
        self.undecided.values().any(|one| one.of == of)
    }
}

fn was_told(
    untold: &mut BTreeMap<TransactionId, BTreeSet<Number>>,
    of: TransactionId,
    file: Number,
) {
    let left = untold.get_mut(&of).map(|files| {
        files.remove(&file);
        files.len()
    });
    if left == Some(0) {
        untold.remove(&of);
    }
}

/// What there is for each home that is to be told.
fn parts<'a>(
    untold: impl Iterator<Item = (&'a TransactionId, &'a BTreeSet<Number>)>,
) -> impl Iterator<Item = (TransactionId, Number)> {
    untold.flat_map(|(of, files)| files.iter().map(|file| (*of, *file)))
}

impl Members {
    /// The transaction that a request is about to decide, and its witness: with this number, and
    /// this one, unless it has begun; `None`: with something else for homes to do.
    pub fn begins_transaction(
        &mut self,
        asker: Asker,
        what: u64,
        (number, witness): (u64, Option<Member>),
    ) -> Option<(TransactionId, Option<Member>)> {
        let new = Undecided { of: TransactionId { by: self.me(), number }, witness, what };
        let begun = *self.transactions.undecided.entry(asker).or_insert(new);
        (begun.what == what).then_some((begun.of, begun.witness))
    }

    /// Who may know of a transaction, too, that is prepared at these homes: one that answers, as
    /// far as is known, and then one that is no home; the next one after this member.
    pub fn witness_for(&self, homes: &BTreeSet<Member>) -> Option<Member> {
        let asked = self.transactions.asked.values();
        let silent: BTreeSet<Member> =
            asked.filter(|asked| asked.is_silent).map(|asked| asked.witness).collect();
        let rank = |member: &Member| {
            let answers = self.is_connected(*member) && !silent.contains(member);
            (!answers, homes.contains(member), *member < self.me(), *member)
        };
        let others = self.others().into_iter();
        others.filter(|member| self.user_of(*member).is_none()).min_by_key(rank)
    }

    /// It decides none any more: what was prepared for it is undone once that is asked about.
    pub(in crate::members) fn gives_transaction_up(&mut self, asker: Asker) {
        self.transactions.undecided.remove(&asker);
    }

    /// The same of all of a session.
    pub(in crate::members) fn gives_transactions_up(&mut self, session: SessionSlot) {
        self.transactions.undecided.retain(|asker, _| asker.session != session);
    }

    /// Whether a request is about to decide this one.
    pub fn is_undecided(&self, of: TransactionId) -> bool {
        self.transactions.is_undecided(of)
    }

    /// Whether a transaction comes to be, as this member knows that decides it, or was to know of
    /// it, too; `None`: that is not known yet.
    pub fn decision_of(&self, of: TransactionId) -> Option<bool> {
        let Transactions { decided, asked, witnessed, .. } = &self.transactions;
        let unknown = match of.by == self.me() {
            true => {
                let asks = asked.contains_key(&of) && does(Step::ReleaseWitness);
                self.is_undecided(of) || asks
            }
            // It says so itself.
            false => !self.is_removed(of.by),
        };
        match decided.contains_key(&of) {
            true => Some(true),
            false => (!unknown).then(|| witnessed.contains_key(&of)),
        }
    }

    /// What has come to be, and is to be told.
    pub fn untold(&self) -> Vec<(TransactionId, Number)> {
        let witnessed = self.transactions.witnessed.iter();
        let tells = does(Step::TellAsWitness);
        let witnessed = witnessed.filter(|(of, _)| self.is_removed(of.by) && tells);
        parts(self.transactions.decided.iter()).chain(parts(witnessed)).collect()
    }

    /// What was delegated by this file's home for a transaction that has come to be, and is not
    /// returned yet.
    pub fn returning(&self, (of, file): (TransactionId, Number)) -> Option<&Returning> {
        self.transactions.returning.get(&(of, file))
    }

    /// Whether something of this file is.
    pub fn is_returning(&self, file: Number) -> bool {
        self.delegated().any(|(_, of)| of == file)
    }

    /// Everything that was.
    pub fn delegated(&self) -> impl Iterator<Item = (TransactionId, Number)> + '_ {
        self.transactions.returning.keys().copied()
    }

    /// The same of what has, or had, names in one of these directories.
    pub fn delegated_in(&self, directories: &BTreeSet<Number>) -> Vec<(TransactionId, Number)> {
        let all = self.transactions.returning.iter();
        let its = all.filter(|(_, one)| !one.directories.is_disjoint(directories));
        its.map(|(part, _)| *part).collect()
    }

    /// Whether the witness of one was asked to know of it.
    pub fn has_asked_witness(&self, of: TransactionId) -> bool {
        self.transactions.asked.contains_key(&of)
    }

    /// Whether that of one that this request has given up may know something else yet, and answers.
    pub fn awaits_release(&self, asker: Asker) -> bool {
        let asked = self.transactions.asked.iter();
        let mut its = asked.filter(|(_, asked)| asked.by == asker && !asked.is_silent);
        its.any(|(of, _)| !self.is_undecided(*of))
    }

    /// Whether a request has asked one that answers.
    pub fn has_witness(&self, asker: Asker) -> bool {
        let mut asked = self.transactions.asked.values();
        asked.any(|asked| asked.by == asker && !asked.is_silent)
    }

    /// Of which the witness need not know any more: the homes were told, or nobody decides it.
    pub fn releasable(&self) -> Vec<(TransactionId, Member)> {
        let Transactions { asked, decided, .. } = &self.transactions;
        let early = !does(Step::KeepWitness);
        let is =
            |of: &TransactionId| (!decided.contains_key(of) || early) && !self.is_undecided(*of);
        let those = asked.iter().filter(|(of, _)| is(of));
        those.map(|(of, asked)| (*of, asked.witness)).collect()
    }

    /// Its witness does not answer: nobody waits for it any more.
    pub fn witness_is_silent(&mut self, of: TransactionId) {
        let asked = self.transactions.asked.get_mut(&of);
        asked.into_iter().for_each(|asked| asked.is_silent = true);
    }

    /// The witness of one that does not answer.
    pub fn silent_witness(&self, of: TransactionId) -> Option<Member> {
        let asked = self.transactions.asked.get(&of).filter(|asked| asked.is_silent);
        asked.map(|asked| asked.witness)
    }

    /// What this member knows of, too.
    pub fn witnessed(&self) -> impl Iterator<Item = TransactionId> {
        self.transactions.witnessed.keys().copied()
    }

    /// What was prepared of a file, if anything is.
    pub fn prepared(&self, file: Number) -> Option<&Doubt> {
        self.transactions.prepared.get(&file)
    }

    /// Everything that was.
    pub fn doubts(&self) -> impl Iterator<Item = (Number, &Doubt)> {
        self.transactions.prepared.iter().map(|(file, doubt)| (*file, doubt))
    }

    /// It was asked about, and that came of it. Whether that is news.
    pub fn was_heard_of(&mut self, file: Number, now: Tick, trouble: Option<Trouble>) -> bool {
        let Some(doubt) = self.transactions.prepared.get_mut(&file) else { return false };
        let is_new = doubt.trouble != trouble;
        (doubt.since, doubt.asks, doubt.trouble) = (Some(now), false, trouble);
        is_new
    }

    /// It is not known: if nothing was heard for so long, it is to be asked about.
    pub fn is_doubted(&mut self, file: Number, now: Tick, after: Duration) {
        if let Some(doubt) = self.transactions.prepared.get_mut(&file) {
            doubt.asks |= now.since(*doubt.since.get_or_insert(now)) > after;
        }
    }

    /// Whether it is.
    pub fn is_asked_about(&self, file: Number) -> bool {
        self.prepared(file).is_some_and(|doubt| doubt.asks)
    }

    /// Whether nothing of this member waits for others, or is waited for.
    pub(super) fn has_no_transactions(&self) -> bool {
        self.transactions.are_none()
    }
}
