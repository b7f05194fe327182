//! A schedule: clients that do what chance says, with a server that is killed now and then, beside
//! a model of what every answer must be. All that was answered must be read again, by anybody,
//! whatever died meanwhile, and in the end the permanent store must have exactly that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use terral_format::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::message::{OpenHow, RenameHow, Reply, Request, Target};
use terral_store::backing::scripted::Body;

use super::Sim;
use super::client::Opened;

const DIRECTORIES: [&[u8]; 3] = [b"", b"d/", b"d/e/"];
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
/// Bytes that are written at a time, at the start of a page.
const PIECE: usize = 16;
/// Most files that one client has open.
const OPEN_MAX: usize = 4;
/// Bits of `tables::access`: read and write.
const BOTH: u8 = 3;

/// What a file must be: its size, and pieces by the page that they begin.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    size: u64,
    pieces: BTreeMap<u64, [u8; PIECE]>,
}

impl Content {
    fn cut(&mut self, size: u64) {
        self.size = size;
        self.pieces.retain(|page, _| page * (PAGE_BYTES as u64) < size);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (page, piece) in &self.pieces {
            let at = *page as usize * PAGE_BYTES;
            bytes[at..at + PIECE].copy_from_slice(piece);
        }
        bytes
    }
}

type File = Rc<RefCell<Content>>;

#[derive(Clone)]
enum Node {
    Directory,
    File(File),
}

/// What must be there, by path.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Node>);

impl Model {
    /// Whether what would hold `path` is a directory.
    fn has_parent(&self, path: &[u8]) -> bool {
        let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { return true };
        matches!(self.0.get(&path[..end]), Some(Node::Directory)) && self.has_parent(&path[..end])
    }

    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let start = [path, b"/"].concat();
        self.0.keys().filter(|other| other.starts_with(&start)).cloned().collect()
    }

    fn names(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let start = if directory.is_empty() { vec![] } else { [directory, b"/"].concat() };
        let inside = self.0.keys().filter_map(|path| path.strip_prefix(&start[..]));
        inside.filter(|rest| !rest.contains(&b'/')).map(<[u8]>::to_vec).collect()
    }

    fn make_directory(&mut self, path: &[u8]) -> bool {
        let may = self.has_parent(path) && !self.0.contains_key(path);
        if may {
            self.0.insert(path.into(), Node::Directory);
        }
        may
    }

    fn remove_directory(&mut self, path: &[u8]) -> bool {
        let is = matches!(self.0.get(path), Some(Node::Directory)) && self.below(path).is_empty();
        if is {
            self.0.remove(path);
        }
        is
    }

    fn unlink(&mut self, path: &[u8]) -> bool {
        let is = matches!(self.0.get(path), Some(Node::File(_)));
        if is {
            self.0.remove(path);
        }
        is
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let Some(node) = self.0.get(from).cloned() else { return false };
        let within = to.strip_prefix(from).is_some_and(|rest| rest.starts_with(b"/"));
        if !self.has_parent(to) || within {
            return false;
        }
        if from == to {
            return true;
        }
        let fits = match (&node, self.0.get(to)) {
            (_, None) | (Node::File(_), Some(Node::File(_))) => true,
            (Node::Directory, Some(Node::Directory)) => self.below(to).is_empty(),
            _ => false,
        };
        if !fits {
            return false;
        }
        for path in self.below(from) {
            let moved = [to, &path[from.len()..]].concat();
            let inner = self.0.remove(&path);
            self.0.extend(inner.map(|inner| (moved, inner)));
        }
        self.0.remove(from);
        self.0.insert(to.into(), node);
        true
    }

    /// The file that an open for writing gives, made if there is none.
    fn open(&mut self, path: &[u8]) -> Option<File> {
        match self.0.get(path) {
            Some(Node::File(file)) => Some(file.clone()),
            Some(Node::Directory) => None,
            None if self.has_parent(path) => {
                let file = File::default();
                self.0.insert(path.into(), Node::File(file.clone()));
                Some(file)
            }
            None => None,
        }
    }
}

/// A file that a client has open.
struct Handle {
    opened: Opened,
    file: File,
}

