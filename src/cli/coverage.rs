//! Which calls on files a program and its libraries can make, and which of them reach Terral.
//!
//! A call is what a dynamic symbol table asks for; it is served if the preload library, as it lies
//! there, exports that name. Invariant: nothing is executed to find out. Not here: what Terral
//! refuses of the calls it gets (`docs/semantics.md`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use terral_client::{dispatch, raw_calls};

use crate::elf::{Elf, kind_of};
use crate::libc_files::{Functions, Way};
use crate::libraries::{Loaded, Search};
use crate::program::{self, Executable};
use crate::report::{code, failure};
use crate::shim;

/// Begins of the names of glibc's own libraries, whose calls to each other nobody sees.
const GLIBC: [&str; 12] = [
    "libc.so.",
    "ld-linux",
    "libm.so.",
    "libmvec.so.",
    "libpthread.so.",
    "libdl.so.",
    "librt.so.",
    "libutil.so.",
    "libanl.so.",
    "libresolv.so.",
    "libBrokenLocale.so.",
    "libthread_db.so.",
];
/// Libraries whose calls on files go through shared rings or by number.
const RINGS: [&str; 2] = ["liburing", "libaio.so."];
/// Libraries a program may have.
const MOST_LIBRARIES: usize = 4096;

/// A function and who asks for it.
#[derive(Debug, Serialize)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// File names of the program and libraries that import it.
    pub by: Vec<String>,
}

/// Calls with one purpose and one fate.
#[derive(Debug, Serialize)]
pub struct Group {
    /// What they do.
    pub family: &'static str,
    /// What it means that they fall through, or are not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<&'static str>,
    /// Which.
    pub calls: Vec<Call>,
}

/// A library that is not there.
#[derive(Debug, Serialize)]
pub struct Missing {
    /// As it is asked for.
    pub name: String,
    /// Who asks.
    pub by: String,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Coverage {
    /// What was asked for.
    pub program: PathBuf,
    /// The file whose code runs, if that was a script.
    pub run_by: Option<PathBuf>,
    /// Why nothing of it can be served, if so.
    pub cannot_be_seen: Option<String>,
    /// Needed, and not found: the program would not start.
    pub missing: Vec<Missing>,
    /// Files looked at, beside the program.
    pub libraries: Vec<PathBuf>,
    /// Calls that reach Terral.
    pub served: Vec<Group>,
    /// Calls that go to the kernel, which has no such files.
    pub falls_through: Vec<Group>,
    /// Calls of which nobody can tell beforehand what they do.
    pub unseen: Vec<Group>,
    /// Objects that make system calls by instructions of their own.
    pub raw: Vec<Raw>,
}

/// An object that makes system calls by instructions of its own.
#[derive(Debug, Serialize)]
pub struct Raw {
    /// Its file name.
    pub name: String,
    /// Places where it does.
    pub places: usize,
    /// Whether they are caught.
    pub caught: bool,
}

impl Coverage {
    /// As people name the program.
    pub fn name(&self) -> String {
        file_name(&self.program)
    }

    /// The file whose code runs.
    pub fn executed(&self) -> &Path {
        self.run_by.as_ref().unwrap_or(&self.program)
    }

