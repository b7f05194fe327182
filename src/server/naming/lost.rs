//! Files whose bytes only a member had that was removed, by the names that are known here.
//!
//! Not here: directories that such a member had (`sharing/restoring`).

use terral_format::ids::{Ino, Member};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::wire::status::{Losses, LostFile};
use terral_store::backing::Found;

use crate::core::state::State;
use crate::naming::homes;

/// Most files that are told one by one.
const TOLD: usize = 1000;

/// Whose something is, if it was born on another member, and is no directory.
fn home_of(state: &State, inode: &Inode) -> Option<Member> {
    let members = state.members.as_ref()?;
    let number = members.number(inode.ino).filter(|_| !inode.is_directory())?;
    Some(number.born()).filter(|home| *home != members.me())
}

/// Whether only a dead member had it, and there is a permanent store that may have it, too.
pub fn is_lost(state: &State, ino: Ino) -> bool {
    let Some(members) = state.members.as_ref().filter(|members| members.has_lost()) else {
        return false;
    };
    let home = state.names.inode(ino).and_then(|inode| home_of(state, &inode));
    homes::decide(state) && home.is_some_and(|home| members.is_dead(home))
}

/// Whether what the permanent store has there looks as it was last seen, as far as it is known
/// here, or nobody has looked.
pub fn is_as_seen(state: &State, ino: Ino, found: &Found, target: &[u8]) -> bool {
    let Some(inode) = state.names.inode(ino).filter(|inode| inode.kind == found.attributes.kind)
    else {
        return false;
    };
    let is = &found.attributes;
    match inode.kind {
        Kind::Symlink => state.names.target(ino).as_deref() == Some(target),
        Kind::File => {
            !is_seen(&inode) || (inode.size, inode.modified_ns) == (is.size, is.modified_ns)
        }
        _ => true,
    }
}

fn is_seen(inode: &Inode) -> bool {
    inode.changed_ns != 0
}

/// What went with members that were removed, as far as it is known here.
pub fn losses(state: &State) -> Losses {
    let Some(members) = state.members.as_ref().filter(|members| members.has_lost()) else {
        return Losses::default();
    };
    let shown = |path: Vec<u8>| format!("/{}", String::from_utf8_lossy(&path));
    let path = |ino| state.names.path(ino).map(shown);
    let (mut files, mut count) = (Vec::new(), 0);
    let named = |inode: &Inode| inode.is(flag::NAMED) && inode.kind == Kind::File;
    for inode in state.names.inodes().filter(named) {
        // Its home, or who had a part of it.
        let parts = inode.slot.map(|slot| state.storage.away(slot)).unwrap_or_default();
        let mut having = home_of(state, &inode).into_iter().chain(parts.iter().map(|part| part.1));
        // What one that has left in order had is in the permanent store.
        let is_there = |member: &Member| state.backing.is_some() && members.has_left(*member);
        let home = having.find(|member| members.is_removed(*member) && !is_there(member));
        let Some((of, path)) = home.zip(path(inode.ino)) else { continue };
        count += 1;
        if files.len() < TOLD {
            let (seen, modified_ns) = (is_seen(&inode), inode.modified_ns);
            files.push(LostFile { path, of, size: seen.then_some(inode.size), modified_ns });
        }
    }
    let restored = members.restored().filter(|(_, of)| !members.has_left(*of));
    let restored = restored.filter_map(|(ino, of)| Some((path(ino)?, of))).collect();
    Losses { files, count, restored }
}
