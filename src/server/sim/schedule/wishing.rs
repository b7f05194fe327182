//! What clients do without waiting where they can, and ask for where they cannot: names that are
//! made, moved and removed, opens, closes, and bits that change.

use terral_format::wire::message::{Change, OpenHow, RenameHow, Request, Target};

use super::super::client::Opened;
use super::super::deferring::{Progress, Wish};
use super::super::model::{File, Node};
use super::{BOTH, Doing, Handle, READ, Schedule};

impl Schedule {
    pub(super) fn wish(&mut self, at: usize, wish: Wish, file: Option<File>) {
        if !self.is_clear(&wish) {
            return;
        }
        // The rights of others are checked by clients, too, which these do not do.
        if self.weather.defers && self.players[at].user == 0 {
            let client = self.players[at].client;
            if self.chance(8) == 0
                && let Err(error) = self.sim.fetch(client)
            {
                assert!(self.excuses(&error), "{error:?}");
            }
            if self.chance(8) != 0
                && let Some(begun) = self.sim.begin(client, wish.clone())
            {
                return self.go_on(at, Doing(begun, file));
            }
        }
        self.ask_for(at, &wish, file);
    }

    pub(super) fn resume(&mut self, at: usize) {
        let count = self.players[at].stopped.len() as u64;
        if count > 0 {
            let which = self.chance(count) as usize;
            let doing = self.players[at].stopped.swap_remove(which);
            self.go_on(at, doing);
        }
    }

    pub(super) fn go_on(&mut self, at: usize, mut doing: Doing) {
        loop {
            match self.sim.go_on(&mut doing.0) {
                // What it found is what it opens, whatever becomes of the name.
                Progress::Going => {
                    if let (Some(_), Wish::Open(path, _)) = (doing.0.opened, &doing.0.wish)
                        && doing.1.is_none()
                    {
                        doing.1 = self.model.file(path);
                    }
                }
                Progress::Refused => return self.ask_for(at, &doing.0.wish, doing.1),
                Progress::Over => return self.returned(at, doing),
                Progress::Happened => self.happened(at, &mut doing),
            }
            match self.chance(40) {
                0 | 1 => return self.players[at].stopped.push(doing),
                2 if self.weather.kills => return self.replace(at),
                3 => {
                    self.tell(|| "heard".into());
                    self.sim.hear();
                }
                _ => {}
            }
        }
    }

    /// A client has committed this.
    pub(super) fn happened(&mut self, at: usize, doing: &mut Doing) {
        let (model, Doing(begun, about)) = (&mut self.model, doing);
        let mut closed = None;
        let may = match &begun.wish {
            Wish::Create(path) => {
                let free = !model.0.contains_key(path);
                *about = model.open(path, 0);
                free && about.is_some()
            }
            Wish::MakeDirectory(path) => model.make_directory(path, 0),
            Wish::Unlink(path) => model.unlink(path),
            Wish::RemoveDirectory(path) => model.remove_directory(path),
            Wish::Rename(from, to) => model.rename(from, to),
            Wish::Open(..) => about.is_some(),
            Wish::Close(open) => {
                closed = Some((open.description, open.nonce));
                true
            }
            Wish::SetMode(_, mode) => {
                about.iter().for_each(|file| file.borrow_mut().mode = *mode);
                true
            }
        };
        assert!(may, "{:?} was committed", begun.wish);
        closed.into_iter().for_each(|(at, nonce)| self.unlock_closed(at, nonce));
        let (wish, opened) = (&begun.wish, begun.opened);
        self.tell(|| format!("{at}: {wish:?} is committed: {opened:?}"));
    }

    /// A call has come to its end.
    pub(super) fn returned(&mut self, at: usize, Doing(begun, file): Doing) {
        let writes = !matches!(begun.wish, Wish::Open(_, how) if how == READ);
        if let (Some(opened), Some(file)) = (begun.opened, file) {
            self.players[at].open.push(Handle { opened, file, writes });
        }
    }

    pub(super) fn opened(&mut self, at: usize, path: &[u8], opened: Opened, writes: bool) {
        let user = self.players[at].user;
        let file = self.model.open(path, user).expect("it was opened");
        self.players[at].open.push(Handle { opened, file, writes });
    }

    pub(super) fn ask_for(&mut self, at: usize, wish: &Wish, about: Option<File>) {
        match wish {
            Wish::Create(path) => self.ask_open(at, path, BOTH, true),
            Wish::Open(path, how) => self.ask_open(at, path, *how, false),
            Wish::MakeDirectory(path) => {
                let made = Request::MakeDirectory { path, mode: 0o755 };
                let user = self.players[at].user;
                self.check(at, made, |model| model.make_directory(path, user));
            }
            Wish::Unlink(path) => {
                self.check(at, Request::Unlink(path), |model| model.unlink(path));
            }
            Wish::RemoveDirectory(path) => {
                let gone = Request::RemoveDirectory(path);
                self.check(at, gone, |model| model.remove_directory(path));
            }
            Wish::Rename(from, to) => {
                let moved = Request::Rename { from, to, how: RenameHow::Replace };
                self.check(at, moved, |model| model.rename(from, to));
            }
            Wish::Close(open) => {
                let closed = self.sim.close(self.players[at].client, *open);
                assert!(closed.as_ref().is_err_and(|e| self.excuses(e)) || closed.is_ok());
                self.unlock_closed(open.description, open.nonce);
            }
            Wish::SetMode(file, mode) => {
                let change = Change { mode: Some(*mode), ..Change::default() };
                let target = Target::File(*file);
                let open = |handle: &Handle| handle.opened.file == *file;
                if !self.players[at].open.iter().any(open) {
                    // Closed meanwhile, by another thread.
                    return;
                }
                let own = about.as_ref().is_none_or(|file| self.owns(at, file));
                if self.check(at, Request::Change { target, change }, |_| own) {
                    about.iter().for_each(|file| file.borrow_mut().mode = *mode);
                }
            }
        }
    }

    pub(super) fn ask_open(&mut self, at: usize, path: &[u8], access: u8, create: bool) {
        let how = OpenHow { access, create, mode: 0o644, ..OpenHow::default() };
        let must = match self.model.0.get(path) {
            Some(Node::File(file)) => self.may_open(at, file, access),
            Some(Node::Directory(_)) => access == READ && !create,
            // A link is followed by who asks, and FIFOs are opened elsewhere.
            Some(Node::Special(_)) => return,
            None => create && self.model.has_parent(path) && self.may_change_in(at, path),
        };
        let unseen = self.sim.faults.unseen();
        let got = self.sim.open(self.players[at].client, path, how);
        self.over |= got.is_ok() && self.sim.faults.unseen() != unseen;
        self.tell(|| format!("{at}: {how:?} {path:?}: {got:?}"));
        match got {
            Ok(opened) if matches!(self.model.0.get(path), Some(Node::Directory(_))) && must => {
                self.wish(at, Wish::Close(opened), None);
            }
            Ok(opened) if must => {
                let size = |file: &File| file.borrow().size;
                let seen = self.sim.glance(path).and_then(Result::ok);
                if let Some(Node::File(file)) = self.model.0.get(path)
                    && seen.is_some_and(|seen| seen.size == 0 && size(file) > 0)
                {
                    self.contest(path);
                }
                self.opened(at, path, opened, access == BOTH);
            }
            Err(error) if !must || self.excuses(&error) => {}
            got => panic!("{path:?}: {got:?}, {must}"),
        }
    }
}
