//! Capabilities: what the holder may do to a container.
//!
//! A capability is signed by a key only the authorization role has (HMAC-SHA-256, RFC 2104). Its
//! holder may attenuate it without asking: each caveat replaces the tag by HMAC(tag, caveat), the
//! chained construction of macaroons (Birgisson et al., NDSS 2014), so that nobody can take a
//! caveat off again.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::frame;
use crate::ids::{ContainerId, ServerId};
use crate::wire::credential::CredentialId;
use crate::wire::digits;
pub use crate::wire::principal::Principal;
use crate::{Error, ErrorKind, Result};

/// Version of the text of a capability.
const TEXT_VERSION: u16 = 2;
/// What that begins with.
const PREFIX: &str = "terral-cap-1:";
/// Nothing that is longer, white space around it included, is read as one, bytes.
pub const TEXT_MAX: u64 = 64 << 10;
/// Most bytes that it stands for. They fit a message.
const TEXT_BYTES_MAX: usize = 6 << 10;

/// What a capability allows, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations(pub u8);

impl Operations {
    /// Read the bytes and attributes of objects.
    pub const READ: Operations = Operations(1);
    /// Change the bytes and attributes of objects.
    pub const WRITE: Operations = Operations(2);
    /// Make new names.
    pub const CREATE: Operations = Operations(4);
    /// Take names away.
    pub const REMOVE: Operations = Operations(8);
    /// See names.
    pub const LIST: Operations = Operations(16);
    /// Change the container itself, stop its server.
    pub const ADMIN: Operations = Operations(32);
    /// Everything.
    pub const ALL: Operations = Operations(63);

    /// Both sets together.
    pub const fn and(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    /// Whether every operation of `other` is in this set.
    pub fn contain(self, other: Operations) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in both sets.
    pub fn within(self, other: Operations) -> Operations {
        Operations(self.0 & other.0)
    }

    /// What is in this set only.
    pub fn without(self, other: Operations) -> Operations {
        Operations(self.0 & !other.0)
    }

    /// Each operation by its word, in order.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let known = WORDS.iter().enumerate();
        known.filter(move |(at, _)| self.0 & 1 << at != 0).map(|(_, word)| *word)
    }

    /// The one that is called so.
    pub fn of_word(word: &str) -> Option<Operations> {
        let at = WORDS.iter().position(|known| *known == word)?;
        Some(Operations(1 << at))
    }
}

/// What people call them, by the number of their bit.
const WORDS: [&str; 6] = ["read", "write", "create", "remove", "list", "admin"];

/// Narrows a capability; added by its holder, never taken off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caveat {
    /// Only these operations.
    Only(Operations),
    /// Not after this time, seconds since 1970.
    Until(u64),
    /// Only what is at this path, relative to the root, or below.
    Below(Vec<u8>),
    /// Only while this credential lives.
    While(CredentialId),
}

/// What the issuer signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To what.
    pub container: ContainerId,
    /// What may be done.
    pub operations: Operations,
    /// For whom it was issued.
    pub principal: Principal,
    /// The container's revocation epoch at issue.
    pub epoch: u64,
    /// Seconds since 1970.
    pub expires_s: u64,
    /// Names this capability for ever.
    pub serial: u64,
    /// Whose key signed it: a member's server, or 0, one that was alone.
    pub issuer: ServerId,
}

/// What a capability comes to with all its caveats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// What may be done.
    pub operations: Operations,
    /// Until when, seconds since 1970.
    pub expires_s: u64,
}

/// The same, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// What, and until when.
    pub rights: Rights,
    /// At this path, or below; `None`: everywhere.
    pub below: Option<Vec<u8>>,
    /// While this credential lives, if it was issued to who had shown one.
    pub credential: Option<CredentialId>,
}

/// What ends what capabilities allow before their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revocation {
    /// The one with this serial, and all that were made of it.
    Serial(u64),
    /// These operations on the container, by all that were issued before.
    Operations(Operations),
    /// All that were issued to him before.
    Principal(Principal),
    /// This credential, and all that were got by it.
    Credential(CredentialId),
    /// All that a control has handed out before, as it is the control no more.
    HandedOut,
}

