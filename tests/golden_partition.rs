//! A value of every record of a server's part in the partition, for the golden file.

use terral_format::disk::partition::{
    Busy, Held, Hold, Kind, Line, Record, Request, Stage, Standing, Verdict, Wanted,
};
use terral_format::ids::{Epoch, Loan, Member, Number, Operation, ServerId, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Message, Work};

fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

fn thing(counted: u64) -> Thing {
    Thing::File(Number::new(member(301), counted).expect("50 bits"))
}

fn operation(number: u64) -> Operation {
    Operation { by: member(302), number }
}

fn loan(number: u64) -> Loan {
    Loan { by: member(303), number }
}

fn body(text: &[u8]) -> Body {
    Body::new(text).expect("not too long")
}

fn request() -> Request {
    let work = Work::Change(body(b"a"));
    Request { from: member(304), operation: operation(305), work, since: Moment(306) }
}

fn held() -> Held {
    let looked = true;
    Held { recalled: true, looked, ..Held::new(member(307), loan(308), Kind::Kept) }
}

fn holds() -> Vec<Hold> {
    let shown = |number| [(member(309), loan(number)), (member(310), loan(number + 1))].into();
    let here = |busy| Hold::Here { shown: shown(311), recalled: true, busy };
    vec![
        Hold::Lent { to: member(313), loan: loan(314), recalled: true },
        here(None),
        here(Some(Busy::Fetching)),
        here(Some(Busy::Serving(operation(315)))),
        Hold::Kept { by: shown(316), recalled: false, here: true },
        Hold::Lost(member(318)),
        Hold::Disputed(member(319)),
    ]
}

fn stages() -> Vec<Stage> {
    let asked =
        Stage::Asked { operation: operation(320), decider: member(321), since: Moment(322) };
    vec![Stage::Waiting, asked, Stage::Ready, Stage::Over(Ok(body(b"b")))]
}

/// Every record, and each of its forms.
pub fn records() -> Vec<Record> {
    let removed = Standing::Removed { heir: member(323), verdict: Verdict::Fenced };
    let left = Standing::Removed { heir: member(323), verdict: Verdict::Left };
    let said = Message::Recall { thing: thing(324), loan: loan(325) };
    let wanted = |stage| Wanted { thing: thing(326), work: Work::Look(body(b"c")), stage };
    let mut all = vec![
        Record::Epoch(Epoch(327)),
        Record::Stands(member(328), Some(Standing::In(ServerId(329)))),
        Record::Stands(member(330), Some(removed)),
        Record::Stands(member(331), None),
        Record::Stands(member(332), Some(left)),
        Record::Word(Moment(332)),
        Record::Operations(333),
        Record::Loans(334),
        Record::Said(member(335), said),
        Record::Acknowledged(member(336), 337),
        Record::Taken(member(338), 339),
        Record::Parted(member(340)),
        Record::Hold(thing(341), None),
        Record::Came(thing(342), Line::Queue, 343, request()),
        Record::Came(thing(344), Line::Asked, 345, request()),
        Record::Went(thing(346), Line::Queue, 347),
        Record::Changer(thing(348), member(349), Some(Moment(350))),
        Record::Changer(thing(351), member(352), None),
        Record::Awaited(member(353), thing(354), true),
        Record::Unheard(member(355), member(356), false),
        Record::Held(thing(357), Some(held())),
        Record::Held(thing(358), None),
        Record::Asks(thing(359), 360, operation(361), body(b"d")),
        Record::Answered(thing(362), 363),
        Record::Wanted(Wish(368), None),
    ];
    all.extend(holds().into_iter().map(|hold| Record::Hold(thing(369), Some(hold))));
    all.extend(stages().into_iter().map(|at| Record::Wanted(Wish(370), Some(wanted(at)))));
    all.push(Record::Came(thing(371), Line::Later, 372, request()));
    all
}

/// How many kinds of records there are. Who adds one counts it here, and gives it above.
pub const KINDS: usize = 19;

/// The kind of a record, below [`KINDS`].
pub fn kind(record: &Record) -> usize {
    match record {
        Record::Epoch(_) => 0,
        Record::Stands(..) => 1,
        Record::Word(_) => 2,
        Record::Operations(_) => 3,
        Record::Loans(_) => 4,
        Record::Said(..) => 5,
        Record::Acknowledged(..) => 6,
        Record::Taken(..) => 7,
        Record::Parted(_) => 8,
        Record::Hold(..) => 9,
        Record::Came(..) => 10,
        Record::Went(..) => 11,
        Record::Changer(..) => 12,
        Record::Awaited(..) => 13,
        Record::Unheard(..) => 14,
        Record::Held(..) => 15,
        Record::Asks(..) => 16,
        Record::Answered(..) => 17,
        Record::Wanted(..) => 18,
    }
}
