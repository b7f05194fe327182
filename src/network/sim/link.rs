//! One direction between two members: what is said there, and what becomes of it on the way. What
//! arrives, arrives in order.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use terral_format::ids::ServerId;

/// What one endpoint says to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Packet {
    /// I want a session, or have heard that you do.
    Dial {
        /// Who says it.
        from: ServerId,
        /// To whom: somebody else does not answer.
        to: ServerId,
        /// In which life of its process.
        life: u64,
        /// The latest session that it knows of.
        after: u64,
    },
    /// There is a session. Only the lesser member says it.
    Open {
        /// Its number.
        number: u64,
        /// The life of whom it is said to.
        life: u64,
    },
    /// Within a session.
    Within(u64, Word),
}

/// What is said within a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Frame(Arc<[u8]>),
    /// So many bytes were taken.
    Taken(usize),
    /// I am here.
    Beat,
    /// It is over.
    Close,
}

/// What becomes of what is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    #[default]
    Open,
    /// It is lost.
    Cut,
    /// It is held back until the link is open again.
    Clogged,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) state: State,
    /// What is held back.
    pub(crate) held: VecDeque<Packet>,
    /// When the last of what is under way arrives.
    pub(crate) last: u64,
    /// Sessions of which something is lost: nothing later of them arrives.
    pub(crate) torn: BTreeSet<u64>,
}

impl Link {
    /// Loses a packet, and with it what comes after it in its session.
    pub(crate) fn lose(&mut self, packet: &Packet) {
        match packet {
            Packet::Open { number, .. } | Packet::Within(number, _) => {
                self.torn.insert(*number);
            }
            Packet::Dial { .. } => {}
        }
    }

    /// Whether a packet is after one that was lost. That the session is over can be said even so.
    pub(crate) fn is_torn(&self, packet: &Packet) -> bool {
        match packet {
            Packet::Within(_, Word::Close) | Packet::Dial { .. } | Packet::Open { .. } => false,
            Packet::Within(number, _) => self.torn.contains(number),
        }
    }
}
