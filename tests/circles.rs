//! The rules on who has whom change something inside the server: no circle of rooms, none of files
//! in a room, and a role's state is changed by the role, or through a door: a method that
//! `tests/doors.rs` lists. Anybody may look: what takes nothing `&mut` is not counted, nor is what
//! `core` does for all, nor that its state brings each role what is recorded.
//!
//! A room is a folder of `src/server`; a file that is in none is one for itself.

use std::collections::BTreeMap;

use crate::calls::bodies::{Calls, calls};
use crate::calls::graph::{Behind, Graph};
use crate::calls::items::{Function, Items, Receiver};
use crate::source::Source;

/// What all rooms stand upon.
const CORE: &str = "core";
/// What brings a role what happened elsewhere, or before the server began.
const BRINGS: &[&str] = &[CORE, "recovery"];
/// Rooms that are one role: what is dirty, and what is done about it.
const DRAIN: &[&str] = &["debts", "drain"];
/// It holds the state of all roles, and brings each what is recorded.
const HUB: &str = "src/server/core/state.rs";

/// The rooms that the server sees, whose methods may be meant by a name.
const SEEN: &[&str] = &["src/format/", "src/transport/", "src/store/", "src/server/"];

/// The types that are a role's state.
pub const STATES: &[&str] = &[
    "Authz",
    "Debts",
    "Descriptions",
    "Fetches",
    "Hands",
    "Lingering",
    "Locks",
    "Members",
    "Names",
    "Sessions",
    "Spilling",
    "Starting",
    "Storage",
    "Waiting",
    "Xattrs",
];

/// Arrows, by where they begin.
pub type List = &'static [(&'static str, &'static [&'static str])];

/// The calls inside the server.
pub struct Server {
    items: Items,
    calls: Calls,
}

impl Server {
    /// Reads the sources.
    pub fn read(sources: &[Source]) -> Result<Server, String> {
        let seen = |source: &&Source| SEEN.iter().any(|room| source.path.starts_with(room));
        let items = Items::read(&sources.iter().filter(seen).collect::<Vec<_>>())?;
        let calls = calls(&items, |function| is_server(&items.files[function.file].path));
        Ok(Server { items, calls })
    }

    /// Between rooms.
    pub fn rooms(&self) -> Graph {
        self.graph(room, is_told)
    }

    /// Between files of one room; without a circle of rooms there is no other circle of files.
    pub fn files(&self) -> Graph {
        self.graph(file, |here, there, to| room(here) == room(there) && is_told(here, there, to))
    }

    fn graph(
        &self,
        place: impl Fn(&str) -> &str,
        wanted: impl Fn(&str, &str, &Function) -> bool,
    ) -> Graph {
        let mut graph = Graph::default();
        for call in &self.calls.told {
            let [from, to] = [call.from, call.to].map(|at| &self.items.functions[at]);
            let [here, there] = [from, to].map(|function| &self.items.files[function.file].path);
            if is_server(there) && wanted(here, there, to) {
                graph.add(place(here), place(there), || {
                    let (from, to) = (from.shown(), to.shown());
                    format!("{here}:{}: `{from}` calls `{to}` of {}", call.line, file(there))
                });
            }
        }
        graph
    }

    /// Calls of a `&mut self` method of a role's state from a room that is neither its own nor the
    /// core, by method and room.
    pub fn changed_elsewhere(&self) -> BTreeMap<(String, String), Behind> {
        let mut found = Graph::default();
        for call in &self.calls.told {
            let [from, to] = [call.from, call.to].map(|at| &self.items.functions[at]);
            let [here, there] = [from, to].map(|function| &self.items.files[function.file].path);
            let state = to.owner.as_deref().is_some_and(|owner| STATES.contains(&owner));
            let stranger = role(here) != role(there) && !BRINGS.contains(&room(here));
            if state && to.receiver == Receiver::Changes && stranger {
                found.add(&to.shown(), room(here), || {
                    format!("{here}:{}: `{}` calls it", call.line, from.shown())
                });
            }
        }
        found.arrows().clone()
    }

    /// For people: every arrow between rooms with its calls and one of them, and the list in
    /// `tests/doors.rs` as it is now.
    pub fn shown(&self) -> String {
        let rooms = self.rooms();
        let circles = rooms.in_circles();
        let mut shown = String::new();
        for ((from, to), Behind { calls, example }) in rooms.arrows() {
            let circle = if circles.contains_key(&(from.clone(), to.clone())) { "o" } else { " " };
            shown += &format!("{circle} {from} -> {to}: {calls}, as {example}\n");
        }
        let (told, unclear) = (self.calls.told.len(), self.calls.unclear.len());
        shown += &format!("(o: part of a circle. {told} calls; {unclear} that cannot be told:");
        for (file, line, name) in &self.calls.unclear {
            shown += &format!(" {}:{line} .{name}()", self::file(&self.items.files[*file].path));
        }
        let doors = as_list(&self.changed_elsewhere());
        shown + &format!(")\n\npub const DOORS: List = &[\n{doors}];\n")
    }
}

