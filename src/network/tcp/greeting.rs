//! What two endpoints say before there is a session.
//!
//! All numbers are little-endian. Not here: who may have a session (`shake`), and how each proves
//! who it is (`signing`).

use terral_format::Result;
use terral_format::ids::{Member, ServerId};

/// What a greeting begins with: it names the protocol and its version.
pub(super) const MAGIC: [u8; 8] = *b"terral\x00\x04";
/// Bytes of a greeting.
pub(super) const GREETING_BYTES: usize = 93;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 64;
/// Bytes of what begins a session: its number.
pub(super) const GO_BYTES: usize = 8;

/// What two share, and nobody else has, who are no members of one partition.
#[derive(Clone)]
pub struct Ticket(pub [u8; 32]);

impl Ticket {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new() -> Result<Ticket> {
        super::random().map(Ticket)
    }
}

/// Which partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionId(pub u128);

/// Whether what members say to each other is encrypted. The same for all of a partition: who asks
/// for the other kind is turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// By TLS 1.3, with keys made for this endpoint.
    #[default]
    Tls,
    /// It is not: for networks on which nobody else sits. Who can read what goes over the wire has
    /// all of it, and who can change it needs no key once there is a session.
    None,
}

/// What carries a connection's bytes, as its two ends know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Whoever sits on the wire reads them.
    Plain,
    /// Encryption; this value is known to its two ends and nobody else (RFC 9266).
    Tls([u8; 32]),
}

/// What an endpoint says of itself and of whom it wants to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) partition: PartitionId,
    pub(super) from: Member,
    pub(super) to: Member,
    /// The memory of who says it.
    pub(super) server: ServerId,
    /// The memory of whom it wants.
    pub(super) wanted: ServerId,
    /// Which life of its process: random.
    pub(super) life: u64,
    /// The latest session between the two that it knows of.
    pub(super) after: u64,
    pub(super) nonce: [u8; 32],
    /// What it takes this connection for.
    pub(super) encryption: Encryption,
}

/// A greeting as it is sent.
pub(super) type Said = [u8; GREETING_BYTES];

/// The bytes from `at` on, as many as the array has.
fn part<const BYTES: usize>(said: &[u8], at: usize) -> [u8; BYTES] {
    let mut part = [0; BYTES];
    part.copy_from_slice(&said[at..at + BYTES]);
    part
}

impl Greeting {
    pub(super) fn write(&self) -> Said {
        let parts: [&[u8]; 10] = [
            &MAGIC,
            &self.partition.0.to_le_bytes(),
            &self.from.number().to_le_bytes(),
            &self.to.number().to_le_bytes(),
            &self.server.0.to_le_bytes(),
            &self.wanted.0.to_le_bytes(),
            &self.life.to_le_bytes(),
            &self.after.to_le_bytes(),
            &self.nonce,
            &[match self.encryption {
                Encryption::None => 0,
                Encryption::Tls => 1,
            }],
        ];
        part(&parts.concat(), 0)
    }

    /// What a greeting says; why it is none.
    pub(super) fn read(said: &Said) -> std::result::Result<Greeting, &'static str> {
        if part(said, 0) != MAGIC {
            return Err("no greeting, or of another version");
        }
        let member = |at| Member::new(u16::from_le_bytes(part(said, at)));
        let number = |at| u64::from_le_bytes(part(said, at));
        Ok(Greeting {
            partition: PartitionId(u128::from_le_bytes(part(said, 8))),
            from: member(24).ok_or("a greeting of no member")?,
            to: member(26).ok_or("a greeting to no member")?,
            server: ServerId(number(28)),
            wanted: ServerId(number(36)),
            life: number(44),
            after: number(52),
            nonce: part(said, 60),
            encryption: match said[92] {
                0 => Encryption::None,
                1 => Encryption::Tls,
                _ => return Err("a greeting for an unknown encryption"),
            },
        })
    }
}

/// Who proves it: neither side can be made to prove what the other has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Who has dialled.
    Dialler,
    /// Who was.
    Acceptor,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Dialler => Side::Acceptor,
            Side::Acceptor => Side::Dialler,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Encryption, Greeting, PartitionId};
    use terral_format::ids::{Member, ServerId};

    pub(in crate::tcp) fn greeting(from: u16, nonce: u8) -> Greeting {
        let member = |number| Member::new(number).expect("14 bits");
        Greeting {
            partition: PartitionId(u128::MAX / 3),
            from: member(from),
            to: member(16_383 - from),
            server: ServerId(u64::MAX - 5),
            wanted: ServerId(77),
            life: 1 << 60,
            after: 12,
            nonce: [nonce; 32],
            encryption: Encryption::Tls,
        }
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written_and_nothing_else_is_one() {
        let said = greeting(7, 1).write();
        assert_eq!(Greeting::read(&said), Ok(greeting(7, 1)));
        for at in (0..8).chain([25, 27, 92]) {
            let mut bad = said;
            bad[at] ^= 0x80;
            assert!(Greeting::read(&bad).is_err(), "byte {at}");
        }
    }
}
