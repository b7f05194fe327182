//! What permission bits let a person do. Not here: privileges other than root's, ACLs, and whose
//! bits are looked at when.

use crate::wire::message::Attributes;
use crate::wire::person::Person;

impl Person {
    /// Whether he may do to what is his own what only its owner may.
    pub fn owns(&self, what: &Attributes) -> bool {
        self.is_root() || what.uid == self.user
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
    use crate::ids::Ino;
    use crate::wire::message::{Attributes, Kind};
    use crate::wire::person::Person;

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
        let person = Person { user: 5, group: 7, groups: vec![8] };
        assert!(person.may(&what(5, 7, 0o600), 6) && !person.may(&what(5, 7, 0o077), 4));
        assert!(person.may(&what(1, 8, 0o050), 5) && !person.may(&what(1, 8, 0o707), 4));
        assert!(person.may(&what(1, 7, 0o050), 5) && !person.may(&what(1, 7, 0o707), 4));
        assert!(person.may(&what(1, 1, 0o003), 3) && !person.may(&what(1, 1, 0o774), 1));
        assert!(person.owns(&what(5, 1, 0)) && !person.owns(&what(1, 7, 0)));
        let root = Person::default();
        assert!(root.may(&what(1, 1, 0), 7) && root.owns(&what(1, 1, 0)));
    }
}
