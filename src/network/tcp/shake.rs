//! The hand-shake of one connection, without its socket: what is to come next, what is to be said
//! to that, and when both sides have proven who they are.
//!
//! A stranger costs the bytes of a greeting and a proof. Who does not prove anything hears nothing
//! but the greeting and the proof of a member that was asked for by its number and server.

use terral_format::ids::{Member, ServerId};
use terral_format::wire::roster::{Key, Secret};

use super::encryption::{ALERT, HELLO, WANTS_ENCRYPTION, WANTS_NONE};
use super::greeting::{
    Channel, Encryption, GO_BYTES, GREETING_BYTES, Greeting, PROOF_BYTES, PartitionId, Said, Side,
};
use super::signing::{Claim, is_proven, prove};

/// Who an endpoint is.
#[derive(Clone)]
pub struct Identity {
    /// Of which partition.
    pub partition: PartitionId,
    /// Which member.
    pub member: Member,
    /// Of which memory.
    pub server: ServerId,
    /// What it alone has, and proves to have.
    pub secret: Secret,
}

/// What an endpoint knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) server: ServerId,
    /// The latest session with it.
    pub(super) latest: u64,
    /// By which it proves who it is.
    pub(super) key: Key,
}

/// What comes of what has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More is to come.
    More,
    /// This is to be said.
    Say(Vec<u8>),
    /// It is proven who the other side is; this is to be said.
    Proven(Vec<u8>),
    /// The other side says that there is a session of this number.
    Go(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Greeting,
    GreetingAndProof,
    Proof,
    Go,
}

/// A hand-shake.
pub(super) struct Shake {
    identity: Identity,
    encryption: Encryption,
    life: u64,
    nonce: [u8; 32],
    side: Side,
    awaits: Awaits,
    /// What has come of what is awaited.
    have: Vec<u8>,
    ours: Option<Said>,
    theirs: Option<(Greeting, Said, Key)>,
}

impl Shake {
    /// With who has dialled.
    pub(super) fn accept(
        identity: &Identity,
        encryption: Encryption,
        life: u64,
        nonce: [u8; 32],
    ) -> Self {
        Shake {
            identity: identity.clone(),
            encryption,
            life,
            nonce,
            side: Side::Acceptor,
            awaits: Awaits::Greeting,
            have: Vec::with_capacity(GREETING_BYTES),
            ours: None,
            theirs: None,
        }
    }

    /// With a member that is dialled; gives what is to be said.
    pub(super) fn dial(
        identity: &Identity,
        encryption: Encryption,
        (life, nonce): (u64, [u8; 32]),
        (to, known): (Member, Known),
    ) -> (Self, Said) {
        let mut shake = Shake::accept(identity, encryption, life, nonce);
        (shake.side, shake.awaits) = (Side::Dialler, Awaits::GreetingAndProof);
        let said = shake.greeting(to, known).write();
        shake.ours = Some(said);
        (shake, said)
    }

    fn greeting(&self, to: Member, known: Known) -> Greeting {
        Greeting {
            partition: self.identity.partition,
            from: self.identity.member,
            to,
            server: self.identity.server,
            wanted: known.server,
            life: self.life,
            after: known.latest,
            nonce: self.nonce,
            encryption: self.encryption,
        }
    }

    /// How many bytes are to come before anything else is to be done.
    pub(super) fn wants(&self) -> usize {
        let all = match self.awaits {
            Awaits::Greeting => GREETING_BYTES,
            Awaits::GreetingAndProof => GREETING_BYTES + PROOF_BYTES,
            Awaits::Proof => PROOF_BYTES,
            Awaits::Go => GO_BYTES,
        };
        all - self.have.len()
    }

    /// The other side's greeting; it is proven once [`Next::Proven`] was said.
    pub(super) fn theirs(&self) -> Option<&Greeting> {
        self.theirs.as_ref().map(|(greeting, ..)| greeting)
    }

