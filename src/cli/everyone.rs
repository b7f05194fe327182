//! All machines of a run, asked through the server of this one: what each has, and owes.
//!
//! Not here: how a launcher asks its machines by their hosts, also when none can reach another
//! (`gathering`).

use terral_client::{Client, Drain, MemberAnswer, Result, Status};
use terral_server::Member;

use crate::debt::{add_drain, is_safe, owed};
use crate::members::Hosts;
use crate::units::{bytes, count, plural};

/// One line for each: its title, and how it is. Hosts are as the launcher called them, else as the
/// machines call themselves.
pub fn rows(answers: &[MemberAnswer], hosts: &Hosts) -> Vec<(&'static str, String)> {
    answers.iter().map(|answer| ("machine", row(answer, hosts))).collect()
}

fn row(answer: &MemberAnswer, hosts: &Hosts) -> String {
    let number = answer.member.number();
    let Some(one) = &answer.status else {
        return format!("{number} {}: does not answer", hosts.host(answer.member).unwrap_or("?"));
    };
    let host = hosts.host(answer.member).unwrap_or(&one.host);
    format!(
        "{number} {host}: {} used of {}, {}, lent {}, borrowed {}, owes {}",
        bytes(one.memory_used_bytes),
        bytes(one.memory_bound_bytes),
        plural(one.programs.into(), "program", "programs"),
        count(one.lent),
        count(one.borrowed),
        owed(&one.drain)
    )
}

/// What all owe, as far as they have answered.
pub struct Debt {
    /// Together.
    pub drain: Drain,
    /// Everything is in the permanent directory, and everybody has said so.
    pub is_paid: bool,
    /// Who has not answered.
    pub silent: Vec<Member>,
}

impl Debt {
    /// What one server owes, alone.
    pub fn of(status: &Status) -> Self {
        let drain = status.drain.clone();
        Debt { is_paid: is_safe(&drain), drain, silent: Vec::new() }
    }
}

/// What all owe; `status` is of the server that is asked. If `hasten`, they are to bring it now.
///
/// # Errors
/// If the server is gone for good.
pub fn debt(client: &Client, status: &Status, hasten: bool) -> Result<Debt> {
    let mut all = Debt::of(status);
    let Some(partition) = &status.partition else { return Ok(all) };
    for answer in client.everywhere(hasten)? {
        match answer.status {
            None => all.silent.push(answer.member),
            Some(_) if answer.member == partition.me => {}
            Some(one) => {
                all.is_paid &= is_safe(&one.drain);
                add_drain(&mut all.drain, &one.drain, &one.host);
            }
        }
    }
    all.is_paid &= all.silent.is_empty();
    Ok(all)
}
