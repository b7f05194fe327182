//! A user's server adopts what is his in a directory of root's, as root's server asks it to: it
//! looks there itself, with its user's rights.
//!
//! Invariant: what it says is its own is its user's, in the permanent store, by the way that root's
//! server names: nobody else has it do that. Not here: who asks (`naming/adopting`).

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number, ROOT, Thing};
use terral_format::wire::attributes::Kind;
use terral_format::wire::things::{Child, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::{elsewhere, exchanging, lookup};
use crate::sharing::bodies;

/// Has a name adopted in the directory that these lead to.
///
/// # Errors
/// If it must wait for the store; [`ErrorKind::Denied`] if it is not this server's user's;
/// [`ErrorKind::NotFound`].
pub fn adopt(state: &mut State, way: &[(Number, Vec<u8>)], name: &[u8]) -> Result<Outcome> {
    let denied = || Error::new(ErrorKind::Denied, format!("{}: not this user's", shown(name)));
    let members = state.members.as_ref();
    let user = members.and_then(|members| Some(members.user_of(members.me())?.user));
    let user = user.ok_or_else(denied)?;
    let parent = directory(state, way)?;
    let ino = match known(state, parent, name) {
        Some(ino) => ino,
        None => {
            let missing = || Error::new(ErrorKind::NotFound, shown(name));
            let (found, target) = lookup::look_there(state, parent, name)?.ok_or_else(missing)?;
            if found.attributes.uid != user {
                return Err(denied());
            }
            state.names.reserve()?;
            if state.names.child_here(parent, name).is_some() {
                // What was heard of it before.
                state.record(Membership::Unnamed { parent, name: name.into() });
            }
            lookup::adopt_as(state, (parent, name), (found, target))
        }
    };
    let inode = state.names.inode(ino).ok_or_else(denied)?;
    let looks = state.attributes(ino).ok_or_else(denied)?;
    Ok(Outcome::Step(looks, bodies::told(state, name.into(), &inode)))
}

/// What has the name here, if it was born here, or at one whose heir this is.
fn known(state: &State, parent: Ino, name: &[u8]) -> Option<Ino> {
    let members = state.members.as_ref()?;
    let ino = state.names.child_here(parent, name)?;
    let decides = |number: &Number| {
        let decider = members.decider(Thing::File(*number));
        decider == Some(members.me()) && members.is_ours(number.born())
    };
    members.number(ino).filter(|number| members.is_born_here(*number) || decides(number))?;
    Some(ino)
}

/// The directory that these lead to, as whoever has them says.
fn directory(state: &mut State, way: &[(Number, Vec<u8>)]) -> Result<Ino> {
    let mut at = ROOT;
    for (number, name) in way {
        let text = Vec::new();
        let child = Child { name: name.clone(), number: *number, kind: Kind::Directory, text };
        let ino = elsewhere::place(state, &child)?;
        exchanging::is_named(state, ino, (at, name.clone()));
        at = ino;
    }
    Ok(at)
}
