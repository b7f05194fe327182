//! Values on where new bytes are, one of each kind.

use terral_format::ids::Member;
use terral_format::wire::message::{OpenHow, Request};
use terral_format::wire::placement::{Layout, LayoutPolicy, Placement, Stripe};

use crate::golden_values;

/// Those on where new bytes are.
pub fn requests() -> Vec<Request<'static>> {
    vec![
        Request::Layout("out/*", Some(Layout::Here)),
        Request::Layout("out/*", Some(Layout::One(Member::LEAST))),
        Request::Layout("out/*", None),
        Request::Role { member: Member::LEAST, stores: true },
        Request::Choose,
        Request::Open {
            path: b"out",
            how: OpenHow { create: true, on: Some(Member::LEAST), ..OpenHow::default() },
        },
    ]
}

/// Where the parts of a file lie.
pub fn stripe() -> Stripe {
    Stripe { over: vec![Member::LEAST, golden_values::far_lock().owner.by], chunks: 290 }
}

/// Where new bytes are.
pub fn placement() -> Placement {
    let one = |pattern: &str, layout| LayoutPolicy { pattern: pattern.to_owned(), layout };
    let layouts = vec![
        one("a/*", Layout::LeastLoaded),
        one("b", Layout::One(Member::LEAST)),
        one("c", Layout::Stripe { count: 291, chunks: 292 }),
    ];
    Placement { storage: Some(vec![Member::LEAST]), layouts }
}
