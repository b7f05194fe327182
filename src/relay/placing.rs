//! Objects and files that this server is to have for programs of other machines. Not here: which
//! machine that is, and in which order (the client library, and the server that asks).

use terral_client::objects::{Address, Container, ObjectId};
use terral_client::{Client, File, OpenHow, access, as_person};
use terral_format::ids::Number;
use terral_format::wire::far::Done;
use terral_format::wire::placed::{COPIED_MAX, Placed, Placing};
use terral_format::{Error, ErrorKind, Result};

fn number_of(client: &Client, file: &File) -> Result<Done> {
    let none = || Error::new(ErrorKind::Malformed, "number of what was created");
    Number::new(client.member(), file.ino().0).map(Done::Placed).ok_or_else(none)
}

/// Has it, as a program of this machine would.
pub(crate) fn carry_out(client: &Client, what: Placing, bytes: &[u8]) -> Result<Done> {
    let Placed { container, id, person } = Placed::read(bytes)?;
    let id = ObjectId(id);
    as_person(person, || match what {
        Placing::Create { mode } => {
            let object = Container::known(client, &container, mode).create_object_here(id)?;
            let number = number_of(client, object.file());
            object.close().and(number)
        }
        Placing::File { mode, .. } => {
            let how = OpenHow {
                access: access::READ as u8,
                create: true,
                exclusive: true,
                mode,
                on: Some(client.member()),
                ..OpenHow::default()
            };
            let file = client.open(&container, how)?;
            let number = number_of(client, &file);
            file.close();
            number
        }
        Placing::Copy { of, at, bytes } => {
            let container = Container::at(client, &container)?;
            let bytes = (at, bytes.min(COPIED_MAX));
            container.copy_here(Address { server: of, id }, bytes).map(|()| Done::Done)
        }
    })
}
