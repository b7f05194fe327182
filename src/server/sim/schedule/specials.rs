//! Symbolic links and FIFOs: made, read and opened; they are moved and removed as files are.

use terral_format::wire::message::{Kind, OpenHow, Reply, Request};
use terral_store::backing::scripted::Body;

use super::super::model::{Node, Special};
use super::{READ, Schedule};

impl Schedule {
    /// One of these.
    pub(super) fn use_specials(&mut self, at: usize) {
        match self.chance(4) {
            0 => self.make_link(at),
            1 => self.make_fifo(at),
            2 => self.read_link(at),
            _ => self.open_special(at),
        }
    }

    fn make_link(&mut self, at: usize) {
        let (path, target) = (self.any_path(), self.any_path());
        let asked = Request::MakeLink { path: &path, target: &target };
        let made = Special::Link(target.clone());
        self.check(at, asked, |model| model.make_special(&path, made));
    }

    fn make_fifo(&mut self, at: usize) {
        let path = self.any_path();
        let asked = Request::MakeNode { path: &path, kind: Kind::Fifo, mode: 0o644, address: b"" };
        self.check(at, asked, |model| model.make_special(&path, Special::Fifo));
    }

    fn read_link(&mut self, at: usize) {
        let path = self.any_path();
        let got = self.sim.ask(self.players[at].client, Request::ReadLink(&path));
        match (got, self.model.special(&path)) {
            (Ok(Reply::LinkTarget(says)), Some(Special::Link(target))) => {
                assert_eq!(says, *target, "{path:?}");
            }
            (Err(_), None | Some(Special::Fifo)) => {}
            (Err(error), _) if self.excuses(&error) => {}
            (got, must) => panic!("{path:?}: {got:?}, {must:?}"),
        }
    }

    /// Who opens a link is told that it is one; who opens a FIFO, where its object is.
    fn open_special(&mut self, at: usize) {
        let path = self.any_path();
        let Some(special) = self.model.special(&path).cloned() else { return };
        let how = OpenHow { access: READ, ..OpenHow::default() };
        let got = self.sim.ask(self.players[at].client, Request::Open { path: &path, how });
        match (got, special) {
            (Ok(Reply::Node(_)), Special::Fifo) => {}
            (Err(error), _) if self.excuses(&error) => {}
            (Err(error), Special::Link(_)) => {
                assert_eq!(error.kind, terral_format::ErrorKind::Link, "{path:?}");
            }
            (got, must) => panic!("{path:?}: {got:?}, {must:?}"),
        }
    }

    /// The permanent store has them all, and no others.
    pub(super) fn compare_specials(&self) {
        let there = self.sim.dir.specials().into_iter().filter_map(|(path, body)| match body {
            Body::Symlink(target) => Some((path, Special::Link(target))),
            Body::Fifo => Some((path, Special::Fifo)),
            Body::File(_) | Body::Directory => None,
        });
        let model = self.model.0.iter();
        let must = model.filter_map(|(path, node)| match node {
            Node::Special(special) => Some((path.clone(), special.clone())),
            Node::File(_) | Node::Directory(_) => None,
        });
        assert_eq!(there.collect::<Vec<_>>(), must.collect::<Vec<_>>());
    }
}
