//! What a client may do: issues capabilities for the container, verifies presented ones once, and
//! answers every request, and every deferred change, from what it remembers after that. Not here:
//! what another member has issued (`sharing/leasing`).

use std::collections::BTreeMap;
use std::sync::Arc;

use terral_format::disk::local::{Held, Kept, Local};
use terral_format::ids::{ROOT_CONTAINER, ServerId, SessionSlot};
use terral_format::wire::capability::{
    self, Capability, Caveat, Grant, Key, Operations, Principal, Revocation, Rights, Scope,
};
use terral_format::wire::containers::Altered;
use terral_format::wire::credential::CredentialId;
use terral_format::wire::message::Request;
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::authn::Most;
use crate::authority::containers::Containers;
use crate::authority::credentials::Credentials;
use crate::authority::hearing::Hearing;
use crate::authority::lease::Lease;
use crate::authority::revoked::Revoked;
use crate::authority::vouched::Vouched;
use crate::core::world::World;

/// Most capabilities one session may present.
const PRESENTED_MAX: usize = 4096;

/// What was presented and is good: what the log says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Good {
    /// What the capability allows.
    pub rights: Rights,
    /// At this path, or below; `None`: everywhere.
    pub below: Option<Arc<[u8]>>,
    /// The container's revocation epoch at its issue.
    pub epoch: u64,
    /// Names what was issued.
    pub serial: u64,
    /// To whom it was.
    pub principal: Principal,
    /// Whom its holder acts as.
    pub person: Arc<Person>,
    /// Another member has issued it: it counts as long as the lease does.
    pub leased: bool,
    /// It ends with this credential.
    pub credential: Option<CredentialId>,
}

impl From<&Held> for Good {
    fn from(held: &Held) -> Self {
        Good {
            rights: held.rights,
            below: held.below.as_deref().map(Arc::from),
            epoch: held.epoch,
            serial: held.serial,
            principal: held.principal,
            person: Arc::new(held.person.clone()),
            leased: false,
            credential: None,
        }
    }
}

impl Good {
    /// From a record: of one that ends with a credential.
    pub fn under(held: &Held, credential: CredentialId, leased: bool) -> Self {
        Good { credential: Some(credential), leased, ..Good::from(held) }
    }

    /// Whom containers are asked about, if they are: who acts by the kernel's word owns all.
    pub fn contained(&self) -> Option<Principal> {
        Some(self.principal).filter(|who| !matches!(who, Principal::User(_)))
    }

    /// A session has presented it: a handle stands for it there.
    pub fn record(&self, session: SessionSlot, handle: u32) -> Local {
        let held = Held::from(self);
        match (self.credential, self.leased) {
            (Some(credential), leased) => {
                Local::HeldUnder { session, handle, held, credential, leased }
            }
            (None, true) => Local::HeldLeased { session, handle, held },
            (None, false) => Local::Held { session, handle, held },
        }
    }
}

impl From<&Good> for Held {
    fn from(good: &Good) -> Self {
        Held {
            rights: good.rights,
            below: good.below.as_deref().map(<[u8]>::to_vec),
            epoch: good.epoch,
            serial: good.serial,
            principal: good.principal,
            person: Person::clone(&good.person),
        }
    }
}

/// Who asks, and where he may.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// Whom he acts as.
    pub person: Arc<Person>,
    /// See [`Good::below`].
    pub below: Option<Arc<[u8]>>,
    /// See [`Good::leased`].
    pub leased: bool,
    /// See [`Good::contained`].
    pub contained: Option<Principal>,
}

/// What the one that a client goes by allows now.
#[derive(Clone, Copy, Debug)]
pub struct Allows {
    /// What, and until when.
    pub rights: Rights,
    /// Nobody need be asked where.
    pub everywhere: bool,
    /// See [`Good::leased`].
    pub leased: bool,
    /// Containers are asked, as its holder has logged in.
    pub contained: bool,
}

