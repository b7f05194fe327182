//! What is written down of who was granted, denied or revoked what: a line of JSON each. No secret
//! is in it: a serial names a capability, and opens nothing. Not here: where it is written
//! ([`Machine::audit`](crate::core::machine::Machine::audit)).

use terral_format::disk::local::Kept;
use terral_format::wire::capability::{Capability, Operations, Principal, Revocation};
use terral_format::wire::containers::{Altered, Container, ContainerName, Entry, Group, Quota};
use terral_format::wire::credential::CredentialId;
use terral_format::wire::starting::Needed;
use terral_format::wire::transactions::TransactionId;
use terral_format::{Error, ErrorKind};

use crate::core::paths::shown;

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

/// A user by his number, others by their names, which need no escapes.
fn who_is(principal: Principal) -> String {
    match principal {
        Principal::User(user) => user.to_string(),
        named => format!("\"{named}\""),
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn line(now_s: u64, what: &str, who: Who, rest: &str) -> String {
    let Who { pid, user } = who;
    format!("{{\"time_s\":{now_s},\"what\":\"{what}\",\"pid\":{pid},\"user\":{user}{rest}}}\n")
}

/// A capability was issued, to be kept.
pub fn granted(now_s: u64, who: Who, capability: &Capability) -> String {
    let grant = &capability.grant;
    let principal = who_is(grant.principal);
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

/// A container does not allow somebody what his capability does.
pub fn kept_out(
    now_s: u64,
    who: Who,
    needs: Operations,
    (container, principal): (&str, Principal),
) -> String {
    let rest = format!(
        ",\"operations\":{},\"over\":false,\"container\":\"{container}\",\"principal\":{}",
        words(needs),
        who_is(principal)
    );
    line(now_s, "denied", who, &rest)
}

/// Somebody has changed a container.
pub fn container(now_s: u64, who: Who, by: Principal, altered: &Altered) -> String {
    let by = who_is(by);
    let rest = match altered {
        Altered::Ended(name) => format!(",\"container\":\"{name}\",\"by\":{by},\"is\":false"),
        Altered::Is(Container { name, place, owner, entries }) => {
            let entry = |entry: &Entry| format!("\"{}\":{}", entry.who, words(entry.may));
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!(
                ",\"container\":\"{name}\",\"by\":{by},\"is\":true,\"place\":{},\"owner\":{},\
                 \"entries\":{{{}}}",
                quoted(&shown(place)),
                who_is(*owner),
                entries.join(",")
            )
        }
    };
    line(now_s, "container", who, &rest)
}

/// Somebody has said how much there may be in a container.
pub fn bounded(
    now_s: u64,
    who: Who,
    by: Principal,
    (name, quota): &(ContainerName, Quota),
) -> String {
    let number = |most: Option<u64>| most.map_or("null".into(), |most| most.to_string());
    let rest = format!(
        ",\"container\":\"{name}\",\"by\":{},\"bytes\":{},\"files\":{}",
        who_is(by),
        number(quota.bytes),
        number(quota.files)
    );
    line(now_s, "quota", who, &rest)
}

/// The list of principals says who is in a group, or that there is none of that name any more.
pub fn grouped(now_s: u64, who: Who, Group { name, members }: &Group, is: bool) -> String {
    let members: Vec<String> = match is {
        true => members.iter().map(|one| who_is(*one)).collect(),
        false => Vec::new(),
    };
    let (name, members) = (name.as_str(), members.join(","));
    let rest = format!(",\"group\":\"{name}\",\"is\":{is},\"members\":[{members}]");
    line(now_s, "group", who, &rest)
}

/// Somebody has said whether a transaction comes to be, which was in doubt of what has this path.
pub fn resolved(now_s: u64, who: Who, (of, is): (TransactionId, bool), path: &[u8]) -> String {
    let rest =
        format!(",\"transaction\":\"{of}\",\"commit\":{is},\"path\":{}", quoted(&shown(path)));
    line(now_s, "resolved", who, &rest)
}

/// A user's server was started as somebody else looks at what is his, or it was not: why.
pub fn started_for(now_s: u64, who: Who, needed: Needed, refused: Option<&str>) -> String {
    let Needed { owner, asker } = needed;
    let refused = refused.map(|why| format!(",\"refused\":{}", quoted(why)));
    let rest = format!(",\"owner\":{owner},\"for\":{asker}{}", refused.unwrap_or_default());
    line(now_s, "started", who, &rest)
}

/// Something was revoked, and so many sessions may do less now.
pub fn revoked(now_s: u64, who: Who, what: Revocation, sessions: usize) -> String {
    let what = match what {
        Revocation::Serial(one) => format!("\"serial\":\"{}\"", serial(one)),
        Revocation::Operations(set) => format!("\"operations\":{}", words(set)),
        Revocation::Principal(one) => format!("\"principal\":{}", who_is(one)),
        Revocation::Credential(id) => format!("\"credential\":\"{id}\""),
        Revocation::HandedOut => "\"handed_out\":true".to_owned(),
    };
    line(now_s, "revoked", who, &format!(",{what},\"sessions\":{sessions}"))
}

/// Somebody has proven who he is, and has a credential.
pub fn logged_in(now_s: u64, who: Who, kept: &Kept) -> String {
    let rest = format!(
        ",\"credential\":\"{}\",\"principal\":{},\"operations\":{},\"until_s\":{}",
        kept.id,
        who_is(kept.principal),
        words(kept.operations),
        kept.expires_s()
    );
    line(now_s, "login", who, &rest)
}

/// Somebody has not.
pub fn failed(now_s: u64, who: Who, by: &str, why: &Error) -> String {
    let rest = format!(",\"by\":\"{by}\",\"why\":{}", quoted(&why.context));
    line(now_s, "login_failed", who, &rest)
}

/// A credential that somebody has shown is not good.
pub fn unknown(now_s: u64, who: Who, id: CredentialId, why: &Error) -> String {
    let rest = format!(",\"credential\":\"{id}\",\"why\":{}", quoted(&why.context));
    line(now_s, "refused", who, &rest)
}

/// Somebody has ended his credential, and so many sessions may do less now.
pub fn logged_out(now_s: u64, who: Who, id: CredentialId, sessions: usize) -> String {
    let rest = format!(",\"credential\":\"{id}\",\"sessions\":{sessions}");
    line(now_s, "logout", who, &rest)
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Operations, Principal, Revocation, Who};
    use super::{denied, failed, revoked};

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
        let why = Error::new(ErrorKind::Unauthorized, "no \"such\"\nkey");
        let failed: serde_json::Value =
            serde_json::from_str(&failed(3, who, "token", &why)).expect("one object");
        assert_eq!((&failed["why"], &failed["by"]), (&why.context.into(), &"token".into()));
        let pilot = Revocation::Principal("key:pilot".parse().expect("is one"));
        assert!(revoked(3, who, pilot, 7).contains("\"principal\":\"key:pilot\""));
    }
}
