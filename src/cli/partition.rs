//! Servers of several machines: where one begins, and `terral invite`.

use std::io::{IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use terral_client::Client;

use terral_server::{EVERYWHERE, Invitation, Part};

use crate::claim::{Claim, Purpose};
use crate::instances::{self, Which};
use crate::search::{self, Place};

/// The file that has it, of an instance.
const INVITATION: &str = "invitation";
/// Longest invitation that is read.
const INVITATION_MAX: u64 = 64 << 10;

/// Lets the server of another machine into the partition of one that was started with --listen
#[derive(Args)]
#[command(after_help = "\
Prints an invitation: one word, for one server, which whoever reads it can use. Give it to
`terral serve --join FILE` on the other machine, and to nobody else. The first server that uses it
is in, and no other; nobody is if it was not used within an hour.

Example:
  terral invite | ssh other terral serve --join -")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
}

/// How a server is one of several.
#[derive(Args, Clone)]
pub struct Partition {
    /// Be the first of the servers of several machines, which all show the same files; the others
    /// come by `terral invite`. Listens at ADDRESS (host's address, port, or both)
    /// [default: all addresses, any port]. With --to, all of them need it, and the same directory
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0")]
    #[arg(value_parser = parse_address, conflicts_with = "spill")]
    pub listen: Option<SocketAddr>,
    /// With --listen or --join: listen at the address that this network interface has, so that the
    /// others come over it; --listen says the port
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Be one of several: FILE has an invitation (`terral invite`); `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "spill")]
    pub join: Option<PathBuf>,
    /// With --listen: do not encrypt what servers say to each other, also bytes of files. Only
    /// where nobody else is on the network
    #[arg(long, requires = "listen", conflicts_with = "join")]
    pub no_encryption: bool,
}

impl Partition {
    /// What the server is to be, if not alone.
    ///
    /// # Errors
    /// If there is no invitation.
    pub fn part(&self) -> Result<Option<Part>> {
        if let Some(file) = &self.join {
            return Ok(Some(Part::Invited(Box::new(read(file)?))));
        }
        Ok(self.listen.map(|_| Part::Control {
            encrypted: !self.no_encryption,
            authority: false,
            inherited: Box::default(),
        }))
    }

    /// Where it listens, which may be `of_pool`.
    ///
    /// # Errors
    /// If the interface that is named has no address, or is not all that is named.
    pub fn address(&self, of_pool: bool) -> Result<SocketAddr> {
        let at = self.listen.unwrap_or(EVERYWHERE);
        let Some(interface) = &self.interface else { return Ok(at) };
        if self.listen.is_none() && self.join.is_none() && !of_pool {
            bail!("--interface is for one of several servers: give --listen, --join or --pool");
        }
        is_port(at)?;
        Ok(terral_server::of_interface(interface, at.port())?)
    }
}

/// Whether an interface may be named beside this.
///
/// # Errors
/// If it names an address.
pub fn is_port(listen: SocketAddr) -> Result<()> {
    let what = "--interface and --listen ADDRESS are two addresses: give --listen PORT";
    ensure!(listen.ip().is_unspecified(), what);
    Ok(())
}

/// An address, a port, or both.
///
/// # Errors
/// If it is none of them.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(EVERYWHERE.ip(), port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    text.parse().map_err(|_| "neither an address, a port, nor ADDRESS:PORT".into())
}

fn read(file: &Path) -> Result<Invitation> {
    let mut text = String::new();
    let shown = file.display();
    if file == Path::new("-") {
        // What comes after it is not ours: who gave it may keep the pipe.
        std::io::stdin().read_line(&mut text).context("standard input")?;
    } else {
        let found = std::fs::File::open(file).with_context(|| format!("--join {shown}"))?;
        let read = found.take(INVITATION_MAX).read_to_string(&mut text);
        read.with_context(|| format!("--join {shown}"))?;
    }
    Invitation::of(&text).with_context(|| format!("--join {shown}"))
}

/// Whether who is invited brings files to a permanent directory if and only if the others do.
///
/// # Errors
/// If not.
pub fn is_to_bring(invitation: &Invitation, brings: bool) -> Result<()> {
    let control = invitation.control.member;
    match (invitation.permanent, brings) {
        (true, false) => {
            bail!("{control} brings files to a permanent directory: give its path here with --to")
        }
        (false, true) => bail!("{control} has no permanent directory: leave --to out"),
        _ => Ok(()),
    }
}

/// Whether a server of several machines left this, and none serves it.
pub fn is_left(instance: &Path) -> bool {
    let served = terral_server::is_served(instance);
    instance.join("log").exists() && !served && instances::target(instance).is_none()
}

/// Makes the place of a server that has no permanent directory, or goes on with one that is left.
///
/// # Errors
/// If somebody serves it, or something else is there.
pub fn place(instance: &Path, memory: Option<u64>) -> Result<Place> {
    let _turn = search::turn()?;
    let name = instances::name_of(instance);
    if is_left(instance) {
        let Some(claim) = Claim::take(instance, Purpose::Stay)? else {
            bail!("{name}: another terral has just taken it: give this one another --name");
        };
        return Ok(Place { instance: instance.into(), claim, memory_bytes: 0 });
    }
    search::make(instance.into(), memory, Purpose::Stay)
}

/// The invitation by which an instance's server came, if it came by one.
pub fn kept_invitation(instance: &Path) -> Option<String> {
    let text = std::fs::read_to_string(instance.join(INVITATION)).ok()?;
    Some(text.trim().to_owned())
}

/// Puts an invitation where the servers of an instance find it.
///
/// # Errors
/// If there is no room.
pub fn keep_invitation(instance: &Path, text: &str) -> Result<PathBuf> {
    let path = instance.join(INVITATION);
    let mut how = std::fs::File::options();
    let how = how.write(true).create(true).truncate(true);
    let file = std::os::unix::fs::OpenOptionsExt::mode(how, 0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Invites.
pub fn invite(arguments: &Arguments) -> Result<u8> {
    let client: Client = arguments.which.observe()?;
    let invitation = client.invite()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{invitation}")?;
    out.flush()?;
    if out.is_terminal() {
        crate::report::note("for one server; whoever has it can read and change all files");
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn an_address_is_one_or_a_port_or_both() {
        let read = |text| parse_address(text).map(|at| at.to_string());
        assert_eq!(read("0"), Ok("0.0.0.0:0".into()));
        assert_eq!(read("7000"), Ok("0.0.0.0:7000".into()));
        assert_eq!(read("10.0.0.1"), Ok("10.0.0.1:0".into()));
        assert_eq!(read("10.0.0.1:7000"), Ok("10.0.0.1:7000".into()));
        assert_eq!(read("[::1]:7"), Ok("[::1]:7".into()));
        for bad in ["", "host", "70000", "10.0.0.1:x", "-1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
