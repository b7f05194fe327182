//! A model of what must be there: names, sizes, modes and bytes, as everybody must see them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use terral_format::local::geometry::PAGE_BYTES;

/// Bytes that are written at a time, at the start of a page.
pub const PIECE: usize = 16;

/// A file that is there before anybody comes.
pub const BEGUN_WITH: &[u8] = b"a";

/// What a file must be: its size, and pieces by the page that they begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub size: u64,
    pub mode: u32,
    pub user: u32,
    pub pieces: BTreeMap<u64, [u8; PIECE]>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Chunks that a disk may have lost.
    pub corrupt: BTreeSet<u64>,
    /// What somebody is in the middle of writing, or was when he died, by page.
    pub(super) maybe: BTreeMap<u64, Vec<Maybe>>,
}

/// Bytes that may be there, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Maybe {
    by: u64,
    piece: [u8; PIECE],
    /// Or some of them.
    in_part: bool,
    /// He may be in the middle of his copy.
    copies: bool,
}

impl Default for Content {
    fn default() -> Self {
        let (pieces, xattrs, corrupt, maybe) = Default::default();
        Content { size: 0, mode: 0o644, user: 0, pieces, xattrs, corrupt, maybe }
    }
}

impl Content {
    pub fn cut(&mut self, size: u64) {
        self.size = size;
        self.pieces.retain(|page, _| page * (PAGE_BYTES as u64) < size);
        self.maybe.retain(|page, _| page * (PAGE_BYTES as u64) < size);
    }

    /// Somebody, `by`, begins to write to a page.
    pub fn begins(&mut self, page: u64, by: u64, piece: [u8; PIECE]) {
        let in_part = page * (PAGE_BYTES as u64) < self.size;
        self.maybe.entry(page).or_default().push(Maybe { by, piece, in_part, copies: true });
    }

    /// His bytes are there, if the file is long enough.
    pub fn shows(&mut self, page: u64, by: u64, piece: [u8; PIECE]) {
        self.maybe.remove(&page);
        if page * (PAGE_BYTES as u64) < self.size {
            self.pieces.insert(page, piece);
        } else {
            let only = Maybe { by, piece, in_part: false, copies: false };
            self.maybe.insert(page, vec![only]);
        }
    }

    /// The file is so long, and what he wrote counts, unless others have written there since.
    pub fn grows(&mut self, to: u64, page: u64, by: u64) {
        self.size = self.size.max(to);
        // Of who was stopped beyond the end, what he has copied so far is seen now.
        let seen = self.maybe.range_mut(..self.size.div_ceil(PAGE_BYTES as u64));
        seen.flat_map(|(_, all)| all).for_each(|maybe| maybe.in_part |= maybe.copies);
        self.counts(page, by);
    }

    /// His call is over.
    pub fn counts(&mut self, page: u64, by: u64) {
        let his = |maybe: &&Maybe| maybe.by == by;
        let found = self.maybe.get(&page).and_then(|all| all.iter().rfind(his).copied());
        if let Some(maybe) = found {
            self.maybe.remove(&page);
            self.pieces.insert(page, maybe.piece);
        }
    }

    /// Whether somebody is in the middle of writing a page, or was when he died.
    pub fn is_being_written(&self, page: u64) -> bool {
        self.maybe.contains_key(&page)
    }

    /// Whether this may be read at the start of a page.
    pub fn may_show(&self, page: u64, found: &[u8]) -> bool {
        let before = self.pieces.get(&page).copied().unwrap_or_default();
        let all = self.maybe.get(&page).map_or(&[][..], Vec::as_slice);
        // One that is there whole, or not at all; over it what some have copied so far.
        let mut wholes = [before].into_iter().chain(all.iter().map(|maybe| maybe.piece));
        let copied =
            |at: usize, byte: u8| all.iter().any(|maybe| maybe.in_part && maybe.piece[at] == byte);
        wholes.any(|whole| {
            let mut bytes = found.iter().enumerate();
            bytes.all(|(at, byte)| whole[at] == *byte || copied(at, *byte))
        })
    }

    /// Whether a file of this size, with these pages that are not all zeros, has this content.
    pub fn is(&self, size: u64, filled: &BTreeMap<u64, Vec<u8>>) -> bool {
        let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let right = |(page, found): (&u64, &Vec<u8>)| {
            let length = found.len().min(PIECE);
            self.may_show(*page, &found[..length]) && zeros(&found[length..])
        };
        let is_there = |page: &u64| filled.contains_key(page) || self.may_show(*page, &[0; PIECE]);
        size == self.size && filled.iter().all(right) && self.pieces.keys().all(is_there)
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (page, piece) in &self.pieces {
            let at = *page as usize * PAGE_BYTES;
            bytes[at..at + PIECE].copy_from_slice(piece);
        }
        bytes
    }
}

pub type File = Rc<RefCell<Content>>;

#[derive(Clone)]
pub enum Node {
    /// Whose it is.
    Directory(u32),
    File(File),
    Special(Special),
}

/// What has a name, and no bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// A symbolic link, and what it says.
    Link(Vec<u8>),
    Fifo,
}

