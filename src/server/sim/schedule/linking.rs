//! Further names of files, names that change places, and files that are made without one.

use terral_format::wire::message::{OpenHow, RenameHow, Request, Target};

use super::super::client::Opened;
use super::super::model::{File, Node};
use super::{BOTH, Handle, OPEN_MAX, Schedule};

impl Schedule {
    /// One of these.
    pub(super) fn relate(&mut self, at: usize) {
        match self.chance(8) {
            0..=2 => self.link(at),
            3 => self.link_open(at),
            4 | 5 => self.exchange(at),
            6 => self.rename_if_free(at),
            _ => self.make_unnamed(at),
        }
    }

    fn link(&mut self, at: usize) {
        let (from, to) = (self.file_path(), self.file_path());
        if self.model.special(&from).is_some() {
            // They could have several names as well; the model does not know of that.
            return;
        }
        let file = self.model.file(&from);
        let asked = Request::Link { target: Target::Path(&from), path: &to };
        self.check(at, asked, |model| file.is_some_and(|file| model.link(&file, &to)));
    }

    /// Of a file that is open, which may have no name.
    fn link_open(&mut self, at: usize) {
        let Some((client, opened, file, _)) = self.handle(at) else { return };
        let to = self.file_path();
        let opened = match self.sim.rouse(client, opened) {
            Ok(opened) => opened,
            Err(error) => return assert!(self.excuses(&error), "{error:?}"),
        };
        let asked = Request::Link { target: Target::File(opened), path: &to };
        self.check(at, asked, |model| model.link(&file, &to));
    }

    fn exchange(&mut self, at: usize) {
        let (from, to) = (self.any_path(), self.any_path());
        let asked = Request::Rename { from: &from, to: &to, how: RenameHow::Exchange };
        self.check(at, asked, |model| model.exchange(&from, &to));
    }

    fn rename_if_free(&mut self, at: usize) {
        let (from, to) = (self.any_path(), self.any_path());
        let asked = Request::Rename { from: &from, to: &to, how: RenameHow::Keep };
        self.check(at, asked, |model| !model.0.contains_key(&to) && model.rename(&from, &to));
    }

    fn make_unnamed(&mut self, at: usize) {
        if self.players[at].open.len() >= OPEN_MAX {
            return;
        }
        let directory = [&b""[..], b"d", b"d/e", b"a"][self.chance(4) as usize];
        let must =
            directory.is_empty() || matches!(self.model.0.get(directory), Some(Node::Directory(_)));
        let how = OpenHow { access: BOTH, unnamed: true, mode: 0o644, ..OpenHow::default() };
        let got = self.sim.open(self.players[at].client, directory, how);
        self.tell(|| format!("{at}: unnamed in {directory:?}: {got:?}"));
        match got {
            Ok(opened) if must => self.has_open(at, opened, File::default()),
            Err(error) if !must || self.excuses(&error) => {}
            got => panic!("{directory:?}: {got:?}, {must}"),
        }
    }

    fn has_open(&mut self, at: usize, opened: Opened, file: File) {
        self.players[at].open.push(Handle { opened, file, writes: true });
    }
}
