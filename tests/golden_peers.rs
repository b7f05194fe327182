//! A frame of members with every kind of message, for the golden file.

use terral_format::ids::{Epoch, Loan, Member, Number, Operation, ServerId, Thing};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Failure, Frame, Holding, Message, Work};

fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

fn number(born: u16, counted: u64) -> Number {
    Number::new(member(born), counted).expect("50 bits")
}

fn body(text: &[u8]) -> Body {
    Body::new(text).expect("not too long")
}

fn operation(number: u64) -> Operation {
    Operation { by: member(201), number }
}

fn loan(number: u64) -> Loan {
    Loan { by: member(202), number }
}

/// Every message, and each of its forms.
pub fn messages() -> Vec<Message> {
    let file = Thing::File(number(203, 204));
    let directory = Thing::Directory(number(205, 206));
    let chunk = Thing::Chunk(number(207, 208), 209);
    let some = |text: &[u8]| Some(body(text));
    vec![
        Message::Want { operation: operation(210), thing: file, work: Work::Look(body(b"a")) },
        Message::Want { operation: operation(211), thing: chunk, work: Work::Change(body(b"b")) },
        Message::Want { operation: operation(209), thing: chunk, work: Work::Take },
        Message::Want { operation: operation(208), thing: file, work: Work::Find(body(b"g")) },
        Message::Lend { operation: operation(212), thing: file, loan: loan(213), body: some(b"c") },
        Message::Lend { operation: operation(214), thing: chunk, loan: loan(215), body: None },
        Message::Show {
            operation: operation(216),
            thing: directory,
            loan: loan(217),
            body: some(b"d"),
        },
        Message::Show { operation: operation(218), thing: file, loan: loan(219), body: None },
        Message::Done { operation: operation(220), answer: Ok(body(b"e")) },
        Message::Done { operation: operation(221), answer: Err(Failure::Removed(member(222))) },
        Message::Done { operation: operation(223), answer: Err(Failure::Silent(member(224))) },
        Message::Recall { thing: directory, loan: loan(225) },
        Message::Ask { operation: operation(226), thing: file, loan: loan(227), look: body(b"f") },
        Message::Looked { operation: operation(228), thing: file, answer: body(b"g") },
        Message::Return { thing: chunk, loan: loan(229), body: body(b"h"), in_use: true },
        Message::Dropped { thing: directory, loan: loan(230) },
        Message::Holds {
            removed: member(231),
            held: vec![(file, Holding::Whole(loan(232))), (chunk, Holding::Kept(loan(233)))],
            more: true,
        },
    ]
}

/// How many kinds of messages there are. Who adds one counts it here, and gives it above.
pub const KINDS: usize = 10;

/// The kind of a message, below [`KINDS`].
pub fn kind(message: &Message) -> usize {
    match message {
        Message::Want { .. } => 0,
        Message::Lend { .. } => 1,
        Message::Show { .. } => 2,
        Message::Done { .. } => 3,
        Message::Recall { .. } => 4,
        Message::Ask { .. } => 5,
        Message::Looked { .. } => 6,
        Message::Return { .. } => 7,
        Message::Dropped { .. } => 8,
        Message::Holds { .. } => 9,
    }
}

fn frame(messages: Vec<Message>, renewed: Option<Moment>, renew: bool) -> Frame {
    Frame {
        from: member(234),
        server: ServerId(235),
        epoch: Epoch(236),
        taken: 237,
        before: 238,
        messages,
        sent: Moment(239),
        renewed,
        renew,
    }
}

/// One that says nothing, one for each message, one with all of them.
pub fn frames() -> Vec<Frame> {
    let silent = frame(Vec::new(), None, true);
    let single = messages().into_iter().map(|message| frame(vec![message], None, false));
    let whole = frame(messages(), Some(Moment(240)), false);
    [silent].into_iter().chain(single).chain([whole]).collect()
}