    /// Its name, as calls have it in `by`.
    pub fn executed_name(&self) -> String {
        file_name(self.executed())
    }
}

/// Looks at `name` as `terral run` would start it with `preload`.
///
/// # Errors
/// With the exit codes of `terral run`, if it would not start it.
pub fn look(name: &OsStr, preload: &Path) -> Result<Coverage> {
    let Executable { mut scripts, path } = program::find(name)?;
    let mut found = Coverage { program: path.clone(), ..Coverage::default() };
    if !scripts.is_empty() {
        (found.program, found.run_by) = (scripts.swap_remove(0), Some(path.clone()));
    }
    let no_library = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    let preload = Elf::read(preload).map_err(no_library)?;
    match whole(&path, &preload) {
        Err(why) => found.cannot_be_seen = Some(why),
        Ok(elf) => {
            let (loaded, missing) = load(&path, elf);
            found.missing = missing;
            found.libraries = loaded.iter().skip(1).map(|one| one.path.clone()).collect();
            classify(&loaded, &preload, &mut found);
            found.raw = loaded.iter().filter_map(raw).collect();
        }
    }
    Ok(found)
}

/// What is executed when `name` is started, and why nothing of it can be served, if so.
pub fn unseen(name: &OsStr, preload: &Path) -> Option<(PathBuf, String)> {
    let path = program::find(name).ok()?.path;
    let preload = Elf { kind: kind_of(preload)?, ..Elf::default() };
    let why = whole(&path, &preload).err()?;
    Some((path, why))
}

/// What the program says, if a preloaded library sees its calls at all; else why not.
fn whole(path: &Path, preload: &Elf) -> Result<Elf, String> {
    if let Some(why) = program::privilege(path) {
        return Err(why.into());
    }
    match kind_of(path) {
        Some(kind) if kind == preload.kind => {}
        Some(_) => return Err("it is for another kind of processor than the library".into()),
        None => return Err("it has been cut off".into()),
    }
    let elf = Elf::read(path).map_err(|error| format!("it cannot be looked at: {error:#}"))?;
    if elf.is_go {
        return Err("a Go program makes its system calls by itself, past the C library".into());
    }
    let Some(interpreter) = &elf.interpreter else {
        if elf.is_program {
            return Err("a static program loads no libraries, this one neither".into());
        }
        return Ok(elf);
    };
    if !file_name(Path::new(interpreter)).starts_with("ld-linux") {
        return Err(format!("{interpreter} loads it, the library is for glibc's linker"));
    }
    Ok(elf)
}

/// What an object does by itself, if it does.
fn raw(one: &Loaded) -> Option<Raw> {
    let name = file_name(&one.path);
    if raw_calls::is_known(name.as_bytes()) {
        return None;
    }
    let own = raw_calls::look(&std::fs::read(&one.path).ok()?)?;
    let places = own.numbers.len();
    let caught = !own.is_go && dispatch::is_offered();
    (places > 0 || own.is_go).then_some(Raw { name, places, caught })
}

fn is_glibc(name: &str) -> bool {
    GLIBC.iter().any(|begin| name.starts_with(begin))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().escape_debug().to_string()
}

/// The program and all libraries it needs, breadth first as they are loaded, without glibc's own.
fn load(path: &Path, elf: Elf) -> (Vec<Loaded>, Vec<Missing>) {
    let mut list = shim::library_path(path).unwrap_or_default().into_os_string();
    if let Some(more) = std::env::var_os("LD_LIBRARY_PATH").filter(|more| !more.is_empty()) {
        list.push(if list.is_empty() { "" } else { ":" });
        list.push(more);
    }
    let search = Search::new(elf.kind, Some(&list));
    let (mut known, mut missing) = (HashSet::new(), Vec::new());
    let mut loaded = vec![Loaded { path: path.to_path_buf(), elf, loader: None }];
    let mut at = 0;
    while at < loaded.len() && loaded.len() < MOST_LIBRARIES {
        for name in loaded[at].elf.needed.clone() {
            if is_glibc(&name) || !known.insert(name.clone()) {
                continue;
            }
            let found = search.find(&name, &loaded, at);
            let Some((path, elf)) =
                found.and_then(|path| Some((path.clone(), Elf::read(&path).ok()?)))
            else {
                let name = name.escape_debug().to_string();
                missing.push(Missing { name, by: file_name(&loaded[at].path) });
                continue;
            };
            known.extend(elf.soname.clone());
            let same = path.canonicalize().ok();
            if loaded.iter().all(|one| one.path.canonicalize().ok() != same) {
                loaded.push(Loaded { path, elf, loader: Some(at) });
            }
        }
        at += 1;
    }
    (loaded, missing)
}

/// Function to the names of those that import it.
type Calls<'a> = BTreeMap<&'a str, BTreeSet<String>>;

fn group(family: &'static str, meaning: Option<&'static str>, calls: Calls<'_>) -> Group {
    let call = |(name, by): (&str, BTreeSet<String>)| Call {
        name: name.to_owned(),
        by: by.into_iter().collect(),
    };
    Group { family, meaning, calls: calls.into_iter().map(call).collect() }
}

fn classify(loaded: &[Loaded], preload: &Elf, found: &mut Coverage) {
    let known = Functions::known();
    let exports: HashSet<&str> = preload.exports.iter().map(String::as_str).collect();
    let mut served: Vec<Calls<'_>> = known.families.iter().map(|_| Calls::new()).collect();
    let mut rest: Vec<Calls<'_>> = known.families.iter().map(|_| Calls::new()).collect();
    for one in loaded {
        for name in &one.elf.imports {
            let Some(family) = known.family_of(name) else { continue };
            let goes_to = match known.families[family].way {
                Way::Via(carrier) => exports.contains(carrier) || exports.contains(&**name),
                Way::Itself | Way::Unseen => exports.contains(&**name),
            };
            let side = if goes_to { &mut served } else { &mut rest };
            side[family].entry(name).or_default().insert(file_name(&one.path));
        }
    }
    for ((family, served), rest) in known.families.iter().zip(served).zip(rest) {
        if !served.is_empty() {
            found.served.push(group(family.name, None, served));
        }
        if !rest.is_empty() {
            let unseen = family.way == Way::Unseen;
            let side = if unseen { &mut found.unseen } else { &mut found.falls_through };
            side.push(group(family.name, Some(family.meaning), rest));
        }
    }
    let rings = loaded.iter().map(|one| file_name(&one.path));
    let rings = rings.filter(|name| RINGS.iter().any(|begin| name.starts_with(begin)));
    let calls: Vec<Call> = rings.map(|name| Call { by: vec![name.clone()], name }).collect();
    if !calls.is_empty() {
        let meaning = Some("what is asked for through rings is not seen");
        found.unseen.push(Group { family: "rings", meaning, calls });
    }
}

#[cfg(test)]
mod tests {
    use super::{Coverage, Group, load, look};
    use crate::elf::Elf;
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// Compiles `text`; none, said, if there is no compiler.
    fn compile(home: &Path, name: &str, text: &str, how: &[&str]) -> Option<PathBuf> {
        let (source, made) = (home.join(format!("{name}.c")), home.join(name));
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new("gcc");
        command.arg("-o").arg(&made).arg(&source).args(how).current_dir(home);
        match command.stdin(Stdio::null()).status() {
            Ok(done) if done.success() => Some(made),
            other => {
                println!("skipped: gcc {how:?}: {other:?}");
                None
            }
        }
    }