/// What is found and not `listed`, with an example, and what is listed and not found: a line each.
pub fn differences(
    found: &BTreeMap<(String, String), Behind>,
    listed: &[(&str, &[&str])],
) -> Vec<String> {
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let pairs = || listed.iter().flat_map(|(from, all)| all.iter().map(|to| pair(from, to)));
    let known = |pair: &(String, String)| pairs().any(|listed| listed == *pair);
    let new = found.iter().filter(|(pair, _)| !known(pair)).map(|((from, to), behind)| {
        format!("new: {from} -> {to} ({} calls), as {}", behind.calls, behind.example)
    });
    let gone = pairs().filter(|pair| !found.contains_key(pair));
    let gone = gone.map(|(from, to)| format!("gone, take it off the list: {from} -> {to}"));
    new.chain(gone).collect()
}

/// As the list in `tests/doors.rs` is written.
fn as_list(found: &BTreeMap<(String, String), Behind>) -> String {
    let mut by_first: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in found.keys() {
        by_first.entry(from).or_default().push(to);
    }
    by_first.iter().map(|(from, all)| format!("    ({from:?}, &{all:?}),\n")).collect()
}

fn role(path: &str) -> &str {
    let room = room(path);
    if DRAIN.contains(&room) { DRAIN[0] } else { room }
}

/// Whether a call is one that the rules are about.
fn is_told(here: &str, there: &str, to: &Function) -> bool {
    here != HUB && room(there) != CORE && to.changes()
}

fn is_server(path: &str) -> bool {
    path.starts_with("src/server/")
}

fn room(path: &str) -> &str {
    file(path).split('/').next().unwrap_or_default()
}

fn file(path: &str) -> &str {
    path.trim_start_matches("src/server/").trim_end_matches(".rs")
}

#[cfg(test)]
mod tests {
    use super::{Server, differences};
    use crate::source::Source;

