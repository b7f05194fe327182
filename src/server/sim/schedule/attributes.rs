//! Extended attributes of files: set, replaced, removed and read, by name and by what is open.

use std::rc::Rc;

use terral_format::wire::message::{Reply, Request, Target, XattrHow};
use terral_format::{Error, ErrorKind};
use terral_store::backing::{NameSink, Source};

use super::super::model::{BEGUN_WITH, File};
use super::Schedule;

const NAMES: [&[u8]; 2] = [b"user.x", b"user.y"];

/// A file's name, or which of those that a client has open it is.
type Which = Result<Vec<u8>, usize>;

impl Schedule {
    /// What was there before anybody came has one.
    pub(super) fn begin_with_attribute(&mut self) {
        let value = b"old".to_vec();
        self.sim.dir.set_xattr(BEGUN_WITH, NAMES[0], Some(&value)).expect("it is there");
        let file = self.model.file(BEGUN_WITH).expect("it is there");
        file.borrow_mut().xattrs.insert(NAMES[0].to_vec(), value);
        self.begun = Some(file);
    }

    /// Who has removed the last name of that file has lost what of it only the store knew.
    pub(super) fn forget_attribute(&mut self) {
        let gone = self.begun.take_if(|file| self.model.count_names(file) == 0);
        if let Some(file) = gone {
            file.borrow_mut().xattrs.retain(|_, value| value != b"old");
            self.lost = Some(file);
        }
    }

    fn is_lost(&self, file: &File, value: &[u8]) -> bool {
        self.lost.as_ref().is_some_and(|lost| Rc::ptr_eq(lost, file)) && value == b"old"
    }

    /// A file, by one of its names or open, and what it must have.
    fn some_file(&mut self, at: usize) -> Option<(Which, Option<File>)> {
        if self.chance(3) == 0 {
            let count = self.players[at].open.len() as u64;
            let which = self.chance(count.max(1)) as usize;
            let handle = self.players[at].open.get(which)?;
            return Some((Err(which), Some(handle.file.clone())));
        }
        let path = self.file_path();
        let file = self.model.file(&path);
        Some((Ok(path), file))
    }

    pub(super) fn set_attribute(&mut self, at: usize) {
        let Some((which, file)) = self.some_file(at) else { return };
        let name = NAMES[self.chance(2) as usize];
        let value = self.sim.world.draw().to_le_bytes();
        let value = (self.chance(4) != 0).then_some(&value[..]);
        let how = [XattrHow::Any, XattrHow::Create, XattrHow::Replace][self.chance(3) as usize];
        let unknown = |file: &File| name == NAMES[0] && self.is_lost(file, b"old");
        if (value.is_none() || how != XattrHow::Any) && file.as_ref().is_some_and(unknown) {
            return;
        }
        let Some(got) =
            self.ask_about(at, &which, |target| Request::SetXattr { target, name, value, how })
        else {
            return;
        };
        self.tell(|| format!("{at}: {which:?} {name:?} {value:?} {how:?}: {got:?}"));
        let may = |file: &File| {
            let there = file.borrow().xattrs.contains_key(name);
            match (how, value) {
                (_, None) | (XattrHow::Replace, _) => there,
                (XattrHow::Create, _) => !there,
                (XattrHow::Any, _) => true,
            }
        };
        match (got, file) {
            (Ok(_), Some(file)) if may(&file) => {
                let xattrs = &mut file.borrow_mut().xattrs;
                match value {
                    Some(value) => _ = xattrs.insert(name.to_vec(), value.to_vec()),
                    None => _ = xattrs.remove(name),
                }
            }
            // A directory has the name.
            (Ok(_), None) => assert!(which.is_ok_and(|path| self.model.0.contains_key(&path))),
            (Err(error), Some(file)) => assert!(!may(&file) || self.excuses(&error), "{error:?}"),
            (Err(_), None) => {}
            (Ok(_), Some(_)) => panic!("{which:?} has {name:?}, or has not"),
        }
    }

    pub(super) fn get_attribute(&mut self, at: usize) {
        let Some((which, file)) = self.some_file(at) else { return };
        let name = NAMES[self.chance(2) as usize];
        let Some(got) = self.ask_about(at, &which, |target| Request::Xattr { target, name }) else {
            return;
        };
        let Some(file) = file else { return };
        let must = file.borrow().xattrs.get(name).cloned();
        match (got, must) {
            (Ok(Reply::Xattr(value)), _) if self.is_lost(&file, &value) => {}
            (Ok(Reply::Xattr(value)), Some(must)) => assert_eq!(value, must, "{which:?}"),
            (Err(error), None) if error.kind == ErrorKind::NoData => {}
            (Err(error), _) if self.excuses(&error) => {}
            (got, must) => panic!("{which:?} {name:?}: {got:?}, not {must:?}"),
        }
    }

    fn ask_about<'a>(
        &mut self,
        at: usize,
        which: &'a Which,
        request: impl FnOnce(Target<'a>) -> Request<'a>,
    ) -> Option<Result<Reply, Error>> {
        let client = self.players[at].client;
        let target = match which {
            Ok(path) => Target::Path(path),
            Err(which) => {
                let opened = self.players[at].open.get(*which)?.opened.file;
                match self.sim.rouse(client, opened) {
                    Ok(file) => Target::File(file),
                    Err(error) => return Some(Err(error)),
                }
            }
        };
        Some(self.sim.ask(client, request(target)))
    }

    /// The permanent store has those that a file must have.
    pub(super) fn compare_attributes(&self, path: &[u8], file: &File) {
        let found = self.sim.dir.xattrs(path).expect("it is there");
        let found = found.into_iter().filter(|(_, value)| !self.is_lost(file, value)).collect();
        assert_eq!(file.borrow().xattrs, found, "{path:?}");
    }
}
