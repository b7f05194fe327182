//! The rules of the house, each a function from what it looks at to what it finds wrong.
//!
//! Pure: what they look at is handed to them, so that each has a test that shows it can fail.

use serde_json::Value;

use crate::source::{Source, line_of};

/// A rule broken somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path from the repository's root.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn finding(file: &str, line: usize, what: impl Into<String>) -> Finding {
    Finding { file: file.to_owned(), line, what: what.into() }
}

/// Who may import whom: the arrows of the design.
const ARROWS: &[(&str, &[&str])] = &[
    ("format", &[]),
    ("transport", &["format"]),
    ("store", &["format"]),
    ("partition", &["format"]),
    ("network", &["format"]),
    ("registry", &["format"]),
    ("server", &["transport", "store", "partition", "network", "registry", "format"]),
    ("client", &["transport", "format"]),
    ("relay", &["client", "server", "format"]),
    ("c", &["client"]),
    ("preload", &["client"]),
    ("fuse", &["client"]),
    ("python", &["client"]),
    ("cli", &["client", "network", "registry", "relay", "server", "fuse"]),
];

/// The rooms whose work cannot be done without `unsafe`.
const UNSAFE_ROOMS: &[&str] = &["transport", "preload", "c", "fuse", "python"];

/// The files of a server, and of tests of it, that ask clocks, the kernel and files, and that wait.
const SERVER_SHELL: &[&str] = &["shell/", "shared.rs", "sim/speed.rs", "explore/search.rs"];

const NAMELESS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// The arrows, from `cargo metadata`'s answer. Dev-dependencies are free; `tests` may import all.
pub fn arrows(metadata: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(room) = name.strip_prefix("terral-").filter(|room| *room != "tests") else {
            continue;
        };
        let manifest = format!("src/{room}/Cargo.toml");
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == room) else {
            let what = format!("room `{room}` has no arrows: add it to the design and to ARROWS");
            found.push(finding(&manifest, 1, what));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let Some(to) = to.strip_prefix("terral-") else { continue };
            if dependency["kind"].as_str() != Some("dev") && !allowed.contains(&to) {
                let what = format!(
                    "`{room}` must not import `{to}` (allowed: {allowed:?}): use what a room \
                     below re-exports, or move the code"
                );
                found.push(finding(&manifest, 1, what));
            }
        }
    }
    found
}

/// Every file says first what it is.
pub fn opening(source: &Source) -> Vec<Finding> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    let what = "open with `//!`: what the file is, its invariants, what it does not do";
    vec![finding(&source.path, 1, what)]
}

/// No line over 100 characters.
pub fn line_length(source: &Source) -> Vec<Finding> {
    let long = source.text.lines().enumerate().filter(|(_, line)| line.chars().count() > 100);
    long.map(|(at, line)| {
        let what = format!("{} characters: break the line at 100", line.chars().count());
        finding(&source.path, at + 1, what)
    })
    .collect()
}

/// Names are imported one by one.
pub fn glob_imports(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("use ") {
        let starts_word = source.code[..at].chars().next_back().is_none_or(char::is_whitespace);
        let statement = source.code[at..].split(';').next().unwrap_or_default();
        if starts_word && is_glob(statement) {
            let what = "glob import: name what is used";
            found.push(finding(&source.path, line_of(&source.code, at), what));
        }
    }
    found
}

fn is_glob(statement: &str) -> bool {
    let dense: String = statement.split_whitespace().collect();
    ["::*", "{*", ",*"].iter().any(|glob| dense.contains(glob))
}

/// No room and no file for things without a place.
pub fn room_names(source: &Source) -> Vec<Finding> {
    let stem = |part: &str| part.split('.').next().unwrap_or_default().to_owned();
    let bad = source.path.split('/').map(stem).find(|part| NAMELESS.contains(&part.as_str()));
    bad.map(|name| {
        let what = format!("`{name}` names no topic: name the file after what it is for");
        finding(&source.path, 1, what)
    })
    .into_iter()
    .collect()
}

/// `unsafe` stays where it is needed.
pub fn unsafe_rooms(source: &Source) -> Vec<Finding> {
    if UNSAFE_ROOMS.contains(&source.room()) || !source.path.ends_with(".rs") {
        return Vec::new();
    }
    let what = "`unsafe` outside transport, preload and c: move it behind a safe face there";
    let mut found: Vec<Finding> = words(&source.code, "unsafe")
        .map(|at| finding(&source.path, line_of(&source.code, at), what))
        .collect();
    let is_root = source.path.ends_with("lib.rs") || source.path.ends_with("main.rs");
    if is_root && !source.code.contains("#![deny(unsafe_code)]") {
        found.push(finding(&source.path, 1, "add `#![deny(unsafe_code)]`"));
    }
    found
}

/// Nothing is left for later, nothing is skipped.
pub fn unfinished(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let marks = [
        (&source.code, "todo!", "write it, or return ErrorKind::Unsupported"),
        (&source.code, "unimplemented!", "write it, or return ErrorKind::Unsupported"),
        (&source.code, "#[ignore", "a test that does not run proves nothing: mend or remove it"),
        (&source.comments, "FIXME", "mend it, or say in the present tense why it is so"),
        (&source.comments, "XXX", "mend it, or say in the present tense why it is so"),
    ];
    for (text, mark, what) in marks {
        for (at, _) in text.match_indices(mark) {
            found.push(finding(&source.path, line_of(text, at), format!("`{mark}`: {what}")));
        }
    }
    found
}

