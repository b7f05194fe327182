//! What one namespace is after what was done to it, one after the other.

use std::collections::BTreeMap;

use terral_format::ErrorKind;
use terral_format::ids::Number;

pub(super) type Outcome = std::result::Result<(), ErrorKind>;

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) directory: bool,
    pub(super) mode: u32,
    /// How many names it has, if it is a file.
    pub(super) links: u32,
}

impl Node {
    pub(super) const DIRECTORY: Node = Node { directory: true, mode: 0o755, links: 0 };
    pub(super) const FILE: Node = Node { directory: false, mode: 0o644, links: 1 };
}

/// One namespace, as all must see it: what each name stands for, and all that there was.
#[derive(Clone, Default)]
pub(super) struct Tree {
    names: BTreeMap<Vec<u8>, usize>,
    nodes: Vec<Node>,
    xattrs: BTreeMap<usize, Vec<u8>>,
    numbers: BTreeMap<Number, usize>,
    numbered: BTreeMap<usize, Number>,
}

fn parent_of(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path[..end].to_vec()
}

fn is_below(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl Tree {
    pub(super) fn node(&self, path: &[u8]) -> std::result::Result<Node, ErrorKind> {
        if path.is_empty() {
            return Ok(Node::DIRECTORY);
        }
        self.room(path)?;
        self.names.get(path).map(|at| self.nodes[*at]).ok_or(ErrorKind::NotFound)
    }

    /// Whether there is a directory for this name.
    fn room(&self, path: &[u8]) -> Outcome {
        let above = self.node(&parent_of(path))?;
        if above.directory { Ok(()) } else { Err(ErrorKind::NotDirectory) }
    }

    pub(super) fn make(&mut self, path: &[u8], node: Node) -> Outcome {
        match self.node(path) {
            Ok(_) => Err(ErrorKind::Exists),
            Err(ErrorKind::NotFound) => {
                self.room(path)?;
                self.names.insert(path.to_vec(), self.nodes.len());
                self.nodes.push(node);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn names(
        &self,
        path: &[u8],
    ) -> std::result::Result<BTreeMap<Vec<u8>, bool>, ErrorKind> {
        if !self.node(path)?.directory {
            return Err(ErrorKind::NotDirectory);
        }
        let of = |(at, node): (&Vec<u8>, &usize)| {
            let name = at.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            (parent_of(at) == path).then_some((name, self.nodes[*node].directory))
        };
        Ok(self.names.iter().filter_map(of).collect())
    }

    pub(super) fn remove(&mut self, path: &[u8], directory: bool) -> Outcome {
        match (self.node(path)?.directory, directory) {
            (true, false) => return Err(ErrorKind::IsDirectory),
            (false, true) => return Err(ErrorKind::NotDirectory),
            (true, true) if !self.names(path)?.is_empty() => return Err(ErrorKind::NotEmpty),
            _ => {}
        }
        self.takes(path);
        Ok(())
    }

    /// A name goes.
    fn takes(&mut self, path: &[u8]) -> Option<usize> {
        let at = self.names.remove(path)?;
        self.nodes[at].links = self.nodes[at].links.saturating_sub(1);
        Some(at)
    }

    /// link(2).
    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let node = self.node(from)?;
        match self.node(to) {
            Ok(_) => return Err(ErrorKind::Exists),
            Err(ErrorKind::NotFound) => self.room(to)?,
            Err(error) => return Err(error),
        }
        if node.directory {
            return Err(ErrorKind::Unauthorized);
        }
        let at = self.names[from];
        self.nodes[at].links += 1;
        self.names.insert(to.to_vec(), at);
        Ok(())
    }

    /// rename(2), in the order in which it looks at what is wrong.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        self.room(from)?;
        self.room(to)?;
        let moved = self.node(from)?;
        let there = self.names.get(to).map(|at| self.nodes[*at]);
        if is_below(to, from) {
            return Err(ErrorKind::Invalid);
        }
        if is_below(from, to) {
            return Err(ErrorKind::NotEmpty);
        }
        if self.names.get(from) == self.names.get(to) {
            return Ok(());
        }
        match there {
            Some(there) if moved.directory && !there.directory => {
                return Err(ErrorKind::NotDirectory);
            }
            Some(there) if !moved.directory && there.directory => {
                return Err(ErrorKind::IsDirectory);
            }
            Some(there) if there.directory && !self.names(to)?.is_empty() => {
                return Err(ErrorKind::NotEmpty);
            }
            _ => {}
        }
        self.takes(to);
        let below = self.names.keys().filter(|path| is_below(path, from));
        let below: Vec<_> = below.cloned().collect();
        for path in below.into_iter().chain([from.to_vec()]) {
            let node = self.names.remove(&path).expect("it is there");
            self.names.insert([to, &path[from.len()..]].concat(), node);
        }
        Ok(())
    }

    /// renameat2(2) with RENAME_EXCHANGE, in the same order.
    pub(super) fn exchange(&mut self, one: &[u8], other: &[u8]) -> Outcome {
        self.room(one)?;
        self.room(other)?;
        self.node(one)?;
        self.node(other)?;
        if is_below(one, other) || is_below(other, one) {
            return Err(ErrorKind::Invalid);
        }
        let all = std::mem::take(&mut self.names).into_iter();
        let goes = |path: &[u8]| {
            let to = |from: &[u8], to: &[u8]| {
                let rest = path.strip_prefix(from)?;
                rest.first().is_none_or(|byte| *byte == b'/').then(|| [to, rest].concat())
            };
            to(one, other).or_else(|| to(other, one)).unwrap_or_else(|| path.to_vec())
        };
        self.names = all.map(|(path, node)| (goes(&path), node)).collect();
        Ok(())
    }

    /// The value of the one extended attribute that there may be.
    pub(super) fn xattr(&self, path: &[u8]) -> std::result::Result<Vec<u8>, ErrorKind> {
        self.node(path)?;
        self.xattrs.get(&self.names[path]).cloned().ok_or(ErrorKind::NoData)
    }

    pub(super) fn set_xattr(&mut self, path: &[u8], value: Option<&[u8]>) -> Outcome {
        self.node(path)?;
        let set = match value {
            Some(value) => Some(self.xattrs.insert(self.names[path], value.into())),
            None => self.xattrs.remove(&self.names[path]).map(Some),
        };
        set.map(drop).ok_or(ErrorKind::NoData)
    }

    /// Somebody sees this number of what has a name: everybody does, ever, and of nothing else.
    pub(super) fn has_number(&mut self, path: &[u8], number: Number) {
        let node = self.names[path];
        let first = *self.numbers.entry(number).or_insert(node);
        let before = *self.numbered.entry(node).or_insert(number);
        let says = String::from_utf8_lossy(path);
        assert_eq!((first, before), (node, number), "which is {says}, and what it was before");
    }

    /// By path, what has one.
    pub(super) fn all_xattrs(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let of =
            |(path, at): (&Vec<u8>, &usize)| Some((path.clone(), self.xattrs.get(at)?.clone()));
        self.names.iter().filter_map(of).collect()
    }

    /// The names of each file.
    pub(super) fn files(&self) -> BTreeMap<usize, Vec<&[u8]>> {
        let mut files = BTreeMap::<_, Vec<_>>::new();
        let of_files = self.names.iter().filter(|(_, at)| !self.nodes[**at].directory);
        of_files.for_each(|(path, at)| files.entry(*at).or_default().push(path.as_slice()));
        files
    }

    /// All that there is, and whether it is a directory.
    pub(super) fn all(&self) -> BTreeMap<Vec<u8>, bool> {
        let is = |(path, at): (&Vec<u8>, &usize)| (path.clone(), self.nodes[*at].directory);
        self.names.iter().map(is).collect()
    }

    pub(super) fn change(&mut self, path: &[u8], mode: u32) -> Outcome {
        self.node(path)?;
        let at = self.names.get(path).copied();
        at.into_iter().for_each(|at| self.nodes[at].mode = mode);
        Ok(())
    }
}
