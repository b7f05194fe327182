//! The house keeps itself: every source under `src/` and `tests/` against the rules of
//! [`terral_tests::rules`], and a proof for each rule that it can fail.
//!
//! The ratchets below may only go down.

use std::path::Path;
use std::process::Command;

use terral_tests::circles::{self, Server};
use terral_tests::doors;
use terral_tests::promises;
use terral_tests::rules::{self, Finding};
use terral_tests::source::Source;

/// Lines a file may have, all counted.
const FILE_LINES: usize = 700;
/// Lines that the file in the middle may have, of all Rust files of the workspace by length.
const MEDIAN_FILE_LINES: usize = 150;
/// Lines that the function in the middle may have, of all with a body, from `fn` to the brace that
/// closes it.
const MEDIAN_FUNCTION_LINES: usize = 8;
/// Lines of code from which a file counts as long.
const LONG_FILE_LINES: usize = 500;
/// Long files there may be. Lower it when one is split.
const LONG_FILES: usize = 0;
/// Lines from which a function counts as long.
const LONG_FUNCTION_LINES: usize = 70;
/// Long functions there may be. Lower it when one is split.
const LONG_FUNCTIONS: usize = 0;
/// It holds the state of every role of the server, which stand upon it.
const HUB: &str = "src/server/core/state.rs";

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn collect(folder: &str, into: &mut Vec<Source>) {
    let entries = std::fs::read_dir(repository().join(folder)).expect(folder);
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect(folder).file_name().into_string().expect("UTF-8 name"))
        .collect();
    names.sort();
    for name in names {
        let path = format!("{folder}/{name}");
        let full = repository().join(&path);
        if full.is_dir() {
            collect(&path, into);
        } else if [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end)) {
            into.push(Source::new(&path, &std::fs::read_to_string(&full).expect(&path)));
        }
    }
}

fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    collect("src", &mut all);
    collect("tests", &mut all);
    assert!(all.len() > 10, "found no sources to check");
    all
}

fn rust_sources() -> Vec<Source> {
    sources().into_iter().filter(|source| source.path.ends_with(".rs")).collect()
}

fn report(found: &[Finding]) {
    let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
    assert!(found.is_empty(), "\n{}\n", lines.join("\n"));
}

fn hold(sources: Vec<Source>, rule: impl Fn(&Source) -> Vec<Finding>) {
    report(&sources.iter().flat_map(rule).collect::<Vec<_>>());
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(repository())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata speaks JSON")
}

#[test]
fn rooms_import_only_what_the_design_allows() {
    report(&rules::arrows(&metadata()));
}

#[test]
fn every_file_says_first_what_it_is() {
    hold(rust_sources(), rules::opening);
}

#[test]
fn lines_end_at_a_hundred() {
    hold(sources(), rules::line_length);
}

#[test]
fn imports_are_named() {
    hold(rust_sources(), rules::glob_imports);
}

#[test]
fn names_name_topics() {
    hold(sources(), rules::room_names);
}

#[test]
fn unsafe_stays_in_its_rooms() {
    hold(rust_sources(), rules::unsafe_rooms);
}

#[test]
fn nothing_is_left_for_later() {
    hold(sources(), rules::unfinished);
}

#[test]
fn nobody_comes_back_to_the_library_on_the_way_to_the_kernel() {
    hold(rust_sources(), rules::way_to_the_kernel);
}

#[test]
fn what_a_server_decides_asks_no_clock_kernel_or_file() {
    hold(rust_sources(), rules::server_in_its_shell);
}

#[test]
fn roles_of_the_server_have_their_state_for_themselves() {
    hold(rust_sources(), rules::state_methods);
}

#[test]
fn every_promise_names_a_test() {
    let page = "docs/semantics.md";
    let text = std::fs::read_to_string(repository().join(page)).expect(page);
    report(&promises::without_test(page, &text, &rust_sources()));
}

