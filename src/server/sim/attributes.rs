//! Extended attributes: how many there may be, and when the permanent store is asked for them.

use std::time::Duration;

use terral_format::wire::message::{Reply, Request, Target, XattrHow};
use terral_format::{ErrorKind, Result};

use super::Sim;
use super::client::CREATE;
use super::faults::Fault;

const FILE: Target<'static> = Target::Path(b"file");

fn set(sim: &mut Sim, name: &[u8], bytes: usize) -> Option<ErrorKind> {
    let (value, how) = (&*vec![1; bytes], XattrHow::Any);
    let asked = Request::SetXattr { target: FILE, name, value: Some(value), how };
    sim.ask(0, asked).err().map(|error| error.kind)
}

fn get(sim: &mut Sim) -> Result<Reply> {
    sim.ask(0, Request::Xattr { target: FILE, name: b"user.a" })
}

#[test]
fn a_value_that_is_replaced_does_not_count() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    sim.open(one, b"file", CREATE).expect("an empty store");
    // 64 KiB with their names.
    for name in [b"user.1", b"user.2", b"user.3", b"user.4", b"user.5", b"user.6", b"user.7"] {
        assert_eq!(set(&mut sim, name, 8192), None);
    }
    assert_eq!(set(&mut sim, b"user.8", 8192 - 8 * 6), None);
    assert_eq!(set(&mut sim, b"user.1", 8192), None);
    assert_eq!(set(&mut sim, b"user.8", 8192 - 8 * 6 + 1), Some(ErrorKind::NoSpace));
    assert_eq!(set(&mut sim, b"user.9", 0), Some(ErrorKind::NoSpace));
}

#[test]
fn a_file_of_which_the_store_said_that_it_has_none_is_not_asked_for_again() {
    let mut sim = Sim::new(1);
    sim.dir.put(b"file", b"bytes").expect("an empty store");
    sim.connect();
    assert_eq!(get(&mut sim).expect_err("has none").kind, ErrorKind::NoData);
    sim.faults.begin(Fault::Away, Duration::from_secs(5));
    assert_eq!(get(&mut sim).expect_err("has none").kind, ErrorKind::NoData);
    sim.kill();
    assert_eq!(get(&mut sim).expect_err("has none").kind, ErrorKind::NoData);
}
