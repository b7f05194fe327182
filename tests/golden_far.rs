//! Every question about a file of another member, and every answer, for the golden file.

use terral_format::ids::{Member, Number, SessionSlot};
use terral_format::wire::far::{Act, Answer, Done, Id, Question, What};
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::{HeldLock, LockKind, LockRange};
use terral_format::wire::placed::Placing;
use terral_format::wire::updates::Update;
use terral_format::{Error, ErrorKind};

use crate::golden_values;

fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

fn number(counted: u64) -> Number {
    Number::new(member(501), counted).expect("50 bits")
}

fn id() -> Id {
    let (by, session, pid, started_ticks) = (member(502), SessionSlot(503), 504, 505);
    Id { by, session, pid, started_ticks, index: 6, sequence: 507, step: 8 }
}

/// With the bytes that go with each.
pub fn questions() -> Vec<(Question, &'static [u8])> {
    let by = golden_values::far_lock().owner.by;
    let acts = [
        Act::Open,
        Act::Close,
        Act::IsOpen,
        Act::Read { at: 509, bytes: 510, kept: true, direct: true },
        Act::Write { at: Some(511), strips: true, token: 550 },
        Act::Write { at: None, strips: false, token: 0 },
        Act::Truncate { size: 512, strips: true, token: 551 },
        Act::Recall { step: 13 },
        Act::Lock(golden_values::far_lock()),
        Act::TestLock(golden_values::far_lock()),
        Act::Lost { by: golden_values::far_lock().owner.by, token: 514 },
        Act::Borrow { by, first: 526, count: 527, strips: true },
        Act::Grow { by, to: 528 },
        Act::Wrote { at_ns: 529 },
        Act::Return { by, first: 530, count: 531, leaves: true },
        Act::GiveBack { index: 532, at: 533, bytes: 534, stamp: 535 },
        Act::Took { index: 536, stamp: 537 },
        Act::Merge { strips: true },
        Act::Offer { by, index: 542, strips: true },
        Act::Accept { by, index: 543, stamp: 544 },
        Act::ReadMapped { index: 545, at: 546, bytes: 547 },
        Act::WriteMapped { index: 548, at: 549 },
        Act::Fencing(golden_values::far_lock().owner, Fencing::Take { lease_ms: 552 }),
        Act::Place(Placing::Create { mode: 560 }),
        Act::Place(Placing::File { mode: 561, exclusive: true }),
        Act::Place(Placing::Copy { of: 553, at: 554, bytes: 555 }),
        Act::Update(golden_values::attempt(), Update::Look),
        Act::Update(
            golden_values::attempt(),
            Update::Write { seen: 556, strips: true, token: 557, call: 561 },
        ),
        Act::Take { index: 562, bytes: 563, from: by, stamp: 564 },
        Act::Kept { by, index: 565, stamp: 566 },
        Act::ReadPart { index: 567, at: 568, bytes: 569, stamp: 570 },
    ];
    let begins = [What::Begin(Some(vec![number(514), number(515)])), What::Begin(None)];
    let acts = acts.into_iter().map(|act| What::File(number(516), act));
    let question = |what| Question { id: id(), life: 517, number: 518, past: 519, what };
    let bytes = |question: &Question| match question.what {
        What::File(_, act) if act.has_bytes() => &b"bytes"[..],
        _ => b"",
    };
    let all = begins.into_iter().chain(acts).map(question);
    all.map(|question| (question.clone(), bytes(&question))).collect()
}

/// With the bytes that go with each.
pub fn answers() -> Vec<(Answer, &'static [u8])> {
    let failed = Err(Error::new(ErrorKind::NotFound, "gone"));
    let held = HeldLock {
        pid: 523,
        range: LockRange { first: 524, last: 525 },
        kind: LockKind::Exclusive,
    };
    let held = Ok(Done::Held(held));
    let (written, open) = (Ok(Done::Written(520)), Ok(Done::Open));
    let lent = Ok(Done::Lent { count: 538, size: 539, stamp: 540 });
    let offered = Ok(Done::Offered { size: 550, bytes: 551, stamp: 552 });
    let fenced = Ok(Done::Fenced(Fenced { token: 553, wanted: true }));
    let known = Ok(Done::Unknown);
    let updated = Ok(Done::Updated(558));
    let placed = Ok(Done::Placed(number(559)));
    let results = [
        Ok(Done::Done),
        written,
        known,
        held,
        open,
        lent,
        offered,
        fenced,
        updated,
        placed,
        Ok(Done::With { member: member(570), size: 571 }),
        Ok(Done::Stays),
        failed,
    ];
    let answer = |result| Answer { id: id(), file: Some(number(522)), life: 521, result };
    let without = results.into_iter().map(|result| (answer(result), &b""[..]));
    without.chain([(answer(Ok(Done::Read)), &b"bytes"[..])]).collect()
}