    fn server(files: &[(&str, &str)]) -> Server {
        let source = |(path, text): &(&str, &str)| Source::new(&format!("src/{path}.rs"), text);
        Server::read(&files.iter().map(source).collect::<Vec<_>>()).expect("it parses")
    }

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let graph = server(files).graph(super::file, |_, _, _| true);
        graph.arrows().keys().map(|(from, to)| format!("{from} > {to}")).collect()
    }

    #[test]
    fn functions_are_called_by_path_and_by_use() {
        let a =
            ("server/a", "pub fn f() {} pub fn g() {} pub struct T; impl T { pub fn new() {} }");
        for body in [
            "fn x() { crate::a::f() }",
            "fn x() { super::a::f() }",
            "use crate::a; fn x() { a::f() }",
            "use crate::{a::{g, f as h}}; fn x() { h() }",
            "use super::a::T; fn x() { T::new() }",
            "use crate::a::f; fn x(of: &[u8]) { of.iter().for_each(f) }",
            "use crate::a::g; fn x() { assert!(g() == 1, \"why\"); }",
            "use terral_server::a::f; impl Y { fn x() { let _ = || f(); } }",
        ] {
            assert_eq!(arrows(&[a, ("server/b", body)]), ["b > a"], "{body}");
        }
        for body in
            ["use crate::a::f; fn x() {}", "use crate::a::f; fn x(f: u8) { g(f) } fn g() {}"]
        {
            assert!(arrows(&[a, ("server/b", body)]).is_empty(), "{body}");
        }
        let through = ("server/r/mod", "pub use inner::f;");
        let inner = ("server/r/inner", "pub fn f() {}");
        let caller = ("server/b", "use crate::r::f; fn x() { f() }");
        assert_eq!(arrows(&[through, inner, caller]), ["b > r/inner"]);
    }

    #[test]
    fn methods_are_called_on_what_their_receiver_is() {
        let one = ("server/one", "pub struct One; impl One { pub fn go(&self) -> u8 { 1 } }");
        let two = (
            "server/two",
            "pub struct Two { pub one: One } impl Two { pub fn go(&mut self) {} \
                     pub fn one(&self) -> Option<&One> { None } }",
        );
        for (body, to) in [
            ("fn x(a: &One) { a.go(); }", "one"),
            ("fn x(a: &mut Arc<Two>) { a.go(); }", "two"),
            ("fn x(a: &Two) { a.one.go(); }", "one"),
            ("fn x(a: Vec<One>) { for one in &a { one.go(); } }", "one"),
            ("fn x(a: Option<One>) { if let Some(a) = a { a.go(); } }", "one"),
            (
                "fn x(a: Map<u8>) { a.of.get(&1).map(|one| one.go()); } struct Map<T> \
              { of: HashMap<u8, One> }",
                "one",
            ),
            ("impl X { fn x(&self) { self.0[1].go(); } } struct X(Vec<Two>);", "two"),
            ("fn x(a: W) { a.go(); } struct W; impl Deref for W { type Target = Two; }", "two"),
            (
                "fn x(a: A) { match a { A::B { two } => two.go() } } enum A { B { two: Two } }",
                "two",
            ),
            ("fn x() { with(|two| two.go()) } fn with<R>(f: impl FnOnce(&mut Two) -> R) {}", "two"),
            ("type T = Arc<One>; fn x(a: &T) { let b = a.clone(); b.go(); }", "one"),
        ] {
            let found = arrows(&[one, two, ("server/b", body)]);
            assert_eq!(found, [format!("b > {to}")], "{body}");
        }
        let one_more = ("server/b", "fn x(a: &Two) { a.one().go(); a.one().map(|a| a.go()); }");
        assert_eq!(arrows(&[one, two, one_more]), ["b > one", "b > two"]);
    }

    #[test]
    fn what_cannot_be_told_is_counted_and_what_is_unique_is_told_by_its_name() {
        let one = ("server/one", "struct One; impl One { fn go(&self) {} fn only(&self) {} }");
        let two = ("store/two", "struct Two; impl Two { fn go(&self) {} fn get(&self) {} }");
        let b = ("server/b", "fn x() { let a = unknown(); a.go(); a.get(); a.only(); a.other(); }");
        let server = server(&[one, two, b]);
        assert_eq!(server.graph(super::room, |_, _, _| true).arrows().len(), 1);
        let unclear: Vec<_> = server.calls.unclear.iter().map(|(.., name)| name.as_str()).collect();
        assert_eq!(unclear, ["go", "get"]);
    }

    #[test]
    fn tests_of_the_server_may_call_anything() {
        let root = ("server/lib", "#[cfg(test)] mod sim; mod a;");
        let a = ("server/a", "pub fn f() {} #[cfg(test)] mod tests { fn x() { crate::b::g() } }");
        let b = ("server/b", "pub fn g() {}");
        assert!(arrows(&[root, a, b, ("server/sim/mod", "fn x() { crate::a::f() }")]).is_empty());
    }

    #[test]
    fn rooms_are_in_a_circle_by_calls_of_any_of_their_files() {
        let server = server(&[
            (
                "server/p/one",
                "use crate::q::two::Two; fn x(two: &mut Two) { two.go() } pub fn y(_: &mut u8) {}",
            ),
            ("server/q/two", "pub struct Two; impl Two { pub fn go(&mut self) {} }"),
            ("server/q/three", "fn z() { crate::p::one::y(&mut 1) }"),
        ]);
        assert!(server.files().in_circles().is_empty());
        let found = server.rooms().in_circles();
        let differ = differences(&found, &[("p", &["q"]), ("q", &["r"])]);
        assert_eq!(differ.len(), 2, "{differ:?}");
        assert!(
            differ[0].starts_with("new: q -> p") && differ[0].contains("three.rs:1: `z` calls `y`")
        );
        assert!(differ[1].ends_with("q -> r"));
        assert!(differences(&found, &[("p", &["q"]), ("q", &["p"])]).is_empty());
    }

    #[test]
    fn files_of_one_room_are_in_a_circle_of_their_own() {
        let one = ("server/p/one", "pub fn x(s: &mut S) { super::two::y(s); crate::q::z(s) }");
        let two = ("server/p/two", "pub fn y(s: &mut S) { crate::p::one::x(s) }");
        let three = ("server/q", "pub fn z(s: &mut S) { crate::p::one::x(s) }");
        let found = server(&[one, two, three]).files().in_circles();
        let listed = [("p/one", &["p/two"][..]), ("p/two", &["p/one"])];
        assert_eq!(differences(&found, &listed), Vec::<String>::new());
    }

    #[test]
    fn a_roles_state_is_changed_by_its_room_and_the_core_alone() {
        let names =
            "pub struct Names; impl Names { pub fn read(&self) {} pub fn set(&mut self) {} }";
        let caller = "fn x(names: &mut Names) { names.read(); names.set(); }";
        let home = ("server/naming/names", names);
        let found = |path| server(&[home, (path, caller)]).changed_elsewhere().len();
        assert_eq!(["server/naming/x", "server/core/x", "server/drain/x"].map(found), [0, 0, 1]);
    }
}
