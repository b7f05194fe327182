//! Objects that this server is to have for programs of other machines. Not here: which machine that
//! is, and in which order (the client library).

use terral_client::objects::{Address, Container, ObjectId};
use terral_client::{Client, as_person};
use terral_format::Result;
use terral_format::wire::placed::{COPIED_MAX, Placed, Placing};

/// Has it, as a program of this machine would.
pub(crate) fn carry_out(client: &Client, what: Placing, bytes: &[u8]) -> Result<()> {
    let Placed { container, id, person } = Placed::read(bytes)?;
    let id = ObjectId(id);
    as_person(person, || {
        let container = Container::at(client, &container)?;
        match what {
            Placing::Create => container.create_object(id)?.close(),
            Placing::Copy { of, at, bytes } => {
                container.copy_here(Address { server: of, id }, (at, bytes.min(COPIED_MAX)))
            }
        }
    })
}
