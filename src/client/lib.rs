//! Turns file operations into copies through shared memory and, where those do not suffice, into
//! messages to the server of this machine.
//!
//! Opens one socket once per process, for the handshake; starts no threads but for a named lock and
//! for what is submitted; survives fork: a child gets a session of its own at its first call. Not
//! here: interposition, paths with a prefix.

#![deny(unsafe_code)]

mod whose;

mod bound;
mod in_hand;

mod session;

mod holding;

mod borrowed;
mod clock;

mod allowing;

mod locks;
mod xattrs;

mod map;

mod pending;

mod names;

mod chunk;

mod copy;

mod bounce;

mod holes;
mod timing;

mod maps;

mod file;

mod deferred;

mod deferred_names;

mod nodes;

mod client;

mod for_others;

mod containers;
mod doubts;
mod logging_in;
mod members;
mod rights;

mod servers;

mod submitted;

pub mod objects;

mod named;

pub mod transactions;

pub mod checkpoints;

pub use client::Client;
pub use file::{File, ShortPath};
pub use holding::{
    CREDENTIAL, TOKEN, VARIABLE as CAPABILITY, authorize, credential_of_environment,
    of_environment, of_environment_at, read as read_capability, read_credential, read_secret,
    write_with,
};
pub use holes::Extent;
pub use locks::{LockTurn, LockWait};
pub use named::{LockHow, NamedLock, News};
pub use names::Followed;
pub use nodes::Opened;
pub use servers::Server;
pub use submitted::Submitted;
pub use terral_format::ids::{DescriptionSlot, Ino, InstanceId, Member, Number};
pub use terral_format::local::tables::access;
pub use terral_format::wire::answering::Newcomer;
pub use terral_format::wire::capability::{
    Capability, Caveat, Operations, Principal, Revocation, TEXT_MAX as CAPABILITY_TEXT_MAX,
    is_at_or_below,
};
pub use terral_format::wire::containers::{
    Bounded, Container, ContainerName, Entry, Party, Quota, Setting, Used,
};
pub use terral_format::wire::credential::{Credential, CredentialId};
pub use terral_format::wire::locks::{HeldLock, LockKind, LockRange, Locker};
pub use terral_format::wire::login::{
    CHALLENGE_BYTES, Hidden, Proof, Sealed, Signed, TOKEN_MAX, Whom, Wish, sealed, signed,
};
pub use terral_format::wire::message::{
    Attributes, Change, Drain, Kind, Name, OpenHow, RenameHow, Safety, Seen, Space, Status, Totals,
    XattrHow,
};
pub use terral_format::wire::person::Person;
pub use terral_format::wire::placement::{Layout, LayoutPolicy, Placement, STRIPE_UNIT, Stripe};
pub use terral_format::wire::roster::{Consistency, Policy};
pub use terral_format::wire::starting::{self, Needed, Started};
pub use terral_format::wire::status::{
    Losses, LostFile, MemberAnswer, MemberStatus, Membership, Other, PoolStatus,
};
pub use terral_format::wire::transactions::{InDoubt, MemberDoubts, TransactionId, Trouble};
pub use terral_format::{Error, ErrorKind, Result};
pub use terral_transport::dispatch;
pub use terral_transport::fault;
pub use terral_transport::high;
pub use terral_transport::kept;
pub use terral_transport::kerberos;
pub use terral_transport::kernel;
pub use terral_transport::limit;
pub use terral_transport::lock::by_fcntl;
pub use terral_transport::maps::How as MapHow;
pub use terral_transport::own_files;
pub use terral_transport::peer::PeerProcess;
pub use terral_transport::permission::{acting, as_person, as_real, ids_changed};
pub use terral_transport::process::leave_behind;
pub use terral_transport::program::copied;
pub use terral_transport::raw_calls;
pub use terral_transport::requests::while_waiting;
pub use terral_transport::{descriptor, plain};
pub use whose::is_his;