/// With `TERRAL_SHOW_CALLS` set it prints who calls whom, and the lists as they are now.
#[test]
fn calls_inside_the_server_make_no_circle() {
    let server = Server::read(&rust_sources()).expect("sources parse");
    if std::env::var_os("TERRAL_SHOW_CALLS").is_some() {
        println!("{}", server.shown());
    }
    for (what, found, listed) in [
        ("rooms in a circle", server.rooms().in_circles(), &[][..]),
        ("files of a room in a circle", server.files().in_circles(), &[]),
        ("states changed past their doors", server.changed_elsewhere(), doors::DOORS),
    ] {
        let differ = circles::differences(&found, listed);
        assert!(differ.is_empty(), "{what} (`make calls` shows all):\n{}\n", differ.join("\n"));
    }
}

#[test]
fn files_and_functions_stay_short() {
    let all = rust_sources();
    report(&all.iter().flat_map(|s| rules::whole_length(s, FILE_LINES)).collect::<Vec<_>>());
    let lines = rules::median(all.iter().map(|source| source.text.lines().count()));
    assert!(lines <= MEDIAN_FILE_LINES, "the file in the middle has {lines} lines");
    let lengths = all.iter().flat_map(|source| source.functions()).map(|(.., lines)| lines);
    let lines = rules::median(lengths);
    assert!(lines <= MEDIAN_FUNCTION_LINES, "the function in the middle has {lines} lines");
    let files: Vec<_> = all.iter().flat_map(|s| rules::file_length(s, LONG_FILE_LINES)).collect();
    let functions: Vec<_> =
        all.iter().flat_map(|s| rules::function_length(s, LONG_FUNCTION_LINES)).collect();
    if files.len() > LONG_FILES {
        report(&files);
    }
    if functions.len() > LONG_FUNCTIONS {
        report(&functions);
    }
    let now = (files.len(), functions.len());
    assert_eq!(now, (LONG_FILES, LONG_FUNCTIONS), "better than the ratchet: lower it in tidy.rs");
}

#[test]
fn files_import_only_what_stands_above_them() {
    let all = rust_sources();
    let mut found = Vec::new();
    for source in all.iter().filter(|source| source.path != HUB) {
        let home = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let crate_folder = match home.strip_prefix("src/") {
            Some(inner) => format!("src/{}", inner.split('/').next().unwrap_or_default()),
            None => "tests".to_owned(),
        };
        let roots = all.iter().filter(|root| {
            ["lib.rs", "main.rs"].iter().any(|name| root.path == format!("{crate_folder}/{name}"))
        });
        found.extend(roots.flat_map(|root| rules::import_order(root, source)));
    }
    report(&found);
}

mod each_rule_can_fail {
    use super::{Source, rules};
    use serde_json::json;

    fn source(text: &str) -> Source {
        Source::new("src/store/x.rs", text)
    }

    #[test]
    fn arrows() {
        let package = |kind| {
            let dependency = json!({ "name": "terral-transport", "kind": kind });
            json!({ "packages": [{ "name": "terral-store", "dependencies": [dependency] }] })
        };
        assert_eq!(rules::arrows(&package(json!(null))).len(), 1);
        assert_eq!(rules::arrows(&package(json!("build"))).len(), 1);
        assert!(rules::arrows(&package(json!("dev"))).is_empty());
        let stranger = json!({ "packages": [{ "name": "terral-attic", "dependencies": [] }] });
        assert_eq!(rules::arrows(&stranger).len(), 1);
    }

    #[test]
    fn opening() {
        assert_eq!(rules::opening(&source("use a::b;\n//! late\n")).len(), 1);
        assert!(rules::opening(&source("//! Said.\n")).is_empty());
    }

    #[test]
    fn line_length() {
        let text = format!("//! ok\n{}\n{}\n", "ä".repeat(100), "x".repeat(101));
        assert_eq!(rules::line_length(&source(&text))[0].line, 3);
    }

    #[test]
    fn server_in_its_shell() {
        let of = |path, text: &str| rules::server_in_its_shell(&Source::new(path, text));
        for bad in [
            "use std::time::{Duration, Instant};",
            "let now = std::time::SystemTime::now();",
            "std::thread::yield_now();",
            "use std::fs::File;",
            "use terral_transport::process;",
            "let f = File::open(path);",
            "use rustix::fs::fsync;",
        ] {
            assert!(!of("src/server/naming/names.rs", bad).is_empty(), "{bad}");
            assert!(!of("src/partition/machine.rs", bad).is_empty(), "{bad}");
            assert!(of("src/server/shell/host.rs", bad).is_empty(), "{bad}");
            assert!(of("src/client/names.rs", bad).is_empty(), "{bad}");
        }
        let good = "use std::time::Duration; fn process(&self) {} // the thread\nKind::File => 1,";
        assert!(of("src/server/naming/names.rs", good).is_empty());
    }

