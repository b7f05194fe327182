//! Everything a server knows, behind one lock, and the one way it changes: records.
//!
//! A request's records are applied as they arise and written to the log together with its answer,
//! in one transaction. What must not happen before the log says so waits for that: giving a removed
//! file's chunks to another (in `orphans`), and that clients build upon it without asking
//! ([`Names::hold`], and the gate).

use std::sync::Arc;
use std::time::Duration;

use terral_format::Result;
use terral_format::disk::Record;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::{Began, Held, Local};
use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino, SessionSlot};
use terral_format::local::tables::access;
use terral_format::wire::capability::{Principal, Revoked};
use terral_format::wire::message::{Attributes, Name};
use terral_store::backing::Backing;
use terral_store::log::Journal;
use terral_store::ram::Ram;
use terral_store::small::Small;

use crate::authority::authn::Authn;
use crate::authority::authz::{Authz, Good};
use crate::authority::quotas::Quotas;
use crate::core::machine::Machine;
use crate::core::paths::shown;
use crate::core::workers::Sleepers;
use crate::core::world::{Tick, World};
use crate::debts::ledger::Debts;
use crate::debts::policy::Policy;
use crate::deferred::waiting::Waiting;
use crate::far::role::Far;
use crate::locks::fences::Fences;
use crate::locks::{Locks, releasing};
use crate::members::placement;
use crate::members::role::Members;
use crate::naming::names::Names;
use crate::naming::starting::Starting;
use crate::naming::stat_ahead::StatAhead;
use crate::naming::xattrs::Xattrs;
use crate::naming::{charging, orphans, xattr_requests};
use crate::needs::fetching::Fetches;
use crate::sessions::clients::Sessions;
use crate::sessions::descriptions::{Descriptions, Open};
use crate::sessions::hands::Hands;
use crate::storage::Storage;
use crate::storage::lingering::Lingering;
use crate::storage::spill::under_way::Spilling;
use crate::storage::updates::Updates;

/// The log is rewritten when it has grown by half since the last time, and by this much more.
const LOG_GROWTH_BYTES: u64 = 4 << 20;

/// Most warnings that are kept.
const WARNINGS_MAX: usize = 16;

/// Everything a server knows.
pub struct State {
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// The machine that it serves.
    pub machine: Arc<dyn Machine>,
    /// What it is, for ever.
    pub began: Began,
    /// The log.
    pub log: Box<dyn Journal>,
    /// The namespace.
    pub names: Names,
    /// Where the bytes of files are.
    pub storage: Storage,
    /// Closed files that keep their memory for a moment.
    pub lingering: Lingering,
    /// Deferred changes that are tried again.
    pub waiting: Waiting,
    /// The log could not be written with what was deferred; that is tried again.
    pub unapplied: bool,
    /// What sessions have in hand.
    pub hands: Hands,
    /// The clients.
    pub sessions: Sessions,
    /// The open files.
    pub descriptions: Descriptions,
    /// Who waits for locks, which are in shared memory.
    pub locks: Locks,
    /// What named locks have given, and what they protect.
    pub fences: Fences,
    /// Update ids of files that somebody has asked for.
    pub updates: Updates,
    /// The extended attributes.
    pub xattrs: Xattrs,
    /// The issuer.
    pub authz: Authz,
    /// What files take up in containers that have quotas.
    pub quotas: Quotas,
    /// By what others than local users prove who they are.
    pub authn: Authn,
    /// The permanent store.
    pub backing: Option<Arc<dyn Backing>>,
    /// What it is owed.
    pub debts: Debts,
    /// Starts of this instance so far, this one included.
    pub starts: u64,
    /// When this process began to serve.
    pub since: Tick,
    /// No more work will come.
    pub finishing: bool,
    /// A member of a partition is to leave that in order, before it ends.
    pub departs: bool,
    /// Why this server is no member, as the control says.
    pub refused: Option<String>,
    /// Leave as soon as possible.
    pub leaving: bool,
    /// The launcher lives, and says when to leave.
    pub attended: bool,
    /// It had a launcher, who is gone.
    pub orphaned: bool,
    /// See [`Status::warnings`].
    pub warnings: Vec<String>,
    /// A directory's merged listing, while a client pages through it.
    pub listing: Option<(Ino, Vec<Name>)>,
    /// Somebody opened a file for writing since this process began to serve.
    pub wrote: bool,
    /// Who sleeps of those who work in the background.
    pub sleepers: Sleepers,
    /// All bytes of these files are just being brought into memory, and stay there meanwhile.
    pub keeping: Vec<Ino>,
    /// The request that is carried out, if it is one of a session.
    pub asker: Option<Asker>,
    /// What requests need of the backing.
    pub fetches: Fetches,
    /// Programs that are about to be executed.
    pub starting: Starting,
    /// Whose attributes are asked for ahead.
    pub stat_ahead: StatAhead,
    /// What goes to the spill.
    pub spilling: Spilling,
    /// This server as a member of a partition, if it is one.
    pub members: Option<Box<Members>>,
    /// What it asks other members about files whose bytes they have.
    pub far: Far,
    /// When too little was found to evict, and how long that took.
    pub sought: Option<(Tick, Duration)>,
    /// What is taken now drives nothing out of memory.
    pub ahead: bool,
    pending: Vec<Record>,
    orphans: Vec<Ino>,
    log_base: u64,
    nonce: u64,
}