/// The same, as a session's cache keeps it.
#[derive(Clone, Debug)]
struct Verified {
    good: Good,
    /// What was not revoked of what it allows.
    left: Operations,
    /// What that was, for changes that were deferred before this stamp.
    before: (u64, Operations),
    /// Its time is over, and what was committed before has been applied.
    ended: bool,
}

impl Verified {
    fn now(&self) -> Operations {
        if self.ended { Operations(0) } else { self.left }
    }
}

/// What a session has presented and was believed, by handle. Handles count from 1.
#[derive(Clone, Debug, Default)]
pub struct Presented {
    all: BTreeMap<u32, Verified>,
    /// What was presented last: by this its client goes.
    last: u32,
}

impl Presented {
    /// From a record: `handle` stands for this, of which so much was not revoked.
    pub fn insert(&mut self, handle: u32, good: Good, left: Operations) {
        self.last = handle;
        let verified = Verified { good, left, before: (0, left), ended: false };
        let known = self.all.entry(handle).or_insert(verified);
        (known.left, known.ended) = (left, false);
    }

    /// Something was revoked: so much is `left` of each. Changes that were deferred before this
    /// stamp count as they did.
    pub fn revise(&mut self, left: impl Fn(&Good) -> Operations, stamp: u64) {
        for verified in self.all.values_mut() {
            let now = left(&verified.good);
            if now != verified.left {
                verified.before = (stamp, verified.left);
                verified.left = now;
            }
        }
    }

    /// What was presented last, and what it allows now.
    pub fn newest(&self) -> Option<(u32, Operations)> {
        self.all.get(&self.last).map(|newest| (self.last, newest.now()))
    }

    /// What this one allows now.
    pub fn allows(&self, handle: u32) -> Option<Allows> {
        let verified = self.all.get(&handle)?;
        let Good { rights: Rights { expires_s, .. }, below, leased, .. } = &verified.good;
        let rights = Rights { operations: verified.now(), expires_s: *expires_s };
        let contained = verified.good.contained().is_some();
        let everywhere = below.is_none() && !contained;
        Some(Allows { rights, everywhere, leased: *leased, contained })
    }

    /// Whether what was presented last was issued by another member.
    pub fn is_leased(&self) -> bool {
        self.all.get(&self.last).is_some_and(|newest| newest.good.leased)
    }

    /// Whether this handle may stand for that: it does, or is the one that comes next.
    pub fn may_be(&self, handle: u32, good: &Good) -> bool {
        let next = self.all.last_key_value().map_or(1, |(newest, _)| newest + 1);
        handle == next || self.all.get(&handle).is_some_and(|known| known.good == *good)
    }

    /// Everything in it, by handle, and once more what was presented last.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Good)> {
        let last = self.all.get_key_value(&self.last);
        self.all.iter().chain(last).map(|(handle, verified)| (*handle, &verified.good))
    }

    /// The handle that stands for the very same already.
    pub fn find(&self, good: &Good) -> Option<u32> {
        let same = |(_, known): &(u32, &Good)| *known == good;
        self.iter().find(same).map(|(handle, _)| handle)
    }

    /// Whom the holder of this one acts as.
    pub fn person(&self, handle: u32) -> Option<&Person> {
        self.all.get(&handle).map(|verified| &*verified.good.person)
    }

    /// When the next one runs out that has not been ended, seconds since 1970.
    pub fn expires_s(&self) -> Option<u64> {
        let lasting = self.all.values().filter(|verified| !verified.ended);
        lasting.map(|verified| verified.good.rights.expires_s).min()
    }

    /// Whether what was presented last has run out.
    pub fn is_over(&self, now_s: u64) -> bool {
        let last = self.all.get(&self.last);
        last.is_some_and(|last| now_s >= last.good.rights.expires_s)
    }

    /// Deferred changes do not count any more under what has run out.
    pub fn end(&mut self, now_s: u64) {
        for verified in self.all.values_mut() {
            verified.ended |= now_s >= verified.good.rights.expires_s;
        }
    }
}

fn refuse(why: &str) -> Error {
    Error::new(ErrorKind::Unauthorized, why)
}

