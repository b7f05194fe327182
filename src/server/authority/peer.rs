//! `peer`: the kernel's word for who is at the other end of a local socket.

use terral_format::wire::capability::{Operations, Principal};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::mechanism::{Identity, Mechanism, Scene};
use crate::authority::principals::Terms;

/// How long a local process is believed, seconds: as long as a long job.
const LIFETIME_S: u64 = 400 * 24 * 3600;

/// The kernel's word.
pub struct Peer {
    /// The user whose server this is.
    pub own: u32,
}

impl Peer {
    /// The user of this number, who needs no line in a list.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] for any user but the server's own: memory of one user is never lent
    /// to another.
    pub fn identity(&self, user: u32) -> Result<Identity> {
        if user != self.own {
            let context = format!("this server belongs to user {}, you are user {user}", self.own);
            return Err(Error::new(ErrorKind::Denied, context));
        }
        let (operations, below, lifetime_s) = (Operations::ALL, Vec::new(), LIFETIME_S);
        let terms = Terms { operations, below, lifetime_s };
        Ok(Identity::whole(Principal::User(user), terms))
    }
}

impl Mechanism for Peer {
    /// The number of the user, as the kernel says it.
    type Proof<'p> = u32;

    fn identify(&mut self, _: &Scene<'_>, user: u32) -> Result<Identity> {
        self.identity(user)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Identity, Peer, Principal, Result, Scene};
    use crate::authority::conformance::{Subject, suite};
    use crate::authority::mechanism::Mechanism;
    use crate::authority::principals::Principals;

    const OWN: u32 = 1000;

    struct Local;

    impl Subject for Local {
        type Of = Peer;

        fn mechanism(&self) -> Peer {
            Peer { own: OWN }
        }

        fn lists(&self) -> (Principals, Option<Principals>) {
            (Principals::default(), None)
        }

        fn principal(&self) -> Principal {
            Principal::User(OWN)
        }

        fn proof(&self) -> Vec<u8> {
            OWN.to_le_bytes().to_vec()
        }

        fn for_another(&self) -> Option<Vec<u8>> {
            None
        }

        fn secrets(&self) -> Vec<String> {
            Vec::new()
        }

        fn show(&self, of: &mut Peer, scene: &Scene<'_>, bytes: &[u8]) -> Result<Identity> {
            let user = bytes.try_into().map(u32::from_le_bytes);
            of.identify(scene, user.map_err(|_| Error::new(ErrorKind::Denied, "no number"))?)
        }
    }

    #[test]
    fn only_the_servers_user_is_the_servers_user() {
        suite(&Local);
    }
}