/// Something that was revoked, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// What.
    pub what: Revocation,
    /// The revocation epoch from then on.
    pub epoch: u64,
}

/// The right to do some operations on a container, for whoever holds it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// As issued.
    pub grant: Grant,
    /// As narrowed since.
    pub caveats: Vec<Caveat>,
    tag: [u8; 32],
}

impl std::fmt::Debug for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capability({:?}, {:?})", self.grant, self.caveats)
    }
}

/// The issuer's signing key.
#[derive(Clone, Serialize, Deserialize)]
pub struct Key(pub [u8; 32]);

fn chain<T: Serialize>(key: &[u8; 32], value: &T) -> Result<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|_| Error::new(ErrorKind::Invalid, "capability key"))?;
    mac.update(&frame::encode(value)?);
    Ok(mac)
}

impl Capability {
    /// Issues a capability.
    pub fn issue(key: &Key, grant: Grant) -> Result<Self> {
        let tag = chain(&key.0, &grant)?.finalize().into_bytes().into();
        Ok(Capability { grant, caveats: Vec::new(), tag })
    }

    /// The same capability, narrowed. Needs no key and asks nobody.
    pub fn attenuate(&self, caveat: Caveat) -> Result<Self> {
        let tag = chain(&self.tag, &caveat)?.finalize().into_bytes().into();
        let mut caveats = self.caveats.clone();
        caveats.push(caveat);
        Ok(Capability { grant: self.grant.clone(), caveats, tag })
    }

    /// Whether a narrower one was made of this one, which the issuer has said to be good: who has
    /// its tag can tell, without the key.
    pub fn is_parent_of(&self, child: &Capability) -> bool {
        if child.grant != self.grant {
            return false;
        }
        let Some(rest) = child.caveats.strip_prefix(self.caveats.as_slice()) else { return false };
        let Some((last, between)) = rest.split_last() else { return child.is_same(&self.tag) };
        let step = |tag: Result<[u8; 32]>, caveat| {
            Ok(chain(&tag?, caveat)?.finalize().into_bytes().into())
        };
        let tag = between.iter().fold(Ok(self.tag), step).and_then(|tag| chain(&tag, last));
        tag.is_ok_and(|mac| mac.verify_slice(&child.tag).is_ok())
    }

    /// Compared in a time that says nothing of where they differ.
    fn is_same(&self, tag: &[u8; 32]) -> bool {
        self.tag.iter().zip(tag).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }

    /// What it says that it allows. Only its issuer knows whether that is so.
    pub fn scope(&self) -> Scope {
        let (mut operations, mut expires_s) = (self.grant.operations, self.grant.expires_s);
        let mut below: Option<Vec<u8>> = None;
        let mut credential = None;
        for caveat in &self.caveats {
            match caveat {
                Caveat::Only(set) => operations = operations.within(*set),
                Caveat::Until(time_s) => expires_s = expires_s.min(*time_s),
                Caveat::Below(path) => match &below {
                    Some(above) if is_at_or_below(above, path) => {}
                    Some(above) if !is_at_or_below(path, above) => operations = Operations(0),
                    _ => below = Some(path.clone()),
                },
                Caveat::While(one) if credential.is_none_or(|known| known == *one) => {
                    credential = Some(*one);
                }
                // Nobody is issued one under two.
                Caveat::While(_) => operations = Operations(0),
            }
        }
        Scope { rights: Rights { operations, expires_s }, below, credential }
    }

    /// What it allows, until when and where, if the issuer of `key` made it and nobody widened it.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is forged or, at `now_s`, expired.
    pub fn verify(&self, key: &Key, now_s: u64) -> Result<Scope> {
        let refuse = |why: &str| Error::new(ErrorKind::Unauthorized, format!("capability: {why}"));
        let mut mac = chain(&key.0, &self.grant)?;
        for caveat in &self.caveats {
            let tag: [u8; 32] = mac.finalize().into_bytes().into();
            mac = chain(&tag, caveat)?;
        }
        mac.verify_slice(&self.tag).map_err(|_| refuse("not issued here, or widened"))?;
        let scope = self.scope();
        if now_s >= scope.rights.expires_s {
            return Err(refuse("expired"));
        }
        Ok(scope)
    }

