//! What clients may look at by themselves, in the tables of any server, is what the one namespace
//! has: also where another server has it, or may, and has let them look.

use std::sync::atomic::Ordering;

use terral_format::ids::{Ino, Member, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;

use super::Peers;
use super::tree::Tree;
use crate::core::state::State;

/// Looks as clients do, at all they may. Gives at how many directories only as they are marked so.
pub(super) fn are_true(peers: &mut Peers, tree: &mut Tree) -> usize {
    let mut look = |sim: &mut crate::sim::Sim| {
        sim.with(|server| {
            let state = server.lock();
            let mut look = Look { state: &state, tree: &mut *tree, marked: 0 };
            look.at(ROOT, &[]);
            look.marked
        })
    };
    peers.sims.iter_mut().map(|sim| look(sim).unwrap_or_default()).sum()
}

struct Look<'s> {
    state: &'s State,
    tree: &'s mut Tree,
    marked: usize,
}

impl Look<'_> {
    /// Whether clients look at this by themselves.
    fn may(&self, inode: &Inode) -> bool {
        let until = self.state.storage.memory().deadline().load(Ordering::SeqCst);
        let is_leased = self.state.world.now().0 < until;
        let lets_look = inode.is(flag::SHOWN) || inode.is(flag::BORROWED) && is_leased;
        !inode.is(flag::ELSEWHERE) || lets_look
    }

    /// The member that clients here see.
    fn here(&self) -> Member {
        Member::of_word(self.state.storage.memory().member().load(Ordering::SeqCst))
    }

    fn at(&mut self, directory: Ino, path: &[u8]) {
        let inode = self.state.names.inode(directory).filter(|inode| self.may(inode));
        let Some(inode) = inode else { return };
        self.marked += usize::from(inode.is(flag::ELSEWHERE));
        let says = || format!("{} of {path:?}", self.state.members.as_ref().expect("one").me());
        let is = self.tree.node(path).unwrap_or_else(|error| panic!("{}: {error:?}", says()));
        assert!(is.directory, "{}", says());
        match directory {
            ROOT => assert_eq!(inode.number(self.here()).word(), ROOT.0, "{}", says()),
            _ => assert_eq!(u32::from(inode.mode), is.mode, "{}", says()),
        }
        let names: Vec<_> = self.state.names.children(&inode).collect();
        let all = self.tree.names(path).expect("a directory");
        if inode.flags & (flag::OVERLAY | flag::BORROWED) == 0 {
            assert_eq!(names.len(), all.len(), "{} has {all:?}", says());
        }
        for (name, child) in names {
            let kind = all.get(&name).unwrap_or_else(|| panic!("{} has no {name:?}", says()));
            assert_eq!(*kind, child.kind == Kind::Directory, "{}: {name:?}", says());
            let below = if path.is_empty() { name } else { [path, b"/", &name].concat() };
            self.tree.has_number(&below, child.number(self.here()));
            if *kind {
                self.at(child.ino, &below);
            } else if self.may(&child) {
                self.marked += usize::from(child.is(flag::ELSEWHERE));
                let is = self.tree.node(&below).map(|node| (node.mode, node.links));
                let seen = (u32::from(child.mode), child.links);
                assert_eq!(Ok(seen), is, "{}: {below:?}", says());
            }
        }
    }
}