/// What a [`State`] is made of.
pub struct Parts {
    /// See [`State::world`].
    pub world: Arc<dyn World>,
    /// See [`State::machine`].
    pub machine: Arc<dyn Machine>,
    /// See [`State::began`].
    pub began: Began,
    /// See [`State::log`].
    pub log: Box<dyn Journal>,
    /// The memory tier.
    pub ram: Ram,
    /// The bytes of packed files.
    pub small: Small,
    /// See [`State::backing`].
    pub backing: Option<Arc<dyn Backing>>,
    /// When it is brought what.
    pub policy: Box<dyn Policy>,
    /// Attributes of the root.
    pub root: Attributes,
    /// Seed of the nonces.
    pub seed: u64,
}

impl State {
    /// A state in which nothing has happened yet.
    pub fn new(parts: Parts) -> Self {
        let storage =
            Storage::new(parts.ram, parts.small, parts.world.clone(), parts.machine.clone());
        let far = parts.backing.as_ref().is_some_and(|backing| backing.is_far());
        let locks = Locks::new(storage.memory().clone());
        State {
            names: Names::new(
                storage.memory().clone(),
                &parts.root,
                parts.backing.is_some(),
                (parts.machine.user(), parts.machine.group()),
            ),
            descriptions: Descriptions::new(parts.began.geometry.descriptions),
            authz: Authz::new(parts.began.key.clone()),
            quotas: Quotas::default(),
            authn: Authn::default(),
            log_base: parts.log.bytes(),
            since: parts.world.now(),
            world: parts.world,
            machine: parts.machine,
            began: parts.began,
            log: parts.log,
            storage,
            lingering: Lingering::default(),
            waiting: Waiting::default(),
            unapplied: false,
            hands: Hands::default(),
            sessions: Sessions::default(),
            locks,
            fences: Fences::default(),
            updates: Updates::default(),
            asker: None,
            xattrs: Xattrs::default(),
            backing: parts.backing,
            debts: Debts::new(parts.policy),
            starts: 1,
            finishing: false,
            departs: false,
            refused: None,
            leaving: false,
            attended: false,
            orphaned: false,
            warnings: Vec::new(),
            listing: None,
            wrote: false,
            sleepers: Sleepers::default(),
            keeping: Vec::new(),
            fetches: Fetches::new(far),
            starting: Starting::default(),
            stat_ahead: StatAhead::default(),
            spilling: Spilling::default(),
            members: None,
            far: Far::default(),
            sought: None,
            ahead: false,
            pending: Vec::new(),
            orphans: Vec::new(),
            nonce: parts.seed,
        }
    }

    /// Applies a record now; [`State::commit`] writes it.
    pub fn record(&mut self, record: impl Into<Record>) {
        let record = record.into();
        self.names.hold(&record);
        self.apply(&record);
        self.pending.push(record);
    }

    /// What is so already is written with the next commit.
    pub fn note(&mut self, record: impl Into<Record>) {
        self.pending.push(record.into());
    }