    #[test]
    fn state_methods() {
        let found = |path| rules::state_methods(&Source::new(path, "\nimpl State {\n}\n")).len();
        let paths = ["src/server/naming/x.rs", "src/server/core/x.rs", "src/client/x.rs"];
        assert_eq!(paths.map(found), [1, 0, 0]);
    }

    #[test]
    fn glob_imports() {
        for bad in ["use a::*;", "pub use a::{b, c::*};", "use a::{\n  *,\n};", "use a::{*};"] {
            let found = rules::glob_imports(&source(&format!("//! x\n{bad}\n")));
            assert_eq!(found.len(), 1, "{bad}");
        }
        assert!(rules::glob_imports(&source("use a::b; // ::*\nlet x = a * b;")).is_empty());
    }

    #[test]
    fn room_names() {
        for bad in ["src/util/a.rs", "src/store/helpers.rs", "tests/common/mod.rs"] {
            assert_eq!(rules::room_names(&Source::new(bad, "")).len(), 1, "{bad}");
        }
        assert!(rules::room_names(&Source::new("src/store/utility_bill.rs", "")).is_empty());
    }

    #[test]
    fn unsafe_rooms() {
        assert_eq!(rules::unsafe_rooms(&source("\nunsafe { x() }"))[0].line, 2);
        assert!(rules::unsafe_rooms(&source("// unsafe\nlet s = \"unsafe\";")).is_empty());
        assert!(rules::unsafe_rooms(&Source::new("src/transport/x.rs", "unsafe {}")).is_empty());
        assert_eq!(rules::unsafe_rooms(&Source::new("src/store/lib.rs", "//! x")).len(), 1);
        let root = Source::new("src/cli/main.rs", "#![deny(unsafe_code)]");
        assert!(rules::unsafe_rooms(&root).is_empty());
    }

    #[test]
    fn unfinished() {
        let text = "fn a() { todo!() }\nfn b() { unimplemented!() }\n#[ignore]\n// FIXME XXX\n";
        assert_eq!(rules::unfinished(&source(text)).len(), 5);
        assert!(rules::unfinished(&source("let s = \"todo! FIXME\";")).is_empty());
    }

    #[test]
    fn way_to_the_kernel() {
        let calls = |path| Source::new(path, "//! x\nfn a() { libc::syscall(1) } // libc::syscall");
        assert_eq!(rules::way_to_the_kernel(&calls("src/client/x.rs"))[0].line, 2);
        assert!(rules::way_to_the_kernel(&calls("src/cli/x.rs")).is_empty());
        let entered = Source::new("src/client/x.rs", "kernel::enter()(libc::SYS_read)");
        assert!(rules::way_to_the_kernel(&entered).is_empty());
    }

    #[test]
    fn lengths() {
        let text = "fn a() {\n1;\n\n// c\n2;\n}\n";
        assert_eq!(rules::file_length(&source(text), 3).len(), 1);
        assert!(rules::file_length(&source(text), 4).is_empty());
        assert_eq!(rules::whole_length(&source(text), 5).len(), 1);
        assert!(rules::whole_length(&source(text), 6).is_empty());
        assert_eq!(rules::median([9, 1, 3, 2].into_iter()), 3);
        assert_eq!(rules::function_length(&source(text), 5).len(), 1);
        assert!(rules::function_length(&source(text), 6).is_empty());
    }

    #[test]
    fn import_order() {
        let root = Source::new("src/store/lib.rs", "mod a;\npub mod x;\n\nmod z;\npub use a::E;\n");
        let bad = "use crate::{E, a::Q, z::{R, S}};\nuse crate::z::T;\n";
        assert_eq!(rules::import_order(&root, &source(bad)).len(), 2);
        let good = "use crate::E;\nuse crate::a::{b, c};\nuse crate::x::d; // crate::z\n";
        assert!(rules::import_order(&root, &source(good)).is_empty());
        let nested = Source::new("src/store/x/inner.rs", bad);
        assert_eq!(rules::import_order(&root, &nested).len(), 2);
    }
}
