//! Kerberos 5 (RFC 4120) by GSS-API (RFC 2743, RFC 4121): who has a ticket for a service, and who
//! has the service's key, prove it to each other, by one token each way; then either can seal what
//! it says.
//!
//! Invariants: nothing but Kerberos 5 is spoken; who begins asks who answers for a proof, too; who
//! answers asks no network. Not here: what is sealed, and who may do what.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use terral_format::{Error, ErrorKind, Result};

use crate::gss_library::Library;
use crate::gss_owned::{Context, Keys, Name, Step};
use crate::gss_status::{CONTINUES, Cause, Status};

/// Both sides prove who they are.
const MUTUAL: u32 = 2;
/// What was sealed once is known.
const ONCE: u32 = 4;
/// Messages can be sealed.
const SEALS: u32 = 32;
const WANTED: u32 = MUTUAL | ONCE | SEALS;

fn refuse(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthorized, format!("Kerberos: {why}"))
}

/// What is wrong, what to do, and the library's own words.
fn explained(library: &Library, status: Status, what: &str) -> Error {
    refuse(format!("{what} ({})", status.words(library)))
}

/// What somebody who has a ticket can do about it.
fn of_ticket(library: &Library, status: Status, service: &str) -> Error {
    let what = match status.cause() {
        Cause::NoTicket => "no ticket: run kinit".into(),
        Cause::Over => "the ticket is over: run kinit".into(),
        Cause::NoService => format!(
            "the realm knows no service {service}: its administrator adds it, or --service says \
             another"
        ),
        Cause::NoRealm => "no server of the realm answers, or none is named in krb5.conf".into(),
        Cause::Clocks => "the clocks of this machine and of the realm differ: set them".into(),
        _ => format!("no ticket for {service}"),
    };
    explained(library, status, &what)
}

/// What somebody who has keys can.
fn of_keys(library: &Library, status: Status, keytab: &Path) -> Error {
    let what = match status.cause() {
        Cause::NoTicket | Cause::NoKey => format!(
            "{} has no key for what the ticket is for: kadmin's ktadd adds it",
            keytab.display()
        ),
        Cause::Over => "the ticket is over: run kinit".into(),
        Cause::Clocks => {
            "the clocks of who logs in and of the server differ by more than 5 minutes: set them"
                .into()
        }
        Cause::Repeated => "it was shown before".into(),
        _ => "it is damaged, or for another key than the server's".into(),
    };
    explained(library, status, &what)
}

/// Who has a ticket, and waits for a proof of who he speaks to.
pub struct Asks {
    library: &'static Library,
    context: Context,
    target: Name,
    service: String,
}

impl Asks {
    /// Begins, with the ticket of the user's (`kinit`), to speak to a service, `SERVICE@HOST`.
    /// Gives what is to be shown to it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without Kerberos on this machine; [`ErrorKind::Unauthorized`]
    /// without a ticket. It says what to do.
    pub fn begin(service: &str) -> Result<(Self, Vec<u8>)> {
        let library = Library::get()?;
        let failed = |status| of_ticket(library, status, service);
        let target = Name::of_service(library, service).map_err(failed)?;
        let mut context = Context::new(library);
        let step = context.initiate(&target, WANTED, &[]).map_err(failed)?;
        if step.call != CONTINUES || !step.by_kerberos {
            return Err(refuse("it would not have the server prove who it is"));
        }
        Ok((Asks { library, context, target, service: service.to_owned() }, step.token))
    }

    /// Looks at what has come back: the service has proven that it is that.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is not.
    pub fn finish(mut self, answer: &[u8]) -> Result<Seals> {
        let what = format!("the server has not proven that it is {}", self.service);
        let step = self.context.initiate(&self.target, WANTED, answer);
        let step = step.map_err(|status| explained(self.library, status, &what))?;
        let Step { call, flags, by_kerberos, .. } = step;
        if call != 0 || !by_kerberos || flags & (MUTUAL | SEALS) != MUTUAL | SEALS {
            return Err(refuse(what));
        }
        Ok(Seals(self.library, self.context))
    }
}