/// A run of it.
pub struct Schedule {
    pub sim: Sim,
    model: Model,
    /// By client: what each has open.
    clients: Vec<(usize, Vec<Handle>)>,
    kills: bool,
}

impl Schedule {
    /// With this many clients; with `kills`, servers and clients die.
    pub fn new(seed: u64, clients: usize, kills: bool) -> Self {
        let sim = Sim::new(seed);
        let mut schedule = Schedule { sim, model: Model::default(), clients: vec![], kills };
        schedule.begin_with(b"a");
        for _ in 0..clients {
            let client = schedule.sim.connect();
            schedule.clients.push((client, Vec::new()));
        }
        schedule
    }

    /// A file that the permanent store has before anybody comes.
    fn begin_with(&mut self, path: &[u8]) {
        let file = self.model.open(path).expect("nothing is there yet");
        let mut content = file.borrow_mut();
        for page in 0..3 {
            content.pieces.insert(page * 200, [page as u8 + 1; PIECE]);
        }
        content.size = 401 * PAGE_BYTES as u64;
        self.sim.dir.put(path, &content.bytes()).expect("an empty store");
    }

    fn chance(&self, of: u64) -> u64 {
        self.sim.world.one_of(of)
    }

    fn path(&self) -> Vec<u8> {
        let directory = DIRECTORIES[self.chance(4).min(2) as usize];
        let name = NAMES[self.chance(NAMES.len() as u64) as usize];
        [directory, name].concat()
    }

    /// So many steps; then everything ends, and the permanent store has what it must have.
    pub fn run(mut self, steps: usize) -> Sim {
        for _ in 0..steps {
            if self.kills && self.chance(16) == 0 {
                self.sim.kill_at(1 + self.chance(12) as i64);
            }
            self.step();
        }
        self.clients.clear();
        self.sim.finish();
        self.compare();
        self.sim
    }

    fn step(&mut self) {
        let at = self.chance(self.clients.len() as u64) as usize;
        let client = self.clients[at].0;
        match self.chance(24) {
            0..=4 => self.open(at),
            5..=9 => self.write(at),
            10..=12 => self.read(at),
            13 => self.truncate(at),
            14 | 15 => self.close(at),
            16 => {
                let path = self.path();
                let must = self.model.make_directory(&path);
                let made = Request::MakeDirectory { path: &path, mode: 0o755 };
                self.check(client, made, must);
            }
            17 => {
                let path = self.path();
                let must = self.model.remove_directory(&path);
                self.check(client, Request::RemoveDirectory(&path), must);
            }
            18 => {
                let path = self.path();
                let must = self.model.unlink(&path);
                self.check(client, Request::Unlink(&path), must);
            }
            19 | 20 => {
                let (from, to) = (self.path(), self.path());
                let must = self.model.rename(&from, &to);
                let how = RenameHow::Replace;
                self.check(client, Request::Rename { from: &from, to: &to, how }, must);
            }
            21 => self.list(client),
            22 => self.sim.pass(Duration::from_millis(1 + self.chance(3000))),
            _ if self.kills && self.chance(4) == 0 => self.replace(at),
            _ => self.stat(client),
        }
    }

    /// Whether a request succeeds as it must.
    fn check(&mut self, client: usize, request: Request<'_>, must: bool) {
        let what = format!("{request:?}");
        let got = self.sim.ask(client, request);
        assert_eq!(got.is_ok(), must, "{what}: {got:?}");
    }

    fn open(&mut self, at: usize) {
        let (path, client) = (self.path(), self.clients[at].0);
        if self.clients[at].1.len() >= OPEN_MAX {
            return self.close(at);
        }
        let file = self.model.open(&path);
        let how = OpenHow { access: BOTH, create: true, mode: 0o644, ..OpenHow::default() };
        match (self.sim.open(client, &path, how), file) {
            (Ok(opened), Some(file)) => self.clients[at].1.push(Handle { opened, file }),
            (Err(_), None) => {}
            (got, must) => panic!("{path:?}: {got:?}, {}", must.is_some()),
        }
    }