/// What must be there, by path.
#[derive(Clone, Default)]
pub struct Model(pub BTreeMap<Vec<u8>, Node>);

impl Model {
    /// Whether what would hold `path` is a directory.
    pub fn has_parent(&self, path: &[u8]) -> bool {
        let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { return true };
        matches!(self.0.get(&path[..end]), Some(Node::Directory(_)))
            && self.has_parent(&path[..end])
    }

    pub fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let start = [path, b"/"].concat();
        self.0.keys().filter(|other| other.starts_with(&start)).cloned().collect()
    }

    pub fn names(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let start = if directory.is_empty() { vec![] } else { [directory, b"/"].concat() };
        let inside = self.0.keys().filter_map(|path| path.strip_prefix(&start[..]));
        inside.filter(|rest| !rest.contains(&b'/')).map(<[u8]>::to_vec).collect()
    }

    pub fn make_directory(&mut self, path: &[u8], user: u32) -> bool {
        let may = self.has_parent(path) && !self.0.contains_key(path);
        if may {
            self.0.insert(path.into(), Node::Directory(user));
        }
        may
    }

    pub fn remove_directory(&mut self, path: &[u8]) -> bool {
        let is =
            matches!(self.0.get(path), Some(Node::Directory(_))) && self.below(path).is_empty();
        if is {
            self.0.remove(path);
        }
        is
    }

    pub fn unlink(&mut self, path: &[u8]) -> bool {
        let is = matches!(self.0.get(path), Some(Node::File(_) | Node::Special(_)));
        if is {
            self.0.remove(path);
        }
        is
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let Some(node) = self.0.get(from).cloned() else { return false };
        let within = to.strip_prefix(from).is_some_and(|rest| rest.starts_with(b"/"));
        if !self.has_parent(to) || within {
            return false;
        }
        let same = |other: &Node| match (&node, other) {
            (Node::File(a), Node::File(b)) => Rc::ptr_eq(a, b),
            _ => false,
        };
        if from == to || self.0.get(to).is_some_and(same) {
            return true;
        }
        let fits = match (&node, self.0.get(to)) {
            (_, None) => true,
            (Node::Directory(_), Some(Node::Directory(_))) => self.below(to).is_empty(),
            (Node::Directory(_), _) | (_, Some(Node::Directory(_))) => false,
            _ => true,
        };
        if !fits {
            return false;
        }
        for path in self.below(from) {
            let moved = [to, &path[from.len()..]].concat();
            let inner = self.0.remove(&path);
            self.0.extend(inner.map(|inner| (moved, inner)));
        }
        self.0.remove(from);
        self.0.insert(to.into(), node);
        true
    }

    /// Gives a file a further name, or one that has none its first.
    pub fn link(&mut self, file: &File, path: &[u8]) -> bool {
        let may = self.has_parent(path) && !self.0.contains_key(path);
        if may {
            self.0.insert(path.into(), Node::File(file.clone()));
        }
        may
    }

    /// How many names a file has.
    pub fn count_names(&self, file: &File) -> u32 {
        let is = |node: &&Node| matches!(node, Node::File(other) if Rc::ptr_eq(file, other));
        self.0.values().filter(is).count() as u32
    }

    /// Two names change places, with all that is below them.
    pub fn exchange(&mut self, one: &[u8], other: &[u8]) -> bool {
        let within = |path: &[u8], top: &[u8]| {
            path.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
        };
        let there = self.0.contains_key(one) && self.0.contains_key(other);
        if !there || within(one, other) || within(other, one) {
            return false;
        }
        let mut taken = Vec::new();
        for (top, to) in [(one, other), (other, one)] {
            let below = self.below(top);
            for path in below.into_iter().chain([top.to_vec()]) {
                let node = self.0.remove(&path);
                taken.extend(node.map(|node| ([to, &path[top.len()..]].concat(), node)));
            }
        }
        self.0.extend(taken);
        true
    }

    /// The file that has a name.
    pub fn file(&self, path: &[u8]) -> Option<File> {
        match self.0.get(path)? {
            Node::File(file) => Some(file.clone()),
            Node::Directory(_) | Node::Special(_) => None,
        }
    }

    /// What has a name, and no bytes.
    pub fn special(&self, path: &[u8]) -> Option<&Special> {
        match self.0.get(path)? {
            Node::Special(special) => Some(special),
            Node::Directory(_) | Node::File(_) => None,
        }
    }

    /// Makes a symbolic link or a FIFO.
    pub fn make_special(&mut self, path: &[u8], special: Special) -> bool {
        let may = self.has_parent(path) && !self.0.contains_key(path);
        if may {
            self.0.insert(path.into(), Node::Special(special));
        }
        may
    }

    /// The file that an open for writing gives, made if there is none.
    pub fn open(&mut self, path: &[u8], user: u32) -> Option<File> {
        match self.0.get(path) {
            Some(Node::File(file)) => Some(file.clone()),
            Some(Node::Directory(_) | Node::Special(_)) => None,
            None if self.has_parent(path) => {
                let file = File::default();
                file.borrow_mut().user = user;
                self.0.insert(path.into(), Node::File(file.clone()));
                Some(file)
            }
            None => None,
        }
    }
}
