//! The servers of a run, and how much memory each has left: for who chooses where an object is.

use terral_format::Result;
use terral_format::ids::Member;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::status::MemberAnswer;

use crate::client::Client;
use crate::session::unexpected;

/// A server of the run that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its number in the run, as in addresses of objects; 0 where there is one.
    pub number: u16,
    /// The name of its machine.
    pub host: String,
    /// Size of its memory tier, bytes.
    pub memory_bytes: u64,
    /// Bytes of that in use.
    pub used_bytes: u64,
}

fn this_machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().into()
}

impl Client {
    /// The servers of the run that keep files and answer within two seconds, by their numbers: all
    /// are asked.
    ///
    /// # Errors
    /// Those of asking this machine's server.
    pub fn servers(&self) -> Result<Vec<Server>> {
        let known = |answer: MemberAnswer| {
            let status = answer.status?;
            Some(Server {
                number: answer.member.number(),
                host: status.host,
                memory_bytes: status.memory_bound_bytes,
                used_bytes: status.memory_used_bytes,
            })
        };
        let all = self.everywhere(false)?;
        let alone = all.is_empty();
        let mut servers: Vec<Server> = all.into_iter().filter_map(known).collect();
        let status = self.status()?;
        if let Some(partition) = &status.partition {
            let stores =
                |number| Member::new(number).is_some_and(|it| partition.placement.stores(it));
            servers.retain(|server| stores(server.number));
        }
        if alone {
            servers.push(Server {
                number: self.member().number(),
                host: this_machine(),
                memory_bytes: status.memory_bound_bytes,
                used_bytes: status.memory_used_bytes,
            });
        }
        servers.sort_unstable_by_key(|server| server.number);
        Ok(servers)
    }

    /// Which server has most room for what is to be created, of two that are chosen at random
    /// among those that keep files; its number. They are asked how they are if they have not said
    /// so within a second.
    ///
    /// # Errors
    /// `ENOSPC` if no server keeps files any more; those of asking this machine's server.
    pub fn least_loaded(&self) -> Result<u16> {
        match self.0.call(Request::Choose)? {
            Reply::Elsewhere(member) => Ok(member.number()),
            _ => Err(unexpected()),
        }
    }
}
