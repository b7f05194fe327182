//! Transactions as version 5 had them, to be read only: no server was a member of a partition.
//!
//! Facts and local records are still today's. Who changes one of those moves it, as it is now, to
//! here first; `tests/golden/records-5.bin` has the bytes that must be read.

use serde::{Deserialize, Serialize};

use super::Record as Next;
use super::facts::Fact;
use super::local::Local;
use super::migrate::Migrate;
use super::v4;

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Of the namespace.
    Fact(Fact),
    /// On this machine.
    Local(Local),
}

impl From<Fact> for Record {
    fn from(fact: Fact) -> Self {
        Record::Fact(fact)
    }
}

impl From<Local> for Record {
    fn from(local: Local) -> Self {
        Record::Local(local)
    }
}

impl From<Record> for Next {
    fn from(record: Record) -> Self {
        match record {
            Record::Fact(fact) => Next::Fact(fact),
            Record::Local(local) => Next::Local(local),
        }
    }
}

/// What happens together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transaction(pub Vec<Record>);

impl Migrate for Transaction {
    const VERSION: u16 = 5;
    type Previous = v4::Transaction;

    fn migrate(previous: v4::Transaction) -> Self {
        let mut records = Vec::with_capacity(previous.0.len());
        previous.0.into_iter().for_each(|record| v4::migrate(record, &mut records));
        Transaction(records)
    }
}
