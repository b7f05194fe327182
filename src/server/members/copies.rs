//! What other members have shown, as it is looked at: read once, when it comes.

use std::collections::BTreeMap;
use std::ops::Bound;

use terral_format::ids::Thing;
use terral_format::wire::attributes::Attributes;
use terral_format::wire::body::Body;
use terral_format::wire::things::{Child, Directory, Look, Node, Outcome};
use terral_format::{Error, ErrorKind, Result};

/// One thing.
#[derive(Clone, Debug)]
pub enum Copy {
    /// It was no more when it was shown.
    Gone,
    /// A directory.
    Directory {
        /// What it looks like.
        attributes: Attributes,
        /// Names in it.
        names: BTreeMap<Vec<u8>, Child>,
        /// Others may be in the permanent store, which nobody has asked for yet.
        some: bool,
    },
    /// What anything else looks like.
    Node(Attributes),
}

impl Copy {
    /// What a body says that another member has sent.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for what no member sends.
    pub fn of(thing: Thing, body: &Body) -> Result<Self> {
        if body.bytes().is_empty() {
            return Ok(Copy::Gone);
        }
        Ok(match thing {
            Thing::Directory(_) => {
                let Directory { attributes, names, whole } = Directory::of(body)?;
                let names = names.into_iter().map(|child| (child.name.clone(), child)).collect();
                Copy::Directory { attributes, names, some: !whole }
            }
            _ => Copy::Node(Node::of(body)?.attributes),
        })
    }

    /// Names of which this is true are to be looked for.
    pub fn forget(&mut self, is: impl Fn(&Child) -> bool) {
        let Copy::Directory { names, some, .. } = self else { return };
        let before = names.len();
        names.retain(|_, child| !is(child));
        *some |= names.len() < before;
    }

    /// Whether it has a name of which this is true.
    pub fn has(&self, is: impl Fn(&Child) -> bool) -> bool {
        self.names().is_some_and(|names| names.values().any(is))
    }

    /// What it looks like.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it was no more.
    pub fn attributes(&self) -> Result<&Attributes> {
        match self {
            Copy::Gone => Err(Error::new(ErrorKind::NotFound, "it is gone")),
            Copy::Directory { attributes, .. } | Copy::Node(attributes) => Ok(attributes),
        }
    }

    /// How a look at it ends, if it says that: one that has some names says of no other that it is
    /// missing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it was no more.
    pub fn seen(&self, look: &Look) -> Result<Option<Outcome>> {
        let attributes = *self.attributes()?;
        let Copy::Directory { names, some, .. } = self else {
            let says =
                matches!(look, Look::Attributes | Look::Name(_) | Look::Names(_) | Look::Step(_));
            return Ok(says.then_some(Outcome::Attributes(attributes)));
        };
        let child = |name: &[u8]| Some(names.get(name).cloned());
        let says = |child: &Option<Child>| child.is_some() || !some;
        Ok(match look {
            Look::Attributes => Some(Outcome::Attributes(attributes)),
            Look::Name(name) => child(name).filter(says).map(Outcome::Name),
            Look::Step(name) => {
                child(name).filter(says).map(|child| Outcome::Step(attributes, child))
            }
            Look::Xattr(_) | Look::XattrNames(_) => None,
            Look::Safety | Look::Server { .. } | Look::Waits => None,
            Look::Verify(_) | Look::Revoked | Look::Issue(..) | Look::Authorize(_) => None,
            Look::Decided(_) | Look::Doubts | Look::Adopt(..) => None,
            Look::Names(_) if *some => None,
            Look::Names(after) => {
                let after = (Bound::Excluded(after.as_slice()), Bound::Unbounded);
                let names = names.range::<[u8], _>(after).map(|(_, child)| child.clone());
                Some(Outcome::Names(names.collect(), true))
            }
        })
    }

    /// What a name in it stands for, as far as it says that.
    pub fn child(&self, name: &[u8]) -> Option<&Child> {
        self.names()?.get(name)
    }

    /// What comes after a name in it, in order.
    pub fn after(&self, name: &[u8]) -> impl Iterator<Item = &Child> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        self.names().into_iter().flat_map(move |names| names.range::<[u8], _>(after)).map(|it| it.1)
    }

    /// What comes before it.
    pub fn before(&self, name: &[u8]) -> Option<&Child> {
        let before = (Bound::Unbounded, Bound::Excluded(name));
        self.names()?.range::<[u8], _>(before).next_back().map(|it| it.1)
    }

    fn names(&self) -> Option<&BTreeMap<Vec<u8>, Child>> {
        match self {
            Copy::Directory { names, .. } => Some(names),
            Copy::Gone | Copy::Node(_) => None,
        }
    }

    /// Who has shown it has found a name that it did not have.
    pub fn learns(&mut self, outcome: Outcome) {
        let Copy::Directory { names, .. } = self else { return };
        if let Outcome::Name(Some(child)) | Outcome::Step(_, Some(child)) = outcome {
            names.insert(child.name.clone(), child);
        }
    }
}
