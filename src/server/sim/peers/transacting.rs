//! Transactions where there are several machines: refused, by each of them, and nothing is done.

use terral_format::wire::message::Request;
use terral_format::wire::transactions::Operation;
use terral_format::{ErrorKind, frame};

use super::Peers;

#[test]
fn where_there_are_several_machines_a_transaction_is_refused_and_does_nothing() {
    let mut peers = Peers::with_dir(62, 3);
    peers.make_directory(0, b"d").expect("made");
    let makes = |name: &'static [u8]| Operation::MakeDirectory { path: name, mode: 0o755 };
    for at in 0..3 {
        let encoded = frame::encode(&[makes(b"new"), makes(b"d/new")]).expect("it is short");
        let refused = peers.ask(at, Request::Transact(&encoded)).expect_err("there are others");
        assert_eq!(refused.kind, ErrorKind::Unsupported, "{refused}");
        for path in [&b"new"[..], b"d/new"] {
            let missing = peers.stat(at, path).expect_err("it was not made");
            assert_eq!(missing.kind, ErrorKind::NotFound, "{missing}");
        }
    }
}