/// Who has a ticket, and knows who he speaks to.
pub struct Seals(&'static Library, Context);

impl Seals {
    /// What shows that he says this.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if the ticket is over.
    pub fn seal(&self, message: &[u8]) -> Result<Vec<u8>> {
        self.1.seal(message).map_err(|status| explained(self.0, status, "it cannot be sealed"))
    }
}

/// The keys of a service.
pub struct Answers<'k> {
    library: &'static Library,
    keys: Keys,
    keytab: &'k Path,
}

impl<'k> Answers<'k> {
    /// Those in a file (`keytab`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without Kerberos on this machine; [`ErrorKind::Invalid`] if there
    /// are none in it.
    pub fn with(keytab: &'k Path) -> Result<Self> {
        let library = Library::get()?;
        let invalid = |why: &str| {
            let context = format!("{}: no keytab with a key: {why}", keytab.display());
            Error::new(ErrorKind::Invalid, context)
        };
        let at = CString::new([b"FILE:", keytab.as_os_str().as_bytes()].concat());
        let at = at.map_err(|_| invalid("its name has a zero in it"))?;
        let keys = Keys::of_file(library, &at);
        let keys = keys.map_err(|status| invalid(&status.words(library)))?;
        Ok(Answers { library, keys, keytab })
    }

    /// Answers who has shown this, if he speaks to the service: `SERVICE` on any host, or
    /// `SERVICE@HOST`. Gives what proves it to him.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is not good; says why.
    pub fn answer(&self, service: &str, token: &[u8]) -> Result<(Answered, Vec<u8>)> {
        let library = self.library;
        let mut context = Context::new(library);
        let accepted = context.accept(&self.keys, token);
        let (step, _) = accepted.map_err(|status| of_keys(library, status, self.keytab))?;
        let Step { call, flags, by_kerberos, token } = step;
        if call != 0 || !by_kerberos || flags & (MUTUAL | SEALS) != MUTUAL | SEALS {
            return Err(refuse("only Kerberos 5 is spoken, with a proof of both sides"));
        }
        let names = context.names();
        let (name, to) = names.map_err(|status| explained(library, status, "no name"))?;
        if !is_of(&to, service) {
            return Err(refuse(format!("the ticket is for {to}, not for {service}")));
        }
        Ok((Answered { library, context, name }, token))
    }
}

/// Whether a name, `SERVICE/HOST@REALM`, is that of a service.
fn is_of(name: &str, service: &str) -> bool {
    let Some((said, host)) = name.split_once('@').and_then(|(said, _)| said.split_once('/')) else {
        return false;
    };
    match service.split_once('@') {
        Some((service, on)) => said == service && host == on,
        None => said == service,
    }
}

/// Who has a ticket, to who has the key.
pub struct Answered {
    library: &'static Library,
    context: Context,
    name: String,
}

impl Answered {
    /// As Kerberos knows him: `alice@REALM`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether he says this, and until when his ticket is good, seconds since 1970.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if he does not.
    pub fn says(self, message: &[u8], seal: &[u8]) -> Result<u64> {
        let Answered { library, context, .. } = self;
        let other = "what was sealed is something else, or was said to another server";
        context.check(message, seal).map_err(|status| explained(library, status, other))?;
        context.end_s().map_err(|status| explained(library, status, "no end of the ticket"))
    }
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_key_of_another_service_does_not_do() {
        let name = "terral/node1.example@EXAMPLE.ORG";
        assert!(is_of(name, "terral") && is_of(name, "terral@node1.example"));
        for other in ["terra", "host", "terral@node1", "terral@EXAMPLE.ORG", "terral@", ""] {
            assert!(!is_of(name, other), "{other}");
        }
        for none in ["terral@EXAMPLE.ORG", "terral", "x/terral@EXAMPLE.ORG", ""] {
            assert!(!is_of(none, "terral"), "{none}");
        }
    }
}