    /// A library that stands for these functions.
    fn stand_in(home: &Path, names: &[&str]) -> Option<PathBuf> {
        let text: String = names.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
        compile(home, "stand-in.so", &text, &["-shared", "-fPIC", "-w", "-fno-builtin"])
    }

    fn names(groups: &[Group]) -> BTreeSet<&str> {
        groups.iter().flat_map(|group| &group.calls).map(|call| &*call.name).collect()
    }

    fn looked(path: &Path, preload: &Path) -> Coverage {
        look(path.as_os_str(), preload).unwrap()
    }

    #[test]
    fn what_is_exported_is_served_and_the_rest_falls_through() {
        let home = tempfile::tempdir().unwrap();
        let Some(library) = stand_in(home.path(), &["read", "fopen", "malloc"]) else { return };
        let text = "#include <stdio.h>\n#include <unistd.h>\n#include <aio.h>\n\
                    int main(void) { char c; struct aiocb *a = 0; fputc(1, fopen(\"x\", \"r\"));\n\
                    return read(0, &c, 1) + aio_read(a) + (int)syscall(1); }\n";
        let Some(program) = compile(home.path(), "program", text, &["-D_GNU_SOURCE"]) else {
            return;
        };
        let found = looked(&program, &library);
        assert_eq!(found.cannot_be_seen, None);
        assert_eq!(names(&found.served), ["fopen", "fputc", "read"].into());
        assert_eq!(names(&found.falls_through), ["aio_read"].into());
        assert_eq!(names(&found.unseen), ["syscall"].into());
        assert_eq!(found.falls_through[0].calls[0].by, ["program"]);
    }

