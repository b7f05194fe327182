//! A scripted store and a directory answer alike: random calls to both, same answers, same tree.
//!
//! Only what both can be asked is: the directory's process may be anybody, so no other owners, and
//! its clock may tick between two calls or not, so versions are expected to be there or are none
//! that ever was.

use std::collections::BTreeMap;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof, proptest};
use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Kind};

use super::super::dir::Dir;
use super::super::{Backing, NameSink};
use super::{Found, Scripted, Touched};

const INSTANCE: InstanceId = InstanceId(0xabc);
/// Times before this were set; later ones are some clock's.
const SET_NS: u64 = 1_000_000_000;

type Path = &'static str;

const PATHS: &[Path] = &["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "", ".terral"];

#[derive(Clone, Debug)]
enum Ask {
    Stage { ino: u8, at: u16, bytes: Vec<u8>, cut: Option<u8> },
    Publish { ino: u8, path: Path, size: u8, known: bool, refuse: bool },
    TakeBack { path: Path, ino: u8 },
    Update { path: Path, at: u16, bytes: Vec<u8>, cut: Option<u8>, known: bool },
    MakeDirectory(Path),
    RemoveDirectory(Path),
    MakeLink(Path, Path),
    MakeFifo(Path),
    Link(Path, Path),
    Exchange(Path, Path),
    Unlink(Path),
    Rename(Path, Path),
    KeepTheirs { path: Path, ours: bool, alike: Path },
    SetAside(Path),
    Change { path: Path, mode: Option<u32>, modified_ns: Option<u64>, own: bool },
    SetXattr { path: Path, name: &'static str, value: Option<u8> },
    Clean,
}

fn paths() -> impl Strategy<Value = Path> {
    prop::sample::select(PATHS)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..2_u8, 0..4)
}

fn cut() -> impl Strategy<Value = Option<u8>> {
    prop::option::of(0..6_u8)
}

fn of_bytes() -> impl Strategy<Value = Ask> {
    let staged = (0..3_u8, 0..5000_u16, bytes(), cut());
    let published = (0..3_u8, paths(), 0..4_u8, any::<bool>(), prop::bool::weighted(0.2));
    let updated = (paths(), 0..5_u16, bytes(), cut(), any::<bool>());
    prop_oneof![
        staged.prop_map(|(ino, at, bytes, cut)| Ask::Stage { ino, at, bytes, cut }),
        published.prop_map(|(ino, path, size, known, refuse)| {
            Ask::Publish { ino, path, size, known, refuse }
        }),
        (paths(), 0..3_u8).prop_map(|(path, ino)| Ask::TakeBack { path, ino }),
        updated.prop_map(|(path, at, bytes, cut, known)| {
            Ask::Update { path, at, bytes, cut, known }
        }),
        Just(Ask::Clean),
    ]
}

fn of_names() -> impl Strategy<Value = Ask> {
    prop_oneof![
        2 => paths().prop_map(Ask::MakeDirectory),
        1 => paths().prop_map(Ask::RemoveDirectory),
        1 => (paths(), paths()).prop_map(|(path, target)| Ask::MakeLink(path, target)),
        1 => paths().prop_map(Ask::MakeFifo),
        2 => (paths(), paths()).prop_map(|(from, to)| Ask::Link(from, to)),
        1 => (paths(), paths()).prop_map(|(from, to)| Ask::Exchange(from, to)),
        1 => paths().prop_map(Ask::Unlink),
        2 => (paths(), paths()).prop_map(|(from, to)| Ask::Rename(from, to)),
        1 => (paths(), any::<bool>(), paths())
            .prop_map(|(path, ours, alike)| Ask::KeepTheirs { path, ours, alike }),
        1 => paths().prop_map(Ask::SetAside),
    ]
}

fn of_attributes() -> impl Strategy<Value = Ask> {
    let modes = prop::sample::select(&[0o700_u32, 0o6755, 0o2744, 0o1777][..]);
    let changed = (paths(), prop::option::of(modes), prop::option::of(0..SET_NS), any::<bool>());
    let names = prop::sample::select(&["user.x", "user.y", "user.", "", "none"][..]);
    prop_oneof![
        changed.prop_map(|(path, mode, modified_ns, own)| {
            Ask::Change { path, mode, modified_ns, own }
        }),
        (paths(), names, prop::option::of(any::<u8>()))
            .prop_map(|(path, name, value)| Ask::SetXattr { path, name, value }),
    ]
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    prop::collection::vec(
        prop_oneof![3 => of_bytes(), 4 => of_names(), 1 => of_attributes()],
        1..60,
    )
}

/// A mode as a directory keeps it: what an ordinary user writes loses its set-id bits.
fn allowed(mode: u32) -> u32 {
    if rustix::process::geteuid().is_root() { mode } else { mode & 0o1777 }
}

/// The fingerprint of what is there, or one of nothing that ever was.
fn expected(backing: &dyn Backing, path: Path, known: bool) -> Option<Fingerprint> {
    let nothing = Fingerprint::default();
    known.then(|| backing.stat(path.as_bytes()).map_or(nothing, |found| found.fingerprint))
}

/// What a call that touches `path` says, if it tells the truth about what is at `after` then.
fn told(
    backing: &dyn Backing,
    (path, after): (&[u8], &[u8]),
    call: impl FnOnce() -> Result<Touched>,
) -> Result<String> {
    let before = backing.stat(path);
    let touched = call()?;
    let before = before?;
    assert_eq!(touched.before, before.fingerprint);
    assert_eq!(touched.modified_ns, before.attributes.modified_ns);
    assert_eq!(touched.after, backing.stat(after)?.fingerprint);
    Ok(String::new())
}

fn publish(backing: &dyn Backing, ask: &Ask) -> Result<String> {
    let &Ask::Publish { ino, path, size, known, refuse } = ask else { unreachable!() };
    let root = backing.stat(b"")?.attributes;
    let want = Attributes {
        kind: Kind::File,
        mode: allowed(0o4640),
        modified_ns: 5,
        accessed_ns: 6,
        ..root
    };
    let name = path.as_bytes();
    let staged = backing.stage(Ino(ino.into()), INSTANCE)?;
    let resumed = staged.resumed_bytes();
    let expect = expected(backing, path, known);
    let mut told = None;
    let mut announce = |found: &Found| {
        told = Some(*found);
        let refused = terral_format::Error::new(terral_format::ErrorKind::Interrupted, "refused");
        if refuse { Err(refused) } else { Ok(()) }
    };
    let done = staged.publish(name, &want, size.into(), expect, &mut announce)?;
    let (found, told) = (backing.stat(name)?, told.expect("announced"));
    assert_eq!(done.fingerprint, found.fingerprint);
    let changed_ns = found.attributes.changed_ns;
    assert_eq!(Attributes { changed_ns, ..told.attributes }, found.attributes);
    assert!(told.fingerprint.is_as_long(found.fingerprint));
    Ok(format!("{resumed:?} {:?}", done.conflict))
}

/// Bytes, without the many that are zero.
fn short(bytes: &[u8]) -> String {
    let some: Vec<_> = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).collect();
    format!("{} bytes, {some:?}", bytes.len())
}

