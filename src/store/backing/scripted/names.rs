//! Names that are made, moved, exchanged, removed and kept for somebody else, each in one step.

use rustix::io::Errno;
use terral_format::fingerprint::Object;
use terral_format::wire::message::Kind;

use super::super::Touched;
use super::super::staged::{THEIRS_MAX, theirs_name};
use super::node::Content;
use super::store::{Place, Store};

/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

impl Store {
    fn is_directory(&self, inode: u64) -> bool {
        self.node(inode).kind() == Kind::Directory
    }

    /// Makes a directory or FIFO. One that exists is left as it is.
    pub(super) fn make_name(
        &mut self,
        place: &Place,
        content: Content,
        mode: u32,
    ) -> rustix::io::Result<()> {
        match self.at(place) {
            Some(there) => {
                let same = std::mem::discriminant(&self.node(there).content)
                    == std::mem::discriminant(&content);
                if same { Ok(()) } else { Err(Errno::EXIST) }
            }
            None => {
                self.make_at(place, content, mode & 0o7777);
                Ok(())
            }
        }
    }

    /// Makes a symbolic link. One with the same target is left as it is.
    pub(super) fn make_link(&mut self, place: &Place, target: &[u8]) -> rustix::io::Result<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(Errno::INVAL);
        }
        if target.len() > TARGET_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let there = self.at(place).map(|there| &self.node(there).content);
        match there {
            Some(Content::Symlink(present)) if present == target => Ok(()),
            Some(_) => Err(Errno::EXIST),
            None => {
                self.make_at(place, Content::Symlink(target.to_vec()), 0o777);
                Ok(())
            }
        }
    }

    /// Removes a name, of a directory or of anything else. A missing one is no error.
    pub(super) fn remove(&mut self, path: &[u8], directory: bool) -> rustix::io::Result<()> {
        let place = match self.place(path) {
            Err(Errno::NOENT) => return Ok(()),
            place => place?,
        };
        let Some(there) = self.at(&place) else { return Ok(()) };
        match (self.node(there).list(), directory) {
            (Some(_), false) => return Err(Errno::ISDIR),
            (None, true) => return Err(Errno::NOTDIR),
            (Some(names), true) if !names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => self.leave(&place),
        }
        Ok(())
    }

    /// Gives anything but a directory a further name.
    pub(super) fn link(&mut self, from: &Place, to: &Place) -> rustix::io::Result<Touched> {
        let inode = self.at(from).ok_or(Errno::NOENT)?;
        let there = self.at(to);
        if self.is_directory(inode) || there.is_some_and(|there| self.is_directory(there)) {
            return Err(Errno::ISDIR);
        }
        self.touching(inode, |store| {
            if there != Some(inode) {
                store.enter(to, inode);
            }
            Ok(())
        })
    }

    /// Moves a name, over what may be replaced.
    pub(super) fn rename(&mut self, from: &Place, to: &Place) -> rustix::io::Result<Touched> {
        let inode = self.at(from).ok_or(Errno::NOENT)?;
        if is_within(to, from) {
            return Err(Errno::INVAL);
        }
        if is_within(from, to) {
            return Err(Errno::NOTEMPTY);
        }
        let there = self.at(to).filter(|there| *there != inode);
        if let Some(there) = there {
            match (self.is_directory(inode), self.node(there).list()) {
                (true, None) => return Err(Errno::NOTDIR),
                (false, Some(_)) => return Err(Errno::ISDIR),
                (true, Some(names)) if !names.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        let same = there.is_none() && self.at(to).is_some();
        self.touching(inode, |store| {
            // Two names of one file stay both, says POSIX.
            if !same {
                store.enter(to, inode);
                store.leave(from);
            }
            Ok(())
        })
    }

    /// Lets two names change places.
    pub(super) fn exchange(&mut self, from: &Place, to: &Place) -> rustix::io::Result<()> {
        if is_within(from, to) || is_within(to, from) {
            return Err(Errno::INVAL);
        }
        let one = self.at(from).ok_or(Errno::NOENT)?;
        let other = self.at(to).ok_or(Errno::NOENT)?;
        if one != other {
            self.hold(other);
            self.enter(to, one);
            self.enter(from, other);
            self.release(other);
        }
        Ok(())
    }

    /// Gives somebody else's version a second name, and says which.
    pub(super) fn keep_aside(&mut self, place: &Place, inode: u64) -> rustix::io::Result<Vec<u8>> {
        // An attempt that was cut short may have named it already.
        let kept = self.first_theirs(place, |there| there.is_none_or(|there| there == inode))?;
        if self.at(&kept).is_none() {
            self.enter(&kept, inode);
        }
        Ok(kept.path())
    }

    /// Gives what is at `place` another name, and says which.
    pub(super) fn set_aside(&mut self, place: &Place) -> rustix::io::Result<Vec<u8>> {
        let inode = self.at(place).ok_or(Errno::NOENT)?;
        let kept = self.first_theirs(place, |there| there.is_none())?;
        self.enter(&kept, inode);
        self.leave(place);
        Ok(kept.path())
    }

    /// The first place for foreign versions of `place` that will do.
    fn first_theirs(
        &self,
        place: &Place,
        will_do: impl Fn(Option<u64>) -> bool,
    ) -> rustix::io::Result<Place> {
        let mut places = (1..=THEIRS_MAX).map(|n| place.beside(&theirs_name(&place.name, n)));
        places.find(|place| will_do(self.at(place))).ok_or(Errno::EXIST)
    }

    /// [`NameSink::keep_theirs`](super::super::NameSink::keep_theirs).
    pub(super) fn keep_theirs(
        &mut self,
        place: &Place,
        ours: &[Object],
        alike: &[u8],
    ) -> rustix::io::Result<Option<Vec<u8>>> {
        let Some(inode) = self.at(place) else { return Ok(None) };
        if self.is_directory(inode) || ours.contains(&Object::new(inode)) {
            return Ok(None);
        }
        let alike = self.at(&self.place(alike)?);
        if alike.is_some_and(|alike| self.has_the_bytes(alike, inode)) {
            return Ok(None);
        }
        self.keep_aside(place, inode).map(Some)
    }

    /// Whether these are two files with the same bytes.
    pub(super) fn has_the_bytes(&self, one: u64, other: u64) -> bool {
        let (one, other) = (self.node(one).pages(), self.node(other).pages());
        one.is_some() && one == other
    }
}

/// Whether `inner` lies somewhere below `outer`.
fn is_within(inner: &Place, outer: &Place) -> bool {
    let (inner, outer) = (inner.path(), outer.path());
    inner.strip_prefix(&*outer).is_some_and(|rest| rest.starts_with(b"/"))
}
