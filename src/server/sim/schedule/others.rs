//! Others, who make, replace and remove files in the permanent store. Nothing of theirs is lost:
//! what is in the way of ours is kept beside it. Nothing of ours is, but for what had arrived when
//! they replaced or removed it, and was not changed after that.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::{Kind, Reply, Request};
use terral_store::backing::Found;

use super::super::deferring::Wish;
use super::super::model::{BEGUN_WITH, Content, File, Node, PIECE};
use super::Schedule;

/// What they have done so far.
#[derive(Default)]
pub(super) struct Others {
    /// What they have made.
    made: Vec<Made>,
    /// Files of ours that they have replaced or removed, as they were then, and where.
    taken: Vec<(File, Content)>,
    paths: BTreeSet<Vec<u8>>,
    /// The file that was there before: of that, parts are only there.
    first: Option<File>,
}

/// A file of theirs: where, what is in it, and which of our files it replaced.
type Made = (Vec<u8>, [u8; PIECE], Option<File>);

impl Schedule {
    /// Whether the model knows what becomes of it: directories that have something of others in
    /// them stay as they are.
    pub(super) fn is_clear(&self, wish: &Wish) -> bool {
        let moves = match wish {
            Wish::RemoveDirectory(_) => true,
            Wish::Rename(from, _) => matches!(self.model.0.get(from), Some(Node::Directory(_))),
            _ => false,
        };
        !(self.weather.others && moves)
    }

    /// Before anybody comes.
    pub(super) fn begin_beside(&mut self) {
        self.others.first = self.model.file(BEGUN_WITH);
    }

    pub(super) fn interfere(&mut self) {
        if self.weather.directories && self.chance(4) == 0 {
            return self.remove_there();
        }
        let path = self.file_path();
        let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { return };
        if !self.sim.dir.directories().iter().any(|there| *there == path[..end]) {
            return;
        }
        if self.others.paths.contains(&path) || self.is_owed(&path) {
            // What comes to be there now may be moved or removed as ours.
            return;
        }
        if self.sim.dir.look(&path).is_none() {
            return self.put(path, None);
        }
        let Some(file) = self.model.file(&path).filter(|file| self.has_arrived(&path, file)) else {
            return;
        };
        let content = file.borrow().clone();
        self.others.taken.push((file.clone(), content));
        self.others.paths.insert(path.clone());
        // What was theirs is gone by their own will.
        let files = self.sim.dir.files();
        let there = files.get(&path).and_then(|(_, filled)| filled.get(&0));
        let stays = |bytes: &[u8]| there.is_none_or(|page| page[..PIECE] != *bytes);
        self.others.made.retain(|(_, bytes, _)| stays(bytes));
        if self.chance(2) == 0 {
            return self.put(path, Some(file));
        }
        self.tell(|| format!("others remove {path:?}"));
        self.sim.dir.remove(&path).expect("it is there");
    }

    /// A directory of ours with all that is in it, and now and then a file of theirs comes to be in
    /// its place.
    fn remove_there(&mut self) {
        let path = self.path(Kind::Directory);
        let directory = matches!(self.model.0.get(&path), Some(Node::Directory(_)));
        let start = [&path[..], b"/"].concat();
        let is_in = |other: &[u8]| *other == path || other.starts_with(&start);
        let known = self.others.paths.iter().any(|other| is_in(other));
        if !directory || !self.sim.dir.has(&path) || known {
            return;
        }
        let all: Vec<_> = self.model.0.iter().filter(|(path, _)| is_in(path)).collect();
        let all: Vec<_> =
            all.into_iter().map(|(path, node)| (path.clone(), node.clone())).collect();
        if self.is_any_owed(is_in) {
            return;
        }
        let mut taken = Vec::new();
        for (path, node) in &all {
            let Node::File(file) = node else { continue };
            if !self.has_arrived(path, file) {
                return;
            }
            taken.push((file.clone(), file.borrow().clone()));
        }
        self.tell(|| format!("others remove {path:?} with all in it"));
        self.others.taken.extend(taken);
        self.others.paths.extend(all.into_iter().map(|(path, _)| path));
        // What was theirs in it is gone by their own will.
        let files = self.sim.dir.files();
        let gone: Vec<_> = files.iter().filter(|(path, _)| is_in(path)).collect();
        let is_gone = |bytes: &[u8]| {
            gone.iter().any(|(_, (_, filled))| filled.get(&0).is_some_and(|p| p[..PIECE] == *bytes))
        };
        self.others.made.retain(|(_, bytes, _)| !is_gone(bytes));
        self.sim.dir.remove(&path).expect("it is there");
        if self.chance(3) == 0 {
            self.put(path, None);
        }
    }