fn change_bytes(backing: &dyn Backing, ask: &Ask) -> Result<String> {
    let mut buffer = vec![0; 8192];
    let read = match ask {
        Ask::Stage { ino, at, bytes, cut } => {
            let mut staged = backing.stage(Ino((*ino).into()), INSTANCE)?;
            cut.map_or(Ok(()), |cut| staged.truncate(cut.into()))?;
            staged.write((*at).into(), bytes)?;
            staged.read(0, &mut buffer)?
        }
        Ask::Update { path, at, bytes, cut, known } => {
            let expect = expected(backing, path, *known).unwrap_or_default();
            let name = path.as_bytes();
            let mut update = backing.update(name, expect)?;
            update.write((*at).into(), bytes)?;
            cut.map_or(Ok(()), |cut| update.truncate(cut.into()))?;
            let read = update.read(0, &mut buffer)?;
            let want = backing.stat(name)?.attributes;
            let done = update.finish(&Attributes { modified_ns: 9, ..want })?;
            assert_eq!(done, backing.stat(name)?.fingerprint);
            read
        }
        _ => unreachable!(),
    };
    buffer.truncate(read);
    Ok(short(&buffer))
}

/// Asks, and gives what of the answer has to be the same everywhere.
fn ask(backing: &dyn Backing, ask: &Ask) -> Result<String> {
    let done = String::new();
    match ask {
        Ask::Stage { .. } | Ask::Update { .. } => change_bytes(backing, ask),
        Ask::Publish { .. } => publish(backing, ask),
        // A directory would go with all that is in it, which no server asks for.
        Ask::TakeBack { path, .. } if is_directory(backing, path) => Ok(done),
        Ask::TakeBack { path, ino } => {
            backing.take_back(path.as_bytes(), Ino((*ino).into()), INSTANCE).map(|()| done)
        }
        Ask::MakeDirectory(path) => backing.make_directory(path.as_bytes(), 0o750).map(|()| done),
        Ask::RemoveDirectory(path) => backing.remove_directory(path.as_bytes()).map(|()| done),
        Ask::MakeLink(path, target) => {
            backing.make_link(path.as_bytes(), target.as_bytes()).map(|()| done)
        }
        Ask::MakeFifo(path) => backing.make_fifo(path.as_bytes(), 0o600).map(|()| done),
        Ask::Link(from, to) => {
            let (from, to) = (from.as_bytes(), to.as_bytes());
            told(backing, (from, to), || backing.link(from, to))
        }
        Ask::Exchange(from, to) => backing.exchange(from.as_bytes(), to.as_bytes()).map(|()| done),
        Ask::Unlink(path) => backing.unlink(path.as_bytes()).map(|()| done),
        Ask::Rename(from, to) => {
            let (from, to) = (from.as_bytes(), to.as_bytes());
            told(backing, (from, to), || backing.rename(from, to))
        }
        Ask::KeepTheirs { path, ours, alike } => {
            let ours = expected(backing, path, *ours).unwrap_or_default().object();
            Ok(format!("{:?}", backing.keep_theirs(path.as_bytes(), &[ours], alike.as_bytes())?))
        }
        Ask::SetAside(path) => Ok(format!("{:?}", backing.set_aside(path.as_bytes())?)),
        Ask::Change { path, mode, modified_ns, own } => {
            let uid = own.then_some(backing.stat(b"")?.attributes.uid);
            let change = Change {
                mode: mode.map(allowed),
                uid,
                modified_ns: *modified_ns,
                ..Change::default()
            };
            told(backing, (path.as_bytes(), path.as_bytes()), || {
                backing.change(path.as_bytes(), change)
            })
        }
        Ask::SetXattr { path, name, value } => {
            let value = value.as_ref().map(std::slice::from_ref);
            told(backing, (path.as_bytes(), path.as_bytes()), || {
                backing.set_xattr(path.as_bytes(), name.as_bytes(), value)
            })
        }
        Ask::Clean => backing.clean(INSTANCE).map(|()| done),
    }
}

