//! What is written down of who was granted, denied or revoked what: a line of JSON each. No secret
//! is in it: a serial names a capability, and opens nothing. Not here: where it is written
//! ([`Machine::audit`](crate::core::machine::Machine::audit)).

use terral_format::ErrorKind;
use terral_format::wire::capability::{Capability, Operations, Principal, Revocation};

/// Who did it.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The process.
    pub pid: u32,
    /// The user that it acts as.
    pub user: u32,
}

/// `["read","list"]`
fn words(operations: Operations) -> String {
    let words: Vec<String> = operations.words().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", words.join(","))
}

/// As people see it.
pub fn serial(serial: u64) -> String {
    format!("{serial:016x}")
}

fn line(now_s: u64, what: &str, who: Who, rest: &str) -> String {
    let Who { pid, user } = who;
    format!("{{\"time_s\":{now_s},\"what\":\"{what}\",\"pid\":{pid},\"user\":{user}{rest}}}\n")
}

/// A capability was issued, to be kept.
pub fn granted(now_s: u64, who: Who, capability: &Capability) -> String {
    let grant = &capability.grant;
    let Principal::User(principal) = grant.principal;
    let rest = format!(
        ",\"serial\":\"{}\",\"principal\":{principal},\"operations\":{},\"until_s\":{}",
        serial(grant.serial),
        words(grant.operations),
        grant.expires_s
    );
    line(now_s, "granted", who, &rest)
}

/// What somebody presented is not good.
pub fn refused(now_s: u64, who: Who, capability: &Capability) -> String {
    let rest = format!(",\"serial\":\"{}\"", serial(capability.grant.serial));
    line(now_s, "refused", who, &rest)
}

/// What somebody asked for is not allowed by what he has presented.
pub fn denied(now_s: u64, who: Who, needs: Operations, why: ErrorKind) -> String {
    let over = why == ErrorKind::Unauthorized;
    let rest = format!(",\"operations\":{},\"over\":{over}", words(needs));
    line(now_s, "denied", who, &rest)
}

/// Something was revoked, and so many sessions may do less now.
pub fn revoked(now_s: u64, who: Who, what: Revocation, sessions: usize) -> String {
    let what = match what {
        Revocation::Serial(one) => format!("\"serial\":\"{}\"", serial(one)),
        Revocation::Operations(set) => format!("\"operations\":{}", words(set)),
        Revocation::Principal(Principal::User(user)) => format!("\"principal\":{user}"),
    };
    line(now_s, "revoked", who, &format!(",{what},\"sessions\":{sessions}"))
}

#[cfg(test)]
mod tests {
    use super::{Operations, Principal, Revocation, Who, denied, revoked};
    use terral_format::ErrorKind;

    #[test]
    fn a_line_is_one_object() {
        let who = Who { pid: 4, user: 5 };
        assert_eq!(
            denied(3, who, Operations::READ.and(Operations::LIST), ErrorKind::Denied),
            "{\"time_s\":3,\"what\":\"denied\",\"pid\":4,\"user\":5,\
             \"operations\":[\"read\",\"list\"],\"over\":false}\n"
        );
        assert_eq!(
            revoked(3, who, Revocation::Principal(Principal::User(6)), 7),
            "{\"time_s\":3,\"what\":\"revoked\",\"pid\":4,\"user\":5,\
             \"principal\":6,\"sessions\":7}\n"
        );
    }
}
