//! What the permanent store must have when all is over.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::model::{Node, PIECE};
use super::{Schedule, begun_with};

impl Schedule {
    /// The permanent store has what it must have, and nothing else.
    pub(super) fn compare(&self) {
        if self.over && self.model.0.is_empty() {
            return;
        }
        if self.weather.others {
            return self.compare_with_others();
        }
        let (mut files, directories) = (self.sim.dir.files(), self.sim.dir.directories());
        for (path, file) in &self.theirs {
            let kept = files.iter().find(|(other, (found, filled))| {
                other.starts_with(&[path, &b".theirs-"[..]].concat())
                    && file.borrow().is(found.attributes.size, filled)
            });
            let kept = kept.map(|(path, _)| path.clone());
            let kept = kept.unwrap_or_else(|| panic!("{path:?} is not kept: {:?}", files.keys()));
            files.remove(&kept);
        }
        if self.over {
            // Another file may have got its name while nobody could know that it was there.
            let kept = |path: &[u8]| path.starts_with(b"a.theirs-");
            files.retain(|path, (found, filled)| {
                !(kept(path) && begun_with().is(found.attributes.size, filled))
            });
        }
        let model = self.model.0.iter();
        let must: Vec<_> = model.filter(|(_, node)| matches!(node, Node::Directory(_))).collect();
        assert_eq!(directories, must.iter().map(|(path, _)| (*path).clone()).collect::<Vec<_>>());
        self.compare_specials();
        let mut objects = BTreeMap::new();
        for (path, node) in &self.model.0 {
            let Node::File(file) = node else { continue };
            let (there, content) = (files.remove(path), file.borrow());
            if !content.corrupt.is_empty() {
                // What the disk has lost keeps the whole file from arriving.
                continue;
            }
            let Some((found, filled)) = there else { panic!("{path:?} is not there") };
            let object = found.fingerprint.object();
            let first = *objects.entry(Rc::as_ptr(file)).or_insert(object);
            assert_eq!(object, first, "{path:?} is another file there than under its other names");
            let heads = || {
                let head = |(page, bytes): (&u64, &Vec<u8>)| (*page, bytes[..PIECE].to_vec());
                filled.iter().map(head).collect::<Vec<_>>()
            };
            let size = found.attributes.size;
            assert!(content.is(size, &filled), "{path:?}: {content:?}: {size} {:?}", heads());
            let is = (found.attributes.mode, found.attributes.uid);
            assert_eq!(is, (content.mode, content.user), "{path:?}");
            if self.weather.xattrs {
                self.compare_attributes(path, file);
            }
        }
        if self.weather.clocks {
            // A file of ours is taken for somebody else's then, now and then, and kept twice.
            files.retain(|path, _| !path.windows(8).any(|part| part == b".theirs-"));
        }
        assert!(files.is_empty(), "nobody made {:?}", files.keys());
    }
}