    #[test]
    fn libraries_are_looked_at_where_the_linker_finds_them() {
        let home = tempfile::tempdir().unwrap();
        let Some(library) = stand_in(home.path(), &["read"]) else { return };
        std::fs::create_dir(home.path().join("deep")).unwrap();
        let inner = "#include <sys/stat.h>\nint inner(void) { return mkdir(\"x\", 0); }\n";
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libinner.so"];
        let Some(made) = compile(home.path(), "libinner.so", inner, &shared) else { return };
        std::fs::rename(made, home.path().join("deep/libinner.so")).unwrap();
        let outer = "int inner(void);\nint main(void) { return inner(); }\n";
        let how = ["-Ldeep", "-linner", "-Wl,-rpath,$ORIGIN/deep"];
        let Some(program) = compile(home.path(), "outer", outer, &how) else { return };
        let found = looked(&program, &library);
        assert!(found.missing.is_empty() && found.libraries.len() == 1, "{found:?}");
        assert_eq!(found.falls_through[0].calls[0].by, ["libinner.so"]);
        std::fs::remove_file(home.path().join("deep/libinner.so")).unwrap();
        let found = looked(&program, &library);
        assert_eq!(
            (found.missing[0].name.as_str(), &*found.missing[0].by),
            ("libinner.so", "outer")
        );
    }

    #[test]
    fn what_cannot_be_seen_says_why() {
        let home = tempfile::tempdir().unwrap();
        let Some(library) = stand_in(home.path(), &["read"]) else { return };
        let go = "__attribute__((section(\".go.buildinfo\"), used)) static char mark[16];\n";
        for (text, how, why) in [
            ("", "-static", "static"),
            ("", "-static-pie", "static"),
            ("", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1", "ld-musl"),
            (go, "-O0", "Go"),
        ] {
            let text = format!("{text}int main(void) {{ return 0; }}\n");
            let Some(program) = compile(home.path(), "unseen", &text, &[how]) else { continue };
            let found = looked(&program, &library);
            let said = found.cannot_be_seen.unwrap_or_default();
            assert!(said.contains(why), "{how}: {said}");
            assert!(found.served.is_empty() && found.falls_through.is_empty());
        }
    }

    #[test]
    fn programs_with_another_users_rights_load_nothing() {
        let home = tempfile::tempdir().unwrap();
        let Some(library) = stand_in(home.path(), &["read"]) else { return };
        let program = if rustix::process::geteuid().is_root() {
            let copy = home.path().join("copy");
            std::fs::copy("/bin/cat", &copy).unwrap();
            std::os::unix::fs::chown(&copy, Some(1), None).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
            copy
        } else {
            PathBuf::from("/usr/bin/passwd")
        };
        if !program.exists() {
            println!("skipped: {} is not there", program.display());
            return;
        }
        let said = looked(&program, &library).cannot_be_seen.unwrap_or_default();
        assert!(said.contains("set-user-id"), "{said}");
    }

    #[test]
    fn a_script_is_what_runs_it() {
        let home = tempfile::tempdir().unwrap();
        let Some(library) = stand_in(home.path(), &["read"]) else { return };
        let script = home.path().join("script");
        std::fs::write(&script, "#!/bin/cat\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = looked(&script, &library);
        assert_eq!(found.run_by.as_deref(), Some(Path::new("/bin/cat")));
        assert!(names(&found.served).contains("read"));
        assert!(names(&found.falls_through).contains("write"));
    }

    /// Paths that ldd(1) shows.
    fn listed(program: &Path) -> Option<BTreeSet<PathBuf>> {
        let output =
            Command::new("ldd").arg(program).output().ok().filter(|o| o.status.success())?;
        let text = String::from_utf8(output.stdout).unwrap();
        let paths = text.lines().filter_map(|line| {
            let path = line.split_once(" => ")?.1.split(" (").next()?;
            Path::new(path).canonicalize().ok()
        });
        Some(paths.collect())
    }

    #[test]
    fn the_same_libraries_as_the_linker_loads() {
        let mut compared = 0;
        for program in ["/bin/cat", "/bin/tar", "/usr/bin/git", "/usr/bin/perl", "/usr/bin/lmp"] {
            let program = Path::new(program);
            let Some(listed) = program.exists().then(|| listed(program)).flatten() else {
                continue;
            };
            let (loaded, missing) = load(program, Elf::read(program).unwrap());
            assert!(missing.is_empty(), "{missing:?}");
            let found: BTreeSet<PathBuf> =
                loaded.iter().skip(1).map(|one| one.path.canonicalize().unwrap()).collect();
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            let listed = listed.into_iter().filter(|path| !super::is_glibc(&name(path)));
            assert_eq!(found, listed.collect(), "{}", program.display());
            compared += 1;
        }
        assert!(compared > 0, "cat is everywhere");
    }
}
