//! What has which number in the partition. What was born here has that of its place in the tables;
//! only of what was born elsewhere must something be remembered.

use std::collections::BTreeMap;

use terral_format::ids::{Ino, Member, Number, ROOT};

/// See the module.
pub struct Numbers {
    me: Member,
    places: BTreeMap<Number, Ino>,
    numbers: BTreeMap<Ino, Number>,
}

impl Numbers {
    /// Those of a member of a partition whose root was born there.
    pub fn new(me: Member, root: Member) -> Self {
        let mut numbers = Numbers { me, places: BTreeMap::new(), numbers: BTreeMap::new() };
        if let Some(number) = Number::new(root, ROOT.0).filter(|_| root != me) {
            numbers.born(ROOT, number);
        }
        numbers
    }

    /// This member.
    pub fn me(&self) -> Member {
        self.me
    }

    /// What was born elsewhere has a place here.
    pub fn born(&mut self, ino: Ino, number: Number) {
        self.places.insert(number, ino);
        self.numbers.insert(ino, number);
    }

    /// It has none any more.
    pub fn forgotten(&mut self, ino: Ino) {
        if let Some(number) = self.numbers.remove(&ino) {
            self.places.remove(&number);
        }
    }

    /// The number of what is in this place.
    pub fn of(&self, ino: Ino) -> Option<Number> {
        self.numbers.get(&ino).copied().or_else(|| Number::new(self.me, ino.0))
    }

    /// Its place, if it has one, or would have if it still is.
    pub fn place(&self, number: Number) -> Option<Ino> {
        let own = (number.born() == self.me).then(|| Ino(number.counted()));
        self.places.get(&number).copied().or(own)
    }

    /// All that were born elsewhere.
    pub fn foreign(&self) -> impl Iterator<Item = (Ino, Number)> + '_ {
        self.numbers.iter().map(|(ino, number)| (*ino, *number))
    }
}
