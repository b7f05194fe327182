//! What every endpoint must do, told through its trait alone. A promise that is broken panics, and
//! so does one that is not kept in time.
//!
//! Each rule is a test of its own: `endpoint_conforms!` makes them for an implementation.

pub(crate) mod crowd;

pub mod flow;
pub mod frames;
pub mod members;
pub mod sessions;

use std::time::Duration;

use terral_format::ids::{Member, ServerId};

use crate::endpoint::{Endpoint, Peer, Timing};

/// Where members of an implementation meet.
pub trait Stage {
    /// The implementation.
    type Endpoint: Endpoint;

    /// A member's process starts. Dropped, it is no more.
    fn start(&mut self, member: Member, server: ServerId) -> Self::Endpoint;

    /// How others are told of a member that was started.
    fn peer(&self, member: Member, server: ServerId) -> Peer;

    /// By what all of them go.
    fn timing(&self) -> Timing;

    /// A member's process stops for so long. Nobody calls its endpoint meanwhile.
    fn freeze(&mut self, member: Member, time: Duration);
}

/// Makes a test of each rule for the [`Stage`] that an expression makes.
#[macro_export]
macro_rules! endpoint_conforms {
    ($make:expr) => {
        $crate::endpoint_conforms!(@ $make;
            sessions: two_who_want_each_other_get_one_session;
            sessions: one_who_wants_gets_a_session;
            sessions: an_idle_session_stays;
            sessions: who_cuts_a_session_and_who_is_cut_hear_it_once;
            sessions: a_new_session_has_a_greater_number_and_nothing_of_the_old;
            sessions: who_dies_is_lost_and_the_next_process_gets_a_session;
            sessions: who_is_frozen_is_lost_and_comes_again;
            sessions: next_ends_at_its_time;
            members: who_was_not_admitted_gets_no_session;
            members: nobody_has_a_session_with_itself;
            members: another_server_in_a_members_place_gets_no_session;
            members: who_is_expelled_is_lost_and_stays_out;
            members: a_members_new_server_takes_the_place_of_the_old;
            frames: frames_come_in_order_once_and_unchanged;
            frames: frames_of_any_length_come_and_longer_ones_are_refused;
            frames: a_frame_that_lies_in_parts_comes_whole;
            frames: what_comes_of_a_cut_session_is_its_beginning;
            flow: who_sends_without_end_is_told_full_and_then_room;
            flow: who_sends_what_goes_now_leaves_room_for_what_is_short;
            flow: a_busy_peer_does_not_starve_another;
        );
    };
    (@ $make:expr; $($room:ident: $rule:ident;)*) => {
        $(
            #[test]
            fn $rule() {
                $make.into_iter().for_each($crate::conformance::$room::$rule);
            }
        )*
    };
}
