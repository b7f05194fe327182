//! How to serve.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use terral_format::wire::roster::Invitation;

/// Where others reach a server, unless something else is said: at all addresses.
pub const EVERYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a server is of a partition.
#[derive(Clone, Debug)]
pub enum Part {
    /// It begins one, and invites others.
    Control {
        /// Whether they encrypt what they say to each other.
        encrypted: bool,
    },
    /// It was invited.
    Invited(Box<Invitation>),
}

/// By what others than a server's user are known to it.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The file that says who they are, by what they prove it, and what they may.
    pub principals: PathBuf,
    /// The server's keys, for those who have tickets of Kerberos.
    pub keytab: Option<Keytab>,
}

/// Keys of a service of Kerberos.
#[derive(Clone, Debug)]
pub struct Keytab {
    /// The file.
    pub file: PathBuf,
    /// As what the server is known: `SERVICE`, or `SERVICE@HOST`.
    pub service: String,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The instance's directory, in memory; made or taken over.
    pub instance: PathBuf,
    /// The permanent directory; used at the first start only.
    pub backing: Option<PathBuf>,
    /// Bound of the memory tier, bytes; used at the first start only.
    pub memory_bytes: u64,
    /// A directory on a disk, for what the permanent directory does not have and that does not fit
    /// in memory; used for an instance that has none.
    pub spill: Option<PathBuf>,
    /// Memory to keep ready for writers, bytes; `None`: an eighth of the bound, at most 2 GiB.
    pub ready_bytes: Option<u64>,
    /// As part of which partition, if it is not to be alone; used at the first start only.
    pub partition: Option<Part>,
    /// Where other servers of the partition reach this one; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Who others than its user may be, if any.
    pub principals: Option<Listing>,
    /// Once this process is gone and no client is left, finish and leave.
    pub launcher: Option<u32>,
}