    /// Something that a client has open.
    fn handle(&self, at: usize) -> Option<(usize, Opened, File)> {
        let (client, open) = &self.clients[at];
        let which = self.chance(open.len().max(1) as u64) as usize;
        open.get(which).map(|handle| (*client, handle.opened, handle.file.clone()))
    }

    fn page(&self) -> u64 {
        let chunk = self.chance(3) * (CHUNK_BYTES / PAGE_BYTES as u64);
        if self.chance(2) == 0 { self.chance(6) } else { chunk + self.chance(8) * 60 }
    }

    fn write(&mut self, at: usize) {
        let Some((client, opened, file)) = self.handle(at) else { return };
        let (page, piece) = (self.page(), self.sim.world.draw().to_le_bytes());
        let piece: [u8; PIECE] = std::array::from_fn(|at| piece[at % 8]);
        let offset = page * PAGE_BYTES as u64;
        self.sim.write(client, opened.file, offset, &piece).expect("there is room");
        let mut content = file.borrow_mut();
        content.size = content.size.max(offset + PIECE as u64);
        content.pieces.insert(page, piece);
    }

    fn read(&mut self, at: usize) {
        let Some((client, opened, file)) = self.handle(at) else { return };
        let page = self.page();
        let got = self.sim.read(client, opened.file, page * PAGE_BYTES as u64, PIECE);
        let content = file.borrow();
        let left = content.size.saturating_sub(page * PAGE_BYTES as u64) as usize;
        let must = content.pieces.get(&page).copied().unwrap_or_default();
        assert_eq!(got.expect("it can be read"), must[..left.min(PIECE)], "page {page}");
    }

    fn truncate(&mut self, at: usize) {
        let Some((client, opened, file)) = self.handle(at) else { return };
        let size = if self.chance(2) == 0 { 0 } else { self.page() * PAGE_BYTES as u64 };
        let target = Target::File(opened.file);
        self.check(client, Request::Truncate { target, size }, true);
        file.borrow_mut().cut(size);
    }

    fn close(&mut self, at: usize) {
        let (client, open) = &mut self.clients[at];
        let Some(handle) = open.pop() else { return };
        self.sim.close(*client, handle.opened).expect("it was open");
    }

    fn list(&mut self, client: usize) {
        let directory = [&b""[..], b"d"][self.chance(2) as usize];
        let got = self.sim.ask(client, Request::List { path: directory, after: b"" });
        let is =
            directory.is_empty() || matches!(self.model.0.get(directory), Some(Node::Directory));
        match got {
            Ok(Reply::Names { names, .. }) if is => {
                let names: Vec<Vec<u8>> = names.into_iter().map(|name| name.name).collect();
                assert_eq!(names, self.model.names(directory));
            }
            Err(_) if !is => {}
            other => panic!("{directory:?}: {other:?}"),
        }
    }

    fn stat(&mut self, client: usize) {
        let path = self.path();
        let got = self.sim.ask(client, Request::Stat(Target::Path(&path)));
        match (got, self.model.0.get(&path)) {
            (Ok(Reply::Attributes(found)), Some(Node::File(file))) => {
                assert_eq!(found.size, file.borrow().size, "{path:?}");
            }
            (Ok(Reply::Attributes(_)), Some(Node::Directory)) | (Err(_), None) => {}
            (got, must) => panic!("{path:?}: {got:?}, {}", must.is_some()),
        }
    }

    /// A client dies, and another comes.
    fn replace(&mut self, at: usize) {
        self.sim.end(self.clients[at].0);
        self.clients[at] = (self.sim.connect(), Vec::new());
    }

    /// The permanent store has what it must have, and nothing else.
    fn compare(&self) {
        let there = self.sim.dir.tree();
        let names: Vec<_> = there.keys().collect();
        assert_eq!(names, self.model.0.keys().collect::<Vec<_>>());
        for ((path, seen), node) in there.iter().zip(self.model.0.values()) {
            match (&seen.body, node) {
                (Body::File(bytes), Node::File(file)) => {
                    assert!(*bytes == file.borrow().bytes(), "{path:?} differs");
                }
                (Body::Directory, Node::Directory) => {}
                (other, _) => panic!("{path:?}: {other:?}"),
            }
        }
    }
}