/// The authorization role of one server.
pub struct Authz {
    key: Key,
    /// Whose key that is, and whether it was alone once.
    issuer: (ServerId, bool),
    revoked: Revoked,
    /// Of what other members have issued.
    pub vouched: Vouched,
    /// How long that counts.
    pub lease: Lease,
    /// Who waits until all have heard of what was revoked.
    pub hearing: Hearing,
    /// What ends with one that is not there any more allows nothing.
    pub credentials: Credentials,
    /// What they allow to who has logged in, besides.
    pub containers: Containers,
}

impl Authz {
    /// An issuer with this key.
    pub fn new(key: Key) -> Self {
        let (revoked, vouched, lease, hearing, credentials) = Default::default();
        let (issuer, containers) = ((ServerId(0), true), Containers::default());
        Authz { key, issuer, revoked, vouched, lease, hearing, credentials, containers }
    }

    /// From a record: this server is a member, which was alone before, or has just begun.
    pub fn joined(&mut self, server: ServerId, was_alone: bool) {
        self.issuer = (server, was_alone);
    }

    /// Whether this server has issued what says so.
    pub fn has_issued(&self, grant: &Grant) -> bool {
        let (own, was_alone) = self.issuer;
        grant.issuer == own || (grant.issuer == ServerId(0) && was_alone)
    }

    /// A revocation, as a record is to say it.
    ///
    /// # Errors
    /// As [`Revoked::next`].
    pub fn revocation(&self, what: Revocation) -> Result<capability::Revoked> {
        self.revoked.next(what)
    }

    /// The epoch of what is issued now.
    pub fn epoch(&self) -> u64 {
        self.revoked.epoch()
    }

    /// Whether a revocation is no news.
    pub fn knows(&self, revoked: capability::Revoked) -> bool {
        self.revoked.knows(revoked)
    }

    /// From a record.
    pub fn revoke(&mut self, revoked: capability::Revoked) {
        match revoked.what {
            Revocation::Principal(who) => self.credentials.end_of(who),
            Revocation::Credential(id) => self.credentials.end(id),
            Revocation::Serial(_) | Revocation::Operations(_) | Revocation::HandedOut => {}
        }
        self.revoked.apply(revoked);
    }

    /// From a record: somebody is let in, or a container has changed.
    pub fn apply(&mut self, record: &Local) {
        match record {
            Local::LoggedIn(kept) => self.credentials.begin(kept),
            Local::Container(altered) => self.containers.apply(altered),
            Local::Quota(name, quota) => self.containers.bounded(name, *quota),
            Local::Groups(all) => self.containers.grouped(all),
            _ => {}
        }
    }

    /// What was not revoked of what this allows.
    pub fn left(&self, good: &Good) -> Operations {
        let lives = |id| match good.leased {
            true => !self.revoked.has_ended(id),
            false => self.credentials.lives(id),
        };
        let is_over = good.leased && self.revoked.was_handed_out_before(good.epoch);
        if is_over || !good.credential.is_none_or(lives) {
            return Operations(0);
        }
        self.revoked.left(good.rights.operations, (good.serial, good.principal, good.epoch))
    }

    /// All that was revoked.
    pub fn all_revoked(&self) -> impl Iterator<Item = capability::Revoked> {
        self.revoked.snapshot()
    }

