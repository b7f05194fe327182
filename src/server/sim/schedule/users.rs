//! Clients of another user: what they may do (path_resolution(7), unlink(2), rename(2)).
//! Directories have the mode 755.

use terral_format::wire::message::{Change, Request, Target};

use super::super::model::{File, Node};
use super::{BOTH, Player, Schedule};

/// Who is not root.
const USER: u32 = 1000;

/// Where a name is.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |end| &path[..end])
}

impl Schedule {
    /// Somebody comes.
    pub(super) fn player(&mut self) -> Player {
        let client = self.sim.connect();
        // The first one makes what others use.
        let other = self.weather.users && client > 0 && self.chance(2) == 0;
        if other {
            self.sim.become_user(client, USER);
        }
        Player::new(client, if other { USER } else { 0 })
    }

    /// Gives the other user directories of his own.
    pub(super) fn share(&mut self) {
        for path in [&b"d/e"[..], b"c"] {
            let target = Target::Path(path);
            let change = Change { uid: Some(USER), gid: Some(USER), ..Change::default() };
            if self.check(0, Request::Change { target, change }, |_| true) {
                self.model.0.insert(path.into(), Node::Directory(USER));
            }
        }
    }

    pub(super) fn owns(&self, at: usize, file: &File) -> bool {
        [0, file.borrow().user].contains(&self.players[at].user)
    }

    pub(super) fn may_open(&self, at: usize, file: &File, access: u8) -> bool {
        let want = if access == BOTH { 6 } else { 4 };
        let mode = file.borrow().mode;
        let bits = if self.owns(at, file) { mode >> 6 } else { mode };
        self.players[at].user == 0 || bits & want == want
    }

    /// Whether he may make and remove names where this one is.
    pub(super) fn may_change_in(&self, at: usize, path: &[u8]) -> bool {
        self.players[at].user == 0 || self.owns_directory(at, above(path))
    }

    fn owns_directory(&self, at: usize, path: &[u8]) -> bool {
        let is_his = |owner: u32| owner == self.players[at].user;
        matches!(self.model.0.get(path), Some(Node::Directory(owner)) if is_his(*owner))
    }

    /// Whether his user may do this, if it can be done at all.
    pub(super) fn may(&self, at: usize, request: &Request<'_>) -> bool {
        match request {
            Request::MakeDirectory { path, .. }
            | Request::MakeLink { path, .. }
            | Request::MakeNode { path, .. }
            | Request::Link { path, .. }
            | Request::RemoveDirectory(path)
            | Request::Unlink(path) => self.may_change_in(at, path),
            Request::Rename { from, to, .. } => {
                // Its entry for the directory above changes.
                let moves = matches!(self.model.0.get(*from), Some(Node::Directory(_)))
                    && above(from) != above(to);
                let own = self.players[at].user == 0 || self.owns_directory(at, from);
                let both = self.may_change_in(at, from) && self.may_change_in(at, to);
                both && (own || !moves)
            }
            _ => true,
        }
    }
}
