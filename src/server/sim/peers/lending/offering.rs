//! Chunks that are offered to be mapped elsewhere, and written to meanwhile.

use terral_format::frame;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{Reply, Request};

use super::{Handled, Peers, Shared};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::far::asking::number_of;
use crate::far::giving_back::loan_of;

/// A chunk that is offered to be mapped is written to at its home once all of it has come, and
/// before that has heard so. Gives what who maps it is told.
fn written_before_it_is_accepted() -> Reply {
    let mut shared = Shared::new(7);
    shared.write(0, 0, &[1; 100]);
    let (of, ino) = (shared.open[1].handle(), shared.open[1].file.ino);
    let asked = Request::Far(FarFile::Map { of, index: 0, stores: true });
    let taken = shared.peers.sims[1].asking(shared.peers.clients[1], asked).expect("encodes");
    let session = shared.peers.sims[1].clients[shared.peers.clients[1]].session;
    let has_come = |peers: &mut Peers| {
        peers.sims[1].with(|server| {
            let state = server.lock();
            let loan = number_of(&state, ino).and_then(|file| loan_of(&state, file));
            loan.is_some_and(|loan| state.storage.memory().entry(loan.slot, 0).is_borrowed())
        })
    };
    let mut is_written = false;
    loop {
        if let Some(Handled::Answer(reply)) = shared.peers.handle(1, session, &taken) {
            assert!(is_written, "it has come before");
            return frame::decode(&reply).expect("an answer");
        }
        if !is_written && has_come(&mut shared.peers) == Some(true) {
            shared.write(0, 0, &[2; 100]);
            is_written = true;
        }
        shared.peers.carry();
    }
}

#[test]
fn what_was_written_before_its_loan_is_accepted_stays_where_it_was() {
    assert_eq!(written_before_it_is_accepted(), Reply::Again);
    let flawed = without(Step::CompareOffers, written_before_it_is_accepted);
    assert!(matches!(flawed, Reply::Lent(_)));
}
