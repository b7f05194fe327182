//! Where everything lies in shared memory, and the words there, as text, for `golden.rs`.

use std::fmt::Write;
use std::mem::offset_of;

use terral_format::local::size;
use terral_format::local::tables::{
    Counters, Description, Doorbell, FileHeader, FileRecord, HazardSlot, MAGIC, MapPage,
    RequestSlot, SessionPage, Superblock,
};

use crate::golden_values::geometry;

macro_rules! fields {
    ($out:ident, $type:ident: $($field:tt)*) => {
        let _ = writeln!($out, "{} {}", stringify!($type), size_of::<$type>());
        $(let _ = writeln!($out, "  {} {}", offset_of!($type, $field), stringify!($field));)*
    };
}

/// Where everything lies in shared memory.
pub fn layout() -> String {
    let mut out = String::new();
    let _ = writeln!(out, "magic {MAGIC:016x}");
    fields!(
        out, Superblock: magic server_pid starts instance geometry gate waiting closing
        apart clock_offset deadline member reserved segments
    );
    fields!(out, FileRecord: ino backed_bytes inline root given evictions applied);
    fields!(out, MapPage: 0);
    fields!(out, FileHeader: size ticket modified_ns accessed_ns changed_ns holes hint fence);
    fields!(out, Description: nonce ino file access offset token reserved);
    fields!(out, Doorbell: rings sleeping sessions deferred reserved);
    fields!(out, RequestSlot: state length sequence waiting padding reserved message);
    fields!(out, HazardSlot: word reserved);
    fields!(out, Counters: opens reads writes read_bytes written_bytes read_ns write_ns other_ns);
    fields!(out, SessionPage: magic session operations until_ns reserved counters hand hazards
        requests more_inos);
    let geometry = geometry();
    let _ = writeln!(out, "{geometry:?}");
    let places = [
        ("record 1", geometry.record_at(1)),
        ("map page 1", geometry.map_page_at(1)),
        ("tables", geometry.tables_bytes()),
        ("header 1", geometry.header_at(1)),
        ("description 1", geometry.description_at(1)),
        ("deferred", geometry.deferred_at()),
        ("locks", geometry.locks_at()),
        ("headers", geometry.headers_bytes()),
        ("pages", geometry.pages_bytes()),
    ];
    for (what, at) in places {
        let _ = writeln!(out, "{what} {at}");
    }
    words(&mut out);
    out
}

/// The packed words, field by field.
fn words(out: &mut String) {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;
    use terral_format::ids::{Owner, PageNumber};
    use terral_format::local::entry::MapEntry;
    use terral_format::local::hazard;
    use terral_format::local::pages;

    let entry = MapEntry::new(PageNumber(1), 2, 3);
    let _ = writeln!(out, "entry {:016x} recalled {:016x}", entry.0, entry.recalled().0);
    let slot = AtomicU64::new(0);
    if let Some(word) = hazard::enter(&slot, PageNumber(1), 2) {
        let _ = writeln!(out, "hazard {:016x}", word.0);
        hazard::overtake(&slot, word);
        let _ = writeln!(out, "overtaken {:016x}", slot.load(SeqCst));
    }
    let lanes = [AtomicU64::new(0)];
    pages::fill(&lanes, 0, 1, false);
    pages::fill(&lanes, 1, 2, true);
    let _ = pages::claim(&lanes, 2, 3, Owner(4), &mut [0]);
    let _ = writeln!(out, "lanes {:016x}", lanes[0].load(SeqCst));
    let _ = writeln!(out, "size {:016x}", size::SizeWord::new(5, 6).0);
    let ticket = AtomicU64::new(0);
    let _ = size::take_ticket(&ticket, Owner(7));
    let _ = writeln!(out, "ticket {:016x}", ticket.load(SeqCst));
    deferred_words(out);
    lock_words(out);
}

/// The words that are not 0 when a change was committed and another one claimed.
fn deferred_words(out: &mut String) {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;
    use terral_format::local::deferred::{DeferredTable, Key, WORDS};

    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let table = DeferredTable::new(&words);
    if let Some(claim) = table.claim(Key::name(161), 162, 163, true) {
        let _ = table.commit(claim, b"deferred change");
    }
    let _ = table.claim(Key::attributes(164), 165, 166, false);
    for (at, word) in words.iter().enumerate() {
        if word.load(SeqCst) != 0 {
            let _ = writeln!(out, "deferred {at} {:016x}", word.load(SeqCst));
        }
    }
}

/// The words that are not 0 when locks were taken, and one of them is waited for.
fn lock_words(out: &mut String) {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;
    use terral_format::ids::{DescriptionSlot, Ino};
    use terral_format::local::lock_table::{LockTable, Pool, WORDS};
    use terral_format::wire::locks::{Lock, LockKind, LockOwner, LockRange};

    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (table, pool, ino) = (LockTable::new(&words), Pool::default(), Ino(132));
    table.give_group(1, Some(172));
    pool.add(1);
    let range = LockRange { first: 130, last: 131 };
    for (owner, kind) in [
        (LockOwner::process(126, 127), LockKind::Shared),
        (LockOwner::Description(DescriptionSlot(128), 173), LockKind::Shared),
        (LockOwner::Flock(DescriptionSlot(129), 174), LockKind::Exclusive),
    ] {
        let _ = table.set(&Lock { ino, owner, range, kind }, &pool);
    }
    let _ = table.wait(ino, table.locks(ino).0);
    for (at, word) in words.iter().enumerate() {
        if word.load(SeqCst) != 0 {
            let _ = writeln!(out, "lock {at} {:016x}", word.load(SeqCst));
        }
    }
}
