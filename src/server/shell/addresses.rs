//! Under which addresses of this machine others may reach a listener. Not here: which of them they
//! do reach; they try all.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use terral_format::wire::roster::ADDRESSES_MAX;

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

#[cfg(test)]
mod tests {
    use super::reachable;

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
}
