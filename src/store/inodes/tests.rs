//! The table of names: against a map, and with readers beside the writer.

use super::{Inodes, begin, end};
use crate::memory::Memory;
use crate::private::{Private, PrivateArena};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terral_format::ids::{Ino, Member, Number, ROOT};
use terral_format::local::geometry::Geometry;
use terral_format::local::names::{Inode, Lookup, flag, index_of};
use terral_format::wire::message::{Attributes, Kind};

fn memory(inodes: u32) -> Arc<Memory> {
    let geometry = Geometry { segments: 1, files: 4, map_pages: 1, descriptions: 4, inodes };
    let bytes = [geometry.tables_bytes(), geometry.headers_bytes(), geometry.pages_bytes()];
    let arena = Arc::new(PrivateArena::default());
    Arc::new(Memory::new(geometry, bytes.map(Private::boxed), arena))
}

fn inode(ino: Ino, kind: Kind) -> Inode {
    let links = if kind == Kind::Directory { 2 } else { 1 };
    let times = (ino.0, ino.0, ino.0);
    Inode::new(&Attributes {
        ino,
        kind,
        mode: 0o600,
        links,
        uid: 1,
        gid: 1,
        size: 0,
        accessed_ns: times.0,
        modified_ns: times.1,
        changed_ns: times.2,
    })
}

fn rooted(inodes: u32) -> (Arc<Memory>, Inodes) {
    let memory = memory(inodes);
    let mut table = Inodes::new(memory.clone());
    table.insert(inode(ROOT, Kind::Directory), (Ino(0), b""), b"");
    (memory, table)
}

#[test]
fn random_changes_leave_what_a_map_would() {
    let (memory, mut table) = rooted(1 << 16);
    let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    const LARGE: u64 = 1000;
    for step in 0..40_000 {
        if step == 1000 {
            table.weigh(LARGE);
        }
        let name = format!("n{}", random(2500)).into_bytes();
        let other = format!("{}", random(2500)).repeat(1 + random(9) as usize).into_bytes();
        match (random(4), model.get(&name).copied(), model.get(&other).copied()) {
            (0 | 1, None, _) => {
                let ino = table.next_ino();
                assert!(model.values().all(|known| *known != ino));
                table.insert(inode(ino, Kind::File), (ROOT, &name), b"");
                model.insert(name, ino);
            }
            (2, Some(ino), _) => {
                table.unname(index_of(ino));
                table.free(index_of(ino));
                model.remove(&name);
            }
            (3, Some(ino), there) if name != other => {
                let replaced = there.map(index_of);
                table.rename(index_of(ino), (ROOT, &other), replaced);
                replaced.into_iter().for_each(|index| table.free(index));
                model.remove(&name);
                model.insert(other, ino);
            }
            _ => {}
        }
    }
    for (name, ino) in &model {
        assert_eq!(table.lookup(ROOT, name).map(|inode| inode.ino), Some(*ino));
    }
    assert_eq!(table.lookup(ROOT, b"nothing"), None);
    let weight: usize = model.keys().map(|name| name.len() + 16).sum();
    assert_eq!(table.weight(index_of(ROOT)), weight as u64);
    assert_eq!(table.large().collect::<Vec<_>>(), [ROOT]);
    let mut listed = memory.names().children(ROOT, usize::MAX, Member::LEAST).expect("quiet");
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let listed: Vec<_> = listed.into_iter().map(|name| (name.name, name.number)).collect();
    let number = |ino| Some(Number::of(Member::LEAST, ino));
    let numbers = model.iter().map(|(name, ino)| (name.clone(), number(*ino)));
    assert_eq!(listed, numbers.collect::<Vec<_>>());
    assert_eq!(table.count(), listed.len() as u64 + 1);
    for ino in model.into_values() {
        table.unname(index_of(ino));
    }
    assert_eq!((table.weight(index_of(ROOT)), table.large().count()), (0, 0));
}