    /// Records from which what was revoked comes back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        let record = |capability::Revoked { what, epoch }| Local::Revoked { what, epoch };
        let containers = self.containers.all().into_iter().cloned();
        let containers = containers.map(|one| Local::Container(Altered::Is(one)));
        let quotas = self.containers.quotas().into_iter();
        let containers = containers.chain(quotas.map(|(name, quota)| Local::Quota(name, quota)));
        let groups = Some(self.containers.groups()).filter(|all| !all.is_empty());
        let containers = containers.chain(groups.map(Local::Groups));
        self.revoked.snapshot().map(record).chain(self.credentials.snapshot()).chain(containers)
    }

    /// A capability for what a principal may at most.
    pub fn issue(&self, world: &dyn World, most: &Most) -> Result<Capability> {
        self.issue_of(world, most, self.revoked.epoch())
    }

    /// The same for the server's own process, whose work for others no revocation ends.
    pub fn issue_own(&self, world: &dyn World, most: &Most) -> Result<Capability> {
        self.issue_of(world, most, u64::MAX)
    }

    /// The same for whom a credential names: it ends with that.
    pub fn issue_under(&self, world: &dyn World, kept: &Kept) -> Result<Capability> {
        let most = Most {
            principal: kept.principal,
            operations: kept.operations,
            below: kept.below.clone(),
            until_s: kept.expires_s(),
        };
        self.issue(world, &most)?.attenuate(Caveat::While(kept.id))
    }

    fn issue_of(&self, world: &dyn World, most: &Most, epoch: u64) -> Result<Capability> {
        let grant = Grant {
            container: ROOT_CONTAINER,
            operations: most.operations,
            principal: most.principal,
            epoch,
            expires_s: most.until_s,
            serial: world.random()? as u64,
            issuer: self.issuer.0,
        };
        let whole = Capability::issue(&self.key, grant)?;
        if most.below.is_empty() {
            return Ok(whole);
        }
        whole.attenuate(Caveat::Below(most.below.clone()))
    }

    /// Verifies a capability that is presented, and was issued here.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is forged, expired or revoked.
    pub fn verify(&self, now_s: u64, capability: &Capability, person: Arc<Person>) -> Result<Good> {
        let scope = capability.verify(&self.key, now_s)?;
        self.good(capability, (scope, false), person)
    }

    /// The same, of another member's, which has said that it is good and comes to this. Its time is
    /// said by this machine's clock.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if it is expired or revoked.
    pub fn verify_leased(
        &self,
        now_s: u64,
        (capability, scope): (&Capability, Scope),
        person: Arc<Person>,
    ) -> Result<Good> {
        if now_s >= scope.rights.expires_s {
            return Err(refuse("capability: expired"));
        }
        self.good(capability, (scope, true), person)
    }

    fn good(
        &self,
        capability: &Capability,
        (scope, leased): (Scope, bool),
        person: Arc<Person>,
    ) -> Result<Good> {
        let grant = &capability.grant;
        if grant.container != ROOT_CONTAINER {
            return Err(refuse("capability: not for here"));
        }
        let below = scope.below.filter(|below| !below.is_empty()).map(Arc::from);
        let (epoch, serial, principal) = (grant.epoch, grant.serial, grant.principal);
        let (rights, credential) = (scope.rights, scope.credential);
        let good = Good { rights, below, epoch, serial, principal, person, leased, credential };
        if rights.operations != Operations(0) && self.left(&good) == Operations(0) {
            return Err(refuse("capability: revoked"));
        }
        Ok(good)
    }

    /// A handle for what was verified.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the session has presented as much as one may.
    pub fn handle(&self, presented: &Presented) -> Result<u32> {
        if presented.all.len() >= PRESENTED_MAX {
            return Err(Error::new(ErrorKind::TooMany, "capabilities presented by one session"));
        }
        Ok(presented.all.last_key_value().map_or(1, |(newest, _)| newest + 1))
    }

    /// Whether the capability behind `handle` allows `request` now; gives who asks. Every request
    /// comes through here but two: presenting a capability, and closing a description, whose nonce
    /// is proof enough.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] for an unknown handle or one that has run out,
    /// [`ErrorKind::Denied`] if the capability does not allow it.
    pub fn check(
        &self,
        now_s: u64,
        presented: &Presented,
        handle: u32,
        request: &Request<'_>,
    ) -> Result<Allowed> {
        let Some(verified) = presented.all.get(&handle) else {
            return Err(refuse("capability: none was presented"));
        };
        if verified.ended || now_s >= verified.good.rights.expires_s {
            return Err(refuse("capability: expired"));
        }
        if verified.left == Operations(0) && verified.good.rights.operations != Operations(0) {
            return Err(refuse("capability: revoked"));
        }
        if verified.left.contain(request.needs()) {
            let Good { person, below, leased, .. } = &verified.good;
            let (person, below, leased) = (person.clone(), below.clone(), *leased);
            return Ok(Allowed { person, below, leased, contained: verified.good.contained() });
        }
        Err(Error::new(ErrorKind::Denied, "the capability presented does not allow this"))
    }

    /// Who made a change that was committed under `handle`, with this stamp, and needs these
    /// operations; `None` if it does not count. What was committed in time does, whenever it is
    /// applied. Nobody defers who is bound to a path, or asked by containers.
    pub fn covers(
        &self,
        presented: &Presented,
        (handle, stamp): (u32, u64),
        needs: Operations,
    ) -> Option<Arc<Person>> {
        let may_defer = |good: &Good| good.below.is_none() && good.contained().is_none();
        let lasting = |verified: &&Verified| !verified.ended && may_defer(&verified.good);
        let verified = presented.all.get(&handle).filter(lasting)?;
        let (revised, before) = verified.before;
        let left = if stamp < revised { before } else { verified.left };
        left.contain(needs).then(|| verified.good.person.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Authz, Good, Most, Presented};
    use crate::authority::conformance::Fixed;
    use terral_format::ErrorKind;
    use terral_format::wire::capability::{
        Capability, Caveat, Key, Operations, Principal, Revocation, Rights,
    };
    use terral_format::wire::message::{Request, Target};
    use terral_format::wire::person::Person;

    const NOW_S: u64 = 1_000_000;

    /// Time stands still.
    const STILL: Fixed = Fixed { wall_s: NOW_S };

    fn most() -> Most {
        let (principal, below) = (Principal::User(1), Vec::new());
        Most { principal, operations: Operations::ALL, below, until_s: NOW_S + 60 }
    }

    fn present(authz: &Authz, presented: &mut Presented, capability: &Capability) -> Option<u32> {
        let good = authz.verify(NOW_S, capability, Default::default()).ok()?;
        let handle = authz.handle(presented).ok()?;
        let left = authz.left(&good);
        presented.insert(handle, good, left);
        Some(handle)
    }

    #[test]
    fn a_forged_stale_or_narrow_capability_is_refused() {
        let (authz, other) = (Authz::new(Key([1; 32])), Authz::new(Key([2; 32])));
        let mut presented = Presented::default();
        let own = authz.issue(&STILL, &most()).expect("issues");
        let handle = present(&authz, &mut presented, &own).expect("is good");
        assert!(authz.check(NOW_S, &presented, handle, &Request::Unlink(b"x")).is_ok());
        assert!(authz.check(NOW_S, &presented, handle + 1, &Request::Unlink(b"x")).is_err());
        assert!(authz.check(NOW_S, &presented, 0, &Request::Status).is_err());

        let forged: Capability = other.issue(&STILL, &most()).expect("issues");
        assert!(present(&authz, &mut presented, &forged).is_none());
        let narrow = own.attenuate(Caveat::Only(Operations::READ)).expect("narrows");
        let handle = present(&authz, &mut presented, &narrow).expect("is good");
        assert!(authz.check(NOW_S, &presented, handle, &Request::Unlink(b"x")).is_err());
        assert!(authz.covers(&presented, (handle, 0), Operations::REMOVE).is_none());
        assert!(authz.covers(&presented, (handle, 0), Operations::READ).is_some());
        let expired = own.attenuate(Caveat::Until(1)).expect("narrows");
        assert!(present(&authz, &mut presented, &expired).is_none());
    }

    #[test]
    fn what_has_run_out_allows_no_request_and_covers_what_was_committed_before() {
        let (authz, mut presented) = (Authz::new(Key([1; 32])), Presented::default());
        let until = |expires_s| Good {
            rights: Rights { operations: Operations::ALL, expires_s },
            below: None,
            leased: false,
            epoch: 0,
            serial: 5,
            principal: Principal::User(7),
            person: Arc::new(Person { user: 7, ..Person::default() }),
            credential: None,
        };
        presented.insert(1, until(10), Operations::ALL);
        assert!(authz.check(NOW_S, &presented, 1, &Request::Unlink(b"x")).is_err());
        let who = authz.covers(&presented, (1, 0), Operations::REMOVE).expect("committed in time");
        assert_eq!(who.user, 7);
        assert_eq!((presented.find(&until(10)), presented.find(&until(11))), (Some(1), None));
        assert_eq!((presented.expires_s(), presented.is_over(10)), (Some(10), true));
        presented.end(10);
        assert!(authz.covers(&presented, (1, 0), Operations::REMOVE).is_none());
        assert_eq!(presented.expires_s(), None);
        presented.insert(2, until(20), Operations::ALL);
        assert!(!presented.is_over(19) && presented.is_over(20));
        presented.insert(3, until(15), Operations::READ);
        assert!(presented.is_over(15) && presented.newest() == Some((3, Operations::READ)));
        presented.insert(2, until(20), Operations::ALL);
        assert!(!presented.is_over(15) && presented.newest() == Some((2, Operations::ALL)));
        let mut again = Presented::default();
        presented.iter().for_each(|(at, good)| again.insert(at, good.clone(), Operations::ALL));
        assert_eq!((again.newest(), again.iter().count()), (presented.newest(), 4));
    }

    fn revoke(authz: &mut Authz, presented: &mut Presented, what: Revocation) -> bool {
        authz.revoke(authz.revocation(what).expect("few"));
        let before = presented.newest();
        presented.revise(|good| authz.left(good), 100);
        presented.newest() != before
    }

    #[test]
    fn what_was_revoked_allows_no_request_and_covers_what_was_committed_before() {
        let (mut authz, mut presented) = (Authz::new(Key([1; 32])), Presented::default());
        let own = authz.issue(&STILL, &most()).expect("issues");
        let child = own.attenuate(Caveat::Only(Operations::REMOVE)).expect("narrows");
        let handles = [&own, &child].map(|one| present(&authz, &mut presented, one).expect("good"));
        let (remove, look) = (Request::Unlink(b"x"), Request::Stat(Target::Path(b"x")));
        let may = |authz: &Authz, presented: &Presented, handle, request| {
            authz.check(NOW_S, presented, handle, request).map(drop).map_err(|error| error.kind)
        };

        let remove_no_more = Revocation::Operations(Operations::REMOVE);
        assert!(revoke(&mut authz, &mut presented, remove_no_more));
        assert_eq!(may(&authz, &presented, handles[0], &remove), Err(ErrorKind::Denied));
        assert_eq!(may(&authz, &presented, handles[0], &look), Ok(()));
        assert_eq!(may(&authz, &presented, handles[1], &remove), Err(ErrorKind::Unauthorized));
        let whatever = &Request::Space;
        assert_eq!(may(&authz, &presented, handles[1], whatever), Err(ErrorKind::Unauthorized));
        for handle in handles {
            let covers = |stamp| authz.covers(&presented, (handle, stamp), Operations::REMOVE);
            assert!(covers(99).is_some() && covers(100).is_none());
        }
        assert!(!revoke(&mut authz, &mut presented, Revocation::Serial(own.grant.serial + 1)));
        assert_eq!(may(&authz, &presented, handles[0], &look), Ok(()));
        // The newest allowed nothing else before.
        assert!(!revoke(&mut authz, &mut presented, Revocation::Principal(Principal::User(1))));
        assert_eq!(may(&authz, &presented, handles[0], &look), Err(ErrorKind::Unauthorized));
        assert!(present(&authz, &mut presented, &own).is_none(), "it was issued before");
        let fresh = authz.issue(&STILL, &most()).expect("issues");
        assert!(present(&authz, &mut presented, &fresh).is_some());
        let narrow = fresh.attenuate(Caveat::Below(b"a".to_vec())).expect("narrows");
        let narrow = present(&authz, &mut presented, &narrow).expect("is good");
        assert!(authz.covers(&presented, (narrow, 200), Operations::REMOVE).is_none());
        assert!(revoke(&mut authz, &mut presented, Revocation::Serial(fresh.grant.serial)));
        assert!(present(&authz, &mut presented, &fresh).is_none(), "and so for ever");
    }
}
