//! Objects that this server is to have for programs of other machines. Not here: which machine that
//! is, and in which order (the client library).

use terral_client::objects::{Address, Container, ObjectId};
use terral_client::{Client, as_person};
use terral_format::ids::Number;
use terral_format::wire::far::Done;
use terral_format::wire::placed::{COPIED_MAX, Placed, Placing};
use terral_format::{Error, ErrorKind, Result};

/// Has it, as a program of this machine would.
pub(crate) fn carry_out(client: &Client, what: Placing, bytes: &[u8]) -> Result<Done> {
    let Placed { container, id, person } = Placed::read(bytes)?;
    let id = ObjectId(id);
    as_person(person, || match what {
        Placing::Create { mode } => {
            let object = Container::known(client, &container, mode).create_object(id)?;
            let number = Number::new(client.member(), object.file().ino().0);
            object.close()?;
            let none = || Error::new(ErrorKind::Malformed, "number of an object");
            number.map(Done::Placed).ok_or_else(none)
        }
        Placing::Copy { of, at, bytes } => {
            let container = Container::at(client, &container)?;
            let bytes = (at, bytes.min(COPIED_MAX));
            container.copy_here(Address { server: of, id }, bytes).map(|()| Done::Done)
        }
    })
}