    /// As one word of text; whoever reads it may do what it allows.
    ///
    /// # Errors
    /// [`ErrorKind::TooBig`] if it was narrowed so often that it is longer than one may be.
    pub fn text(&self) -> Result<String> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, TEXT_VERSION, &frame::encode(self)?);
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooBig, "capability: narrowed too often"));
        }
        Ok(PREFIX.to_owned() + &digits::text(&bytes))
    }

    /// What a text says; white space around it does not count. Whether it is good, the issuer
    /// knows.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if it is none, or was cut off; [`ErrorKind::Version`],
    /// [`ErrorKind::Corrupt`]. No error repeats any of it.
    pub fn of(text: &str) -> Result<Self> {
        let none =
            || Error::new(ErrorKind::Malformed, "no capability (`terral cap get` makes one)");
        let digits = text.trim().strip_prefix(PREFIX).ok_or_else(none)?;
        let bytes = digits::bytes(digits, TEXT_BYTES_MAX).ok_or_else(none)?;
        let found = frame::read(&bytes)?;
        frame::is_of(found.version, TEXT_VERSION)?;
        if found.rest.is_empty() { frame::decode(found.payload) } else { Err(none()) }
    }
}

/// Whether a path is another one, or leads on from there. Both are relative and normal.
pub fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::{
        Capability, Caveat, ContainerId, CredentialId, Grant, Key, Operations, Principal, Rights,
        Scope, ServerId, frame,
    };
    use crate::ErrorKind;
    use proptest::prelude::{any, prop, proptest};

    fn capability() -> (Key, Capability) {
        let key = Key([7; 32]);
        let grant = Grant {
            container: ContainerId(1),
            operations: Operations::READ.and(Operations::WRITE),
            principal: Principal::User(1000),
            epoch: 0,
            expires_s: 100,
            serial: 9,
            issuer: ServerId(5),
        };
        let issued = Capability::issue(&key, grant).expect("encodes");
        (key, issued)
    }

    #[test]
    fn a_holder_can_narrow_but_never_widen() {
        let (key, whole) = capability();
        let narrow = whole.attenuate(Caveat::Only(Operations::READ)).expect("encodes");
        let rights = |operations| {
            let rights = Rights { operations, expires_s: 100 };
            Ok(Scope { rights, below: None, credential: None })
        };
        assert_eq!(whole.verify(&key, 1), rights(Operations::READ.and(Operations::WRITE)));
        assert_eq!(narrow.verify(&key, 1), rights(Operations::READ));
        let mut widened = narrow.clone();
        widened.caveats.clear();
        assert!(widened.verify(&key, 1).is_err());
        let mut forged = whole.clone();
        forged.grant.operations = Operations::ALL;
        assert!(forged.verify(&key, 1).is_err());
        assert!(whole.verify(&Key([8; 32]), 1).is_err());
    }

    #[test]
    fn who_knows_a_parent_to_be_good_knows_its_children() {
        let (_, whole) = capability();
        let narrow = |from: &Capability, at| from.attenuate(Caveat::Until(at)).expect("encodes");
        let (child, other) = (narrow(&whole, 50), narrow(&whole, 51));
        let grandchild = narrow(&narrow(&child, 40), 30);
        for made in [&whole, &child, &grandchild] {
            assert!(whole.is_parent_of(made), "{made:?}");
        }
        assert!(child.is_parent_of(&grandchild) && !child.is_parent_of(&whole));
        assert!(!other.is_parent_of(&child) && !other.is_parent_of(&grandchild));
        let mut widened = grandchild.clone();
        widened.caveats.pop();
        assert!(!whole.is_parent_of(&widened) && !child.is_parent_of(&widened));
        let mut forged = whole.clone();
        forged.tag[31] ^= 1;
        assert!(!whole.is_parent_of(&forged) && !forged.is_parent_of(&child));
    }

    #[test]
    fn time_runs_out_for_the_child_before_the_parent() {
        let (key, whole) = capability();
        let brief = whole.attenuate(Caveat::Until(50)).expect("encodes");
        assert!(brief.verify(&key, 60).is_err() && whole.verify(&key, 60).is_ok());
        assert_eq!(brief.verify(&key, 49).map(|scope| scope.rights.expires_s), Ok(50));
        assert!(whole.verify(&key, 100).is_err());
    }

    fn below(whole: &Capability, paths: &[&[u8]]) -> Scope {
        let narrow = |capability: Capability, path: &&[u8]| {
            capability.attenuate(Caveat::Below(path.to_vec())).expect("encodes")
        };
        paths.iter().fold(whole.clone(), narrow).scope()
    }

    #[test]
    fn a_narrower_place_counts_and_two_places_apart_leave_nothing() {
        let (_, whole) = capability();
        let [wide, narrow] = [&b"a"[..], b"a/b"];
        assert_eq!(below(&whole, &[]).below, None);
        for order in [[wide, narrow], [narrow, wide], [b"", narrow]] {
            let scope = below(&whole, &order);
            assert_eq!(scope.below.as_deref(), Some(narrow));
            assert_eq!(scope.rights.operations, whole.grant.operations);
        }
        for apart in [[narrow, b"a/c"], [b"a", b"ab"], [b"a/b", b"a/bc"]] {
            assert_eq!(below(&whole, &apart).rights.operations, Operations(0));
        }
    }

    #[test]
    fn one_that_ends_with_a_credential_ends_with_that_alone() {
        let (_, whole) = capability();
        let under = |capability: &Capability, id| {
            capability.attenuate(Caveat::While(CredentialId(id))).expect("encodes")
        };
        let one = under(&whole, 1);
        assert_eq!(
            (whole.scope().credential, one.scope().credential),
            (None, Some(CredentialId(1)))
        );
        assert_eq!(under(&one, 1).scope(), one.scope());
        assert_eq!(under(&one, 2).scope().rights.operations, Operations(0));
    }

    #[test]
    fn operations_have_words() {
        let two = Operations::READ.and(Operations::LIST);
        assert_eq!(two.words().collect::<Vec<_>>(), ["read", "list"]);
        let all = Operations::ALL.words().filter_map(Operations::of_word);
        assert_eq!(all.fold(Operations(0), Operations::and), Operations::ALL);
        assert_eq!(Operations::of_word("everything"), None);
    }

    #[test]
    fn a_text_says_the_same_and_is_bounded() {
        let (_, whole) = capability();
        let narrow = whole.attenuate(Caveat::Below(b"a/b".to_vec())).expect("encodes");
        let text = narrow.text().expect("is short");
        assert_eq!(Capability::of(&format!(" {text}\n")), Ok(narrow.clone()));
        let long = narrow.attenuate(Caveat::Below(vec![b'x'; 6 << 10])).expect("encodes");
        assert_eq!(long.text().map_err(|error| error.kind), Err(ErrorKind::TooBig));
        for none in ["", "terral-cap-1:", "terral-cap-2:00", &text[1..], &text.to_uppercase()] {
            assert!(Capability::of(none).is_err(), "{none}");
        }
        assert!(Capability::of(&format!("terral-cap-1:{}", "0".repeat(1 << 20))).is_err());
        assert!(Capability::of(&format!("{text}00")).is_err());
    }

    proptest! {
        #[test]
        fn a_text_that_is_cut_off_or_damaged_is_none(
            at in any::<prop::sample::Index>(),
            bit in 0u8..7,
        ) {
            let (_, whole) = capability();
            let text = whole.text().expect("is short");
            let at = at.index(text.len());
            assert!(Capability::of(&text[..at]).is_err());
            let mut bytes = text.into_bytes();
            bytes[at] ^= 1u8 << bit;
            assert!(Capability::of(&String::from_utf8_lossy(&bytes)).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = Capability::of(&String::from_utf8_lossy(&bytes));
            let (key, _) = capability();
            if let Ok(read) = frame::decode::<Capability>(&bytes) {
                assert!(read.verify(&key, 0).is_err(), "it is forged");
            }
        }

        #[test]
        fn what_is_changed_anywhere_is_not_good(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (key, whole) = capability();
            let narrow = whole.attenuate(Caveat::Only(Operations::READ)).expect("encodes");
            let mut bytes = frame::encode(&narrow).expect("encodes");
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            let read = frame::decode::<Capability>(&bytes);
            assert!(read.is_err() || read.is_ok_and(|read| read.verify(&key, 1).is_err()));
        }
    }
}
