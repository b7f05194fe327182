//! Steps of the protocol, in the server's transactions.

use terral_format::disk::membership::Membership;
use terral_format::ids::{Member, ROOT, ServerId};
use terral_format::wire::roster::Partition;
use terral_partition::effect::Input;

use crate::core::state::State;

/// This server becomes a member of a partition whose root was born there.
pub fn join(
    state: &mut State,
    (me, server): (Member, ServerId),
    root: Member,
    partition: Partition,
) {
    state.record(Membership::Joined { me, server, root, partition });
    if root != me {
        state.record(Membership::Elsewhere { ino: ROOT, is: true });
    }
    start(state);
}

/// After a replay, or when it has joined: this server begins to take part.
pub fn start(state: &mut State) {
    if let Some(mut members) = state.members.take() {
        members.start(state);
        state.members = Some(members);
    }
}

/// Something happened: to be called within a transaction.
pub fn tell(state: &mut State, input: Input) {
    let Some(mut members) = state.members.take() else { return };
    let records = members.handle(state, input);
    state.members = Some(members);
    records.into_iter().for_each(|record| state.note(record));
}
