//! The namespace as records change it: what is replayed after a restart is what ran before.

use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::disk::membership::Membership;
use terral_format::disk::{NameOperation, Record};
use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Attributes, Change, Kind};

use crate::core::invariant::holds;
use crate::naming::names::{Names, Place, is_known};

impl Names {
    /// What clients may act upon without asking, and what another server would know nothing of:
    /// they do not see it before it is written. See [`Names::release`].
    pub fn hold(&mut self, record: &Record) {
        match record {
            Record::Fact(Fact::Adopted { attributes, .. }) => self.inodes.hold(attributes.ino),
            Record::Local(Local::Attached { ino, .. }) => self.inodes.hold(*ino),
            Record::Member(Membership::Elsewhere { ino, is: false }) => self.inodes.hold(*ino),
            _ => {}
        }
    }

    /// Keeps readers from names, and from inodes, which several records are about to change, until
    /// all is written: nobody sees a part of it.
    pub(super) fn hold_all<'n>(
        &mut self,
        names: impl Iterator<Item = Place<'n>>,
        inos: impl Iterator<Item = Ino>,
    ) {
        names.for_each(|place| self.inodes.hold_name(place));
        inos.for_each(|ino| self.inodes.hold(ino));
    }

    /// All is written.
    pub fn release(&mut self) {
        self.inodes.release();
    }

    /// Applies one fact; those that are not about names change nothing here. Gives the inode that
    /// lost its last name by it, if one did.
    pub fn apply(&mut self, fact: &Fact) -> Option<Ino> {
        let lost = self.apply_to_names(fact);
        let reachable = |ino| self.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
        holds("what lost its last name has none", || !lost.is_some_and(reachable));
        lost
    }

    fn apply_to_names(&mut self, fact: &Fact) -> Option<Ino> {
        match fact {
            Fact::Made { parent, name, ino, kind, mode, uid, gid, time_ns, target } => {
                let new = Attributes {
                    ino: *ino,
                    kind: *kind,
                    mode: *mode,
                    links: match kind {
                        Kind::Directory => 2,
                        _ => u32::from(!name.is_empty()),
                    },
                    uid: *uid,
                    gid: *gid,
                    size: 0,
                    accessed_ns: *time_ns,
                    modified_ns: *time_ns,
                    changed_ns: *time_ns,
                };
                let free = || name.is_empty() || self.child_here(*parent, name).is_none();
                holds("a name that is made was free", free);
                let preallocated = |inode: Inode| inode.is(flag::PREALLOCATED);
                holds("a number is given once", || self.inode(*ino).is_none_or(preallocated));
                self.made(*parent, name, &new, target);
                None
            }
            // The backing counts subdirectories itself.
            Fact::Adopted { parent, name, attributes, fingerprint, target } => {
                let mut inode = Inode::new(attributes);
                inode.published = Some(*fingerprint);
                inode.backed_bytes = attributes.size;
                if inode.is_directory() {
                    inode.flags |= flag::OVERLAY;
                }
                let new = || self.inode(attributes.ino).is_none();
                holds("what is adopted was not known", new);
                self.inodes.insert(inode, (*parent, name), target);
                None
            }
            Fact::Linked { ino, alias, parent, name, time_ns } => {
                self.linked(*ino, *alias, (*parent, name), *time_ns);
                None
            }
            Fact::Alias { ino, alias, parent, name } => {
                self.add_alias(*ino, *alias, (*parent, name));
                None
            }
            Fact::Renamed { parent, name, to_parent, to_name, time_ns } => {
                self.rename((*parent, name), (*to_parent, to_name), *time_ns)
            }
            Fact::Exchanged { parent, name, to_parent, to_name, time_ns } => {
                self.exchange((*parent, name), (*to_parent, to_name), *time_ns);
                None
            }
            Fact::Removed { parent, name, time_ns } => self.remove(*parent, name, *time_ns),
            Fact::Changed { ino, change, time_ns } => {
                self.change(*ino, change, *time_ns);
                None
            }
            other => {
                self.apply_to_inode(other);
                self.apply_to_owed(other);
                None
            }
        }
    }

    /// What the backing is owed, and what only a snapshot has.
    pub(super) fn apply_to_owed(&mut self, fact: &Fact) {
        match fact {
            Fact::NamesDrained(ordinal) => self.drained(*ordinal),
            Fact::Inode(image) => self.restore(image),
            Fact::Owed { lsn, operation } => {
                self.ordinal = self.ordinal.max(*lsn);
                self.owe_as(*lsn, operation.clone());
            }
            Fact::Hidden { lsn, parent, name } => {
                let owed = || self.owed.iter().any(|(at, _)| at == lsn);
                holds("a name is hidden until something is done", owed);
                self.hidden.hide((*parent, name), *lsn);
            }
            Fact::Ordinal(lsn) => self.ordinal = self.ordinal.max(*lsn),
            _ => {}
        }
    }

    /// What becomes of one inode's bytes.
    pub(super) fn apply_to_inode(&mut self, fact: &Fact) {
        match fact {
            Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns } => {
                self.update(*ino, |inode| {
                    inode.size = *size;
                    inode.modified_ns = *modified_ns;
                    inode.accessed_ns = *accessed_ns;
                    inode.changed_ns = *changed_ns;
                });
            }
            Fact::Rewritten { ino } => self.update(*ino, |inode| {
                inode.flags |= flag::REWRITTEN;
                inode.backed_bytes = 0;
            }),
            // What is there is not our own half of an update any more.
            Fact::Contested { ino } => self.update(*ino, |inode| {
                inode.flags = inode.flags & !flag::INTENT | flag::CONTESTED;
            }),
            Fact::Settled { ino, fingerprint } => self.update(*ino, |inode| {
                inode.published = Some(*fingerprint);
                inode.flags &= !flag::INTENT;
            }),
            Fact::BackedTo { ino, size } => {
                self.update(*ino, |inode| inode.backed_bytes = *size);
            }
            Fact::Touched { ino, fingerprint } => {
                self.update(*ino, |inode| inode.published = Some(*fingerprint));
            }
            Fact::Published { ino, fingerprint } => {
                self.publishing.remove(ino);
                self.replacements.retain(|_, replacement| replacement != ino);
                let Some(before) = self.inode(*ino) else { return };
                self.update(*ino, |inode| {
                    inode.published = Some(*fingerprint);
                    inode.flags &= !(flag::REWRITTEN | flag::INTENT | flag::CONTESTED);
                });
                if !before.published.is_some_and(|before| before.is_same_object(*fingerprint)) {
                    self.owe_aliases(*ino, before.published);
                }
            }
            _ => {}
        }
    }

    /// Applies what is so on this machine, as far as it is about inodes: where each is, and what
    /// the drain is about to do.
    pub fn apply_local(&mut self, local: &Local) {
        match local {
            Local::Preallocated { ino, slot } => self.preallocated(*ino, *slot),
            Local::Attached { ino, slot } => self.update(*ino, |inode| {
                inode.slot = Some(*slot);
                if inode.is(flag::PACKED) {
                    inode.flags &= !flag::PACKED;
                    inode.below = 0;
                }
            }),
            Local::Detached { ino } => self.update(*ino, |inode| inode.slot = None),
            Local::Packed { ino, place } => self.update(*ino, |inode| {
                inode.slot = None;
                inode.below = *place;
                inode.flags |= flag::PACKED;
            }),
            Local::Intent { ino } => self.update(*ino, |inode| inode.flags |= flag::INTENT),
            Local::Exchanging { lsn, object } => self.exchanging = Some((*lsn, *object)),
            Local::Publishing { ino, version } => {
                self.publishing.insert(*ino, version.clone());
            }
            Local::Counters { bound, .. } => self.bound = *bound,
            _ => {}
        }
    }

    pub(super) fn change(&mut self, ino: Ino, change: &Change, time_ns: u64) {
        self.update(ino, |inode| {
            inode.mode = change.mode.map_or(inode.mode, |mode| mode as u16);
            inode.uid = change.uid.unwrap_or(inode.uid);
            inode.gid = change.gid.unwrap_or(inode.gid);
            inode.accessed_ns = change.accessed_ns.unwrap_or(inode.accessed_ns);
            inode.modified_ns = change.modified_ns.unwrap_or(inode.modified_ns);
            inode.changed_ns = time_ns;
        });
        let Some(inode) = self.inode(ino) else { return };
        // Where it is while its names are delegated is said later.
        let path = self.path_there(ino).or_else(|| self.is_delegated(ino).then(Vec::new));
        if let (Some(path), true) = (path, is_known(&inode)) {
            self.owe(NameOperation::Change { path, ino, change: *change });
        }
    }
}