fn is_directory(backing: &dyn Backing, path: Path) -> bool {
    backing.stat(path.as_bytes()).is_ok_and(|found| found.attributes.kind == Kind::Directory)
}

/// Everything that is there and has to be the same everywhere, a line for each path.
fn tree(backing: &dyn Backing) -> Vec<String> {
    let (mut lines, mut left) = (Vec::new(), vec![Vec::new()]);
    let mut first = BTreeMap::new();
    while let Some(path) = left.pop() {
        let found = backing.stat(&path).expect("stat");
        let Attributes { kind, links, modified_ns, mut mode, mut size, .. } = found.attributes;
        let mut body = vec![0; 8192];
        match kind {
            Kind::Directory => {
                let names = backing.list(&path).expect("list").into_iter();
                let below = |name: &[u8]| super::super::beneath::beside(&path, name);
                left.extend(names.map(|name| below(&name.name)));
                // Of the root, the directory where versions are staged is one more.
                (size, body) = (0, vec![]);
            }
            Kind::Symlink => {
                (mode, body) = (0, backing.read_link(&path).expect("target"));
            }
            Kind::File => {
                let count = backing.read(&path, 0, &mut body).expect("read");
                body.truncate(count);
            }
            _ => body.clear(),
        }
        let links = if path.is_empty() { 0 } else { links };
        if path.is_empty() {
            mode = 0;
        }
        let set_ns = (modified_ns < SET_NS && kind != Kind::Directory).then_some(modified_ns);
        let mut xattrs = backing.xattrs(&path).expect("xattrs");
        xattrs.sort();
        let same = first.entry(found.fingerprint.object()).or_insert_with(|| path.clone()).clone();
        let name = String::from_utf8_lossy(&path).into_owned();
        let same = String::from_utf8_lossy(&same).into_owned();
        lines.push(format!(
            "{name}={same} {kind:?} {mode:o} {links} {size} {set_ns:?} {xattrs:?} {}",
            short(&body)
        ));
    }
    lines
}

fn takes_xattrs(directory: &std::path::Path) -> bool {
    let dir = Dir::open(directory).expect("open");
    let taken = dir.set_xattr(b"", b"user.try", Some(b"x"));
    dir.set_xattr(b"", b"user.try", None).is_ok() && taken.is_ok()
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn both_answer_alike(asks in asks()) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let dir = Dir::open(directory.path()).expect("open");
        let takes_xattrs = takes_xattrs(directory.path());
        let scripted = Scripted::new(|| 2 * SET_NS);
        for one in asks {
            if matches!(one, Ask::SetXattr { .. }) && !takes_xattrs {
                continue;
            }
            let answers = [&dir as &dyn Backing, &scripted].map(|backing| {
                let answer = ask(backing, &one).map_err(|error| error.kind);
                (answer, tree(backing))
            });
            let [theirs, ours] = answers;
            assert_eq!(theirs, ours, "{one:?}");
        }
    }
}
