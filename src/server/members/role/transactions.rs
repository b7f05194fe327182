//! Transactions of which other members have a part: those that this one decides, and what was
//! prepared here for others.
//!
//! Invariants: of one that was not decided, and that no request is about to decide, it is known
//! that it never comes to be, as its id is used once. Of a file one is prepared at a time. Not
//! here: what is done about them (`naming/preparing`, `sharing/transacting`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Asker, Number, SessionSlot};
use terral_format::wire::transactions::{Set, TransactionId, Trouble};

use super::Members;
use crate::core::world::Tick;

/// What was prepared of a file.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// For which transaction.
    pub of: TransactionId,
    /// What it comes to.
    pub sets: Vec<Set>,
    /// When it was, seconds since 1970.
    pub since_s: u64,
    /// Since when nothing was heard of it.
    pub since: Option<Tick>,
    /// Who decides it is to be asked.
    pub asks: bool,
    /// What keeps it from being known.
    pub trouble: Option<Trouble>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Transactions {
    /// By request: what it is about to decide. Of this process only.
    undecided: BTreeMap<Asker, TransactionId>,
    /// What has come to be, and whose homes are to be told.
    decided: BTreeMap<TransactionId, BTreeSet<Number>>,
    prepared: BTreeMap<Number, Doubt>,
}

impl Transactions {
    pub(super) fn apply(&mut self, record: &Membership) {
        let Membership::Transacts(record) = record else { return };
        match record {
            Transacts::Prepared { of, file, sets, since_s } => {
                let (of, sets, since_s) = (*of, sets.clone(), *since_s);
                let doubt = Doubt { of, sets, since_s, since: None, asks: false, trouble: None };
                self.prepared.insert(*file, doubt);
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
                let left = self.decided.get_mut(of).map(|files| {
                    files.remove(file);
                    files.len()
                });
                if left == Some(0) {
                    self.decided.remove(of);
                }
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
        decided.chain(prepared).map(Membership::Transacts)
    }

    pub(super) fn are_none(&self) -> bool {
        self.decided.is_empty() && self.prepared.is_empty()
    }
}

impl Members {
    /// The transaction that a request is about to decide: with this number, unless it has begun.
    pub fn begins_transaction(&mut self, asker: Asker, number: u64) -> TransactionId {
        let new = TransactionId { by: self.me(), number };
        *self.transactions.undecided.entry(asker).or_insert(new)
    }

    /// It decides none any more: what was prepared for it is undone once that is asked about.
    pub(in crate::members) fn gives_transaction_up(&mut self, asker: Asker) {
        self.transactions.undecided.remove(&asker);
    }

    /// The same of all of a session.
    pub(in crate::members) fn gives_transactions_up(&mut self, session: SessionSlot) {
        self.transactions.undecided.retain(|asker, _| asker.session != session);
    }

    /// Whether a transaction that this member decides comes to be; `None`: that is not known yet.
    pub fn decision_of(&self, of: TransactionId) -> Option<bool> {
        let Transactions { undecided, decided, .. } = &self.transactions;
        match undecided.values().any(|one| *one == of) {
            true => None,
            false => Some(decided.contains_key(&of)),
        }
    }

    /// What has come to be, and is to be told.
    pub fn untold(&self) -> Vec<(TransactionId, Number)> {
        let decided = self.transactions.decided.iter();
        decided.flat_map(|(of, files)| files.iter().map(|file| (*of, *file))).collect()
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
