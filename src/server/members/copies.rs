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
    /// What a directory looks like, and its names.
    Directory(Attributes, BTreeMap<Vec<u8>, Child>),
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
                let Directory { attributes, names } = Directory::of(body)?;
                let names = names.into_iter().map(|child| (child.name.clone(), child));
                Copy::Directory(attributes, names.collect())
            }
            _ => Copy::Node(Node::of(body)?.attributes),
        })
    }

    /// What it looks like.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it was no more.
    pub fn attributes(&self) -> Result<&Attributes> {
        match self {
            Copy::Gone => Err(Error::new(ErrorKind::NotFound, "it is gone")),
            Copy::Directory(attributes, _) | Copy::Node(attributes) => Ok(attributes),
        }
    }

    /// How a look at it ends.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it was no more.
    pub fn seen(&self, look: &Look) -> Result<Outcome> {
        let attributes = *self.attributes()?;
        let Copy::Directory(_, names) = self else { return Ok(Outcome::Attributes(attributes)) };
        Ok(match look {
            Look::Attributes => Outcome::Attributes(attributes),
            Look::Name(name) => Outcome::Name(names.get(name).cloned()),
            Look::Step(name) => Outcome::Step(attributes, names.get(name).cloned()),
            Look::Names(after) => {
                let after = (Bound::Excluded(after.as_slice()), Bound::Unbounded);
                let names = names.range::<[u8], _>(after).map(|(_, child)| child.clone());
                Outcome::Names(names.collect(), true)
            }
        })
    }
}
