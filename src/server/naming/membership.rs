//! What the tables have of things that were born elsewhere, or that another member has. A part of
//! the namespace: it runs from records only.

use std::collections::BTreeMap;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number, ROOT};
use terral_format::local::geometry::PATH_MAX;
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::moving::Moving;

use crate::core::left_out::{Step, does};
use crate::core::limits::limits;
use crate::members::role::Members;
use crate::naming::names::{Names, Place};

/// Marks of what is looked at without asking though it is marked as elsewhere.
const LOOKS: u16 = flag::SHOWN | flag::BORROWED;

impl Names {
    /// Applies what a member of a partition writes down.
    pub fn apply_member(&mut self, record: &Membership) {
        match record {
            Membership::Born { ino, number, kind, text } => self.born(*ino, *number, *kind, text),
            Membership::Forgotten { ino } => {
                self.update(*ino, |inode| inode.flags &= !(flag::ELSEWHERE | flag::FAR));
                self.forget(*ino);
            }
            Membership::Named { ino, parent, name } => self.named(*ino, (*parent, name)),
            Membership::Unnamed { parent, name } => self.unnamed((*parent, name)),
            Membership::Leaves { .. } | Membership::LetGo { .. } => self.leaves(record),
            Membership::Looks { attributes } => self.looks(attributes),
            Membership::Elsewhere { ino, is } => self.update(*ino, |inode| {
                let others = inode.flags & !(flag::ELSEWHERE | LOOKS);
                inode.flags = if *is { others | flag::ELSEWHERE } else { others };
            }),
            Membership::Overlaid { ino } => self.overlaid(*ino),
            Membership::There { ino, fingerprint } => {
                self.update(*ino, |inode| inode.published = *fingerprint);
            }
            Membership::Rests { by, moving: Some(moving) } => {
                self.resting.insert(*by, moving.clone());
            }
            Membership::Rests { by, moving: None } => drop(self.resting.remove(by)),
            Membership::Exchanges { by, back } => {
                let theirs = self.resting.get_mut(by).into_iter();
                theirs.for_each(|moving| moving.back = Some(Box::new(back.clone())));
            }
            Membership::Swapped { by, names } => self.swapped(*by, names.as_ref()),
            Membership::Transacts(record) => self.delegates(record),
            Membership::Later(operation) => self.later.push(operation.clone()),
            Membership::InStore { ino, fingerprint, rewritten } => {
                self.has_in_store(*ino, *fingerprint, *rewritten);
            }
            Membership::Moved { from, to } => {
                self.owed.iter_mut().for_each(|(_, operation)| operation.moved(from, to));
            }
            Membership::Joined { me, root, .. } => {
                self.inodes.belongs_to(*me);
                if root != me {
                    self.update(ROOT, |inode| inode.foreign = Some(Number::of(*root, ROOT)));
                }
                self.inodes.weigh(limits().borrowed);
                self.has_others = true;
            }
            Membership::Roster(_)
            | Membership::Protocol(_)
            | Membership::Moves(_)
            | Membership::Creates { .. }
            | Membership::Restored { .. }
            | Membership::Adrift { .. }
            | Membership::Lost { .. }
            | Membership::Gone { .. }
            | Membership::Asked { .. }
            | Membership::Borrows { .. }
            | Membership::Batch { .. }
            | Membership::Striped { .. }
            | Membership::Merged { .. }
            | Membership::Policies(_)
            | Membership::Placement(_)
            | Membership::Certificates(_)
            | Membership::Bound { .. }
            | Membership::Control(_)
            | Membership::Authorities(_)
            | Membership::Answers(_)
            | Membership::Returned { .. } => {}
        }
    }

    fn named(&mut self, ino: Ino, (parent, name): Place<'_>) {
        let Some(inode) = self.inode(ino) else { return };
        // Somebody has moved it out of a directory that is not here.
        if inode.is(flag::NAMED) {
            self.inodes.unname(index_of(ino));
        }
        self.inodes.name_it(index_of(ino), (parent, name), |_| ());
        // Who lets clients look there sees to it that it is so.
        self.may_look(parent, 0);
    }

    fn overlaid(&mut self, ino: Ino) {
        self.update(ino, |inode| inode.flags |= flag::OVERLAY);
    }

    fn born(&mut self, ino: Ino, number: Number, kind: Kind, text: &[u8]) {
        let far = if kind == Kind::File { flag::FAR } else { 0 };
        if self.inode(ino).is_some() {
            // A snapshot has it already.
            self.update(ino, |inode| {
                inode.flags |= far;
                inode.foreign = Some(number);
            });
            return;
        }
        let links = if kind == Kind::Directory { 2 } else { 1 };
        let (mode, uid, gid, size) = (0, self.own.0, self.own.1, 0);
        let (accessed_ns, modified_ns, changed_ns) = (0, 0, 0);
        let mut inode = Inode::new(&Attributes {
            ino,
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            accessed_ns,
            modified_ns,
            changed_ns,
        });
        inode.flags |= flag::ELSEWHERE | far;
        inode.foreign = does(Step::ShowNumbers).then_some(number);
        self.inodes.insert(inode, (ino, b""), text);
    }