    /// Writes the pending records as one transaction; then what had to wait for it happens.
    pub fn commit(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.log.append(&self.pending)?;
            self.pending.clear();
            self.names.release();
            if self.log.bytes() > self.log_base + self.log_base / 2 + LOG_GROWTH_BYTES {
                self.rewrite_log();
            }
        }
        self.storage.logged();
        for (ino, what) in self.storage.spoiled() {
            let path = self.names.path(ino).unwrap_or_default();
            self.warn(format!("{}: a program wrote over {what}", shown(&path)));
            self.say_counts_spoiled();
        }
        for ino in std::mem::take(&mut self.orphans) {
            orphans::remove(self, ino);
        }
        Ok(())
    }

    /// Whether each of several users has a server of his own, this one among them.
    pub fn is_among_users(&self) -> bool {
        self.members.is_some() && self.owner().is_some()
    }

    /// Whose alone this server touches in the permanent store, if it does so.
    pub fn owner(&self) -> Option<u32> {
        self.backing.as_ref().and_then(|store| store.owner())
    }

    /// Whether the log has all that was done.
    pub fn is_logged(&self) -> bool {
        self.pending.is_empty()
    }

    /// Replaces the log by what it comes to.
    pub fn rewrite_log(&mut self) {
        let State {
            log,
            began,
            names,
            sessions,
            descriptions,
            hands,
            xattrs,
            members,
            far,
            authz,
            quotas,
            fences,
            updates,
            ..
        } = self;
        let first = std::iter::once(Local::Began(began.clone()));
        let totals = sessions.totals_of_ended();
        let last = std::iter::once(Local::Counters { bound: names.bound(), totals });
        let here = authz
            .snapshot()
            .chain(sessions.snapshot())
            .chain(descriptions.snapshot())
            .chain(hands.snapshot())
            .chain(fences.snapshot())
            .chain(updates.snapshot());
        let snapshot = first.map(Record::from).chain(names.snapshot());
        let snapshot = snapshot.chain(xattrs.snapshot().map(Record::from));
        let here = here.chain(charging::snapshot(names, quotas));
        let snapshot = snapshot.chain(here.chain(last).map(Record::from));
        let member =
            members.iter().flat_map(|members| members.snapshot().chain(names.stubs(members)));
        let snapshot = snapshot.chain(member.map(Record::from));
        let snapshot = snapshot.chain(far.snapshot().map(Record::from));
        // A log that cannot be made shorter now is as good as before.
        let _ = log.rewrite(&mut { snapshot });
        self.log_base = self.log.bytes();
    }

    /// Applies a record, new or replayed.
    pub fn apply(&mut self, record: &Record) {
        let before = charging::before(self, record);
        self.apply_to_roles(record);
        charging::after(self, record, before);
    }

    fn apply_to_roles(&mut self, record: &Record) {
        self.hands.used_by(record);
        let fact = match record {
            Record::Fact(fact) => fact,
            Record::Local(local) => {
                self.fences.apply(local);
                self.updates.apply(local);
                return self.apply_local(local);
            }
            Record::Member(member) => return self.apply_member(member),
        };
        match fact {
            Fact::Xattr { ino, .. } => {
                self.updates.has_changed(*ino);
                xattr_requests::apply_xattr(self, fact);
            }
            Fact::XattrFound { .. } => xattr_requests::apply_xattr(self, fact),
            Fact::Published { ino, fingerprint } => {
                let before = self.names.inode(*ino).and_then(|inode| inode.published);
                self.names.apply(fact);
                if !before.is_some_and(|before| before.is_same_object(*fingerprint)) {
                    xattr_requests::owe_xattrs(self, *ino);
                }
            }
            _ => {
                if let Some(ino) = self.names.apply(fact) {
                    self.orphans.push(ino);
                }
            }
        }
    }

    fn apply_local(&mut self, local: &Local) {
        match local {
            Local::SessionBegan { session, pid, started_ticks } => {
                self.sessions.began(*session, *pid, *started_ticks);
            }
            Local::SessionEnded { session, totals } => {
                let process = self.sessions.process(*session);
                self.storage.left_segment(self.sessions.near(*session));
                self.sessions.ended(*session, totals);
                // What it had in hand is free.
                let (descriptions, inos) = self.hands.ended(*session);
                descriptions.into_iter().for_each(|slot| self.descriptions.unreserve(slot));
                inos.into_iter().for_each(|ino| self.names.give_back(ino));
                releasing::unlock_ended(self, *session, process);
            }
            Local::Answered { session, request, sequence, reply } => {
                self.sessions.answered(*session, *request, *sequence, reply);
            }
            Local::Opened { description, nonce, ino, access, session } => {
                let (nonce, ino, session) = (*nonce, *ino, *session);
                let open = Open { nonce, ino, access: *access, session };
                self.descriptions.opened(*description, open);
                self.count_open(ino, *access, 1);
            }
            Local::Presented { session, handle, rights, epoch, person } => {
                let (rights, epoch, person) = (*rights, *epoch, person.clone());
                let (below, serial, principal) = (None, 0, Principal::User(self.machine.user()));
                let held = Held { rights, below, epoch, serial, principal, person };
                self.apply_held((*session, *handle), Good::from(&held));
            }
            Local::Held { session, handle, held } => {
                self.apply_held((*session, *handle), Good::from(held));
            }
            Local::HeldLeased { session, handle, held } => {
                let good = Good { leased: true, ..Good::from(held) };
                self.apply_held((*session, *handle), good);
            }
            Local::HeldUnder { session, handle, held, credential, leased } => {
                self.apply_held((*session, *handle), Good::under(held, *credential, *leased));
            }
            Local::LoggedIn(_) | Local::Container(_) | Local::Quota(..) => self.authz.apply(local),
            Local::Groups(_) => self.authz.apply(local),
            Local::LoggedOut(id) => {
                self.authz.credentials.end(*id);
                self.revise_sessions();
            }
            Local::Revoked { what, epoch } => {
                self.authz.revoke(Revoked { what: *what, epoch: *epoch });
                self.revise_sessions();
            }
            Local::Lent { session, descriptions, inos } => {
                self.hands.lent(*session, descriptions, inos);
                descriptions.iter().for_each(|(slot, _)| self.descriptions.lent(*slot));
                inos.iter().for_each(|ino| self.names.lent(*ino));
            }
            Local::Defers { session } => self.sessions.defers(*session),
            Local::Closed { description } => {
                if let Some(open) = self.descriptions.closed(*description) {
                    self.count_open(open.ino, open.access, -1);
                    self.orphans.push(open.ino);
                    releasing::unlock_closed(self, *description, &open);
                }
            }
            Local::Counters { totals, .. } => {
                self.sessions.restore_totals(totals);
                self.names.apply_local(local);
            }
            _ => self.names.apply_local(local),
        }
    }

    /// What sessions have presented allows what is left of it; changes before count as they did.
    fn revise_sessions(&mut self) {
        let stamp = self.storage.memory().deferred().next_stamp();
        self.sessions.revise(|good| self.authz.left(good), stamp);
    }

    fn apply_held(&mut self, (session, handle): (SessionSlot, u32), good: Good) {
        let left = self.authz.left(&good);
        self.sessions.presented(session, handle, (good, left));
    }

    /// Whether something that other members want waits for the permanent store, or it is not known
    /// here, or where files were born, what has become of names.
    pub fn waits_between(&self) -> bool {
        let members = self.members.as_ref();
        let waits = members.is_some_and(|members| members.has_kept() || members.has_postponed());
        let waits = waits || members.is_some_and(|it| it.delegated().next().is_some());
        let waits = waits || members.is_some_and(|it| it.is_restoring());
        waits || self.names.is_any_leaving() || members.is_some_and(|members| members.has_gone())
    }

    fn apply_member(&mut self, member: &Membership) {
        if let Membership::Joined { me, server, root, partition } = member {
            self.members = Some(Box::new(Members::joined((*me, *server), *root, *partition)));
            self.authz.joined(*server, me == root);
        }
        if let Membership::Placement(of) = member {
            let members = self.members.as_ref();
            let usual = members.is_none_or(|it| placement::is_usual(of, it.me()));
            self.sessions.ask_where(!usual);
        }
        self.names.apply_member(member);
        self.members.iter_mut().for_each(|members| members.apply(member));
        self.far.apply(member);
    }

    fn count_open(&mut self, ino: Ino, how: u8, change: i32) {
        let writes = u64::from(how) & access::WRITE != 0;
        self.names.count_open(ino, writes, change);
        if writes && change > 0 {
            self.wrote = true;
            self.names.is_counted(ino);
        }
    }

    /// After a replay: nameless inodes that nobody has open.
    pub fn orphans_left(&mut self) -> Vec<Ino> {
        self.orphans.clear();
        let orphans = self.names.inodes().filter(|inode| self.is_orphan(inode));
        orphans.map(|inode| inode.ino).collect()
    }

    /// Looks at one once more that somebody was just opening.
    pub(crate) fn look_again_at(&mut self, ino: Ino) {
        self.orphans.push(ino);
    }

    /// A number no descriptor has carried lately: 31 bits, not 0.
    pub fn new_nonce(&mut self) -> u32 {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
        self.nonce = self.nonce.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.nonce;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) as u32 >> 1).max(1)
    }

    /// As [`State::attributes`], with a size that is possible, which the file has from now on.
    pub(crate) fn sound_attributes(&mut self, ino: Ino) -> Option<Attributes> {
        let inode = self.names.inode(ino)?;
        // Of what nobody can reach any more the pages are gone, and the size is not.
        if let Some(slot) = inode.slot.filter(|_| !self.is_orphan(&inode)) {
            self.storage.mend_size(slot);
        }
        self.attributes(ino)
    }

    /// Who writes over one thing may have written over his counters, too, of which only what cannot
    /// be is known to be wrong, and left out.
    pub(crate) fn say_counts_spoiled(&mut self) {
        self.warn(
            "calls, bytes and times are not to be trusted: a program wrote over memory that it \
             shares with the server"
                .into(),
        );
    }

    /// Something that somebody should know; said once.
    pub fn warn(&mut self, what: String) {
        if !self.warnings.contains(&what) && self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(what);
        }
    }
}