/// Rooms that the preload library is made of enter the kernel past the `syscall` it stands for.
pub fn way_to_the_kernel(source: &Source) -> Vec<Finding> {
    let rooms = ["src/transport/", "src/client/", "src/preload/"];
    if !rooms.iter().any(|room| source.path.starts_with(room)) {
        return Vec::new();
    }
    let marks = source.code.match_indices("libc::syscall");
    let what = "`libc::syscall` is the preload library's own: enter by `kernel::enter()`";
    marks.map(|(at, _)| finding(&source.path, line_of(&source.code, at), what)).collect()
}

/// What a server decides, alone or with others, depends on what it is told, and on time and chance
/// as `world` has them: only its shell, which locks, waits and asks the kernel, is beside that.
pub fn server_in_its_shell(source: &Source) -> Vec<Finding> {
    let deciding = ["src/server/", "src/partition/"];
    let Some(name) = deciding.iter().find_map(|room| source.path.strip_prefix(room)) else {
        return Vec::new();
    };
    if SERVER_SHELL.iter().any(|shell| name.starts_with(shell)) {
        return Vec::new();
    }
    let marks = [
        ("Instant", "the clock is `World::now`"),
        ("SystemTime", "the clock is `World::wall_ns`"),
        ("getrandom", "chance is `World::random`"),
        ("thread", "threads, and waiting, are the shell's"),
        ("Condvar", "waiting is the shell's"),
        ("File", "files are the shell's"),
        ("fs", "files are the shell's"),
        ("rustix", "asking the kernel is the shell's"),
        ("process", "processes are `Machine`'s"),
    ];
    let mut found = Vec::new();
    for (mark, what) in marks {
        let is_import = |at: &usize| {
            let rest = &source.code[at + mark.len()..];
            let of = ["std::", "transport::"].iter().any(|of| source.code[..*at].ends_with(of));
            ["Instant", "SystemTime", "getrandom", "Condvar", "rustix"].contains(&mark)
                || (of && rest.starts_with([':', ';', ',', '}']))
                || (mark == "File" && rest.starts_with("::o"))
        };
        let places = words(&source.code, mark).filter(is_import);
        found.extend(places.map(|at| finding(&source.path, line_of(&source.code, at), what)));
    }
    found
}

/// The server's `State` holds the roles and says what they know together; what requests do are
/// functions of a role, which say by where they stand whose they are.
pub fn state_methods(source: &Source) -> Vec<Finding> {
    let roles = source.path.strip_prefix("src/server/").filter(|name| !name.starts_with("core/"));
    let blocks = roles.into_iter().flat_map(|_| source.code.match_indices("\nimpl State {"));
    let what = "a method of `State` outside `core`: make it a function of its role";
    blocks.map(|(at, _)| finding(&source.path, line_of(&source.code, at + 1), what)).collect()
}

/// No file over `most` lines of code.
pub fn file_length(source: &Source, most: usize) -> Vec<Finding> {
    let lines = source.code_lines();
    if lines <= most {
        return Vec::new();
    }
    let what = format!("{lines} lines of code, at most {most}: split it by topic");
    vec![finding(&source.path, 1, what)]
}

/// No file over `most` lines, comments and empty ones included.
pub fn whole_length(source: &Source, most: usize) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if lines <= most {
        return Vec::new();
    }
    vec![finding(&source.path, 1, format!("{lines} lines, at most {most}: split it by topic"))]
}

/// The one in the middle; of two the larger.
pub fn median(of: impl Iterator<Item = usize>) -> usize {
    let mut all: Vec<usize> = of.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Functions longer than `most` lines.
pub fn function_length(source: &Source, most: usize) -> Vec<Finding> {
    let long = source.functions().into_iter().filter(|(_, _, lines)| *lines > most);
    long.map(|(name, line, lines)| {
        let what = format!("`{name}` has {lines} lines, at most {most}: take a part out");
        finding(&source.path, line, what)
    })
    .collect()
}

/// Inside a crate, a file imports only modules that the root lists above its own.
///
/// `root` is the crate's lib.rs or main.rs; names that it does not declare are its re-exports.
pub fn import_order(root: &Source, source: &Source) -> Vec<Finding> {
    let order: Vec<&str> = root.code.lines().filter_map(declared).collect();
    let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let inner = source.path.strip_prefix(folder).unwrap_or_default().trim_start_matches('/');
    let own = inner.split(['/', '.']).next().unwrap_or_default();
    let Some(own_place) = order.iter().position(|name| *name == own) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for at in words(&source.code, "crate") {
        let Some(rest) = source.code[at..].strip_prefix("crate::") else { continue };
        for name in first_names(rest) {
            let place = order.iter().position(|module| *module == name);
            if place.is_some_and(|place| place > own_place) {
                let what = format!(
                    "`{own}` imports `{name}`, which {} lists below it: turn the arrow round, or \
                     list `{name}` first",
                    root.path
                );
                found.push(finding(&source.path, line_of(&source.code, at), what));
            }
        }
    }
    found
}

fn declared(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// The names right after `crate::`: one, or those of a braced list.
fn first_names(rest: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let Some(list) = rest.strip_prefix('{') else {
        return rest.split(|c| !is_name(c)).take(1).collect();
    };
    let (mut names, mut depth, mut start) = (Vec::new(), 0usize, 0usize);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let item = list[start..at].trim_start();
                names.push(item.split(|c| !is_name(c)).next().unwrap_or_default());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// Where `word` stands by itself.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[*at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}
