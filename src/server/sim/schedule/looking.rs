//! What clients see of names: listings, and what `stat` says.

use terral_format::Error;
use terral_format::wire::message::{Kind, Reply, Request, Target};

use super::super::model::{Node, Special};
use super::Schedule;

impl Schedule {
    pub(super) fn list(&mut self, at: usize) {
        let directory = [&b""[..], b"d", b"d/e"][self.chance(3) as usize];
        let is =
            directory.is_empty() || matches!(self.model.0.get(directory), Some(Node::Directory(_)));
        // What is kept beside a file of ours is no name that the model knows.
        let kept = self.weather.others || self.weather.clocks;
        let is_beside = |name: &[u8]| kept && name.windows(8).any(|part| part == b".theirs-");
        if let Some(names) = self.sim.names(directory) {
            self.tell(|| format!("{directory:?}: {names:?}"));
            assert!(is, "{directory:?}");
            return assert_eq!(names, self.model.names(directory));
        }
        let asked = Request::List { path: directory, after: b"" };
        match self.sim.ask(self.players[at].client, asked) {
            Ok(Reply::Names { names, .. }) if is => {
                let names = names.into_iter().map(|name| name.name);
                let names: Vec<Vec<u8>> = names.filter(|name| !is_beside(name)).collect();
                assert_eq!(names, self.model.names(directory));
            }
            Err(error) if !is || self.excuses(&error) => {}
            other => panic!("{directory:?}: {other:?}"),
        }
    }

    pub(super) fn stat(&mut self, at: usize) {
        let path = self.any_path();
        let asked = Request::Stat(Target::Path(&path));
        let got = match self.sim.glance(&path) {
            Some(Ok(seen)) => Ok((seen.kind, seen.size, seen.mode, seen.links)),
            Some(Err(kind)) => Err(Error::new(kind, "as it was read")),
            None => match self.sim.ask(self.players[at].client, asked) {
                Ok(Reply::Attributes(seen)) => Ok((seen.kind, seen.size, seen.mode, seen.links)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error),
            },
        };
        match (got, self.model.0.get(&path)) {
            (Ok((Kind::File, size, mode, links)), Some(Node::File(file))) => {
                let content = file.borrow();
                let must = (content.size, content.mode, self.model.count_names(file));
                assert_eq!((size, mode, links), must, "{path:?}");
            }
            (Ok((Kind::Directory, ..)), Some(Node::Directory(_))) | (Err(_), None) => {}
            (Ok((kind, size, _, 1)), Some(Node::Special(special))) => {
                let must = match special {
                    Special::Link(target) => (Kind::Symlink, target.len() as u64),
                    Special::Fifo => (Kind::Fifo, 0),
                };
                assert_eq!((kind, size), must, "{path:?}");
            }
            (Err(error), Some(_)) if self.excuses(&error) => {}
            (got, must) => panic!("{path:?}: {got:?}, {}", must.is_some()),
        }
    }
}
