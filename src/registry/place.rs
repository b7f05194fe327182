//! Where etcd is: `etcd://HOST:PORT[,HOST:PORT…]`, or `etcds://` with TLS.

use std::fmt;
use std::str::FromStr;

use terral_format::{Error, ErrorKind, Result};

/// Where etcd listens, unless something else is said.
const PORT: &str = "2379";
/// Most members that are named.
const PLACES_MAX: usize = 16;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether with TLS.
    pub encrypted: bool,
    /// `HOST:PORT` of some members of one etcd, at least one.
    pub at: Vec<String>,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::new(ErrorKind::Invalid, format!("{text}: {why}"));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| bad("not etcd://HOST:PORT (or etcds://, with TLS)"))?;
        let encrypted = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(bad("of the kinds there are, only etcd:// and etcds:// are known")),
        };
        if rest.contains('@') {
            return Err(bad("user and password are never among arguments: --control-login FILE"));
        }
        let places = rest.split(',').map(one).collect::<Option<Vec<_>>>();
        let at = places.ok_or_else(|| bad("not HOST:PORT[,HOST:PORT…]"))?;
        if at.len() > PLACES_MAX {
            return Err(bad("names too many members: some of them will do"));
        }
        Ok(Place { encrypted, at })
    }
}

/// One place, with a port.
fn one(text: &str) -> Option<String> {
    let host = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let six = |c: char| c.is_ascii_hexdigit() || ".:".contains(c);
        let (name, may): (&str, &dyn Fn(char) -> bool) = match inner {
            Some(inner) => (inner, &six),
            None => (text, &plain),
        };
        !name.is_empty() && name.chars().all(may)
    };
    let bracketed = text.ends_with(']');
    match text.rsplit_once(':').filter(|_| !bracketed) {
        Some((name, port)) => {
            let known = port.parse::<u16>().is_ok_and(|port| port > 0);
            (known && host(name)).then(|| text.to_owned())
        }
        None => host(text).then(|| format!("{text}:{PORT}")),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}", self.at.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_place_is_hosts_with_ports() {
        let read = |text: &str| text.parse::<Place>().map(|place| place.to_string()).ok();
        assert_eq!(read("etcd://a").as_deref(), Some("etcd://a:2379"));
        assert_eq!(read("etcds://a:1,10.0.0.1:2").as_deref(), Some("etcds://a:1,10.0.0.1:2"));
        assert_eq!(read("etcd://[::1]:7").as_deref(), Some("etcd://[::1]:7"));
        assert_eq!(read("etcd://[::1]").as_deref(), Some("etcd://[::1]:2379"));
        for bad in ["", "a:1", "http://a", "etcd://", "etcd://a,", "etcd://a:0", "etcd://a:x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        for bad in ["etcd://u:p@a", "etcd://a/b", "etcd://a b", "etcd://[g]:1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
