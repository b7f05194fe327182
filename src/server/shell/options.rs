//! How to serve.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use terral_format::wire::pool::{Generation, Inherited, Keys, Machine};
use terral_format::wire::roster::Invitation;
use terral_registry::registry::{Registry, Revision};

/// Where others reach a server, unless something else is said: at all addresses.
pub const EVERYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a server is of a partition.
#[derive(Clone, Debug)]
pub enum Part {
    /// It begins one, and invites others.
    Control {
        /// Whether they encrypt what they say to each other.
        encrypted: bool,
        /// Whether it is of the authority and nothing else: the root is born on another one.
        authority: bool,
        /// What an earlier partition of its pool has left.
        inherited: Box<Inherited>,
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

/// The pool that a server is of, and its way to the pool's registry.
#[derive(Clone)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Names of its keys.
    pub keys: Keys,
    /// Where they are.
    pub registry: Arc<dyn Registry>,
    /// Which partition of it this server is of, and when that was written there.
    pub generation: Generation,
    /// See there.
    pub revision: Revision,
    /// This machine.
    pub machine: Machine,
    /// The name of this server's instance.
    pub instance: String,
    /// Its list of principals, which lasts as long as the pool.
    pub principals: Option<PathBuf>,
    /// Where that is to be, should this server take over from the control.
    pub list: PathBuf,
    /// Where it is written, for people, on which machines its members are.
    pub machines: PathBuf,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool {}", self.name)
    }
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
    /// Of which pool, if of one.
    pub pool: Option<Pool>,
    /// Where other servers of the partition reach this one; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Who others than its user may be, if any.
    pub principals: Option<Listing>,
    /// Once this process is gone and no client is left, finish and leave.
    pub launcher: Option<u32>,
    /// Each of several users has a server of his own, this one among them: used at the first start
    /// only, and refused for an instance that began without.
    pub among_users: bool,
}