    /// Some of what is wanted has come over a channel; why the other side is to be turned away, if
    /// it is.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        channel: &Channel,
        known: impl Fn(Member) -> Option<Known>,
    ) -> Result<Next, &'static str> {
        self.have.extend_from_slice(bytes);
        self.is_no_encryption()?;
        if self.wants() > 0 {
            return Ok(Next::More);
        }
        let have = std::mem::take(&mut self.have);
        match self.awaits {
            Awaits::Greeting => self.greeted(&have, channel, known),
            Awaits::GreetingAndProof => self.answered(&have, channel, known),
            Awaits::Proof => {
                self.awaits = Awaits::Go;
                self.check(&have, channel).map(|()| Next::Proven(Vec::new()))
            }
            Awaits::Go => have
                .try_into()
                .map(|number| Next::Go(u64::from_le_bytes(number)))
                .map_err(|_| "no session's number"),
        }
    }

    /// Says so if what has come instead of a greeting is encryption, or the end of one.
    fn is_no_encryption(&self) -> Result<(), &'static str> {
        match (self.awaits, self.have.first()) {
            (Awaits::Greeting, Some(&HELLO)) => Err(WANTS_ENCRYPTION),
            (Awaits::GreetingAndProof, Some(&ALERT)) => Err(WANTS_ENCRYPTION),
            _ => Ok(()),
        }
    }

    /// Looks at who says that, before anything is answered.
    fn meet(
        &mut self,
        bytes: &[u8],
        known: impl Fn(Member) -> Option<Known>,
    ) -> Result<(Greeting, Known), &'static str> {
        let said: Said = bytes.try_into().map_err(|_| "no greeting")?;
        let theirs = Greeting::read(&said)?;
        let Identity { partition, member, server, .. } = &self.identity;
        if theirs.partition != *partition {
            return Err("a greeting of another partition");
        }
        if theirs.encryption != self.encryption {
            return Err(match self.encryption {
                Encryption::Tls => WANTS_NONE,
                Encryption::None => WANTS_ENCRYPTION,
            });
        }
        if theirs.to != *member || theirs.wanted != *server {
            return Err("a greeting to another server");
        }
        let known = known(theirs.from).ok_or("a greeting of who is no member")?;
        if theirs.server != known.server {
            return Err("a greeting of another server than the member's");
        }
        self.theirs = Some((theirs, said, known.key));
        Ok((theirs, known))
    }

    fn greeted(
        &mut self,
        bytes: &[u8],
        channel: &Channel,
        known: impl Fn(Member) -> Option<Known>,
    ) -> Result<Next, &'static str> {
        let (theirs, known) = self.meet(bytes, known)?;
        let said = self.greeting(theirs.from, known).write();
        self.ours = Some(said);
        self.awaits = Awaits::Proof;
        Ok(Next::Say([&said[..], &self.proof(channel)].concat()))
    }

    fn answered(
        &mut self,
        bytes: &[u8],
        channel: &Channel,
        known: impl Fn(Member) -> Option<Known>,
    ) -> Result<Next, &'static str> {
        let dialled = self.ours.map(|ours| Greeting::read(&ours)).transpose()?;
        let (greeting, proof) = bytes.split_at(GREETING_BYTES);
        let (theirs, _) = self.meet(greeting, known)?;
        if dialled.is_none_or(|dialled| dialled.to != theirs.from) {
            return Err("another member than the one that was dialled");
        }
        self.check(proof, channel)?;
        self.awaits = Awaits::Go;
        Ok(Next::Proven(self.proof(channel).to_vec()))
    }

    /// What a side proves.
    fn claim<'a>(&'a self, side: Side, channel: &'a Channel) -> Option<Claim<'a>> {
        let (ours, (_, theirs, _)) = (self.ours.as_ref()?, self.theirs.as_ref()?);
        Some(match self.side {
            Side::Dialler => (side, channel, ours, theirs),
            Side::Acceptor => (side, channel, theirs, ours),
        })
    }

    fn proof(&self, channel: &Channel) -> [u8; PROOF_BYTES] {
        let claim = self.claim(self.side, channel).expect("both have greeted");
        prove(&self.identity.secret, claim)
    }

    fn check(&self, proof: &[u8], channel: &Channel) -> Result<(), &'static str> {
        let claim = self.claim(self.side.other(), channel);
        let theirs = self.theirs.as_ref().map(|(_, _, key)| key);
        let (claim, key) = claim.zip(theirs).ok_or("a proof without a greeting")?;
        if is_proven(key, claim, proof) {
            return Ok(());
        }
        Err("a proof that is not by this member's key, or not for this greeting")
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Known, Next, Shake, WANTS_ENCRYPTION, WANTS_NONE};
    use crate::tcp::greeting::{Channel, Encryption, PartitionId, Said};
    use crate::tcp::signing::public_half;
    use terral_format::ids::{Member, ServerId};
    use terral_format::wire::roster::Secret;

    fn member(number: u16) -> Member {
        Member::new(number).expect("14 bits")
    }

    fn secret(of: Member) -> Secret {
        Secret([of.number() as u8; 32])
    }

    fn identity(number: u16) -> Identity {
        Identity {
            partition: PartitionId(5),
            member: member(number),
            server: ServerId(number.into()),
            secret: secret(member(number)),
        }
    }

    fn known(of: Member) -> Option<Known> {
        let all = [member(1), member(2), member(3)];
        let server = all.iter().position(|one| *one == of)? as u64 + 1;
        let key = public_half(&secret(of));
        Some(Known { server: ServerId(server), latest: 0, key })
    }

    const TLS: Channel = Channel::Tls([6; 32]);

    fn dials(to: u16) -> (Shake, Said) {
        let to = (member(to), known(member(to)).expect("a member"));
        Shake::dial(&identity(1), Encryption::Tls, (8, [1; 32]), to)
    }

    fn accepts(who: &Identity, nonce: u8) -> Shake {
        Shake::accept(who, Encryption::Tls, 9, [nonce; 32])
    }

    /// Member 1 dials `to`, and `who` answers; what carries it is this on either side.
    fn carried(who: &Identity, to: u16, [here, there]: [Channel; 2]) -> Result<Next, &'static str> {
        let ((mut dialler, said), mut acceptor) = (dials(to), accepts(who, 2));
        let Next::Say(answer) = acceptor.take(&said, &there, known)? else { panic!("no answer") };
        let Next::Proven(proof) = dialler.take(&answer, &here, known)? else { panic!("no proof") };
        acceptor.take(&proof, &there, known)
    }

    fn shaken(who: &Identity, to: u16) -> Result<Next, &'static str> {
        carried(who, to, [TLS; 2])
    }

    #[test]
    fn both_prove_it_byte_by_byte() {
        assert_eq!(shaken(&identity(2), 2), Ok(Next::Proven(Vec::new())));
        let ((_, said), mut acceptor) = (dials(2), accepts(&identity(2), 2));
        for (at, byte) in said[..92].iter().enumerate() {
            assert_eq!(acceptor.wants(), 93 - at);
            assert_eq!(acceptor.take(&[*byte], &TLS, known), Ok(Next::More));
        }
        assert!(matches!(acceptor.take(&said[92..], &TLS, known), Ok(Next::Say(_))));
    }

    #[test]
    fn whoever_is_not_who_he_says_is_turned_away() {
        let other = |change: fn(&mut Identity)| {
            let mut other = identity(2);
            change(&mut other);
            shaken(&other, 2)
        };
        assert!(other(|_| ()).is_ok());
        assert!(other(|of| of.secret = Secret([4; 32])).is_err());
        assert!(other(|of| of.secret = secret(member(1))).is_err(), "the key of another member");
        assert!(other(|of| of.partition = PartitionId(6)).is_err());
        assert!(other(|of| of.member = member(3)).is_err());
        assert!(other(|of| of.server = ServerId(99)).is_err());
        assert!(shaken(&identity(2), 3).is_err(), "it is another one than was dialled");
    }

    /// Somebody in between has a channel of his own with each, or takes the encryption away.
    #[test]
    fn who_carries_it_from_one_channel_to_another_proves_nothing() {
        let other = Channel::Tls([7; 32]);
        for both in [[TLS, other], [other, TLS], [TLS, Channel::Plain], [Channel::Plain, TLS]] {
            assert!(carried(&identity(2), 2, both).is_err(), "{both:?}");
        }
    }

    #[test]
    fn who_wants_the_other_kind_of_encryption_is_turned_away_as_such() {
        let (_, said) = dials(2);
        let plain = || Shake::accept(&identity(2), Encryption::None, 9, [2; 32]);
        let refused = plain().take(&said, &Channel::Plain, known);
        assert_eq!(refused, Err(WANTS_ENCRYPTION));
        let to = (member(2), known(member(2)).expect("a member"));
        let (mut dialler, said) = Shake::dial(&identity(1), Encryption::None, (8, [1; 32]), to);
        assert_eq!(accepts(&identity(2), 2).take(&said, &TLS, known), Err(WANTS_NONE));
        assert_eq!(plain().take(&[22], &Channel::Plain, known), Err(WANTS_ENCRYPTION));
        assert_eq!(dialler.take(&[21], &Channel::Plain, known), Err(WANTS_ENCRYPTION));
    }

    #[test]
    fn an_old_proof_proves_nothing() {
        let ((mut dialler, said), mut acceptor) = (dials(2), accepts(&identity(2), 2));
        let Ok(Next::Say(answer)) = acceptor.take(&said, &TLS, known) else { panic!("no answer") };
        let Ok(Next::Proven(proof)) = dialler.take(&answer, &TLS, known) else {
            panic!("no proof")
        };
        let mut again = accepts(&identity(2), 7);
        assert!(matches!(again.take(&said, &TLS, known), Ok(Next::Say(_))));
        assert!(again.take(&proof, &TLS, known).is_err());
    }
}