    fn looks(&mut self, is: &Attributes) {
        self.update(is.ino, |inode| {
            inode.mode = is.mode as u16;
            (inode.uid, inode.gid) = (is.uid, is.gid);
            // Where it was born nobody may have heard that it has lost its name.
            let gone = inode.is(flag::FAR) && !inode.is(flag::NAMED) && inode.links == 0;
            inode.links = if gone { 0 } else { is.links };
            inode.accessed_ns = is.accessed_ns;
            (inode.modified_ns, inode.changed_ns) = (is.modified_ns, is.changed_ns);
            if !inode.kind.has_text() {
                inode.size = is.size;
            }
        });
    }

    /// Two names change places in what the backing is owed, and in the tables.
    fn swapped(&mut self, by: Member, names: Option<&[(Ino, Vec<u8>); 2]>) {
        if let Some(theirs) = self.resting.get_mut(&by)
            && let Some(back) = &mut theirs.back
        {
            back.is_known = !back.is_known;
            let owed = self.owed.iter_mut();
            owed.for_each(|(_, operation)| operation.exchanged(&theirs.from, &theirs.to));
        }
        let Some([one, other]) = names else { return };
        let found = [one, other].map(|(parent, name)| self.inodes.lookup(*parent, name));
        match found.map(|found| found.map(|found| index_of(found.ino))) {
            [Some(a), Some(b)] => self.inodes.exchange(a, b),
            [Some(a), None] => self.inodes.rename(a, (other.0, &other.1), None),
            [None, Some(b)] => self.inodes.rename(b, (one.0, &one.1), None),
            [None, None] => {}
        }
        // Who lets clients look there sees to it that it is so.
        [one, other].into_iter().for_each(|(parent, _)| self.may_look(*parent, 0));
    }

    /// Directories that other members move just now: nothing is brought meanwhile.
    pub fn resting(&self) -> &BTreeMap<Member, Moving> {
        &self.resting
    }

    /// How clients may look at what another member has, or may: [`flag::SHOWN`],
    /// [`flag::BORROWED`], or not. Only as long as this process lives.
    pub fn may_look(&mut self, ino: Ino, how: u16) {
        let is = |inode: Inode| how != inode.flags & LOOKS && inode.is(flag::ELSEWHERE);
        if self.inode(ino).is_some_and(is) {
            self.update(ino, |inode| inode.flags = inode.flags & !LOOKS | how);
        }
    }

    /// Clients look by themselves at nothing that is marked as elsewhere.
    pub fn may_look_nowhere(&mut self) {
        let marked = self.inodes().filter(|inode| inode.flags & LOOKS != 0);
        let marked: Vec<Ino> = marked.map(|inode| inode.ino).collect();
        marked.into_iter().for_each(|ino| self.may_look(ino, 0));
    }

    /// Whether clients look by themselves at what another member has lent.
    pub fn is_borrowed(&self, ino: Ino) -> bool {
        self.inode(ino).is_some_and(|inode| inode.is(flag::BORROWED))
    }

    /// Whether another member has it, or may.
    pub fn is_elsewhere(&self, ino: Ino) -> bool {
        self.inode(ino).is_some_and(|inode| inode.is(flag::ELSEWHERE))
    }

    /// The directory that something has its name in.
    pub fn above(&self, ino: Ino) -> Option<Ino> {
        let inode = self.inode(ino).filter(|inode| inode.is(flag::NAMED))?;
        Some(self.inodes.at(inode.parent).ino)
    }

    /// Whether a directory is, or is below, another one, by the names that are here.
    pub fn is_within(&self, directory: Ino, other: Ino) -> bool {
        std::iter::successors(Some(directory), |at| self.above(*at).filter(|_| *at != ROOT))
            .take(PATH_MAX)
            .any(|at| at == other)
    }

    /// How many bytes a directory's names are, with what they stand for.
    pub fn weight(&self, directory: Ino) -> u64 {
        self.inodes.weight(index_of(directory))
    }

    /// Directories with more names than are borrowed.
    pub fn large(&self) -> impl Iterator<Item = Ino> + '_ {
        self.inodes.large()
    }

    /// Whether it was born elsewhere, and has lost its last name here.
    pub fn is_gone_elsewhere(&self, ino: Ino) -> bool {
        let gone = |inode: Inode| inode.is(flag::FAR) && !inode.is(flag::NAMED) && inode.links == 0;
        self.inode(ino).is_some_and(gone)
    }

    /// In which directory something has its first name, and which that is.
    pub fn name_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        self.image(&self.inode(ino)?).name
    }

    /// For a snapshot: what was born elsewhere, and what other members have.
    pub fn stubs(&self, members: &Members) -> impl Iterator<Item = Membership> {
        let born = members.foreign().filter_map(|(ino, number)| {
            let (kind, text) = (self.inode(ino)?.kind, Vec::new());
            Some(Membership::Born { ino, number, kind, text })
        });
        let is = true;
        let elsewhere = self.inodes().filter(|inode| inode.is(flag::ELSEWHERE));
        let elsewhere = elsewhere.map(|inode| Membership::Elsewhere { ino: inode.ino, is });
        let rests = |(by, moving): (&Member, &Moving)| {
            let (by, back) = (*by, moving.back.clone());
            let rests = Membership::Rests { by, moving: Some(moving.clone()) };
            let exchanges = back.map(|back| Membership::Exchanges { by, back: *back });
            std::iter::once(rests).chain(exchanges)
        };
        let resting = self.resting.iter().flat_map(rests).chain(self.leaving_records());
        let resting = resting.chain(self.later.iter().cloned().map(Membership::Later));
        born.chain(elsewhere).chain(resting).collect::<Vec<_>>().into_iter()
    }
}
