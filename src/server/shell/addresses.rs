//! Under which addresses of this machine others may reach a listener. Not here: which of them they
//! do reach; they try all.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use terral_format::wire::roster::ADDRESSES_MAX;
use terral_format::{Error, ErrorKind, Result};

/// Whether nobody on another machine gets anywhere by it, or not without saying by which interface.
fn is_own(address: &IpAddr) -> bool {
    let link_local = |address: &Ipv6Addr| address.is_unicast_link_local();
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || link_local(address),
    }
}

/// Where a listener at this address can be reached: there, or if it listens everywhere, at all
/// addresses of this machine. One that has no others is reached from itself.
pub fn reachable(listens: SocketAddr) -> Vec<SocketAddr> {
    if !listens.ip().is_unspecified() {
        return vec![listens];
    }
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let all: Vec<IpAddr> = all.iter().map(|interface| interface.ip()).collect();
    let of_kind = all.into_iter().filter(|one| listens.is_ipv6() || one.is_ipv4());
    let (own, others): (Vec<_>, Vec<_>) = of_kind.partition(is_own);
    let found = if others.is_empty() { own } else { others };
    let at = |ip| SocketAddr::new(ip, listens.port());
    found.into_iter().map(at).take(ADDRESSES_MAX).collect()
}

/// An address of this machine, and the interface that has it.
type Of = (String, IpAddr);

/// Where to listen so that others come over this interface: at its first IPv4 address, or else
/// its first IPv6 one; and at this port.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is none of that name with such an address; names those there
/// are.
pub fn of_interface(name: &str, port: u16) -> Result<SocketAddr> {
    let all = if_addrs::get_if_addrs();
    let all = all.map_err(|error| Error::system(&error, "the interfaces of this machine"))?;
    let all: Vec<Of> = all.into_iter().map(|one| (one.name.clone(), one.ip())).collect();
    chosen(&all, name).map(|ip| SocketAddr::new(ip, port))
}

/// The address of an interface by which others reach it.
fn chosen(all: &[Of], name: &str) -> Result<IpAddr> {
    let of_name = all.iter().filter(|(of, ip)| of == name && (!is_own(ip) || ip.is_loopback()));
    let mut found: Vec<IpAddr> = of_name.map(|(_, ip)| *ip).collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.first().copied().ok_or_else(|| {
        let mut others: Vec<String> = all.iter().map(|(of, ip)| format!("{of} ({ip})")).collect();
        others.dedup();
        let context = format!(
            "interface {name}: this machine has none of that name with an address by which others \
             reach it; it has {}",
            others.join(", ")
        );
        Error::new(ErrorKind::Invalid, context)
    })
}

#[cfg(test)]
mod tests {
    use super::{chosen, of_interface, reachable};

    #[test]
    fn who_listens_at_one_address_is_there_and_who_listens_everywhere_somewhere() {
        let one = ([127, 0, 0, 1], 80).into();
        assert_eq!(reachable(one), [one]);
        for everywhere in [([0, 0, 0, 0], 81).into(), ([0_u16; 8], 82).into()] {
            let found = reachable(everywhere);
            assert!(!found.is_empty() && found.iter().all(|at| at.port() == everywhere.port()));
            assert!(found.iter().all(|at| !at.ip().is_unspecified()), "{found:?}");
        }
    }

    #[test]
    fn an_interface_is_its_address_and_one_that_is_not_there_is_told_with_those_that_are() {
        let of = |name: &str, ip: &str| (name.to_owned(), ip.parse().expect("an address"));
        let all = [
            of("eth0", "fe80::1"),
            of("eth0", "fd00::1"),
            of("eth0", "10.0.0.1"),
            of("ib0", "fd00::2"),
            of("down0", "fe80::2"),
        ];
        let found = |name| chosen(&all, name).map(|ip| ip.to_string());
        assert_eq!(found("eth0").expect("has one"), "10.0.0.1");
        assert_eq!(found("ib0").expect("has one"), "fd00::2");
        for none in ["eth", "down0"] {
            let said = found(none).expect_err("none").to_string();
            assert!(said.contains("ib0 (fd00::2)"), "{said}");
        }
        let lo = of_interface("lo", 7).expect("each machine has one");
        assert!(lo.ip().is_loopback() && lo.port() == 7);
    }
}
