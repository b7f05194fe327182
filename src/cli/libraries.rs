//! Where the dynamic linker finds a library: the order of ld.so(8).
//!
//! Not here: the `glibc-hwcaps` directories, whose libraries are the same ones compiled for newer
//! processors; and secure mode, in which nothing is preloaded anyway.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::elf::{Elf, Kind, kind_of};

/// Debian's name for the processor's directories.
const TRIPLET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };

/// A file that was loaded, and by which one.
pub struct Loaded {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub elf: Elf,
    /// Index of who needed it first; the program itself has none.
    pub loader: Option<usize>,
}

/// The places that are the same for all libraries of a program.
pub struct Search {
    kind: Kind,
    library_path: Vec<PathBuf>,
    cache: Vec<(String, PathBuf)>,
    usual: Vec<PathBuf>,
}

impl Search {
    /// For files of `kind`, with this `LD_LIBRARY_PATH`.
    pub fn new(kind: Kind, library_path: Option<&OsStr>) -> Self {
        let usual = ["/lib", "/usr/lib"].iter().flat_map(|root| {
            [format!("{root}/{TRIPLET}"), format!("{root}64"), (*root).to_owned()]
        });
        Search {
            kind,
            library_path: library_path.map(directories).unwrap_or_default(),
            cache: cache(),
            usual: usual.map(PathBuf::from).collect(),
        }
    }

    /// The file that `all[needing]` gets when it asks for `name`.
    pub fn find(&self, name: &str, all: &[Loaded], needing: usize) -> Option<PathBuf> {
        let fits = |path: &PathBuf| kind_of(path) == Some(self.kind);
        if name.contains('/') {
            return Some(expand(name, &all[needing].path)).filter(fits);
        }
        let runpath = all[needing].elf.runpath.as_deref();
        let mut places = Vec::new();
        let mut at = Some(needing).filter(|_| runpath.is_none());
        while let Some(loader) = at.map(|index| &all[index]) {
            if loader.elf.runpath.is_none() {
                places.extend(expanded(loader.elf.rpath.as_deref(), &loader.path));
            }
            at = loader.loader;
        }
        places.extend(self.library_path.iter().cloned());
        places.extend(expanded(runpath, &all[needing].path));
        let in_places = |places: &[PathBuf]| places.iter().map(|at| at.join(name)).find(fits);
        let cached = || self.cache.iter().filter(|entry| entry.0 == name).map(|entry| &entry.1);
        in_places(&places)
            .or_else(|| cached().find(|path| fits(path)).cloned())
            .or_else(|| in_places(&self.usual))
    }
}

/// The directories of a list; an empty entry is the working directory.
fn directories(list: &OsStr) -> Vec<PathBuf> {
    if list.is_empty() {
        return Vec::new();
    }
    let entries = list.as_bytes().split(|byte| [b':', b';'].contains(byte));
    let path = |entry: &[u8]| if entry.is_empty() { b"." } else { entry }.to_vec();
    entries.map(|entry| PathBuf::from(OsStr::from_bytes(&path(entry)))).collect()
}

fn expanded(list: Option<&str>, of: &Path) -> Vec<PathBuf> {
    let list = list.map(OsStr::new).map(directories).unwrap_or_default();
    list.iter().map(|entry| expand(&entry.to_string_lossy(), of)).collect()
}

/// `$ORIGIN`, `$LIB` and `$PLATFORM` in an entry of the file `of`.
fn expand(entry: &str, of: &Path) -> PathBuf {
    let of = of.canonicalize().unwrap_or_else(|_| of.to_path_buf());
    let origin = of.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let library = format!("lib/{TRIPLET}");
    let multiarch = Path::new("/").join(&library).is_dir();
    let library = if multiarch { library.as_str() } else { "lib64" };
    let tokens = [("ORIGIN", &*origin), ("LIB", library), ("PLATFORM", std::env::consts::ARCH)];
    let mut text = entry.to_owned();
    for (token, value) in tokens {
        text = text.replace(&format!("${{{token}}}"), value).replace(&format!("${token}"), value);
    }
    PathBuf::from(text)
}

/// What `/etc/ld.so.cache` knows, as ldconfig(8) shows it; nothing if there is none.
fn cache() -> Vec<(String, PathBuf)> {
    let list = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"].iter().find_map(|program| {
        let mut command = Command::new(program);
        command.arg("-p").stdin(Stdio::null()).stderr(Stdio::null());
        command.output().ok().filter(|output| output.status.success())
    });
    let text = list.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().filter_map(cached).collect()
}

/// A line like `libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1`.
fn cached(line: &str) -> Option<(String, PathBuf)> {
    let (name, rest) = line.trim().split_once(" (")?;
    let (flags, path) = rest.rsplit_once(") => ")?;
    (!flags.contains("hwcap")).then(|| (name.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::{cached, directories, expand, expanded};
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    #[test]
    fn entries_are_read_as_the_linker_does() {
        assert!(directories(OsStr::new("")).is_empty());
        assert_eq!(directories(OsStr::new("/a::b;c")), ["/a", ".", "b", "c"].map(PathBuf::from));
        let of = Path::new("/usr/bin/../bin/nothing");
        assert_eq!(expand("$ORIGIN/../x", of), Path::new("/usr/bin/../bin/../x"));
        assert_eq!(expanded(Some("${ORIGIN}:/y"), Path::new("/opt/p")).len(), 2);
        assert!(expanded(None, of).is_empty());
    }

    #[test]
    fn lines_of_the_cache() {
        let line = "\tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1";
        assert_eq!(
            cached(line),
            Some(("libz.so.1".into(), "/lib/x86_64-linux-gnu/libz.so.1".into()))
        );
        assert_eq!(cached("1234 libs found in cache `/etc/ld.so.cache'"), None);
        assert_eq!(cached("\tliba.so (libc6,x86-64, hwcap: \"x86-64-v3\") => /a"), None);
    }
}
