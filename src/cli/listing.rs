//! By what others than its user are known to a server that is started: the list of principals, and
//! the server's keys for Kerberos, as the command line says them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use terral_server::{Keytab, Listing};

/// As what a server is known to who has a ticket, unless something else is said.
pub const SERVICE: &str = "terral";

/// As what it is known to who has a ticket of Kerberos.
#[derive(Args)]
pub struct Kerberos {
    /// The server's keys, for who logs in by a ticket of Kerberos (`terral login --kerberos`)
    #[arg(long, value_name = "FILE", requires = "principals")]
    keytab: Option<PathBuf>,
    /// What the tickets are to be for, of what the keytab has: SERVICE, on any host, or
    /// SERVICE@HOST
    #[arg(long, value_name = "NAME", requires = "keytab", default_value = SERVICE)]
    service: String,
}

impl Kerberos {
    /// With a list of principals, if there is one.
    pub fn listing(&self, principals: Option<PathBuf>) -> Option<Listing> {
        let service = &self.service;
        let keytab = |file: &PathBuf| Keytab { file: file.clone(), service: service.clone() };
        let keytab = self.keytab.as_ref().map(keytab);
        principals.map(|principals| Listing { principals, keytab })
    }

    /// The same, by absolute paths.
    ///
    /// # Errors
    /// If something cannot be used; says why.
    pub fn checked(&self, principals: Option<&Path>) -> Result<Option<Listing>> {
        let absolute = |what: &str, file: &Path| {
            file.canonicalize().with_context(|| format!("--{what} {}", file.display()))
        };
        let principals = principals.map(|file| absolute("principals", file)).transpose()?;
        let Some(mut listing) = self.listing(principals) else { return Ok(None) };
        terral_server::check_principals(&listing.principals)?;
        if let Some(keytab) = &mut listing.keytab {
            keytab.file = absolute("keytab", &keytab.file)?;
            terral_server::check_keytab(keytab)?;
        }
        Ok(Some(listing))
    }
}
