//! Names as Kerberos has them, in the list of principals: one, `alice@EXAMPLE.ORG`, or all people
//! of a realm, `*@EXAMPLE.ORG`.
//!
//! Invariant: a name that Kerberos itself has to write with escapes is none here, so that nobody's
//! name or realm can look like another's.

use terral_format::{Error, ErrorKind, Result};

/// Stands for anybody.
const ANYBODY: &str = "*";

/// Whom a line is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketNames {
    who: String,
    realm: String,
}

/// The name, and its realm.
fn parts(name: &str) -> Option<(&str, &str)> {
    let plain = |part: &str| {
        let good = |one: char| one.is_ascii_graphic() && !matches!(one, '@' | '\\');
        !part.is_empty() && part.chars().all(good)
    };
    name.split_once('@').filter(|(who, realm)| plain(who) && plain(realm))
}

impl TicketNames {
    /// What a list says.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if that is no name.
    pub fn read(said: &str) -> Result<Self> {
        let whole = |(who, _): &(&str, &str)| *who == ANYBODY || !who.contains(ANYBODY);
        let (who, realm) = parts(said).filter(whole).ok_or_else(|| {
            let what = "after gss comes NAME@REALM, as klist shows it, or *@REALM";
            Error::new(ErrorKind::Invalid, what)
        })?;
        Ok(TicketNames { who: who.to_owned(), realm: realm.to_owned() })
    }

    /// Whether it is about this one, and no other.
    pub fn is(&self, name: &str) -> bool {
        self.who != ANYBODY && parts(name) == Some((&self.who, &self.realm))
    }

    /// Whether it is about all people of the realm, and this is one. `alice/admin`, services, and
    /// who is anonymous are none.
    pub fn covers(&self, name: &str) -> bool {
        let of_realm = |(who, realm): (&str, &str)| realm == self.realm && !who.contains('/');
        self.who == ANYBODY && parts(name).is_some_and(of_realm)
    }
}

#[cfg(test)]
mod tests {
    use super::TicketNames;

    #[test]
    fn a_name_is_itself_and_no_other() {
        let one = TicketNames::read("alice@A.EXAMPLE").expect("is one");
        assert!(one.is("alice@A.EXAMPLE") && !one.covers("alice@A.EXAMPLE"));
        for other in ["alice@B.EXAMPLE", "Alice@A.EXAMPLE", "alice@a.example", "alice/x@A.EXAMPLE"]
        {
            assert!(!one.is(other), "{other}");
        }
        assert!(TicketNames::read("alice/admin@A").expect("is one").is("alice/admin@A"));
    }

    #[test]
    fn a_realm_has_its_people_and_nobody_who_only_looks_so() {
        let all = TicketNames::read("*@A.EXAMPLE").expect("is one");
        assert!(all.covers("bob@A.EXAMPLE") && all.covers("*@A.EXAMPLE"));
        assert!(!all.is("*@A.EXAMPLE"));
        for none in [
            "bob@B.EXAMPLE",
            "bob@A.EXAMPLE.EVIL",
            "bob@a.example",
            "bob@EVIL\\@A.EXAMPLE",
            "bob\\@A.EXAMPLE@EVIL",
            "bob@EVIL@A.EXAMPLE",
            "bob/admin@A.EXAMPLE",
            "WELLKNOWN/ANONYMOUS@A.EXAMPLE",
            "@A.EXAMPLE",
            "bob@",
            "bob",
            "",
        ] {
            assert!(!all.covers(none), "{none}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for none in ["", "alice", "@R", "alice@", "a@b@R", "a*@R", "a\\@b@R", "a b@R", "\u{e4}@R"] {
            assert!(TicketNames::read(none).is_err(), "{none}");
        }
    }
}
