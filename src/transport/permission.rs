//! What permission bits let this process's user do. Not here: privileges, ACLs, and whose bits are
//! looked at when.

use terral_format::message::Attributes;

/// A user, and the groups he is in.
#[derive(Clone, Debug)]
pub struct Person {
    user: u32,
    groups: Vec<u32>,
}

impl Person {
    /// Whom this process acts as.
    pub fn effective() -> Person {
        // SAFETY: these always succeed.
        Person::of(unsafe { libc::geteuid() }, unsafe { libc::getegid() })
    }

    /// Who started it, for access(2).
    pub fn real() -> Person {
        // SAFETY: these always succeed.
        Person::of(unsafe { libc::getuid() }, unsafe { libc::getgid() })
    }

    fn of(user: u32, group: u32) -> Person {
        // SAFETY: without room, getgroups only counts.
        let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
        let mut groups = vec![0; count.max(0) as usize];
        // SAFETY: there is room for as many as it is told.
        let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        groups.truncate(count.max(0) as usize);
        groups.push(group);
        Person { user, groups }
    }

    /// Whether nothing is refused to him.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Whether he may do to what is his own what only its owner may.
    pub fn owns(&self, what: &Attributes) -> bool {
        self.is_root() || what.uid == self.user
    }

    /// Whether he is in a group.
    pub fn is_in(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }

    /// Whether the bits let him do all that is wanted: read 4, write 2, execute or search 1.
    pub fn may(&self, what: &Attributes, wanted: u32) -> bool {
        let shift = match () {
            () if self.is_root() => return true,
            () if what.uid == self.user => 6,
            () if self.is_in(what.gid) => 3,
            () => 0,
        };
        what.mode >> shift & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::Ino;
    use terral_format::message::{Attributes, Kind};

    use super::Person;

    #[test]
    fn the_first_class_that_fits_decides() {
        let what = |uid, gid, mode| Attributes {
            ino: Ino(1),
            kind: Kind::File,
            mode,
            links: 1,
            uid,
            gid,
            size: 0,
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
        };
        let person = Person { user: 5, groups: vec![7, 8] };
        assert!(person.may(&what(5, 7, 0o600), 6) && !person.may(&what(5, 7, 0o077), 4));
        assert!(person.may(&what(1, 8, 0o050), 5) && !person.may(&what(1, 8, 0o707), 4));
        assert!(person.may(&what(1, 1, 0o003), 3) && !person.may(&what(1, 1, 0o774), 1));
        assert!(person.owns(&what(5, 1, 0)) && !person.owns(&what(1, 7, 0)));
        let root = Person { user: 0, groups: vec![0] };
        assert!(root.may(&what(1, 1, 0), 7) && root.owns(&what(1, 1, 0)));
    }
}
