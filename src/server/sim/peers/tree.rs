//! What one namespace is after what was done to it, one after the other.

use std::collections::BTreeMap;

use terral_format::ErrorKind;

pub(super) type Outcome = std::result::Result<(), ErrorKind>;

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) directory: bool,
    pub(super) mode: u32,
}

/// One namespace, as all must see it.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<Vec<u8>, Node>);

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
            return Ok(Node { directory: true, mode: 0o755 });
        }
        self.room(path)?;
        self.0.get(path).copied().ok_or(ErrorKind::NotFound)
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
                self.0.insert(path.to_vec(), node);
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
        let of = |(at, node): (&Vec<u8>, &Node)| {
            let name = at.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            (parent_of(at) == path).then_some((name, node.directory))
        };
        Ok(self.0.iter().filter_map(of).collect())
    }

    pub(super) fn remove(&mut self, path: &[u8], directory: bool) -> Outcome {
        match (self.node(path)?.directory, directory) {
            (true, false) => return Err(ErrorKind::IsDirectory),
            (false, true) => return Err(ErrorKind::NotDirectory),
            (true, true) if !self.names(path)?.is_empty() => return Err(ErrorKind::NotEmpty),
            _ => {}
        }
        self.0.remove(path);
        Ok(())
    }

    /// rename(2), in the order in which it looks at what is wrong.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        self.room(from)?;
        self.room(to)?;
        let moved = self.node(from)?;
        let there = self.0.get(to).copied();
        if is_below(to, from) {
            return Err(ErrorKind::Invalid);
        }
        if is_below(from, to) {
            return Err(ErrorKind::NotEmpty);
        }
        if from == to {
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
        let below: Vec<_> = self.0.keys().filter(|path| is_below(path, from)).cloned().collect();
        for path in below.into_iter().chain([from.to_vec()]) {
            let node = self.0.remove(&path).expect("it is there");
            self.0.insert([to, &path[from.len()..]].concat(), node);
        }
        Ok(())
    }

    /// All that there is, and whether it is a directory.
    pub(super) fn all(&self) -> BTreeMap<Vec<u8>, bool> {
        self.0.iter().map(|(path, node)| (path.clone(), node.directory)).collect()
    }

    pub(super) fn change(&mut self, path: &[u8], mode: u32) -> Outcome {
        self.node(path)?;
        self.0.insert(path.to_vec(), Node { mode, ..self.node(path)? });
        Ok(())
    }
}
