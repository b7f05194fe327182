//! Whether what a member answers is an answer to what it was asked: who says anything else is heard
//! no more. Not here: what is done with it (`role`).

use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::placed::Placing;

/// Whether that is an answer to this.
pub(super) fn fits(act: &Act, done: Done, bytes: usize) -> bool {
    match act {
        Act::Open
        | Act::Close
        | Act::Lost { .. }
        | Act::Truncate { .. }
        | Act::Lock(_)
        | Act::Wrote { .. }
        | Act::Merge { .. }
        | Act::Place(Placing::Copy { .. })
        | Act::Took { .. } => done == Done::Done,
        Act::Offer { .. } | Act::Accept { .. } => match done {
            Done::Offered { bytes, .. } => u64::from(bytes) <= CHUNK_BYTES,
            done => matches!(done, Done::Lent { count: 1, .. } | Done::Unknown),
        },
        Act::Return { .. } => matches!(done, Done::Done | Done::Stays),
        Act::Kept { .. } => matches!(done, Done::Lent { count: 1, .. } | Done::Unknown),
        Act::WriteMapped { .. } | Act::Take { .. } => {
            matches!(done, Done::Done | Done::Unknown)
        }
        Act::Borrow { count: most, .. } => match done {
            Done::Lent { count, .. } => (1..=*most).contains(&count),
            done => done == Done::Unknown,
        },
        Act::Grow { .. } => matches!(done, Done::Done | Done::Unknown),
        Act::GiveBack { bytes: most, .. }
        | Act::ReadPart { bytes: most, .. }
        | Act::ReadMapped { bytes: most, .. } => match done {
            Done::Read => bytes <= *most as usize,
            done => done == Done::Unknown && bytes == 0,
        },
        Act::TestLock(_) => match done {
            Done::Held(held) => held.range.is_sane(),
            done => done == Done::Done,
        },
        Act::Read { bytes: most, direct, .. } => match done {
            Done::With { .. } => *direct && bytes == 0,
            done => done == Done::Read && bytes <= *most as usize,
        },
        Act::Write { .. } => matches!(done, Done::Written(_)),
        Act::Recall { .. } => matches!(done, Done::Written(_) | Done::Unknown),
        Act::Fencing(..) => matches!(done, Done::Fenced(_)),
        // Whose it is, is looked at where it is opened.
        Act::Place(Placing::Create { .. } | Placing::File { .. }) => {
            matches!(done, Done::Placed(_))
        }
        Act::Update(..) => matches!(done, Done::Updated(_)),
        Act::IsOpen => matches!(done, Done::Done | Done::Open),
    }
}
