//! Members that the control removes: with one that is trusted with all go those for whom it
//! answers, as they are on its machine.
//!
//! Invariants: who goes together goes in one roster, with one verdict, and none of them is the heir
//! of another. A verdict becomes no less, and who leaves leaves for itself alone. Not here: who is
//! whose heir (`roles`), and who says that somebody is gone (`control`).

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::Member;
use terral_format::wire::roster::Roster;

use super::roles;

/// These are in no more, nor is whoever goes with them, where this member, which stays, says so.
/// Whether that is new of somebody.
pub(super) fn take_out(roster: &mut Roster, gone: &[(Member, Verdict)], me: Member) -> bool {
    let with = |(member, verdict): &(Member, Verdict)| match verdict {
        Verdict::Left => vec![(*member, *verdict)],
        Verdict::Dead | Verdict::Fenced => {
            let all = roles::goes_with(roster, *member).into_iter();
            all.map(|member| (member, *verdict)).collect()
        }
    };
    let gone: Vec<_> = gone.iter().flat_map(with).filter(|(member, _)| *member != me).collect();
    let lost: Vec<Member> = gone.iter().map(|(member, _)| *member).collect();
    let mut news = false;
    for (member, verdict) in gone {
        let heir = roles::heir(roster, (member, &lost), me);
        let seat = roster.seats.iter_mut().find(|seat| seat.member == member);
        let Some(seat) = seat else { continue };
        let heir = match seat.standing {
            Standing::In(_) => heir,
            Standing::Removed { heir, verdict: Verdict::Fenced } if verdict == Verdict::Dead => {
                heir
            }
            Standing::Removed { .. } => continue,
        };
        (seat.standing, news) = (Standing::Removed { heir, verdict }, true);
    }
    news
}
