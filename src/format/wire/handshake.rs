//! How a client and a server meet, framed on the socket: who comes, what for, and what he gets.

use serde::{Deserialize, Serialize};

use super::capability::Capability;
use super::message::{Reply, Request};
use super::person::Person;
use crate::Error;
use crate::ids::{InstanceId, SessionSlot};

/// First words of a client.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// [`super::message::PROTOCOL`] of the client.
    pub protocol: u32,
    /// Name of the program, for people.
    pub program: &'a str,
    /// Whom it acts as.
    pub person: Person,
    /// What it may do, from whom it was forked: who is another user by now has no other proof.
    pub capability: Option<Capability>,
    /// What it comes for.
    #[serde(borrow)]
    pub wants: Wants<'a>,
}

/// What a client comes for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Wants<'a> {
    /// To use files: a session.
    Session,
    /// To look: the answer to one question (see [`Request::is_question`]), and no session.
    Answer(#[serde(borrow)] Request<'a>),
}

/// The server's answer. The descriptor of `session-N` comes with a session.
#[derive(Debug, Serialize, Deserialize)]
pub enum Welcome {
    /// Come in.
    Session {
        /// Whose memory this is.
        instance: InstanceId,
        /// The client's session.
        session: SessionSlot,
        /// For the root container; presented already.
        capability: Capability,
        /// The handle that stands for it.
        authority: u32,
        /// When the process started: its locks are in this name
        /// ([`crate::wire::locks::LockOwner`]).
        started_ticks: u64,
        /// Its number, as the server sees it.
        pid: u32,
    },
    /// No: why, and what to do.
    Refused(Error),
    /// What was asked.
    Answer(Box<Reply>),
}