#[test]
fn a_name_is_not_missing_while_a_server_that_sleeps_is_changing_its_slot() {
    let (memory, mut table) = rooted(1 << 12);
    let kept = table.next_ino();
    table.insert(inode(kept, Kind::File), (ROOT, b"kept"), b"");
    let names = memory.names();
    assert!(matches!(names.lookup(ROOT, b"kept"), Lookup::Found(_)));
    begin(&names.slot(index_of(kept))[0]);
    assert_eq!(names.lookup(ROOT, b"kept"), Lookup::Unsure);
    end(&names.slot(index_of(kept))[0]);
    assert!(matches!(names.lookup(ROOT, b"kept"), Lookup::Found(_)));
}

#[test]
fn readers_never_see_a_name_that_is_there_missing_nor_half_an_inode() {
    let (memory, mut table) = rooted(1 << 15);
    let kept = table.next_ino();
    table.insert(inode(kept, Kind::File), (ROOT, b"kept"), b"");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0u64;
                while !over.load(Ordering::Relaxed) || seen == 0 {
                    match memory.names().lookup(ROOT, b"kept") {
                        Lookup::Found(inode) => assert_eq!(inode.ino, kept),
                        Lookup::Missing => panic!("kept is missing"),
                        Lookup::Unsure => {}
                    }
                    for side in [b"left", b"rite"] {
                        if let Lookup::Found(inode) = memory.names().lookup(ROOT, side) {
                            assert!(inode.is(flag::NAMED));
                            assert_eq!(inode.changed_ns, inode.ino.0);
                            seen += 1;
                        }
                    }
                }
            });
        }
        let mut moving = table.next_ino();
        table.insert(inode(moving, Kind::File), (ROOT, b"left"), b"");
        for round in 0..20_000 {
            let (to, index) = ([b"rite", b"left"][round % 2], index_of(moving));
            if round % 5 == 0 {
                // A new file takes the place of the old one.
                let ino = table.next_ino();
                table.insert(inode(ino, Kind::File), (ROOT, b"next"), b"");
                table.rename(index_of(ino), (ROOT, to), None);
                table.unname(index);
                table.free(index);
                moving = ino;
            } else {
                table.rename(index, (ROOT, to), None);
            }
            let more = table.next_ino();
            if round < 20_000 {
                table.insert(inode(more, Kind::File), (ROOT, format!("{round}").as_bytes()), b"");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn of_names_that_are_held_readers_see_nothing_until_all_have_changed() {
    let (memory, mut table) = rooted(1 << 10);
    let [one, other] = [0, 1].map(|_| {
        let ino = table.next_ino();
        table.insert(inode(ino, Kind::Directory), (ROOT, format!("{ino}").as_bytes()), b"");
        ino
    });
    let file = table.next_ino();
    table.insert(inode(file, Kind::File), (one, b"old"), b"");
    let sees = |directory, name: &[u8]| memory.names().lookup(directory, name);
    let lists = |directory| memory.names().children(directory, 10, Member::LEAST);
    assert!(matches!(sees(one, b"old"), Lookup::Found(_)));
    for _ in 0..2 {
        // Held twice, they are held once.
        table.hold_name((one, b"old"));
        table.hold_name((other, b"new"));
    }
    for moved in [false, true] {
        if moved {
            table.rename(index_of(file), (other, b"new"), None);
        }
        for (directory, name) in [(one, &b"old"[..]), (other, b"new")] {
            assert!(matches!(sees(directory, name), Lookup::Unsure), "moved: {moved}");
            assert!(lists(directory).is_none(), "moved: {moved}");
        }
        assert!(matches!(sees(ROOT, format!("{one}").as_bytes()), Lookup::Unsure));
    }
    table.release();
    assert!(matches!(sees(one, b"old"), Lookup::Missing));
    assert!(matches!(sees(other, b"new"), Lookup::Found(inode) if inode.ino == file));
    assert_eq!(lists(one).map(|names| names.len()), Some(0));
    assert_eq!(lists(other).map(|names| names.len()), Some(1));
    assert!(matches!(sees(ROOT, format!("{one}").as_bytes()), Lookup::Found(_)));
}