    /// Whether the store is owed something that is done to what has this name there.
    fn is_owed(&mut self, path: &[u8]) -> bool {
        self.is_any_owed(|owed| owed == path)
    }

    fn is_any_owed(&mut self, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        self.sim.hear();
        let owes = self.sim.with(|server| {
            let state = server.lock();
            let mut owed = state.names.owed().iter();
            owed.any(|(_, owed)| owed.paths().into_iter().any(&is_meant))
        });
        owes.unwrap_or(true)
    }

    fn put(&mut self, path: Vec<u8>, replaces: Option<File>) {
        self.tell(|| format!("others put {path:?}, for one of ours: {}", replaces.is_some()));
        let draw = self.sim.world.draw().to_le_bytes();
        let bytes: [u8; PIECE] = std::array::from_fn(|at| draw[at % 8] | 1);
        self.sim.dir.put(&path, &bytes).expect("its directory is there");
        self.others.made.push((path, bytes, replaces));
    }

    /// Whether the store has a file as it is, all of which is here, too: it had not had it before
    /// anybody came, and there is no chunk of it without anything in it.
    fn has_arrived(&mut self, path: &[u8], file: &File) -> bool {
        if self.others.first.as_ref().is_some_and(|first| Rc::ptr_eq(first, file)) {
            return false;
        }
        let whole = file.borrow().size <= CHUNK_BYTES && !file.borrow().pieces.is_empty();
        let client = self.players[0].client;
        match self.sim.ask(client, Request::Safety(path)) {
            Ok(Reply::Safety(safety)) => {
                whole && safety.in_backing && safety.owed_bytes == 0 && !safety.open_for_writing
            }
            _ => false,
        }
    }

    /// What is there in the end.
    pub(super) fn compare_with_others(&self) {
        let mut files = self.sim.dir.files();
        let theirs = |size: u64, filled: &BTreeMap<u64, Vec<u8>>| {
            let is = |(_, bytes, _): &&Made| {
                filled.len() == 1 && filled.get(&0).is_some_and(|page| page[..PIECE] == *bytes)
            };
            size == PIECE as u64 && self.others.made.iter().any(|made| is(&made))
        };
        for (path, bytes, replaced) in &self.others.made {
            let kept = |(_, filled): &(Found, BTreeMap<u64, Vec<u8>>)| {
                filled.get(&0).is_some_and(|page| page[..PIECE] == *bytes)
            };
            let ours = self.model.file(path);
            let stays = replaced
                .as_ref()
                .is_none_or(|replaced| ours.is_some_and(|ours| Rc::ptr_eq(&ours, replaced)));
            // What is removed here is removed there, whatever has its name by then.
            let stays = stays && !self.sim.faults.has_removed(path);
            assert!(!stays || files.values().any(kept), "{path:?} of others is lost");
        }
        for (path, node) in &self.model.0 {
            let Node::File(file) = node else { continue };
            let content = file.borrow();
            let there = files.remove(path);
            let ours = there
                .as_ref()
                .is_some_and(|(found, filled)| content.is(found.attributes.size, filled));
            let as_taken = |(taken, then): &(File, Content)| {
                let same = (then.size, &then.pieces) == (content.size, &content.pieces);
                Rc::ptr_eq(taken, file) && same
            };
            let is = there.as_ref().map(|(found, filled)| (found.attributes.size, filled.len()));
            let gone = there.is_none_or(|(found, filled)| theirs(found.attributes.size, &filled));
            let taken = gone && self.others.taken.iter().any(as_taken);
            let size = content.size;
            assert!(ours || taken, "{path:?} of {size} bytes is lost: there is {is:?}");
        }
        // Where they have removed one of ours that was to take the place of an older one of ours,
        // that is taken for theirs.
        let older = |path: &[u8]| path.windows(8).any(|part| part == b".theirs-");
        files.retain(|path, (found, filled)| {
            let known = older(path) && !self.others.taken.is_empty();
            !known && !theirs(found.attributes.size, filled)
        });
        let sizes = files.iter().map(|(path, (found, filled))| {
            (path, found.attributes.size, filled.keys().collect::<Vec<_>>())
        });
        assert!(files.is_empty(), "nobody made {:?}", sizes.collect::<Vec<_>>());
    }
}
